//! Scenarios of revocation with the real allocator and sorter in virtual time, and a scripted
//! master (S115, S123, S124).

use std::collections::BTreeMap;
use std::time::Duration;

use module_api::Parameters;
use module_api::allocator::{
    AgentRemoved, FrameworkActivity, Grant, ListedTask, LongTasksBounded, Revived, Suppressed,
    TasksListed, TasksWanted,
};
use protocol::{Demand, TaskId};
use resources::{Quantities, Resources, Role};
use runtime::prelude::*;
use runtime::testing::simulate;

use crate::cluster::{Cluster, agent, framework, lines, simulate_cluster};
use crate::quota::set;

const SECOND: Duration = Duration::from_secs(1);

fn revoking(node: &Node) -> Cluster {
    let sorter = Parameters::none("drf");
    let allocator = Parameters::none("hierarchical").with("revoke_after", "10secs");
    Cluster::of(node, &sorter, &allocator, &[])
}

/// A task of that name that uses the whole grant.
fn task(name: &str, grant: &Grant, priority: i32) -> ListedTask {
    ListedTask {
        framework_id: grant.framework_id.clone(),
        task_id: TaskId::new(name).unwrap(),
        agent_id: grant.agent_id.clone(),
        resources: grant.resources.clone(),
        priority,
        since: None,
        leaves: false,
    }
}

impl Cluster {
    /// Requests for tasks since the last call.
    async fn wanted(&self) -> Vec<TasksWanted> {
        self.about_revocation().await.0
    }

    /// Answers the last request. Returns the tasks to revoke, as `task for role`.
    async fn list(&self, wanted: &TasksWanted, tasks: &[ListedTask]) -> Vec<String> {
        let mut consumed: BTreeMap<String, Quantities> = BTreeMap::new();
        for task in tasks {
            let role = task.resources.iter().find_map(|one| one.allocation_role());
            let role = role.unwrap().to_string();
            *consumed.entry(role).or_default() += &task.resources.quantities();
        }
        let listed = TasksListed {
            number: wanted.number,
            tasks: tasks.to_vec(),
            consumed: Some(consumed),
        };
        self.allocator.tell(listed).unwrap();
        let named = self.about_revocation().await.1;
        let named = named.into_iter().flat_map(|named| named.victims);
        named
            .map(|victim| format!("{} for {}", victim.task_id, victim.role))
            .collect()
    }
}

/// S123, S124: an unused guarantee is lent, and recovered from roles above their own guarantees.
// Covers S115.
#[test]
fn unused_guarantee_is_lent_and_recovered() {
    simulate(|node| async move {
        let cluster = revoking(&node);
        set(&cluster, "web", "cpus:2", "");
        set(&cluster, "ads", "cpus:4", "");
        cluster.framework("batch", "batch", &[]);
        for agent in ["a1", "a2", "a3"] {
            cluster.agent(agent, "cpus:2;mem:64");
        }
        let mut grants = cluster.granted().await;
        assert_eq!(grants.len(), 3, "{:?}", lines(&grants));
        cluster.wait(60 * SECOND).await;
        assert!(cluster.wanted().await.is_empty(), "nobody wants it");
        cluster.framework("web", "web", &[]);
        cluster.wait(9 * SECOND).await;
        assert!(
            cluster.wanted().await.is_empty(),
            "a task may end by itself"
        );
        cluster.wait(2 * SECOND).await;
        let wanted = cluster.wanted().await.pop().unwrap();
        assert_eq!(wanted.agents.len(), 3);
        grants.sort_by_key(|grant| grant.agent_id.clone());
        let mut tasks = vec![
            task("t1", &grants[0], 5),
            task("t2", &grants[1], -5),
            task("t3", &grants[2], 0),
        ];
        assert_eq!(cluster.list(&wanted, &tasks).await, ["t2 for web"]);
        assert!(cluster.list(&wanted, &tasks).await.is_empty(), "heard once");
        tasks[1].leaves = true;
        cluster.wait(29 * SECOND).await;
        assert!(cluster.wanted().await.is_empty(), "it has its time");
        cluster.wait(2 * SECOND).await;
        let wanted = cluster.wanted().await.pop().unwrap();
        let named = cluster.list(&wanted, &tasks).await;
        assert!(named.is_empty(), "what is leaving is enough: {named:?}");
        cluster.give_back(&grants[1], None);
        assert_eq!(lines(&cluster.granted().await), ["web a2 cpus:2;mem:64"]);
        cluster.wait(60 * SECOND).await;
        assert!(
            cluster.wanted().await.is_empty(),
            "it has what it is guaranteed"
        );
    });
}

