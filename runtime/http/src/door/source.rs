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

/// Where a connection comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Source(IpAddr);

impl From<IpAddr> for Source {
    fn from(address: IpAddr) -> Self {
        // Where both kinds are listened for, IPv4 comes as IPv6.
        Self(match address.to_canonical() {
            IpAddr::V6(address) => Ipv6Addr::from_bits(address.to_bits() & NETWORK).into(),
            address => address,
        })
    }
}

/// Which of those that are idle ends for one more from there; none if it has to wait. `inside` says how many each source has, idle or not.
///
/// One of the source that has most of them, and of those the one that is idle for longest. Of others than its own source only what has more
/// than that makes room: at once if it has more than its share of the places, else when it is idle for a while.
pub(super) fn who_makes_room<K>(
    newcomer: Source,
    inside: &BTreeMap<Source, usize>,
    idle: impl Iterator<Item = (K, Source, Instant)>,
    now: Instant,
) -> Option<K> {
    let has = |source| inside.get(&source).copied().unwrap_or(0);
    let own = has(newcomer);
    let sources = inside.len() + usize::from(own == 0);
    let share = (inside.values().sum::<usize>() / sources).max(1);
    let may = |source: Source, since: Instant| {
        let is_long_idle = since + IDLE_MIN <= now;
        match source == newcomer {
            true => is_long_idle,
            false => has(source) > own && (is_long_idle || has(source) > share),
        }
    };
    let idle = idle.filter(|(_, source, since)| may(*source, *since));
    let first = idle.max_by_key(|(_, source, since)| (has(*source), Reverse(*since)));
    first.map(|(key, ..)| key)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn source(last: u8) -> Source {
        IpAddr::from([10, 0, 0, last]).into()
    }

    /// Each connection is of the source of its first number and idle since the second of its second one, or busy. Who makes room for one more of
    /// this source after a hundred seconds, by its place?
    fn check(newcomer: u8, inside: &[(u8, Option<u64>)], expected: Option<usize>) {
        let at = |seconds| Instant::default() + Duration::from_secs(seconds);
        let mut counts = BTreeMap::new();
        for (of, _) in inside {
            *counts.entry(source(*of)).or_default() += 1;
        }
        let idle = inside.iter().enumerate();
        let idle =
            idle.filter_map(|(place, (of, since))| Some((place, source(*of), at((*since)?))));
        let found = who_makes_room(source(newcomer), &counts, idle, at(100));
        assert_eq!(found, expected, "{newcomer} {inside:?}");
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
