//! The group of masters that a master belongs to: its members' addresses, and how it elects.

use std::time::Duration;

use clap::Args;
use consensus::member::Settings;

use crate::flags::duration;

/// How soon a group elects another leader, and whom a leader asks before it answers.
#[derive(Args, Clone, Copy, Debug)]
#[command(rename_all = "snake_case")]
pub struct ElectionFlags {
    /// The tick of elections; a leader says that it lives every second tick
    #[arg(long, env = "MESOS_ELECTION_TICK", default_value = "30ms", value_parser = duration, value_name = "DURATION")]
    pub election_tick: Duration,
    /// A leader that has been silent for so many ticks, up to twice as many, is replaced
    #[arg(
        long,
        env = "MESOS_ELECTION_TICKS",
        default_value_t = 10,
        value_name = "COUNT"
    )]
    pub election_ticks: usize,
    /// While it leads, answer reads of the registry for a while without asking the others whether it still does; to be given to all masters or
    /// none. It assumes that no master's clock runs half as fast again as another's, and that none stands still: a leader that was paused
    /// may answer from a state that a newer one has changed
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

/// The group of masters that this one belongs to.
#[derive(Clone, Debug, Default)]
pub struct GroupPlan {
    /// Where the others reach this one; `None` is the host that others are told, and the port.
    pub address: Option<String>,
    /// The masters that begin it.
    pub initial: Vec<String>,
    /// How soon it elects, and how it reads.
    pub election: ElectionFlags,
}

impl GroupPlan {
    /// The hosts that its members' addresses name. They are the operator's choice, and one of them is this master.
    pub(super) fn hosts(&self) -> impl Iterator<Item = &str> {
        let addresses = self.initial.iter().chain(&self.address);
        addresses.filter_map(|address| Some(address.rsplit_once(':')?.0))
    }

    pub(super) fn settings(&self, address: String) -> Settings {
        let initial: Vec<&str> = self.initial.iter().map(String::as_str).collect();
        let election = &self.election;
        Settings::new(address, &initial)
            .electing(election.election_tick, election.election_ticks)
            .reading(election.lease_reads)
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

    /// A leader that is gone is missed after 0.3 to 0.6 seconds; what no flag says is as the crate below it has it.
    #[test]
    fn a_tick_is_30_ms_and_an_election_comes_after_10_of_them_unless_it_is_said_otherwise() {
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

        let said = parsed("master --election_tick 50ms --election_ticks 20 --lease_reads");
        let settings = plan(said).settings(here());
        let expected = Settings::new("here", &[]).electing(Duration::from_millis(50), 20);
        assert_eq!(settings, expected.reading(true));
    }
}
