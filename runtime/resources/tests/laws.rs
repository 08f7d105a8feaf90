//! The laws of the algebra for random resources of every kind: reserved in stacks, revocable, lent,
//! allocated, on volumes and disks, shared, from providers.

#![allow(clippy::unwrap_used)] // a test that cannot go on panics

use meros_resources as resources;
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::select;
use resources::{
    Annotations, DiskInfo, DiskSource, Label, Labels, Name, Persistence, Quantities, Range, Ranges,
    Reservation, ReservationKind, Resource, Resources, Revocable, Role, Scalar, Set, SourceKind,
    Value, Volume, VolumeMode,
};

fn role(text: &str) -> Role {
    Role::new(text).unwrap()
}

/// Refined stacks: the bottom static or dynamic, with and without principal and labels.
fn stack() -> impl Strategy<Value = Vec<Reservation>> {
    let entry = |text: &'static str, first: bool| {
        (any::<bool>(), any::<bool>(), any::<bool>()).prop_map(move |(fixed, named, labelled)| {
            let label = Label {
                key: "k".into(),
                value: named.then(|| "v".into()),
            };
            Reservation {
                kind: if first && fixed {
                    ReservationKind::Static
                } else {
                    ReservationKind::Dynamic
                },
                role: role(text),
                principal: named.then(|| "ops".into()),
                labels: Labels::new(if labelled { vec![label] } else { vec![] }),
            }
        })
    };
    let whole = (select(vec!["ads", "eng"]), 0usize..4).prop_flat_map(move |(top, depth)| {
        let below = if top == "ads" { "ads/x" } else { "eng/web/y" };
        (entry(top, true), entry(below, false)).prop_map(move |(a, b)| match depth {
            0 | 1 => vec![],
            2 => vec![a],
            _ => vec![a, b],
        })
    });
    // The plain text form's own case, too.
    prop_oneof![Just(vec![Reservation::fixed(role("ads"))]), whole]
}

fn disk() -> impl Strategy<Value = DiskInfo> {
    let kinds = vec![
        SourceKind::Path,
        SourceKind::Mount,
        SourceKind::Block,
        SourceKind::Raw,
    ];
    (
        proptest::option::of(select(kinds)),
        any::<bool>(),
        any::<bool>(),
    )
        .prop_map(|(kind, lasting, id)| DiskInfo {
            persistence: lasting.then(|| Persistence {
                id: "v1".into(),
                principal: id.then(|| "ops".into()),
            }),
            volume: lasting.then(|| Volume {
                container_path: "data".into(),
                host_path: None,
                mode: VolumeMode::ReadWrite,
            }),
            source: kind.map(|kind| DiskSource {
                root: matches!(kind, SourceKind::Path | SourceKind::Mount).then(|| "/mnt".into()),
                id: id.then(|| "d1".into()),
                ..DiskSource::new(kind)
            }),
        })
}

fn annotations() -> impl Strategy<Value = Annotations> {
    let revocable = prop_oneof![
        4 => Just(None),
        1 => Just(Some(Revocable::Throttleable)),
        1 => Just(Some(Revocable::NonThrottleable)),
    ];
    let roles = proptest::option::weighted(0.3, select(vec![role("ads"), Role::STAR]));
    let marks = (
        proptest::option::weighted(0.2, Just("p1")),
        any::<bool>(),
        any::<bool>(),
    );
    (
        stack(),
        proptest::option::weighted(0.3, disk()),
        revocable,
        roles,
        marks,
    )
        .prop_map(
            |(reservations, disk, revocable, allocation, (provider, shared, lent))| Annotations {
                lender: lent.then(|| role("lender")),
                revocable,
                allocation,
                reservations,
                disk: disk.map(Box::new),
                shared,
                provider: provider.map(Into::into),
            },
        )
}

