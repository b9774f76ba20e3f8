//! One box as a row: the SQL for it, and the JSON form of its life. The lifecycle's types know no serde, so that they may
//! change freely; what is on disk is spelled here, and read back field by field.

mod policy;
mod state;

use std::collections::HashMap;
use std::sync::Arc;

use icebox_lifecycle::sandbox::{
    Agent, Background, Call, Gaps, Holds, Link, Meter, Retry, Takeover,
};
use icebox_lifecycle::{BoxId, CallId, Policy, Sandbox, Time};
use rusqlite::{Row, Transaction, params};
use serde::de::Error as _;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use super::{Loaded, Put, StoreError};
use crate::record::Record;
use crate::shared::Shared;
use policy::PolicyRow;
use state::{CauseRow, StateRow, TakeoverCauseRow};

/// Writes one box, which counts in all gaps up to number `gap`.
pub(super) fn put(tx: &Transaction<'_>, put: &Put<'_>, gap: i64) -> rusqlite::Result<()> {
    let fail = |error| rusqlite::Error::ToSqlConversionFailure(Box::new(error));
    let body = serde_json::to_string(&SandboxRow::<PolicyRow>::from(put.sandbox)).map_err(fail)?;
    let id = put.sandbox.id;
    let generation = i64::try_from(put.generation).unwrap_or(i64::MAX);
    let deadline = put.deadline.map(|at| at.0);
    let recorded = put.recorded_at.0;
    let Some(record) = put.record else {
        tx.prepare_cached(
            "UPDATE boxes SET generation = ?2, state = ?3, next_deadline_ms = ?4, recorded_ms = ?5, body = ?6,
             gap = ?7 WHERE id = ?1",
        )?
        .execute(params![id.as_str(), generation, put.status, deadline, recorded, body, gap])?;
        return Ok(());
    };
    let record = serde_json::to_string(record).map_err(fail)?;
    tx.prepare_cached("INSERT OR REPLACE INTO boxes VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9)")?
        .execute(params![
            id.as_str(),
            put.account.0,
            generation,
            put.status,
            deadline,
            recorded,
            body,
            record,
            gap
        ])?;
    Ok(())
}

/// The most spellings of policies that are known.
const MOST_SPELLINGS: usize = 1_024;

/// Reads boxes, and lets them share what they have in common.
#[derive(Default)]
pub(super) struct Loader {
    policies: Shared<Policy>,
    /// Policies by how they are spelled in their rows: a million boxes have few, which are read once.
    spelled: HashMap<Box<str>, Arc<Policy>>,
    images: Shared<str>,
}

impl Loader {
    /// Reads one box: `id, generation, recorded_ms, body, record`.
    pub(super) fn load(&mut self, row: &Row<'_>) -> Result<Loaded, StoreError> {
        let text = |column| {
            row.get_ref(column)
                .and_then(|v| v.as_str().map_err(Into::into))
        };
        let id = text(0).map_err(StoreError::Read)?;
        let fits = |source| StoreError::Row {
            id: id.to_owned(),
            source,
        };
        let body: SandboxRow<&RawValue> =
            serde_json::from_str(text(3).map_err(StoreError::Read)?).map_err(fits)?;
        let policy = self.policy(body.policy.get()).map_err(fits)?;
        let record: Record =
            serde_json::from_str(text(4).map_err(StoreError::Read)?).map_err(fits)?;
        let generation: i64 = row.get(1).map_err(StoreError::Read)?;
        let known =
            BoxId::parse(id).ok_or_else(|| fits(serde_json::Error::custom("no id of a box")))?;
        Ok(Loaded {
            sandbox: body.into_sandbox(known, policy).map_err(fits)?,
            record: self.compact(record),
            generation: generation.unsigned_abs(),
            recorded_at: Time(row.get(2).map_err(StoreError::Read)?),
            missed: None,
        })
    }

