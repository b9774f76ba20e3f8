//! The terminal of this program: raw while a shell is shown in it, and as it was before on every way out; what is typed, how
//! large it is, and which signals come.

use std::io::Write as _;
use std::sync::{Mutex, Once, PoisonError};
use std::thread;

use rustix::io::Errno;
use rustix::stdio::stdin;
use rustix::termios::{OptionalActions, Termios, tcgetattr, tcgetwinsize, tcsetattr};
use signal_hook::consts::{SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGWINCH};
use signal_hook::iterator::Signals;
use tokio::sync::mpsc;

use crate::error::CliError;

/// Pieces of what is typed that wait.
const WAITING: usize = 16;
/// Bytes that are read at a time.
const PIECE: usize = 4 << 10;
/// How large a terminal is that does not say so.
const USUAL: (u16, u16) = (80, 24);

/// What comes from the terminal's side.
pub(super) struct Watched {
    /// What is typed. It may wait; the rest does not wait for it.
    pub(super) typed: mpsc::Receiver<Vec<u8>>,
    /// What else happens.
    pub(super) news: mpsc::Receiver<News>,
}

/// What happens to the terminal and to this program.
pub(super) enum News {
    /// It is larger or smaller now.
    Resized,
    /// This program is to end.
    Signal(u8),
}

/// How it was before; nothing while it is so.
static BEFORE: Mutex<Option<Termios>> = Mutex::new(None);

/// The terminal is raw until this is dropped.
pub(super) struct Raw(());

impl Raw {
    /// Makes it raw: every key goes to the shell, Ctrl-C too.
    pub(super) fn enter() -> Result<Self, CliError> {
        static HOOK: Once = Once::new();
        let failed = || CliError::io("set up the terminal");
        let before = tcgetattr(stdin()).map_err(|error| failed()(error.into()))?;
        let mut raw = before.clone();
        raw.make_raw();
        *BEFORE.lock().unwrap_or_else(PoisonError::into_inner) = Some(before);
        let guard = Self(());
        // What a panic says is only readable in a terminal that is as it was.
        HOOK.call_once(|| {
            let hook = std::panic::take_hook();
            std::panic::set_hook(Box::new(move |panic| {
                restore();
                hook(panic);
            }));
        });
        tcsetattr(stdin(), OptionalActions::Now, &raw).map_err(|error| failed()(error.into()))?;
        Ok(guard)
    }
}

impl Drop for Raw {
    fn drop(&mut self) {
        restore();
    }
}

fn restore() {
    let before = BEFORE.lock().unwrap_or_else(PoisonError::into_inner).take();
    if let Some(before) = before {
        // A terminal that is gone needs nothing.
        let _ = tcsetattr(stdin(), OptionalActions::Now, &before);
    }
}

/// A line of our own on standard error, beside what the shell shows: a raw terminal does not return by itself.
pub(super) fn say(text: &str) {
    // Nobody is left to be told when this fails.
    let _ = write!(
        std::io::stderr(),
        "\r\nicebox: {}\r\n",
        crate::text::printable(text)
    );
}

/// How large it is: across, and down.
pub(super) fn size() -> Result<(u16, u16), CliError> {
    let size = tcgetwinsize(stdin());
    let size = size.map_err(|error| CliError::io("ask the terminal for its size")(error.into()))?;
    Ok(match (size.ws_col, size.ws_row) {
        (0, _) | (_, 0) => USUAL,
        size => size,
    })
}

/// Tells what comes from now on. The threads end with the program.
pub(super) fn watch() -> Result<Watched, CliError> {
    let (type_in, typed) = mpsc::channel(WAITING);
    let (tell, news) = mpsc::channel(WAITING);
    let signals = Signals::new([SIGWINCH, SIGTERM, SIGHUP, SIGINT, SIGQUIT]);
    let mut signals = signals.map_err(CliError::io("watch for signals"))?;
    let told = tell.clone();
    thread::spawn(move || {
        for signal in signals.forever() {
            let news = match signal {
                SIGWINCH => News::Resized,
                signal => News::Signal(u8::try_from(signal).unwrap_or(0)),
            };
            if told.blocking_send(news).is_err() {
                return;
            }
        }
    });
    thread::spawn(move || {
        let mut buffer = vec![0; PIECE];
        loop {
            match rustix::io::read(stdin(), &mut buffer) {
                Err(Errno::INTR) => {}
                Ok(0) | Err(_) => {
                    // Nobody is left to be told when this fails.
                    let _ = tell.blocking_send(News::Signal(hang_up()));
                    return;
                }
                Ok(len) => {
                    if type_in.blocking_send(buffer[..len].to_vec()).is_err() {
                        return;
                    }
                }
            }
        }
    });
    Ok(Watched { typed, news })
}

fn hang_up() -> u8 {
    u8::try_from(SIGHUP).unwrap_or(0)
}
