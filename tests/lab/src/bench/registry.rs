//! `meros-lab bench registry`: the commit rate of replicated operations, beside the disk of this
//! machine and recorded figures of etcd.
//!
//! With 1 and with 64 proposers, values of 256 bytes, everything synced. Three members as in
//! masters, each with its own thread, socket and synced log; packets cross the loopback over QUIC.
//! The state machine keeps only the newest value of each proposer, so that its cost does not
//! matter. Proposals are made at the leader, as in a master.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::fs::File;
use std::io::Write;
use std::net::{Ipv4Addr, SocketAddr};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use bytes::BytesMut;
use clap::Args;
use consensus::machine::{CannotRestore, StateMachine};
use consensus::member::{self, MemberHandle, Settings};
use consensus::store::StoredLog;
use futures_util::future::try_join_all;
use meros::output::error::{CliError, Outcome};
use meros::service::{RunningService, ServiceThread, Sockets, free_port, open};
use runtime::wire::codec::{self, Garbled};
use runtime::{Clock, Node, Role};
use serde_json::json;
use transport::{Authority, Identity};

use super::{Figure, OutputFlags, Result, Times, rounded};

/// Bytes of a proposed value, and of a write to the disk.
const VALUE_BYTES: usize = 256;
/// Number of members.
const MEMBERS: usize = 3;
/// Time before anything counts.
const WARM_UP: Duration = Duration::from_secs(2);
/// Timeouts of one proposal and of an election.
const PATIENCE: Duration = Duration::from_secs(10);
/// Interval of polls for the leader.
const POLL_INTERVAL: Duration = Duration::from_millis(20);
/// Writes to the disk before any counts, and writes that count.
const WRITES_WARM_UP: u64 = 100;
const WRITES: u64 = 2000;

/// Figures of etcd 3.4.23 with three members on 2 virtual CPUs (AMD EPYC), ext4 on a virtual disk,
/// Debian 12: medians of three runs, values of 256 bytes.
const ETCD: [Commits; 2] = [
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

/// Rate of replicated operations
#[derive(Args, Debug)]
#[command(rename_all = "snake_case")]
pub struct RegistryArgs {
    /// How long each load is measured
    #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u64).range(1..=60))]
    seconds: u64,
    /// Directory for all files of the measurement [default: the directory for temporary files]
    #[arg(long, value_name = "DIRECTORY")]
    directory: Option<PathBuf>,
    #[command(flatten)]
    output: OutputFlags,
}

/// `meros-lab bench registry`.
pub async fn run(args: &RegistryArgs) -> Result {
    let parent = args.directory.clone().unwrap_or_else(std::env::temp_dir);
    let directory = tempfile::Builder::new()
        .prefix("meros-registry-")
        .tempdir_in(&parent)
        .map_err(|error| format!("{}: {error}; see --directory", parent.display()))?;
    args.output.say("the disk alone");
    let mut figures = vec![fsync(directory.path()).await?];
    args.output.say("three members");
    let (clock, group) = (Clock::real(), Group::start(directory.path()).await?);
    for (bench, etcd) in ["commits_1", "commits_64"].into_iter().zip(&ETCD) {
        group.leader(&clock).await?;
        let before = group.term().await;
        let commits = group.measure(&clock, etcd.proposers, args.seconds).await?;
        let elections = group.term().await - before;
        figures.push(
            Figure::new(bench, commits.per_second, "commits/s")
                .beside(
                    etcd.per_second,
                    "etcd, recorded on another day: three members, the same values",
                )
                .with(json!({
                    "peer": "etcd 3.4.23", "source": "recorded", "members": MEMBERS,
                    "elections": elections, "proposers": commits.proposers, "value_bytes": VALUE_BYTES,
                    "p50_ms": rounded(commits.p50_ms), "p99_ms": rounded(commits.p99_ms),
                    "p50_ms_limit": rounded(etcd.p50_ms), "p99_ms_limit": rounded(etcd.p99_ms),
                })),
        );
    }
    args.output.report(&figures);
    Ok(())
}

/// Small writes, each followed by fdatasync, one after the other: appending, like a log that grows,
/// and overwriting, like a preallocated log.
async fn fsync(directory: &Path) -> Result<Figure> {
    let (path, data) = (directory.join("fsync"), [0x5a; VALUE_BYTES]);
    let mut file = File::create(&path)?;
    let appending = synced(|_| file.write_all(&data).and_then(|()| file.sync_data())).await?;
    let overwrite = |number| file.write_all_at(&data, number * VALUE_BYTES as u64);
    let overwriting = synced(|number| overwrite(number).and_then(|()| file.sync_data())).await?;
    std::fs::remove_file(&path)?;
    let in_memory = nix::sys::statfs::statfs(directory)?.filesystem_type();
    Ok(Figure::new("fsync", appending.per_second, "writes/s")
        .beside(overwriting.per_second, "overwriting instead of appending")
        .with(json!({
            "bytes": VALUE_BYTES, "in_memory": in_memory == nix::sys::statfs::TMPFS_MAGIC,
            "p50_ms": rounded(appending.p50_ms), "p99_ms": rounded(appending.p99_ms),
            "p50_ms_limit": rounded(overwriting.p50_ms), "p99_ms_limit": rounded(overwriting.p99_ms),
        })))
}

async fn synced(mut write: impl FnMut(u64) -> std::io::Result<()>) -> Result<Commits> {
    let (clock, mut times, mut sum) = (Clock::real(), Times::new()?, Duration::ZERO);
    for number in 0..WRITES_WARM_UP + WRITES {
        let begun = clock.now();
        write(number)?;
        if number >= WRITES_WARM_UP {
            times.record(clock.now() - begun)?;
            sum += clock.now() - begun;
        }
        tokio::task::yield_now().await; // So that a signal can end it.
    }
    Ok(Commits::of(1, &times, sum))
}

/// Completed proposals, or synced writes.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Commits {
    proposers: u32,
    per_second: f64,
    p50_ms: f64,
    p99_ms: f64,
}

