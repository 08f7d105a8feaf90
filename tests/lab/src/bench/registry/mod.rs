//! `meros-lab bench registry`: the commit rate of replicated operations, compared with the disk and
//! with etcd on this machine.
//!
//! With 1 and with 64 proposers, values of 256 bytes, everything synced. If etcd is not installed
//! or does not start, its figures of another day are printed and marked `recorded`.
//!
//! | module | contents |
//! |---|---|
//! | `disk` | small synced writes on this machine's disk |
//! | `etcd` | etcd for comparison |
//! | `full` | the cost of compacting a full registry |
//! | `grpc` | a minimal gRPC client for etcd |
//! | `load` | proposers, each with one pending proposal |
//! | `ours` | a group of three members under the load |

pub mod disk;
pub mod etcd;
pub mod full;
pub mod grpc;
pub mod load;
pub mod ours;

use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::Args;
use runtime::Clock;
use serde_json::json;

use self::disk::Disk;
use self::etcd::Etcd;
use self::full::Full;
use self::load::{Commits, Load};
use self::ours::Ours;
use super::{Figure, OutputFlags, report, rounded};
use meros::output::error::{CliError, Outcome};
use meros::output::print;
use meros::service::signals::Signals;

/// Bytes of a proposed value.
pub const VALUE_BYTES: usize = 256;
/// Numbers of concurrent proposers.
pub const PROPOSERS: [u32; 2] = [1, 64];
/// Time before anything counts.
const WARM_UP: Duration = Duration::from_secs(2);
/// Timeout of one proposal.
const PATIENCE: Duration = Duration::from_secs(10);

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
    /// Do not start etcd: print its recorded figures
    #[arg(long)]
    recorded: bool,
    #[command(flatten)]
    output: OutputFlags,
}

/// Figures of etcd for each number of proposers.
struct Peer {
    /// Name and version.
    name: String,
    /// Whether they are from another day.
    recorded: bool,
    commits: Vec<Commits>,
}

impl Peer {
    fn recorded() -> Self {
        Self {
            name: "etcd 3.4.23".to_owned(),
            recorded: true,
            commits: etcd::RECORDED.to_vec(),
        }
    }

    async fn measured(version: &str, directory: &Path, seconds: u64) -> Outcome<Self> {
        let clock = Clock::real();
        let name = format!("etcd {version}");
        let etcd = Etcd::start(directory, &clock).await?;
        let mut commits = Vec::new();
        for proposers in PROPOSERS {
            let load = load(proposers, seconds);
            commits.push(etcd.measure(&clock, load, VALUE_BYTES).await?);
        }
        Ok(Self {
            name,
            recorded: false,
            commits,
        })
    }
}

/// The load with this number of proposers and seconds.
fn load(proposers: u32, seconds: u64) -> Load {
    Load {
        proposers,
        warm_up: WARM_UP,
        lasts: Duration::from_secs(seconds),
        patience: PATIENCE,
    }
}

/// `meros-lab bench registry`.
pub async fn run(args: RegistryArgs, signals: Signals) -> Outcome {
    let figures = match signals.unless_stopped(figures(&args)).await {
        Ok(figures) => figures?,
        Err(code) => return Err(CliError::code(code)),
    };
    report(&figures, args.output);
    Ok(())
}

async fn figures(args: &RegistryArgs) -> Outcome<Vec<Figure>> {
    let say = |text: &str| {
        if !args.output.json {
            print::error_line(format_args!("{text}"));
        }
    };
    let parent = args.directory.clone().unwrap_or_else(std::env::temp_dir);
    let directory = tempfile::Builder::new()
        .prefix("meros-registry-")
        .tempdir_in(&parent);
    let directory = directory.map_err(|error| {
        CliError::because(format!("cannot write in {}", parent.display()), &error)
            .next("--directory names another place")
    })?;
    let in_memory = disk::in_memory(directory.path());
    if in_memory {
        say(&format!(
            "{} is in memory, where fsync costs nothing: --directory names a place on a disk",
            parent.display()
        ));
    }
    say("the disk alone");
    let before = Disk::measure(directory.path(), VALUE_BYTES).await?;
    let peer = peer(args, directory.path(), say).await;
    say("three members of our own");
    let ours = ours(directory.path(), args.seconds).await?;
    let after = Disk::measure(directory.path(), VALUE_BYTES).await?;
    let disk = before.better(after);
    let mut figures = vec![fsync(&disk, in_memory)];
    let names = ["commits_1", "commits_64"];
    for ((bench, (commits, elections)), limit) in names.into_iter().zip(&ours).zip(&peer.commits) {
        figures.push(our_figure(bench, (commits, *elections), limit, &peer));
    }
    let names = ["etcd_commits_1", "etcd_commits_64"];
    for (bench, commits) in names.into_iter().zip(&peer.commits) {
        figures.push(etcd_figure(bench, commits, &peer, &disk));
    }
    say("a compaction of a full registry");
    figures.extend(compaction(&Full::measure(directory.path())?));
    Ok(figures)
}

