//! Whole runs: one seed gives one run, and the default load covers its features.

#![allow(clippy::unwrap_used, reason = "a test may end by a panic")]

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use master::registry::RegistryOperation;
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use simulator::linear::{RegistryAnswer, RegistryRequest};
use simulator::load::reads_from_leases;
use simulator::{
    Checker, Event, EventKind, Profile, RECOVERY, RECOVERY_LEAST, Run, Scenario, Violation, Wiring,
    run,
};

fn scenario(seed: u64, profile: Profile, wiring: Wiring) -> Scenario {
    Scenario {
        seed,
        masters: 1,
        agents: 4,
        frameworks: 5,
        duration: Duration::from_secs(240),
        profile,
        wiring,
        faults: None,
    }
}

fn play(scenario: &Scenario) -> Run {
    run(scenario, Vec::new(), None)
}

#[test]
fn run_depends_on_the_scenario_only() {
    for wiring in [Wiring::Memory, Wiring::Quic] {
        for profile in [Profile::None, Profile::All] {
            let one = play(&scenario(1, profile, wiring));
            let again = play(&scenario(1, profile, wiring));
            let other = play(&scenario(2, profile, wiring));
            assert_eq!(one, again);
            assert_ne!(one.hash, other.hash);
        }
    }
}

/// Waits for a time.
struct Waits(Duration);

impl Checker for Waits {
    fn name(&self) -> &'static str {
        "waits"
    }

    fn see(&mut self, _: &Event<'_>) -> Result<(), Violation> {
        Ok(())
    }

    fn is_waiting(&mut self, at: Duration) -> bool {
        at < self.0
    }

    fn judgements(&self) -> u64 {
        1
    }
}

#[test]
fn recovery_ends_early_except_one_in_eight() {
    let fault = "5secs+1secs crash agent-1";
    let lasts = |seed, waits| {
        let scenario = Scenario {
            agents: 1,
            frameworks: 1,
            duration: Duration::from_secs(10),
            faults: Some(vec![fault.parse().unwrap()]),
            ..scenario(seed, Profile::None, Wiring::Memory)
        };
        let waits = Waits(Duration::from_secs(waits));
        let run = run(&scenario, vec![Box::new(waits)], None);
        run.tally.virtual_time - scenario.duration
    };
    assert_eq!(lasts(1, 0), RECOVERY_LEAST);
    let asked_for = lasts(1, 600);
    assert!(asked_for >= Duration::from_secs(590) && asked_for < RECOVERY);
    assert_eq!(lasts(1, 9_999), RECOVERY);
    assert_eq!(lasts(8, 0), RECOVERY);
}

#[test]
fn group_run_is_reproducible_across_failovers() {
    for wiring in [Wiring::Memory, Wiring::Quic] {
        let faults = ["20secs+20secs crash leader", "60secs+10secs pause leader"];
        let group = |seed| Scenario {
            masters: 3,
            frameworks: 2,
            duration: Duration::from_secs(80),
            faults: Some(faults.iter().map(|fault| fault.parse().unwrap()).collect()),
            ..scenario(seed, Profile::None, wiring)
        };
        let checked = || run(&group(1), simulator::checkers::all(), None);
        let one = checked();
        assert_eq!(one.violation, None);
        assert_eq!(one, checked());
        let tally = one.tally;
        for checker in ["group", "registry", "launches", "recovery"] {
            let judged = tally.judgements.get(checker).copied();
            assert!(judged > Some(0), "{checker}: {tally:#?}");
        }
        assert!(tally.failovers >= 2 && tally.operations > 0, "{tally:#?}");
    }
}

