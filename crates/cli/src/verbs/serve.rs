//! `icebox serve`: runs the server in the foreground until it is asked to end. Owns the flags, the log, the driver's
//! choice and what is said at the start; everything else is the server's.

use std::io::IsTerminal as _;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;

use clap::Args;
use icebox_server::config::{Config, Given, TlsConfig};
use icebox_server::driver::container::ContainerDriver;
use icebox_server::driver::{Capabilities, Driver};
use tokio::signal::unix::{SignalKind, signal};
use tracing_subscriber::EnvFilter;

use super::dashboard;
use crate::error::CliError;
use crate::printer::note;
use crate::settings::KEY_FILE;

/// Run the server
///
/// It keeps everything in one folder and listens on one address. The first start writes an admin key into the folder.
/// Started at a terminal, it prints a link that opens the dashboard, signed in, once and within ten minutes.
/// On SIGTERM or Ctrl-C it ends in good order: boxes stay as they are, running ones run on, and the next start takes them
/// over. Boxes need root. `GET /openapi.json` describes the API.
#[derive(Args)]
#[command(after_help = "\
Examples:
  icebox serve
  icebox serve --data /srv/icebox --listen 127.0.0.1:8080
  icebox serve --tls                      its own certificates: `icebox tls ca`
  icebox serve --log debug                or RUST_LOG=icebox_server=debug icebox serve")]
pub(crate) struct Serve {
    /// The folder of the database, the key and the boxes [default: /var/lib/icebox]
    #[arg(long, env = "ICEBOX_DATA", hide_env_values = true)]
    data: Option<PathBuf>,
    /// The address to listen on [default: 127.0.0.1:7070]
    #[arg(long, value_name = "ADDRESS:PORT")]
    listen: Option<String>,
    /// The domain under which boxes have their URLs [default: localhost]
    #[arg(long, value_name = "NAME")]
    domain: Option<String>,
    /// A TOML file with settings; flags win over it
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Speak TLS, with certificates of an authority of this server's own, or those that the settings name
    #[arg(long)]
    tls: bool,
    /// For tests: time stands still until POST /v1/test/clock moves it
    #[arg(long)]
    test_clock: bool,
    /// What goes to the log, as in `debug` or `icebox_server=debug`
    #[arg(
        long,
        env = "RUST_LOG",
        default_value = "info,rmcp=warn",
        hide_env_values = true
    )]
    log: String,
}

impl Serve {
    pub(crate) fn run(self) -> Result<ExitCode, CliError> {
        let filter = EnvFilter::try_new(&self.log);
        let filter = filter.map_err(|error| CliError::Usage(format!("--log: {error}")))?;
        let log = tracing_subscriber::fmt()
            .with_env_filter(filter)
            .with_writer(std::io::stderr);
        log.with_ansi(colours()).init();
        let config = Config::load(Given {
            data: self.data,
            listen: self.listen,
            domain: self.domain,
            config: self.config,
            test_clock: self.test_clock,
            tls: self.tls,
        })?;
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(workers())
            .enable_all()
            .build()
            .map_err(CliError::io("start the async runtime"))?;
        runtime.block_on(async {
            let shutdown = asked_to_end()?;
            let listener = icebox_server::listen(&config).await?;
            let driver = ContainerDriver::open(&config.data, &ContainerDriver::find_boxd())
                .map_err(CliError::Host)?;
            driver.resolve_with(config.egress.resolvers.clone());
            if !config.egress.allowed {
                driver.close_way_out();
            }
            announce(&config, &driver.capabilities());
            let data = config.data.clone();
            let ready = move || greet(data);
            icebox_server::serve(listener, config, Arc::new(driver), ready, shutdown).await?;
            Ok(ExitCode::SUCCESS)
        })
    }
}

/// Whether the log, on standard error, may be in colours.
fn colours() -> bool {
    anstream::AutoStream::choice(&std::io::stderr()) != anstream::ColorChoice::Never
}

/// Says what starts, and where.
fn announce(config: &Config, host: &Capabilities) {
    let version = env!("CARGO_PKG_VERSION");
    note(&format!(
        "Icebox {version}, on {}://{} once it says that it is serving",
        if config.tls.is_some() {
            "https"
        } else {
            "http"
        },
        config.listen
    ));
    note(&format!("  data    {}", config.data.display()));
    note(&format!(
        "  key     {}",
        config.data.join(KEY_FILE).display()
    ));
    note(&format!(
        "  boxes   {} driver, {} CPUs, {} MiB memory",
        host.name, host.cpus, host.memory_mb
    ));
    let room = config.limits.host_room(host);
    note(&format!(
        "  room    {} boxes up at a time, with {} MiB of memory and {} CPUs together",
        room.boxes,
        room.memory_mb,
        room.milli_cpus / 1_000
    ));
    match &host.checkpoint {
        Ok(()) => note("  freeze  to disk, memory and all"),
        Err(why) => note(&format!("  freeze  in RAM only: {why}")),
    }
    match &host.egress {
        Ok(()) => note("  egress  boxes may have a way out"),
        Err(why) => note(&format!("  egress  none: {why}")),
    }
    note("  look    `icebox dashboard` prints a link that opens the dashboard, signed in");
    if config.test_clock {
        note("  clock   a test clock: time stands still until /v1/test/clock moves it");
    }
    match &config.tls {
        Some(TlsConfig::LocalCa) => {
            note("  tls     an authority of its own; `icebox tls ca` says how to trust it");
        }
        Some(TlsConfig::Files { cert, .. }) => note(&format!("  tls     {}", cert.display())),
        None => {}
    }
    if config.tls.is_none() && !config.listen.ip().is_loopback() {
        note(
            "  beware  it can be reached from other machines, without TLS: keys cross the network in the clear (--tls)",
        );
    }
}

/// Whoever starts a server by hand wants to see it. A log gets no link, for it would let its readers in.
fn greet(data: PathBuf) {
    if std::io::stderr().is_terminal() {
        // It waits for the server, which begins to answer only now.
        std::thread::spawn(move || dashboard::greet(&data));
    }
}

/// Threads for requests: half of the processors. The engine has a thread of its own, boxes want the rest, and a request
/// that moves between threads pays for each wake-up.
fn workers() -> usize {
    std::thread::available_parallelism().map_or(1, |cpus| cpus.get().div_ceil(2))
}

/// Is over at the first SIGTERM or SIGINT.
fn asked_to_end() -> Result<impl Future<Output = ()> + Send + 'static, CliError> {
    let watch = |kind| signal(kind).map_err(CliError::io("watch for signals"));
    let mut terminate = watch(SignalKind::terminate())?;
    let mut interrupt = watch(SignalKind::interrupt())?;
    Ok(async move {
        tokio::select! {
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
        }
        tracing::info!("ending; boxes stay as they are");
    })
}
