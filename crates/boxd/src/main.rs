//! boxd, the daemon in every box: PID 1, process service, kept output.
//!
//! This file owns its start and its end. It runs on one thread, because it is part of every memory copy and has little
//! to do; only syncing to disk gets a thread of its own for a while.

mod args;
mod clock;
mod error;
mod exec_as;
mod follow;
mod id;
mod kept;
mod launch;
mod own_service;
mod proc;
mod process_service;
mod shell;
mod spawn;
mod starter;
mod table;
mod tree;
mod users;

use std::collections::BTreeMap;
use std::io::{self, Write as _};
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;

use axum::http::StatusCode;
use axum::routing::get;
use axum::serve::ListenerExt as _;
use connectrpc::{ConnectRpcService, Limits};
use tokio::net::TcpListener;
use tokio::signal::unix::{SignalKind, signal};

use crate::args::Args;
use crate::own_service::OwnService;
use crate::process_service::ProcessService;
use crate::starter::Starter;
use crate::table::Table;

/// The largest request: standard input sent along with a command.
const MAX_REQUEST_BYTES: usize = 16 << 20;

fn main() -> ExitCode {
    let mut words = std::env::args_os().skip(1).peekable();
    match words.peek().and_then(|word| word.to_str()) {
        Some("exec-as") => return exec_as::run(words.skip(1)),
        Some("--version") => {
            println!("boxd {}", env!("CARGO_PKG_VERSION"));
            return ExitCode::SUCCESS;
        }
        Some(_) | None => {}
    }
    let args = match args::parse(words) {
        Ok(args) => args,
        Err(error) => {
            eprintln!("boxd: {error}\n{}", args::USAGE);
            return ExitCode::from(2);
        }
    };
    match start(&args) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("boxd: {error}");
            ExitCode::FAILURE
        }
    }
}

fn start(args: &Args) -> io::Result<()> {
    become_reaper()?;
    tokio::runtime::Builder::new_current_thread()
        .max_blocking_threads(2)
        .enable_all()
        .build()?
        .block_on(run(args, box_wide_variables()))
}

/// Gets the orphans of the box: PID 1 does by itself, boxd elsewhere (in tests) has to ask.
fn become_reaper() -> io::Result<()> {
    let own = rustix::process::getpid();
    if own == rustix::process::Pid::INIT {
        // Fails only when boxd leads a session already, which is as good.
        let _ = rustix::process::setsid();
    } else {
        rustix::process::set_child_subreaper(Some(own))?;
    }
    rustix::process::umask(rustix::fs::Mode::WGRP | rustix::fs::Mode::WOTH);
    Ok(())
}

/// What every process in the box gets: boxd's own variables. Its home is its own, though: the runtime adds it.
fn box_wide_variables() -> BTreeMap<String, String> {
    let own = std::env::vars_os().filter(|(name, _)| name != "HOME");
    own.filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)))
        .collect()
}

async fn run(args: &Args, env: BTreeMap<String, String>) -> io::Result<()> {
    let mut children = signal(SignalKind::child())?;
    let told_to_end = told_to_end()?;
    let table = Table::new(&args.state_dir, args.output_cap_bytes);
    let reaped = Arc::clone(&table);
    tokio::spawn(async move {
        while children.recv().await.is_some() {
            reaped.reap();
        }
    });
    let listener = TcpListener::bind(args.listen).await?;
    // Standard output is /dev/null in a box; elsewhere this line says which port was chosen.
    writeln!(io::stdout(), "boxd listens on {}", listener.local_addr()?)?;
    let listener = listener.tap_io(|connection| {
        // Only latency depends on it.
        drop(connection.set_nodelay(true));
    });
    let starter = Arc::new(Starter::new(Arc::clone(&table), env, args.work_dir.clone()));
    let app = router(&starter, &args.state_dir).merge(tree::router(args.work_dir.clone()));
    tokio::select! {
        served = axum::serve(listener, app) => served,
        () = told_to_end => {
            table.end_all().await;
            Ok(())
        }
    }
}

/// Waits for SIGTERM or SIGINT. As PID 1 for ever: without a handler the kernel keeps both from it, and nothing inside a
/// box may end it by a signal. From outside a box ends by SIGKILL.
fn told_to_end() -> io::Result<impl Future<Output = ()>> {
    let mut signals = if rustix::process::getpid() == rustix::process::Pid::INIT {
        None
    } else {
        Some((
            signal(SignalKind::terminate())?,
            signal(SignalKind::interrupt())?,
        ))
    };
    Ok(async move {
        match &mut signals {
            Some((terminate, interrupt)) => {
                tokio::select! {
                    _ = terminate.recv() => {}
                    _ = interrupt.recv() => {}
                }
            }
            None => std::future::pending().await,
        }
    })
}

fn router(starter: &Arc<Starter>, state_dir: &Path) -> axum::Router {
    let calls = connectrpc::Router::new()
        .add_service(Arc::new(OwnService::new(
            Arc::clone(starter),
            state_dir.to_owned(),
        )))
        .add_service(Arc::new(ProcessService::new(Arc::clone(starter))));
    let limits = Limits::default()
        .with_max_request_body_size(MAX_REQUEST_BYTES)
        .with_max_message_size(MAX_REQUEST_BYTES);
    axum::Router::new()
        .route("/health", get(async || StatusCode::NO_CONTENT))
        .fallback_service(ConnectRpcService::new(calls).with_limits(limits))
}
