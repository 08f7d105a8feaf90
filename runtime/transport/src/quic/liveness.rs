//! Liveness: finds peers whose process has ended while their machine still answers.
//!
//! An idle link is silent, and QUIC notices a dead peer only after its idle timeout. So the side that accepted a link sends the peer's port
//! a probe of two bytes every second. The kernel of the peer's machine refuses it when nothing has the port; refused twice in a row, the
//! link is closed. A probe names its interval: the side that dialled, which otherwise sends none, probes in turn when they stay away.
//! Remembers whose turn it is. Costs a datagram, some 2 us, for each link and second, and at most 10,000 a second: with more links the
//! interval grows. Never judges silence: that is the idle timeout's business.

use std::net::SocketAddr;
use std::ops::Bound;
use std::sync::{Arc, Weak};
use std::time::Duration;

use runtime::{Dialled, Instant, PROCESS_ENDED};

use super::socket::UdpSocket;
use super::{Closing, Shared};

/// Between two looks for refusals.
const TICK: Duration = Duration::from_millis(250);
/// Between two probes of one peer, unless there are too many.
const INTERVAL: Duration = Duration::from_secs(1);
/// Probes sent each second at most.
const PER_SECOND_MAX: u32 = 10_000;
/// Two refusals within this time are in a row.
const IN_A_ROW: Duration = Duration::from_secs(5);

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

/// Probes the peers of an endpoint until it is closed.
pub(super) async fn watch(shared: Weak<Shared>, socket: Weak<UdpSocket>) {
    let mut cursor = None;
    loop {
        let Some(clock) = shared.upgrade().map(|shared| shared.node.clock().clone()) else {
            return;
        };
        clock.sleep(TICK).await;
        let (Some(shared), Some(socket)) = (shared.upgrade(), socket.upgrade()) else {
            return;
        };
        for address in socket.take_refusals() {
            if shared.refused(address) == Refused::Once
                && let Some(to) = shared.route_to(address)
            {
                socket.probe(to, INTERVAL);
            }
        }
        let now = shared.node.clock().now();
        probe_accepted(&shared, &socket, &mut cursor);
        for (address, to) in shared.dialled_peers() {
            if socket
                .last_probe(address)
                .is_some_and(|last| is_overdue(last, now))
            {
                socket.probe(to, INTERVAL);
            }
        }
    }
}

/// Probes the next peers whose links were accepted here.
fn probe_accepted(shared: &Arc<Shared>, socket: &UdpSocket, cursor: &mut Option<SocketAddr>) {
    let state = shared.state();
    let peers = state.linked.len();
    let interval = interval(peers);
    let after = cursor.map_or(Bound::Unbounded, Bound::Excluded);
    let mut last = None;
    for (address, linked) in state
        .linked
        .range((after, Bound::Unbounded))
        .take(per_tick(peers))
    {
        if linked.dialled == Dialled::ByThem {
            socket.probe(linked.connection.remote_address(), interval);
        }
        last = Some(*address);
    }
    // Behind the last one the first is next, in the next tick.
    *cursor = last;
}

/// What a refusal means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Refused {
    /// No link goes there, or it has been closed.
    Settled,
    /// It may be a late answer to a former process.
    Once,
}

impl Shared {
    /// A datagram to this address was refused. The second in a row closes its link.
    fn refused(&self, address: SocketAddr) -> Refused {
        let now = self.node.clock().now();
        let mut state = self.state();
        let Some(linked) = state.linked.get_mut(&address) else {
            return Refused::Settled;
        };
        match linked.refused.replace(now) {
            Some(before) if now - before <= IN_A_ROW => {
                tracing::info!(peer = %linked.peer.node, %address, "port closed, ending the link");
                linked.is_refused = true;
                let connection = linked.connection.clone();
                drop(state);
                connection.close(Closing::Farewell.code(), PROCESS_ENDED.as_bytes());
                Refused::Settled
            }
            _ => Refused::Once,
        }
    }

    /// Whether this connection was closed because its peer's port is.
    pub(super) fn is_refused(&self, address: SocketAddr, connection: &quinn::Connection) -> bool {
        let state = self.state();
        state.linked.get(&address).is_some_and(|linked| {
            linked.is_refused && linked.connection.stable_id() == connection.stable_id()
        })
    }

    /// The address of a link as its socket writes it.
    fn route_to(&self, address: SocketAddr) -> Option<SocketAddr> {
        let state = self.state();
        let linked = state.linked.get(&address)?;
        Some(linked.connection.remote_address())
    }

    /// The peers that this side dialled: few.
    fn dialled_peers(&self) -> Vec<(SocketAddr, SocketAddr)> {
        let state = self.state();
        let dialled = state
            .linked
            .iter()
            .filter(|(_, linked)| linked.dialled == Dialled::ByUs);
        dialled
            .map(|(address, linked)| (*address, linked.connection.remote_address()))
            .collect()
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
    fn probes_that_stay_away_are_answered_by_own_ones() {
        let start = Instant::default();
        let last = (start, Duration::from_secs(1));
        assert!(!is_overdue(last, start + Duration::from_millis(1750)));
        assert!(is_overdue(last, start + Duration::from_millis(1751)));
    }
}