/// S122: resources became free by themselves, or are no longer wanted.
#[test]
fn master_is_notified_when_victims_may_stay() {
    simulate(|node| async move {
        let cluster = revoking(&node);
        set(&cluster, "web", "cpus:2", "");
        cluster.framework("batch", "batch", &[]);
        cluster.agent("a1", "cpus:2;mem:64");
        cluster.agent("a2", "cpus:2;mem:64");
        let mut grants = cluster.granted().await;
        grants.sort_by_key(|grant| grant.agent_id.clone());
        let tasks = [task("t1", &grants[0], 0), task("t2", &grants[1], 9)];
        cluster.wait(12 * SECOND).await;
        assert_eq!(cluster.lacking().await, ["none"], "after each beginning");
        cluster.framework("web", "web", &[]);
        cluster.wait(11 * SECOND).await;
        let wanted = cluster.wanted().await.pop().unwrap();
        assert_eq!(cluster.list(&wanted, &tasks).await, ["t1 for web"]);
        cluster.wait(5 * SECOND).await;
        assert!(cluster.lacking().await.is_empty(), "it lacks it still");
        cluster.give_back(&grants[1], None);
        assert_eq!(lines(&cluster.granted().await), ["web a2 cpus:2;mem:64"]);
        cluster.wait(12 * SECOND).await;
        assert_eq!(cluster.lacking().await, ["none"]);
        // A task named for another guarantee, which is not wanted any more.
        set(&cluster, "ads", "cpus:2", "");
        cluster.framework("ads", "ads", &[]);
        cluster.wait(12 * SECOND).await;
        let wanted = cluster.wanted().await.pop().unwrap();
        assert_eq!(cluster.list(&wanted, &tasks[..1]).await, ["t1 for ads"]);
        let (framework_id, roles) = (framework("ads"), Default::default());
        let suppressed = Suppressed {
            framework_id,
            roles,
        };
        cluster.allocator.tell(suppressed).unwrap();
        cluster.wait(12 * SECOND).await;
        assert_eq!(cluster.lacking().await, ["none"]);
    });
}

/// A task of that name that uses a part of the grant.
fn part(name: &str, grant: &Grant, text: &str) -> ListedTask {
    let role = Role::new(&grant.role).unwrap();
    let resources = Resources::parse(text).unwrap().allocate(&role);
    ListedTask {
        resources,
        ..task(name, grant, 0)
    }
}

fn least(text: &str) -> Demand {
    Demand {
        least: Some(vec![Quantities::parse(text).unwrap()]),
        ..Demand::default()
    }
}

/// W9: a framework that needs four cpus at once gets them after the end of the last revoked task,
/// and no other framework gets them in between.
// Covers S115.
#[test]
fn freed_resources_are_kept_until_complete() {
    simulate(|node| async move {
        let cluster = revoking(&node);
        set(&cluster, "web", "cpus:4", "");
        cluster.framework("batch", "batch", &[]);
        cluster.agent("a1", "cpus:4;mem:1024");
        let grant = cluster.granted().await.pop().unwrap();
        // More than the guarantee is free elsewhere, where it does not help.
        cluster.agent("stranded", "cpus:10");
        let useless = cluster.granted().await.pop().unwrap();
        cluster.give_back(&useless, Some(3600 * SECOND));
        cluster.demanding("web", "web", least("cpus:4;mem:256"));
        cluster.wait(12 * SECOND).await;
        let wanted = cluster.wanted().await.pop().unwrap();
        let piece = "cpus:1;mem:256";
        let tasks = ["t1", "t2", "t3", "t4"].map(|name| part(name, &grant, piece));
        let named = cluster.list(&wanted, &tasks).await;
        assert_eq!(named.len(), 4, "{named:?}");
        for (n, task) in tasks.iter().enumerate() {
            let granted = cluster.granted().await;
            assert!(granted.is_empty(), "after {n}: {:?}", lines(&granted));
            let piece = Grant {
                resources: task.resources.clone(),
                ..grant.clone()
            };
            cluster.give_back(&piece, None);
            if n < 3 {
                cluster.wait(3 * SECOND).await;
            }
        }
        let granted = lines(&cluster.granted().await);
        assert_eq!(granted, ["web a1 cpus:4;mem:1024"]);
    });
}

