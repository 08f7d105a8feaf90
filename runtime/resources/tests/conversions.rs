//! The rules of operations (SPEC 3.5; S12, S13, S91, S92), each by name, and what holds for all of
//! them whatever they are given.

#![allow(clippy::unwrap_used)] // a test that cannot go on panics

use meros_resources as resources;
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::select;
use resources::{
    Annotations, Conversion, ConversionError, Converted, DiskInfo, DiskSource, Invalid, Label,
    Labels, Name, Reservation, Resource, Resources, Revocable, Role, Scalar, SourceKind,
    VolumeMode,
};

fn role(text: &str) -> Role {
    Role::new(text).unwrap()
}

fn parse(text: &str) -> Resources {
    Resources::parse(text).unwrap()
}

fn reserved(text: &str, to: &str) -> Resources {
    let reservation = Reservation::dynamic(role(to), Some("ops"));
    parse(text).push_reservation(&reservation).unwrap()
}

fn one(resources: &Resources) -> Resource {
    assert_eq!(resources.len(), 1);
    resources.iter().next().unwrap().clone()
}

/// A volume of `size` megabytes on disk that is dynamically reserved for `ads`, with changed
/// annotations.
fn volume_with(id: &str, size: u32, change: impl FnOnce(&mut Annotations)) -> Resource {
    let disk = one(&reserved("disk:1", "ads"));
    let mut annotations = disk.annotations().clone();
    annotations.disk = Some(Box::new(DiskInfo::persistent(id, Some("ops"), "data")));
    change(&mut annotations);
    Resource::annotated(Name::Disk, Scalar::whole(size), annotations).unwrap()
}

fn volume(id: &str, size: u32) -> Resource {
    volume_with(id, size, |_| {})
}

fn source(kind: SourceKind) -> impl FnOnce(&mut Annotations) {
    move |annotations| {
        let rooted = matches!(kind, SourceKind::Path | SourceKind::Mount);
        annotations.disk.as_mut().unwrap().source = Some(DiskSource {
            root: rooted.then(|| "/mnt".to_owned()),
            ..DiskSource::new(kind)
        });
    }
}

fn create(volumes: impl IntoIterator<Item = Resource>) -> Conversion {
    Conversion::Create {
        volumes: volumes.into_iter().collect(),
    }
}

fn destroy(volumes: impl IntoIterator<Item = Resource>) -> Conversion {
    Conversion::Destroy {
        volumes: volumes.into_iter().collect(),
    }
}

/// Applies the conversion to all of an agent's resources.
fn apply(pool: &mut Resources, conversion: &Conversion) -> Result<Converted, ConversionError> {
    let total = pool.clone();
    conversion.apply(pool, &total)
}

/// The field and the expected value of the error for a conversion that violates a rule.
fn refused(conversion: &Conversion) -> (String, String) {
    let Invalid {
        field, expected, ..
    } = conversion.step().unwrap_err();
    (field, expected)
}

#[test] // S92
fn reserve_changes_part_of_an_offer() {
    let mut offer = parse("cpus:32;mem:65536");
    let resources = reserved("cpus:8;mem:4096", "ads");
    let reserve = Conversion::Reserve {
        resources: resources.clone(),
    };
    let converted = apply(&mut offer, &reserve).unwrap();
    assert_eq!(converted.consumed, parse("cpus:8;mem:4096"));
    assert_eq!(offer, parse("cpus:24;mem:61440") + resources);
}

#[test]
fn operations_see_earlier_results() {
    let mut pool = parse("disk:1024");
    let resources = reserved("disk:512", "ads");
    let steps = [
        Conversion::Reserve { resources },
        create([volume("v", 100)]),
        Conversion::GrowVolume {
            volume: volume("v", 100),
            addition: one(&reserved("disk:28", "ads")),
        },
        Conversion::ShrinkVolume {
            volume: volume("v", 128),
            subtract: Scalar::whole(64),
        },
    ];
    for step in &steps {
        apply(&mut pool, step).unwrap();
    }
    let volume_left = Resources::from(volume("v", 64));
    let expected = parse("disk:512") + reserved("disk:448", "ads") + volume_left;
    assert_eq!(pool, expected);
    apply(&mut pool, &destroy([volume("v", 64)])).unwrap();
    let resources = reserved("disk:512", "ads");
    apply(&mut pool, &Conversion::Unreserve { resources }).unwrap();
    assert_eq!(pool, parse("disk:1024"));
}

