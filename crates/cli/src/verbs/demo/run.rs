//! The steps of the demo. Each does something, looks whether it is so, and says what it saw; the first thing that is not
//! as it should be ends it.

use std::path::PathBuf;
use std::time::Duration;

use icebox_server::driver::container::CheckState;
use icebox_wire::rest::{BoxView, HostView, StartRequest, Status, Tier};

use super::counter::{self, Count};
use super::folder::Folder;
use super::server::{self, Server};
use super::tools::{CALL_LIMIT, PAUSE, must, tell, wrong};
use super::{Measured, host};
use crate::error::CliError;
use crate::interrupt::Interrupt;
use crate::printer::{BOLD, note, styled};
use crate::stopwatch::{Stopwatch, ms};
use crate::text::{bytes, printable};
use crate::verbs::doctor;

/// How many steps are told.
const STEPS: u32 = 9;
/// How long the box is left frozen at least: long beside the tenth of a second that its program counts in.
const LEFT_ALONE: Duration = Duration::from_secs(1);
/// The name of the box.
const NAME: &str = "demo";

/// A demo under way.
pub(super) struct Run {
    folder: Folder,
    log: PathBuf,
    pub(super) interrupt: Interrupt,
    pub(super) server: Option<Server>,
    /// The id of the box, once there is one.
    pub(super) id: String,
    /// Why its memory cannot go to disk here.
    ram_only: Option<String>,
    step: (u32, String),
    measured: Measured,
}

impl Run {
    pub(super) fn new(folder: Folder, log: PathBuf, interrupt: Interrupt) -> Self {
        Self {
            folder,
            log,
            interrupt,
            server: None,
            id: String::new(),
            ram_only: None,
            step: (0, String::new()),
            measured: Measured::default(),
        }
    }

    /// The step it is at, or ended at.
    pub(super) fn step(&self) -> &str {
        &self.step.1
    }

    /// All steps but the cleaning up.
    pub(super) fn everything(&mut self) -> Result<(), CliError> {
        self.begin("Look at this machine")?;
        self.look()?;
        self.begin("Start a server for this demo alone")?;
        self.start_server()?;
        self.begin("Start a box")?;
        self.start_box()?;
        self.begin("Run a program in it, which counts ten times a second")?;
        let before = self.start_program()?;
        self.begin("Freeze the box, memory and all")?;
        let frozen = self.freeze()?;
        self.begin("End the server, and start it again")?;
        self.restart_server()?;
        let asleep = self.leave_alone(frozen)?;
        self.begin("Use the box: the call wakes it")?;
        let first = self.thaw()?;
        self.begin("Check that nothing was lost")?;
        self.verify(before, first, asleep)
    }

    fn begin(&mut self, what: &str) -> Result<(), CliError> {
        self.interrupt.check()?;
        self.step = (self.step.0 + 1, what.to_owned());
        note(&styled(BOLD, &format!("[{}/{STEPS}] {what}", self.step.0)));
        Ok(())
    }

    fn look(&mut self) -> Result<(), CliError> {
        drop(std::fs::remove_file(&self.log));
        if let Some(pid) = self.folder.leftover_server() {
            tell("an earlier demo was cut off: ending its server");
            server::end_leftover(pid, self.folder.path())?;
        }
        let checks = doctor::check(self.folder.path(), &mut |check| {
            for line in doctor::lines(check) {
                tell(&line);
            }
        })?;
        if checks.iter().any(|check| check.state == CheckState::Fail) {
            return Err(CliError::Host(
                "boxes cannot run here: mend what failed above".to_owned(),
            ));
        }
        let lacking = checks.iter().find(|check| {
            check.state != CheckState::Ok && ["criu", "trial box"].contains(&check.name)
        });
        self.ram_only = lacking.map(|check| check.found.clone());
        Ok(())
    }

    fn start_server(&mut self) -> Result<(), CliError> {
        let watch = Stopwatch::start();
        let server = Server::start(&mut self.folder, &self.log, &self.interrupt)?;
        tell(&format!(
            "it answers at {} after {}; its log is {}",
            server.url,
            ms(watch.elapsed()),
            self.log.display()
        ));
        let can: HostView = server.client.get("/v1/host")?.read()?;
        if let Some(why) = can.checkpoint_error {
            self.ram_only = Some(why);
        }
        if let Some(why) = &self.ram_only {
            tell(&format!(
                "memory cannot go to disk here ({}): boxes freeze in RAM",
                printable(why)
            ));
        }
        self.server = Some(server);
        for left in self.boxes()? {
            tell(&format!(
                "an earlier demo was cut off: stopping its box {left}"
            ));
            self.post(&left, "stop", None::<&()>)?;
        }
        Ok(())
    }

