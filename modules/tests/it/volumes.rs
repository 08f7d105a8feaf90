//! Persistent volumes are never split: an offer has the whole of one or nothing of it, whatever its framework wants of the disk and
//! whatever quota leaves (SPEC 4.5).

use std::time::Duration;

use module_api::allocator::Grant;
use proptest::prelude::*;
use protocol::Demand;
use resources::{
    Annotations, DiskInfo, Name, Quantities, Reservation, Resource, Resources, Role, Scalar,
};
use runtime::rehearsal::rehearse;

use crate::cluster::{Cluster, added};
use crate::quota::set;

const SECOND: Duration = Duration::from_secs(1);

/// Volumes of these sizes, called by their numbers, and disk that is none, all reserved for this role.
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

/// An agent with these disks, and something besides that makes any offer worth it.
fn agent(cluster: &Cluster, role: &str, volumes: &[u32], plain: u32) {
    let mut fact = added("a1", "cpus:8;mem:800", vec![]);
    fact.info.resources += &disks(role, volumes, plain);
    cluster.allocator.tell(fact).unwrap();
}

/// The sizes of the volumes in a grant, and how much other disk it has.
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

/// What a framework that wants so much disk at most is offered of an agent, first and with the next batch.
fn shaped(volumes: &'static [u32], plain: u32, disk: u32) -> [(Vec<i64>, i64); 2] {
    rehearse(|node| async move {
        let cluster = Cluster::new(&node, &[]);
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

#[test]
fn an_offer_that_is_cut_to_a_need_has_the_whole_of_a_volume_or_nothing_of_it() {
    let volumes = |sizes: &[i64], plain| (sizes.to_vec(), plain);
    // The volume does not fit, and nothing of it is given in its place.
    let expected = [volumes(&[], 60), volumes(&[], 40)];
    assert_eq!(shaped(&[100], 100, 60), expected);
    // It fits, and the rest is filled up with what can be cut.
    let expected = [volumes(&[100], 50), volumes(&[], 50)];
    assert_eq!(shaped(&[100], 100, 150), expected);
    // One that fits exactly.
    let expected = [volumes(&[100], 0), volumes(&[], 20)];
    assert_eq!(shaped(&[100], 20, 100), expected);
    // The biggest first, and of the others those that fit beside it.
    let expected = [volumes(&[20, 50], 0), volumes(&[30, 40], 0)];
    assert_eq!(shaped(&[20, 30, 40, 50], 0, 70), expected);
}

/// What a role above has reserved counts for the one below when it is given, so a limit there may cut it.
#[test]
fn a_limit_leaves_the_whole_of_a_volume_or_nothing_of_it() {
    let limited = |disk: u32| {
        rehearse(|node| async move {
            let cluster = Cluster::new(&node, &[]);
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
    /// What two frameworks want at most, if they say.
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

    /// Whatever is wanted, limited, guaranteed, and given back in between.
    #[test]
    fn whatever_volumes_are_granted_are_whole_and_with_one_framework(case in case()) {
        let mut total = Resources::parse("cpus:8;mem:800").unwrap();
        total += &disks("a", &case.volumes, case.plain);
        for grants in granted(case) {
            let all = grants.iter().map(|grant| grant.resources.unallocate());
            let all = all.fold(Resources::new(), |sum, part| sum + part);
            prop_assert!(total.contains(&all), "of {} are granted {}", total, all);
        }
    }
}

/// So that this law means something.
#[test]
fn a_part_of_a_volume_is_not_contained_in_it() {
    let (whole, part) = (disks("a", &[100], 50), disks("a", &[60], 0));
    assert!(!whole.contains(&part));
    assert!(whole.contains(&disks("a", &[100], 10)));
}

/// What was granted and not given back, three times.
fn granted(case: Case) -> Vec<Vec<Grant>> {
    rehearse(|node| async move {
        let cluster = Cluster::new(&node, &[]);
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
