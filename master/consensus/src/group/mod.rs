//! A whole group in one thread, for tests: a network that loses, delays, duplicates and partitions;
//! disks that lose unsynced data; and checks of the result. Deterministic for a seed.
//!
//! | module | contents |
//! |---|---|
//! | `ask` | requests of the tests to a group |
//! | `drive` | carries out the steps of the members, and compares their applied state |
//! | `faults` | single faults: a crash at every step, one-way links, a flapping follower |
//! | `hostile` | arbitrary packets and logs |
//! | `leases` | lease reads of an isolated leader |
//! | `ledger` | the state machine of the tests |
//! | `membership` | membership changes |
//! | `normal` | elections, operations, reads, handover |
//! | `random_faults` | random faults in random order |
//! | `slow` | disks slower than an election |
//! | `snapshots` | snapshots for followers that lag too far |

mod ask;
mod drive;
mod faults;
mod hostile;
mod leases;
mod ledger;
mod membership;
mod normal;
mod random_faults;
mod slow;
mod snapshots;

use std::collections::{BTreeMap, BTreeSet};

use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use testkit::assert_matches;

use self::ask::led;
pub(crate) use self::ledger::Ledger;
use crate::core::{MembershipChange, ReadId, Rejected, Role, Settings, Status};
use crate::log::{Identity, LogStore, Members, Write};
use crate::replica::{Done, Failed, Policy, Replica, Step, Ticket, bootstrap};
use crate::store::memory_log::MemoryLog;
use crate::wire::Packet;

const GROUP: u64 = 0xfeed;

/// Faults of the network and the disks. Probabilities are in percent.
#[derive(Clone, Copy, Debug, Default)]
struct Faults {
    loss: u32,
    twice: u32,
    /// The maximum transit time of a packet in ticks; packets may overtake each other.
    delay: u64,
    /// The maximum duration of a write in ticks.
    disk: u64,
}

/// A write in progress, which a crash loses: the tick of its sync, and the number of its step.
type Writing = (u64, u64, Write);

struct Member {
    identity: Identity,
    memory_log: MemoryLog,
    replica: Option<Replica<Ledger>>,
    writing: Option<Writing>,
    incarnations: u64,
}

struct Flight {
    at: u64,
    order: u64,
    from: u64,
    to: u64,
    packet: Packet,
}

/// A pending read, and the values that it must see.
struct Asked {
    member: u64,
    run: u64,
    id: ReadId,
    acknowledged: BTreeSet<u64>,
}

struct Group {
    seed: u64,
    rng: SmallRng,
    faults: Faults,
    /// Fixed write durations in ticks, by member.
    slow: BTreeMap<u64, u64>,
    settings: Settings,
    policy: Policy,
    members: BTreeMap<u64, Member>,
    flights: Vec<Flight>,
    cut: BTreeSet<(u64, u64)>,
    now: u64,
    order: u64,
    next_value: u64,
    /// The leader of each term.
    leaders: BTreeMap<u64, u64>,
    /// The longest sequence applied anywhere.
    truth: Vec<u64>,
    /// Proposed values and results, by ticket.
    proposed: BTreeMap<Ticket, u64>,
    ends: BTreeMap<Ticket, Result<Done<usize>, Failed>>,
    acknowledged: BTreeSet<u64>,
    asked: Vec<Asked>,
    reads: Vec<Result<u64, Rejected>>,
    delivered: u64,
    /// A countdown over the small actions of a member, which crashes at zero.
    crash_countdown: Option<(u64, u64)>,
}

impl Group {
    fn new(seed: u64, size: u64) -> Self {
        let policy = Policy {
            snapshot_entries: 40,
            keep_entries: 10,
            ..Policy::default()
        };
        Self::with(seed, size, Settings::default(), policy)
    }

    fn with(seed: u64, size: u64, settings: Settings, policy: Policy) -> Self {
        let mut group = Self {
            seed,
            rng: SmallRng::seed_from_u64(seed),
            faults: Faults::default(),
            slow: BTreeMap::new(),
            settings,
            policy,
            members: BTreeMap::new(),
            flights: Vec::new(),
            cut: BTreeSet::new(),
            now: 0,
            order: 0,
            next_value: 1,
            leaders: BTreeMap::new(),
            truth: Vec::new(),
            proposed: BTreeMap::new(),
            ends: BTreeMap::new(),
            acknowledged: BTreeSet::new(),
            asked: Vec::new(),
            reads: Vec::new(),
            delivered: 0,
            crash_countdown: None,
        };
        let members = Members::of(1..=size);
        for id in 1..=size {
            group.put(id);
            let write = bootstrap(members.clone(), &Ledger::default()).unwrap();
            let member = group.members.get_mut(&id).unwrap();
            member.memory_log.write(&write).unwrap();
            group.start(id);
        }
        group
    }

