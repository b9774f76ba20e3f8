//! What a folder of a box holds. Asking is a call that acts, like reading what is in it.

use connectrpc::client::CallOptions;
use icebox_wire::filesystem::{EntryInfo, FileType, ListDirRequest};
use icebox_wire::rest::{EntryView, FolderResponse};
use jiff::Timestamp;

use super::exec::QUICK;
use super::trouble::Trouble;
use super::{Caller, Commands, check};

/// The most entries in one answer.
const MOST: usize = 5_000;

impl Commands {
    /// Lists a folder: folders first, then by name.
    pub async fn list_folder(
        &self,
        caller: &Caller,
        id: &str,
        path: &str,
    ) -> Result<FolderResponse, Trouble> {
        check::folder("path", path)?;
        let id = self.find(caller, id)?.id();
        let (call, answer) = self.acting(caller, id, false).await?;
        // Relative paths begin in the working directory, as everywhere in this dialect.
        let path = if path.starts_with('/') {
            path.to_owned()
        } else {
            format!("/work/{path}")
        };
        let request = ListDirRequest {
            path,
            depth: 1,
            ..ListDirRequest::default()
        };
        let e2b = answer.view.record.e2b.as_deref();
        let token = e2b.and_then(|e2b| e2b.access_token.clone());
        let listed = self
            .ask_daemon(&call, id, false, || {
                let (client, request) = (self.0.boxds.folders(id), request.clone());
                let mut options = CallOptions::default().with_timeout(QUICK);
                if let Some(token) = &token {
                    options = options.with_header("x-access-token", token.as_str());
                }
                async move {
                    let answer = client.list_dir_with_options(request, options).await?;
                    Ok(answer.into_owned())
                }
            })
            .await;
        call.end().await;
        let mut entries: Vec<EntryView> = listed?.entries.iter().map(entry).collect();
        entries.sort_by(|a, b| {
            let is_file = |entry: &EntryView| entry.kind != "folder";
            (is_file(a), &a.name).cmp(&(is_file(b), &b.name))
        });
        let more = entries.len().saturating_sub(MOST);
        entries.truncate(MOST);
        Ok(FolderResponse {
            entries,
            left_out: u64::try_from(more).unwrap_or(u64::MAX),
            notices: Vec::new(),
        })
    }
}

fn entry(info: &EntryInfo) -> EntryView {
    let kind = match info.r#type.as_known() {
        Some(FileType::FILE_TYPE_DIRECTORY) => "folder",
        Some(FileType::FILE_TYPE_FILE) => "file",
        Some(FileType::FILE_TYPE_SYMLINK) => "link",
        Some(FileType::FILE_TYPE_UNSPECIFIED) | None => "other",
    };
    let modified = info.modified_time.as_option();
    EntryView {
        name: info.name.clone(),
        kind: kind.to_owned(),
        bytes: u64::try_from(info.size).unwrap_or(0),
        modified_at: modified.and_then(|at| Timestamp::new(at.seconds, at.nanos).ok()),
        link: info.symlink_target.clone(),
    }
}
