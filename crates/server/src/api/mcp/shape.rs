//! Boxes and commands as agents know them.

use icebox_wire::rest::BoxView;
use serde::Serialize;

use super::tools::{Outcome, fields};

/// Where a box is working, for an agent that has just begun with it.
pub(super) fn shown(view: BoxView) -> impl Serialize {
    #[derive(Serialize)]
    #[serde(rename_all = "camelCase")]
    struct Shown {
        #[serde(flatten)]
        view: BoxView,
        work_dir: &'static str,
    }
    Shown {
        view,
        work_dir: "/work",
    }
}

/// A command under the name that agents know it by.
pub(super) fn with_bg_id(proc: impl Serialize) -> Outcome {
    let mut fields = fields(proc)?;
    if let Some(id) = fields.get("execId").cloned() {
        fields.insert("bgId".to_owned(), id);
    }
    if fields.get("outcome").is_some_and(|how| how == "unknown") {
        fields.insert("exitCode".to_owned(), (-1).into());
    }
    Ok(fields)
}
