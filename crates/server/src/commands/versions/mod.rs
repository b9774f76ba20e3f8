//! Published versions of services: what a label stands for. A label once published always means the same. `run` has them run.

pub(super) mod run;

use icebox_wire::rest::{SnapshotRequest, VersionRequest, VersionView, VersionsResponse};

use std::sync::Arc;

use super::check::{self, CMD_LEN, NOTE_LEN, unfit};
use super::trouble::{Kind, Trouble, timestamp};
use super::{Caller, Commands};
use crate::random;
use crate::snapshot::Snapshot;
use crate::store::{Published, VersionRow};
use icebox_lifecycle::SnapshotId;

/// The most versions of an account.
const MOST: usize = 10_000;
/// The most in one list.
const LISTED: usize = 200;
const LABEL_LEN: usize = 100;
const IMAGE_LEN: usize = 500;
/// How an image begins that is a snapshot.
const SNAPSHOT: &str = "snapshot:";

impl Commands {
    /// Publishes a version. The same one again is the one that is there.
    pub async fn publish_version(
        &self,
        caller: &Caller,
        request: VersionRequest,
    ) -> Result<VersionView, Trouble> {
        fits(&request)?;
        let made = match (&request.image, &request.from_box) {
            (Some(_), None) => None,
            (None, Some(id)) => Some(self.kept_as_it_is(caller, id, &request).await?),
            (Some(_), Some(_)) | (None, None) => {
                let text = "exactly one of `image` and `fromBox` has to be given: what the version runs from";
                return Err(Trouble::new(Kind::BadRequest, text).with("field", "image"));
            }
        };
        let image = match (&made, &request.image) {
            (Some(snapshot), _) => format!("{SNAPSHOT}{}", snapshot.id),
            (None, Some(image)) => self.image_of(caller, image, request.cmd.is_some())?,
            (None, None) => return Err(unfit("image")),
        };
        let published = self.publish(caller, request, image).await;
        if let (Err(_), Some(snapshot)) = (&published, made) {
            // Nobody would ever find it.
            let removed = self.engine().unsave(snapshot.id).await;
            if let Err(error) = removed {
                tracing::warn!(id = %snapshot.id, %error, "the snapshot of a version that was not published stays");
            }
        }
        published
    }

    /// Keeps a box for a version: with its memory, unless a command starts the version anew.
    async fn kept_as_it_is(
        &self,
        caller: &Caller,
        id: &str,
        request: &VersionRequest,
    ) -> Result<Arc<Snapshot>, Trouble> {
        let (account, service) = (caller.account, request.service.clone());
        let label = request.label.clone();
        let there = self.beside(move |beside| beside.version(account, &service, &label));
        // Before it costs anything.
        if let Some(there) = there.await?.filter(|there| there.label == request.label) {
            return Err(not_new(there));
        }
        let snapshot = SnapshotRequest {
            name: None,
            memory: Some(request.cmd.is_none()),
        };
        self.snapshot(caller, id, snapshot).await
    }

    /// The image, as it is kept: a snapshot by its id, which never means another one.
    fn image_of(&self, caller: &Caller, image: &str, has_cmd: bool) -> Result<String, Trouble> {
        let named = match image.strip_prefix(SNAPSHOT) {
            Some(name) => name,
            None if SnapshotId::parse(image).is_some() => image,
            None => return Ok(image.to_owned()),
        };
        let known = self.find_snapshot(caller, named);
        let known = known.map_err(|trouble| Trouble::bad("image", trouble.text))?;
        if !has_cmd && !known.memory {
            let limit = format!(
                "a snapshot with memory: {} holds files alone, so that nothing runs in it unless `cmd` starts it",
                known.id
            );
            return Err(Trouble::bad("image", limit));
        }
        Ok(format!("{SNAPSHOT}{}", known.id))
    }