impl Commits {
    fn of(proposers: u32, times: &Times, lasted: Duration) -> Self {
        Self {
            proposers,
            per_second: times.count() as f64 / lasted.as_secs_f64().max(f64::EPSILON),
            p50_ms: times.ms(0.5),
            p99_ms: times.ms(0.99),
        }
    }
}

/// Several proposers, each with one pending proposal at a time, given by the numbers of both. The
/// warm-up is not counted. Does not retry: a failed proposal ends the measurement.
async fn drive<F>(
    clock: &Clock,
    proposers: u32,
    lasts: Duration,
    propose: impl Fn(u32, u64) -> F,
) -> Result<Commits>
where
    F: Future<Output = Result>,
{
    let counts = clock.now() + WARM_UP;
    let ends = counts + lasts;
    let times = RefCell::new(Times::new()?);
    let work = |proposer| {
        let (propose, times) = (&propose, &times);
        async move {
            for number in 0.. {
                let begun = clock.now();
                if begun >= ends {
                    break;
                }
                let answered = clock.timeout(PATIENCE, propose(proposer, number)).await;
                answered.map_err(|_| format!("proposer {proposer} was not answered"))??;
                let now = clock.now();
                if now >= counts && now <= ends {
                    times.borrow_mut().record(now - begun)?;
                }
            }
            Result::Ok(())
        }
    };
    try_join_all((0..proposers).map(work)).await?;
    Ok(Commits::of(proposers, &times.into_inner(), lasts))
}

/// The newest value of each proposer.
#[derive(Default)]
struct Values(BTreeMap<u32, Vec<u8>>);

impl StateMachine for Values {
    type Operation = (u32, Vec<u8>);
    type Answer = u64;

    fn apply(&mut self, index: u64, (proposer, value): Self::Operation) -> u64 {
        self.0.insert(proposer, value);
        index
    }

    fn snapshot_into(&self, into: &mut BytesMut) -> std::result::Result<(), Garbled> {
        codec::encode_into(&self.0, into)
    }

    fn restore(&mut self, bytes: &[u8]) -> std::result::Result<(), CannotRestore> {
        self.0 = codec::decode(bytes).map_err(|garbled| CannotRestore {
            reason: garbled.reason,
        })?;
        Ok(())
    }
}

/// A group of members. Dropping it ends them.
struct Group {
    members: Vec<MemberHandle<Values>>,
    _threads: Vec<ServiceThread>,
}

impl Group {
    /// Bootstraps a group that writes below this directory.
    async fn start(directory: &Path) -> Result<Self> {
        let authority = Authority::load_or_create(&directory.join("certs"))?;
        let address = |_| free_port().map(|port| SocketAddr::from((Ipv4Addr::LOCALHOST, port)));
        let addresses = (0..MEMBERS).map(address).collect::<Outcome<Vec<_>>>()?;
        let (mut members, mut threads) = (Vec::new(), Vec::new());
        for (index, own) in addresses.iter().copied().enumerate() {
            let name = format!("master-{index}");
            let identity = authority.issue(Role::Master, &name)?;
            let (all, log) = (addresses.clone(), directory.join(&name));
            let start = move || one(identity, own, all, log);
            let (thread, member) = ServiceThread::begin(&name, start)?.wait().await?;
            members.push(member);
            threads.push(thread);
        }
        Ok(Self {
            members,
            _threads: threads,
        })
    }

