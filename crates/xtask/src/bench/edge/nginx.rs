//! nginx as reverse proxy to a box. Owns its configuration, and how it gets into the box's network.

use std::fs;
use std::net::TcpListener;
use std::os::fd::AsRawFd as _;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

use anyhow::Context;

use super::upstream::FILES_PORT;
use super::{PROXY_CORE, Target};
use crate::harness::Instance;

/// A running nginx. It ends when this is dropped.
pub(super) struct Nginx {
    child: Child,
    /// Where it takes requests.
    pub(super) address: String,
}

/// The nginx that scripts/bootstrap unpacks, or the machine's own.
pub(super) fn program() -> PathBuf {
    let prefix = std::env::var_os("ICEBOX_PREFIX");
    let prefix = prefix.map_or_else(|| PathBuf::from("/usr/local/lib/icebox"), PathBuf::from);
    let unpacked = prefix.join("bench/usr/sbin/nginx");
    if unpacked.is_file() {
        unpacked
    } else {
        PathBuf::from("/usr/sbin/nginx")
    }
}

impl Nginx {
    /// Starts one that passes requests on to the box.
    pub(super) fn start(instance: &Instance, id: &str) -> anyhow::Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0")?;
        let address = listener.local_addr()?.to_string();
        // It inherits the socket, as a new nginx does from the one it replaces.
        rustix::io::fcntl_setfd(&listener, rustix::io::FdFlags::empty())?;
        let folder = instance.data.join("nginx");
        fs::create_dir_all(&folder)?;
        let settings = folder.join("nginx.conf");
        fs::write(&settings, configuration(&address))?;
        let child = Command::new("nsenter")
            .arg(format!("--net={}", instance.network_namespace(id)?))
            .args(["taskset", "-c", PROXY_CORE])
            .arg(program())
            .arg("-p")
            .arg(&folder)
            .arg("-c")
            .arg(&settings)
            .args(["-e", "stderr"])
            .env("NGINX", format!("{};", listener.as_raw_fd()))
            .stdin(Stdio::null())
            .spawn()
            .context("run nsenter and nginx: scripts/bootstrap --bench installs it")?;
        let nginx = Self { child, address };
        let target = Target {
            address: nginx.address.clone(),
            host: "localhost".to_owned(),
        };
        super::load::wait_until_answered(&target)?;
        Ok(nginx)
    }
}

impl Drop for Nginx {
    fn drop(&mut self) {
        // Its worker ends with it only when it is asked.
        let pid = rustix::process::Pid::from_child(&self.child);
        let asked = rustix::process::kill_process(pid, rustix::process::Signal::TERM);
        if let Err(error) = asked.map_err(Into::into).and_then(|()| self.child.wait()) {
            eprintln!("nginx did not end: {error}");
        }
    }
}

/// What a reverse proxy of an app is usually told: kept connections, HTTP/1.1, and who asks.
fn configuration(address: &str) -> String {
    format!(
        "user root; daemon off; worker_processes 1; pid nginx.pid;
events {{ worker_connections 8192; }}
http {{
  access_log off; keepalive_requests 1000000; sendfile on; tcp_nodelay on;
  client_body_temp_path body; proxy_temp_path proxy; fastcgi_temp_path fastcgi; uwsgi_temp_path uwsgi; scgi_temp_path scgi;
  upstream app {{ server 127.0.0.1:{FILES_PORT}; keepalive 32; keepalive_requests 1000000; }}
  server {{
    listen {address};
    location / {{
      proxy_pass http://app; proxy_http_version 1.1; proxy_set_header Connection \"\";
      proxy_set_header Host $host; proxy_set_header X-Forwarded-For $remote_addr;
      proxy_set_header X-Forwarded-Host $host; proxy_set_header X-Forwarded-Proto $scheme;
      proxy_max_temp_file_size 0;
    }}
  }}
}}
"
    )
}
