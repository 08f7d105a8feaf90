//! How soon what was declined is offered to the next one: in virtual time, in which a run takes none and only the pauses between runs count.

use std::collections::BTreeMap;
use std::time::Duration;

use module_api::allocator::{
    FrameworkActivity, FrameworkAdded, Grant, Revived, Suppressed, WeightsChanged,
};
use modules::workload::{Shape, Workload};
use protocol::{Capability, Demand};
use resources::{Quantities, Resources, Role};
use runtime::Node;
use runtime::rehearsal::rehearse;

use crate::cluster::{Cluster, framework, subscribed};

/// As any framework that does not want what it is offered.
const REFUSED: Option<Duration> = Some(Duration::from_secs(5));

/// S130: so the pauses allow it; how fast a machine is, `meros bench offers` measures.
#[test]
fn declined_at_once_tens_of_thousands_of_offers_are_made_in_a_second() {
    rehearse(|node| async move {
        let (agents, frameworks) = (100, 30);
        let cluster = Cluster::new(&node, &[]);
        for n in 0..frameworks {
            cluster.framework(&format!("f{n}"), "*", &[]);
        }
        for n in 0..agents {
            cluster.agent(&format!("a{n}"), "cpus:4;mem:1024");
        }
        let begun = node.clock().now();
        let mut offers = 0;
        while offers < agents * frameworks {
            let grants = cluster.granted_within(Duration::from_millis(1)).await;
            let took = node.clock().now() - begun;
            assert!(took.as_secs() < 1, "{offers} offers in {took:?}");
            for grant in &grants {
                cluster.give_back(grant, REFUSED);
            }
            offers += grants.len();
        }
        let took = node.clock().now() - begun;
        let rate = offers as f64 / took.as_secs_f64();
        assert!(rate > 20_000.0, "{rate} a second");
        assert_eq!(offers, agents * frameworks, "each agent to each framework");
    });
}

/// A cluster whose one agent is granted whole, that grant, and the part of it that a task uses.
async fn offered_whole(node: &Node) -> (Cluster, Grant, Resources) {
    let cluster = Cluster::new(node, &[]);
    cluster.framework("f", "*", &[]);
    cluster.agent("a", "cpus:4;mem:1024");
    let mut grants = cluster.granted_within(Duration::from_millis(10)).await;
    assert_eq!(grants.len(), 1, "{grants:?}");
    let task = Resources::parse("cpus:1;mem:256").unwrap();
    (cluster, grants.remove(0), task.allocate(&Role::STAR))
}

#[test]
fn freed_resources_are_granted_together_with_an_answered_offer() {
    rehearse(|node| async move {
        let (cluster, all, task) = offered_whole(&node).await;
        let rest = all.resources.checked_sub(&task).unwrap();
        cluster.free_beside_offer(&all, task);
        let crumb = cluster.granted_within(Duration::from_millis(100)).await;
        assert_eq!(crumb, [], "nothing before the next batch");
        // The offer is answered: the framework took nothing of it, and set no filter.
        cluster.give_back_part(&all, rest, None);
        let whole = cluster.granted_within(Duration::from_millis(10)).await;
        let whole: Vec<_> = whole.iter().map(|grant| &grant.resources).collect();
        assert_eq!(whole, [&all.resources]);
    });
}

#[test]
fn freed_resources_wait_for_the_batch_at_most() {
    rehearse(|node| async move {
        let (cluster, all, task) = offered_whole(&node).await;
        cluster.free_beside_offer(&all, task.clone());
        let freed = cluster.granted_within(Duration::from_secs(1)).await;
        let freed: Vec<_> = freed.iter().map(|grant| &grant.resources).collect();
        assert_eq!(freed, [&task]);
    });
}

/// How many runs the allocator has made, a moment later.
async fn runs(cluster: &Cluster) -> f64 {
    cluster.wait(Duration::from_millis(50)).await;
    let measured = cluster.allocator.measure().await;
    measured.unwrap()["allocator/mesos/allocation_runs"]
}

/// W16: a change begins a run at once, and what comes with it is looked at in the same run.
#[test]
fn whatever_changes_at_one_moment_is_one_run_and_does_not_wait_for_the_next_batch() {
    rehearse(|node| async move {
        let cluster = Cluster::new(&node, &[]);
        cluster.framework("f", "*", &[]);
        for n in 0..20 {
            cluster.agent(&format!("a{n}"), "cpus:4;mem:1024");
        }
        let before = runs(&cluster).await;
        assert_eq!(runs(&cluster).await, before, "nothing has changed");
        let weights = BTreeMap::from([("a".to_owned(), 2.0)]);
        cluster.allocator.tell(WeightsChanged { weights }).unwrap();
        assert_eq!(runs(&cluster).await, before + 1.0, "a weight");
        for n in 20..40 {
            cluster.agent(&format!("a{n}"), "cpus:4;mem:1024");
            cluster.framework(&format!("f{n}"), "*", &[]);
        }
        assert_eq!(runs(&cluster).await, before + 2.0, "forty facts");
    });
}

