//! A whole group in one thread, for tests: a network that loses, delays, doubles and divides; disks that forget; and checks that
//! look on from outside. One seed, one run.

mod faults;
mod hostile;
mod laws;
mod ledger;
mod life;
mod membership;
mod snapshots;
mod twin;

use std::collections::{BTreeMap, BTreeSet};

use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};

use self::ledger::Ledger;
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

struct Member {
    identity: Identity,
    twin: Twin,
    replica: Option<Replica<Ledger>>,
    /// A write under way: when it is synced, its step's number and what is to be sent after it.
    writing: Option<(u64, u64, Vec<(u64, Packet)>)>,
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
            let write = bootstrap(members.clone(), &Ledger::default());
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

    fn send(&mut self, from: u64, packets: Vec<(u64, Packet)>) {
        for (to, packet) in packets {
            if self.fell(from) {
                return;
            }
            // What cannot be encoded and read again would not survive a real wire.
            let bytes = runtime::codec::encode(&packet).unwrap();
            let packet: Packet = runtime::codec::decode(&bytes).unwrap();
            let copies = 1 + u32::from(self.rng.random_range(0..100) < self.weather.twice);
            for _ in 0..copies {
                if self.cut.contains(&(from, to))
                    || self.rng.random_range(0..100) < self.weather.loss
                {
                    continue;
                }
                let at = self.now + self.rng.random_range(0..=self.weather.delay);
                self.order += 1;
                self.flights.push(Flight {
                    at,
                    order: self.order,
                    from,
                    to,
                    packet: packet.clone(),
                });
            }
        }
    }

    /// One of a member's small actions is done; whether it has fallen by it.
    fn fell(&mut self, id: u64) -> bool {
        if let Some((who, left)) = &mut self.fuse
            && *who == id
        {
            *left = left.saturating_sub(1);
            if *left == 0 {
                self.fuse = None;
                self.fall(id);
                return true;
            }
        }
        false
    }

    /// Everything this member can do now.
    fn pump(&mut self, id: u64) {
        loop {
            if !self.is_up(id) {
                return;
            }
            if let Some((at, ..)) = self.members[&id].writing {
                if at > self.now {
                    // The disk is slow: turns wait, but answers that need no turn may come.
                    assert!(
                        self.replica(id)
                            .turn()
                            .unwrap()
                            .is_none_or(|step| step.write.is_none() && step.now.is_empty())
                    );
                    return;
                }
                if self.fell(id) {
                    return;
                }
                let member = self.members.get_mut(&id).unwrap();
                let (_, number, after) = member.writing.take().unwrap();
                member.twin.sync();
                if self.fell(id) {
                    return;
                }
                self.replica(id).persisted(number);
                self.send(id, after);
                if !self.is_up(id) {
                    return;
                }
            }
            let Some(step) = self.replica(id).turn().unwrap() else {
                return;
            };
            if self.fell(id) {
                return;
            }
            self.carry_out(id, step);
        }
    }

    fn carry_out(&mut self, id: u64, step: Step<usize>) {
        self.send(id, step.now);
        if !self.is_up(id) {
            return;
        }
        if let Some(write) = step.write {
            let at = self.now + self.rng.random_range(0..=self.weather.disk);
            let member = self.members.get_mut(&id).unwrap();
            member.twin.buffer(write);
            member.writing = Some((at, step.number, step.after));
        } else {
            assert!(step.after.is_empty());
        }
        for (ticket, end) in step.answers {
            if let (Ok(Done::Applied { .. } | Done::Before { .. }), Some(value)) =
                (&end, self.proposed.get(&ticket))
            {
                self.acknowledged.insert(*value);
            }
            let before = self.ends.insert(ticket, end);
            let may_change = matches!(before, None | Some(Err(_)));
            assert!(may_change, "{ticket:?} is answered twice");
        }
        for (read, answer) in step.reads {
            let at = self
                .asked
                .iter()
                .position(|asked| (asked.member, asked.id) == (id, read));
            let asked = self.asked.swap_remove(at.unwrap());
            if answer.is_ok() {
                let seen: BTreeSet<u64> =
                    self.replica(id).machine().values.iter().copied().collect();
                assert!(
                    asked.acknowledged.is_subset(&seen),
                    "a read at {id} misses what was acknowledged before it"
                );
            }
            self.reads.push(answer);
        }
        if let Some(role) = step.role.filter(|role| role.role == Role::Leader) {
            let leader = *self.leaders.entry(role.term).or_insert(id);
            assert_eq!(leader, id, "two leaders in term {}", role.term);
        }
        if let Some(compaction) = step.compaction {
            let member = self.members.get_mut(&id).unwrap();
            // Where a write is on its way this comes before it, as it would in a disk's queue.
            member
                .twin
                .compact(&compaction.snapshot, compaction.keep_from)
                .unwrap();
            self.replica(id).compacted(compaction);
        }
        self.compare(id);
    }

