//! The sources of connections, and the rule that chooses which connection is evicted.
//!
//! Pure: the open connections are passed in. A source is an IPv4 address or an IPv6 /64 network,
//! since one machine owns all of a /64. The source with the most connections is evicted first, so a
//! flood from one address evicts only its own. All clients behind one proxy are one source.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv6Addr};
use std::time::Duration;

use runtime::Instant;

/// A connection that is idle for less is not evicted, unless its source exceeds its share: its next
/// request may be on the way.
const IDLE_MIN: Duration = Duration::from_secs(5);

/// The network half of an IPv6 address.
const NETWORK: u128 = !(u64::MAX as u128);

/// The source of a connection. It is an extension of each request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Source(IpAddr);

impl From<IpAddr> for Source {
    fn from(address: IpAddr) -> Self {
        // A socket that listens for both kinds reports IPv4 addresses as IPv6.
        Self(match address.to_canonical() {
            IpAddr::V6(address) => Ipv6Addr::from_bits(address.to_bits() & NETWORK).into(),
            address => address,
        })
    }
}

/// Activity of a connection. Within one source, the first of these variants is evicted first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Activity {
    /// No request, since then.
    Idle(Instant),
    /// A request or a handshake is arriving, since then.
    Receiving(Instant),
    /// A request is being answered; it may be a subscription.
    Answering,
}

impl Activity {
    /// Eviction order within one source, highest first. The oldest comes first, except among
    /// answered requests, where the newest does: a long subscription is worth more than those of a
    /// flood.
    fn rank(self, number: u64) -> (u8, Reverse<Instant>, u64) {
        match self {
            Self::Idle(since) => (2, Reverse(since), 0),
            Self::Receiving(since) => (1, Reverse(since), 0),
            Self::Answering => (0, Reverse(Instant::default()), number),
        }
    }
}

/// The number of the connection that is evicted for a new one from `newcomer`; none if the newcomer
/// must wait. `most` is the size of the table, and `counts` has the connections of each source.
///
/// A source's share is an equal part of the table. A source above its share loses a connection,
/// busy or not, to one with fewer. If no source exceeds its share, an idle connection is evicted:
/// from the source with the most connections, and never from another source that has no more than
/// the newcomer. The newcomer's own source loses only a connection that has been idle for some
/// time.
pub(super) fn select_victim(
    newcomer: Source,
    most: usize,
    counts: &BTreeMap<Source, usize>,
    inside: impl Iterator<Item = (u64, Source, Activity)>,
    now: Instant,
) -> Option<u64> {
    let has = |source| counts.get(&source).copied().unwrap_or(0);
    let own = has(newcomer);
    let sources = counts.len() + usize::from(own == 0);
    let share = (most / sources).max(1);
    let may = |source: Source, activity: Activity| {
        let is_beyond = has(source) > share;
        match activity {
            Activity::Idle(since) => {
                let is_long_idle = since + IDLE_MIN <= now;
                match source == newcomer {
                    true => is_long_idle,
                    false => has(source) > own && (is_long_idle || is_beyond),
                }
            }
            Activity::Receiving(_) | Activity::Answering => is_beyond && has(source) > own + 1,
        }
    };
    let may = inside.filter(|(_, source, activity)| may(*source, *activity));
    let first = may.max_by_key(|(number, source, activity)| (has(*source), activity.rank(*number)));
    first.map(|(number, ..)| number)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn source(last: u8) -> Source {
        IpAddr::from([10, 0, 0, last]).into()
    }

    fn at(seconds: u64) -> Instant {
        Instant::default() + Duration::from_secs(seconds)
    }

    /// Each connection has a source and a second since which it is idle; without one it is being
    /// answered. The table is full. Checks the index of the connection that is evicted for
    /// `newcomer` at second 100.
    fn check(newcomer: u8, inside: &[(u8, Option<u64>)], expected: Option<u64>) {
        let inside = inside.iter().map(|(of, since)| {
            let idle = |since: u64| Activity::Idle(at(since));
            (*of, since.map_or(Activity::Answering, idle))
        });
        check_all(newcomer, &inside.collect::<Vec<_>>(), expected);
    }

    fn check_all(newcomer: u8, inside: &[(u8, Activity)], expected: Option<u64>) {
        let mut counts = BTreeMap::new();
        for (of, _) in inside {
            *counts.entry(source(*of)).or_default() += 1;
        }
        let all = (0..).zip(inside);
        let all = all.map(|(place, (of, activity))| (place, source(*of), *activity));
        let found = select_victim(source(newcomer), inside.len(), &counts, all, at(100));
        assert_eq!(found, expected, "{newcomer} {inside:?}");
    }

    #[test]
    fn a_busy_address_above_its_share_is_evicted() {
        use Activity::{Answering, Idle, Receiving};
        let flood = [
            (1, Answering),
            (1, Answering),
            (1, Receiving(at(60))),
            (1, Receiving(at(50))),
            (1, Idle(at(99))),
            (2, Idle(at(0))),
        ];
        // First the idle one, then the oldest partial request, then the newest answer.
        check_all(9, &flood, Some(4));
        check_all(9, &flood[..4], Some(3));
        check_all(9, &flood[..3], Some(2));
        check_all(9, &flood[..2], Some(1));
        check_all(2, &flood, Some(4));
        // Not for its own source, nor at the cost of a source within its share.
        check_all(1, &flood[..4], None);
        check_all(1, &flood, None);
        check_all(9, &[(1, Answering), (2, Answering)], None);
        check_all(2, &[(1, Answering), (1, Answering), (2, Answering)], None);
    }

    #[test]
    fn an_address_evicts_its_longest_idle_connection() {
        check(1, &[(1, Some(7)), (1, Some(3)), (1, None)], Some(1));
        check(1, &[(1, Some(95)), (1, None)], Some(0));
        check(1, &[(1, Some(96)), (1, None)], None);
    }

    #[test]
    fn the_longest_idle_connection_is_evicted() {
        let all = [(1, Some(7)), (2, Some(3)), (3, Some(99)), (4, None)];
        check(9, &all, Some(1));
        // A source with as many gets no more at their cost.
        check(4, &all, None);
        check(1, &all, Some(0));
        check(3, &all, None);
        check(9, &[(1, Some(99)), (2, Some(96))], None);
    }

    #[test]
    fn a_flood_evicts_only_connections_of_its_address() {
        let flood = |since| {
            [
                (1, since),
                (2, Some(0)),
                (1, Some(98)),
                (1, None),
                (3, None),
            ]
        };
        check(1, &flood(Some(99)), None);
        check(1, &flood(Some(90)), Some(0));
        // Others are accepted at its cost.
        check(3, &flood(Some(99)), Some(2));
        check(9, &flood(Some(99)), Some(2));
        check(9, &flood(Some(97)), Some(0));
    }

    #[test]
    fn an_ipv6_network_is_one_source() {
        let of = |text: &str| Source::from(text.parse::<IpAddr>().unwrap());
        assert_eq!(of("2001:db8::1"), of("2001:db8::ffff:2:1"));
        assert_ne!(of("2001:db8::1"), of("2001:db8:0:1::1"));
        assert_eq!(of("::ffff:10.0.0.1"), of("10.0.0.1"));
        assert_ne!(of("10.0.0.1"), of("10.0.0.2"));
    }
}