#[test]
fn five_masters_tolerate_two_failures() {
    let faults = [
        "20secs+30secs crash minority",
        "70secs+20secs partition minority majority",
        "100secs+5secs restart leader",
    ];
    let scenario = Scenario {
        masters: 5,
        frameworks: 2,
        duration: Duration::from_secs(120),
        faults: Some(faults.iter().map(|fault| fault.parse().unwrap()).collect()),
        ..scenario(1, Profile::None, Wiring::Memory)
    };
    let run = run(&scenario, simulator::checkers::all(), None);
    assert_eq!(run.violation, None);
    let tally = run.tally;
    assert!(tally.failovers >= 3 && tally.crashes == 2, "{tally:#?}");
    for checker in ["group", "registry", "deposed", "recovery"] {
        assert!(tally.judgements[checker] > 0, "{checker}: {tally:#?}");
    }
}

/// If its master had been told that it leaves, its tasks would have been reported gone, and then
/// failed when the agent was found again.
#[test]
fn agent_shutdown_with_failing_disk_is_clean() {
    let faults = [
        "20secs+60secs failing_disk agent-1",
        "32secs+40secs restart agent-1",
    ];
    let scenario = Scenario {
        agents: 1,
        frameworks: 1,
        duration: Duration::from_secs(90),
        faults: Some(faults.iter().map(|fault| fault.parse().unwrap()).collect()),
        ..scenario(5, Profile::None, Wiring::Quic)
    };
    let run = run(&scenario, simulator::checkers::all(), None);
    assert_eq!(run.violation, None);
    let tally = run.tally;
    let refused = tally.disk_failures > 0;
    assert!(refused && tally.judgements["recovery"] > 0, "{tally:#?}");
}

/// A framework's standby leads after the other scheduler's crash, and the tasks continue.
#[test]
fn standby_takes_over_under_any_master() {
    let faults = [
        "40secs+60secs crash framework-1",
        "60secs+10secs crash leader",
        "110secs+20secs crash standby-1",
    ];
    for masters in [1, 3] {
        let faults = faults.map(|fault| match masters {
            1 => fault.replace("leader", "master").parse().unwrap(),
            _ => fault.parse().unwrap(),
        });
        let scenario = Scenario {
            masters,
            frameworks: 1,
            duration: Duration::from_secs(150),
            faults: Some(faults.to_vec()),
            ..scenario(1, Profile::None, Wiring::Memory)
        };
        let run = run(&scenario, simulator::checkers::all(), None);
        assert_eq!(run.violation, None);
        let told = run.tally.judgements["standbys"];
        assert!(told >= 3, "{told}: {:#?}", run.tally);
    }
}

#[test]
fn default_load_uses_every_agent_and_end() {
    let tally = play(&scenario(1, Profile::None, Wiring::Memory)).tally;
    assert_eq!(tally.registrations, 4, "{tally:#?}");
    assert!(
        tally.launches > 50 && tally.offers > tally.launches,
        "{tally:#?}"
    );
    assert!(tally.revocable > 0, "{tally:#?}");
    for state in ["TASK_FINISHED", "TASK_FAILED", "TASK_KILLED"] {
        assert!(tally.task_ends.contains_key(state), "{state}: {tally:#?}");
    }
}

#[test]
fn long_absent_follower_gets_a_snapshot() {
    let fault = "10secs+90secs crash follower".parse().unwrap();
    let scenario = Scenario {
        masters: 3,
        duration: Duration::from_secs(120),
        faults: Some(vec![fault]),
        ..scenario(1, Profile::None, Wiring::Memory)
    };
    let run = run(&scenario, simulator::checkers::all(), None);
    assert_eq!(run.violation, None);
    assert!(run.tally.snapshots > 0, "{:#?}", run.tally);
}

/// The outcome of a master whose disk was reset.
#[derive(Clone, Default)]
struct Rewound(Arc<Mutex<Life>>);

#[derive(Default)]
struct Life {
    /// How often it has ended by itself since the reset.
    ends: u32,
    is_back: bool,
    /// The last known leader.
    leader: String,
    /// Whether the others had a leader at the reset, which may know its promises.
    is_followed: bool,
    /// Its last state, and the latest of any member.
    held: u64,
    most: u64,
}