/// A value for `name`; ranges and items come from the half of the number space called `side`.
fn value(name: &'static str, side: u64) -> BoxedStrategy<Value> {
    match name {
        "ports" | "slots" => vec((0u64..30, 0u64..4), 1..5)
            .prop_map(move |pairs| {
                let range =
                    |(at, long)| Range::new(side * 1000 + at, side * 1000 + at + long).unwrap();
                pairs.into_iter().map(range).collect::<Ranges>().into()
            })
            .boxed(),
        "bugs" => vec("[a-c]", 1..4)
            .prop_map(move |items| {
                Set::new(items.into_iter().map(|item| format!("{item}{side}")))
                    .unwrap()
                    .into()
            })
            .boxed(),
        "gpus" => (0u32..4)
            .prop_map(|units| Scalar::whole(units).into())
            .boxed(),
        _ => select(vec![0i64, 1, 450, 1000, 2_048_000, 3])
            .prop_map(|thousandths| Scalar::from_thousandths(thousandths).unwrap().into())
            .boxed(),
    }
}

/// One valid resource; inconsistent annotations are omitted.
fn resource(side: u64) -> impl Strategy<Value = Resource> {
    let names = vec![
        "cpus", "mem", "disk", "disk", "gpus", "ports", "bugs", "slots", "tokens",
    ];
    select(names)
        .prop_flat_map(move |name| (value(name, side), annotations(), 1u32..4))
        .prop_flat_map(Just)
        .prop_filter_map("only valid combinations", |(value, notes, copies)| {
            build(value, notes, copies)
        })
}

fn build(value: Value, mut notes: Annotations, copies: u32) -> Option<Resource> {
    let name = match &value {
        Value::Ranges(_) => ["ports", "slots"][copies as usize % 2],
        Value::Set(_) => "bugs",
        Value::Scalar(amount) if notes.disk.is_some() && amount.is_whole() => "disk",
        Value::Scalar(_) => ["cpus", "mem", "tokens"][copies as usize % 3],
    };
    if name != "disk" {
        notes.disk = None;
    }
    let lasting = notes
        .disk
        .as_ref()
        .is_some_and(|disk| disk.persistence.is_some());
    notes.shared &= lasting;
    if lasting
        || notes
            .reservations
            .iter()
            .any(|entry| entry.kind == ReservationKind::Dynamic)
    {
        notes.revocable = None;
    }
    if notes.revocable.is_none() || !notes.reservations.is_empty() {
        notes.lender = None;
    }
    let one = Resource::annotated(Name::new(name).unwrap(), value, notes).unwrap();
    if one.is_indivisible() {
        one.counted(copies).ok()
    } else {
        Some(one)
    }
}

fn some(side: u64) -> impl Strategy<Value = Resources> {
    vec(resource(side), 0..12).prop_map(|all| all.into_iter().collect())
}

/// Many slots, for the code path of long collections.
fn many(side: u64) -> impl Strategy<Value = Resources> {
    let slot = (0u32..60, 1u32..3).prop_map(move |(n, units)| {
        let text = format!(
            "cpus(r{n}):{units};ports(r{n}):[{0}-{0}]",
            side * 1000 + u64::from(n)
        );
        Resources::parse(&text).unwrap()
    });
    (vec(slot, 0..60), some(side))
        .prop_map(|(slots, more)| slots.into_iter().sum::<Resources>() + more)
}

fn encode(resources: &Resources) -> Vec<u8> {
    bincode::serde::encode_to_vec(resources, bincode::config::standard()).unwrap()
}

fn decode(bytes: &[u8]) -> Option<Resources> {
    let limit = bincode::config::standard().with_limit::<65536>();
    bincode::serde::decode_from_slice(bytes, limit)
        .ok()
        .map(|(resources, _)| resources)
}

