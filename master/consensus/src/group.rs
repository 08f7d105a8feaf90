//! A whole group in one thread, for tests: a network that loses, delays, doubles and divides; disks that forget; and checks that
//! look on from outside. One seed, one run.

mod ask;
mod drive;
mod faults;
mod hostile;
mod laws;
mod leases;
mod ledger;
mod life;
mod membership;
mod slow;
mod snapshots;
mod twin;

use std::collections::{BTreeMap, BTreeSet};

use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};

pub(crate) use self::ledger::Ledger;
use self::twin::Twin;
use crate::core::{MembershipChange, ReadId, Rejected, Role, Settings, Status};
use crate::log::{Identity, LogStore, Members};
use crate::replica::{Done, Failed, Policy, Replica, Step, Ticket, bootstrap};
use crate::wire::Packet;

const GROUP: u64 = 0xfeed;

/// How bad the network and the disks are. Chances are in percent.
#[derive(Clone, Copy, Debug, Default)]
struct Weather {
    loss: u32,
    twice: u32,
    /// A packet takes from 0 to so many ticks; packets may overtake each other.
    delay: u64,
    /// A write takes from 0 to so many ticks.
    disk: u64,
}

/// When it is synced, and its step's number.
type Writing = (u64, u64);

struct Member {
    identity: Identity,
    twin: Twin,
    replica: Option<Replica<Ledger>>,
    writing: Option<Writing>,
    lives: u64,
}

struct Flight {
    at: u64,
    order: u64,
    from: u64,
    to: u64,
    packet: Packet,
}

/// A read under way: what must be seen by it.
struct Asked {
    member: u64,
    life: u64,
    id: ReadId,
    acknowledged: BTreeSet<u64>,
}

struct Group {
    seed: u64,
    rng: SmallRng,
    weather: Weather,
    /// Whose writes take exactly so many ticks, whatever the weather.
    slow: BTreeMap<u64, u64>,
    settings: Settings,
    policy: Policy,
    members: BTreeMap<u64, Member>,
    flights: Vec<Flight>,
    cut: BTreeSet<(u64, u64)>,
    now: u64,
    order: u64,
    next_value: u64,
    /// Who led in which term.
    leaders: BTreeMap<u64, u64>,
    /// The longest sequence that was applied anywhere.
    truth: Vec<u64>,
    /// By ticket, the value; and what became of it.
    proposed: BTreeMap<Ticket, u64>,
    ends: BTreeMap<Ticket, Result<Done<usize>, Failed>>,
    acknowledged: BTreeSet<u64>,
    asked: Vec<Asked>,
    reads: Vec<Result<u64, Rejected>>,
    delivered: u64,
    /// Counts down with every small action of a member; at zero that member falls.
    fuse: Option<(u64, u64)>,
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
            weather: Weather::default(),
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
            fuse: None,
        };
        let members = Members {
            voters: (1..=size).collect(),
            ..Members::default()
        };
        for id in 1..=size {
            group.put(id);
            let write = bootstrap(members.clone(), &Ledger::default()).unwrap();
            let member = group.members.get_mut(&id).unwrap();
            member.twin.write(&write).unwrap();
            group.start(id);
        }
        group
    }

    /// An empty directory for a member; it is not started.
    fn put(&mut self, id: u64) {
        let identity = Identity { id, group: GROUP };
        let mut twin = Twin::default();
        twin.claim(identity).unwrap();
        let member = Member {
            identity,
            twin,
            replica: None,
            writing: None,
            lives: 0,
        };
        self.members.insert(id, member);
    }

    fn start(&mut self, id: u64) {
        let (settings, policy) = (self.settings.clone(), self.policy.clone());
        let member = self.members.get_mut(&id).unwrap();
        member.lives += 1;
        let rng = SmallRng::seed_from_u64(self.seed ^ (id << 32) ^ member.lives);
        let loaded = member.twin.load().unwrap();
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

    /// Power off: what was not synced is gone, and so is what was on its way from it.
    fn fall(&mut self, id: u64) {
        let member = self.members.get_mut(&id).unwrap();
        member.replica = None;
        member.writing = None;
        member.twin.fall();
        let life = member.lives;
        self.asked
            .retain(|asked| (asked.member, asked.life) != (id, life));
    }

    fn restart(&mut self, id: u64) {
        self.fall(id);
        self.start(id);
    }

    fn is_up(&self, id: u64) -> bool {
        self.members[&id].replica.is_some()
    }

    fn up(&self) -> Vec<u64> {
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

    /// The leader of the highest term, if one is up.
    fn leader(&self) -> Option<u64> {
        let leads = |id: &u64| self.status(*id).now.role == Role::Leader;
        self.up()
            .into_iter()
            .filter(leads)
            .max_by_key(|id| self.status(*id).now.term)
    }

    fn tick(&mut self) {
        self.now += 1;
        self.deliver();
        for id in self.up() {
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

    /// Ticks until this holds; it must within so many.
    fn until(&mut self, what: &str, max: u64, holds: impl Fn(&mut Self) -> bool) {
        for _ in 0..max {
            if holds(self) {
                return;
            }
            self.tick();
        }
        panic!("seed {}: not within {max} ticks: {what}", self.seed);
    }

    /// All faults end: every member is up, and the network and the disks are good.
    fn heal(&mut self) {
        self.weather = Weather::default();
        self.slow.clear();
        self.cut.clear();
        self.fuse = None;
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

    /// After the faults: progress, all alike, and nothing that was acknowledged is lost.
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

    /// Cuts these off from the rest, both ways.
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
