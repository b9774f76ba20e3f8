//! A terminal for tests, as a person has one.

use std::fs;
use std::io::{Read as _, Write as _};
use std::process::{Child, Command, Stdio};

use rustix::event::{PollFd, PollFlags, Timespec, poll};

/// How long something may take to be shown.
const LIMIT: Timespec = Timespec {
    tv_sec: 60,
    tv_nsec: 0,
};

/// A terminal with a program in it.
pub(crate) struct Terminal {
    screen: fs::File,
    slave: fs::File,
    child: Child,
}

impl Terminal {
    pub(crate) fn run(mut program: Command) -> Self {
        use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
        let master = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).expect("a terminal");
        grantpt(&master)
            .and_then(|()| unlockpt(&master))
            .expect("it is ours");
        let name = ptsname(&master, Vec::new()).expect("its name");
        let slave = fs::OpenOptions::new()
            .read(true)
            .write(true)
            .open(name.to_str().expect("text"))
            .expect("it opens");
        let end = || Stdio::from(slave.try_clone().expect("another one"));
        let child = program.stdin(end()).stdout(end()).stderr(end()).spawn();
        Self {
            screen: fs::File::from(master),
            slave,
            child: child.expect("it runs"),
        }
    }

    pub(crate) fn type_in(&mut self, text: &str) {
        self.screen.write_all(text.as_bytes()).expect("it is typed");
    }

    /// Reads on until the screen has shown this.
    pub(crate) fn shows(&mut self, text: &str) {
        let (mut shown, mut buffer) = (Vec::new(), [0; 4096]);
        while !String::from_utf8_lossy(&shown).contains(text) {
            let more = PollFd::new(&self.screen, PollFlags::IN);
            let came = poll(&mut [more], Some(&LIMIT)).expect("a look at the screen");
            assert!(
                came > 0,
                "{text} is not shown: {}",
                String::from_utf8_lossy(&shown)
            );
            let len = self.screen.read(&mut buffer).expect("more comes");
            shown.extend_from_slice(&buffer[..len]);
        }
    }

    pub(crate) fn is_raw(&self) -> bool {
        let modes = rustix::termios::tcgetattr(&self.slave).expect("its modes");
        !modes
            .local_modes
            .contains(rustix::termios::LocalModes::ICANON)
    }

    pub(crate) fn size(&self, cols: u16, rows: u16) {
        let size = rustix::termios::Winsize {
            ws_col: cols,
            ws_row: rows,
            ws_xpixel: 0,
            ws_ypixel: 0,
        };
        rustix::termios::tcsetwinsize(&self.slave, size).expect("it is resized");
    }

    pub(crate) fn signal(&self, signal: rustix::process::Signal) {
        let pid = rustix::process::Pid::from_child(&self.child);
        rustix::process::kill_process(pid, signal).expect("it is there");
    }

    /// Waits for the program's end, which leaves the terminal as it was.
    pub(crate) fn ends(mut self, code: i32) {
        assert_eq!(self.child.wait().expect("it ends").code(), Some(code));
        assert!(!self.is_raw(), "the terminal is as it was");
    }
}
