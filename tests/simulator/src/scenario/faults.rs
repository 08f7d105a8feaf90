//! The plan of faults from a scenario's profile, sizes and seed. Pure.
//!
//! Kinds are dealt from a shuffled deck that has every kind of the profile, so that a run with as
//! many faults as cards contains every kind. All faults end before the scenario's duration does.

use std::time::Duration;

use rand::rngs::SmallRng;
use rand::seq::SliceRandom;
use rand::{Rng, SeedableRng};

use crate::load;
use crate::report::hash::derived;
use crate::scenario::{Fault, FaultKind, Profile, Scenario, Step};
use crate::world::roles::masters;

/// Average interval between two faults.
const FAULT_EVERY: Duration = Duration::from_secs(15);
/// Maximum faults of one run.
const FAULTS_MAX: u32 = 5000;
/// The share of the time at the beginning without faults.
const QUIET_START: f64 = 0.05;
/// Maximum duration of a fault, as a share of the run and in seconds.
const LASTS_MAX: (f64, u64) = (0.25, 90);

/// Maximum drift of a clock in millionths: a hundred times that of a bad clock.
const DRIFT_MAX: i32 = 50_000;

/// One kind of fault in the deck.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Card {
    PacketFaultsOfMaster,
    PacketFaultsOfMember,
    MasterFromMember,
    OneWayToMaster,
    OneWayFromMaster,
    SlowMember,
    SlowMaster,
    CrashOfMaster,
    CrashOfAgent,
    FallOfAgent,
    FallOfAgents,
    CrashOfFramework,
    RestartOfMaster,
    RestartOfMember,
    SlowDiskOfMaster,
    SlowDiskOfAgent,
    FailingDiskOfMaster,
    FailingDiskOfAgent,
    WallJump,
    Drift,
    DeathOfExecutor,
    DeathsEverywhere,
    BusyLender,
    BusyEverywhere,
    Isolation,
    Rations,
    Maintenance,
    LeaderInMinority,
    LeaderAlone,
    LeaderUnheard,
    LeaderDeaf,
    MasterFromMaster,
    FlappingMaster,
    CrashOfLeader,
    CrashOfFollower,
    LongAbsenceOfFollower,
    CrashOfAllMasters,
    CrashAtWrite,
    CrashAtPacket,
    RestartOfLeader,
    PausedMaster,
    SluggishDiskOfMaster,
}

const NETWORK: &[Card] = &[
    Card::PacketFaultsOfMaster,
    Card::PacketFaultsOfMember,
    Card::MasterFromMember,
    Card::OneWayToMaster,
    Card::OneWayFromMaster,
    Card::SlowMember,
    Card::SlowMaster,
];

const MACHINES: &[Card] = &[
    Card::CrashOfMaster,
    Card::CrashOfAgent,
    Card::FallOfAgent,
    Card::FallOfAgents,
    Card::CrashOfFramework,
    Card::RestartOfMaster,
    Card::RestartOfMember,
    Card::SlowDiskOfMaster,
    Card::SlowDiskOfAgent,
    Card::FailingDiskOfMaster,
    Card::FailingDiskOfAgent,
    Card::WallJump,
    Card::Drift,
    Card::DeathOfExecutor,
    Card::DeathsEverywhere,
    Card::BusyLender,
    Card::BusyEverywhere,
    Card::Isolation,
    Card::Rations,
    Card::Maintenance,
];

/// Network faults of a group of masters.
const NETWORK_OF_GROUP: &[Card] = &[
    Card::LeaderInMinority,
    Card::LeaderAlone,
    Card::LeaderUnheard,
    Card::LeaderDeaf,
    Card::MasterFromMaster,
    Card::FlappingMaster,
];

/// Machine faults of a group of masters.
const MACHINES_OF_GROUP: &[Card] = &[
    Card::CrashOfLeader,
    Card::CrashOfFollower,
    Card::LongAbsenceOfFollower,
    Card::CrashOfAllMasters,
    Card::CrashAtWrite,
    Card::CrashAtPacket,
    Card::RestartOfLeader,
    Card::PausedMaster,
    Card::SluggishDiskOfMaster,
];

