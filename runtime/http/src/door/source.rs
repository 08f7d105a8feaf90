//! Where connections come from, and which of those that are inside makes room for one more.
//!
//! Pure: who is inside is passed in. An address is a source; of IPv6 a network of 64 bits is one, since a single machine has all of it. Whoever
//! has most connections makes room before the others, so a flood from one address costs that address its own. A proxy is one source, whoever is
//! behind it.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv6Addr};
use std::time::Duration;

use runtime::Instant;

/// A connection that is idle for less is not ended to make room, unless its source has more than its share: what it says may be on its way.
const IDLE_MIN: Duration = Duration::from_secs(5);

/// The half of an IPv6 address that names a network.
const NETWORK: u128 = !(u64::MAX as u128);

/// Where a connection comes from. It is among the extensions of each of its requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Source(IpAddr);

impl From<IpAddr> for Source {
    fn from(address: IpAddr) -> Self {
        // Where both kinds are listened for, IPv4 comes as IPv6.
        Self(match address.to_canonical() {
            IpAddr::V6(address) => Ipv6Addr::from_bits(address.to_bits() & NETWORK).into(),
            address => address,
        })
    }
}

/// What a connection is doing. Of one source the first of these makes room.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Activity {
    /// Nothing, since then.
    Idle(Instant),
    /// Its request, or its handshake, is coming in since then.
    Receiving(Instant),
    /// Its request is answered: it may be a subscription.
    Answering,
}

impl Activity {
    /// How early it makes room among those of its source; what came first makes room first, but the newest of those that are answered: a
    /// subscription that lasts is of more worth than one of a flood.
    fn rank(self, number: u64) -> (u8, Reverse<Instant>, u64) {
        match self {
            Self::Idle(since) => (2, Reverse(since), 0),
            Self::Receiving(since) => (1, Reverse(since), 0),
            Self::Answering => (0, Reverse(Instant::default()), number),
        }
    }
}

/// Which connection of those inside, by its number, ends for one more from `newcomer`; none if that has to wait. There are places for `most`, and
/// `counts` says how many each source has.
///
/// A source with more than its share makes room, busy or not, for one that has fewer: the share is what each source had if all had as many. Where
/// none has, one that is idle makes room: of the source that has most of them, and never of another that has no more than the newcomer's own. Of the
/// newcomer's own source only one that is idle for a while does.
pub(super) fn who_makes_room(
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

    /// Each connection is of the source of its first number and idle since the second of its second one, or answered. All places are taken. Which
    /// makes room for one more of this source after a hundred seconds, by its place?
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
        let found = who_makes_room(source(newcomer), inside.len(), &counts, all, at(100));
        assert_eq!(found, expected, "{newcomer} {inside:?}");
    }

    #[test]
    fn an_address_beyond_its_share_makes_room_though_it_is_busy() {
        use Activity::{Answering, Idle, Receiving};
        let flood = [
            (1, Answering),
            (1, Answering),
            (1, Receiving(at(60))),
            (1, Receiving(at(50))),
            (1, Idle(at(99))),
            (2, Idle(at(0))),
        ];
        // First what is idle, then the oldest half of a request, then the newest answer.
        check_all(9, &flood, Some(4));
        check_all(9, &flood[..4], Some(3));
        check_all(9, &flood[..3], Some(2));
        check_all(9, &flood[..2], Some(1));
        check_all(2, &flood, Some(4));
        // Not for its own, nor at the cost of one within its share.
        check_all(1, &flood[..4], None);
        check_all(1, &flood, None);
        check_all(9, &[(1, Answering), (2, Answering)], None);
        check_all(2, &[(1, Answering), (1, Answering), (2, Answering)], None);
    }

    #[test]
    fn of_one_address_the_one_that_is_idle_for_longest_makes_room_if_it_is_for_a_while() {
        check(1, &[(1, Some(7)), (1, Some(3)), (1, None)], Some(1));
        check(1, &[(1, Some(95)), (1, None)], Some(0));
        check(1, &[(1, Some(96)), (1, None)], None);
    }

    #[test]
    fn where_nobody_has_more_than_others_the_one_that_is_idle_for_longest_makes_room() {
        let all = [(1, Some(7)), (2, Some(3)), (3, Some(99)), (4, None)];
        check(9, &all, Some(1));
        // Whoever has as many gets no more at their cost.
        check(4, &all, None);
        check(1, &all, Some(0));
        check(3, &all, None);
        check(9, &[(1, Some(99)), (2, Some(96))], None);
    }

    #[test]
    fn a_flood_from_one_address_costs_no_other_its_connection() {
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
        // Others get in, and at its cost.
        check(3, &flood(Some(99)), Some(2));
        check(9, &flood(Some(99)), Some(2));
        check(9, &flood(Some(97)), Some(0));
    }

    #[test]
    fn a_network_of_64_bits_is_one_source_and_an_address_that_is_written_in_two_ways_too() {
        let of = |text: &str| Source::from(text.parse::<IpAddr>().unwrap());
        assert_eq!(of("2001:db8::1"), of("2001:db8::ffff:2:1"));
        assert_ne!(of("2001:db8::1"), of("2001:db8:0:1::1"));
        assert_eq!(of("::ffff:10.0.0.1"), of("10.0.0.1"));
        assert_ne!(of("10.0.0.1"), of("10.0.0.2"));
    }
}