    fn policy(&mut self, spelled: &str) -> Result<Arc<Policy>, serde_json::Error> {
        if let Some(known) = self.spelled.get(spelled) {
            return Ok(Arc::clone(known));
        }
        let row: PolicyRow = serde_json::from_str(spelled)?;
        let policy = self.policies.one(Policy::from(row));
        if self.spelled.len() < MOST_SPELLINGS {
            self.spelled.insert(spelled.into(), Arc::clone(&policy));
        }
        Ok(policy)
    }

    fn compact(&mut self, mut record: Record) -> Record {
        record.image = self.images.one(record.image);
        record.services.shrink_to_fit();
        record
    }
}

/// A box's life. Its policy is written as a row of its own, and read as the text it is.
#[derive(Serialize, Deserialize)]
struct SandboxRow<P> {
    policy: P,
    state: StateRow,
    created_at: i64,
    last_use: i64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    last_request: Option<i64>,
    /// Since use, since request, since freeze.
    #[serde(default)]
    gaps: [i64; 3],
    #[serde(default)]
    holds: HoldsRow,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    agent: Option<Box<str>>,
    #[serde(default)]
    untracked: bool,
    #[serde(default)]
    keep: bool,
    #[serde(default)]
    warm: bool,
    #[serde(default = "yes")]
    credits: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    after_phones: Option<CauseRow>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    freeze_failure: Option<RetryRow>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    way_out: Option<RetryRow>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    retry: Option<RetryRow>,
    meter: MeterRow,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    kept_until: Option<i64>,
    ops: u64,
    copies: u32,
}

fn yes() -> bool {
    true
}

#[derive(Default, Serialize, Deserialize)]
#[serde(default)]
struct HoldsRow {
    /// Id and since when.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    calls: Vec<(u64, i64)>,
    #[serde(skip_serializing_if = "Option::is_none")]
    takeover: Option<(TakeoverCauseRow, i64, i64)>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    links: Vec<(String, bool)>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    background: Vec<(Box<str>, Box<str>)>,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    recording: bool,
    #[serde(skip_serializing_if = "is_zero")]
    phones: u16,
}

fn is_zero(count: &u16) -> bool {
    *count == 0
}

#[derive(Serialize, Deserialize)]
struct MeterRow {
    total_ms: i64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    since: Option<i64>,
    life_base_ms: i64,
    boot_base_ms: i64,
    #[serde(default, skip_serializing_if = "is_no_time")]
    free_ms: i64,
}

fn is_no_time(ms: &i64) -> bool {
    *ms == 0
}

#[derive(Serialize, Deserialize)]
struct RetryRow {
    failures: u16,
    at: Option<i64>,
    reason: Box<str>,
}

impl From<&Sandbox> for SandboxRow<PolicyRow> {
    fn from(from: &Sandbox) -> Self {
        // Taken apart by name, so that a new field cannot be forgotten.
        let Sandbox {
            id: _,
            policy,
            state,
            created_at,
            last_use,
            last_request,
            gaps,
            holds,
            agent,
            keep,
            warm,
            credits,
            after_phones,
            freeze_failure,
            way_out,
            retry,
            meter,
            kept_until,
            ops,
            copies,
        } = from;
        Self {
            policy: (&**policy).into(),
            state: state.into(),
            created_at: created_at.0,
            last_use: last_use.0,
            last_request: last_request.map(|at| at.0),
            gaps: [gaps.since_use, gaps.since_request, gaps.since_freeze],
            holds: (&**holds).into(),
            agent: agent.id.clone(),
            untracked: agent.untracked,
            keep: *keep,
            warm: *warm,
            credits: *credits,
            after_phones: after_phones.map(Into::into),
            freeze_failure: freeze_failure.as_deref().map(Into::into),
            way_out: way_out.as_deref().map(Into::into),
            retry: retry.as_deref().map(Into::into),
            meter: meter.into(),
            kept_until: kept_until.map(|at| at.0),
            ops: *ops,
            copies: *copies,
        }
    }
}