/// A cluster in which `batch` holds both of these agents and the task on `a1` is revoked for `web`;
/// returns the grant of that agent.
async fn making_room(node: &Node) -> (Cluster, Grant) {
    let cluster = revoking(node);
    set(&cluster, "web", "cpus:2", "");
    cluster.framework("batch", "batch", &[]);
    cluster.agent("a1", "cpus:2;mem:64");
    cluster.agent("a2", "cpus:2;mem:64");
    let mut grants = cluster.granted().await;
    grants.sort_by_key(|grant| grant.agent_id.clone());
    cluster.demanding("web", "web", least("cpus:2"));
    cluster.wait(12 * SECOND).await;
    let wanted = cluster.wanted().await.pop().unwrap();
    let tasks = [task("t1", &grants[0], 0), task("t2", &grants[1], 9)];
    assert_eq!(cluster.list(&wanted, &tasks).await, ["t1 for web"]);
    cluster.lacking().await;
    (cluster, grants.remove(0))
}

/// S122: an offer of resources that became free elsewhere may be declined; the warning then still
/// applies.
#[test]
fn offer_to_the_needy_role_withdraws_no_warning() {
    simulate(|node| async move {
        let (cluster, _) = making_room(&node).await;
        cluster.agent("a3", "cpus:2;mem:64");
        let granted = cluster.granted().await;
        assert_eq!(lines(&granted), ["web a3 cpus:2;mem:64"]);
        cluster.wait(3 * SECOND).await;
        assert!(cluster.lacking().await.is_empty(), "it has not answered");
        cluster.give_back(&granted[0], Some(3600 * SECOND));
        cluster.wait(15 * SECOND).await;
        assert!(cluster.lacking().await.is_empty(), "it has declined");
        cluster.agent("a4", "cpus:2;mem:64");
        let granted = lines(&cluster.granted().await);
        assert!(
            granted.contains(&"web a4 cpus:2;mem:64".to_owned()),
            "{granted:?}"
        );
        cluster.wait(9 * SECOND).await;
        assert!(cluster.lacking().await.is_empty());
        cluster.wait(3 * SECOND).await;
        assert_eq!(cluster.lacking().await, ["none"], "it uses that");
    });
}

/// S122: the same while the needy framework is inactive for a moment; resources that tasks free
/// meanwhile are kept.
#[test]
fn short_disconnection_withdraws_no_warning() {
    simulate(|node| async move {
        let (cluster, made) = making_room(&node).await;
        let is = |active| FrameworkActivity {
            framework_id: framework("web"),
            active,
        };
        cluster.allocator.tell(is(false)).unwrap();
        cluster.wait(2 * SECOND).await;
        let piece = part("t1", &made, "cpus:1;mem:32").resources;
        cluster.give_back_part(&made, piece.clone(), None);
        cluster.wait(2 * SECOND).await;
        assert_eq!(lines(&cluster.granted().await), [""; 0]);
        cluster.allocator.tell(is(true)).unwrap();
        cluster.wait(12 * SECOND).await;
        assert!(cluster.lacking().await.is_empty());
        cluster.give_back_part(&made, piece, None);
        let granted = lines(&cluster.granted().await);
        assert_eq!(granted, ["web a1 cpus:2;mem:64"]);
    });
}

/// The marks of a removed agent do not apply to another agent in its slot.
#[test]
fn new_agent_in_a_revoked_slot_is_shared_fairly() {
    simulate(|node| async move {
        let (cluster, made) = making_room(&node).await;
        let agent_id = agent("a1");
        assert_eq!(made.agent_id, agent_id);
        cluster.allocator.tell(AgentRemoved { agent_id }).unwrap();
        // Too small for the guarantee.
        cluster.agent("a3", "mem:64");
        cluster.wait(2 * SECOND).await;
        let granted = cluster.granted().await;
        assert_eq!(lines(&granted), ["batch a3 mem:64"]);
        cluster.give_back(&granted[0], None);
        cluster.wait(2 * SECOND).await;
        let granted = lines(&cluster.granted().await);
        assert_eq!(granted, ["batch a3 mem:64"]);
    });
}

/// The same agent registers again, and its tasks are still being revoked.
#[test]
fn reregistered_agent_keeps_freed_resources() {
    simulate(|node| async move {
        let (cluster, made) = making_room(&node).await;
        let rest = vec![(made.framework_id, Resources::parse("cpus:1").unwrap())];
        cluster.agent_with("a1", "cpus:2;mem:64", rest);
        cluster.wait(5 * SECOND).await;
        assert_eq!(lines(&cluster.granted().await), [""; 0]);
        cluster.agent("a1", "cpus:2;mem:64");
        assert_eq!(lines(&cluster.granted().await), ["web a1 cpus:2;mem:64"]);
    });
}

