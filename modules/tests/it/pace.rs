//! The time from a decline to the next offer: in virtual time, in which a run takes no time and
//! only the pauses between runs count.

use std::collections::BTreeMap;
use std::time::Duration;

use module_api::allocator::{
    FrameworkActivity, FrameworkAdded, Grant, Revived, Suppressed, WeightsChanged,
};
use protocol::{Capability, Demand};
use resources::{Quantities, Resources, Role};
use runtime::Node;
use runtime::testing::simulate;

use crate::cluster::{Cluster, framework, simulate_cluster, subscribed};
use crate::workload::{Shape, Workload};

/// A filter of zero, like a framework that does not want the offer.
const REFUSED: Option<Duration> = Some(Duration::from_secs(5));

/// S130: as far as pauses allow; `meros-lab bench offers` measures real time.
// Covers S130; W16.
#[test]
fn immediate_declines_allow_tens_of_thousands_of_offers() {
    simulate(|node| async move {
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

/// A cluster with one agent that is granted whole; with the grant and the part of it that a task
/// uses.
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
    simulate(|node| async move {
        let (cluster, all, task) = offered_whole(&node).await;
        let rest = all.resources.checked_sub(&task).unwrap();
        cluster.free_beside_offer(&all, task);
        let crumb = cluster.granted_within(Duration::from_millis(100)).await;
        assert_eq!(crumb, [], "nothing before the next batch");
        // The offer is answered without launches and without a filter.
        cluster.give_back_part(&all, rest, None);
        let whole = cluster.granted_within(Duration::from_millis(10)).await;
        let whole: Vec<_> = whole.iter().map(|grant| &grant.resources).collect();
        assert_eq!(whole, [&all.resources]);
    });
}

#[test]
fn freed_resources_wait_for_the_batch_at_most() {
    simulate(|node| async move {
        let (cluster, all, task) = offered_whole(&node).await;
        cluster.free_beside_offer(&all, task.clone());
        let freed = cluster.granted_within(Duration::from_secs(1)).await;
        let freed: Vec<_> = freed.iter().map(|grant| &grant.resources).collect();
        assert_eq!(freed, [&task]);
    });
}

/// Number of allocator runs, a moment later.
async fn runs(cluster: &Cluster) -> f64 {
    cluster.wait(Duration::from_millis(50)).await;
    let measured = cluster.allocator.measure().await;
    measured.unwrap()["allocator/mesos/allocation_runs"]
}

/// W16: a change starts a run at once, and simultaneous changes share it.
// Covers W16.
#[test]
fn simultaneous_changes_share_one_run() {
    simulate_cluster(|cluster| async move {
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

/// The loud framework cannot use the free resources, so that each scan is in vain.
fn in_vain(node: &Node) -> Cluster {
    let cluster = Cluster::new(node, &[]);
    cluster.framework("loud", "*", &[]);
    for n in 0..20 {
        cluster.agent(&format!("a{n}"), "cpus:4;mem:1024;gpus:1");
    }
    cluster
}

/// Sends all facts 60 times.
async fn begin_no_runs(cluster: &Cluster, facts: &[&dyn Fn()]) {
    let before = runs(cluster).await;
    for _ in 0..60 {
        for say in facts {
            say();
            cluster.wait(Duration::from_millis(3)).await;
        }
    }
    let after = runs(cluster).await;
    // At most the batch that was due.
    assert!(after <= before + 1.0, "{} runs", after - before);
}

// Covers W16.
#[test]
fn repeated_revives_start_no_runs() {
    simulate(|node| async move {
        let cluster = in_vain(&node);
        let suppress = || cluster.allocator.tell(suppressed("loud")).unwrap();
        let revive = || cluster.allocator.tell(revived("loud")).unwrap();
        begin_no_runs(&cluster, &[&revive]).await;
        begin_no_runs(&cluster, &[&suppress, &revive]).await;
    });
}

/// As for a resubscription or an update without a change.
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

/// A scheduler that crashes and returns in a loop causes no runs, whether the master noticed the
/// disconnection or not.
// Covers W16.
#[test]
fn repeated_resubscriptions_start_no_runs() {
    simulate(|node| async move {
        let cluster = in_vain(&node);
        let leave = || cluster.allocator.tell(activity("loud", false)).unwrap();
        let come = || cluster.allocator.tell(activity("loud", true)).unwrap();
        let subscribe = || cluster.allocator.tell(added("loud")).unwrap();
        begin_no_runs(&cluster, &[&subscribe]).await;
        begin_no_runs(&cluster, &[&leave, &come, &subscribe]).await;
    });
}

/// Number of agents in the next run.
fn looked_at(all: &mut Workload, batch: bool) -> usize {
    let looked_at = all.candidates(batch).len();
    all.state.run_ended();
    looked_at
}

#[test]
fn revive_rescans_hidden_and_missed_agents() {
    let mut all = Workload::of(&Shape::of(40, 2), 7);
    let grants = all.run(true);
    let (own, others): (Vec<_>, Vec<_>) = grants
        .into_iter()
        .partition(|grant| grant.framework_id == framework("framework-0"));
    assert_eq!((own.len(), others.len()), (20, 20));
    all.state.revived(&revived("framework-0"));
    assert_eq!(looked_at(&mut all, false), 0, "it was asked about all");

    // Declined, considered for the other framework, allocated to it.
    all.decline(own[..5].to_vec());
    assert_eq!(all.run(false).len(), 5);
    all.state.revived(&revived("framework-0"));
    assert_eq!(looked_at(&mut all, false), 5, "what it refused");
    all.state.revived(&revived("framework-0"));
    assert_eq!(looked_at(&mut all, false), 0, "it refuses nothing");

    all.state.suppressed(&suppressed("framework-0"));
    all.decline(others[..3].to_vec());
    assert_eq!(all.run(false).len(), 0, "nobody else wants it");
    all.state.revived(&revived("framework-0"));
    assert_eq!(all.run(false).len(), 3, "what nobody was offered meanwhile");
    all.state.suppressed(&suppressed("framework-0"));
    all.state.revived(&revived("framework-0"));
    assert_eq!(looked_at(&mut all, true), 0);
}

/// The framework was considered for an unknown part of the run. A rescan of everything at once
/// could repeat during each run.
#[test]
fn return_during_a_run_waits_for_the_batch() {
    let mut all = Workload::of(&Shape::of(40, 2), 7);
    for _ in 0..5 {
        assert_eq!(all.candidates(true).len(), 40);
        all.state.suppressed(&suppressed("framework-0"));
        all.state.revived(&revived("framework-0"));
        assert_eq!(all.candidates(false).len(), 0);
    }
    all.state.run_ended();
    assert_eq!(looked_at(&mut all, true), 40);
    assert_eq!(looked_at(&mut all, true), 0);

    // After a batch, a returning framework need not wait for another one.
    all.end(Workload::of(&Shape::of(40, 2), 7).run(true).swap_remove(0));
    assert_eq!(all.candidates(false).len(), 1);
    all.state.suppressed(&suppressed("framework-0"));
    all.state.run_ended();
    assert_eq!(looked_at(&mut all, true), 0);
    all.state.revived(&revived("framework-0"));
    assert_eq!(looked_at(&mut all, false), 1);
}

#[test]
fn resubscription_rescans_hidden_and_missed_agents() {
    let mut all = Workload::of(&Shape::of(40, 2), 7);
    let (own, others): (Vec<_>, Vec<_>) = all
        .run(true)
        .into_iter()
        .partition(|grant| grant.framework_id == framework("framework-0"));
    all.state.framework_added(added("framework-0"));
    assert_eq!(looked_at(&mut all, true), 0, "it was asked about all");

    // Declined, considered for the other framework, allocated to it.
    all.decline(own[..5].to_vec());
    assert_eq!(all.run(false).len(), 5);
    all.state.framework_added(added("framework-0"));
    assert_eq!(looked_at(&mut all, true), 0, "it still refuses that");
    all.state
        .framework_activity(&activity("framework-0", false));
    assert_eq!(looked_at(&mut all, true), 0, "nobody is asked for who left");
    all.state.framework_added(added("framework-0"));
    assert_eq!(looked_at(&mut all, false), 5, "whoever left forgets");

    all.state
        .framework_activity(&activity("framework-0", false));
    all.decline(others[..3].to_vec());
    assert_eq!(all.run(false).len(), 0, "nobody else wants it");
    all.state.framework_activity(&activity("framework-0", true));
    assert_eq!(all.run(false).len(), 3, "what nobody was offered meanwhile");
}

/// A different demand with each call.
fn demanding(name: &str, cpus: u32) -> FrameworkAdded {
    let mut fact = added(name);
    let quantities = |text: String| Quantities::parse(&text).unwrap();
    let least = quantities(format!("cpus:{cpus}"));
    let demand = Demand::shaped(least, Quantities::new());
    fact.wants.demands = [("*".to_owned(), demand)].into();
    fact
}

#[test]
fn changed_demand_rescans_all_agents() {
    let mut all = Workload::of(&Shape::of(40, 2), 7);
    all.run(true);
    let mut told = |fact: FrameworkAdded| {
        all.state.framework_added(fact);
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

/// All agents are rescanned at once only a single time between two batches; further changes wait
/// for the batch.
// Covers W16.
#[test]
fn changed_demands_rescan_once_per_batch() {
    let mut all = Workload::of(&Shape::of(3_000, 2), 7);
    all.run(true);
    for batch in 0..3 {
        let runs = (0..60).map(|n| {
            let fact = demanding("framework-0", 1 + (batch * 60 + n) % 20);
            all.state.framework_added(fact);
            looked_at(&mut all, false)
        });
        let at_once: usize = runs.sum();
        assert_eq!(at_once, 3_000, "by no batch");
        assert_eq!(looked_at(&mut all, true), 3_000, "by the batch");
    }
    // Other frameworks do not wait.
    all.state.framework_added(demanding("framework-0", 9));
    all.state.framework_added(demanding("framework-0", 8));
    assert_eq!(looked_at(&mut all, false), 3_000);
    all.state.framework_added(demanding("framework-1", 9));
    assert_eq!(looked_at(&mut all, false), 3_000);
}

/// The measurements assume that one run grants each agent and the next grants none.
#[test]
fn one_run_offers_all_agents_and_the_next_none() {
    let plain = Shape::of(40, 5);
    let labels = Shape {
        roles: 5,
        reservations: 2,
        labels: 10,
        ..plain
    };
    let volumes = Shape {
        volumes: true,
        ..labels
    };
    for shape in [plain, labels, volumes] {
        let mut all = Workload::of(&shape, 7);
        for _ in 0..4 {
            let grants = all.run(true);
            assert!(grants.len() >= 40, "{shape:?}: {}", grants.len());
            all.decline(grants);
        }
        let held = Workload::of(&shape, 7).run(true);
        let mut all = Workload::of(&shape, 7);
        let grants = all.run(true);
        assert_eq!(grants, held, "the same seed gives the same run");
        assert!(all.run(true).is_empty());
        all.end(grants[3].clone());
        assert_eq!(all.candidates(false).len(), 1);
    }
}

#[test]
fn one_run_meets_all_guarantees() {
    let shape = Shape {
        roles: 20,
        quotas: true,
        ..Shape::of(20, 20)
    };
    let mut all = Workload::of(&shape, 7);
    let budgets = all.state.budgets();
    assert!(!budgets.required().is_empty());
    all.run(true);
    let lacking = all.state.budgets().required().clone();
    assert!(lacking.is_empty(), "{lacking}");
}
