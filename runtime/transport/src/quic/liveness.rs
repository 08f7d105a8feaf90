//! Liveness: finds peers whose process has ended while their machine still answers.
//!
//! An idle link is silent, and QUIC notices a dead peer only after its idle timeout. So the side that accepted a link sends the peer's port
//! a probe of ten bytes every second. The kernel of the peer's machine refuses it when nothing has the port. Two such refusals, half a
//! second apart and nothing heard in between, close the link; only refusals that quote the link's token count, so that nobody else can
//! feign them. Any other refusal has the peer probed at once. A probe announces the next: when they stop coming, the side that dialled,
//! which otherwise sends none, probes in turn. Costs a datagram, some 2 us, for each link and second, and at most 10,000 a second: with
//! more links the interval grows. Never judges silence: that is the idle timeout's business.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::ops::Bound;
use std::sync::Weak;
use std::time::Duration;

use runtime::{Dialled, Instant, PROCESS_ENDED};

use super::socket::{Refusal, TOKEN, UdpSocket};
use super::{Closing, Linked, Shared};

/// Between two looks for refusals.
const TICK: Duration = Duration::from_millis(250);
/// Between two probes of one peer, unless there are too many.
const INTERVAL: Duration = Duration::from_secs(1);
/// Probes sent each second at most.
const PER_SECOND_MAX: u32 = 10_000;
/// A refusal counts as the second this long after the first, or later: a network may refuse all for a moment.
const APART: Duration = Duration::from_millis(500);
/// After this time it counts as the first again.
const FORGOTTEN: Duration = Duration::from_secs(5);

/// Between two probes of one of so many peers.
fn interval(peers: usize) -> Duration {
    let peers = u32::try_from(peers).unwrap_or(u32::MAX);
    INTERVAL.max(Duration::from_secs(1) * peers / PER_SECOND_MAX)
}

/// How many of so many peers are probed in one tick.
fn per_tick(peers: usize) -> usize {
    let share = interval(peers).as_millis().div_ceil(TICK.as_millis());
    peers.div_ceil(usize::try_from(share).unwrap_or(usize::MAX))
}

/// Whether the probes of a peer have stayed away, so that it must be probed in turn.
fn is_overdue((last, interval): (Instant, Duration), now: Instant) -> bool {
    now - last > interval * 3 / 2 + TICK
}

/// A peer whose machine has refused a probe.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Suspicion {
    since: Instant,
    /// Datagrams heard from it by then.
    heard: u64,
}

/// Whether a refusal shows that the peer's process has ended: nothing was heard from the peer since one that came before.
fn shows_the_end(suspicion: &mut Option<Suspicion>, now: Instant, heard: u64) -> bool {
    match *suspicion {
        Some(first) if first.heard == heard && now - first.since <= FORGOTTEN => {
            now - first.since >= APART
        }
        _ => {
            *suspicion = Some(Suspicion { since: now, heard });
            false
        }
    }
}

/// Whom to send a probe to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Target {
    to: SocketAddr,
    token: [u8; TOKEN],
}

impl Target {
    /// The address as the link's socket writes it.
    fn of(linked: &Linked) -> Self {
        Self {
            to: linked.connection.remote_address(),
            token: linked.probe_token,
        }
    }
}

/// Which peers are probed next: all of them once in each interval, in the order of their addresses.
#[derive(Default)]
struct Round {
    began: Option<Instant>,
    last: Option<SocketAddr>,
}

impl Round {
    /// The peers whose turn it is at this tick.
    fn next<'a, T>(
        &mut self,
        peers: &'a BTreeMap<SocketAddr, T>,
        now: Instant,
    ) -> impl Iterator<Item = &'a T> + use<'a, T> {
        let behind = |last: Option<SocketAddr>| {
            (
                last.map_or(Bound::Unbounded, Bound::Excluded),
                Bound::Unbounded,
            )
        };
        let is_over = self.last.is_none() || peers.range(behind(self.last)).next().is_none();
        let is_due = self
            .began
            .is_none_or(|began| now - began >= interval(peers.len()));
        let count = match (is_over, is_due) {
            (true, false) => 0,
            (false, _) | (true, true) => per_tick(peers.len()),
        };
        if is_over && is_due {
            (self.began, self.last) = (Some(now), None);
        }
        let turn = peers.range(behind(self.last)).take(count);
        self.last = turn.clone().last().map(|(at, _)| *at).or(self.last);
        turn.map(|(_, peer)| peer)
    }
}

