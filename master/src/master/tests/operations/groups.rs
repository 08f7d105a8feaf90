//! Task groups among the operations of one accept (SPEC 2.8, LAUNCH_GROUP): all tasks of a group are
//! launched, or none.

use super::*;

fn executor(id: &str) -> ExecutorInfo {
    let own = resources("cpus:0.5;mem:32;disk:1");
    ExecutorInfo::default_kind(ExecutorId::new(id).unwrap(), own)
}

fn group(tasks: Vec<TaskInfo>) -> Operation {
    let executor = Box::new(executor("e"));
    Operation::LaunchGroup { executor, tasks }
}

#[test]
fn a_group_reaches_its_agent_in_one_message() {
    simulate_scenario(|scenario| async move {
        let offer = scenario.offer(resources("cpus:8;mem:900;disk:9")).await;
        let task = |id: &str| task(id, &scenario.agent_id, "cpus:1");
        let steps = vec![group(vec![task("g1"), task("g2")]), group(vec![task("g3")])];
        scenario.accept(&[&offer], steps).await;
        scenario.scheduler.receives("");
        let state = scenario.world.state().await;
        let on = state.tasks.on_agent(&scenario.agent_id).unwrap();
        let held = on.held().values();
        let held = held.fold(Resources::new(), |sum, held| sum + held.unallocate());
        assert_eq!(held, resources("cpus:3.5;mem:32;disk:1"), "one executor");
        let runs = scenario.agent.received();
        let count = |group: &str| runs[0].matches(group).count();
        assert_eq!((runs.len(), count(" of g1"), count(" of g3")), (1, 2, 1));
    });
}

#[test]
fn a_refused_group_alone_gives_everything_back() {
    simulate_scenario(|scenario| async move {
        let offer = scenario.offer(resources("cpus:4")).await;
        let tasks = vec![
            task("t", &scenario.agent_id, "cpus:1"),
            task("t", &scenario.agent_id, "cpus:1"),
        ];
        scenario.accept(&[&offer], vec![group(tasks)]).await;
        let refused = "t TASK_ERROR REASON_TASK_GROUP_INVALID";
        assert_eq!(scenario.scheduler.received(), [refused; 2]);
        scenario.world.facts_are("recovered 0000 cpus:4 for 5s");
    });
}

#[test]
fn an_empty_group_declines_the_offer() {
    simulate_scenario(|scenario| async move {
        let offer = scenario.offer(resources("cpus:4")).await;
        scenario.accept(&[&offer], vec![group(Vec::new())]).await;
        scenario.scheduler.receives("");
        scenario.world.facts_are("recovered 0000 cpus:4 for 5s");
    });
}

/// Later steps see all resources, even if the group needs more than was offered.
// Covers 2.2 ACCEPT.
#[test]
fn rejected_group_leaves_its_resources_to_the_others() {
    simulate_scenario(|scenario| async move {
        let offer = scenario.offer(resources("cpus:8")).await;
        let task = |id: &str, cpus: &str| task(id, &scenario.agent_id, cpus);
        let launch = |id: &str, cpus: &str| Operation::Launch {
            tasks: vec![task(id, cpus)],
        };
        let steps = vec![
            launch("t1", "cpus:1"),
            group(vec![task("g1", "cpus:2"), task("g2", "cpus:3")]),
            Operation::convert(reserve("cpus:3")),
            group(vec![task("g3", "cpus:900")]),
            launch("t2", "cpus:2"),
        ];
        scenario.accept(&[&offer], steps).await;
        let refused = |id: &str| format!("{id} TASK_ERROR REASON_TASK_GROUP_INVALID");
        assert_eq!(
            scenario.scheduler.received(),
            ["g1", "g2", "g3"].map(refused),
            "all of a group, and nobody else"
        );
        let state = scenario.world.state().await;
        let on = state.tasks.on_agent(&scenario.agent_id).unwrap();
        let running: Vec<_> = on.tasks().map(|(_, id)| id.to_string()).collect();
        assert_eq!(running, ["t1", "t2"]);
        let held = on.held().values();
        let held = held.fold(Resources::new(), |sum, held| sum + held.unallocate());
        assert_eq!(held, resources("cpus:3"));
        let facts = scenario.world.allocator();
        let recovered = facts.iter().filter(|fact| fact.starts_with("recovered"));
        let recovered: Vec<&str> = recovered.map(String::as_str).collect();
        assert_eq!(recovered.len(), 2, "{facts:?}");
        assert_eq!(recovered[0], "recovered 0000 cpus:2 for 5s", "{facts:?}");
        let reserved = recovered[1];
        assert!(
            reserved.contains("cpus") && reserved.contains(":3") && !reserved.contains(" for "),
            "{facts:?}"
        );
    });
}
