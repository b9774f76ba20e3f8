//! What the dialect that owns the box asked of boxd: token, default user, default directory, variables.
//!
//! Owns the file that keeps them. It lies with the box's files, so the settings hold over a cold start as well, with no
//! moment in between at which boxd would ask for no token.

use std::collections::BTreeMap;
use std::fs;
use std::io::{self, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::{Arc, PoisonError, RwLock};

use buffa::Message as _;
use icebox_wire::boxd::ConfigureRequest;

use crate::error::Error;
use crate::users::User;

/// The longest access token.
const MAX_TOKEN_BYTES: usize = 1024;

/// Its name.
const FILE: &str = "settings";

/// The most all variables take, names included.
const MAX_ENV_BYTES: usize = 128 * 1024;

/// The settings that hold now.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Values {
    /// Empty: no token is asked for.
    pub(crate) access_token: String,
    /// Empty: root.
    pub(crate) default_user: String,
    /// Empty: the acting user's home.
    pub(crate) default_workdir: String,
    /// Of every process.
    pub(crate) env: BTreeMap<String, String>,
    /// Whether file calls have root's rights whoever acts.
    pub(crate) files_as_root: bool,
}

/// Settings, kept in a file.
#[derive(Debug)]
pub(crate) struct Settings {
    file: PathBuf,
    values: RwLock<Arc<Values>>,
}

impl Settings {
    /// Those that were kept under `state_dir`, none where there is no file. Errors when there is one that cannot be
    /// read: going on would mean to ask for no token.
    pub(crate) fn load(state_dir: &Path) -> io::Result<Self> {
        let file = state_dir.join(FILE);
        let values = match fs::read(&file) {
            Ok(bytes) => {
                let kept = ConfigureRequest::decode_from_slice(&bytes);
                let named = |error| io::Error::other(format!("{}: {error}", file.display()));
                values_of(kept.map_err(named)?)
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => Values::default(),
            Err(error) => return Err(error),
        };
        Ok(Self {
            file,
            values: RwLock::new(Arc::new(values)),
        })
    }

    /// Those that the boxd before this one had.
    pub(crate) fn take_over(state_dir: &Path, asked: ConfigureRequest) -> Self {
        Self {
            file: state_dir.join(FILE),
            values: RwLock::new(Arc::new(values_of(asked))),
        }
    }

    /// As they were asked for.
    pub(crate) fn asked(&self) -> ConfigureRequest {
        let now = self.now();
        ConfigureRequest {
            access_token: now.access_token.clone(),
            default_user: now.default_user.clone(),
            default_workdir: now.default_workdir.clone(),
            env: now.env.clone().into_iter().collect(),
            files_as_root: now.files_as_root,
            ..Default::default()
        }
    }

    /// What holds now.
    pub(crate) fn now(&self) -> Arc<Values> {
        Arc::clone(&self.values.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Replaces all of them, in the file first.
    pub(crate) fn replace(&self, asked: ConfigureRequest) -> Result<(), Error> {
        check(&asked)?;
        write_private(&self.file, &asked.encode_to_vec()).map_err(Error::KeepSettings)?;
        *self.values.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(values_of(asked));
        Ok(())
    }
}

impl Values {
    /// Who acts when a call names `name`, or nobody.
    pub(crate) fn user(&self, name: Option<&str>) -> Result<User, Error> {
        let name = name.filter(|name| !name.is_empty());
        User::find(name.unwrap_or(&self.default_user))
    }
}

fn values_of(asked: ConfigureRequest) -> Values {
    Values {
        access_token: asked.access_token,
        default_user: asked.default_user,
        default_workdir: asked.default_workdir,
        env: asked.env.into_iter().collect(),
        files_as_root: asked.files_as_root,
    }
}

fn check(asked: &ConfigureRequest) -> Result<(), Error> {
    let bad = |words: String| Err(Error::BadRequest(words));
    let token = &asked.access_token;
    if token.len() > MAX_TOKEN_BYTES || !token.bytes().all(|byte| byte.is_ascii_graphic()) {
        return bad(format!(
            "access_token must be at most {MAX_TOKEN_BYTES} printable ASCII characters"
        ));
    }
    User::find(&asked.default_user)?;
    let dir = &asked.default_workdir;
    if !dir.is_empty() && (!dir.starts_with('/') || dir.contains('\0')) {
        return bad(format!(
            "default_workdir {dir:?} must be an absolute path or empty"
        ));
    }
    for (name, value) in &asked.env {
        if name.is_empty() || name.contains(['=', '\0']) || value.contains('\0') {
            return bad(format!("env: {name:?} cannot be a variable"));
        }
    }
    let size: usize = asked.env.iter().map(|(k, v)| k.len() + v.len() + 2).sum();
    if size > MAX_ENV_BYTES {
        return bad(format!(
            "env takes {size} bytes in all; at most {MAX_ENV_BYTES}"
        ));
    }
    Ok(())
}

/// Replaces a file that only its owner may read.
fn write_private(file: &Path, bytes: &[u8]) -> io::Result<()> {
    if let Some(dir) = file.parent() {
        fs::create_dir_all(dir)?;
    }
    let unfinished = file.with_extension("new");
    let mut options = fs::OpenOptions::new();
    let mut written = options
        .write(true)
        .create(true)
        .truncate(true)
        .mode(0o600)
        .open(&unfinished)?;
    written.write_all(bytes)?;
    written.sync_all()?;
    fs::rename(&unfinished, file)
}
