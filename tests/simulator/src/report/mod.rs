//! Texts for users of runs: the summary, the counts that are unexpectedly zero, and a failure with
//! the command that replays it.
//!
//! Only text and numbers; prints nothing and runs nothing. [`tally`] counts the events of a run,
//! `hash` identifies it, [`history`] writes faults as text, and `describe` events.

pub(crate) mod describe;
pub(crate) mod hash;
pub mod history;
pub mod tally;

use std::collections::BTreeMap;
use std::time::Duration;

use protocol::text::duration;

use crate::load;
use crate::report::tally::Tally;
use crate::scenario::shrink::Shrunk;
use crate::scenario::{Profile, Scenario, Wiring};

/// The word for no fault in lists of faults.
pub const NO_FAULT: &str = "none";

impl Profile {
    /// All variants with their names on command lines.
    pub const NAMES: [(Self, &'static str); 4] = [
        (Self::None, "none"),
        (Self::Network, "network"),
        (Self::Machines, "machines"),
        (Self::All, "all"),
    ];

    /// Its name on command lines.
    pub fn name(self) -> &'static str {
        let named = Self::NAMES.iter().find(|(profile, _)| *profile == self);
        named.map_or("", |(_, name)| name)
    }
}

impl Wiring {
    /// Its name on command lines.
    pub fn name(self) -> &'static str {
        match self {
            Self::Quic => "quic",
            Self::Memory => "memory",
        }
    }
}

impl Tally {
    /// Adds the counts of another run.
    pub fn add(&mut self, other: &Self) {
        let Self {
            virtual_time,
            events,
            said,
            heard,
            registrations,
            offers,
            launches,
            revocable,
            conversions,
            conversions_failed,
            processes,
            executors_killed,
            agents_fallen,
            limited,
            containers_back,
            corrections,
            revocations,
            task_ends,
            masters,
            failovers,
            operations,
            snapshots,
            crashes,
            restarts,
            lost,
            duplicated,
            delayed,
            broken_links,
            disk_failures,
            faults,
            judgements,
        } = self;
        *virtual_time += other.virtual_time;
        let numbers = [
            (events, other.events),
            (said, other.said),
            (heard, other.heard),
            (registrations, other.registrations),
            (offers, other.offers),
            (launches, other.launches),
            (revocable, other.revocable),
            (conversions, other.conversions),
            (conversions_failed, other.conversions_failed),
            (processes, other.processes),
            (executors_killed, other.executors_killed),
            (agents_fallen, other.agents_fallen),
            (limited, other.limited),
            (containers_back, other.containers_back),
            (corrections, other.corrections),
            (revocations, other.revocations),
            (masters, other.masters),
            (failovers, other.failovers),
            (operations, other.operations),
            (snapshots, other.snapshots),
            (crashes, other.crashes),
            (restarts, other.restarts),
            (lost, other.lost),
            (duplicated, other.duplicated),
            (delayed, other.delayed),
            (broken_links, other.broken_links),
            (disk_failures, other.disk_failures),
        ];
        for (sum, more) in numbers {
            *sum += more;
        }
        for (sums, more) in [
            (task_ends, &other.task_ends),
            (faults, &other.faults),
            (judgements, &other.judgements),
        ] {
            for (&name, count) in more {
                *sums.entry(name).or_default() += count;
            }
        }
    }

    /// Tasks whose end a framework received.
    pub fn ends(&self) -> u64 {
        self.task_ends.values().sum()
    }

    /// Judgements of all checkers.
    pub fn judged(&self) -> u64 {
        self.judgements.values().sum()
    }
}

