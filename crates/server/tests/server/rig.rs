//! A server to test: on a runtime of its own, so that it can be killed with everything it was doing, and with a client.
//! The world of its boxes and its data folder outlive it.

use std::net::SocketAddr;
use std::path::Path;
use std::pin::Pin;
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll};

use axum::http::{HeaderMap, Method, Request, Response, StatusCode, Uri};
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::{Connected, Connection};
use hyper_util::rt::{TokioExecutor, TokioIo};
use icebox_lifecycle::BoxId;
use icebox_lifecycle::credits::Prices;
use icebox_server::commands::Commands;
use icebox_server::config::{
    Config, EdgeConfig, EgressSettings, Limits, TlsConfig, WebhookSettings,
};
use icebox_server::driver::fake::Fake;
use icebox_server::engine::Engine;
use icebox_server::logs::LogSettings;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::runtime::Runtime;
use tokio_rustls::TlsConnector;

use crate::contract::Contract;

/// One minute, in seconds.
pub(crate) const MIN: u64 = 60;
/// One hour.
pub(crate) const HOUR: u64 = 60 * MIN;

/// The server, its world, and a client that has the admin's key.
pub(crate) struct Rig {
    pub(crate) fake: Fake,
    dir: TempDir,
    limits: Limits,
    pub(crate) webhooks: WebhookSettings,
    pub(crate) egress: EgressSettings,
    pub(crate) logs: LogSettings,
    tls: Option<TlsConfig>,
    server: Option<Server>,
}

struct Server {
    runtime: Runtime,
    engine: Engine,
    commands: Commands,
    address: SocketAddr,
    client: RigClient,
}

/// Speaks to the server; clones share connections.
#[derive(Clone)]
pub(crate) struct RigClient {
    http: Client<Dial, Full<bytes::Bytes>>,
    base: String,
    key: Option<String>,
    headers: Vec<(String, String)>,
}

/// An answer, read whole.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: StatusCode,
    pub(crate) headers: HeaderMap,
    pub(crate) bytes: bytes::Bytes,
    pub(crate) json: Value,
}

impl Answer {
    /// The JSON of an answer with this status.
    #[track_caller]
    pub(crate) fn expect(self, status: u16) -> Value {
        assert_eq!(self.status.as_u16(), status, "{}", self.json);
        self.json
    }

    /// The sentence of an error with this status and code.
    #[track_caller]
    pub(crate) fn error(self, status: u16, code: &str) -> String {
        assert_eq!(self.status.as_u16(), status, "{}", self.json);
        assert_eq!(self.json["code"], code, "{}", self.json);
        self.json["error"].as_str().unwrap().to_owned()
    }
}

impl Rig {
    /// A server with an empty world.
    pub(crate) async fn new() -> Self {
        Self::with(Limits::default()).await
    }

    /// A server with these limits.
    pub(crate) async fn with(limits: Limits) -> Self {
        Self::started(limits, None).await
    }

    /// A server that speaks TLS.
    pub(crate) async fn over_tls(tls: TlsConfig) -> Self {
        Self::started(Limits::default(), Some(tls)).await
    }

    async fn started(limits: Limits, tls: Option<TlsConfig>) -> Self {
        let mut rig = Self {
            fake: Fake::new(),
            dir: tempfile::tempdir().unwrap(),
            limits,
            webhooks: WebhookSettings::default(),
            egress: EgressSettings::default(),
            logs: LogSettings::default(),
            tls,
            server: None,
        };
        rig.start().await;
        rig
    }

    fn config(&self, listen: SocketAddr) -> Config {
        Config {
            data: self.dir.path().to_owned(),
            listen,
            domain: "localhost".to_owned(),
            test_clock: true,
            limits: self.limits.clone(),
            edge: EdgeConfig {
                names: vec!["icebox.example".to_owned()],
                public: None,
            },
            prices: Prices::default(),
            webhooks: self.webhooks.clone(),
            egress: self.egress.clone(),
            logs: self.logs.clone(),
            tls: self.tls.clone(),
        }
    }

