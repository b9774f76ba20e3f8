//! `GET /metrics`: the host in Prometheus' text format, from what readers see in memory. Asks no box and no daemon, so that a
//! scraper wakes nothing and holds nothing (rule 4.14). Needs an admin's key: the figures are those of all accounts.

use std::fmt::{Display, Write as _};

use axum::extract::State;
use axum::http::header::CONTENT_TYPE;
use icebox_lifecycle::Status;

use super::App;
use super::operations::{Answer, Answers, Like};
use super::who::Admin;

const FORMAT: &str = "text/plain; version=0.0.4; charset=utf-8";

/// Metrics as they are written, one family after the other.
#[derive(Default)]
struct Page(String);

impl Page {
    fn family(&mut self, name: &str, kind: &str, help: &str) {
        // Writing to a string does not fail.
        let _ = writeln!(self.0, "# HELP {name} {help}\n# TYPE {name} {kind}");
    }

    fn sample(&mut self, name: &str, label: Option<(&str, &str)>, value: impl Display) {
        let _ = match label {
            Some((label, word)) => writeln!(self.0, "{name}{{{label}=\"{word}\"}} {value}"),
            None => writeln!(self.0, "{name} {value}"),
        };
    }

    fn gauge(&mut self, name: &str, help: &str, value: impl Display) {
        self.family(name, "gauge", help);
        self.sample(name, None, value);
    }
}

/// Metrics as text.
pub(super) struct Metrics;

impl Answers for Metrics {
    fn forms() -> Vec<Answer> {
        vec![Answer::of("text/plain").about("Metrics in Prometheus' text format.")]
    }
}

pub(super) async fn metrics(State(app): State<App>, _: Admin) -> Like<Metrics> {
    Like::new(([(CONTENT_TYPE, FORMAT)], page(&app)))
}

fn page(app: &App) -> String {
    let engine = app.commands.engine();
    let mut page = Page::default();
    page.family("icebox_build_info", "gauge", "The server's version.");
    let version = Some(("version", env!("CARGO_PKG_VERSION")));
    page.sample("icebox_build_info", version, 1);
    page.gauge(
        "icebox_ready",
        "Whether the server serves.",
        u8::from(engine.is_running()),
    );

    let counts = engine.views().counts();
    let boxes = "icebox_boxes";
    page.family(boxes, "gauge", "Boxes by status; stopped ones for 7 days.");
    for status in Status::ALL.map(Status::as_str) {
        let count = counts.get(status).copied().unwrap_or(0);
        page.sample(boxes, Some(("status", status)), count);
    }

    let capacity = engine.views().capacity();
    let (taken, host) = (capacity.taken, capacity.host);
    for (name, help, taken, most) in [
        (
            "slots",
            "Places for boxes that are up",
            taken.boxes,
            host.boxes,
        ),
        (
            "memory_megabytes",
            "Memory of boxes that are up, in MiB",
            taken.memory_mb,
            host.memory_mb,
        ),
        (
            "cpu_thousandths",
            "CPUs of boxes that are up, in thousandths",
            taken.milli_cpus,
            host.milli_cpus,
        ),
    ] {
        let limit = format!("{help}: how much there is.");
        page.gauge(&format!("icebox_{name}_limit"), &limit, most);
        let used = format!("{help}: how much is taken.");
        page.gauge(&format!("icebox_{name}_taken"), &used, taken);
    }
    page.gauge(
        "icebox_queue_length",
        "Starts, restores and wakes that wait for room.",
        capacity.queue.len(),
    );
    page.gauge(
        "icebox_orphans",
        "Boxes that the driver has and no record names.",
        engine.orphans().len(),
    );
    let dropped = "icebox_dropped_outcomes_total";
    page.family(
        dropped,
        "counter",
        "Outcomes that nothing waited for any more.",
    );
    page.sample(dropped, None, engine.counters().dropped_outcomes());
    page.0
}