    async fn measure(&self, clock: &Clock, proposers: u32, seconds: u64) -> Result<Commits> {
        let (begun, lasts) = (clock.now(), Duration::from_secs(seconds));
        let leader = Cell::new(self.leader(clock).await?);
        drive(clock, proposers, lasts, |proposer, number| {
            let (leader, value) = (&leader, vec![number as u8; VALUE_BYTES]);
            async move {
                loop {
                    let proposed = leader.get().propose((proposer, value.clone()));
                    match proposed.await {
                        Ok(_) => return Ok(()),
                        // The time counts: the proposal waits for the next leader.
                        Err(error) if clock.now() - begun < WARM_UP + lasts => {
                            tracing::info!(%error, "proposed again");
                            leader.set(self.leader(clock).await?);
                        }
                        Err(error) => return Err(error.into()),
                    }
                }
            }
        })
        .await
    }

    /// The term of the group, which increases with each election.
    async fn term(&self) -> u64 {
        let mut term = 0;
        for member in &self.members {
            let status = member.status().await.ok();
            let now = status.and_then(|status| status.role_now());
            term = term.max(now.map_or(0, |now| now.term));
        }
        term
    }

    /// Waits for the leader and returns it.
    async fn leader(&self, clock: &Clock) -> Result<&MemberHandle<Values>> {
        let begun = clock.now();
        while clock.now() - begun < PATIENCE {
            for member in &self.members {
                let status = member.status().await.ok();
                let now = status.and_then(|status| status.role_now());
                if now.is_some_and(|now| now.role == consensus::core::Role::Leader) {
                    return Ok(member);
                }
            }
            clock.sleep(POLL_INTERVAL).await;
        }
        Err("the group elects no leader".into())
    }
}

/// Runs one member on this thread.
async fn one(
    identity: Identity,
    own: SocketAddr,
    all: Vec<SocketAddr>,
    log: PathBuf,
) -> Outcome<(MemberHandle<Values>, RunningService)> {
    let failed = |error: &dyn std::error::Error| CliError::because("a member", error);
    let node = Node::builder(identity.subject().name.as_str())
        .role(Role::Master)
        .accepts(&[Role::Master])
        .build();
    let keep_alive = transport::Options::default().keep_alive;
    let Sockets { endpoint, .. } = open(&node, &identity, own, keep_alive).await?;
    let store = StoredLog::open(&log).map_err(|error| failed(&error))?;
    let all: Vec<String> = all.iter().map(SocketAddr::to_string).collect();
    let all: Vec<&str> = all.iter().map(String::as_str).collect();
    let settings = Settings::new(own.to_string(), &all);
    let member = member::start(&node, settings, Box::new(store), Values::default());
    let running = RunningService {
        ended: Box::pin(std::future::pending()),
        stop: Box::pin(async move {
            node.shutdown().await;
            endpoint.close().await;
        }),
        renewal: None,
    };
    Ok((member.map_err(|error| failed(&error))?, running))
}

#[cfg(test)]
mod tests {
    use runtime::testing::run_simulated;

    use super::*;

    /// Four proposers for ten seconds, whose proposals take these milliseconds.
    fn driven(millis: fn(u64) -> u64) -> Result<Commits> {
        run_simulated(async move {
            let clock = Clock::paused();
            let propose = |_, number| {
                let sleep = clock.sleep(Duration::from_millis(millis(number)));
                async move {
                    sleep.await;
                    Ok(())
                }
            };
            drive(&clock, 4, Duration::from_secs(10), propose).await
        })
    }

    #[test]
    fn proposals_count_after_the_warm_up() {
        let commits = driven(|number| if number == 0 { 2000 } else { 10 }).unwrap();
        assert!((400.0..=401.0).contains(&commits.per_second), "{commits:?}");
        assert!((10.0..11.5).contains(&commits.p50_ms), "{commits:?}");
    }

    #[test]
    fn slow_hundredth_shows_in_p99_only() {
        let commits = driven(|number| if number % 50 == 49 { 200 } else { 10 }).unwrap();
        assert!((10.0..11.5).contains(&commits.p50_ms), "{commits:?}");
        assert!((199.0..201.5).contains(&commits.p99_ms), "{commits:?}");
    }

    #[test]
    fn failed_proposal_ends_the_measurement() {
        let failed = run_simulated(async {
            let propose = |_, _| async { Err("no leader".into()) };
            drive(&Clock::paused(), 4, Duration::from_secs(10), propose).await
        });
        assert_eq!(failed.unwrap_err().to_string(), "no leader");
        let late = driven(|_| 11_000).unwrap_err().to_string();
        assert!(late.contains("was not answered"), "{late}");
    }
}