    fn start_box(&mut self) -> Result<(), CliError> {
        let request = StartRequest {
            name: Some(NAME.to_owned()),
            goal: Some("icebox demo".to_owned()),
            ..StartRequest::default()
        };
        let watch = Stopwatch::start();
        let answer = self
            .server()?
            .client
            .post("/v1/boxes", Some(&request), CALL_LIMIT)?;
        self.measured.started = watch.elapsed();
        let view: BoxView = answer.read()?;
        self.id.clone_from(&view.id);
        must(view.status == Status::Ready, || {
            format!("the box is {} and not ready", view.status)
        })?;
        let processes = host::processes(&self.id);
        must(processes > 0, || {
            "no process of the box is to be seen on this machine".to_owned()
        })?;
        tell(&format!(
            "{} is ready after {}",
            view.id,
            ms(self.measured.started)
        ));
        let mut took = Vec::with_capacity(20);
        for _ in 0..20 {
            let watch = Stopwatch::start();
            self.exec("true", false)?;
            took.push(watch.elapsed());
        }
        took.sort_unstable();
        self.measured.exec = took[took.len() / 2];
        Ok(())
    }

    fn start_program(&mut self) -> Result<Count, CliError> {
        self.exec_with("cat > counter.sh", false, Some(counter::PROGRAM))?;
        self.exec("bash counter.sh", true)?;
        let count = self.wait_for("the program counts", |run| {
            Ok(run.count(1).ok().filter(|count| count.last >= 10))
        })?;
        let pid = count.pid;
        let memory = self.exec(&format!("grep VmRSS /proc/{pid}/status"), false)?;
        let kib = memory
            .split_whitespace()
            .nth(1)
            .and_then(|kib| kib.parse::<u64>().ok());
        let kib = kib.ok_or_else(|| wrong(format!("the program's memory is unknown: {memory}")))?;
        self.measured.memory_bytes = kib << 10;
        must(kib >= counter::HELD_MIB << 10, || {
            format!("the program holds only {kib} KiB")
        })?;
        tell(&format!(
            "it is process {pid} in the box, holds {} of random text, and is at {}",
            bytes(counter::HELD_MIB << 20),
            count.last
        ));
        Ok(count)
    }

    /// Freezes the box, and answers since when it is frozen.
    fn freeze(&mut self) -> Result<Stopwatch, CliError> {
        let before = host::processes(&self.id);
        let watch = Stopwatch::start();
        self.post(&self.id, "freeze", None::<&()>)?;
        self.measured.frozen = watch.elapsed();
        let since = Stopwatch::start();
        let to_disk = self.ram_only.is_none();
        let view = self.wait_for("the box is frozen", |run| {
            let view = run.view()?;
            let there = view.status == Status::Frozen;
            if let (true, Some(error)) = (there && to_disk, &view.snapshot_error) {
                return Err(wrong(format!(
                    "its memory could not be written to disk: {error}"
                )));
            }
            Ok((there && (!to_disk || view.tier == Some(Tier::Disk))).then_some(view))
        })?;
        let frozen = ms(self.measured.frozen);
        if view.tier != Some(Tier::Disk) {
            tell(&format!(
                "frozen in RAM after {frozen}: its {before} processes stand still"
            ));
            return Ok(since);
        }
        self.measured.on_disk = true;
        let left = self.wait_for("its processes are gone", Self::no_processes)?;
        let gone = ms(watch.elapsed());
        self.measured.copy_bytes = host::copy_bytes(self.folder.path(), &self.id);
        must(self.measured.copy_bytes > counter::HELD_MIB << 20, || {
            format!(
                "its copy on disk has only {}",
                bytes(self.measured.copy_bytes)
            )
        })?;
        tell(&format!(
            "frozen on disk after {frozen}, a copy of {}; after {gone} {left} of its {before} processes are left",
            bytes(self.measured.copy_bytes)
        ));
        Ok(since)
    }

    fn restart_server(&mut self) -> Result<(), CliError> {
        let Some(server) = self.server.take() else {
            return Err(wrong("the server is gone".to_owned()));
        };
        let watch = Stopwatch::start();
        server.stop()?;
        let left = host::processes(&self.id);
        must(left == 0 || !self.measured.on_disk, || {
            format!("{left} processes of the box came back")
        })?;
        tell(&format!(
            "it ended after {}; nobody looks after the box now",
            ms(watch.elapsed())
        ));
        self.server = Some(Server::start(&mut self.folder, &self.log, &self.interrupt)?);
        self.measured.restarted = watch.elapsed();
        let view = self.view()?;
        must(view.status == Status::Frozen, || {
            format!("the box is {} and not frozen", view.status)
        })?;
        tell(&format!("the new one knows the box: {}", view.status));
        Ok(())
    }

