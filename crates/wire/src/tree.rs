//! boxd's file calls for its own server, plain HTTP because they stream: what is in their queries, headers and answers.

use serde::{Deserialize, Serialize};

/// Merges the body, a gzipped tar, into a folder: `POST`.
pub const MERGE_PATH: &str = "/icebox/merge";
/// One file, or a folder as an archive (`GET`); one file (`PUT`).
pub const FILE_PATH: &str = "/icebox/file";
/// Whether the body is an archive of a folder: `true` or `false`.
pub const ARCHIVE_HEADER: &str = "x-icebox-archive";
/// The permissions of a file that is read, as octal digits.
pub const MODE_HEADER: &str = "x-icebox-mode";

/// Query of a merge.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MergeQuery {
    /// The folder, relative to the working directory.
    pub dest: String,
}

/// Query of a read or a write.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PathQuery {
    /// Relative to the working directory, or absolute below it, `/tmp` or `/dev/shm`.
    pub path: String,
}

/// Answer of a merge or a write.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct Merged {
    /// How many files and links are not as they were.
    pub changed: u64,
}

/// Answer to a call that failed.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ErrorBody {
    /// Why, for a person.
    pub error: String,
    /// Whose fault it is.
    pub code: Code,
}

/// What kind of failure it was.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Code {
    /// The request does not fit.
    BadRequest,
    /// There is no such file.
    NotFound,
    /// More than fits.
    TooLarge,
    /// The box could not do it.
    Failed,
}