    /// Starts a server on what the last one left.
    pub(crate) async fn start(&mut self) {
        assert!(self.server.is_none(), "one server at a time");
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(2)
            .enable_all()
            .build()
            .unwrap();
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        listener.set_nonblocking(true).unwrap();
        let address = listener.local_addr().unwrap();
        let (config, fake) = (self.config(address), self.fake.clone());
        let built = runtime
            .spawn(icebox_server::build(config, Arc::new(fake)))
            .await
            .unwrap();
        let built = built.unwrap();
        let (front, tls) = (built.front, built.tls);
        runtime.spawn(async move {
            let listener = tokio::net::TcpListener::from_std(listener).unwrap();
            let never = std::future::pending();
            icebox_server::edge::listen::serve(listener, front, tls, never)
                .await
                .unwrap();
        });
        let key = std::fs::read_to_string(self.dir.path().join("admin.key")).unwrap();
        let trusted = self.tls.as_ref().map(|tls| match tls {
            TlsConfig::Files { cert, .. } => cert.clone(),
            TlsConfig::LocalCa => self.dir.path().join("tls/ca.pem"),
        });
        let tls = trusted.map(|path| connector(&path, &[]));
        let base = match &tls {
            Some(_) => format!("https://localhost:{}", address.port()),
            None => format!("http://{address}"),
        };
        let dial = Dial { address, tls };
        self.server = Some(Server {
            runtime,
            engine: built.engine,
            commands: built.commands,
            address,
            client: RigClient {
                http: Client::builder(TokioExecutor::new()).build(dial),
                base,
                key: Some(key.trim().to_owned()),
                headers: Vec::new(),
            },
        });
    }

    /// Ends the server and everything it was doing; its boxes stay as they are.
    pub(crate) async fn kill(&mut self) {
        let server = self.server.take().unwrap();
        server.engine.shut_down().await;
        server.runtime.shutdown_background();
    }

    /// Kills it and starts another.
    pub(crate) async fn restart(&mut self) {
        self.kill().await;
        self.start().await;
    }

    /// An engine alone on what the last server left, `away_ms` later.
    pub(crate) async fn engine_after(&self, away_ms: i64) -> Engine {
        let store = icebox_server::store::Store::open(self.data()).unwrap();
        let last = store.last_seen().unwrap().unwrap();
        let driver: Arc<dyn icebox_server::driver::Driver> = Arc::new(self.fake.clone());
        let parts = icebox_server::engine::Parts {
            store,
            clock: icebox_server::clock::Clock::test(last + away_ms),
            boxds: Arc::new(icebox_server::boxd::Boxds::new(Arc::clone(&driver))),
            driver,
            limits: self.limits.clone(),
            prices: Prices::default(),
        };
        Engine::start(parts).await.unwrap()
    }

    /// The limits of the next server.
    pub(crate) fn limits(&mut self) -> &mut Limits {
        &mut self.limits
    }

    /// The last moment at which the killed server was alive.
    pub(crate) fn last_seen(&self) -> icebox_lifecycle::Time {
        let store = icebox_server::store::Store::open(self.data()).unwrap();
        store.last_seen().unwrap().unwrap()
    }

    pub(crate) fn engine(&self) -> &Engine {
        &self.server.as_ref().unwrap().engine
    }

    pub(crate) fn commands(&self) -> &Commands {
        &self.server.as_ref().unwrap().commands
    }

    pub(crate) fn client(&self) -> RigClient {
        self.server.as_ref().unwrap().client.clone()
    }

    /// Where the server listens.
    pub(crate) fn address(&self) -> SocketAddr {
        self.server.as_ref().unwrap().address
    }

    pub(crate) fn data(&self) -> &std::path::Path {
        self.dir.path()
    }

