//! Refusals of operations: the message of each rule of Mesos.

use resources::{Annotations, Name, Role};
use testkit::assert_contains;

use super::*;

fn role(name: &str) -> Role {
    Role::new(name).unwrap()
}

fn annotated(name: Name, amount: u32, change: impl FnOnce(&mut Annotations)) -> Resource {
    let mut annotations = Annotations {
        reservations: vec![Reservation::dynamic(role("ads"), Some("ops"))],
        ..Annotations::default()
    };
    change(&mut annotations);
    Resource::annotated(name, Scalar::whole(amount), annotations).unwrap()
}

fn volume(id: &str, change: impl FnOnce(&mut Annotations)) -> Resource {
    annotated(Name::Disk, 64, |annotations| {
        let disk = DiskInfo::persistent(id, Some("ops"), "data");
        annotations.disk = Some(Box::new(disk));
        change(annotations);
    })
}

fn nothing(_: &mut Annotations) {}

/// The error, or nothing, in an operation of a framework of role `ads` and principal `ops`, on an agent that has
/// volume `v` and uses `u`.
fn of_framework(conversion: Conversion) -> String {
    let mut info = FrameworkInfo::new("alice", "web");
    info.principal = Some("ops".to_owned());
    let id = FrameworkId::new("f").unwrap();
    let rules = OperationRules {
        framework: Some((&id, &info)),
        total: &Resources::from_iter([volume("v", nothing), volume("u", nothing)]),
        held: &Resources::from(volume("u", nothing)).allocate(&role("ads")),
    };
    let broken = rules.broken_by(&conversion.allocated(Some(&role("ads"))));
    broken.unwrap_or_default()
}

fn reserve(resource: Resource) -> Conversion {
    Conversion::Reserve {
        resources: resource.into(),
    }
}

fn create(volume: Resource) -> Conversion {
    Conversion::Create {
        volumes: volume.into(),
    }
}

fn destroy(id: &str) -> Conversion {
    Conversion::Destroy {
        volumes: volume(id, nothing).into(),
    }
}

#[test]
fn reservations_are_refused_in_mesos_words() {
    let cpus = |change: fn(&mut Annotations)| annotated(Name::Cpus, 2, change);
    for (conversion, words) in [
        (reserve(cpus(nothing)), ""),
        (
            reserve(cpus(|it| it.reservations.clear())),
            "Resource cpus(allocated: ads):2 is not dynamically reserved",
        ),
        (
            reserve(cpus(|it| it.reservations[0].kind = ReservationKind::Static)),
            "Resource cpus(allocated: ads)(reservations: [(STATIC,ads,ops)]):2 is not dynamically reserved",
        ),
        (
            reserve(cpus(|it| it.reservations[0].principal = None)),
            "A reserve operation was attempted by principal 'ops', but there is a reserved resource in the request with no principal set",
        ),
        (
            reserve(cpus(|it| it.reservations[0].principal = Some("eve".into()))),
            "A reserve operation was attempted by authenticated principal 'ops', which does not match a reserved resource in the request with principal 'eve'",
        ),
        (
            reserve(cpus(|it| it.reservations[0].role = role("dev"))),
            "A reserve operation was attempted for a resource with role 'dev', but the resource was allocated to role 'ads'",
        ),
        (
            Conversion::Unreserve {
                resources: volume("v", nothing).into(),
            },
            "A dynamically reserved persistent volume disk(allocated: ads)(reservations: [(DYNAMIC,ads,ops)])[v:data]:64 cannot be unreserved directly. Please destroy the persistent volume first then unreserve the resource",
        ),
    ] {
        assert_eq!(of_framework(conversion), words);
    }
}

#[test]
fn volumes_are_refused_in_mesos_words() {
    for (conversion, words) in [
        (create(volume("new", nothing)), ""),
        (
            create(annotated(Name::Disk, 1, nothing)),
            "Not a persistent volume: Resource disk(allocated: ads)(reservations: [(DYNAMIC,ads,ops)]):1 does not have DiskInfo",
        ),
        (
            create(volume("new", |it| it.reservations.clear())),
            "Invalid resources: Invalid DiskInfo: Persistent volumes cannot be created from unreserved resources",
        ),
        (
            create(volume("new", |it| {
                it.disk.as_mut().unwrap().volume.as_mut().unwrap().mode = VolumeMode::ReadOnly;
            })),
            "Not a persistent volume: Read-only persistent volume not supported",
        ),
        (
            create(volume("v", nothing)),
            "Persistence ID 'v' is not unique",
        ),
        (
            create(volume("new", |it| it.shared = true)),
            "Create volume operation for 'disk(allocated: ads)(reservations: [(DYNAMIC,ads,ops)])[new:data]<SHARED>:64' has been attempted by framework 'f' with no SHARED_RESOURCES capability",
        ),
        (destroy("v"), ""),
        (destroy("new"), "Persistent volumes not found"),
        (destroy("u"), "Persistent volumes in use"),
    ] {
        assert_eq!(of_framework(conversion), words);
    }
}

#[test]
fn resizes_are_refused_in_mesos_words() {
    let grow = |volume, amount| Conversion::GrowVolume {
        volume,
        addition: annotated(Name::Disk, amount, nothing),
    };
    let shrink = |volume, amount| Conversion::ShrinkVolume {
        volume,
        subtract: Scalar::whole(amount),
    };
    let mount = |annotations: &mut Annotations| {
        let disk = annotations.disk.as_mut().unwrap();
        disk.source = Some(DiskSource::new(SourceKind::Mount));
    };
    for (conversion, words) in [
        (grow(volume("v", nothing), 1), ""),
        (
            grow(volume("v", nothing), 0),
            "The size of 'GrowVolume.addition' field must be greater than zero",
        ),
        (
            grow(volume("v", |it| it.shared = true), 1),
            "Growing a shared persistent volume is not supported",
        ),
        (shrink(volume("v", nothing), 1), ""),
        (
            shrink(volume("v", nothing), 0),
            "Value of 'ShrinkVolume.subtract' must be greater than zero",
        ),
        (
            shrink(volume("v", nothing), 64),
            "Value of 'ShrinkVolume.subtract' must be smaller than the size of 'ShrinkVolume.volume'",
        ),
        (
            shrink(volume("v", mount), 1),
            "Shrinking a volume on a MOUNT disk is not supported",
        ),
        (
            shrink(annotated(Name::Disk, 64, nothing), 1),
            "Invalid persistent volume in the 'ShrinkVolume.volume' field: Resource disk(allocated: ads)(reservations: [(DYNAMIC,ads,ops)]):64 does not have DiskInfo",
        ),
    ] {
        assert_eq!(of_framework(conversion), words);
    }
}

#[test]
fn shortage_message_is_that_of_mesos() {
    let ports: Resources = "ports:[1-2,5-5]".parse().unwrap();
    let left = Resources::from(annotated(Name::Cpus, 1, nothing)) + ports;
    let words = "cpus(reservations: [(DYNAMIC,ads,ops)]):1";
    let told = lacking(&left, &Resources::from(annotated(Name::Cpus, 2, nothing)));
    assert_contains!(told, words, "ports:[1-2, 5-5]");
    let ending = " does not contain cpus(reservations: [(DYNAMIC,ads,ops)]):2";
    assert!(told.ends_with(ending), "{told}");
    assert!(lacking(&Resources::default(), &left).starts_with("{} does"));
}