    /// Creates an empty directory for a member without starting it.
    fn put(&mut self, id: u64) {
        let identity = Identity { id, group: GROUP };
        let mut memory_log = MemoryLog::default();
        memory_log.claim(identity).unwrap();
        let member = Member {
            identity,
            memory_log,
            replica: None,
            writing: None,
            incarnations: 0,
        };
        self.members.insert(id, member);
    }

    fn start(&mut self, id: u64) {
        let (settings, policy) = (self.settings.clone(), self.policy.clone());
        let member = self.members.get_mut(&id).unwrap();
        member.incarnations += 1;
        let rng = SmallRng::seed_from_u64(self.seed ^ (id << 32) ^ member.incarnations);
        let loaded = member.memory_log.load().unwrap();
        let replica = Replica::new(
            settings,
            policy,
            member.identity,
            loaded,
            rng,
            Ledger::default(),
        );
        member.replica = Some(replica.unwrap());
    }

    /// Power failure: unsynced data and packets in flight are lost.
    fn power_off(&mut self, id: u64) {
        let member = self.members.get_mut(&id).unwrap();
        member.replica = None;
        member.writing = None;
        let run = member.incarnations;
        self.asked
            .retain(|asked| (asked.member, asked.run) != (id, run));
    }

    fn restart(&mut self, id: u64) {
        self.power_off(id);
        self.start(id);
    }

    fn is_up(&self, id: u64) -> bool {
        self.members[&id].replica.is_some()
    }

    fn running(&self) -> Vec<u64> {
        self.members
            .keys()
            .copied()
            .filter(|id| self.is_up(*id))
            .collect()
    }

    fn replica(&mut self, id: u64) -> &mut Replica<Ledger> {
        self.members.get_mut(&id).unwrap().replica.as_mut().unwrap()
    }

    fn status(&self, id: u64) -> Status {
        self.members[&id].replica.as_ref().unwrap().status()
    }

    /// The running leader of the highest term, if any.
    fn leader(&self) -> Option<u64> {
        let leads = |id: &u64| self.status(*id).now.role == Role::Leader;
        self.running()
            .into_iter()
            .filter(leads)
            .max_by_key(|id| self.status(*id).now.term)
    }

    fn tick(&mut self) {
        self.now += 1;
        self.deliver();
        for id in self.running() {
            if self.is_up(id) {
                self.replica(id).tick();
                self.pump(id);
            }
        }
        self.deliver();
    }

    fn ticks(&mut self, count: u64) {
        for _ in 0..count {
            self.tick();
        }
    }

    /// Ticks until this holds; panics after `max` ticks.
    fn until(&mut self, what: &str, max: u64, holds: impl Fn(&mut Self) -> bool) {
        for _ in 0..max {
            if holds(self) {
                return;
            }
            self.tick();
        }
        panic!("seed {}: not within {max} ticks: {what}", self.seed);
    }

    /// Ends all faults: every member runs, and network and disks are good.
    fn heal(&mut self) {
        self.faults = Faults::default();
        self.slow.clear();
        self.cut.clear();
        self.crash_countdown = None;
        let down: Vec<u64> = self
            .members
            .keys()
            .copied()
            .filter(|id| !self.is_up(*id))
            .collect();
        for id in down {
            self.start(id);
        }
    }

    /// After the faults: checks progress, agreement, and that no acknowledged value is lost.
    fn settle(&mut self) {
        self.heal();
        self.ticks(60);
        self.commit(3);
        self.until("all members have the same", 400, |group| {
            let truth = group.truth.clone();
            let members = group.belonging();
            !members.is_empty()
                && members
                    .into_iter()
                    .all(|id| group.replica(id).machine().values == truth)
        });
        let truth: BTreeSet<u64> = self.truth.iter().copied().collect();
        assert!(
            self.acknowledged.is_subset(&truth),
            "seed {}: what was acknowledged is lost",
            self.seed
        );
        for (ticket, end) in &self.ends {
            if matches!(end, Err(Failed::Lost | Failed::Rejected(_)))
                && let Some(value) = self.proposed.get(ticket)
            {
                assert!(
                    !truth.contains(value),
                    "seed {}: {value} was called lost and was applied",
                    self.seed
                );
            }
        }
        self.ticks(self.policy.answer_ticks_max + self.settings.read_ticks_max);
        assert!(self.asked.is_empty(), "seed {}: a read hangs", self.seed);
    }

    /// Isolates these from the rest, in both directions.
    fn isolate(&mut self, side: &[u64]) {
        let ids: Vec<u64> = self.members.keys().copied().collect();
        for one in &ids {
            for other in ids
                .iter()
                .filter(|other| side.contains(one) != side.contains(other))
            {
                self.cut.insert((*one, *other));
            }
        }
    }
}
