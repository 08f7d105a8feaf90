//! etcd for comparison: three members on the loopback with their data beside ours, and recorded
//! figures if it is not installed.
//!
//! Starts and stops only its own members, with etcd's defaults. Puts go to the leader over several
//! connections, so that no follower forwards them. The clients run in this process (see `grpc`),
//! like our own proposers.

use std::fs::File;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use futures_util::future::try_join_all;
use runtime::Clock;

use super::grpc::{Connection, field, put_bytes};
use super::load::{Commits, Load, drive};
use meros::output::error::{CliError, Outcome};
use meros::service::free_port;

/// The program's name.
const PROGRAM: &str = "etcd";
/// Number of members.
pub const MEMBERS: usize = 3;
/// Timeout of the first election.
const UP_PATIENCE: Duration = Duration::from_secs(30);
/// Largest number of connections shared by the proposers.
const CONNECTIONS_MAX: u32 = 16;
/// Keys that each proposer writes in turn.
const KEYS: u64 = 1000;

/// Figures of etcd 3.4.23 on 2 virtual CPUs (AMD EPYC), ext4 on a virtual disk, Debian 12: medians
/// of three runs, values of 256 bytes.
pub const RECORDED: [Commits; 2] = [
    Commits {
        proposers: 1,
        per_second: 1435.0,
        p50_ms: 0.64,
        p99_ms: 1.7,
    },
    Commits {
        proposers: 64,
        per_second: 9207.0,
        p50_ms: 6.1,
        p99_ms: 24.0,
    },
];

/// A member. Dropping it ends the process.
struct Member(Child);

impl Drop for Member {
    fn drop(&mut self) {
        let _ = self.0.kill(); // It may have ended already.
        let _ = self.0.wait();
    }
}

/// Three members with a leader.
pub struct Etcd {
    leader: SocketAddr,
    _members: Vec<Member>,
}

/// The installed version of etcd, if there is one.
pub fn installed() -> Option<String> {
    let output = Command::new(PROGRAM).arg("--version").output().ok()?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let version = text.lines().next()?.strip_prefix("etcd Version:")?;
    Some(version.trim().to_owned())
}

impl Etcd {
    /// Starts three members in `directory` and waits for a leader.
    pub async fn start(directory: &Path, clock: &Clock) -> Outcome<Self> {
        let mut ports = Vec::new();
        for _ in 0..MEMBERS {
            ports.push((free_port()?, free_port()?));
        }
        let url = |port: u16| format!("http://127.0.0.1:{port}");
        let peer = |(number, (port, _)): (usize, &(u16, u16))| format!("m{number}={}", url(*port));
        let cluster: Vec<String> = ports.iter().enumerate().map(peer).collect();
        let cluster = cluster.join(",");
        let mut members = Vec::new();
        for (number, (peers, clients)) in ports.iter().enumerate() {
            let log = directory.join(format!("etcd-{number}.log"));
            let cannot = |error: std::io::Error| CliError::because("cannot start etcd", &error);
            let log = File::create(log).map_err(cannot)?;
            let child = Command::new(PROGRAM)
                .args(["--name", &format!("m{number}")])
                .arg("--data-dir")
                .arg(directory.join(format!("etcd-{number}")))
                .args(["--listen-peer-urls", &url(*peers)])
                .args(["--initial-advertise-peer-urls", &url(*peers)])
                .args(["--listen-client-urls", &url(*clients)])
                .args(["--advertise-client-urls", &url(*clients)])
                .args(["--initial-cluster", &cluster])
                .args(["--initial-cluster-state", "new"])
                .env_clear() // etcd also reads flags from the environment.
                .stdin(Stdio::null())
                .stdout(Stdio::null())
                .stderr(log)
                .spawn()
                .map_err(cannot)?;
            members.push(Member(child));
        }
        let address = |(_, port): &(u16, u16)| SocketAddr::from((Ipv4Addr::LOCALHOST, *port));
        let addresses: Vec<SocketAddr> = ports.iter().map(address).collect();
        let leader = leader(&addresses, &mut members, clock).await?;
        Ok(Self {
            leader,
            _members: members,
        })
    }

    /// Puts values of `bytes` bytes under this load.
    pub async fn measure(&self, clock: &Clock, load: Load, bytes: usize) -> Outcome<Commits> {
        let connections = load.proposers.clamp(1, CONNECTIONS_MAX);
        let open = (0..connections).map(|_| Connection::open(self.leader));
        let connections = try_join_all(open).await?;
        let Some(first) = connections.first() else {
            return Err(CliError::new("no connection"));
        };
        let put = first.method("/etcdserverpb.KV/Put")?;
        let value = vec![0x5a; bytes];
        drive(clock, load, |proposal| {
            let connection = &connections[proposal.proposer as usize % connections.len()];
            let key = format!("{:02}/{:03}", proposal.proposer, proposal.number % KEYS);
            let mut message = Vec::with_capacity(bytes + 16);
            put_bytes(&mut message, 1, key.as_bytes());
            put_bytes(&mut message, 2, &value);
            let put = &put;
            async move {
                let answer = connection.ask(put, &message).await?;
                // The revision in the header tells where the value was committed.
                let header = field(&answer, 1).map_or(&[][..], |header| header.bytes());
                match field(header, 3).map_or(0, |revision| revision.number()) {
                    0 => Err(CliError::new("etcd answered a put without a revision")),
                    _ => Ok(()),
                }
            }
        })
        .await
    }
}

/// Waits for the leader and returns its address.
async fn leader(
    addresses: &[SocketAddr],
    members: &mut [Member],
    clock: &Clock,
) -> Outcome<SocketAddr> {
    let begun = clock.now();
    loop {
        for address in addresses {
            if leads(*address).await.unwrap_or(false) {
                return Ok(*address);
            }
        }
        for Member(child) in &mut *members {
            if let Ok(Some(status)) = child.try_wait() {
                return Err(CliError::new(format!(
                    "a member of etcd ended with {status}"
                )));
            }
        }
        if clock.now() - begun > UP_PATIENCE {
            return Err(CliError::new(format!(
                "etcd had no leader within {UP_PATIENCE:?}"
            )));
        }
        clock.sleep(Duration::from_millis(100)).await;
    }
}

async fn leads(address: SocketAddr) -> Outcome<bool> {
    let connection = Connection::open(address).await?;
    let status = connection.method("/etcdserverpb.Maintenance/Status")?;
    let answer = connection.ask(&status, &[]).await?;
    let header = field(&answer, 1).map_or(&[][..], |header| header.bytes());
    let number = |message, wanted| field(message, wanted).map_or(0, |found| found.number());
    let (own, leader) = (number(header, 2), number(&answer, 4));
    Ok(leader != 0 && own == leader)
}