    async fn publish(
        &self,
        caller: &Caller,
        request: VersionRequest,
        image: String,
    ) -> Result<VersionView, Trouble> {
        let new = VersionRow {
            id: format!("ver_{}", random::hex::<8>()),
            service: request.service,
            label: request.label,
            image,
            cmd: request.cmd,
            note: request.note,
            git_sha: request.git_sha,
            created_at: self.0.clock.now(),
        };
        let (account, asked) = (caller.account, new.clone());
        let published = self.beside(move |beside| beside.publish(account, &asked, MOST));
        match published.await? {
            Published::New => Ok(view(new)),
            Published::There(there) if same(&there, &new) => Ok(view(there)),
            Published::There(there) => Err(not_new(there)),
            Published::TooMany => Err(Trouble::new(
                Kind::TooMany,
                format!("an account has at most {MOST} versions"),
            )),
        }
    }

    /// The account's versions, or those of one service, newest first.
    pub async fn versions(
        &self,
        caller: &Caller,
        service: Option<&str>,
    ) -> Result<VersionsResponse, Trouble> {
        if service.is_some_and(|service| !check::is_service(service)) {
            return Err(Trouble::bad("service", SERVICE));
        }
        let (account, service) = (caller.account, service.map(str::to_owned));
        let read = move |beside: &crate::store::Beside| {
            beside.versions(account, service.as_deref(), LISTED)
        };
        let rows = self.beside(read).await?;
        Ok(VersionsResponse {
            versions: rows.into_iter().map(view).collect(),
        })
    }
}

const SERVICE: &str = "1 to 40 lowercase letters and digits, a letter first";

fn fits(request: &VersionRequest) -> Result<(), Trouble> {
    if !check::is_service(&request.service) {
        return Err(Trouble::bad("service", SERVICE));
    }
    let plain = |text: &str, most: usize, more: &str| {
        let fits = |c: char| c.is_ascii_alphanumeric() || more.contains(c);
        (1..=most).contains(&text.len()) && text.chars().all(fits)
    };
    if !plain(&request.label, LABEL_LEN, "._-+") {
        return Err(unfit("label"));
    }
    if let Some(image) = &request.image
        && (!plain(image, IMAGE_LEN, "._-/:@") || !image.starts_with(|c: char| c.is_alphanumeric()))
    {
        return Err(Trouble::bad(
            "image",
            "`snapshot:` and a snapshot, or the reference of an image: 1 to 500 letters, digits and ._-/:@",
        ));
    }
    if let Some(cmd) = &request.cmd
        && (cmd.is_empty() || cmd.len() > CMD_LEN || cmd.contains('\0'))
    {
        return Err(unfit("cmd"));
    }
    check::text("note", request.note.as_deref(), NOTE_LEN)?;
    match &request.git_sha {
        Some(sha)
            if !(7..=64).contains(&sha.len()) || !sha.chars().all(|c| c.is_ascii_hexdigit()) =>
        {
            Err(unfit("gitSha"))
        }
        Some(_) | None => Ok(()),
    }
}

fn same(there: &VersionRow, new: &VersionRow) -> bool {
    let about = |row: &VersionRow| {
        let VersionRow {
            image,
            cmd,
            note,
            git_sha,
            ..
        } = row.clone();
        (image, cmd, note, git_sha)
    };
    about(there) == about(new)
}

fn not_new(there: VersionRow) -> Trouble {
    let text = format!(
        "`label` must be new: `{}` of service `{}` is published already, from image `{}`",
        there.label, there.service, there.image
    );
    Trouble::new(Kind::BadRequest, text)
        .with("field", "label")
        .with("versionId", there.id)
}

fn view(row: VersionRow) -> VersionView {
    VersionView {
        version_id: row.id,
        service: row.service,
        label: row.label,
        image: row.image,
        cmd: row.cmd,
        note: row.note,
        git_sha: row.git_sha,
        created_at: timestamp(row.created_at),
    }
}
