//! The cases of SPEC 4.10 that other tests do not cover, under their names there, with exact
//! expectations.
//!
//! Agents are considered in random order. If that decides which agent a framework gets, only the
//! sum is checked.

use std::collections::BTreeMap;
use std::time::Duration;

use module_api::allocator::{Grant, Suppressed};
use resources::{
    Annotations, DiskInfo, DiskSource, Name, Quantities, Resource, Resources, Role, Scalar,
    SourceKind,
};
use runtime::prelude::*;
use runtime::testing::simulate;

use crate::cluster::{Cluster, added, framework, lines, subscribed};
use crate::quota::set;

/// Sum of each framework's grants.
fn sums(grants: &[Grant]) -> BTreeMap<String, String> {
    let mut sums: BTreeMap<String, Quantities> = BTreeMap::new();
    for grant in grants {
        *sums.entry(grant.framework_id.to_string()).or_default() += &grant.resources.quantities();
    }
    let text = |(name, sum): (String, Quantities)| (name, sum.to_string());
    sums.into_iter().map(text).collect()
}

fn texts<const N: usize>(expected: [(&str, &str); N]) -> BTreeMap<String, String> {
    let owned = expected.map(|(name, sum)| (name.to_owned(), sum.to_owned()));
    BTreeMap::from(owned)
}

fn suppress(cluster: &Cluster, name: &str) {
    let suppressed = Suppressed {
        framework_id: framework(name),
        roles: Default::default(),
    };
    cluster.allocator.tell(suppressed).unwrap();
}

/// A framework that already holds these resources when the allocator begins.
fn holding(cluster: &Cluster, agent: &str, total: &str, (name, role): (&str, &str), held: &str) {
    let held = Resources::parse(held)
        .unwrap()
        .allocate(&Role::new(role).unwrap());
    cluster.agent_with(agent, total, vec![(framework(name), held)]);
}

fn story<F: Future<Output = ()>>(tell: impl FnOnce(Cluster) -> F) {
    simulate(|node: Node| async move { tell(Cluster::new(&node, &[])).await });
}

/// SPEC 4.10, NestedRoleDRF.
#[test]
fn roles_share_on_every_level_of_the_tree() {
    story(|cluster| async move {
        cluster.framework("f1", "a/b", &[]);
        cluster.agent("a1", "cpus:2;mem:1024");
        assert_eq!(lines(&cluster.granted().await), ["f1 a1 cpus:2;mem:1024"]);
        cluster.framework("f2", "a/c", &[]);
        cluster.framework("f3", "d/e", &[]);
        cluster.agent("a2", "cpus:1;mem:512");
        assert_eq!(lines(&cluster.granted().await), ["f3 a2 cpus:1;mem:512"]);
        cluster.framework("f4", "d/f", &[]);
        cluster.agent("a3", "cpus:2;mem:1024");
        assert_eq!(lines(&cluster.granted().await), ["f4 a3 cpus:2;mem:1024"]);
    });
}

/// SPEC 4.10, ReservedDRF: reserved resources go to their role alone, and count for its share once
/// allocated.
#[test]
fn reserved_resources_count_for_their_role_alone() {
    story(|cluster| async move {
        cluster.framework("f1", "a", &[]);
        cluster.framework("f2", "b", &[]);
        cluster.agent("a1", "cpus(b):2;mem(b):1024");
        let reserved = ["f2 a1 cpus:2;mem:1024"];
        assert_eq!(lines(&cluster.granted().await), reserved);
        // With equal shares it would be the second framework's turn.
        for name in ["a2", "a3"] {
            cluster.agent(name, "cpus:1;mem:512");
            let poorer = [format!("f1 {name} cpus:1;mem:512")];
            assert_eq!(lines(&cluster.granted().await), poorer);
        }
        cluster.agent("a4", "cpus(a):1;mem(a):512");
        let reserved = ["f1 a4 cpus:1;mem:512"];
        assert_eq!(lines(&cluster.granted().await), reserved);
        cluster.agent("a5", "cpus:1;mem:512");
        assert_eq!(lines(&cluster.granted().await), ["f2 a5 cpus:1;mem:512"]);
    });
}