    /// What a member has applied is the beginning of what all have.
    fn compare(&mut self, id: u64) {
        let values = &self.members[&id].replica.as_ref().unwrap().machine().values;
        let common = values.len().min(self.truth.len());
        assert_eq!(
            values[..common],
            self.truth[..common],
            "member {id} differs"
        );
        if values.len() > common {
            let more: Vec<u64> = values[common..].to_vec();
            for value in more {
                assert!(!self.truth.contains(&value), "{value} is applied twice");
                self.truth.push(value);
            }
        }
    }

    fn deliver(&mut self) {
        loop {
            let due = self
                .flights
                .iter()
                .enumerate()
                .filter(|(_, flight)| flight.at <= self.now);
            let Some((at, _)) = due.min_by_key(|(_, flight)| (flight.at, flight.order)) else {
                return;
            };
            let flight = self.flights.remove(at);
            if !self.members.contains_key(&flight.to)
                || !self.is_up(flight.to)
                || self.cut.contains(&(flight.from, flight.to))
            {
                continue;
            }
            self.delivered += 1;
            // What is refused here is of use to nobody; a contradiction would be a fault of ours.
            let refused = self.replica(flight.to).step(flight.from, flight.packet);
            if let Err(error) = refused {
                assert!(
                    matches!(error, crate::wire::Refused::Useless { .. }),
                    "seed {}: {error}",
                    self.seed
                );
            }
            self.pump(flight.to);
        }
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

    fn elect(&mut self) -> u64 {
        self.until("a leader", 200, |group| group.leader().is_some());
        self.leader().unwrap()
    }

    /// Proposes a new value at this member, which may not lead.
    fn propose(&mut self, id: u64) -> Result<(Ticket, u64), Rejected> {
        self.propose_large(id, 0)
    }

    fn propose_large(&mut self, id: u64, bytes: usize) -> Result<(Ticket, u64), Rejected> {
        let value = self.next_value;
        self.next_value += 1;
        let ticket = self.replica(id).propose(&(value, vec![3; bytes]))?;
        self.proposed.insert(ticket, value);
        Ok((ticket, value))
    }

    fn read(&mut self, id: u64) {
        let acknowledged = self.acknowledged.clone();
        let life = self.members[&id].lives;
        if let Ok(read) = self.replica(id).read() {
            self.asked.push(Asked {
                member: id,
                life,
                id: read,
                acknowledged,
            });
        }
    }

    /// So many new values, each acknowledged.
    fn commit(&mut self, count: usize) {
        for _ in 0..count {
            self.commit_one();
        }
    }

    fn commit_one(&mut self) -> u64 {
        for _ in 0..50 {
            let leader = self.elect();
            let Ok((ticket, value)) = self.propose(leader) else {
                self.tick();
                continue;
            };
            self.pump(leader);
            for _ in 0..400 {
                match self.ends.get(&ticket) {
                    Some(Ok(_)) => return value,
                    Some(Err(_)) => break,
                    None if !self.is_up(leader) => break,
                    None => self.tick(),
                }
            }
        }
        panic!("seed {}: nothing can be committed", self.seed);
    }

    fn change(&mut self, change: MembershipChange) {
        for _ in 0..100 {
            let leader = self.elect();
            match self.replica(leader).change(&change) {
                Ok(ticket) => {
                    self.pump(leader);
                    self.until("the change of members", 400, |group| {
                        group.ends.contains_key(&ticket)
                    });
                    assert!(
                        matches!(self.ends[&ticket], Ok(Done::Members { .. })),
                        "{:?}",
                        self.ends[&ticket]
                    );
                    return;
                }
                Err(_) => self.ticks(3),
            }
        }
        panic!("seed {}: {change:?} is never allowed", self.seed);
    }

    /// All faults end: every member is up, and the network and the disks are good.
    fn heal(&mut self) {
        self.weather = Weather::default();
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
            group
                .up()
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
