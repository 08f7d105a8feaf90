//! The group of a master: its members' addresses and election settings.

use std::time::Duration;

use clap::Args;
use consensus::member::Settings;

use crate::flags::duration;

/// Timing of elections, and lease reads.
#[derive(Args, Clone, Copy, Debug)]
#[command(rename_all = "snake_case")]
pub struct ElectionFlags {
    /// Tick of elections; a leader sends a heartbeat every second tick
    #[arg(long, env = "MESOS_ELECTION_TICK", default_value = "30ms", value_parser = duration, value_name = "DURATION")]
    pub election_tick: Duration,
    /// Number of ticks without a message after which a leader is replaced, up to twice as many
    #[arg(
        long,
        env = "MESOS_ELECTION_TICKS",
        default_value_t = 10,
        value_name = "COUNT"
    )]
    pub election_ticks: usize,
    /// Answer reads of the registry from the leader's lease, without asking the other masters; must
    /// be equal on all masters. Assumes that no master's clock runs 1.5 times as fast as another's,
    /// and that none is paused: a paused leader may answer from outdated state
    #[arg(long, env = "MEROS_LEASE_READS")]
    pub lease_reads: bool,
}

impl Default for ElectionFlags {
    fn default() -> Self {
        Self {
            election_tick: Duration::from_millis(30),
            election_ticks: 10,
            lease_reads: false,
        }
    }
}

/// The group of a master.
#[derive(Clone, Debug, Default)]
pub struct GroupPlan {
    /// The masters that found the group; none means this master alone.
    pub initial: Vec<String>,
    /// Timing of elections, and lease reads.
    pub election: ElectionFlags,
}

impl GroupPlan {
    /// The hosts of the members' addresses, which the operator chose. One of them is this master.
    pub(super) fn hosts(&self) -> impl Iterator<Item = &str> {
        self.initial
            .iter()
            .filter_map(|address| Some(address.rsplit_once(':')?.0))
    }

    pub(super) fn settings(&self, address: String) -> Settings {
        let initial: Vec<&str> = self.initial.iter().map(String::as_str).collect();
        let election = &self.election;
        Settings::new(address, &initial)
            .with_elections(election.election_tick, election.election_ticks)
            .with_lease_reads(election.lease_reads)
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        flags: ElectionFlags,
    }

    fn parsed(line: &str) -> ElectionFlags {
        let line = Line::try_parse_from(line.split_whitespace());
        line.unwrap_or_else(|error| panic!("{error}")).flags
    }

    /// A failed leader is noticed after 0.3 to 0.6 seconds; settings without a flag have the
    /// consensus crate's defaults.
    #[test]
    fn election_flags_have_defaults() {
        let plan = |election| GroupPlan {
            election,
            ..GroupPlan::default()
        };
        let here = || "here".to_owned();
        let usual = parsed("master");
        assert_eq!(usual.election_tick, Duration::from_millis(30));
        assert_eq!((usual.election_ticks, usual.lease_reads), (10, false));
        let settings = plan(usual).settings(here());
        assert_eq!(settings, Settings::new("here", &[]));
        assert_eq!(settings, plan(ElectionFlags::default()).settings(here()));

        let args = parsed("master --election_tick 50ms --election_ticks 20 --lease_reads");
        let settings = plan(args).settings(here());
        let expected = Settings::new("here", &[]).with_elections(Duration::from_millis(50), 20);
        assert_eq!(settings, expected.with_lease_reads(true));
    }
}