#[test]
fn unreserve_restores_the_refined_reservation() {
    let mut pool = parse("cpus(eng):4");
    let refined = parse("cpus(eng):3")
        .push_reservation(&Reservation::dynamic(role("eng/web/x"), None))
        .unwrap();
    let resources = refined.clone();
    apply(&mut pool, &Conversion::Reserve { resources }).unwrap();
    assert_eq!(pool, parse("cpus(eng):1") + &refined);
    let resources = refined;
    apply(&mut pool, &Conversion::Unreserve { resources }).unwrap();
    assert_eq!(pool, parse("cpus(eng):4"));
}

#[test]
fn labelled_reservations_are_distinct_and_divisible() {
    let labelled = |value: &str| {
        let label = Label {
            key: "job".to_owned(),
            value: Some(value.to_owned()),
        };
        Reservation {
            labels: Labels::new(vec![label]),
            ..Reservation::dynamic(role("ads"), None)
        }
    };
    let mut pool = parse("cpus:8");
    for value in ["a", "b", "a"] {
        let resources = parse("cpus:2").push_reservation(&labelled(value)).unwrap();
        apply(&mut pool, &Conversion::Reserve { resources }).unwrap();
    }
    assert_eq!(pool.len(), 3, "none, a (4 cpus) and b");
    let part = |value: &str, cpus: &str| Conversion::Unreserve {
        resources: parse(cpus).push_reservation(&labelled(value)).unwrap(),
    };
    assert!(apply(&mut pool, &part("b", "cpus:3")).is_err());
    apply(&mut pool, &part("a", "cpus:3")).unwrap();
    assert_eq!(pool.unreserved(), parse("cpus:5"));
}

#[test]
fn static_reservations_cannot_be_converted() {
    let resources = parse("cpus(ads):8");
    let made = refused(&Conversion::Reserve {
        resources: resources.clone(),
    });
    assert_eq!(made.0, "reserve.resources");
    let taken = refused(&Conversion::Unreserve { resources });
    assert_eq!(taken.0, "unreserve.resources");
    assert!(taken.1.contains("static"), "{}", taken.1);
    let resources = parse("cpus:8");
    assert!(Conversion::Unreserve { resources }.step().is_err());
}

// Covers S12.
#[test] // S12
fn what_is_revocable_cannot_be_reserved() {
    let slack = parse("cpus:2")
        .to_revocable(Revocable::Throttleable)
        .unwrap();
    // It cannot even be built.
    let reservation = Reservation::dynamic(role("ads"), None);
    assert!(slack.push_reservation(&reservation).is_err());
    // A reservation on top of a static one is rejected too.
    let fixed = parse("cpus(ads):2")
        .to_revocable(Revocable::Throttleable)
        .unwrap();
    let resources = fixed;
    assert_eq!(
        refused(&Conversion::Reserve { resources }).0,
        "reserve.resources"
    );
    let mut pool = slack.clone();
    let resources = reserved("cpus:2", "ads");
    let reserve = Conversion::Reserve { resources };
    assert!(matches!(
        apply(&mut pool, &reserve),
        Err(ConversionError::Lacking(_))
    ));
    assert_eq!(pool, slack);
}

// Covers S13.
#[test] // S13
fn no_volume_on_revocable_disk() {
    let mut pool = parse("disk(ads):100")
        .to_revocable(Revocable::Throttleable)
        .unwrap();
    let mut annotations = volume("v", 10).annotations().clone();
    annotations.reservations = vec![Reservation::fixed(role("ads"))];
    annotations.revocable = Some(Revocable::Throttleable);
    assert!(Resource::annotated(Name::Disk, Scalar::whole(10), annotations.clone()).is_err());
    annotations.revocable = None;
    let volume = Resource::annotated(Name::Disk, Scalar::whole(10), annotations).unwrap();
    assert!(matches!(
        apply(&mut pool, &create([volume])),
        Err(ConversionError::Lacking(_))
    ));
}

