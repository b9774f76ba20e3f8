//! What a fake box has in memory: commands, and how they ended.

/// What a box has in memory, and a copy on disk.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Memory {
    pub(super) word: Option<String>,
    pub(super) commands: Vec<Running>,
    /// How many of them had the kernel ended for want of it.
    pub(super) kills: u64,
}

/// A command in a box.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Running {
    pub(super) exec_id: String,
    pub(super) cmd: String,
    pub(super) background: bool,
    pub(super) started_ms: i64,
    pub(super) ended: Option<Ended>,
    pub(super) stdout: Vec<u8>,
    pub(super) stderr: Vec<u8>,
}

/// How a command ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Ended {
    Exit(i32),
    Signal(&'static str),
}

impl Memory {
    /// Ends a command that runs.
    pub(super) fn end(&mut self, exec_id: &str, how: &Ended) {
        for command in &mut self.commands {
            if command.exec_id == exec_id && command.ended.is_none() {
                command.ended = Some(how.clone());
            }
        }
    }
}
