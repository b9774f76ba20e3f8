//! The tools about files: addresses for those of a box, and the two that only an adapter on the caller's machine can do.

use rmcp::model::JsonObject;
use serde::Serialize;

use super::params;
use super::tools::{Asking, Outcome, fields};
use crate::api::App;
use crate::api::input::arguments;
use crate::commands::check::unfit;
use crate::commands::trouble::stamp;
use crate::commands::{Kind, Trouble};

/// The most paths of one call.
const PATHS: usize = 100;

/// A file that was handed out.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Handed {
    path: String,
    url: String,
    expires_at: String,
    /// Absent for a folder, whose archive is made while it is sent.
    #[serde(skip_serializing_if = "Option::is_none")]
    bytes: Option<u64>,
    /// Whether it is a tar.gz of a folder.
    archive: bool,
}

/// One of several paths: handed out, or why not.
#[derive(Serialize)]
#[serde(untagged)]
enum One {
    Handed(Handed),
    Not { path: String, error: String },
}

pub(super) async fn get(app: &App, asking: &Asking, args: JsonObject) -> Outcome {
    let args: params::Get = arguments(args)?;
    match (args.path, args.paths) {
        (Some(path), None) => fields(hand_out(app, asking, &args.id, &path).await?),
        (None, Some(paths)) if (1..=PATHS).contains(&paths.len()) => {
            let mut files = Vec::with_capacity(paths.len());
            for path in paths {
                files.push(match hand_out(app, asking, &args.id, &path).await {
                    Ok(handed) => One::Handed(handed),
                    Err(trouble) if matches!(trouble.kind, Kind::BadRequest | Kind::NotFound) => {
                        // A box that is not there is no reason of one path.
                        app.commands.find(&asking.caller, &args.id)?;
                        let error = trouble.text;
                        One::Not { path, error }
                    }
                    Err(trouble) => return Err(trouble),
                });
            }
            #[derive(Serialize)]
            struct Files {
                files: Vec<One>,
            }
            fields(Files { files })
        }
        (None, Some(_)) => Err(unfit("paths")),
        (Some(_), Some(_)) => Err(Trouble::bad("paths", "left out when `path` is given")),
        (None, None) => {
            let text = "`path` is required, or `paths` for several";
            Err(Trouble::new(Kind::BadRequest, text).with("field", "path"))
        }
    }
}

async fn hand_out(app: &App, asking: &Asking, id: &str, path: &str) -> Result<Handed, Trouble> {
    let looked = app.commands.look_at_file(&asking.caller, id, path);
    let (archive, bytes) = looked.await?;
    if let (false, Some(bytes)) = (archive, bytes) {
        let images = &asking.images;
        images.add(app, &asking.caller, id, path, bytes).await;
    }
    let (token, until) = app.commands.hand_out(&asking.caller, id, path);
    Ok(Handed {
        path: path.to_owned(),
        url: format!("{}/v1/downloads/{token}", asking.base),
        expires_at: stamp(until),
        bytes,
        archive,
    })
}

/// What a tool says here that works on the caller's own disk.
pub(super) async fn needs_the_adapter(tool: &'static str) -> Outcome {
    let text = format!(
        "{tool} works on the disk of your machine, which this server does not see: connect through `icebox mcp` there; \
         over plain HTTP send files with POST /v1/boxes/<id>/sync and fetch them with sandbox_get"
    );
    Err(Trouble::new(Kind::BadRequest, text))
}