#[test]
fn created_volume_must_satisfy_all_rules() {
    let path = |path: &'static str| {
        volume_with("v", 10, |notes| {
            let disk = notes.disk.as_mut().unwrap();
            disk.volume.as_mut().unwrap().container_path = path.to_owned();
        })
    };
    let unreserved = volume_with("v", 10, |notes| notes.reservations.clear());
    let host_path = volume_with("v", 10, |notes| {
        let disk = notes.disk.as_mut().unwrap();
        disk.volume.as_mut().unwrap().host_path = Some("/srv".to_owned());
    });
    let read_only = volume_with("v", 10, |notes| {
        let disk = notes.disk.as_mut().unwrap();
        disk.volume.as_mut().unwrap().mode = VolumeMode::ReadOnly;
    });
    let pathless = volume_with("v", 10, |notes| notes.disk.as_mut().unwrap().volume = None);
    let raw = volume_with("v", 10, source(SourceKind::Raw));
    let provided = volume_with("v", 10, |notes| notes.provider = Some("p".into()));
    for (bad, field) in [
        (path("/data"), "create.volumes.disk.volume.container_path"),
        (
            path("a/../../b"),
            "create.volumes.disk.volume.container_path",
        ),
        (unreserved, "create.volumes"),
        (host_path, "create.volumes.disk.volume.host_path"),
        (read_only, "create.volumes.disk.volume.mode"),
        (pathless, "create.volumes.disk.volume"),
        (raw, "create.volumes"),
        (provided, "create.volumes"),
        (one(&reserved("disk:10", "ads")), "create.volumes"),
    ] {
        assert_eq!(refused(&create([bad])).0, field);
    }
    let mut pool = reserved("disk:100", "ads");
    apply(&mut pool, &create([volume("v", 10)])).unwrap();
    for again in [
        create([volume("v", 20)]),
        create([volume("w", 5), volume("w", 6)]),
        create([volume("w", 5), volume("w", 5)]),
    ] {
        let before = pool.clone();
        assert!(matches!(
            apply(&mut pool, &again),
            Err(ConversionError::Invalid(_))
        ));
        assert_eq!(pool, before);
    }
    // On this agent, though not in this offer.
    let total = pool.clone();
    let mut offer = reserved("disk:50", "ads");
    assert!(create([volume("v", 20)]).apply(&mut offer, &total).is_err());
}

#[test]
fn a_volume_must_go_before_its_reservation() {
    let volumes: Resources = volume("v", 10).into();
    let resources = volumes.clone();
    let (field, expected) = refused(&Conversion::Unreserve { resources });
    assert_eq!(field, "unreserve.resources");
    assert!(expected.contains("destroyed first"), "{expected}");
    // The disk under it does not exist separately either.
    let resources = reserved("disk:10", "ads");
    let mut pool = volumes;
    assert!(apply(&mut pool, &Conversion::Unreserve { resources }).is_err());
    // A volume cannot be reserved further.
    let resources = pool
        .push_reservation(&Reservation::dynamic(role("ads/x"), None))
        .unwrap();
    assert_eq!(
        refused(&Conversion::Reserve { resources }).0,
        "reserve.resources"
    );
}

#[test]
fn only_divisible_unshared_volumes_resize() {
    let addition = |volume: &Resource| {
        let mut pool = Resources::from(volume.clone());
        apply(&mut pool, &destroy([volume.clone()])).unwrap();
        one(&pool)
    };
    let both = |volume: Resource| {
        let grow = Conversion::GrowVolume {
            addition: addition(&volume),
            volume: volume.clone(),
        };
        let subtract = Scalar::whole(4);
        [grow, Conversion::ShrinkVolume { volume, subtract }]
    };
    for shared in both(volume_with("v", 10, |notes| notes.shared = true)) {
        assert!(refused(&shared).1.contains("not shared"));
    }
    for mounted in both(volume_with("v", 10, source(SourceKind::Mount))) {
        assert!(refused(&mounted).0.ends_with("_volume.volume"));
    }
    for divisible in [
        volume("v", 10),
        volume_with("v", 10, source(SourceKind::Path)),
    ] {
        for step in both(divisible) {
            step.step().unwrap();
        }
    }
    let volume = volume("v", 10);
    let unlike = parse("disk:5;disk(ads):5") + parse("mem:5") + Resources::from(volume.clone());
    for addition in &unlike {
        let (volume, addition) = (volume.clone(), addition.clone());
        let grow = Conversion::GrowVolume { volume, addition };
        assert_eq!(refused(&grow).0, "grow_volume.addition");
    }
    for subtract in [Scalar::ZERO, Scalar::whole(10), Scalar::whole(11)] {
        let volume = volume.clone();
        let shrink = Conversion::ShrinkVolume { volume, subtract };
        assert_eq!(refused(&shrink).0, "shrink_volume.subtract");
    }
}

