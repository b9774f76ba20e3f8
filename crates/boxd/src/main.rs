//! boxd, the daemon in every box: PID 1, process and filesystem services, kept output.
//!
//! This file owns its start and its end. It runs on one thread, because it is part of every memory copy and has little
//! to do; only what waits for a disk gets helper threads for a while.

mod access;
mod args;
mod calls;
mod clock;
mod cpu;
mod error;
mod files;
mod follow;
mod http;
mod id;
mod kept;
mod launch;
mod life;
mod own_service;
mod proc;
mod process_service;
mod restart;
mod settings;
mod shell;
mod spawn;
mod starter;
mod streams;
mod table;
mod tree;
mod turned;
mod users;

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::io::{self, Write as _};
use std::pin::pin;
use std::process::ExitCode;
use std::sync::Arc;

use axum::middleware::from_fn_with_state;
use axum::serve::ListenerExt as _;
use connectrpc::{ConnectRpcService, Limits};
use icebox_wire::boxd::TAKES_OVER;
use tokio::net::TcpListener;
use tokio::signal::unix::{SignalKind, signal};

use crate::args::Args;
use crate::files::{FilesystemService, Transfers};
use crate::own_service::OwnService;
use crate::process_service::ProcessService;
use crate::restart::gate;
use crate::restart::{COULD_TAKE_OVER, LAST_ANSWERS, Lasting, Restarter};
use crate::starter::Starter;

/// How many threads wait for disks at most, transfers apart. They end when idle for 10 s.
const HELPER_THREADS: usize = 4;

/// The largest request: standard input sent along with a command.
const MAX_REQUEST_BYTES: usize = 16 << 20;

fn main() -> ExitCode {
    let mut words = std::env::args_os().skip(1).peekable();
    if words.peek().is_some_and(|word| word == "--version") {
        println!("boxd {}", env!("CARGO_PKG_VERSION"));
        return ExitCode::SUCCESS;
    }
    if words.next_if(|word| word == COULD_TAKE_OVER).is_some() {
        return answer(words.next());
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

/// Tells the boxd that asks whether this one could take over.
fn answer(fd: Option<OsString>) -> ExitCode {
    let fd = fd.and_then(|fd| fd.to_str()?.parse().ok());
    let fd = fd.ok_or_else(|| io::Error::other("a descriptor is missing"));
    let could = fd.and_then(restart::could_take_over);
    match could.and_then(|()| io::stdout().write_all(TAKES_OVER.as_bytes())) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

fn start(args: &Args) -> io::Result<()> {
    become_reaper()?;
    tokio::runtime::Builder::new_current_thread()
        .max_blocking_threads(HELPER_THREADS)
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
    let mut told_to_end = pin!(told_to_end()?);
    let lasting = match args.take_over {
        None => Lasting::begin(args)?,
        Some(from) => Lasting::take_over(args, from)?,
    };
    let reaped = Arc::clone(&lasting.table);
    tokio::spawn(async move {
        while children.recv().await.is_some() {
            reaped.reap();
        }
    });
    if args.take_over.is_none() {
        // Standard output is /dev/null in a box; elsewhere this line says which port was chosen.
        writeln!(
            io::stdout(),
            "boxd listens on {}",
            lasting.listener.local_addr()?
        )?;
    }
    let settings = Arc::clone(&lasting.settings);
    let starter = Starter::new(
        Arc::clone(&lasting.table),
        settings,
        env,
        args.work_dir.clone(),
    );
    let starter = Arc::new(starter);
    let restarter = Arc::new(Restarter::new(lasting));
    let app = router(&starter, &restarter, args);
    loop {
        tokio::select! {
            served = serve(&restarter, app.clone()) => served?,
            () = &mut told_to_end => {
                starter.table.end_all().await;
                return Ok(());
            }
        }
        let error = restarter.execute();
        eprintln!("boxd: cannot restart: {error}");
        restarter.gate().open();
    }
}

/// Serves until the gate is closed, and the last answers are given.
async fn serve(restarter: &Arc<Restarter>, app: axum::Router) -> io::Result<()> {
    let listener = TcpListener::from_std(restarter.lasting().listener.try_clone()?)?;
    let listener = listener.tap_io(|connection| {
        // Only latency depends on it.
        drop(connection.set_nodelay(true));
    });
    let closed = Arc::clone(restarter.gate());
    let serving = axum::serve(listener, app)
        .with_graceful_shutdown(async move { closed.closed().await })
        .into_future();
    let last_answers = async {
        restarter.gate().closed().await;
        tokio::time::sleep(LAST_ANSWERS).await;
    };
    tokio::select! {
        served = serving => served,
        () = last_answers => Ok(()),
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

fn router(starter: &Arc<Starter>, restarter: &Arc<Restarter>, args: &Args) -> axum::Router {
    let gate = restarter.gate();
    let calls = connectrpc::Router::new()
        .add_service(Arc::new(OwnService::new(
            Arc::clone(starter),
            args.state_dir.clone(),
            Arc::clone(restarter),
        )))
        .add_service(Arc::new(ProcessService::new(
            Arc::clone(starter),
            Arc::clone(gate),
        )))
        .add_service(Arc::new(FilesystemService::new(
            Arc::clone(&starter.settings),
            Arc::clone(&restarter.lasting().watchers),
            Arc::clone(gate),
        )));
    let limits = Limits::default()
        .with_max_request_body_size(MAX_REQUEST_BYTES)
        .with_max_message_size(MAX_REQUEST_BYTES);
    let transfers = Transfers::new(Arc::clone(&starter.settings), args.state_dir.clone());
    http::routes(Arc::clone(starter), transfers)
        .merge(tree::router(args.work_dir.clone()))
        .fallback_service(ConnectRpcService::new(calls).with_limits(limits))
        .layer(from_fn_with_state(
            Arc::clone(&starter.settings),
            access::guard,
        ))
        .layer(from_fn_with_state(Arc::clone(gate), gate::pass))
}