/// Probes the peers of an endpoint until it is closed.
pub(super) async fn watch(shared: Weak<Shared>, socket: Weak<UdpSocket>) {
    let mut round = Round::default();
    loop {
        let Some(clock) = shared.upgrade().map(|shared| shared.node.clock().clone()) else {
            return;
        };
        clock.sleep(TICK).await;
        let (Some(shared), Some(socket)) = (shared.upgrade(), socket.upgrade()) else {
            return;
        };
        let now = clock.now();
        let refusals = socket.take_refusals();
        let suspected = refusals
            .into_iter()
            .filter_map(|refusal| shared.refused(refusal, now));
        let suspected: Vec<Target> = suspected.collect();
        let interval = interval(shared.state().linked.len());
        for target in suspected
            .into_iter()
            .chain(shared.next_accepted(&mut round, now))
            .chain(shared.overdue_dialled(&socket, now))
        {
            socket.probe(target.to, target.token, interval);
        }
    }
}

impl Shared {
    /// A datagram was refused. Ends the link if that shows that its peer's process has ended, and says otherwise whom to probe for more.
    fn refused(&self, refusal: Refusal, now: Instant) -> Option<Target> {
        let address = refusal.address;
        let mut state = self.state();
        let linked = state.linked.get_mut(&address)?;
        let heard = linked.connection.stats().udp_rx.datagrams;
        let is_certain = refusal.token == Some(linked.probe_token)
            && shows_the_end(&mut linked.suspicion, now, heard);
        if !is_certain {
            return Some(Target::of(linked));
        }
        tracing::info!(peer = %linked.peer.node, %address, "port closed, ending the link");
        linked.is_refused = true;
        let connection = linked.connection.clone();
        drop(state);
        connection.close(Closing::Farewell.code(), PROCESS_ENDED.as_bytes());
        None
    }

    /// Whether this connection was closed because its peer's port is.
    pub(super) fn is_refused(&self, address: SocketAddr, connection: &quinn::Connection) -> bool {
        let state = self.state();
        state.linked.get(&address).is_some_and(|linked| {
            linked.is_refused && linked.connection.stable_id() == connection.stable_id()
        })
    }

    /// The next peers whose links were accepted here.
    fn next_accepted(&self, round: &mut Round, now: Instant) -> Vec<Target> {
        let state = self.state();
        let turn = round.next(&state.linked, now);
        let accepted = turn.filter(|linked| linked.dialled == Dialled::ByThem);
        accepted.map(Target::of).collect()
    }

    /// The peers that this side dialled, which are few, and whose own probes have stopped coming.
    fn overdue_dialled(&self, socket: &UdpSocket, now: Instant) -> Vec<Target> {
        let state = self.state();
        let overdue = state.linked.iter().filter(|(address, linked)| {
            let last = socket.last_probe(**address);
            linked.dialled == Dialled::ByUs && last.is_some_and(|last| is_overdue(last, now))
        });
        overdue.map(|(_, linked)| Target::of(linked)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn probes_are_bounded_however_many_peers_there_are() {
        for (peers, seconds) in [(0, 1), (1, 1), (10_000, 1), (50_000, 5), (100_000, 10)] {
            assert_eq!(interval(peers), Duration::from_secs(seconds), "{peers}");
            assert!(per_tick(peers) <= 2500, "{peers}: {}", per_tick(peers));
            let ticks = u32::try_from(seconds).unwrap() * 4;
            assert!(per_tick(peers) * ticks as usize >= peers, "{peers}");
        }
    }

    #[test]
    fn every_peer_is_probed_once_in_each_interval() {
        for count in [1_u16, 2, 4, 5, 9] {
            let address = |port| SocketAddr::from(([127, 0, 0, 1], port));
            let peers: BTreeMap<_, _> = (1..=count).map(|port| (address(port), port)).collect();
            let mut round = Round::default();
            let mut times: BTreeMap<u16, Vec<u32>> = BTreeMap::new();
            for tick in 0..40 {
                let now = Instant::default() + TICK * tick;
                for port in round.next(&peers, now) {
                    times.entry(*port).or_default().push(tick);
                }
            }
            assert_eq!(times.len(), usize::from(count));
            for times in times.values() {
                let apart = times.windows(2).map(|pair| pair[1] - pair[0]);
                assert!(apart.clone().all(|ticks| ticks == 4), "{count}: {times:?}");
                assert_eq!(times.len(), 10);
            }
        }
    }

    #[test]
    fn a_link_ends_at_the_second_refusal_in_silence() {
        let at = |millis| Instant::default() + Duration::from_millis(millis);
        let mut suspicion = None;
        let mut refused = |millis, heard| shows_the_end(&mut suspicion, at(millis), heard);
        assert!(!refused(0, 7));
        assert!(!refused(499, 7), "too soon");
        assert!(refused(500, 7));
        assert!(!refused(600, 8), "it lives");
        assert!(!refused(5601, 8), "too late");
        assert!(refused(6101, 8));
    }

    #[test]
    fn probes_that_stay_away_are_answered_by_own_ones() {
        let start = Instant::default();
        let last = (start, Duration::from_secs(1));
        assert!(!is_overdue(last, start + Duration::from_millis(1750)));
        assert!(is_overdue(last, start + Duration::from_millis(1751)));
    }
}
