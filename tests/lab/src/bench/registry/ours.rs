//! Our own group under the load: three members as in masters, each with its own thread, socket and
//! synced log.
//!
//! The state machine keeps only the newest value of each proposer, so that its cost does not
//! matter. Proposals are made at the leader, as in a master; packets cross the loopback over QUIC.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr};
use std::path::Path;

use bytes::BytesMut;
use consensus::machine::{CannotRestore, StateMachine};
use consensus::member::{self, MemberHandle, Settings};
use consensus::store::StoredLog;
use runtime::wire::codec;
use runtime::wire::codec::Garbled;
use runtime::{Clock, Node, Role};
use transport::{Authority, Identity};

use super::load::{self, Commits, Load};
use meros::output::error::{CliError, Outcome};
use meros::service::{RunningService, ServiceThread, Sockets, free_port, open};

/// Number of members.
pub const MEMBERS: usize = 3;
/// Timeout of an election.
const ELECTION: std::time::Duration = std::time::Duration::from_secs(10);
/// Interval of polls for the leader.
const POLL_INTERVAL: std::time::Duration = std::time::Duration::from_millis(20);

/// The newest value of each proposer.
#[derive(Default)]
pub struct Values(BTreeMap<u32, Vec<u8>>);

impl StateMachine for Values {
    type Operation = (u32, Vec<u8>);
    type Answer = u64;

    fn apply(&mut self, index: u64, (proposer, value): Self::Operation) -> u64 {
        self.0.insert(proposer, value);
        index
    }

    fn snapshot_into(&self, into: &mut BytesMut) -> Result<(), Garbled> {
        codec::encode_into(&self.0, into)
    }

    fn restore(&mut self, bytes: &[u8]) -> Result<(), CannotRestore> {
        self.0 = codec::decode(bytes).map_err(|garbled| CannotRestore {
            reason: garbled.reason,
        })?;
        Ok(())
    }
}

/// The running group.
pub struct Ours {
    members: Vec<MemberHandle<Values>>,
    _threads: Vec<ServiceThread>,
}

impl Ours {
    /// Bootstraps a group that writes below this directory.
    pub async fn start(directory: &Path) -> Outcome<Self> {
        let authority = Authority::load_or_create(&directory.join("certs"))
            .map_err(|error| CliError::because("cannot make certificates", &error))?;
        let ports: Vec<u16> = (0..MEMBERS).map(|_| free_port()).collect::<Outcome<_>>()?;
        let addresses: Vec<String> = ports
            .iter()
            .map(|port| format!("127.0.0.1:{port}"))
            .collect();
        let (mut members, mut threads) = (Vec::new(), Vec::new());
        for (index, port) in ports.into_iter().enumerate() {
            let name = format!("master-{index}");
            let identity = authority
                .issue(Role::Master, &name)
                .map_err(|error| CliError::because("cannot issue a certificate", &error))?;
            let (all, log) = (addresses.clone(), directory.join(&name));
            let start = move || one(identity, port, all, index, log);
            let (thread, member) = ServiceThread::begin(&name, start)?.wait().await?;
            members.push(member);
            threads.push(thread);
        }
        Ok(Self {
            members,
            _threads: threads,
        })
    }

    /// Measures the group under this load.
    pub async fn measure(&self, clock: &Clock, load: Load, bytes: usize) -> Outcome<Commits> {
        let leader = Cell::new(self.leader(clock).await?);
        let begun = clock.now();
        load::drive(clock, load, |proposal| {
            let (leader, value) = (&leader, vec![proposal.number as u8; bytes]);
            async move {
                loop {
                    let proposed = leader.get().propose((proposal.proposer, value.clone()));
                    match proposed.await {
                        Ok(_) => return Ok(()),
                        // The time counts: the proposal waits for the next leader.
                        Err(error) if clock.now() - begun < load.warm_up + load.lasts => {
                            tracing::info!(%error, "proposed again");
                            leader.set(self.leader(clock).await?);
                        }
                        Err(error) => return Err(CliError::because("a proposal", &error)),
                    }
                }
            }
        })
        .await
    }

    /// The term of the group, which increases with each election.
    pub async fn term(&self) -> u64 {
        let mut term = 0;
        for member in &self.members {
            let status = member.status().await.ok();
            let now = status.and_then(|status| status.role_now());
            term = term.max(now.map_or(0, |now| now.term));
        }
        term
    }

    /// Waits for the leader and returns it.
    pub async fn leader(&self, clock: &Clock) -> Outcome<&MemberHandle<Values>> {
        let begun = clock.now();
        loop {
            for member in &self.members {
                let status = member.status().await.ok();
                let now = status.and_then(|status| status.role_now());
                if now.is_some_and(|now| now.role == consensus::core::Role::Leader) {
                    return Ok(member);
                }
            }
            if clock.now() - begun > ELECTION {
                return Err(CliError::new("our group elects no leader"));
            }
            clock.sleep(POLL_INTERVAL).await;
        }
    }
}

/// Runs one member on this thread.
async fn one(
    identity: Identity,
    port: u16,
    addresses: Vec<String>,
    index: usize,
    log: std::path::PathBuf,
) -> Outcome<(MemberHandle<Values>, RunningService)> {
    let node = Node::builder(identity.subject().name.as_str())
        .role(Role::Master)
        .accepts(&[Role::Master])
        .build();
    let localhost = IpAddr::V4(Ipv4Addr::LOCALHOST);
    let Sockets { endpoint, .. } = {
        let keep_alive = transport::Options::default().keep_alive;
        open(&node, &identity, (localhost, port).into(), keep_alive).await?
    };
    let store = StoredLog::open(&log).map_err(|error| CliError::because("a log", &error))?;
    let all: Vec<&str> = addresses.iter().map(String::as_str).collect();
    let settings = Settings::new(addresses[index].clone(), &all);
    let member = member::start(&node, settings, Box::new(store), Values::default())
        .map_err(|error| CliError::because("a member of our group", &error))?;
    let running = RunningService {
        ended: Box::pin(std::future::pending()),
        stop: Box::pin(async move {
            node.shutdown().await;
            endpoint.close().await;
        }),
        renewal: None,
    };
    Ok((member, running))
}