/// SPEC 4.10, SmallOfferFilterTimeout: a filter shorter than the interval hides offers of the next
/// batch, but not of the one after it.
// Covers 2.2 Filters.
#[test]
fn a_filter_shorter_than_the_interval_outlasts_the_next_batch() {
    story(|cluster| async move {
        cluster.framework("f", "*", &[]);
        cluster.agent("a1", "cpus:2;mem:1024");
        let offer = cluster.granted().await.remove(0);
        cluster.wait(Duration::from_millis(490)).await;
        cluster.give_back(&offer, Some(Duration::from_millis(10)));
        cluster.wait(Duration::from_millis(900)).await;
        assert_eq!(cluster.granted().await, [], "the batch at 1 s has passed");
        cluster.wait(Duration::from_millis(700)).await;
        assert_eq!(lines(&cluster.granted().await), ["f a1 cpus:2;mem:1024"]);
    });
}

/// SPEC 4.10, QuotaProvidesGuarantee: guarantees come before smaller shares.
#[test]
fn guarantees_come_before_smaller_shares() {
    story(|cluster| async move {
        set(&cluster, "a", "cpus:2;mem:1024", "");
        cluster.framework("a", "a", &[]);
        cluster.framework("b", "b", &[]);
        let mut given = Vec::new();
        for name in ["a1", "a2", "a3", "a4"] {
            cluster.agent(name, "cpus:1;mem:512");
            given.extend(lines(&cluster.granted().await));
        }
        let expected = ["a a1", "a a2", "b a3", "b a4"];
        assert_eq!(given, expected.map(|who| format!("{who} cpus:1;mem:512")));
    });
}

/// SPEC 4.10, QuotaAllocationGranularity.
#[test]
fn an_agent_is_cut_to_the_quota_exactly() {
    story(|cluster| async move {
        set(&cluster, "a", "cpus:0.5;mem:200", "cpus:0.5;mem:200");
        cluster.framework("a", "a", &[]);
        cluster.framework("b", "b", &[]);
        cluster.agent("a1", "cpus:1;mem:512");
        assert_eq!(
            lines(&cluster.granted().await),
            ["a a1 cpus:0.5;mem:200", "b a1 cpus:0.5;mem:312"]
        );
    });
}

/// A disk with a file system of its own.
fn mount(number: usize, size: u32) -> Resource {
    let source = DiskSource {
        root: Some(format!("mnt/{number}")),
        ..DiskSource::new(SourceKind::Mount)
    };
    let disk = DiskInfo {
        source: Some(source),
        ..DiskInfo::default()
    };
    let annotations = Annotations {
        disk: Some(Box::new(disk)),
        ..Annotations::default()
    };
    Resource::annotated(Name::Disk, Scalar::whole(size), annotations).unwrap()
}

fn disks(grants: &[Grant]) -> Vec<(String, Vec<i64>)> {
    let sizes = |grant: &Grant| {
        let disks = grant.resources.iter().filter(|one| one.is(&Name::Disk));
        let mut sizes: Vec<i64> = disks
            .filter_map(|disk| Some(disk.amount()?.thousandths() / 1000))
            .collect();
        sizes.sort_unstable();
        (grant.framework_id.to_string(), sizes)
    };
    grants.iter().map(sizes).collect()
}