fn without_lenders(resources: &Resources) -> Resources {
    resources.hide_lender()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, ..ProptestConfig::default() })]

    #[test]
    fn what_was_added_can_be_taken_away_again(a in many(0), b in many(1), c in some(0)) {
        prop_assert_eq!((&a + &b).checked_sub(&b), Ok(a.clone()));
        prop_assert_eq!((&b + &a).checked_sub(&b), Ok(a.clone()));
        // The same half: exact if the checked sum agrees.
        let mut sum = a.clone();
        if sum.checked_add(&c).is_ok() {
            prop_assert_eq!(sum.checked_sub(&c), Ok(a.clone()));
        } else {
            prop_assert_eq!(&sum, &a);
        }
    }

    #[test]
    fn a_contains_b_if_and_only_if_the_difference_exists(a in some(0), b in some(0), c in many(0)) {
        for (a, b) in [(&a, &b), (&b, &a), (&c, &a), (&a, &c)] {
            prop_assert_eq!(a.contains(b), a.checked_sub(b).is_ok());
            let sum = a + b;
            prop_assert!(sum.contains(a) && sum.contains(b));
            if let Ok(rest) = a.checked_sub(b) {
                prop_assert_eq!(&(&rest + b), a);
                prop_assert_eq!(rest, a.saturating_sub(b));
            }
        }
        prop_assert!(a.contains(&a) && a.checked_sub(&a).unwrap().is_empty());
    }

    #[test]
    fn the_order_of_addition_does_not_matter(a in some(0), b in many(0), c in some(0)) {
        let sum = &(&a + &b) + &c;
        prop_assert_eq!(&sum, &(&a + &(&b + &c)));
        prop_assert_eq!(&sum, &(&(&c + &a) + &b));
        let mut one_by_one = Resources::new();
        c.iter().chain(&b).chain(&a).for_each(|own| one_by_one.push(own.clone()));
        prop_assert_eq!(&sum, &one_by_one);
        let mut backwards: Vec<Resource> = one_by_one.into_iter().collect();
        backwards.reverse();
        prop_assert_eq!(sum, backwards.into_iter().collect::<Resources>());
    }

    #[test]
    fn text_json_and_wire_round_trip(a in many(0)) {
        prop_assert_eq!(decode(&encode(&a)), Some(a.clone()));
        for own in &a {
            let bytes = bincode::serde::encode_to_vec(own, bincode::config::legacy()).unwrap();
            let (back, read): (Resource, usize) =
                bincode::serde::decode_from_slice(&bytes, bincode::config::legacy()).unwrap();
            prop_assert_eq!((&back, read), (own, bytes.len()));
        }
        let seen = without_lenders(&a);
        prop_assert_eq!(&Resources::parse(&a.to_string()).unwrap(), &seen);
        let json = serde_json::to_value(resources::json::Resources(a.clone())).unwrap();
        prop_assert_eq!(&resources::json::resources_from(&json).unwrap(), &seen);
        let plain = a.filter(|own| own.annotations().is_none());
        prop_assert!(!plain.to_string().starts_with('['));
        prop_assert_eq!(Resources::parse(&plain.to_string()).unwrap(), plain);
    }

    #[test]
    fn equal_content_has_equal_value_and_encoding(a in some(0), b in some(1)) {
        let (sum, mus) = (&a + &b, &b + &a);
        prop_assert_eq!(encode(&sum), encode(&mus));
        prop_assert_eq!(decode(&encode(&sum)).unwrap(), mus);
    }

    #[test]
    fn views_partition_the_collection(a in some(0)) {
        let ads = role("ads");
        prop_assert_eq!(&(a.unreserved() + a.all_reserved()), &a);
        prop_assert_eq!(&(a.revocable() + a.non_revocable()), &a);
        prop_assert_eq!(a.throttleable() + a.non_throttleable(), a.revocable());
        prop_assert_eq!(a.unreserved() + a.reserved_for(&ads), a.allocatable_to(&ads));
        prop_assert_eq!(a.reservations().into_values().sum::<Resources>(), a.all_reserved());
        prop_assert!(a.reserved_for(&ads).contains(&a.reserved(&ads)));
        let free = a.unallocate();
        prop_assert_eq!(free.allocate(&ads).unallocate(), free.clone());
        prop_assert_eq!(free.allocate(&ads).allocations().remove(&ads).unwrap_or_default(), free.allocate(&ads));
    }

    #[test]
    fn quantities_follow_the_sum(a in some(0), b in some(1)) {
        let (a, b) = (a.non_shared(), b.non_shared());
        let mut sum = a.quantities();
        sum += &b.quantities();
        prop_assert_eq!(&(&a + &b).quantities(), &sum);
        prop_assert!(sum.contains(&a.quantities()));
        let wire = bincode::serde::encode_to_vec(&sum, bincode::config::standard()).unwrap();
        let (back, _): (Quantities, _) = bincode::serde::decode_from_slice(&wire, bincode::config::standard()).unwrap();
        prop_assert_eq!(&back, &sum);
        prop_assert_eq!(sum.to_string().parse::<Quantities>().unwrap(), sum);
    }

    #[test]
    fn find_result_is_contained_and_matches(pool in some(0), n in 0usize..12) {
        let own: Resources = pool.iter().take(n).cloned().collect();
        let target = own.flatten().hide_lender();
        let found = pool.find(&target);
        prop_assert!(found.is_some(), "{} in {}", target, pool);
        let found = found.unwrap();
        prop_assert!(pool.contains(&found));
        prop_assert_eq!(found.flatten().hide_lender(), target);
        let more = &(&pool + &pool).flatten() + &Resources::parse("cpus:1").unwrap();
        prop_assert_eq!(pool.find(&more.hide_lender()), None);
    }

    /// A peer's bytes are rejected or become a canonical value; they never cause a panic.
    #[test]
    fn damaged_bytes_never_panic(a in some(0), at in any::<usize>(), byte in any::<u8>(), end in any::<usize>()) {
        let mut bytes = encode(&a);
        let length = bytes.len();
        bytes[at % length] = byte;
        bytes.truncate(1 + end % length);
        if let Some(read) = decode(&bytes) {
            prop_assert_eq!(decode(&encode(&read)), Some(read));
        }
    }

    #[test]
    fn any_bytes_never_panic(bytes in vec(any::<u8>(), 0..200)) {
        if let Some(read) = decode(&bytes) {
            prop_assert_eq!(decode(&encode(&read)), Some(read));
        }
    }

    #[test]
    fn any_text_round_trips_or_has_an_error_position(
        text in prop_oneof![
            any::<String>(),
            "[a-c0-9:;()\\[\\]{},.*/ \\-]{0,40}",
            "((cpus|mem|ports|x)(\\([a/*]{1,3}\\))?:([0-9.]{1,4}|\\[[0-9,-]{0,9}\\]|\\{[a-c, ]{0,6}\\});?){0,4}",
        ]
    ) {
        match Resources::parse(&text) {
            Ok(read) => prop_assert_eq!(Resources::parse(&read.to_string()), Ok(read)),
            Err(error) => {
                let position = error.position.unwrap_or(1);
                prop_assert!((1..=text.chars().count() + 1).contains(&position), "{}", error);
            }
        }
        if let Ok(read) = resources::Attributes::parse(&text) {
            prop_assert_eq!(resources::Attributes::parse(&read.to_string()), Ok(read));
        }
        let _ = (Quantities::parse(&text), Role::new(&text), Name::new(&text));
    }

    #[test]
    fn damaged_json_never_panics(a in some(0), at in any::<usize>(), put in "[\\[\\]{}\",:0-9a-z]{0,3}".boxed()) {
        let mut text = serde_json::to_string(&resources::json::Resources(a)).unwrap();
        let at = (0..=at % (text.len() + 1)).rev().find(|at| text.is_char_boundary(*at)).unwrap();
        text.insert_str(at, &put);
        if let Ok(read) = resources::json::parse_resources(&text) {
            prop_assert_eq!(Resources::parse(&read.to_string()), Ok(read));
        }
    }
}