/// The faults of a scenario in order of time: its explicit ones, or those of its profile and seed.
pub fn plan(scenario: &Scenario) -> Vec<Fault> {
    if let Some(faults) = &scenario.faults {
        return faults.clone();
    }
    let mut cards: Vec<Card> = Vec::new();
    if matches!(scenario.profile, Profile::Network | Profile::All) {
        cards.extend(NETWORK);
        if scenario.masters > 1 {
            cards.extend(NETWORK_OF_GROUP);
        }
    }
    if matches!(scenario.profile, Profile::Machines | Profile::All) {
        cards.extend(MACHINES);
        if scenario.masters > 1 {
            cards.extend(MACHINES_OF_GROUP);
        }
    }
    cards.retain(|card| is_possible(*card, scenario));
    if cards.is_empty() {
        return Vec::new();
    }
    let by_time = scenario.duration.as_secs() / FAULT_EVERY.as_secs();
    let count = u32::try_from(by_time).map_or(FAULTS_MAX, |count| count.min(FAULTS_MAX));
    let count = count.max(cards.len() as u32);
    let mut rng = SmallRng::seed_from_u64(derived(scenario.seed, "faults", 0));
    let mut deck = Vec::new();
    let mut faults: Vec<Fault> = Vec::new();
    for _ in 0..count {
        if deck.is_empty() {
            deck = cards.clone();
            deck.shuffle(&mut rng);
        }
        let Some(card) = deck.pop() else { break };
        let fault = deal(card, scenario, &mut rng);
        faults.extend(beside(card, &fault, scenario, &mut rng));
        faults.push(fault);
    }
    faults.sort_by_key(|fault| fault.at);
    faults
}

fn is_possible(card: Card, scenario: &Scenario) -> bool {
    let (agents, frameworks) = (scenario.agents > 0, scenario.frameworks > 0);
    match card {
        Card::CrashOfAgent
        | Card::FallOfAgent
        | Card::FallOfAgents
        | Card::SlowDiskOfAgent
        | Card::FailingDiskOfAgent => agents,
        Card::CrashOfFramework => frameworks,
        Card::Maintenance => agents,
        Card::DeathOfExecutor | Card::DeathsEverywhere | Card::Isolation | Card::Rations => {
            agents && frameworks
        }
        Card::BusyLender | Card::BusyEverywhere => load::lends_and_borrows(scenario),
        Card::PausedMaster => !load::reads_from_leases(scenario),
        Card::PacketFaultsOfMember
        | Card::MasterFromMember
        | Card::OneWayToMaster
        | Card::OneWayFromMaster
        | Card::SlowMember
        | Card::RestartOfMember => agents || frameworks,
        _ => true,
    }
}

fn deal(card: Card, scenario: &Scenario, rng: &mut SmallRng) -> Fault {
    let whole = scenario.duration;
    let longest = whole
        .mul_f64(LASTS_MAX.0)
        .min(Duration::from_secs(LASTS_MAX.1));
    // Most are short; some are longer than every timeout.
    let share = match card {
        // Packet loss needs time to have an effect.
        Card::PacketFaultsOfMaster | Card::PacketFaultsOfMember => rng.random_range(0.3..1.0),
        // Something must be written meanwhile.
        Card::FailingDiskOfMaster | Card::FailingDiskOfAgent => rng.random_range(0.3..1.0),
        // The awaited step may come late, and so may an executor or task that must yield.
        Card::CrashAtWrite | Card::CrashAtPacket => rng.random_range(0.3..1.0),
        Card::DeathOfExecutor
        | Card::DeathsEverywhere
        | Card::BusyLender
        | Card::BusyEverywhere
        | Card::Isolation
        | Card::Rations
        | Card::Maintenance => rng.random_range(0.6..1.0),
        // Long enough that the follower needs a snapshot.
        Card::LongAbsenceOfFollower => 1.0,
        _ => rng.random::<f64>().powi(2).max(0.01),
    };
    let lasts = longest.mul_f64(share);
    let (from, to) = (whole.mul_f64(QUIET_START), whole.saturating_sub(lasts));
    let at = from + to.saturating_sub(from).mul_f64(rng.random());
    Fault {
        at: whole_millis(at),
        lasts: whole_millis(lasts),
        kind: kind(card, scenario, rng),
    }
}