impl Checker for Rewound {
    fn name(&self) -> &'static str {
        "rewound"
    }

    fn see(&mut self, event: &Event<'_>) -> Result<(), Violation> {
        let mut life = self.0.lock().unwrap();
        match event.kind {
            EventKind::Elected { node, .. } => node.clone_into(&mut life.leader),
            EventKind::DiskReset { node: REWOUND } => {
                life.is_back = true;
                life.is_followed = life.leader != REWOUND;
            }
            EventKind::NodeEnded { node, crashed } if node == REWOUND && life.is_back => {
                life.ends += u32::from(!crashed);
            }
            EventKind::MemberState { node, index, .. } => {
                life.most = life.most.max(index);
                if node == REWOUND {
                    life.held = index;
                }
            }
            _ => {}
        }
        Ok(())
    }

    fn judgements(&self) -> u64 {
        self.0.lock().unwrap().most
    }
}

const REWOUND: &str = "master-2";

/// How often it ended by itself, and whether it caught up in the end; `None` if it led, or there
/// was no leader, at the reset: then no other member may know its promises.
fn rewind(seed: u64, faults: &[&str]) -> Option<(u32, bool)> {
    let scenario = Scenario {
        masters: 3,
        frameworks: 2,
        duration: Duration::from_secs(150),
        faults: Some(faults.iter().map(|fault| fault.parse().unwrap()).collect()),
        ..scenario(seed, Profile::None, Wiring::Memory)
    };
    let rewound = Rewound::default();
    let mut checkers = simulator::checkers::all();
    checkers.push(Box::new(rewound.clone()));
    let run = run(&scenario, checkers, None);
    assert_eq!(run.violation, None, "seed {seed}");
    let life = rewound.0.lock().unwrap();
    assert!(life.is_back && life.most > 30, "seed {seed}");
    life.is_followed
        .then_some((life.ends, life.held == life.most))
}

/// A master that has forgotten its promises ends as soon as its leader sends to it, and the others
/// continue.
#[test]
fn reset_master_exits_and_nothing_is_lost() {
    let mut rng = SmallRng::seed_from_u64(1);
    let mut followed = 0;
    for seed in 1..=6 {
        let (at, lasts) = (rng.random_range(15..50), rng.random_range(10..60));
        let fault = format!("{at}secs+{lasts}secs rewind {REWOUND}");
        let Some((ends, caught_up)) = rewind(seed, &[&fault]) else {
            continue;
        };
        assert!(
            ends > 0 && !caught_up,
            "seed {seed}, {fault}: {ends} ends, {caught_up}"
        );
        followed += 1;
    }
    assert!(followed >= 3, "{followed} seeds were of use");
}

/// It is away until all members that may know its promises have restarted: then its loss cannot be
/// noticed.
#[test]
fn reset_master_rejoins_an_unaware_leader() {
    let faults = [
        "30secs+60secs rewind master-2",
        "80secs+30secs crash master-2",
        "85secs+10secs crash leader",
    ];
    let (ends, caught_up) = rewind(2, &faults).unwrap();
    assert!(ends == 0 && caught_up, "{ends} ends, {caught_up}");
}

/// Counts the compare-and-sets that succeeded and those that were refused.
struct Contests(Arc<[AtomicU64; 2]>);

impl Checker for Contests {
    fn name(&self) -> &'static str {
        "contests"
    }

    fn see(&mut self, event: &Event<'_>) -> Result<(), Violation> {
        if let EventKind::RegistryAnswered { answer, .. } = event.kind {
            match answer {
                Some(RegistryAnswer::Applied(_)) => self.0[0].fetch_add(1, Ordering::Relaxed),
                Some(RegistryAnswer::Conflict(_)) => self.0[1].fetch_add(1, Ordering::Relaxed),
                _ => 0,
            };
        }
        Ok(())
    }

    fn judgements(&self) -> u64 {
        self.0[0].load(Ordering::Relaxed)
    }
}

