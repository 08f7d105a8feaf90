//! Addresses and links of the other members.
//!
//! Holds an address and a pid for each peer, and the time of the next search for an unreachable
//! one: exponential backoff with jitter. Pure: time is in ticks, randomness is an argument, and the
//! caller does the search.

use std::collections::BTreeMap;

use rand::Rng;
use runtime::Pid;

use super::address_book::AddressBook;
use super::settings::is_address;
use crate::wire::MEMBERS_MAX;

/// The longest pause between two searches, in ticks.
const PAUSE_MAX: u64 = 20;
/// Members, and former members.
const PEERS_MAX: usize = 4 * MEMBERS_MAX;

#[derive(Debug)]
struct Peer {
    /// The address in its newest packet.
    last_address: Option<String>,
    link: PeerLink,
    wanted: bool,
    attempts: u32,
    /// The newest operation format that it reads, as reported since its last disconnection.
    reads: Option<u16>,
}

#[derive(Debug, PartialEq)]
enum PeerLink {
    /// Not linked; searched for from this tick on.
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
            last_address: None,
            link: PeerLink::Lost(0),
            wanted: false,
            attempts: 0,
            reads: None,
        }))
    }

    /// Records a packet from this address. A peer in backoff is searched for at once.
    pub fn packet_received(&mut self, id: u64, address: &str) {
        let Some(peer) = self.peer(id).filter(|_| is_address(address)) else {
            return;
        };
        if peer.last_address.as_deref() != Some(address) {
            peer.last_address = Some(address.to_owned());
        }
        if let PeerLink::Lost(at) = &mut peer.link {
            *at = 0;
        }
    }

    /// The address of its newest packet.
    pub fn sent_from(&self, id: u64) -> Option<&str> {
        self.table.get(&id)?.last_address.as_deref()
    }

    /// Records the newest operation format that it reads.
    pub fn reads(&mut self, id: u64, format: u16) {
        if let Some(peer) = self.peer(id) {
            peer.reads = Some(format);
        }
    }

    /// The newest format of each linked peer, as reported.
    pub fn formats(&self) -> BTreeMap<u64, u16> {
        let peers = self.table.iter();
        let here = peers.filter(|(_, peer)| matches!(peer.link, PeerLink::Found(_)));
        here.filter_map(|(id, peer)| Some((*id, peer.reads?)))
            .collect()
    }

    /// Marks peers to search for before there are packets for them: a vote that waits for a link
    /// comes too late.
    pub fn want(&mut self, ids: impl Iterator<Item = u64>) {
        for id in ids {
            if let Some(peer) = self.peer(id) {
                peer.wanted = true;
            }
        }
    }

    /// The pid of a linked peer. A peer that is not linked will be searched for.
    pub fn pid_to_send(&mut self, id: u64) -> Option<Pid> {
        let peer = self.peer(id)?;
        peer.wanted = true;
        match &peer.link {
            PeerLink::Found(pid) => Some(pid.clone()),
            _ => None,
        }
    }

    /// The pid of a linked peer.
    pub fn pid(&self, id: u64) -> Option<&Pid> {
        match &self.table.get(&id)?.link {
            PeerLink::Found(pid) => Some(pid),
            _ => None,
        }
    }

    /// The peers to search for now, with their addresses.
    pub fn due(&mut self, now: u64, address_book: &AddressBook) -> Vec<(u64, String)> {
        let mut due = Vec::new();
        for (id, peer) in &mut self.table {
            // The address of its own packets is newer than the one in the address book.
            let address = peer
                .last_address
                .as_deref()
                .or_else(|| address_book.address(*id));
            if let (true, PeerLink::Lost(at), Some(address)) = (peer.wanted, &peer.link, address)
                && *at <= now
            {
                due.push((*id, address.to_owned()));
                peer.link = PeerLink::Looking;
            }
        }
        due
    }

    /// Records a found peer.
    pub fn found(&mut self, id: u64, pid: Pid) {
        if let Some(peer) = self.peer(id) {
            peer.link = PeerLink::Found(pid);
        }
    }

    /// Records a failed search. The reported address may be old, so the next search uses the
    /// address book's.
    pub fn missed(&mut self, id: u64, now: u64, rng: &mut impl Rng) {
        if let Some(peer) = self.table.get_mut(&id) {
            peer.attempts = peer.attempts.saturating_add(1);
            peer.last_address = None;
            peer.wanted = false;
            peer.link = PeerLink::Lost(now + pause(peer.attempts, rng));
        }
    }

    /// Records the end of this pid. Returns the member's id.
    pub fn lost(&mut self, pid: &Pid, now: u64, rng: &mut impl Rng) -> Option<u64> {
        let (id, peer) = self
            .table
            .iter_mut()
            .find(|(_, peer)| matches!(&peer.link, PeerLink::Found(known) if known == pid))?;
        peer.attempts = 1;
        peer.link = PeerLink::Lost(now + pause(1, rng));
        // It may return with another version.
        peer.reads = None;
        Some(*id)
    }

    /// Records a successful send: resets the backoff.
    pub fn sent_ok(&mut self, id: u64) {
        if let Some(peer) = self.table.get_mut(&id) {
            peer.attempts = 0;
        }
    }
}

/// The pause in ticks; half of it is jitter.
fn pause(attempts: u32, rng: &mut impl Rng) -> u64 {
    let longest = (2_u64 << attempts.min(10)).min(PAUSE_MAX);
    rng.random_range(longest / 2..=longest)
}

#[cfg(test)]
mod tests {
    use rand::SeedableRng;
    use rand::rngs::SmallRng;

    use super::*;

    fn address_book() -> AddressBook {
        AddressBook::founding(&["a".to_owned(), "b".to_owned()])
    }

    #[test]
    fn wanted_peer_has_one_search_at_a_time() {
        let mut peers = Peers::default();
        assert!(peers.due(1, &address_book()).is_empty());
        assert_eq!(peers.pid_to_send(2), None);
        assert_eq!(peers.due(1, &address_book()), [(2, "b".to_owned())]);
        assert!(peers.due(1, &address_book()).is_empty());
    }

    #[test]
    fn packet_ends_the_backoff() {
        let mut rng = SmallRng::seed_from_u64(1);
        for attempts in 1..100 {
            let pause = pause(attempts, &mut rng);
            assert!((1..=PAUSE_MAX).contains(&pause));
            assert!(attempts < 5 || pause >= PAUSE_MAX / 2);
        }
        let mut peers = Peers::default();
        peers.pid_to_send(2);
        peers.due(1, &address_book());
        for _ in 0..10 {
            peers.missed(2, 1, &mut rng);
        }
        peers.pid_to_send(2);
        assert!(peers.due(2, &address_book()).is_empty());
        peers.packet_received(2, "b2");
        assert_eq!(peers.due(2, &address_book()), [(2, "b2".to_owned())]);
    }
}