    /// Restarts with one more account, and gives a client with its key.
    pub(crate) async fn other_account(&mut self) -> RigClient {
        let key = format!("e2b_{}", "b".repeat(40));
        self.kill().await;
        let db = rusqlite::Connection::open(self.data().join("icebox.db")).unwrap();
        db.execute("INSERT INTO accounts VALUES (99, 'other', 0)", [])
            .unwrap();
        let hash = <sha2::Sha256 as sha2::Digest>::digest(key.as_bytes());
        db.execute(
            "INSERT INTO keys VALUES (?1, 99, 'other', 0)",
            [hash.as_slice()],
        )
        .unwrap();
        drop(db);
        self.start().await;
        self.client().with_key(Some(&key))
    }

    /// Another server on the same folder, which must not start.
    pub(crate) async fn second_server(&self) -> String {
        let nowhere = "127.0.0.1:0".parse().unwrap();
        match icebox_server::build(self.config(nowhere), Arc::new(self.fake.clone())).await {
            Ok(_) => panic!("two servers have the same data folder"),
            Err(error) => error.to_string(),
        }
    }

    pub(crate) async fn get(&self, path: &str) -> Answer {
        self.client().call(Method::GET, path, None).await
    }

    pub(crate) async fn post(&self, path: &str, body: Value) -> Answer {
        self.client().post(path, body).await
    }

    pub(crate) async fn patch(&self, id: BoxId, body: Value) -> Answer {
        let path = format!("/v1/boxes/{id}");
        self.client().call(Method::PATCH, &path, Some(body)).await
    }

    /// Starts a box and waits until it is ready.
    pub(crate) async fn ready_box(&self) -> BoxId {
        self.box_with(json!({})).await
    }

    /// Starts a box from this request.
    pub(crate) async fn box_with(&self, request: Value) -> BoxId {
        let shown = self.post("/v1/boxes", request).await.expect(201);
        assert_eq!(shown["status"], "ready");
        BoxId::parse(shown["id"].as_str().unwrap()).unwrap()
    }

    /// Starts a box and freezes it to disk.
    pub(crate) async fn frozen_box(&self) -> BoxId {
        let id = self.ready_box().await;
        let shown = self.freeze(id).await.expect(200);
        assert_eq!(
            (&shown["status"], &shown["tier"]),
            (&json!("frozen"), &json!("disk"))
        );
        id
    }

    pub(crate) async fn freeze(&self, id: BoxId) -> Answer {
        self.post(&format!("/v1/boxes/{id}/freeze"), json!({}))
            .await
    }

    pub(crate) async fn stop(&self, id: BoxId) -> Answer {
        self.post(&format!("/v1/boxes/{id}/stop"), json!({})).await
    }

    pub(crate) async fn exec(&self, id: BoxId, cmd: &str) -> Answer {
        self.client().exec(id, json!({ "cmd": cmd })).await
    }

    pub(crate) async fn status(&self, id: BoxId) -> Value {
        self.get(&format!("/v1/boxes/{id}")).await.expect(200)
    }

    /// The word for the box's state.
    pub(crate) async fn state(&self, id: BoxId) -> String {
        self.status(id).await["status"].as_str().unwrap().to_owned()
    }

    /// Waits until the box is in this state; views are asked, no time passes.
    pub(crate) async fn until(&self, id: BoxId, status: &str) {
        let views = self.engine().views();
        let reached = views.wait_for(id, |view| {
            if view.sandbox.status().as_str() == status {
                std::ops::ControlFlow::Break(())
            } else {
                std::ops::ControlFlow::Continue(())
            }
        });
        reached.await.unwrap();
    }

    /// Moves the time forward, and waits for all that came due.
    pub(crate) async fn advance(&self, sec: u64) {
        let moved = self.post("/v1/test/clock", json!({ "advanceSec": sec }));
        moved.await.expect(200);
    }
}

impl RigClient {
    /// The same client without a key, or with another.
    pub(crate) fn with_key(mut self, key: Option<&str>) -> Self {
        self.key = key.map(str::to_owned);
        self
    }

    /// The same client with one more header.
    pub(crate) fn with_header(mut self, name: &str, value: &str) -> Self {
        self.headers.push((name.to_owned(), value.to_owned()));
        self
    }