/// A second fault that makes a disk's fault visible. A master must write meanwhile, which a
/// reregistering agent causes. An agent's next process must find its state, though this one could
/// not write all of it.
fn beside(card: Card, fault: &Fault, scenario: &Scenario, rng: &mut SmallRng) -> Option<Fault> {
    if let Card::SlowDiskOfAgent | Card::FailingDiskOfAgent = card {
        let node = fault.kind.nodes().first().map(|&node| node.to_owned())?;
        let after = fault.lasts.mul_f64(rng.random_range(0.1..0.9));
        let lasts = fault.lasts.mul_f64(rng.random_range(0.01..0.3));
        let left = scenario.duration.saturating_sub(fault.at + after);
        return Some(Fault {
            at: whole_millis(fault.at + after),
            lasts: whole_millis(lasts.min(left)),
            kind: FaultKind::CrashProcess { node },
        });
    }
    let of_master = matches!(card, Card::SlowDiskOfMaster | Card::FailingDiskOfMaster);
    if !of_master || scenario.agents == 0 {
        return None;
    }
    let node = format!("agent-{}", rng.random_range(1..=scenario.agents));
    Some(Fault {
        at: whole_millis(fault.at + fault.lasts / 10),
        lasts: whole_millis(fault.lasts / 5),
        kind: FaultKind::Crash { node },
    })
}

/// Virtual timers have a resolution of milliseconds; so does the plan, which can be written and
/// replayed.
fn whole_millis(duration: Duration) -> Duration {
    Duration::from_millis(u64::try_from(duration.as_millis()).unwrap_or(u64::MAX))
}

