//! Persistent volumes are never split: an offer contains a whole volume or none of it, whatever the
//! demand and the quota (SPEC 4.5).

use std::time::Duration;

use module_api::allocator::Grant;
use proptest::prelude::*;
use protocol::Demand;
use resources::{
    Annotations, DiskInfo, Name, Quantities, Reservation, Resource, Resources, Role, Scalar,
};

use crate::cluster::{Cluster, added, simulate_cluster};
use crate::quota::set;

const SECOND: Duration = Duration::from_secs(1);

/// Volumes of these sizes, named by number, and plain disk, all reserved for this role.
fn disks(role: &str, volumes: &[u32], plain: u32) -> Resources {
    let mut all = Resources::parse(&format!("disk({role}):{plain}")).unwrap();
    for (number, size) in volumes.iter().enumerate() {
        let info = DiskInfo::persistent(format!("v{number}"), Some("ops"), "data");
        let annotations = Annotations {
            reservations: vec![Reservation::dynamic(Role::new(role).unwrap(), Some("ops"))],
            disk: Some(Box::new(info)),
            ..Annotations::default()
        };
        all += Resource::annotated(Name::Disk, Scalar::whole(*size), annotations).unwrap();
    }
    all
}

/// An agent with these disks, and other resources that make any offer large enough.
fn agent(cluster: &Cluster, role: &str, volumes: &[u32], plain: u32) {
    let mut fact = added("a1", "cpus:8;mem:800", vec![]);
    fact.info.resources += &disks(role, volumes, plain);
    cluster.allocator.tell(fact).unwrap();
}

/// Sizes of the volumes in a grant, and its plain disk.
fn of(grant: &Grant) -> (Vec<i64>, i64) {
    let whole = |one: &Resource| one.amount().unwrap().thousandths() / 1000;
    let disk = grant.resources.iter().filter(|one| one.is(&Name::Disk));
    let (volumes, plain): (Vec<_>, Vec<_>) = disk.partition(|one| one.is_persistent_volume());
    let mut sizes: Vec<i64> = volumes.into_iter().map(whole).collect();
    sizes.sort_unstable();
    (sizes, plain.into_iter().map(whole).sum())
}

fn most(disk: u32) -> Demand {
    let quantities = |text: &str| Quantities::parse(text).unwrap();
    Demand::shaped(
        quantities("cpus:1"),
        quantities(&format!("cpus:1;disk:{disk}")),
    )
}

/// Offers of an agent to a framework with this maximum of disk, now and in the next batch.
fn shaped(volumes: &'static [u32], plain: u32, disk: u32) -> [(Vec<i64>, i64); 2] {
    simulate_cluster(|cluster| async move {
        cluster.demanding("f", "a", most(disk));
        agent(&cluster, "a", volumes, plain);
        let first = cluster.granted().await;
        let second = cluster.granted_within(SECOND).await;
        [first, second].map(|grants| {
            assert_eq!(grants.len(), 1, "{grants:?}");
            of(&grants[0])
        })
    })
}

// Covers W9 in part: without moving what runs.
#[test]
fn shaped_offer_never_splits_a_volume() {
    let volumes = |sizes: &[i64], plain| (sizes.to_vec(), plain);
    // The volume does not fit, and no part of it is given.
    let expected = [volumes(&[], 60), volumes(&[], 40)];
    assert_eq!(shaped(&[100], 100, 60), expected);
    // It fits, and divisible disk fills the rest.
    let expected = [volumes(&[100], 50), volumes(&[], 50)];
    assert_eq!(shaped(&[100], 100, 150), expected);
    // An exact fit.
    let expected = [volumes(&[100], 0), volumes(&[], 20)];
    assert_eq!(shaped(&[100], 20, 100), expected);
    // The largest first, then the others that still fit.
    let expected = [volumes(&[20, 50], 0), volumes(&[30, 40], 0)];
    assert_eq!(shaped(&[20, 30, 40, 50], 0, 70), expected);
}

/// Reservations of a parent role count for the child that uses them, so the child's limit may cut
/// them.
#[test]
fn limit_never_splits_a_volume() {
    let limited = |disk: u32| {
        simulate_cluster(|cluster| async move {
            set(&cluster, "a/b", "", &format!("cpus:8;mem:800;disk:{disk}"));
            cluster.framework("f", "a/b", &[]);
            agent(&cluster, "a", &[100], 100);
            let grants = cluster.granted().await;
            assert_eq!(grants.len(), 1, "{grants:?}");
            of(&grants[0])
        })
    };
    assert_eq!(limited(60), (vec![], 60));
    assert_eq!(limited(99), (vec![], 99));
    assert_eq!(limited(100), (vec![100], 0));
    assert_eq!(limited(150), (vec![100], 50));
    assert_eq!(limited(500), (vec![100], 100));
}

#[derive(Clone, Debug)]
struct Case {
    volumes: Vec<u32>,
    plain: u32,
    /// Maxima of two frameworks, if they have any.
    most: [Option<u32>; 2],
    limit: Option<u32>,
    guarantee: Option<u32>,
    other_first: bool,
}

fn case() -> impl Strategy<Value = Case> {
    let size = || 1_u32..60;
    let wants = || proptest::option::of(1_u32..150);
    (
        proptest::collection::vec(size(), 1..5),
        0_u32..80,
        [wants(), wants()],
        proptest::option::of(1_u32..200),
        proptest::option::of(1_u32..200),
        any::<bool>(),
    )
        .prop_map(
            |(volumes, plain, most, limit, guarantee, other_first)| Case {
                volumes,
                plain,
                most,
                limit,
                guarantee: guarantee.map(|own| limit.map_or(own, |limit| own.min(limit))),
                other_first,
            },
        )
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(150) })]

    /// Under any demands, limits, guarantees and returned grants.
    // Covers W9 in part: without moving what runs.
    #[test]
    fn granted_volumes_are_whole_and_exclusive(case in case()) {
        let mut total = Resources::parse("cpus:8;mem:800").unwrap();
        total += &disks("a", &case.volumes, case.plain);
        for grants in granted(case) {
            let all = grants.iter().map(|grant| grant.resources.unallocate());
            let all = all.fold(Resources::new(), |sum, part| sum + part);
            prop_assert!(total.contains(&all), "of {} are granted {}", total, all);
        }
    }
}

/// Checks that the property above is meaningful.
#[test]
fn a_part_of_a_volume_is_not_contained_in_it() {
    let (whole, part) = (disks("a", &[100], 50), disks("a", &[60], 0));
    assert!(!whole.contains(&part));
    assert!(whole.contains(&disks("a", &[100], 10)));
}

/// Grants that were kept, three times.
fn granted(case: Case) -> Vec<Vec<Grant>> {
    simulate_cluster(|cluster| async move {
        let quota = |disk: Option<u32>| match disk {
            Some(disk) => format!("cpus:8;mem:800;disk:{disk}"),
            None => String::new(),
        };
        set(&cluster, "a/b", &quota(case.guarantee), &quota(case.limit));
        let mut who = [("f0", "a/b", case.most[0]), ("f1", "a/c", case.most[1])];
        if case.other_first {
            who.reverse();
        }
        for (name, role, wants) in who {
            match wants {
                Some(disk) => cluster.demanding(name, role, most(disk)),
                None => cluster.framework(name, role, &[]),
            }
        }
        agent(&cluster, "a", &case.volumes, case.plain);
        let mut rounds = Vec::new();
        for _ in 0..3 {
            let grants = cluster.granted_within(2 * SECOND).await;
            for grant in &grants {
                cluster.give_back(grant, None);
            }
            rounds.push(grants);
        }
        rounds
    })
}