    pub(crate) async fn post(&self, path: &str, body: Value) -> Answer {
        self.call(Method::POST, path, Some(body)).await
    }

    pub(crate) async fn exec(&self, id: BoxId, body: Value) -> Answer {
        self.post(&format!("/v1/boxes/{id}/exec"), body).await
    }

    pub(crate) async fn call(&self, method: Method, path: &str, body: Option<Value>) -> Answer {
        let body = body.map_or(Vec::new(), |body| body.to_string().into_bytes());
        self.raw(method, path, body).await
    }

    /// Opens an answer that is read as it comes.
    pub(crate) async fn open(&self, path: &str) -> Stream {
        let response = self.send(Method::GET, path, Vec::new()).await;
        assert_eq!(response.status(), 200);
        Stream {
            content_type: response.headers()["content-type"]
                .to_str()
                .unwrap()
                .to_owned(),
            body: response.into_body(),
            read: Vec::new(),
        }
    }

    /// Whatever is answered has to be as `/openapi.json` describes it.
    pub(crate) async fn raw(&self, method: Method, path: &str, body: Vec<u8>) -> Answer {
        let answer = self.read(method.clone(), path, body.clone()).await;
        // By these a request is meant for a box.
        let to_box = |(name, _): &(String, String)| name == "host" || name == "e2b-sandbox-id";
        let at_box = self.headers.iter().any(to_box);
        if path.starts_with("/v1/") && !at_box {
            let contract = self.contract().await;
            contract.check(&method, path, &answer);
            if answer.status.is_success() {
                contract.accepts(&method, path, &body);
            }
        }
        answer
    }

    /// What the server says of itself.
    pub(crate) async fn contract(&self) -> &'static Contract {
        static CONTRACT: OnceLock<Contract> = OnceLock::new();
        if CONTRACT.get().is_none() {
            let document = self.read(Method::GET, "/openapi.json", Vec::new()).await;
            // Another one may have been quicker, with the same.
            let _ = CONTRACT.set(Contract::new(document.expect(200)));
        }
        CONTRACT.get().unwrap()
    }

    async fn read(&self, method: Method, path: &str, body: Vec<u8>) -> Answer {
        let response = self.send(method, path, body).await;
        let (status, headers) = (response.status(), response.headers().clone());
        let bytes = response.into_body().collect().await.unwrap().to_bytes();
        Answer {
            status,
            headers,
            json: serde_json::from_slice(&bytes).unwrap_or(Value::Null),
            bytes,
        }
    }

    async fn send(&self, method: Method, path: &str, body: Vec<u8>) -> Response<Incoming> {
        let mut request = Request::builder()
            .method(method)
            .uri(format!("{}{path}", self.base));
        if let Some(key) = &self.key {
            request = request.header("authorization", format!("Bearer {key}"));
        }
        for (name, value) in &self.headers {
            request = request.header(name, value);
        }
        let request = request.body(Full::new(body.into())).unwrap();
        self.http.request(request).await.unwrap()
    }
}

/// Trusts the certificates in a file and no others.
pub(crate) fn connector(trusted: &Path, protocols: &[&str]) -> TlsConnector {
    let mut roots = RootCertStore::empty();
    for cert in CertificateDer::pem_file_iter(trusted).unwrap() {
        roots.add(cert.unwrap()).unwrap();
    }
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let mut config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    let protocols = protocols.iter().map(|name| name.as_bytes().to_vec());
    config.alpn_protocols = protocols.collect();
    Arc::new(config).into()
}

/// Connects to the server, over TLS if it speaks that.
#[derive(Clone)]
struct Dial {
    address: SocketAddr,
    tls: Option<TlsConnector>,
}

trait Io: AsyncRead + AsyncWrite + Send + Unpin {}
impl<T: AsyncRead + AsyncWrite + Send + Unpin> Io for T {}

struct Dialed(Box<dyn Io>);