#[test]
fn mount_disk_becomes_one_volume() {
    let whole = volume_with("v", 10, source(SourceKind::Mount));
    let mut pool = Resources::from(whole.clone());
    apply(&mut pool, &destroy([whole.clone()])).unwrap();
    let part = volume_with("v", 4, source(SourceKind::Mount));
    assert!(apply(&mut pool.clone(), &create([part])).is_err());
    apply(&mut pool, &create([whole.clone()])).unwrap();
    assert_eq!(pool, whole.into());
}

#[test]
fn nothing_is_no_operation() {
    let nothing = Resources::new;
    for empty in [
        Conversion::Reserve {
            resources: nothing(),
        },
        Conversion::Unreserve {
            resources: nothing(),
        },
        Conversion::Create { volumes: nothing() },
        Conversion::Destroy { volumes: nothing() },
    ] {
        assert_eq!(refused(&empty).1, "at least one resource");
    }
}

#[test]
fn operation_allocation_round_trips() {
    let bare = Conversion::GrowVolume {
        volume: volume("v", 10),
        addition: one(&reserved("disk:5", "ads")),
    };
    let ads = role("ads");
    let allocated = bare.allocated(Some(&ads));
    assert!(
        allocated
            .named()
            .iter()
            .all(|part| part.allocation_role() == Some(&ads))
    );
    assert_eq!(allocated.allocated(None), bare);
    let step = allocated.step().unwrap();
    assert_eq!(step.converted.unallocate(), bare.step().unwrap().converted);
}

/// Pools with all forms that conversions handle: plain, reserved in both ways and refined, volumes
/// of each kind of disk, shared ones.
fn pool() -> impl Strategy<Value = Resources> {
    let stacks = || {
        let ads = Reservation::fixed(role("ads"));
        let dynamic = Reservation::dynamic(role("ads"), Some("ops"));
        let refined = Reservation::dynamic(role("ads/x"), None);
        select(vec![
            vec![],
            vec![ads.clone()],
            vec![dynamic.clone()],
            vec![ads, refined.clone()],
            vec![dynamic, refined],
        ])
    };
    let plain = (
        select(vec![Name::Cpus, Name::Mem, Name::Disk]),
        1u32..50,
        stacks(),
    )
        .prop_map(|(name, amount, reservations)| {
            let annotations = Annotations {
                reservations,
                ..Annotations::default()
            };
            Resource::annotated(name, Scalar::whole(amount), annotations).unwrap()
        });
    let kinds = select(vec![None, Some(SourceKind::Path), Some(SourceKind::Mount)]);
    let volumes = (
        select(vec!["v", "w"]),
        1u32..20,
        stacks(),
        kinds,
        any::<bool>(),
    );
    let volumes = volumes.prop_map(|(id, size, reservations, kind, shared)| {
        volume_with(id, size, |notes| {
            if let Some(kind) = kind {
                source(kind)(notes);
            }
            notes.shared = shared;
            notes.reservations = match reservations.is_empty() {
                true => vec![Reservation::fixed(role("ads"))],
                false => reservations,
            };
        })
    });
    (vec(plain, 0..6), vec(volumes, 0..2))
        .prop_map(|(plain, volumes)| plain.into_iter().chain(volumes).collect())
}