impl<P> SandboxRow<P> {
    fn into_sandbox(self, id: BoxId, policy: Arc<Policy>) -> Result<Sandbox, serde_json::Error> {
        let [since_use, since_request, since_freeze] = self.gaps;
        Ok(Sandbox {
            id,
            policy,
            state: self.state.into(),
            created_at: Time(self.created_at),
            last_use: Time(self.last_use),
            last_request: self.last_request.map(Time),
            gaps: Gaps {
                since_use,
                since_request,
                since_freeze,
            },
            holds: self.holds.into_holds()?.into(),
            agent: Agent {
                id: self.agent,
                untracked: self.untracked,
            },
            keep: self.keep,
            warm: self.warm,
            credits: self.credits,
            after_phones: self.after_phones.map(Into::into),
            freeze_failure: self.freeze_failure.map(|retry| Box::new(retry.into())),
            way_out: self.way_out.map(|retry| Box::new(retry.into())),
            retry: self.retry.map(|retry| Box::new(retry.into())),
            meter: self.meter.into(),
            kept_until: self.kept_until.map(Time),
            ops: self.ops,
            copies: self.copies,
        })
    }
}

impl From<&Holds> for HoldsRow {
    fn from(from: &Holds) -> Self {
        let Holds {
            calls,
            takeover,
            links,
            background,
            recording,
            phones,
        } = from;
        Self {
            calls: calls.iter().map(|c| (c.id.0, c.since.0)).collect(),
            takeover: takeover.map(|t| (t.cause.into(), t.since.0, t.until.0)),
            links: links
                .iter()
                .map(|link| (link.from.to_string(), link.awake_by_itself))
                .collect(),
            background: background
                .iter()
                .map(|b| (b.exec.clone(), b.label.clone()))
                .collect(),
            recording: *recording,
            phones: *phones,
        }
    }
}

impl HoldsRow {
    fn into_holds(self) -> Result<Holds, serde_json::Error> {
        let link = |(from, awake_by_itself): (String, bool)| {
            let from = BoxId::parse(&from)
                .ok_or_else(|| serde_json::Error::custom(format!("`{from}` is no id of a box")))?;
            Ok(Link {
                from,
                awake_by_itself,
            })
        };
        Ok(Holds {
            calls: self
                .calls
                .into_iter()
                .map(|(id, since)| Call {
                    id: CallId(id),
                    since: Time(since),
                })
                .collect(),
            takeover: self.takeover.map(|(cause, since, until)| Takeover {
                cause: cause.into(),
                since: Time(since),
                until: Time(until),
            }),
            links: self
                .links
                .into_iter()
                .map(link)
                .collect::<Result<_, serde_json::Error>>()?,
            background: self
                .background
                .into_iter()
                .map(|(exec, label)| Background { exec, label })
                .collect(),
            recording: self.recording,
            phones: self.phones,
        })
    }
}

impl From<&Meter> for MeterRow {
    fn from(meter: &Meter) -> Self {
        Self {
            total_ms: meter.total_ms,
            since: meter.since.map(|at| at.0),
            life_base_ms: meter.life_base_ms,
            boot_base_ms: meter.boot_base_ms,
            free_ms: meter.free_ms,
        }
    }
}

impl From<MeterRow> for Meter {
    fn from(row: MeterRow) -> Self {
        Self {
            total_ms: row.total_ms,
            since: row.since.map(Time),
            life_base_ms: row.life_base_ms,
            boot_base_ms: row.boot_base_ms,
            free_ms: row.free_ms,
        }
    }
}

impl From<&Retry> for RetryRow {
    fn from(retry: &Retry) -> Self {
        Self {
            failures: retry.failures,
            at: retry.at.map(|at| at.0),
            reason: retry.reason.clone(),
        }
    }
}

impl From<RetryRow> for Retry {
    fn from(row: RetryRow) -> Self {
        Self {
            failures: row.failures,
            at: row.at.map(Time),
            reason: row.reason,
        }
    }
}
