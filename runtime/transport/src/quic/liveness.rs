//! Liveness: finds peers whose process has ended while their machine still answers.
//!
//! An idle link is silent, and QUIC notices a dead peer only after its idle timeout. Therefore the
//! accepting side sends a probe of ten bytes to the peer's port every second. The kernel of the
//! peer's machine refuses it when no socket has the port. Two refusals, at least half a second
//! apart and without a datagram between them, close the link. Only refusals that quote the link's
//! token count, so that nobody else can forge them; any other refusal triggers a probe at once.
//!
//! A probe announces the time of the next one. When they stop, the dialling side, which otherwise
//! sends none, probes in turn. The cost is one datagram, about 2 us, per link and second, at most
//! 10,000 a second: with more links the interval grows. Silence alone never closes a link here; the
//! idle timeout does.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::ops::Bound;
use std::sync::Weak;
use std::time::Duration;

use runtime::{Dialled, Instant, PROCESS_ENDED};

use super::socket::{Refusal, TOKEN, UdpSocket};
use super::{Closing, Linked, Shared};

/// Interval between two reads of refusals.
const TICK: Duration = Duration::from_millis(250);
/// Interval between two probes of one peer, unless there are too many peers.
const INTERVAL: Duration = Duration::from_secs(1);
/// Maximum probes per second.
const PER_SECOND_MAX: u32 = 10_000;
/// Minimum time between the first and the second refusal: a network may refuse everything for a
/// moment.
const REFUSALS_APART_MIN: Duration = Duration::from_millis(500);
/// A refusal that is older than this no longer counts as the first.
const SUSPICION_MAX: Duration = Duration::from_secs(5);

/// Interval between two probes of one peer, with this number of peers.
fn interval(peers: usize) -> Duration {
    let peers = u32::try_from(peers).unwrap_or(u32::MAX);
    INTERVAL.max(Duration::from_secs(1) * peers / PER_SECOND_MAX)
}

/// Number of peers to probe in one tick.
fn per_tick(peers: usize) -> usize {
    let share = interval(peers).as_millis().div_ceil(TICK.as_millis());
    peers.div_ceil(usize::try_from(share).unwrap_or(usize::MAX))
}

/// Whether the probes of a peer have stopped, so that this side must probe.
fn is_overdue((last, interval): (Instant, Duration), now: Instant) -> bool {
    now - last > interval * 3 / 2 + TICK
}

/// A first refusal by a peer's machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Suspicion {
    since: Instant,
    /// Datagrams received from the peer until then.
    received: u64,
}

/// Whether this refusal proves that the peer's process has ended: no datagram has arrived since an
/// earlier refusal.
fn proves_the_end(suspicion: &mut Option<Suspicion>, now: Instant, received: u64) -> bool {
    match *suspicion {
        Some(first) if first.received == received && now - first.since <= SUSPICION_MAX => {
            now - first.since >= REFUSALS_APART_MIN
        }
        _ => {
            *suspicion = Some(Suspicion {
                since: now,
                received,
            });
            false
        }
    }
}

/// The receiver of a probe.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Target {
    to: SocketAddr,
    token: [u8; TOKEN],
}

impl Target {
    /// The address in the form of the link's socket.
    fn of(linked: &Linked) -> Self {
        Self {
            to: linked.connection.remote_address(),
            token: linked.probe_token,
        }
    }
}

/// The round over all peers, once per interval, in the order of their addresses.
#[derive(Default)]
struct Round {
    began: Option<Instant>,
    last: Option<SocketAddr>,
}

impl Round {
    /// The peers to probe at this tick.
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
    /// Handles a refused datagram: ends the link if the peer's process has ended, otherwise returns
    /// the peer to probe.
    fn refused(&self, refusal: Refusal, now: Instant) -> Option<Target> {
        let address = refusal.address;
        let mut state = self.state();
        let linked = state.linked.get_mut(&address)?;
        let received = linked.connection.stats().udp_rx.datagrams;
        let is_certain = refusal.token == Some(linked.probe_token)
            && proves_the_end(&mut linked.suspicion, now, received);
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

    /// Whether this connection was closed because its peer's port is closed.
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

    /// The peers that this side dialled (they are few) whose own probes have stopped.
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
    fn probe_rate_is_bounded() {
        for (peers, seconds) in [(0, 1), (1, 1), (10_000, 1), (50_000, 5), (100_000, 10)] {
            assert_eq!(interval(peers), Duration::from_secs(seconds), "{peers}");
            assert!(per_tick(peers) <= 2500, "{peers}: {}", per_tick(peers));
            let ticks = u32::try_from(seconds).unwrap() * 4;
            assert!(per_tick(peers) * ticks as usize >= peers, "{peers}");
        }
    }

    #[test]
    fn every_peer_is_probed_once_per_interval() {
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
    fn second_refusal_in_silence_ends_the_link() {
        let at = |millis| Instant::default() + Duration::from_millis(millis);
        let mut suspicion = None;
        let mut refused = |millis, received| proves_the_end(&mut suspicion, at(millis), received);
        assert!(!refused(0, 7));
        assert!(!refused(499, 7), "too soon");
        assert!(refused(500, 7));
        assert!(!refused(600, 8), "it lives");
        assert!(!refused(5601, 8), "too late");
        assert!(refused(6101, 8));
    }

    #[test]
    fn overdue_probes_make_the_dialler_probe() {
        let start = Instant::default();
        let last = (start, Duration::from_secs(1));
        assert!(!is_overdue(last, start + Duration::from_millis(1750)));
        assert!(is_overdue(last, start + Duration::from_millis(1751)));
    }
}