    /// Lets the frozen box lie for long enough to tell, and answers for how long it has.
    fn leave_alone(&self, frozen: Stopwatch) -> Result<Duration, CliError> {
        while frozen.elapsed() < LEFT_ALONE {
            self.interrupt.check()?;
            std::thread::sleep(PAUSE);
        }
        let asleep = frozen.elapsed();
        tell(&format!(
            "it has been frozen for {}; awake it would have counted on",
            ms(asleep)
        ));
        Ok(asleep)
    }

    /// Uses the box, and answers the number its program was at when the call ran.
    fn thaw(&mut self) -> Result<u64, CliError> {
        let watch = Stopwatch::start();
        let line = self.exec("tail -n 1 count", false)?;
        self.measured.thawed = watch.elapsed();
        let number = line.split(' ').next().and_then(|n| n.parse().ok());
        let number =
            number.ok_or_else(|| wrong(format!("the last line of its count is `{line}`")))?;
        tell(&format!(
            "the first answer came after {}: it is at {number}",
            ms(self.measured.thawed)
        ));
        Ok(number)
    }

    fn verify(&mut self, before: Count, first: u64, asleep: Duration) -> Result<(), CliError> {
        must(first >= before.last, || {
            format!("it was at {} before and at {first} after", before.last)
        })?;
        let after = self.wait_for("the program goes on counting", |run| {
            let count = run
                .count(before.last)
                .map_err(|why| wrong(format!("its count is broken: {why}")))?;
            Ok((count.last >= first + 10).then_some(count))
        })?;
        must(after.pid == before.pid, || {
            format!(
                "process {} counted before and process {} after",
                before.pid, after.pid
            )
        })?;
        let pause = Duration::from_micros(after.longest_pause_us);
        must(pause >= asleep, || {
            format!(
                "it stood still for {} only while the box was frozen for {}",
                ms(pause),
                ms(asleep)
            )
        })?;
        self.exec(&format!("rm -f check; kill -USR1 {}", after.pid), false)?;
        let memory = self.wait_for("the program has looked at its memory", |run| {
            let said = run.exec("cat check 2>/dev/null || true", false)?;
            Ok(said.ends_with('\n').then_some(said))
        })?;
        must(memory == "same\n", || {
            "the text that it holds in memory has changed".to_owned()
        })?;
        self.measured.pause_us = after.longest_pause_us;
        self.measured.count = after.last;
        tell(&format!(
            "the same process {} counted from 1 to {} without a gap",
            after.pid, after.last
        ));
        tell(&format!(
            "between {} and {} it stood still for {}",
            after.paused_after,
            after.paused_after + 1,
            ms(pause)
        ));
        tell(&format!(
            "the {} it holds in memory are unchanged",
            bytes(counter::HELD_MIB << 20)
        ));
        Ok(())
    }

    /// Leaves nothing behind; with `keep` the frozen box and its folder.
    pub(super) fn clean_up(mut self, keep: bool) -> (Result<(), CliError>, Measured) {
        note(&styled(BOLD, &format!("[{STEPS}/{STEPS}] Clean up")));
        let measured = std::mem::take(&mut self.measured);
        (self.clean(keep), measured)
    }

    fn clean(mut self, keep: bool) -> Result<(), CliError> {
        // It may be an interrupt that led here.
        self.interrupt = Interrupt::none();
        if self.server.is_none() && self.folder.has_boxes() {
            // Only a server can take boxes apart in good order.
            self.server = Some(Server::start(&mut self.folder, &self.log, &self.interrupt)?);
        }
        if self.server.is_some() {
            for id in self.boxes()? {
                self.post(&id, if keep { "freeze" } else { "stop" }, None::<&()>)?;
            }
        }
        if let Some(server) = self.server.take() {
            server.stop()?;
        }
        if keep {
            tell(&format!(
                "the box is frozen, and left with its server's folder {}",
                self.folder.path().display()
            ));
            return Ok(());
        }
        if !self.id.is_empty() {
            self.wait_for("its processes are gone", Self::no_processes)?;
        }
        tell("the box and the server are gone; removing their files");
        self.folder.remove()?;
        tell("nothing is left");
        Ok(())
    }
}