/// Reserved resources do not help other roles, so their own role need not wait.
#[test]
fn reserved_resources_are_offered_during_revocation() {
    simulate(|node| async move {
        let cluster = revoking(&node);
        set(&cluster, "web", "cpus:2", "");
        cluster.framework("batch", "batch", &[]);
        cluster.agent("a1", "cpus:2;mem:1024;cpus(ads):2;mem(ads):256");
        let grant = cluster.granted().await.pop().unwrap();
        assert_eq!(
            lines(std::slice::from_ref(&grant)),
            ["batch a1 cpus:2;mem:1024"]
        );
        cluster.demanding("web", "web", least("cpus:2;mem:256"));
        cluster.wait(12 * SECOND).await;
        let wanted = cluster.wanted().await.pop().unwrap();
        let tasks = ["t1", "t2"].map(|name| part(name, &grant, "cpus:1;mem:256"));
        assert_eq!(cluster.list(&wanted, &tasks).await.len(), 2);
        let piece = |n: usize| Grant {
            resources: tasks[n].resources.clone(),
            ..grant.clone()
        };
        cluster.give_back(&piece(0), None);
        cluster.framework("ads", "ads", &[]);
        cluster.wait(3 * SECOND).await;
        let granted = cluster.granted().await;
        assert_eq!(lines(&granted), ["ads a1 cpus:2;mem:256"]);
        assert_eq!(granted[0].resources.unreserved(), Resources::new());
        cluster.give_back(&piece(1), None);
        let granted = lines(&cluster.granted().await);
        assert_eq!(granted, ["web a1 cpus:2;mem:512"]);
    });
}

#[test]
fn no_revocation_beyond_the_needy_roles_limit() {
    simulate(|node| async move {
        let cluster = revoking(&node);
        set(&cluster, "web", "cpus:6", "cpus:6");
        cluster.demanding("web", "web", least("cpus:4"));
        cluster.agent("a1", "cpus:4;mem:64");
        assert_eq!(lines(&cluster.granted().await), ["web a1 cpus:4;mem:64"]);
        cluster.framework("batch", "batch", &[]);
        set(&cluster, "other", "cpus:1", "");
        cluster.agent("a2", "cpus:4;mem:64");
        assert_eq!(cluster.granted().await.len(), 1);
        cluster.wait(60 * SECOND).await;
        assert!(cluster.wanted().await.is_empty());
    });
}

#[test]
fn blocking_limit_revokes_only_tasks_below_it() {
    simulate(|node| async move {
        let cluster = revoking(&node);
        set(&cluster, "eng", "", "cpus:4");
        set(&cluster, "eng/web", "cpus:2", "");
        cluster.framework("batch", "batch", &[]);
        cluster.agent("a0", "cpus:2;mem:64");
        let others = cluster.granted().await;
        assert_eq!(lines(&others), ["batch a0 cpus:2;mem:64"]);
        cluster.framework("a", "eng/a", &[]);
        cluster.agent("a1", "cpus:2;mem:64");
        cluster.agent("a2", "cpus:2;mem:64");
        let mut lent = cluster.granted().await;
        for grant in &lent {
            if grant.role == "batch" {
                cluster.give_back(grant, Some(3600 * SECOND));
            }
        }
        lent.retain(|grant| grant.role == "eng/a");
        lent.extend(cluster.granted().await);
        assert_eq!(lent.len(), 2, "{:?}", lines(&lent));
        cluster.framework("web", "eng/web", &[]);
        cluster.wait(12 * SECOND).await;
        let wanted = cluster.wanted().await.pop().unwrap();
        let tasks = [
            task("t0", &others[0], -9),
            task("t1", &lent[0], 5),
            task("t2", &lent[1], 0),
        ];
        let named = cluster.list(&wanted, &tasks).await;
        assert_eq!(named, ["t2 for eng/web"]);
        cluster.give_back(&lent[1], None);
        let granted = lines(&cluster.granted().await);
        assert_eq!(granted.len(), 1, "{granted:?}");
        assert!(granted[0].starts_with("web "), "{granted:?}");
    });
}

#[test]
fn no_revocation_on_refused_agents() {
    simulate(|node| async move {
        let cluster = revoking(&node);
        cluster.framework("web", "web", &[]);
        cluster.agent("a1", "cpus:2;mem:64");
        let grant = cluster.granted().await.pop().unwrap();
        cluster.give_back(&grant, Some(100 * SECOND));
        cluster.framework("batch", "batch", &[]);
        assert_eq!(lines(&cluster.granted().await), ["batch a1 cpus:2;mem:64"]);
        set(&cluster, "web", "cpus:2", "");
        cluster.wait(90 * SECOND).await;
        assert!(cluster.wanted().await.is_empty());
        cluster.wait(30 * SECOND).await;
        assert!(!cluster.wanted().await.is_empty());
    });
}

