//! Ctrl-C during work that leaves something behind when it is cut off: the first one ends it in good order, a second one at
//! once. Owns the signal handlers.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::flag;

use crate::error::CliError;

/// The exit code of an interrupted program.
const EXIT_CODE: i32 = 130;

/// Whether somebody wants it to end.
#[derive(Clone)]
pub(crate) struct Interrupt(Arc<AtomicBool>);

impl Interrupt {
    /// From now on such signals are noted.
    pub(crate) fn watch() -> Result<Self, CliError> {
        let wanted = Arc::new(AtomicBool::new(false));
        for signal in [SIGINT, SIGTERM, SIGHUP] {
            let ends = flag::register_conditional_shutdown(signal, EXIT_CODE, Arc::clone(&wanted));
            ends.and_then(|_| flag::register(signal, Arc::clone(&wanted)))
                .map_err(CliError::io("watch for signals"))?;
        }
        Ok(Self(wanted))
    }

    /// For the cleaning up, which is not interrupted again.
    pub(crate) fn none() -> Self {
        Self(Arc::default())
    }

    /// Errors once it is to end.
    pub(crate) fn check(&self) -> Result<(), CliError> {
        if self.0.load(Ordering::Relaxed) {
            return Err(CliError::Interrupted);
        }
        Ok(())
    }
}
