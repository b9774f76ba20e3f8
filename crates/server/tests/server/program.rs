//! Programs for the boxes of the fake driver: real ones, on sockets of this machine, that say and see exactly what a test
//! wants. And a client that sends exactly these bytes.

use std::net::SocketAddr;
use std::time::Duration;

use icebox_lifecycle::BoxId;
use serde_json::json;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};

use crate::rig::{Answer, Rig, RigClient};

/// Longer than anything a test waits for.
const LIMIT: Duration = Duration::from_secs(30);

/// A program that takes connections by hand.
pub(crate) struct Program {
    listener: TcpListener,
}

/// One of its connections, or a client's.
pub(crate) struct Talk {
    stream: TcpStream,
    read: Vec<u8>,
}

impl Program {
    /// Listens, and is what the box has on this port.
    pub(crate) async fn on(rig: &Rig, id: BoxId, port: u16) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        rig.fake
            .listen(id, port, Some(listener.local_addr().unwrap()));
        Self { listener }
    }

    /// Listens on this machine, and is no box's.
    pub(crate) async fn elsewhere() -> (Self, SocketAddr) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        (Self { listener }, address)
    }

    /// The next connection.
    pub(crate) async fn accept(&self) -> Talk {
        let (stream, _) = within(self.listener.accept()).await.unwrap();
        Talk::new(stream)
    }
}

impl Talk {
    fn new(stream: TcpStream) -> Self {
        stream.set_nodelay(true).unwrap();
        Self {
            stream,
            read: Vec::new(),
        }
    }

    /// A client's connection to the server.
    pub(crate) async fn to(address: SocketAddr) -> Self {
        Self::new(TcpStream::connect(address).await.unwrap())
    }

    /// Sends these bytes.
    pub(crate) async fn say(&mut self, bytes: &str) {
        within(self.stream.write_all(bytes.as_bytes()))
            .await
            .unwrap();
    }

    /// Reads up to and with this text.
    pub(crate) async fn hear(&mut self, until: &str) -> String {
        loop {
            let found = self
                .read
                .windows(until.len())
                .position(|some| some == until.as_bytes());
            if let Some(at) = found {
                let heard: Vec<u8> = self.read.drain(..at + until.len()).collect();
                return String::from_utf8(heard).unwrap();
            }
            let read = within(self.stream.read_buf(&mut self.read)).await.unwrap();
            let so_far = String::from_utf8_lossy(&self.read);
            assert!(read > 0, "it ended before `{until}`: {so_far}");
        }
    }

    /// The head of a message, in lower case.
    pub(crate) async fn head(&mut self) -> String {
        self.hear("\r\n\r\n").await.to_ascii_lowercase()
    }

    /// Until there is more to read.
    pub(crate) async fn readable(&self) {
        self.stream.readable().await.unwrap();
    }

    /// Everything until the other end says that there is no more, and whether it ended in good order.
    pub(crate) async fn rest(&mut self) -> (String, bool) {
        loop {
            match within(self.stream.read_buf(&mut self.read)).await {
                Ok(0) => return (self.take_read(), true),
                Ok(_) => {}
                Err(_) => return (self.take_read(), false),
            }
        }
    }

    fn take_read(&mut self) -> String {
        String::from_utf8_lossy(&std::mem::take(&mut self.read)).into_owned()
    }
}

/// Ends a test that waits for what never comes.
pub(crate) async fn within<T>(what: impl Future<Output = T>) -> T {
    match tokio::time::timeout(LIMIT, what).await {
        Ok(done) => done,
        Err(_) => panic!("nothing came for {} s", LIMIT.as_secs()),
    }
}

/// The name in a box's URL.
pub(crate) fn host(place: &str, id: BoxId) -> String {
    format!("{place}-{id}.localhost:7070")
}

impl Rig {
    /// A ready box with the service `web` on port 3000.
    pub(crate) async fn web_box(&self) -> BoxId {
        let services = json!([{ "name": "web", "port": 3000, "web": true }]);
        self.box_with(json!({ "services": services })).await
    }

    /// A program that answers everything with a text, on that box.
    pub(crate) async fn says(&self, id: BoxId, text: &'static str) {
        let router = axum::Router::new().fallback(move || async move { text });
        self.serves(id, router).await;
    }

    /// A program with these routes, on that box.
    pub(crate) async fn serves(&self, id: BoxId, router: axum::Router) {
        let Program { listener } = Program::on(self, id, 3000).await;
        tokio::spawn(async move { axum::serve(listener, router).await.unwrap() });
    }

    /// A client of a box's URL: no key, and that host.
    pub(crate) fn at(&self, place: &str, id: BoxId) -> RigClient {
        let client = self.client().with_key(None);
        client.with_header("host", &host(place, id))
    }

    /// Somebody who opens a box's URL in a browser.
    pub(crate) async fn opens(&self, place: &str, id: BoxId) -> Answer {
        browser(self.at(place, id)).load("/").await
    }

    /// A program that fetches from it.
    pub(crate) async fn fetches(&self, place: &str, id: BoxId) -> Answer {
        self.at(place, id).load("/").await
    }
}

/// The same client, loading pages.
pub(crate) fn browser(client: RigClient) -> RigClient {
    client
        .with_header("accept", "text/html,*/*;q=0.8")
        .with_header("sec-fetch-mode", "navigate")
}

impl RigClient {
    pub(crate) async fn load(&self, path: &str) -> Answer {
        self.raw(axum::http::Method::GET, path, Vec::new()).await
    }
}

impl Answer {
    /// The body as text.
    pub(crate) fn text(&self) -> String {
        String::from_utf8(self.bytes.to_vec()).unwrap()
    }
}