/// Counts that are zero though this load and profile should have caused them: the runs prove
/// nothing about these.
pub fn lacking(scenario: &Scenario, tally: &Tally) -> Vec<String> {
    // Explicit faults have no expected effects.
    let (network, machines) = match (&scenario.faults, scenario.profile) {
        (Some(_), _) | (None, Profile::None) => (false, false),
        (None, Profile::Network) => (true, false),
        (None, Profile::Machines) => (false, true),
        (None, Profile::All) => (true, true),
    };
    let borrows = load::lends_and_borrows(scenario);
    let mut lacking = Vec::new();
    let mut demand = |count: u64, what: &str| {
        if count == 0 {
            lacking.push(what.to_owned());
        }
    };
    if scenario.agents > 0 {
        demand(tally.registrations, "registrations");
        if scenario.frameworks > 0 {
            demand(tally.offers, "offers");
            demand(tally.launches, "launches");
            demand(tally.processes, "processes");
            demand(tally.ends(), "task ends");
            let reserves = load::reserves(scenario);
            if reserves {
                demand(tally.conversions, "conversions of resources");
            }
            let judges = |checker: &str| match checker {
                // Executors may all end in order, no task yields while no machine is busy, and
                // operators act only because of faults.
                "executors" => machines,
                // It is chance whether a limit is in force during an offer, whether tasks must be
                // revoked, whether a machine that is taken down has tasks, and whether a task of a
                // group fails.
                "groups" | "maintenance" | "quotas" | "revocations" => false,
                "corrections" => machines && borrows,
                "agent_resources" => reserves,
                _ => true,
            };
            let judged = tally.judgements.iter();
            for (checker, judgements) in judged.filter(|(checker, _)| judges(checker)) {
                demand(*judgements, &format!("checks of {checker}"));
            }
            if machines {
                demand(tally.executors_killed, "executors killed");
                demand(tally.agents_fallen, "agents that crashed alone");
                demand(
                    tally.containers_back,
                    "containers that outlived their agent",
                );
            }
            if borrows {
                demand(tally.revocable, "launches on revocable resources");
            }
            if machines && borrows {
                demand(tally.corrections, "corrections");
            }
        }
    }
    if scenario.masters > 1 {
        demand(tally.operations, "operations of the registry");
        if machines {
            demand(tally.snapshots, "snapshots taken from a leader");
        }
    }
    if network {
        demand(tally.lost, "packets lost");
        demand(tally.duplicated, "packets repeated");
        demand(tally.delayed, "packets delayed");
        // Links in memory break so rarely that a short run may see none.
        if scenario.wiring == Wiring::Quic {
            demand(tally.broken_links, "links broken");
        }
    }
    if machines {
        demand(tally.crashes, "crashes");
        demand(tally.restarts, "restarts");
        demand(tally.failovers, "failovers of the master");
        if scenario.agents > 0 {
            demand(tally.disk_failures, "writes that failed");
        }
    }
    lacking
}

/// The summary as lines of a name and a value.
pub fn summary(tally: &Tally) -> Vec<(&'static str, String)> {
    let kinds = |counts: &BTreeMap<&'static str, u64>| {
        let kinds = counts.iter().map(|(name, count)| format!("{count} {name}"));
        kinds.collect::<Vec<_>>().join(", ")
    };
    let of = |count: u64, counts: &BTreeMap<&'static str, u64>| match count {
        0 => "0".to_owned(),
        count => format!("{count} ({})", kinds(counts)),
    };
    vec![
        ("virtual time", duration_in_words(tally.virtual_time)),
        (
            "messages",
            format!("{} sent, {} handled", tally.said, tally.heard),
        ),
        ("registrations", tally.registrations.to_string()),
        ("offers", tally.offers.to_string()),
        (
            "launches",
            format!(
                "{} tasks ({} on revocable resources), {} processes",
                tally.launches, tally.revocable, tally.processes
            ),
        ),
        (
            "conversions",
            format!(
                "{} of resources, {} not done",
                tally.conversions, tally.conversions_failed
            ),
        ),
        ("ends", of(tally.ends(), &tally.task_ends)),
        (
            "yielded",
            format!(
                "{} tasks on busy machines, {} for guarantees; {} executors killed alone, {} limits exceeded",
                tally.corrections, tally.revocations, tally.executors_killed, tally.limited
            ),
        ),
        ("faults", of(tally.faults.values().sum(), &tally.faults)),
        (
            "operations",
            format!(
                "{} of the registry; {} members caught up by a snapshot",
                tally.operations, tally.snapshots
            ),
        ),
        (
            "failovers",
            format!(
                "{} of the master; {} nodes crashed, {} restarted",
                tally.failovers, tally.crashes, tally.restarts
            ),
        ),
        (
            "recovered",
            format!(
                "{} agents crashed alone; {} containers outlived their agent",
                tally.agents_fallen, tally.containers_back
            ),
        ),
        (
            "drops",
            format!(
                "{} packets lost, {} repeated, {} delayed; {} links broken, {} writes failed",
                tally.lost,
                tally.duplicated,
                tally.delayed,
                tally.broken_links,
                tally.disk_failures
            ),
        ),
        ("checks", of(tally.judged(), &tally.judgements)),
    ]
}

