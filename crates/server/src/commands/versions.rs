//! Published versions of services: which image a label stands for. A label once published always means the same.

use icebox_wire::rest::{VersionRequest, VersionView, VersionsResponse};

use super::check::{self, NOTE_LEN, unfit};
use super::trouble::{Kind, Trouble, timestamp};
use super::{Caller, Commands};
use crate::random;
use crate::store::{Published, VersionRow};

/// The most versions of an account.
const MOST: usize = 10_000;
/// The most in one list.
const LISTED: usize = 200;
const LABEL_LEN: usize = 100;
const IMAGE_LEN: usize = 500;

impl Commands {
    /// Publishes a version. The same one again is the one that is there.
    pub async fn publish_version(
        &self,
        caller: &Caller,
        request: VersionRequest,
    ) -> Result<VersionView, Trouble> {
        fits(&request)?;
        let new = VersionRow {
            id: format!("ver_{}", random::hex::<8>()),
            service: request.service,
            label: request.label,
            image: request.image,
            note: request.note,
            git_sha: request.git_sha,
            created_at: self.0.clock.now(),
        };
        let (account, asked) = (caller.account, new.clone());
        let published = self.beside(move |beside| beside.publish(account, &asked, MOST));
        match published.await? {
            Published::New => Ok(view(new)),
            Published::There(there) if same(&there, &new) => Ok(view(there)),
            Published::There(there) => Err(Trouble::new(
                Kind::BadRequest,
                format!(
                    "`label` must be new: `{}` of service `{}` is published already, from image `{}`",
                    there.label, there.service, there.image
                ),
            )
            .with("field", "label")
            .with("versionId", there.id)),
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
    let image = &request.image;
    if !plain(image, IMAGE_LEN, "._-/:@") || !image.starts_with(|c: char| c.is_alphanumeric()) {
        return Err(Trouble::bad(
            "image",
            "the reference of an image: 1 to 500 letters, digits and ._-/:@",
        ));
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
    (&there.image, &there.note, &there.git_sha) == (&new.image, &new.note, &new.git_sha)
}

fn view(row: VersionRow) -> VersionView {
    VersionView {
        version_id: row.id,
        service: row.service,
        label: row.label,
        image: row.image,
        note: row.note,
        git_sha: row.git_sha,
        created_at: timestamp(row.created_at),
    }
}
