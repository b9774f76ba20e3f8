//! The host of the million: it has what the database says, frozen boxes on disk and a few that run, and does nothing but
//! say so. Owns the file in which it remembers them.

use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};

use anyhow::Context;
use async_trait::async_trait;
use icebox_lifecycle::{BoxId, CopyId, Processes, Seen, SnapshotId};
use icebox_server::driver::{
    BoxSpec, Capabilities, Counters, Driver, DriverError, Egress, FreezeMode, Listener,
    NoConnection, NoListener, Reaches, Stream,
};

use super::DUE;
use super::fill::{COPY, READY};

const FILE: &str = "host.boxes";

/// Remembers the boxes, in the order in which they were made.
pub(super) fn write(data: &Path, ids: &[BoxId]) -> anyhow::Result<()> {
    let lines: Vec<&str> = ids.iter().map(BoxId::as_str).collect();
    std::fs::write(data.join(FILE), lines.join("\n")).context("write the host's boxes")
}

/// The boxes that come due, and those that run.
pub(super) fn chosen(data: &Path) -> anyhow::Result<(Vec<BoxId>, Vec<BoxId>)> {
    let mut ids = ids(data)?;
    ids.truncate(DUE + READY);
    let ready = ids.split_off(DUE.min(ids.len()));
    Ok((ids, ready))
}

fn ids(data: &Path) -> anyhow::Result<Vec<BoxId>> {
    let text = std::fs::read_to_string(data.join(FILE)).context("read the host's boxes")?;
    let ids = text
        .lines()
        .map(|line| BoxId::parse(line).context("no id of a box"));
    ids.collect()
}

/// The host.
pub(super) struct Host(pub(super) PathBuf);

#[async_trait]
impl Driver for Host {
    fn capabilities(&self) -> Capabilities {
        Capabilities {
            name: "recorded",
            checkpoint: Ok(()),
            egress: Ok(()),
            cpus: 2,
            memory_mb: 16_384,
            disk_gb: 1_000,
        }
    }

    async fn boot(&self, _: &BoxSpec, _: bool) -> Result<Reaches, DriverError> {
        not_here()
    }

    async fn freeze(&self, _: BoxId, _: FreezeMode) -> Result<(), DriverError> {
        not_here()
    }

    async fn evict(&self, _: BoxId, _: CopyId) -> Result<(), DriverError> {
        not_here()
    }

    async fn thaw(&self, _: BoxId, _: CopyId) -> Result<(), DriverError> {
        not_here()
    }

    async fn release(&self, _: BoxId, _: &Egress) -> Result<Reaches, DriverError> {
        not_here()
    }

    async fn reach(&self, _: BoxId, _: &Egress) -> Result<Reaches, DriverError> {
        Ok(Reaches::AsAsked)
    }

    async fn renew(&self, _: BoxId) -> Result<(), DriverError> {
        not_here()
    }

    async fn destroy(&self, _: BoxId, _: bool) -> Result<(), DriverError> {
        not_here()
    }

    async fn drop_copy(&self, _: BoxId, _: CopyId) -> Result<(), DriverError> {
        not_here()
    }

    async fn save(&self, _: BoxId, _: Option<CopyId>, _: SnapshotId) -> Result<u64, DriverError> {
        not_here()
    }

    async fn drop_snapshot(&self, _: SnapshotId) -> Result<(), DriverError> {
        not_here()
    }

    async fn snapshots(&self) -> Result<Vec<SnapshotId>, DriverError> {
        Ok(Vec::new())
    }

    async fn list(&self) -> Result<Vec<(BoxId, Seen)>, DriverError> {
        let ids = ids(&self.0).map_err(|error| DriverError::Failed(format!("{error:#}")))?;
        let seen = |(number, id)| {
            let runs = (DUE..DUE + READY).contains(&number);
            let seen = Seen {
                processes: if runs {
                    Processes::Running
                } else {
                    Processes::Absent
                },
                copy: (!runs).then_some(COPY),
                detail: "".into(),
            };
            (id, seen)
        };
        Ok(ids.into_iter().enumerate().map(seen).collect())
    }

    async fn exited(&self, _: BoxId) -> Result<String, DriverError> {
        std::future::pending().await
    }

    async fn connect(&self, _: BoxId, _: u16) -> Result<Stream, NoConnection> {
        Err(NoConnection::NothingListens)
    }

    async fn listen(&self, _: BoxId, _: Ipv4Addr, _: u16) -> Result<Box<dyn Listener>, NoListener> {
        Err(NoListener::Unreachable("nothing is in it".to_owned()))
    }

    async fn usage(&self, _: BoxId, _: bool) -> Result<Counters, DriverError> {
        Ok(Counters::default())
    }
}

fn not_here<T>() -> Result<T, DriverError> {
    Err(DriverError::Failed("this host changes nothing".to_owned()))
}