/// SPEC 4.10, QuotaAllocationGranularityUnchoppableResource and MultipleDisk: indivisible resources
/// are given whole or not at all, and of several disks those that fit. Resources for an unmet
/// guarantee stay free, as does a disk that would use them up.
#[test]
fn indivisible_disks_are_chosen_to_fit_the_quota() {
    // The quota, the disks, those of the role, and those of another: with the quota as guarantee,
    // and only as limit.
    type Case = (u32, &'static [u32], &'static [i64], [&'static [i64]; 2]);
    let cases: [Case; 4] = [
        (150, &[200], &[], [&[], &[200]]),
        (150, &[100, 50, 60], &[50, 100], [&[60], &[60]]),
        (150, &[120, 100], &[120], [&[], &[100]]),
        (50, &[60, 51], &[], [&[60], &[51, 60]]),
    ];
    for (disk, mounts, own, rests) in cases {
        for (guaranteed, rest) in [true, false].into_iter().zip(rests) {
            story(|cluster| async move {
                let quota = format!("cpus:1;disk:{disk}");
                let guarantee = if guaranteed { quota.as_str() } else { "" };
                set(&cluster, "a", guarantee, &quota);
                cluster.framework("a", "a", &[]);
                let mut fact = added("a1", "cpus:2;mem:64", vec![]);
                for (number, size) in mounts.iter().enumerate() {
                    fact.info.resources += mount(number, *size);
                }
                cluster.allocator.tell(fact).unwrap();
                let own = [("a".to_owned(), own.to_vec())];
                assert_eq!(
                    disks(&cluster.granted().await),
                    own,
                    "{quota} of {mounts:?}"
                );
                cluster.framework("b", "b", &[]);
                let rest = [("b".to_owned(), rest.to_vec())];
                assert_eq!(
                    disks(&cluster.granted().await),
                    rest,
                    "{quota} of {mounts:?}"
                );
            });
        }
    }
}

/// SPEC 4.10, QuotaAgainstStarvation: a guarantee stays free while its framework suppresses offers.
#[test]
fn guarantee_stays_free_for_a_suppressed_framework() {
    story(|cluster| async move {
        set(&cluster, "a", "cpus:2;mem:1024", "");
        cluster.framework("a", "a", &[]);
        suppress(&cluster, "a");
        cluster.framework("b", "b", &[]);
        for name in ["a1", "a2"] {
            cluster.agent(name, "cpus:2;mem:1024");
        }
        let grants = cluster.granted().await;
        assert_eq!(sums(&grants), texts([("b", "cpus:2;mem:1024")]));
        cluster.wait(Duration::from_secs(10)).await;
        assert_eq!(cluster.granted().await, []);
    });
}

/// SPEC 2.2, UPDATE_FRAMEWORK: its list of suppressed roles replaces the earlier one.
#[test]
fn update_replaces_suppressed_roles() {
    story(|cluster| async move {
        let says = |suppressed: &[&str]| {
            let mut fact = subscribed("f", "a,b", &[]);
            fact.wants.suppressed_roles = suppressed.iter().map(|&role| role.to_owned()).collect();
            cluster.allocator.tell(fact).unwrap();
        };
        says(&["b"]);
        cluster.agent("a1", "cpus:2;mem:1024");
        let grants = cluster.granted().await;
        let [grant] = &grants[..] else {
            panic!("{grants:?}")
        };
        assert_eq!(grant.role, "a");
        // A long filter, then suppression.
        cluster.give_back(grant, Some(Duration::from_secs(1_000_000)));
        says(&["a", "b"]);
        cluster.wait(Duration::from_secs(10)).await;
        assert_eq!(cluster.granted().await, [], "what is suppressed stays so");
        says(&["b"]);
        cluster.wait(Duration::from_secs(10)).await;
        let grants = cluster.granted().await;
        assert_eq!(lines(&grants), ["f a1 cpus:2;mem:1024"], "its filter went");
        assert_eq!(grants[0].role, "a");
        cluster.give_back(&grants[0], None);
        says(&["a"]);
        cluster.wait(Duration::from_secs(10)).await;
        assert_eq!(cluster.granted().await[0].role, "b");
    });
}

/// SPEC 4.10, MultiQuotaAbsentFrameworks: two unused guarantees both stay free.
#[test]
fn guarantees_of_several_absent_roles_stay_free() {
    story(|cluster| async move {
        set(&cluster, "a", "cpus:1;mem:512", "");
        set(&cluster, "b", "cpus:2;mem:1024", "");
        cluster.framework("c", "c", &[]);
        for name in ["a1", "a2"] {
            cluster.agent(name, "cpus:2;mem:1024");
        }
        let grants = cluster.granted().await;
        assert_eq!(sums(&grants), texts([("c", "cpus:1;mem:512")]));
    });
}

/// SPEC 4.10, MultiQuotaWithFrameworks: each role gets its guarantee, the smaller share first, and
/// then all share.
#[test]
fn several_guarantees_are_met_before_others_share() {
    story(|cluster| async move {
        set(&cluster, "a", "cpus:1;mem:1000", "");
        set(&cluster, "b", "cpus:2;mem:2000", "");
        for name in ["a", "b", "c"] {
            cluster.framework(name, name, &[]);
        }
        let mut given = Vec::new();
        for name in ["a1", "a2", "a3", "a4"] {
            cluster.agent(name, "cpus:1;mem:1000");
            given.extend(lines(&cluster.granted().await));
        }
        let expected = ["a a1", "b a2", "b a3", "c a4"];
        assert_eq!(given, expected.map(|who| format!("{who} cpus:1;mem:1000")));
    });
}

/// SPEC 4.10, DisproportionateQuotaVsAllocation: a surplus of one resource does not offset a lack
/// of another.
#[test]
fn guarantees_are_kept_per_resource() {
    story(|cluster| async move {
        set(&cluster, "a", "cpus:1;mem:1024", "");
        holding(
            &cluster,
            "a1",
            "cpus:3;mem:512",
            ("a", "a"),
            "cpus:3;mem:512",
        );
        cluster.framework("b", "b", &[]);
        cluster.agent("a2", "cpus:4;mem:1024");
        assert_eq!(lines(&cluster.granted().await), ["b a2 cpus:4;mem:512"]);
    });
}

/// SPEC 4.10, QuotaSetAsideReservedResources: reservations for other roles do not count as
/// headroom.
#[test]
fn an_idle_reservation_is_no_headroom() {
    story(|cluster| async move {
        set(&cluster, "a", "cpus:2;mem:512", "");
        cluster.framework("b", "b", &[]);
        cluster.agent("a1", "cpus(other):4;mem(other):1024");
        cluster.agent("a2", "cpus:3;mem:768");
        assert_eq!(lines(&cluster.granted().await), ["b a2 cpus:1;mem:256"]);
    });
}

/// SPEC 4.10, ReservationWithinQuota: the role's reservations are a part of its quota.
#[test]
fn a_reservation_counts_into_the_quota_of_its_role() {
    story(|cluster| async move {
        set(&cluster, "a", "cpus:2;mem:256", "cpus:2;mem:256");
        cluster.framework("a", "a", &[]);
        cluster.agent("a1", "cpus(a):1;mem(a):128;cpus:4;mem:512");
        let grants = cluster.granted().await;
        assert_eq!(sums(&grants), texts([("a", "cpus:2;mem:256")]));
        let reserved = grants
            .iter()
            .map(|grant| grant.resources.all_reserved().cpus());
        assert_eq!(reserved.max(), Some(Scalar::whole(1)));
        cluster.framework("b", "b", &[]);
        assert_eq!(lines(&cluster.granted().await), ["b a1 cpus:3;mem:384"]);
    });
}

/// SPEC 4.10, QuotaWithAncestorReservations: a parent's reservation counts for a child once the
/// child uses it, and not before.
#[test]
fn parent_reservation_counts_for_its_user() {
    story(|cluster| async move {
        set(&cluster, "a/b", "cpus:2;mem:256", "");
        cluster.framework("c", "c", &[]);
        cluster.agent("a1", "cpus(a):1;mem(a):128");
        cluster.agent("a2", "cpus:2;mem:256");
        assert_eq!(
            cluster.granted().await,
            [],
            "all that is free is guaranteed"
        );
        cluster.agent_with("a1", "cpus(a):1;mem(a):128", {
            let held = Resources::parse("cpus(a):1;mem(a):128").unwrap();
            let role = Role::new("a/b").unwrap();
            vec![(framework("b"), held.allocate(&role))]
        });
        cluster.wait(Duration::from_secs(1)).await;
        assert_eq!(lines(&cluster.granted().await), ["c a2 cpus:1;mem:128"]);
    });
}

/// SPEC 4.10, QuotaWithNestedRoleReservation: a child's reservation counts for the parent, used or
/// not.
// Covers W11.
#[test]
fn child_reservation_counts_for_the_parent_quota() {
    story(|cluster| async move {
        set(&cluster, "a", "cpus:2;mem:256", "");
        cluster.framework("c", "c", &[]);
        cluster.agent("a1", "cpus(a/b):1;mem(a/b):128");
        cluster.agent("a2", "cpus:2;mem:256");
        let grants = cluster.granted().await;
        assert_eq!(sums(&grants), texts([("c", "cpus:1;mem:128")]));
    });
}

/// SPEC 4.10, QuotaWithNestedRoleAllocation: a child's allocation counts for the parent.
// Covers W11.
#[test]
fn child_allocation_counts_for_the_parent_quota() {
    story(|cluster| async move {
        set(&cluster, "a", "cpus:2;mem:256", "");
        cluster.framework("c", "c", &[]);
        holding(
            &cluster,
            "a1",
            "cpus:1;mem:128",
            ("b", "a/b"),
            "cpus:1;mem:128",
        );
        cluster.agent("a2", "cpus:2;mem:256");
        let grants = cluster.granted().await;
        assert_eq!(sums(&grants), texts([("c", "cpus:1;mem:128")]));
    });
}

/// SPEC 4.10, NestedRoleQuotaAllocateToParent: a parent and its child share the parent's guarantee,
/// except for the child's own.
// Covers W11.
#[test]
fn parent_uses_the_guarantee_left_by_children() {
    story(|cluster| async move {
        set(&cluster, "a", "cpus:4;mem:512", "cpus:4;mem:512");
        set(&cluster, "a/b", "cpus:1;mem:128", "");
        cluster.framework("parent", "a", &[]);
        cluster.framework("c", "c", &[]);
        cluster.agent("a1", "cpus:6;mem:768");
        let grants = cluster.granted().await;
        let expected = [("c", "cpus:2;mem:256"), ("parent", "cpus:3;mem:384")];
        assert_eq!(sums(&grants), texts(expected));
        cluster.framework("child", "a/b", &[]);
        let grants = cluster.granted().await;
        assert_eq!(sums(&grants), texts([("child", "cpus:1;mem:128")]));
    });
}

/// SPEC 4.10, NestedQuotaAccounting: a child role is bounded by its own limit and its parent's,
/// whichever is tighter.
// Covers W11.
#[test]
fn roles_below_are_capped_together_by_the_one_above() {
    story(|cluster| async move {
        set(&cluster, "a", "", "cpus:3;mem:384");
        set(&cluster, "a/b", "", "cpus:2;mem:256");
        cluster.framework("b", "a/b", &[]);
        cluster.agent("a1", "cpus:8;mem:1024");
        assert_eq!(
            sums(&cluster.granted().await),
            texts([("b", "cpus:2;mem:256")])
        );
        cluster.framework("d", "a/d/e", &[]);
        assert_eq!(
            sums(&cluster.granted().await),
            texts([("d", "cpus:1;mem:128")])
        );
        cluster.framework("c", "c", &[]);
        assert_eq!(
            sums(&cluster.granted().await),
            texts([("c", "cpus:5;mem:640")])
        );
    });
}

/// Resources freed below a common limit go to the guaranteed role first; its siblings have left
/// them free.
#[test]
fn sibling_leaves_room_for_a_guarantee() {
    story(|cluster| async move {
        set(&cluster, "a", "", "cpus:4;mem:512");
        set(&cluster, "a/b", "cpus:3;mem:384", "");
        cluster.framework("greedy", "a/c", &[]);
        cluster.agent("a1", "cpus:9;mem:1152");
        assert_eq!(
            sums(&cluster.granted().await),
            texts([("greedy", "cpus:1;mem:128")])
        );
        cluster.framework("b", "a/b", &[]);
        assert_eq!(
            sums(&cluster.granted().await),
            texts([("b", "cpus:3;mem:384")])
        );
    });
}

/// A guarantee beyond the limit above it keeps nothing free.
// Covers W11.
#[test]
fn guarantee_beyond_a_parent_limit_is_not_kept() {
    story(|cluster| async move {
        set(&cluster, "a", "", "cpus:1;mem:128");
        set(&cluster, "a/b", "cpus:4;mem:512", "");
        cluster.framework("c", "c", &[]);
        cluster.agent("a1", "cpus:4;mem:512");
        assert_eq!(
            sums(&cluster.granted().await),
            texts([("c", "cpus:3;mem:384")])
        );
    });
}

/// A new agent that meets a guarantee releases the resources kept for it elsewhere.
#[test]
fn met_guarantee_releases_kept_resources() {
    story(|cluster| async move {
        set(&cluster, "a", "cpus:2;mem:256", "");
        cluster.framework("c", "c", &[]);
        cluster.agent("a1", "cpus:2;mem:256");
        assert_eq!(cluster.granted().await, []);
        cluster.agent("a2", "cpus(a):2;mem(a):256");
        cluster.wait(Duration::from_secs(1)).await;
        assert_eq!(lines(&cluster.granted().await), ["c a1 cpus:2;mem:256"]);
    });
}

/// A client that declines an offer cut by its limit is offered as much of the next agent.
#[test]
fn declined_cut_offer_is_followed_by_another_agent() {
    story(|cluster| async move {
        set(&cluster, "a", "", "cpus:1;mem:64");
        cluster.framework("f", "a", &[]);
        let names: Vec<String> = (1..=8).map(|n| format!("a{n}")).collect();
        for name in &names {
            cluster.agent(name, "cpus:2;mem:128");
        }
        let mut asked = Vec::new();
        for _ in &names {
            let grants = cluster.granted().await;
            assert_eq!(sums(&grants), texts([("f", "cpus:1;mem:64")]));
            asked.push(grants[0].agent_id.to_string());
            cluster.give_back(&grants[0], Some(Duration::from_secs(1000)));
            cluster.wait(Duration::from_secs(1)).await;
        }
        asked.sort();
        assert_eq!(asked, names, "each agent once");
        assert_eq!(cluster.granted().await, []);
    });
}
