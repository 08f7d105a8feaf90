//! Where the other members are, and how they are reached now.
//!
//! Remembers an address and a pid for each, and when one that could not be reached is looked for again: soon at first, then more
//! and more rarely, and never all at the same moment. Pure: time is counted in ticks, chance is handed in, and whoever calls it does
//! the looking.

use std::collections::BTreeMap;

use rand::Rng;
use runtime::Pid;

use super::roster::Roster;
use super::settings::is_address;
use crate::wire::MEMBERS_MAX;

/// The longest pause between two attempts, in ticks.
const PAUSE_MAX: u64 = 20;
/// Members, and those that were some.
const PEERS_MAX: usize = 4 * MEMBERS_MAX;

#[derive(Debug)]
struct Peer {
    /// From where it says it speaks.
    heard: Option<String>,
    way: Way,
    wanted: bool,
    attempts: u32,
    /// The newest form of operations that it reads, as it said since it was last lost.
    reads: Option<u16>,
}

#[derive(Debug, PartialEq)]
enum Way {
    /// Not before this tick.
    Lost(u64),
    Looking,
    Found(Pid),
}

/// The other members.
#[derive(Debug, Default)]
pub(super) struct Peers {
    table: BTreeMap<u64, Peer>,
}

impl Peers {
    fn peer(&mut self, id: u64) -> Option<&mut Peer> {
        if !self.table.contains_key(&id) && self.table.len() >= PEERS_MAX {
            return None;
        }
        Some(self.table.entry(id).or_insert(Peer {
            heard: None,
            way: Way::Lost(0),
            wanted: false,
            attempts: 0,
            reads: None,
        }))
    }

    /// It spoke, from this address. One that was given up for now is looked for at once.
    pub fn heard(&mut self, id: u64, address: &str) {
        let Some(peer) = self.peer(id).filter(|_| is_address(address)) else {
            return;
        };
        if peer.heard.as_deref() != Some(address) {
            peer.heard = Some(address.to_owned());
        }
        if let Way::Lost(at) = &mut peer.way {
            *at = 0;
        }
    }

    /// From where it spoke last.
    pub fn heard_at(&self, id: u64) -> Option<&str> {
        self.table.get(&id)?.heard.as_deref()
    }

    /// It reads forms of operations up to this one.
    pub fn reads(&mut self, id: u64, form: u16) {
        if let Some(peer) = self.peer(id) {
            peer.reads = Some(form);
        }
    }

    /// What those read that are here, each as it said.
    pub fn forms(&self) -> BTreeMap<u64, u16> {
        let peers = self.table.iter();
        let here = peers.filter(|(_, peer)| matches!(peer.way, Way::Found(_)));
        here.filter_map(|(id, peer)| Some((*id, peer.reads?)))
            .collect()
    }

    /// These are looked for, before there is anything to say: a vote that waits for a link comes too late.
    pub fn want(&mut self, ids: impl Iterator<Item = u64>) {
        for id in ids {
            if let Some(peer) = self.peer(id) {
                peer.wanted = true;
            }
        }
    }

    /// How it is reached now. If it is not, it will be looked for.
    pub fn way_to(&mut self, id: u64) -> Option<Pid> {
        let peer = self.peer(id)?;
        peer.wanted = true;
        match &peer.way {
            Way::Found(pid) => Some(pid.clone()),
            _ => None,
        }
    }

    /// How it is reached now.
    pub fn pid(&self, id: u64) -> Option<&Pid> {
        match &self.table.get(&id)?.way {
            Way::Found(pid) => Some(pid),
            _ => None,
        }
    }

    /// Who is to be looked for now, and where.
    pub fn due(&mut self, now: u64, roster: &Roster) -> Vec<(u64, String)> {
        let mut due = Vec::new();
        for (id, peer) in &mut self.table {
            // Where it speaks from is newer than where it was said to be.
            let address = peer.heard.as_deref().or_else(|| roster.address(*id));
            if let (true, Way::Lost(at), Some(address)) = (peer.wanted, &peer.way, address)
                && *at <= now
            {
                due.push((*id, address.to_owned()));
                peer.way = Way::Looking;
            }
        }
        due
    }

    /// It is here.
    pub fn found(&mut self, id: u64, pid: Pid) {
        if let Some(peer) = self.peer(id) {
            peer.way = Way::Found(pid);
        }
    }

    /// It was not found. What it said of its address may be old: the roster's counts again.
    pub fn missed(&mut self, id: u64, now: u64, rng: &mut impl Rng) {
        if let Some(peer) = self.table.get_mut(&id) {
            peer.attempts = peer.attempts.saturating_add(1);
            peer.heard = None;
            peer.wanted = false;
            peer.way = Way::Lost(now + pause(peer.attempts, rng));
        }
    }

    /// Whoever had this pid is gone: which member that was.
    pub fn lost(&mut self, pid: &Pid, now: u64, rng: &mut impl Rng) -> Option<u64> {
        let (id, peer) = self
            .table
            .iter_mut()
            .find(|(_, peer)| matches!(&peer.way, Way::Found(known) if known == pid))?;
        peer.attempts = 1;
        peer.way = Way::Lost(now + pause(1, rng));
        // It may come back as another version.
        peer.reads = None;
        Some(*id)
    }

    /// What was said was taken: it is well.
    pub fn told(&mut self, id: u64) {
        if let Some(peer) = self.table.get_mut(&id) {
            peer.attempts = 0;
        }
    }
}

/// So many ticks, half of them by chance.
fn pause(attempts: u32, rng: &mut impl Rng) -> u64 {
    let longest = (2_u64 << attempts.min(10)).min(PAUSE_MAX);
    rng.random_range(longest / 2..=longest)
}

#[cfg(test)]
mod tests {
    use rand::SeedableRng;
    use rand::rngs::SmallRng;

    use super::*;

    fn roster() -> Roster {
        Roster::founding(&["a".to_owned(), "b".to_owned()])
    }

    #[test]
    fn one_is_looked_for_when_it_is_wanted_and_by_one_at_a_time() {
        let mut peers = Peers::default();
        assert!(peers.due(1, &roster()).is_empty());
        assert_eq!(peers.way_to(2), None);
        assert_eq!(peers.due(1, &roster()), [(2, "b".to_owned())]);
        assert!(peers.due(1, &roster()).is_empty());
    }

    #[test]
    fn pauses_grow_to_their_bound_and_a_word_from_the_peer_ends_them() {
        let mut rng = SmallRng::seed_from_u64(1);
        for attempts in 1..100 {
            let pause = pause(attempts, &mut rng);
            assert!((1..=PAUSE_MAX).contains(&pause));
            assert!(attempts < 5 || pause >= PAUSE_MAX / 2);
        }
        let mut peers = Peers::default();
        peers.way_to(2);
        peers.due(1, &roster());
        for _ in 0..10 {
            peers.missed(2, 1, &mut rng);
        }
        peers.way_to(2);
        assert!(peers.due(2, &roster()).is_empty());
        peers.heard(2, "b2");
        assert_eq!(peers.due(2, &roster()), [(2, "b2".to_owned())]);
    }
}
