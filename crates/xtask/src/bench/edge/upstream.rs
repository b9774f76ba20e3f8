//! The programs in the boxes: one that answers as fast as can be, one with sockets that stay open, and a small app.

use std::time::Duration;

use serde_json::json;

use super::load::CORES;
use super::nginx;
use crate::harness::{Instance, until};

/// The port of small answers and of the large file.
pub(super) const FILES_PORT: u16 = 3000;
/// The port of WebSockets.
pub(super) const SOCKETS_PORT: u16 = 3001;
/// The port of the app with a page.
pub(super) const PAGE_PORT: u16 = 3000;
/// The size of the large file.
pub(super) const DOWNLOAD_MIB: u64 = 1024;

/// Takes every WebSocket and says nothing more.
const SOCKETS: &str = r#"
import asyncio

async def serve(reader, writer):
    try:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n")
        await reader.read()
    except (asyncio.IncompleteReadError, ConnectionError):
        pass
    finally:
        writer.close()

async def main():
    server = await asyncio.start_server(serve, "127.0.0.1", 3001, backlog=4096)
    async with server:
        await server.serve_forever()

asyncio.run(main())
"#;

/// A page, and 64 MiB of memory that come along.
const PAGE: &str = r#"
const page = '<!doctype html><title>the app</title><main id=app>it runs</main>';
const ballast = require("crypto").randomBytes(64 << 20);
require("http").createServer((request, answer) => {
  answer.setHeader("content-type", "text/html");
  answer.end(request.url === "/" ? page : String(ballast[0]));
}).listen(3000, "127.0.0.1");
"#;

/// The programs in one box.
pub(super) struct Apps {
    namespace: String,
}

impl Apps {
    /// Starts them and waits until they answer.
    pub(super) fn start(instance: &Instance, id: &str) -> anyhow::Result<Self> {
        let program = nginx::program();
        let files = format!(
            "mkdir -p files && truncate -s {DOWNLOAD_MIB}M files/large && echo -n 'a small answer' >files/small
cat >nginx.conf <<'END'
daemon off; master_process off; worker_processes 1; pid nginx.pid; error_log stderr;
events {{ worker_connections 8192; }}
http {{
  access_log off; keepalive_requests 1000000; sendfile on; tcp_nodelay on; open_file_cache max=10;
  client_body_temp_path body; proxy_temp_path proxy; fastcgi_temp_path fastcgi; uwsgi_temp_path uwsgi; scgi_temp_path scgi;
  server {{ listen 127.0.0.1:{FILES_PORT}; root /work/files; }}
}}
END
exec taskset -c {CORES} {} -p /work -c /work/nginx.conf -e stderr",
            program.display()
        );
        let sockets = format!("exec taskset -c {CORES} python3 -c '{SOCKETS}'");
        background(instance, id, &files)?;
        background(instance, id, &sockets)?;
        listens(instance, id, FILES_PORT)?;
        listens(instance, id, SOCKETS_PORT)?;
        Ok(Self {
            namespace: instance.network_namespace(id)?,
        })
    }

    /// The network that they are in, as a path.
    pub(super) fn namespace(&self) -> &str {
        &self.namespace
    }
}

/// Starts the app with a page and waits until it answers.
pub(super) fn start_page(instance: &Instance, id: &str) -> anyhow::Result<()> {
    let run = format!("cat >app.js <<'END'\n{PAGE}\nEND\nexec node app.js");
    background(instance, id, &run)?;
    listens(instance, id, PAGE_PORT)
}

fn background(instance: &Instance, id: &str, cmd: &str) -> anyhow::Result<()> {
    let request = json!({ "cmd": cmd, "background": true });
    instance
        .post(&format!("/v1/boxes/{id}/exec"), request)
        .map(drop)
}

fn listens(instance: &Instance, id: &str, port: u16) -> anyhow::Result<()> {
    let connect = format!("(exec 3<>/dev/tcp/127.0.0.1/{port}) 2>/dev/null");
    until(Duration::from_secs(60), || {
        Ok(instance.exec(id, &connect).ok().map(drop))
    })
}