impl tower::Service<Uri> for Dial {
    type Response = TokioIo<Dialed>;
    type Error = std::io::Error;
    type Future = Pin<Box<dyn Future<Output = std::io::Result<Self::Response>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, _: Uri) -> Self::Future {
        let Self { address, tls } = self.clone();
        Box::pin(async move {
            let stream = TcpStream::connect(address).await?;
            stream.set_nodelay(true)?;
            let Some(tls) = tls else {
                return Ok(TokioIo::new(Dialed(Box::new(stream))));
            };
            let name = ServerName::try_from("localhost").unwrap();
            let stream = tls.connect(name, stream).await?;
            Ok(TokioIo::new(Dialed(Box::new(stream))))
        })
    }
}

impl Connection for Dialed {
    fn connected(&self) -> Connected {
        Connected::new()
    }
}

impl AsyncRead for Dialed {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<std::io::Result<()>> {
        Pin::new(&mut *self.0).poll_read(cx, buf)
    }
}

impl AsyncWrite for Dialed {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        data: &[u8],
    ) -> Poll<std::io::Result<usize>> {
        Pin::new(&mut *self.0).poll_write(cx, data)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        Pin::new(&mut *self.0).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        Pin::new(&mut *self.0).poll_shutdown(cx)
    }
}

/// An answer that is read as it comes.
pub(crate) struct Stream {
    pub(crate) content_type: String,
    body: Incoming,
    read: Vec<u8>,
}

impl Stream {
    /// The next line; `None` at the end.
    pub(crate) async fn line(&mut self) -> Option<String> {
        loop {
            if let Some(end) = self.read.iter().position(|byte| *byte == b'\n') {
                let line: Vec<u8> = self.read.drain(..=end).collect();
                return Some(String::from_utf8(line).unwrap().trim_end().to_owned());
            }
            let frame = self.body.frame().await?.unwrap();
            self.read.extend(frame.into_data().unwrap());
        }
    }
}

impl Drop for Rig {
    fn drop(&mut self) {
        if let Some(server) = self.server.take() {
            server.runtime.shutdown_background();
        }
    }
}

/// Waits for what shows in views only. They end when it does; no time passes.
impl Rig {
    async fn until_view(&self, id: BoxId, enough: impl Fn(&icebox_lifecycle::Sandbox) -> bool) {
        let views = self.engine().views();
        let reached = views.wait_for(id, |view| {
            if enough(&view.sandbox) {
                std::ops::ControlFlow::Break(())
            } else {
                std::ops::ControlFlow::Continue(())
            }
        });
        reached.await.unwrap();
    }

    /// Until a call came to a box that is not ready.
    pub(crate) async fn until_called(&self, id: BoxId) {
        self.until_view(id, |sandbox| !sandbox.holds.calls.is_empty())
            .await;
    }

    /// Until a call is under way.
    pub(crate) async fn until_in_use(&self, id: BoxId) {
        self.until_view(id, icebox_lifecycle::Sandbox::in_use).await;
    }

    /// Until no call is.
    pub(crate) async fn until_unused(&self, id: BoxId) {
        self.until_view(id, |sandbox| !sandbox.in_use()).await;
    }

    /// Until so many background commands are known.
    pub(crate) async fn until_background(&self, id: BoxId, count: usize) {
        self.until_view(id, |sandbox| sandbox.holds.background.len() == count)
            .await;
    }

    /// Until a command runs in the box.
    pub(crate) async fn until_running(&self, id: BoxId) {
        self.fake.until_command(id).await;
    }

    /// The command that runs in the box.
    pub(crate) fn only_command(&self, id: BoxId) -> String {
        let running = self.fake.running_commands(id);
        assert_eq!(running.len(), 1, "{running:?}");
        running.into_iter().next().unwrap()
    }
}

impl Rig {
    /// Until a request for one of the box's URLs came.
    pub(crate) async fn until_requested(&self, id: BoxId) {
        self.until_view(id, |sandbox| sandbox.last_request.is_some())
            .await;
    }
}