/// A duration with a resolution of a tenth of a second.
fn duration_in_words(time: Duration) -> String {
    let tenths = time.as_millis() / 100;
    duration::format(Duration::from_millis(
        u64::try_from(tenths * 100).unwrap_or(u64::MAX),
    ))
}

/// The command that runs exactly this scenario.
pub fn command(scenario: &Scenario) -> String {
    let mut command = format!(
        "meros-lab simulate --seed {}{} --agents {} --frameworks {} --faults {} --for {} --transport {}",
        scenario.seed,
        match scenario.masters {
            1 => String::new(),
            masters => format!(" --masters {masters}"),
        },
        scenario.agents,
        scenario.frameworks,
        scenario.profile.name(),
        duration::format(scenario.duration),
        scenario.wiring.name(),
    );
    if let Some(faults) = &scenario.faults {
        let faults = faults.iter().map(ToString::to_string);
        let faults: Vec<String> = match faults.len() {
            0 => vec![NO_FAULT.to_owned()],
            _ => faults.collect(),
        };
        for fault in faults {
            command.push_str(&format!(" --fault '{fault}'"));
        }
    }
    command
}

/// The text of a failure: the last events, the violation, the shortest history found, and the
/// replay command.
pub fn failure(shrunk: &Shrunk, planned: usize) -> Vec<String> {
    let mut lines = vec!["the last events of the shortest failing history:".to_owned()];
    lines.extend(shrunk.run.recent.iter().map(|event| format!("  {event}")));
    let faults = shrunk.scenario.faults.as_deref().unwrap_or_default();
    let effort = match shrunk.exhausted {
        true => format!("{} runs, all that were allowed", shrunk.runs),
        false => format!("{} runs", shrunk.runs),
    };
    lines.push(match faults.len() {
        0 => format!("none of the {planned} faults is needed ({effort})"),
        needed => format!("{needed} of {planned} faults are needed ({effort}):"),
    });
    lines.extend(faults.iter().map(|fault| format!("  {fault}")));
    if let Some(violation) = &shrunk.run.violation {
        lines.push(format!("seed {}: {violation}", shrunk.scenario.seed));
    }
    lines.push(format!("replay: {}", command(&shrunk.scenario)));
    lines
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::checkers::checker::Violation;
    use crate::run::Run;
    use crate::scenario::{Fault, FaultKind};

    fn scenario(profile: Profile, faults: Option<Vec<Fault>>) -> Scenario {
        Scenario {
            seed: 7,
            masters: 1,
            agents: 3,
            frameworks: 2,
            duration: Duration::from_secs(90),
            profile,
            wiring: Wiring::Memory,
            faults,
        }
    }

    fn crash() -> Fault {
        Fault {
            at: Duration::from_secs(20),
            lasts: Duration::from_secs(5),
            kind: FaultKind::Crash {
                node: "master".to_owned(),
            },
        }
    }

    fn busy() -> Tally {
        Tally {
            registrations: 3,
            offers: 9,
            launches: 4,
            conversions: 1,
            processes: 4,
            task_ends: BTreeMap::from([("TASK_FINISHED", 2), ("TASK_LOST", 1)]),
            judgements: BTreeMap::from([("offers", 9), ("states", 12)]),
            ..Tally::default()
        }
    }

    #[test]
    fn complete_run_lacks_nothing() {
        assert_eq!(lacking(&scenario(Profile::None, None), &busy()), [""; 0]);
        let mut all = busy();
        (all.lost, all.duplicated, all.delayed, all.broken_links) = (1, 1, 1, 1);
        (all.crashes, all.restarts, all.failovers) = (1, 1, 1);
        (all.executors_killed, all.containers_back) = (1, 1);
        (all.agents_fallen, all.disk_failures) = (1, 1);
        assert_eq!(lacking(&scenario(Profile::All, None), &all), [""; 0]);
        let mut borrowing = scenario(Profile::All, None);
        borrowing.frameworks = 3;
        let expected = ["launches on revocable resources", "corrections"];
        assert_eq!(lacking(&borrowing, &all), expected);
        (all.revocable, all.corrections) = (1, 1);
        assert_eq!(lacking(&borrowing, &all), [""; 0]);
        borrowing.masters = 3;
        let expected = [
            "operations of the registry",
            "snapshots taken from a leader",
        ];
        assert_eq!(lacking(&borrowing, &all), expected);
    }

    #[test]
    fn unexpected_zero_counts_are_named() {
        let mut network = scenario(Profile::Network, None);
        let expected = ["packets lost", "packets repeated", "packets delayed"];
        assert_eq!(lacking(&network, &busy()), expected);
        network.wiring = Wiring::Quic;
        assert_eq!(lacking(&network, &busy())[3..], ["links broken"]);
        let machines = scenario(Profile::Machines, None);
        let expected = [
            "executors killed",
            "agents that crashed alone",
            "containers that outlived their agent",
            "crashes",
            "restarts",
            "failovers of the master",
            "writes that failed",
        ];
        assert_eq!(lacking(&machines, &busy()), expected);
        let mut blind = busy();
        blind.judgements.insert("states", 0);
        let expected = ["checks of states"];
        assert_eq!(lacking(&scenario(Profile::None, None), &blind), expected);
    }

    #[test]
    fn explicit_faults_need_no_effects() {
        let by_hand = scenario(Profile::All, Some(Vec::new()));
        assert_eq!(lacking(&by_hand, &busy()), [""; 0]);
        let mut idle = scenario(Profile::None, None);
        idle.frameworks = 0;
        let registered = Tally {
            registrations: 3,
            ..Tally::default()
        };
        assert_eq!(lacking(&idle, &registered), [""; 0]);
    }

    #[test]
    fn sums_add_every_count() {
        let mut sum = busy();
        sum.add(&busy());
        assert_eq!((sum.launches, sum.ends(), sum.judged()), (8, 6, 42));
        let text = summary(&sum);
        let ends = text.iter().find(|(name, _)| *name == "ends").unwrap();
        assert_eq!(ends.1, "6 (4 TASK_FINISHED, 2 TASK_LOST)");
    }

    #[test]
    fn failure_text_has_the_replay_command() {
        let scenario = scenario(Profile::All, Some(vec![crash()]));
        let violation = Violation {
            checker: "offers",
            at: Duration::from_secs(30),
            what: "offer o is made twice".to_owned(),
        };
        let run = Run {
            hash: 1,
            tally: busy(),
            faults: vec![crash()],
            violation: Some(violation),
            recent: vec!["1.000 master ended".to_owned()],
        };
        let shrunk = Shrunk {
            scenario,
            run,
            runs: 12,
            exhausted: false,
        };
        let lines = failure(&shrunk, 40);
        assert_eq!(
            lines[1..],
            [
                "  1.000 master ended",
                "1 of 40 faults are needed (12 runs):",
                "  20secs+5secs crash master",
                "seed 7: offers is broken at 30s: offer o is made twice",
                "replay: meros-lab simulate --seed 7 --agents 3 --frameworks 2 --faults all --for 90secs --transport memory --fault '20secs+5secs crash master'",
            ]
        );
    }
}
