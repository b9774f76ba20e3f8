//! A machine and its internet for tests of what boxes reach: network namespaces of the test's own, so that nothing of it reaches
//! the network of the machine that runs the test, nor changes it. Owns these networks, and the looks at what is left in them.
//!
//! The suite of drivers takes this file in as well, so that it knows nothing of servers.

use std::fs::{self, File};
use std::io::{self, BufRead, BufReader, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream, UdpSocket};
use std::os::fd::AsRawFd;
use std::process::Command;

use rustix::thread::{UnshareFlags, unshare_unsafe};

/// An address of the internet, with a server that echoes lines and one that resolves names.
pub const ONE: &str = "9.9.9.9";
/// Another one.
pub const OTHER: &str = "8.8.4.4";
/// One that is private, beyond the machine.
pub const PRIVATE: &str = "10.20.30.40";
/// Where clouds keep what boxes must not know.
pub const METADATA: &str = "169.254.169.254";
/// The machine itself, which has a server, too.
pub const MACHINE: &str = "9.9.8.1";
/// Where the servers listen.
const PORT: u16 = 80;

/// The internet, as long as this is there.
pub struct Outside {
    _network: File,
}

/// Puts this thread, and all that it starts from now on, on a machine of its own with an internet.
///
/// # Errors
/// What could not be made; it needs root.
pub fn enter() -> io::Result<Outside> {
    enter_new_network()?;
    ip(&["link", "set", "lo", "up"])?;
    let internet = internet()?;
    let network = format!("/proc/{}/fd/{}", std::process::id(), internet.as_raw_fd());
    ip(&[
        "link", "add", "uplink", "type", "veth", "peer", "name", "eth0", "netns", &network,
    ])?;
    ip(&["addr", "add", "9.9.8.1/24", "dev", "uplink"])?;
    ip(&["link", "set", "uplink", "up"])?;
    ip(&["route", "add", "default", "via", "9.9.8.2"])?;
    for arguments in ["addr add 9.9.8.2/24 dev eth0", "link set eth0 up"] {
        let mut command = Command::new("nsenter");
        command.arg(format!("--net={network}")).arg("ip");
        run(command.args(arguments.split(' ')))?;
    }
    echo(TcpListener::bind(("0.0.0.0", PORT))?);
    Ok(Outside { _network: internet })
}

/// A command for a box that ends well when a program in it has an answer from there.
#[must_use]
pub fn talk_to(address: &str) -> String {
    format!(
        "timeout 3 bash -c 'exec 3<>/dev/tcp/{address}/{PORT} && echo hi >&3 && read -r line <&3'"
    )
}

/// What there is on the machine for boxes that reach out, a line each; none is as it should be once no box does and no server
/// runs.
///
/// # Errors
/// It cannot be looked at.
pub fn left() -> io::Result<Vec<String>> {
    let devices = fs::read_to_string("/proc/thread-self/net/dev")?;
    let devices = devices.lines().filter(|line| line.contains("icebox"));
    let tables = nft(&["list", "tables"])?;
    let rules = ip(&["rule"])?;
    let usual = ["local", "main", "default"];
    let is_usual = |rule: &&str| {
        usual
            .iter()
            .any(|table| rule.ends_with(&format!("lookup {table}")))
    };
    let mut left: Vec<String> = devices.map(str::to_owned).collect();
    let tables = tables.lines().filter(|line| line.contains("icebox"));
    left.extend(tables.map(str::to_owned));
    left.extend(
        rules
            .lines()
            .map(str::trim)
            .filter(|rule| !is_usual(rule))
            .map(str::to_owned),
    );
    Ok(left)
}

/// What `ip` says.
///
/// # Errors
/// It does not end well.
pub fn ip(arguments: &[&str]) -> io::Result<String> {
    run(Command::new("ip").args(arguments))
}

/// What `nft` says.
///
/// # Errors
/// It does not end well.
pub fn nft(arguments: &[&str]) -> io::Result<String> {
    run(Command::new("nft").args(arguments))
}

fn run(command: &mut Command) -> io::Result<String> {
    let output = command.output()?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    let said = String::from_utf8_lossy(&output.stderr);
    Err(io::Error::other(format!("{command:?}: {said}")))
}

fn enter_new_network() -> io::Result<()> {
    // SAFETY: only the network namespace of this thread changes.
    Ok(unsafe { unshare_unsafe(UnshareFlags::NEWNET) }?)
}

/// A network with servers that echo and one that resolves names. They are there as long as the process.
fn internet() -> io::Result<File> {
    std::thread::spawn(|| {
        enter_new_network()?;
        ip(&["link", "set", "lo", "up"])?;
        for address in [ONE, OTHER, PRIVATE, METADATA] {
            ip(&["addr", "add", &format!("{address}/32"), "dev", "lo"])?;
        }
        echo(TcpListener::bind(("0.0.0.0", PORT))?);
        let names = UdpSocket::bind((ONE, 53))?;
        std::thread::spawn(move || resolve(&names));
        File::open("/proc/thread-self/ns/net")
    })
    .join()
    .map_err(|_| io::Error::other("the internet panicked"))?
}

/// Answers each line with it.
fn echo(listener: TcpListener) {
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            std::thread::spawn(move || answer(stream));
        }
    });
}

fn answer(stream: TcpStream) -> io::Result<()> {
    let mut answers = stream.try_clone()?;
    for line in BufReader::new(stream).lines() {
        writeln!(answers, "{}", line?)?;
    }
    Ok(())
}

/// Every name has the address of one server, and no IPv6 address.
fn resolve(socket: &UdpSocket) {
    const ANSWER: Ipv4Addr = Ipv4Addr::new(8, 8, 4, 4);
    let mut question = [0_u8; 512];
    while let Ok((len, from)) = socket.recv_from(&mut question) {
        let Some(name_len) = question[12..len].iter().position(|byte| *byte == 0) else {
            continue;
        };
        let asked = &question[12..12 + name_len + 5];
        let is_v4 = asked[name_len + 1..name_len + 3] == [0, 1];
        let mut answer = question[..2].to_vec();
        answer.extend([0x81, 0x80, 0, 1, 0, u8::from(is_v4), 0, 0, 0, 0]);
        answer.extend(asked);
        if is_v4 {
            answer.extend([0xc0, 12, 0, 1, 0, 1, 0, 0, 0, 60, 0, 4]);
            answer.extend(ANSWER.octets());
        }
        // Who asked may be gone.
        let _ = socket.send_to(&answer, from);
    }
}