fn revived(name: &str) -> Revived {
    let (framework_id, roles) = (framework(name), Default::default());
    Revived {
        framework_id,
        roles,
    }
}

fn suppressed(name: &str) -> Suppressed {
    let (framework_id, roles) = (framework(name), Default::default());
    Suppressed {
        framework_id,
        roles,
    }
}

/// What is free is nothing that the loud framework may have, so that there is always something to look at in vain.
fn in_vain(node: &Node) -> Cluster {
    let cluster = Cluster::new(node, &[]);
    cluster.framework("loud", "*", &[]);
    for n in 0..20 {
        cluster.agent(&format!("a{n}"), "cpus:4;mem:1024;gpus:1");
    }
    cluster
}

/// Says all of this 60 times over.
async fn begin_no_runs(cluster: &Cluster, facts: &[&dyn Fn()]) {
    let before = runs(cluster).await;
    for _ in 0..60 {
        for say in facts {
            say();
            cluster.wait(Duration::from_millis(3)).await;
        }
    }
    let after = runs(cluster).await;
    // No more than the batch that may have been due.
    assert!(after <= before + 1.0, "{} runs", after - before);
}

#[test]
fn who_revives_without_end_begins_no_runs() {
    rehearse(|node| async move {
        let cluster = in_vain(&node);
        let suppress = || cluster.allocator.tell(suppressed("loud")).unwrap();
        let revive = || cluster.allocator.tell(revived("loud")).unwrap();
        begin_no_runs(&cluster, &[&revive]).await;
        begin_no_runs(&cluster, &[&suppress, &revive]).await;
    });
}

/// As it subscribes again, or updates itself without a change.
fn added(name: &str) -> FrameworkAdded {
    subscribed(name, "*", &[])
}

fn activity(name: &str, active: bool) -> FrameworkActivity {
    let framework_id = framework(name);
    FrameworkActivity {
        framework_id,
        active,
    }
}

/// A scheduler that crashes and comes back in a loop costs nobody anything, whether the master saw its link break or not.
#[test]
fn who_subscribes_again_without_end_begins_no_runs() {
    rehearse(|node| async move {
        let cluster = in_vain(&node);
        let leave = || cluster.allocator.tell(activity("loud", false)).unwrap();
        let come = || cluster.allocator.tell(activity("loud", true)).unwrap();
        let subscribe = || cluster.allocator.tell(added("loud")).unwrap();
        begin_no_runs(&cluster, &[&subscribe]).await;
        begin_no_runs(&cluster, &[&leave, &come, &subscribe]).await;
    });
}

/// The agents that the next run looks at.
fn looked_at(all: &mut Workload, batch: bool) -> usize {
    let looked_at = all.candidates(batch).len();
    all.books.run_ended();
    looked_at
}

#[test]
fn who_revives_is_asked_about_what_its_filters_hid_and_what_was_looked_at_without_it() {
    let mut all = Workload::of(&Shape::of(40, 2), 7);
    let grants = all.run(true);
    let (own, others): (Vec<_>, Vec<_>) = grants
        .into_iter()
        .partition(|grant| grant.framework_id == framework("framework-0"));
    assert_eq!((own.len(), others.len()), (20, 20));
    all.books.revived(&revived("framework-0"));
    assert_eq!(looked_at(&mut all, false), 0, "it was asked about all");

    // Declined, looked at for the other, held by it.
    all.decline(own[..5].to_vec());
    assert_eq!(all.run(false).len(), 5);
    all.books.revived(&revived("framework-0"));
    assert_eq!(looked_at(&mut all, false), 5, "what it refused");
    all.books.revived(&revived("framework-0"));
    assert_eq!(looked_at(&mut all, false), 0, "it refuses nothing");

    all.books.suppressed(&suppressed("framework-0"));
    all.decline(others[..3].to_vec());
    assert_eq!(all.run(false).len(), 0, "nobody else wants it");
    all.books.revived(&revived("framework-0"));
    assert_eq!(all.run(false).len(), 3, "what nobody was offered meanwhile");
    all.books.suppressed(&suppressed("framework-0"));
    all.books.revived(&revived("framework-0"));
    assert_eq!(looked_at(&mut all, true), 0);
}