#[test]
fn compare_and_sets_contend_across_failovers() {
    let faults = [
        "40secs+20secs crash leader",
        "80secs+20secs partition leader everyone",
    ];
    let contests = Arc::new([AtomicU64::new(0), AtomicU64::new(0)]);
    let scenario = Scenario {
        masters: 3,
        frameworks: 2,
        duration: Duration::from_secs(180),
        faults: Some(faults.iter().map(|fault| fault.parse().unwrap()).collect()),
        ..scenario(2, Profile::None, Wiring::Memory)
    };
    let mut checkers = simulator::checkers::all();
    checkers.push(Box::new(Contests(contests.clone())));
    let run = run(&scenario, checkers, None);
    assert_eq!(run.violation, None);
    let [applied, refused] = [&contests[0], &contests[1]].map(|one| one.load(Ordering::Relaxed));
    assert!(
        applied > 50 && refused > 1,
        "{applied} taken, {refused} refused"
    );
}

/// Repeated partitions of the leader in a group with leases and drifting clocks: no read is stale.
#[test]
fn lease_reads_are_linearizable_under_faults() {
    let faults = [
        "20secs+15secs partition leader everyone",
        "30secs+100secs drift master-1 50000",
        "30secs+100secs drift master-2 -50000",
        "50secs+15secs one_way leader masters",
        "80secs+15secs one_way masters leader",
        "100secs+20secs wall_jump leader 3000",
        "110secs+10secs partition minority majority",
        "130secs+10secs crash leader",
    ];
    let faults: Vec<_> = faults.iter().map(|fault| fault.parse().unwrap()).collect();
    let of_seed = |seed| Scenario {
        masters: 3,
        frameworks: 2,
        duration: Duration::from_secs(150),
        faults: Some(faults.clone()),
        ..scenario(seed, Profile::None, Wiring::Memory)
    };
    let leased = (1..).map(of_seed).filter(reads_from_leases);
    for scenario in leased.take(2) {
        let run = run(&scenario, simulator::checkers::all(), None);
        assert_eq!(run.violation, None, "seed {}", scenario.seed);
        assert!(run.tally.failovers >= 3, "{:#?}", run.tally);
    }
}

#[test]
fn every_fault_kind_has_an_effect() {
    for wiring in [Wiring::Memory, Wiring::Quic] {
        // A single run may lack a busy machine with lent resources.
        let tallies = [5, 6].map(|seed| play(&scenario(seed, Profile::All, wiring)).tally);
        let mut traces = [0; 10];
        for tally in &tallies {
            assert_eq!(tally.faults.len(), 16, "{tally:#?}");
            let of_run = [
                tally.failovers,
                tally.crashes,
                tally.restarts,
                tally.lost,
                tally.delayed,
                tally.broken_links,
                tally.disk_failures,
                tally.executors_killed,
                tally.corrections,
                tally.limited,
            ];
            for (sum, count) in traces.iter_mut().zip(of_run) {
                *sum += count;
            }
        }
        assert!(traces.iter().all(|count| *count > 0), "{traces:?}");
    }
}

/// Counts leader starts, elections, and recorded operations.
struct LeaderCounter(Arc<[AtomicU64; 3]>);

impl Checker for LeaderCounter {
    fn name(&self) -> &'static str {
        "reigns seen"
    }

    fn see(&mut self, event: &Event<'_>) -> Result<(), Violation> {
        let taken = matches!(
            event.kind,
            EventKind::RegistryAnswered {
                answer: Some(RegistryAnswer::Applied(_)),
                ..
            }
        );
        let counted = match event.kind {
            EventKind::MasterBegan { .. } => 0,
            EventKind::Elected { .. } => 1,
            _ if taken => 2,
            _ => return Ok(()),
        };
        self.0[counted].fetch_add(1, Ordering::Relaxed);
        Ok(())
    }

    fn judgements(&self) -> u64 {
        self.0[0].load(Ordering::Relaxed)
    }
}