/// Conversions of parts of a pool: many of them possible, some not.
fn conversion(pool: Resources) -> impl Strategy<Value = Conversion> {
    let parts: Vec<Resource> = pool.iter().cloned().collect();
    let count = parts.len().max(1);
    (0..6, 0..count, 0..count, 1u32..12, any::<bool>()).prop_map(
        move |(kind, a, b, amount, split)| {
            let fallback = || one(&parse("cpus:1"));
            let cut = |mut part: Resource| {
                if split {
                    part.shrink(Scalar::whole(amount));
                }
                part
            };
            let first = cut(parts.get(a).cloned().unwrap_or_else(fallback));
            let second = cut(parts.get(b).cloned().unwrap_or_else(fallback));
            let deeper = |part: &Resource| {
                let to = match part.role().as_str() {
                    "*" => "ads",
                    "ads" => "ads/x",
                    _ => "ads/x/y",
                };
                part.push_reservation(Reservation::dynamic(role(to), None))
                    .unwrap()
            };
            let lasting = |part: &Resource| {
                let notes = part.annotations();
                volume_with("new", amount, |volume| {
                    volume.reservations = notes.reservations.clone();
                    let source = notes.disk.as_ref().and_then(|disk| disk.source.clone());
                    volume.disk.as_mut().unwrap().source = source;
                })
            };
            match kind {
                0 => Conversion::Reserve {
                    resources: Resources::from_iter([deeper(&first), deeper(&second)]),
                },
                1 => Conversion::Unreserve {
                    resources: first.into(),
                },
                2 => create([lasting(&first)]),
                3 => destroy([first]),
                4 => Conversion::GrowVolume {
                    volume: first,
                    addition: second,
                },
                _ => Conversion::ShrinkVolume {
                    volume: first,
                    subtract: Scalar::whole(amount),
                },
            }
        },
    )
}

fn some() -> impl Strategy<Value = (Resources, Conversion)> {
    pool().prop_flat_map(|pool| (Just(pool.clone()), conversion(pool)))
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn conversion_preserves_quantities_or_fails((pool, conversion) in some()) {
        let mut after = pool.clone();
        match conversion.apply(&mut after, &pool) {
            Ok(Converted { consumed, converted }) => {
                prop_assert_eq!(after.quantities(), pool.quantities());
                prop_assert_eq!(consumed.quantities(), converted.quantities());
                prop_assert!(pool.contains(&consumed) && after.contains(&converted));
                prop_assert_eq!(pool.checked_sub(&consumed).unwrap() + &converted, after);
            }
            Err(_) => prop_assert_eq!(after, pool),
        }
    }

    #[test]
    fn reserve_and_create_can_be_undone((pool, conversion) in some()) {
        let mut after = pool.clone();
        let undo = match conversion.apply(&mut after, &pool) {
            Err(_) => return Ok(()),
            Ok(_) => match conversion.clone() {
                Conversion::Reserve { resources } => Conversion::Unreserve { resources },
                Conversion::Create { volumes } => Conversion::Destroy { volumes },
                Conversion::ShrinkVolume { volume, subtract } => {
                    let underlying_disk = Conversion::Destroy { volumes: volume.clone().into() }.step().unwrap();
                    let mut addition = one(&underlying_disk.converted);
                    prop_assert!(addition.shrink(subtract));
                    let smaller = conversion.step().unwrap().converted.persistent_volumes();
                    Conversion::GrowVolume { volume: one(&smaller), addition }
                }
                _ => return Ok(()),
            },
        };
        let total = after.clone();
        undo.apply(&mut after, &total).unwrap();
        prop_assert_eq!(after, pool);
    }

    #[test]
    fn an_operation_crosses_the_wire_as_it_is((_, conversion) in some()) {
        let config = bincode::config::standard();
        let bytes = bincode::serde::encode_to_vec(&conversion, config).unwrap();
        let (back, _): (Conversion, _) = bincode::serde::decode_from_slice(&bytes, config).unwrap();
        prop_assert_eq!(back, conversion);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn results_of_operations_are_separable((pool, conversion) in some()) {
        let mut after = pool.clone();
        let applied = conversion.apply(&mut after, &pool).is_ok();
        prop_assert_eq!(after.without_operations(), pool.without_operations());
        let made = after.checkpointed();
        let rest = after.checked_sub(&made).unwrap();
        prop_assert_eq!(rest.without_operations(), rest);
        if applied && matches!(conversion, Conversion::Reserve { .. } | Conversion::Create { .. }) {
            prop_assert!(!made.is_empty());
        }
    }
}
