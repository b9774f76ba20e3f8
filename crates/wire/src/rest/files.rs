//! What the file calls answer.

use jiff::Timestamp;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::schema::Moment;

/// Answer of `POST /v1/boxes/{id}/sync`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct SyncResponse {
    /// Always true.
    pub ok: bool,
    /// How many files and links are not as they were.
    pub changed: u64,
    /// What the caller has to know besides: boxes that are about to be stopped (rule 6.4).
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub notices: Vec<String>,
}

/// Answer of `PUT /v1/boxes/{id}/files`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct FileResponse {
    /// Always true.
    pub ok: bool,
    /// What the caller has to know besides: boxes that are about to be stopped (rule 6.4).
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub notices: Vec<String>,
}

/// Answer of `GET /v1/boxes/{id}/files` with `list`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct FolderResponse {
    /// What the folder holds: folders first, then by name; at most 5000.
    pub entries: Vec<EntryView>,
    /// How many more there are.
    #[serde(default, skip_serializing_if = "is_none")]
    pub left_out: u64,
    /// What the caller has to know besides: boxes that are about to be stopped (rule 6.4).
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub notices: Vec<String>,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde hands it over so")]
fn is_none(number: &u64) -> bool {
    *number == 0
}

/// One entry of a folder.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct EntryView {
    /// Its name.
    pub name: String,
    /// `folder`, `file`, `link` (one that leads nowhere) or `other`; readers must tolerate more.
    #[serde(rename = "type")]
    pub kind: String,
    /// How large it is.
    pub bytes: u64,
    /// When it was changed last.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<Moment>")]
    pub modified_at: Option<Timestamp>,
    /// Where a link leads.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub link: Option<String>,
}