fn kind(card: Card, scenario: &Scenario, rng: &mut SmallRng) -> FaultKind {
    let agent =
        |rng: &mut SmallRng| format!("agent-{}", rng.random_range(1..=scenario.agents.max(1)));
    let framework = |rng: &mut SmallRng| {
        format!(
            "framework-{}",
            rng.random_range(1..=scenario.frameworks.max(1))
        )
    };
    let member = |rng: &mut SmallRng| match (scenario.agents, scenario.frameworks) {
        (0, _) => framework(rng),
        (_, 0) => agent(rng),
        _ if rng.random_range(0..3) == 0 => framework(rng),
        _ => agent(rng),
    };
    let names = masters(scenario.masters);
    let any_master = |rng: &mut SmallRng| names[rng.random_range(0..names.len())].clone();
    let leader = || "leader".to_owned();
    // Usually the leader, where a fault has most effect.
    let master = |rng: &mut SmallRng| match names.len() {
        1 => names[0].clone(),
        _ if rng.random_range(0..2) == 0 => leader(),
        _ => any_master(rng),
    };
    let anybody = |rng: &mut SmallRng| match rng.random_range(0..2) {
        0 => master(rng),
        _ => member(rng),
    };
    let cut = |one: &str, other: &str| FaultKind::Partition {
        one: one.to_owned(),
        other: other.to_owned(),
    };
    let one_way = |from: &str, to: &str| FaultKind::OneWay {
        from: from.to_owned(),
        to: to.to_owned(),
    };
    let weather = |node: String, rng: &mut SmallRng| FaultKind::PacketFaults {
        node,
        loss: rng.random_range(20..250),
        duplication: rng.random_range(10..200),
        latency_max: Duration::from_millis(rng.random_range(5..500)),
    };
    match card {
        Card::PacketFaultsOfMaster => {
            let node = master(rng);
            weather(node, rng)
        }
        Card::PacketFaultsOfMember => weather(member(rng), rng),
        Card::MasterFromMember => FaultKind::Partition {
            one: master(rng),
            other: member(rng),
        },
        Card::OneWayToMaster => FaultKind::OneWay {
            from: member(rng),
            to: master(rng),
        },
        Card::OneWayFromMaster => FaultKind::OneWay {
            from: master(rng),
            to: member(rng),
        },
        Card::SlowMember => FaultKind::SlowReader { node: member(rng) },
        Card::SlowMaster => FaultKind::SlowReader { node: master(rng) },
        Card::CrashOfMaster => FaultKind::Crash { node: master(rng) },
        Card::CrashOfAgent => FaultKind::Crash { node: agent(rng) },
        Card::FallOfAgent => FaultKind::CrashProcess { node: agent(rng) },
        Card::FallOfAgents => FaultKind::CrashProcess {
            node: "everyone".to_owned(),
        },
        Card::CrashOfFramework => FaultKind::Crash {
            node: framework(rng),
        },
        Card::RestartOfMaster => FaultKind::Restart { node: master(rng) },
        Card::RestartOfMember => FaultKind::Restart { node: member(rng) },
        Card::SlowDiskOfMaster => FaultKind::SlowDisk {
            node: master(rng),
            by: Duration::from_millis(rng.random_range(10..3000)),
        },
        Card::SlowDiskOfAgent => FaultKind::SlowDisk {
            node: agent(rng),
            by: Duration::from_millis(rng.random_range(10..3000)),
        },
        Card::FailingDiskOfMaster => FaultKind::FailingDisk { node: master(rng) },
        Card::FailingDiskOfAgent => FaultKind::FailingDisk { node: agent(rng) },
        Card::LeaderInMinority => cut("minority", "majority"),
        Card::LeaderAlone => cut("leader", "everyone"),
        Card::LeaderUnheard => one_way("leader", "masters"),
        Card::LeaderDeaf => one_way("masters", "leader"),
        Card::MasterFromMaster => {
            let one = any_master(rng);
            let others: Vec<&String> = names.iter().filter(|name| **name != one).collect();
            cut(&one, others[rng.random_range(0..others.len())])
        }
        Card::FlappingMaster => FaultKind::Flap {
            node: match rng.random_range(0..3) {
                0 => leader(),
                _ => "follower".to_owned(),
            },
            every: Duration::from_millis(rng.random_range(100..8000)),
        },
        Card::CrashOfLeader => FaultKind::Crash { node: leader() },
        Card::CrashOfFollower | Card::LongAbsenceOfFollower => FaultKind::Crash {
            node: "follower".to_owned(),
        },
        Card::CrashOfAllMasters => FaultKind::Crash {
            node: "masters".to_owned(),
        },
        Card::CrashAtWrite => FaultKind::CrashAt {
            node: master(rng),
            step: Step::Write,
            count: rng.random_range(1..=12),
        },
        Card::CrashAtPacket => FaultKind::CrashAt {
            node: master(rng),
            step: Step::Packet,
            count: rng.random_range(1..=60),
        },
        Card::RestartOfLeader => FaultKind::Restart { node: leader() },
        Card::PausedMaster => FaultKind::Pause { node: master(rng) },
        Card::SluggishDiskOfMaster => FaultKind::SlowDisk {
            node: master(rng),
            // One in three hangs for longer than a leader waits before it hands over.
            by: Duration::from_millis(match rng.random_ratio(1, 3) {
                true => rng.random_range(5_000..40_000),
                false => rng.random_range(100..900),
            }),
        },
        Card::WallJump => FaultKind::WallJump {
            node: anybody(rng),
            seconds: rng.random_range(-3600..=3600),
        },
        Card::Drift => FaultKind::Drift {
            node: anybody(rng),
            ppm: rng.random_range(-DRIFT_MAX..=DRIFT_MAX),
        },
        Card::DeathOfExecutor => FaultKind::KillExecutor { node: agent(rng) },
        // In a large cluster a single agent may have no executor.
        Card::DeathsEverywhere => FaultKind::KillExecutor {
            node: "everyone".to_owned(),
        },
        Card::BusyEverywhere => FaultKind::Busy {
            node: "everyone".to_owned(),
        },
        Card::Isolation => FaultKind::Isolation { node: agent(rng) },
        Card::Rations => FaultKind::ChangeQuotas { node: master(rng) },
        Card::Maintenance => FaultKind::Maintain { node: agent(rng) },
        Card::BusyLender => {
            let lenders = (1..=scenario.agents).filter(|number| load::lends(*number));
            let lenders: Vec<u32> = lenders.collect();
            let number = lenders[rng.random_range(0..lenders.len())];
            FaultKind::Busy {
                node: format!("agent-{number}"),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scenario::Wiring;
    use std::collections::BTreeSet;

    fn scenario(seed: u64, profile: Profile) -> Scenario {
        Scenario {
            seed,
            masters: 1,
            agents: 3,
            frameworks: 2,
            duration: Duration::from_secs(300),
            profile,
            wiring: Wiring::Memory,
            faults: None,
        }
    }

    fn kinds(faults: &[Fault]) -> BTreeSet<&'static str> {
        faults.iter().map(|fault| fault.kind.name()).collect()
    }

    #[test]
    fn plan_is_seeded_and_ordered() {
        let (one, again) = (
            plan(&scenario(1, Profile::All)),
            plan(&scenario(1, Profile::All)),
        );
        assert_eq!(one, again);
        assert_ne!(one, plan(&scenario(2, Profile::All)));
        assert!(one.is_sorted_by_key(|fault| fault.at));
    }

    #[test]
    fn plan_has_exactly_the_profiles_kinds() {
        let network = kinds(&plan(&scenario(1, Profile::Network)));
        let machines = kinds(&plan(&scenario(1, Profile::Machines)));
        assert_eq!(
            network,
            BTreeSet::from(["packet_faults", "partition", "one_way", "slow_reader"])
        );
        assert_eq!(
            machines,
            BTreeSet::from([
                "crash",
                "crash_process",
                "restart",
                "slow_disk",
                "failing_disk",
                "wall_jump",
                "drift",
                "kill_executor",
                "isolation",
                "change_quotas",
                "maintain",
            ])
        );
        let all = kinds(&plan(&scenario(1, Profile::All)));
        assert_eq!(all, &network | &machines);
        assert!(plan(&scenario(1, Profile::None)).is_empty());
    }

    #[test]
    fn group_has_more_kinds_than_a_single_master() {
        let group = |profile| Scenario {
            masters: 3,
            ..scenario(1, profile)
        };
        let more = |profile| &kinds(&plan(&group(profile))) - &kinds(&plan(&scenario(1, profile)));
        assert_eq!(more(Profile::Network), BTreeSet::from(["flap"]));
        assert_eq!(
            more(Profile::Machines),
            BTreeSet::from(["crash_at", "pause"])
        );
        let nodes = plan(&group(Profile::All));
        let nodes = nodes.iter().flat_map(|fault| fault.kind.nodes());
        let nodes: BTreeSet<&str> = nodes.collect();
        assert!(
            nodes.contains("leader") && !nodes.contains("master"),
            "{nodes:?}"
        );
        let alone = plan(&scenario(1, Profile::All));
        let masters = alone.iter().flat_map(|fault| fault.kind.nodes());
        assert!(masters.into_iter().all(|node| node != "leader"));
    }

    #[test]
    fn only_used_lenders_become_busy() {
        let borrowing = Scenario {
            agents: 7,
            frameworks: 3,
            ..scenario(1, Profile::Machines)
        };
        let plan = plan(&borrowing);
        let busy = plan.iter().filter(|fault| fault.kind.name() == "busy");
        let nodes: BTreeSet<&str> = busy.flat_map(|fault| fault.kind.nodes()).collect();
        assert!(nodes.contains("everyone") && nodes.len() > 1, "{nodes:?}");
        assert!(
            nodes.is_subset(&BTreeSet::from(["everyone", "agent-3", "agent-6"])),
            "{nodes:?}"
        );
    }

    #[test]
    fn every_fault_is_over_in_time() {
        for seed in 0..100 {
            let scenario = scenario(seed, Profile::All);
            for fault in plan(&scenario) {
                assert!(fault.at + fault.lasts <= scenario.duration, "{fault:?}");
            }
        }
    }

    #[test]
    fn explicit_faults_are_the_plan() {
        let mut scenario = scenario(1, Profile::All);
        let some = plan(&scenario)[..3].to_vec();
        scenario.faults = Some(some.clone());
        assert_eq!(plan(&scenario), some);
    }
}