/// S124: suppress and revive tell whether a framework is interested.
// Covers S124.
#[test]
fn no_revocation_for_a_suppressed_role() {
    simulate(|node| async move {
        let cluster = revoking(&node);
        set(&cluster, "web", "cpus:2", "");
        cluster.framework("batch", "batch", &[]);
        cluster.agent("a1", "cpus:2;mem:64");
        assert_eq!(cluster.granted().await.len(), 1);
        cluster.framework("web", "web", &[]);
        let (framework_id, roles) = (framework("web"), Default::default());
        let suppressed = Suppressed {
            framework_id: framework_id.clone(),
            roles,
        };
        cluster.allocator.tell(suppressed).unwrap();
        cluster.wait(60 * SECOND).await;
        assert!(cluster.wanted().await.is_empty());
        let roles = Default::default();
        let revived = Revived {
            framework_id,
            roles,
        };
        cluster.allocator.tell(revived).unwrap();
        cluster.wait(12 * SECOND).await;
        assert_eq!(cluster.wanted().await.len(), 1);
    });
}

#[test]
fn guarantees_are_kept_without_revoke_after() {
    simulate_cluster(|cluster| async move {
        cluster.framework("batch", "batch", &[]);
        cluster.agent("a1", "cpus:2;mem:64");
        cluster.granted().await;
        set(&cluster, "web", "cpus:2", "");
        cluster.framework("web", "web", &[]);
        cluster.wait(60 * SECOND).await;
        assert!(cluster.wanted().await.is_empty());
        cluster.agent("a2", "cpus:2;mem:64");
        assert_eq!(lines(&cluster.granted().await), ["web a2 cpus:2;mem:64"]);
    });
}

#[test]
fn a_grace_without_revocation_is_refused() {
    simulate(|node| async move {
        let modules = modules::registry();
        let sorter = Parameters::none("drf");
        let sorter = modules.sorter(&node, "drf", &sorter).unwrap();
        let other = sorter.clone();
        let given = Parameters::none("hierarchical").with("revocation_grace_period", "10secs");
        let refused = modules.allocator(&node, "hierarchical", sorter, &given);
        let refused = refused.err().unwrap().to_string();
        assert!(refused.contains("beside `revoke_after`"), "{refused}");
        let given = Parameters::none("hierarchical").with("revoke_after", "1secs");
        let given = given.with("revocation_grace_period", "0secs");
        let refused = modules.allocator(&node, "hierarchical", other, &given);
        let refused = refused.err().unwrap().to_string();
        assert!(refused.contains("`1secs` or more"), "{refused}");
    });
}

/// S121: the allocation module bounds the resources of long tasks.
// Covers S121.
#[test]
fn long_task_bound_is_sent_before_grants() {
    simulate(|node| async move {
        let sorter = Parameters::none("drf");
        let allocator = Parameters::none("hierarchical");
        let bounded = allocator
            .with("long_task_share", "0.75")
            .with("short_task_max", "1hrs");
        let cluster = Cluster::of(&node, &sorter, &bounded, &[]);
        let expected = LongTasksBounded {
            share: 750,
            short_max: Some(3600 * SECOND),
            grace: 30 * SECOND,
        };
        assert_eq!(cluster.about_revocation().await.2, [expected]);
        cluster.wait(60 * SECOND).await;
        assert_eq!(cluster.about_revocation().await.2, [], "once");
    });
}

#[test]
fn invalid_long_task_bounds_are_rejected() {
    simulate(|node| async move {
        let modules = modules::registry();
        let sorter = modules.sorter(&node, "drf", &Parameters::none("drf"));
        let sorter = sorter.unwrap();
        let refused = |key: &str, value: &str| {
            let given = Parameters::none("hierarchical").with(key, value);
            let refused = modules.allocator(&node, "hierarchical", sorter.clone(), &given);
            refused.err().unwrap().to_string()
        };
        for wrong in ["1.5", "-0.1", "NaN", "half"] {
            let refused = refused("long_task_share", wrong);
            assert!(refused.contains("from 0 to 1"), "{refused}");
        }
        let refused = refused("short_task_max", "1hrs");
        assert!(refused.contains("beside `long_task_share`"), "{refused}");
    });
}
