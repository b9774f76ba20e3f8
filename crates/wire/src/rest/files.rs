//! What the file calls answer.

use serde::{Deserialize, Serialize};

/// Answer of `POST /v1/boxes/{id}/sync`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
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
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct FileResponse {
    /// Always true.
    pub ok: bool,
    /// What the caller has to know besides: boxes that are about to be stopped (rule 6.4).
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub notices: Vec<String>,
}