async fn peer(args: &RegistryArgs, directory: &Path, say: impl Fn(&str)) -> Peer {
    if args.recorded {
        return Peer::recorded();
    }
    let Some(version) = etcd::installed() else {
        say("etcd is not installed: its figures are recorded ones (Debian has it as etcd-server)");
        return Peer::recorded();
    };
    say(&format!("three members of etcd {version}"));
    match Peer::measured(&version, directory, args.seconds).await {
        Ok(peer) => peer,
        Err(failure) => {
            say(&format!("{failure}: the figures of etcd are recorded ones"));
            Peer::recorded()
        }
    }
}

/// Figures of our group for each number of proposers, with the number of elections during the
/// measurement.
async fn ours(directory: &Path, seconds: u64) -> Outcome<Vec<(Commits, u64)>> {
    let clock = Clock::real();
    let ours = Ours::start(directory).await?;
    let mut found = Vec::new();
    for proposers in PROPOSERS {
        ours.leader(&clock).await?;
        let before = ours.term().await;
        let load = load(proposers, seconds);
        let commits = ours.measure(&clock, load, VALUE_BYTES).await?;
        found.push((commits, ours.term().await - before));
    }
    Ok(found)
}

fn our_figure(
    bench: &'static str,
    (commits, elections): (&Commits, u64),
    limit: &Commits,
    peer: &Peer,
) -> Figure {
    Figure {
        bench,
        figure: commits.per_second,
        unit: "commits/s",
        limit: limit.per_second,
        limit_is: if peer.recorded {
            "etcd, recorded on another day: three members, the same values"
        } else {
            "etcd: three members, the same values"
        },
        parameters: json!({
            "peer": peer.name, "source": if peer.recorded { "recorded" } else { "measured" }, "members": ours::MEMBERS,
            "elections": elections, "proposers": commits.proposers, "value_bytes": VALUE_BYTES,
            "p50_ms": rounded(commits.p50_ms), "p99_ms": rounded(commits.p99_ms),
            "p50_ms_limit": rounded(limit.p50_ms), "p99_ms_limit": rounded(limit.p99_ms),
        }),
    }
}

fn fsync(disk: &Disk, in_memory: bool) -> Figure {
    let (appending, overwriting) = (disk.appending, disk.overwriting);
    Figure {
        bench: "fsync",
        figure: appending.per_second,
        unit: "writes/s",
        limit: overwriting.per_second,
        limit_is: "overwriting instead of appending",
        parameters: json!({
            "bytes": VALUE_BYTES, "in_memory": in_memory,
            "p50_ms": rounded(appending.p50_ms), "p99_ms": rounded(appending.p99_ms),
            "p50_ms_limit": rounded(overwriting.p50_ms), "p99_ms_limit": rounded(overwriting.p99_ms),
        }),
    }
}

fn compaction(full: &Full) -> [Figure; 2] {
    // The default election timeout is 300 ms; a disk without progress for ten of them counts as
    // stuck.
    let parameters = |most_ms: u32| json!({"bytes": full.bytes, "most_ms": most_ms});
    [
        Figure {
            bench: "full_snapshot",
            figure: full.stands_still_ms,
            unit: "ms",
            limit: full.copied_ms,
            limit_is: "a copy of as many bytes",
            parameters: parameters(300),
        },
        Figure {
            bench: "full_compaction",
            figure: full.disk_ms,
            unit: "ms",
            limit: full.written_ms,
            limit_is: "a new file of as many bytes, synced",
            parameters: parameters(3_000),
        },
    ]
}

fn etcd_figure(bench: &'static str, commits: &Commits, peer: &Peer, disk: &Disk) -> Figure {
    Figure {
        bench,
        figure: commits.per_second,
        unit: "commits/s",
        limit: disk.appending.per_second,
        limit_is: if peer.recorded {
            "this disk: synced appends, one after the other; etcd's figure is recorded"
        } else {
            "this disk: synced appends, one after the other"
        },
        parameters: json!({
            "peer": peer.name, "source": if peer.recorded { "recorded" } else { "measured" }, "members": etcd::MEMBERS,
            "proposers": commits.proposers, "value_bytes": VALUE_BYTES,
            "p50_ms": rounded(commits.p50_ms), "p99_ms": rounded(commits.p99_ms),
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::disk::Synced;
    use super::*;

    #[test]
    fn a_recorded_figure_says_so() {
        let synced = Synced {
            per_second: 5000.0,
            p50_ms: 0.2,
            p99_ms: 0.9,
        };
        let disk = Disk {
            appending: synced,
            overwriting: synced,
        };
        let peer = Peer::recorded();
        let proposers: Vec<u32> = peer.commits.iter().map(|found| found.proposers).collect();
        assert_eq!(proposers, PROPOSERS);
        let figure = etcd_figure("etcd_commits_64", &peer.commits[1], &peer, &disk);
        assert_eq!(figure.parameters["source"], "recorded");
        assert!(figure.limit_is.contains("recorded"));
        assert_eq!(figure.ratio(), 9207.0 / 5000.0);
    }
}
