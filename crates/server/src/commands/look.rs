//! Looking into a box that runs: its commands and what they wrote. Looking is no use, wakes nothing and holds nothing (rule
//! 4.14), so a box that does not run is not asked. Viewers share what one question brought: however many there are, the
//! daemon is asked once in [`FRESH`].

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use icebox_lifecycle::BoxId;
use icebox_wire::boxd;
use icebox_wire::rest::ProcView;
use tokio::time::Instant;

use super::exec::{is_own, proc_view, said};
use super::output::{OutputRequest, StreamName, gap};
use super::trouble::{Kind, Trouble};
use super::{Caller, Commands, wait};
use crate::clock::{machine_now, monotonic_now};
use crate::engine::View;

/// How long an answer is good for the next viewer.
const FRESH: Duration = Duration::from_secs(1);
/// Answers that are kept at a time.
const MOST: usize = 256;
/// The most output in one answer, in bytes.
const PIECE: u32 = 64 * 1024;

/// What was asked about a box.
#[derive(Clone, PartialEq, Eq, Hash)]
enum Question {
    Procs,
    Output(String, StreamName, u64),
}

#[derive(Clone)]
enum Seen {
    Procs(Arc<[boxd::ProcInfo]>),
    Output(Look),
}

/// A piece of output.
#[derive(Clone)]
pub struct Look {
    /// At which byte of the stream it begins.
    pub offset: u64,
    /// The bytes.
    pub bytes: Bytes,
    /// What is left out: bytes that are not kept any more.
    pub gap: Option<std::ops::Range<u64>>,
}

/// An answer, or the place where one is about to be.
type Slot = Arc<tokio::sync::Mutex<Option<(Instant, Seen)>>>;

/// What was seen lately.
#[derive(Default)]
pub(super) struct Looks(Mutex<HashMap<(BoxId, Question), (Instant, Slot)>>);

impl Looks {
    /// The place for the answer to a question; old ones make room.
    fn slot(&self, id: BoxId, question: Question) -> Slot {
        let now = monotonic_now();
        let mut slots = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if slots.len() >= MOST {
            slots.retain(|_, (used, _)| now.duration_since(*used) < FRESH);
        }
        if slots.len() >= MOST {
            // So many different questions at once are each asked by themselves.
            return Slot::default();
        }
        let (used, slot) = slots
            .entry((id, question))
            .or_insert_with(|| (now, Slot::default()));
        *used = now;
        Arc::clone(slot)
    }
}

impl Commands {
    /// The commands of a box that runs; `None` of one that does not.
    pub async fn look_at_procs(
        &self,
        caller: &Caller,
        id: &str,
    ) -> Result<Option<Vec<ProcView>>, Trouble> {
        let view = self.look(caller, id).await?;
        let Some(seen) = self.seen(&view, Question::Procs).await? else {
            return Ok(None);
        };
        let Seen::Procs(procs) = seen else {
            return Ok(None);
        };
        let now_ms = machine_now().0;
        let views = procs
            .iter()
            .filter(|proc| !is_own(proc))
            .map(|proc| proc_view(view.id(), proc, now_ms))
            .collect();
        Ok(Some(views))
    }

    /// What a command wrote from an offset on, as much as is there; `None` of a box that does not run.
    pub async fn look_at_output(
        &self,
        caller: &Caller,
        id: &str,
        request: OutputRequest,
    ) -> Result<Option<Look>, Trouble> {
        let view = self.look(caller, id).await?;
        let question = Question::Output(request.exec_id, request.stream, request.offset);
        Ok(match self.seen(&view, question).await? {
            Some(Seen::Output(look)) => Some(look),
            Some(Seen::Procs(_)) | None => None,
        })
    }

    async fn seen(&self, view: &View, question: Question) -> Result<Option<Seen>, Trouble> {
        if !wait::is_ready(view) {
            return Ok(None);
        }
        let slot = self.0.looks.slot(view.id(), question.clone());
        let mut slot = slot.lock().await;
        if let Some((at, seen)) = &*slot
            && monotonic_now().duration_since(*at) < FRESH
        {
            return Ok(Some(seen.clone()));
        }
        let asked = match question {
            Question::Procs => self.ask_procs(view.id()).await,
            Question::Output(exec_id, stream, offset) => {
                self.ask_output(view.id(), exec_id, stream, offset).await
            }
        };
        match asked {
            Ok(seen) => {
                *slot = Some((monotonic_now(), seen.clone()));
                Ok(Some(seen))
            }
            Err(trouble) if trouble.kind == Kind::Internal => {
                // It may have stopped running under the question, which is then nobody's mistake.
                let now = self.0.engine.views().get(view.id());
                if now.is_some_and(|now| wait::is_ready(&now)) {
                    Err(trouble)
                } else {
                    Ok(None)
                }
            }
            Err(trouble) => Err(trouble),
        }
    }

    async fn ask_procs(&self, id: BoxId) -> Result<Seen, Trouble> {
        let procs = self.0.boxds.procs(id).await;
        procs
            .map(|procs| Seen::Procs(procs.into()))
            .map_err(|error| said(&error))
    }

    async fn ask_output(
        &self,
        id: BoxId,
        exec_id: String,
        stream: StreamName,
        offset: u64,
    ) -> Result<Seen, Trouble> {
        let request = boxd::OutputRequest {
            exec_id,
            stream: stream.on_the_wire().into(),
            offset,
            max_bytes: PIECE,
            ..boxd::OutputRequest::default()
        };
        let answer = self.0.boxds.output(id, request).await;
        let answer = answer.map_err(|error| said(&error))?;
        let gap = gap(offset, &answer);
        Ok(Seen::Output(Look {
            offset: answer.data_offset,
            bytes: answer.data.into(),
            gap,
        }))
    }
}