/// It was asked about a part of the run and nobody knows which; if all were looked at again at once, it would do the same amid that run.
#[test]
fn who_leaves_amid_a_run_and_comes_back_waits_for_the_batch() {
    let mut all = Workload::of(&Shape::of(40, 2), 7);
    for _ in 0..5 {
        assert_eq!(all.candidates(true).len(), 40);
        all.books.suppressed(&suppressed("framework-0"));
        all.books.revived(&revived("framework-0"));
        assert_eq!(all.candidates(false).len(), 0);
    }
    all.books.run_ended();
    assert_eq!(looked_at(&mut all, true), 40);
    assert_eq!(looked_at(&mut all, true), 0);

    // Whoever comes back after a batch need not wait for another one.
    all.end(Workload::of(&Shape::of(40, 2), 7).run(true).swap_remove(0));
    assert_eq!(all.candidates(false).len(), 1);
    all.books.suppressed(&suppressed("framework-0"));
    all.books.run_ended();
    assert_eq!(looked_at(&mut all, true), 0);
    all.books.revived(&revived("framework-0"));
    assert_eq!(looked_at(&mut all, false), 1);
}

#[test]
fn who_subscribes_again_is_asked_about_what_was_looked_at_without_it_and_what_it_had_refused() {
    let mut all = Workload::of(&Shape::of(40, 2), 7);
    let (own, others): (Vec<_>, Vec<_>) = all
        .run(true)
        .into_iter()
        .partition(|grant| grant.framework_id == framework("framework-0"));
    all.books.framework_added(added("framework-0"));
    assert_eq!(looked_at(&mut all, true), 0, "it was asked about all");

    // Declined, looked at for the other, held by it.
    all.decline(own[..5].to_vec());
    assert_eq!(all.run(false).len(), 5);
    all.books.framework_added(added("framework-0"));
    assert_eq!(looked_at(&mut all, true), 0, "it still refuses that");
    all.books
        .framework_activity(&activity("framework-0", false));
    assert_eq!(looked_at(&mut all, true), 0, "nobody is asked for who left");
    all.books.framework_added(added("framework-0"));
    assert_eq!(looked_at(&mut all, false), 5, "whoever left forgets");

    all.books
        .framework_activity(&activity("framework-0", false));
    all.decline(others[..3].to_vec());
    assert_eq!(all.run(false).len(), 0, "nobody else wants it");
    all.books.framework_activity(&activity("framework-0", true));
    assert_eq!(all.run(false).len(), 3, "what nobody was offered meanwhile");
}

/// Another demand of each offer, each time it is called.
fn demanding(name: &str, cpus: u32) -> FrameworkAdded {
    let mut fact = added(name);
    let quantities = |text: String| Quantities::parse(&text).unwrap();
    let least = quantities(format!("cpus:{cpus}"));
    let demand = Demand::shaped(least, Quantities::new());
    fact.wants.demands = [("*".to_owned(), demand)].into();
    fact
}

#[test]
fn whoever_wants_or_understands_something_else_is_asked_about_everything() {
    let mut all = Workload::of(&Shape::of(40, 2), 7);
    all.run(true);
    let mut told = |fact: FrameworkAdded| {
        all.books.framework_added(fact);
        looked_at(&mut all, false)
    };
    assert_eq!(told(demanding("framework-0", 2)), 40, "a demand");
    assert_eq!(told(demanding("framework-0", 2)), 0, "the same");
    assert_eq!(told(demanding("framework-0", 3)), 40, "another");
    let gpus = [Capability::GpuResources];
    let mut capable = demanding("framework-0", 3);
    capable.info.capabilities = gpus.into();
    assert_eq!(told(capable.clone()), 40, "it can more");
    assert_eq!(told(demanding("framework-0", 3)), 0, "it can less");
    capable.wants.suppressed_roles = ["*".to_owned()].into();
    assert_eq!(told(capable.clone()), 0, "it wants nothing now");
    capable.wants = demanding("framework-0", 3).wants;
    assert_eq!(told(capable), 40, "what it was not asked as it is now");
    let roles = |roles: &str| subscribed("framework-1", roles, &[]);
    assert_eq!(told(roles("*,a")), 40, "a role");
    assert_eq!(told(roles("*")), 0, "one role less");
}

/// Between two batches all agents are looked at for it a single time; whatever it wants after that waits for the batch.
#[test]
fn who_wants_something_else_without_end_has_all_looked_at_once_between_two_batches() {
    let mut all = Workload::of(&Shape::of(3_000, 2), 7);
    all.run(true);
    for batch in 0..3 {
        let runs = (0..60).map(|n| {
            let fact = demanding("framework-0", 1 + (batch * 60 + n) % 20);
            all.books.framework_added(fact);
            looked_at(&mut all, false)
        });
        let at_once: usize = runs.sum();
        assert_eq!(at_once, 3_000, "by no batch");
        assert_eq!(looked_at(&mut all, true), 3_000, "by the batch");
    }
    // Nobody else waits for that.
    all.books.framework_added(demanding("framework-0", 9));
    all.books.framework_added(demanding("framework-0", 8));
    assert_eq!(looked_at(&mut all, false), 3_000);
    all.books.framework_added(demanding("framework-1", 9));
    assert_eq!(looked_at(&mut all, false), 3_000);
}