/// W3: a panic ends one master only. Its member leads on, the next master starts there in the same
/// term, and all recorded operations stay, which the checkers verify.
// Covers W3 in part: panics in the runtime and bad input at the master.
#[test]
fn repeated_master_panics_lose_nothing_acknowledged() {
    let faults = ["30secs+60secs panic leader", "120secs+40secs panic leader"];
    let scenario = Scenario {
        masters: 3,
        faults: Some(faults.iter().map(|fault| fault.parse().unwrap()).collect()),
        ..scenario(1, Profile::None, Wiring::Memory)
    };
    let seen = Arc::new([AtomicU64::new(0), AtomicU64::new(0), AtomicU64::new(0)]);
    let mut checkers = simulator::checkers::all();
    checkers.push(Box::new(LeaderCounter(seen.clone())));
    let run = run(&scenario, checkers, None);
    assert_eq!(run.violation, None);
    let [began, elected, taken] = [0, 1, 2].map(|what: usize| seen[what].load(Ordering::Relaxed));
    assert_eq!(elected, 1, "its member led all the time");
    assert!(began > 30 && taken > 100, "{began} masters, {taken} taken");
    assert!(run.tally.launches > 50, "{:#?}", run.tally);
}

/// Whatever a sorter answers, nothing is offered twice or to the wrong framework, and all continues
/// after it recovers; also while quotas change and the master crashes.
#[test]
fn invalid_sorter_answers_break_no_invariant() {
    let mut launches = 0;
    for seed in 1..=12 {
        let lies = ["10secs+70secs lie master", "100secs+15secs lie master"];
        let quotas = ["5secs+100secs change_quotas master"].iter();
        let falls = ["50secs+5secs crash master"].iter();
        let faults = lies.iter();
        let faults = faults.chain(quotas.filter(|_| seed % 2 == 0));
        let faults = faults.chain(falls.filter(|_| seed % 3 == 0));
        let scenario = Scenario {
            duration: Duration::from_secs(130),
            faults: Some(faults.map(|fault| fault.parse().unwrap()).collect()),
            ..scenario(seed, Profile::None, Wiring::Memory)
        };
        let run = run(&scenario, simulator::checkers::all(), None);
        assert_eq!(run.violation, None, "seed {seed}");
        launches += run.tally.launches;
    }
    assert!(launches > 300, "{launches}");
}

/// Counts the quota updates that masters record in their registries.
struct QuotaUpdateCounter(Arc<AtomicU64>);

impl Checker for QuotaUpdateCounter {
    fn name(&self) -> &'static str {
        "rations"
    }

    fn see(&mut self, event: &Event<'_>) -> Result<(), Violation> {
        if let EventKind::RegistryRequested { request, .. } = event.kind
            && let RegistryRequest::Apply(operation) = request
            && matches!(**operation, RegistryOperation::UpdateQuotas { .. })
        {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
        Ok(())
    }

    fn judgements(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// Changing quotas and weights, with crashes of the master, break nothing.
#[test]
fn changing_quotas_break_no_invariant() {
    let faults = [
        "20secs+200secs change_quotas master",
        "70secs+5secs crash master",
        "120secs+60secs lie master",
    ];
    let scenario = Scenario {
        faults: Some(faults.iter().map(|fault| fault.parse().unwrap()).collect()),
        ..scenario(1, Profile::None, Wiring::Memory)
    };
    let updates = Arc::new(AtomicU64::new(0));
    let mut checkers = simulator::checkers::all();
    checkers.push(Box::new(QuotaUpdateCounter(updates.clone())));
    let run = run(&scenario, checkers, None);
    assert_eq!(run.violation, None);
    assert!(run.tally.launches > 50, "{:#?}", run.tally);
    assert!(updates.load(Ordering::Relaxed) > 4, "{updates:?}");
}
