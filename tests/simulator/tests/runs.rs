//! Whole runs: one seed gives one run, and the default load really loads.

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
    Checker, Event, Profile, RECOVERY, RECOVERY_LEAST, Run, Scenario, Violation, What, Wiring, run,
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
fn the_same_scenario_gives_the_same_run_and_another_seed_another() {
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

/// Waits until a time for something.
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
fn a_recovery_ends_when_nothing_is_waited_for_and_one_in_eight_goes_on_to_its_end() {
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
fn a_group_of_masters_is_one_run_too_and_goes_on_when_leaders_fall() {
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
fn five_masters_go_on_when_two_of_them_fall_and_when_two_are_cut_off() {
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

/// Had its master been told that it leaves, its tasks would have been called gone, and then have failed when the agent was found again.
#[test]
fn an_agent_that_leaves_while_its_disk_fails_breaks_no_promise() {
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

/// The standby of a framework leads when the other scheduler has fallen, and the tasks go on.
#[test]
fn a_standby_leads_when_the_first_scheduler_falls_also_under_another_master() {
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
fn the_default_load_uses_every_agent_and_every_kind_of_end() {
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
fn a_follower_that_was_away_for_long_is_caught_up_by_a_snapshot() {
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

/// What a master whose disk is an old copy comes to.
#[derive(Clone, Default)]
struct Rewound(Arc<Mutex<Life>>);

#[derive(Default)]
struct Life {
    /// It has ended by itself so often since the disk was put back.
    ends: u32,
    is_back: bool,
    /// Who leads, as far as was said.
    leader: String,
    /// Whether the others had a leader when the disk was put back, who then may know what it had promised.
    is_followed: bool,
    /// What it held last, and what anybody did.
    held: u64,
    most: u64,
}

impl Checker for Rewound {
    fn name(&self) -> &'static str {
        "rewound"
    }

    fn see(&mut self, event: &Event<'_>) -> Result<(), Violation> {
        let mut life = self.0.lock().unwrap();
        match event.what {
            What::Elected { node, .. } => node.clone_into(&mut life.leader),
            What::DiskPutBack { node: REWOUND } => {
                life.is_back = true;
                life.is_followed = life.leader != REWOUND;
            }
            What::NodeEnded { node, crashed } if node == REWOUND && life.is_back => {
                life.ends += u32::from(!crashed);
            }
            What::Holds { node, index, .. } => {
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

/// How often it ended by itself, and whether it has caught up in the end; `None` if it led, or nobody did, when its disk was put back: then nobody else may
/// know what it had promised.
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

/// A master that has forgotten what it had promised ends as soon as its leader speaks to it, and the others go on.
#[test]
fn a_master_whose_disk_is_an_old_copy_ends_and_nothing_is_lost() {
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

/// It is away when all who might know it have fallen once: nobody can tell that it has forgotten anything.
#[test]
fn a_master_whose_disk_is_an_old_copy_is_caught_up_by_a_leader_that_does_not_know_it() {
    let faults = [
        "30secs+60secs rewind master-2",
        "80secs+30secs crash master-2",
        "85secs+10secs crash leader",
    ];
    let (ends, caught_up) = rewind(2, &faults).unwrap();
    assert!(ends == 0 && caught_up, "{ends} ends, {caught_up}");
}

/// Counts the compare-and-sets that were taken and those that were refused.
struct Contests(Arc<[AtomicU64; 2]>);

impl Checker for Contests {
    fn name(&self) -> &'static str {
        "contests"
    }

    fn see(&mut self, event: &Event<'_>) -> Result<(), Violation> {
        if let What::RegistryAnswered { answer, .. } = event.what {
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
fn compare_and_sets_of_a_group_meet_each_other_while_leaders_fall() {
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

/// Leaders that are cut off again and again, of a group that reads from leases, with clocks that drift: no read is of what was before.
#[test]
fn reads_from_leases_are_linearizable_where_clocks_drift_and_leaders_are_cut_off() {
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
fn faults_of_every_kind_leave_their_traces() {
    for wiring in [Wiring::Memory, Wiring::Quic] {
        // One run need not have a machine that is busy while something is lent on it.
        let tallies = [5, 6].map(|seed| play(&scenario(seed, Profile::All, wiring)).tally);
        let mut traces = [0; 9];
        for tally in &tallies {
            assert_eq!(tally.faults.len(), 15, "{tally:#?}");
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
            ];
            for (sum, count) in traces.iter_mut().zip(of_run) {
                *sum += count;
            }
        }
        assert!(traces.iter().all(|count| *count > 0), "{traces:?}");
    }
}

/// Counts the masters that begin, the elections, and what registries have taken.
struct Reigns(Arc<[AtomicU64; 3]>);

impl Checker for Reigns {
    fn name(&self) -> &'static str {
        "reigns seen"
    }

    fn see(&mut self, event: &Event<'_>) -> Result<(), Violation> {
        let taken = matches!(
            event.what,
            What::RegistryAnswered {
                answer: Some(RegistryAnswer::Applied(_)),
                ..
            }
        );
        let counted = match event.what {
            What::MasterBegan { .. } => 0,
            What::Elected { .. } => 1,
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

/// W3: a panic is felt as the end of one master. Its member leads on, the next master begins there in the same term, and all that the
/// registry has taken stands, which the checkers see to.
#[test]
fn a_master_that_panics_again_and_again_in_a_group_is_followed_and_nothing_acknowledged_is_lost() {
    let faults = ["30secs+60secs panic leader", "120secs+40secs panic leader"];
    let scenario = Scenario {
        masters: 3,
        faults: Some(faults.iter().map(|fault| fault.parse().unwrap()).collect()),
        ..scenario(1, Profile::None, Wiring::Memory)
    };
    let seen = Arc::new([AtomicU64::new(0), AtomicU64::new(0), AtomicU64::new(0)]);
    let mut checkers = simulator::checkers::all();
    checkers.push(Box::new(Reigns(seen.clone())));
    let run = run(&scenario, checkers, None);
    assert_eq!(run.violation, None);
    let [began, elected, taken] = [0, 1, 2].map(|what: usize| seen[what].load(Ordering::Relaxed));
    assert_eq!(elected, 1, "its member led all the time");
    assert!(began > 30 && taken > 100, "{began} masters, {taken} taken");
    assert!(run.tally.launches > 50, "{:#?}", run.tally);
}

/// DESIGN 10: whatever a sorter says, nothing is offered twice nor to the wrong one, and all goes on when it has come to its senses; also while
/// quotas change and the master falls.
#[test]
fn a_sorter_that_answers_nonsense_breaks_no_invariant() {
    let mut launches = 0;
    for seed in 1..=12 {
        let lies = ["10secs+70secs lie master", "100secs+15secs lie master"];
        let quotas = ["5secs+100secs ration master"].iter();
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

/// Counts the updates of quotas that masters ask their registries to record.
struct Rations(Arc<AtomicU64>);

impl Checker for Rations {
    fn name(&self) -> &'static str {
        "rations"
    }

    fn see(&mut self, event: &Event<'_>) -> Result<(), Violation> {
        if let What::RegistryAsked { request, .. } = event.what
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

/// DESIGN 10: quotas and weights that change all the time, and the master that falls meanwhile, break nothing.
#[test]
fn quotas_that_change_all_the_time_break_no_invariant() {
    let faults = [
        "20secs+200secs ration master",
        "70secs+5secs crash master",
        "120secs+60secs lie master",
    ];
    let scenario = Scenario {
        faults: Some(faults.iter().map(|fault| fault.parse().unwrap()).collect()),
        ..scenario(1, Profile::None, Wiring::Memory)
    };
    let rations = Arc::new(AtomicU64::new(0));
    let mut checkers = simulator::checkers::all();
    checkers.push(Box::new(Rations(rations.clone())));
    let run = run(&scenario, checkers, None);
    assert_eq!(run.violation, None);
    assert!(run.tally.launches > 50, "{:#?}", run.tally);
    assert!(rations.load(Ordering::Relaxed) > 4, "{rations:?}");
}
