//! What goes on over a restart, from one boxd to the next.

use std::fs::File;
use std::io;
use std::net::TcpListener;
use std::sync::Arc;

use icebox_wire::handover::{Handover, Process};

use super::inherited::{Inherited, take};
use super::left::{FORMAT, Left, write};
use crate::args::{Args, TakeOver};
use crate::files::Watchers;
use crate::life::Life;
use crate::settings::Settings;
use crate::table::Table;

/// Everything that does.
pub(crate) struct Lasting {
    pub(crate) listener: TcpListener,
    pub(crate) settings: Arc<Settings>,
    pub(crate) table: Arc<Table>,
    pub(crate) life: Arc<Life>,
    pub(crate) watchers: Arc<Watchers>,
}

impl Lasting {
    /// Of a boxd that starts.
    pub(crate) fn begin(args: &Args) -> io::Result<Self> {
        let listener = TcpListener::bind(args.listen)?;
        listener.set_nonblocking(true)?;
        Self::anew(args, listener)
    }

    fn anew(args: &Args, listener: TcpListener) -> io::Result<Self> {
        Ok(Self {
            listener,
            settings: Arc::new(Settings::load(&args.state_dir)?),
            table: Table::new(&args.state_dir, args.output_cap_bytes),
            life: Arc::new(Life::new()),
            watchers: Arc::default(),
        })
    }

    /// Of one that goes on where the boxd before it stopped. The trial has shown that all can be read; what cannot be read all
    /// the same is left out, because the box ends with its first process.
    pub(crate) fn take_over(args: &Args, from: TakeOver) -> io::Result<Self> {
        let listener = take(from.listener_fd)?.into();
        let mut left = match take(from.left_fd).map(File::from).and_then(Left::open) {
            Ok(left) => left,
            Err(error) => {
                complain(&error);
                return Self::anew(args, listener);
            }
        };
        let mut head = std::mem::take(&mut left.head);
        let mut inherited = Inherited::new(&head.descriptors);
        let processes = std::iter::from_fn(|| next(&mut left));
        let (dir, cap) = (&args.state_dir, args.output_cap_bytes);
        Ok(Self {
            listener,
            table: Table::take_over(dir, cap, &head, processes, &mut inherited),
            settings: Arc::new(match head.settings.take() {
                Some(asked) => Settings::take_over(&args.state_dir, asked),
                None => Settings::load(&args.state_dir)?,
            }),
            life: Arc::new(Life::take_over(&head)),
            watchers: Arc::new(Watchers::take_over(&mut head)),
        })
    }

    /// Writes all of it down for the next boxd; without the bytes that commands wrote and were given, what it has to be able to
    /// read.
    pub(super) fn leave(&self, with_bytes: bool) -> io::Result<File> {
        let mut head = Handover {
            format: FORMAT,
            descriptors: self.table.descriptors(),
            settings: Some(self.settings.asked()).into(),
            ..Default::default()
        };
        self.table.leave(&mut head);
        self.life.leave(&mut head);
        self.watchers.leave(&mut head);
        let all = self.table.all();
        // The oldest first.
        write(&head, all.iter().rev().map(|proc| proc.leave(with_bytes)))
    }
}

fn next(left: &mut Left) -> Option<Process> {
    left.process().unwrap_or_else(|error| {
        complain(&error);
        None
    })
}

fn complain(error: &io::Error) {
    eprintln!("boxd: cannot read all that the one before left: {error}");
}
