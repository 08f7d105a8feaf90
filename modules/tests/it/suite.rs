//! The facts of SPEC 4.10 that the other stories do not tell, each under the name that it has there, with exact expectations.
//!
//! Agents are walked in a random order. Where that decides which agent somebody is given something of, only its sum is expected.

use std::collections::BTreeMap;
use std::time::Duration;

use module_api::allocator::{Grant, Suppressed};
use resources::{
    Annotations, DiskInfo, DiskSource, Name, Quantities, Resource, Resources, Role, Scalar,
    SourceKind,
};
use runtime::prelude::*;
use runtime::rehearsal::rehearse;

use crate::cluster::{Cluster, added, framework, lines, subscribed};
use crate::quota::set;

/// What each framework was granted together.
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

/// A framework that holds this on an agent, from before the allocator began.
fn holding(cluster: &Cluster, agent: &str, total: &str, (name, role): (&str, &str), held: &str) {
    let held = Resources::parse(held)
        .unwrap()
        .allocate(&Role::new(role).unwrap());
    cluster.agent_with(agent, total, vec![(framework(name), held)]);
}

fn story<F: Future<Output = ()>>(tell: impl FnOnce(Cluster) -> F) {
    rehearse(|node: Node| async move { tell(Cluster::new(&node, &[])).await });
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

/// SPEC 4.10, ReservedDRF: what is reserved for a role is for it alone, and counts in its share once it is given.
#[test]
fn what_is_reserved_is_its_roles_alone_and_counts_in_its_share() {
    story(|cluster| async move {
        cluster.framework("f1", "a", &[]);
        cluster.framework("f2", "b", &[]);
        cluster.agent("a1", "cpus(b):2;mem(b):1024");
        let reserved = ["f2 a1 cpus:2;mem:1024"];
        assert_eq!(lines(&cluster.granted().await), reserved);
        // With equal shares it would be the second's turn after the first.
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

/// SPEC 4.10, SmallOfferFilterTimeout: a filter shorter than the interval still hides from the next batch, and not from the one after it.
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

/// SPEC 4.10, QuotaProvidesGuarantee: what is guaranteed comes first, whoever is poorer.
#[test]
fn a_role_has_what_it_is_guaranteed_before_a_poorer_one_has_anything() {
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

/// A disk that is a file system of its own.
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

/// SPEC 4.10, QuotaAllocationGranularityUnchoppableResource and MultipleDisk: what cannot be cut is given as a whole or not at all, and
/// of several disks those that fit. What a guarantee still lacks stays free, and so does a disk that would take of it.
#[test]
fn disks_that_cannot_be_cut_are_chosen_to_fit_the_quota() {
    // The quota, the disks, those of the role, and those of another: where the quota is guaranteed, and where it is only a limit.
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

/// SPEC 4.10, QuotaAgainstStarvation: what is guaranteed stays free while its framework suppresses its offers.
#[test]
fn what_is_guaranteed_stays_free_for_a_framework_that_rests() {
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

/// SPEC 2.2, UPDATE_FRAMEWORK: the roles that it names as suppressed are all that are.
#[test]
fn an_update_takes_back_what_was_suppressed_with_its_filters_and_suppresses_what_it_names() {
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
        // It wants no more of this for long, and then nothing at all.
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

/// SPEC 4.10, MultiQuotaAbsentFrameworks: of two quotas nobody uses, both stay free.
#[test]
fn what_is_guaranteed_to_several_absent_roles_stays_free_for_all_of_them() {
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

/// SPEC 4.10, MultiQuotaWithFrameworks: each role has what it is guaranteed, the poorer first, and then all share.
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

/// SPEC 4.10, DisproportionateQuotaVsAllocation: too much of one resource does not make up for too little of another.
#[test]
fn what_is_kept_for_a_guarantee_is_reckoned_by_each_resource() {
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

/// SPEC 4.10, QuotaSetAsideReservedResources: what is reserved for others is nothing that a guarantee could be met with.
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

/// SPEC 4.10, ReservationWithinQuota: what is reserved for the role is a part of its quota.
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

/// SPEC 4.10, QuotaWithAncestorReservations: what is reserved for a role above counts for the one below once it has it, and not before.
#[test]
fn a_reservation_of_a_role_above_counts_for_who_holds_it() {
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

/// SPEC 4.10, QuotaWithNestedRoleReservation: what is reserved below counts for the role above, used or not.
#[test]
fn a_reservation_of_a_role_below_counts_into_the_quota_above() {
    story(|cluster| async move {
        set(&cluster, "a", "cpus:2;mem:256", "");
        cluster.framework("c", "c", &[]);
        cluster.agent("a1", "cpus(a/b):1;mem(a/b):128");
        cluster.agent("a2", "cpus:2;mem:256");
        let grants = cluster.granted().await;
        assert_eq!(sums(&grants), texts([("c", "cpus:1;mem:128")]));
    });
}

/// SPEC 4.10, QuotaWithNestedRoleAllocation: what is held below counts for the role above.
#[test]
fn what_a_role_below_holds_counts_into_the_quota_above() {
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

/// SPEC 4.10, NestedRoleQuotaAllocateToParent: a role with a quota and one below it share what is guaranteed above, and leave what is
/// guaranteed below.
#[test]
fn a_role_above_takes_of_its_guarantee_what_those_below_do_not_need() {
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

/// SPEC 4.10, NestedQuotaAccounting: a role below is capped by its own limit and by that above, whichever is nearer.
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

/// Freed below a limit above, the room goes to who is guaranteed it first, and siblings have left it free.
#[test]
fn a_sibling_leaves_the_room_that_a_guarantee_needs_below_a_limit() {
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

/// Nothing stays free for ever for a guarantee that the limit above has no room for.
#[test]
fn a_guarantee_that_a_limit_above_does_not_allow_keeps_nothing_from_others() {
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

/// An agent that brings what a guarantee lacks frees what was kept for it elsewhere.
#[test]
fn what_was_kept_for_a_guarantee_that_is_met_goes_to_others() {
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

/// Who declines what its limit has cut of one agent is offered as much of the next one.
#[test]
fn who_declines_a_cut_offer_is_offered_another_agent() {
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
