//! Inconsistent reports of returning agents.

use super::*;

#[test]
fn report_outside_its_buckets_is_refused() {
    simulate_network(|network| async move {
        let mut scenario = Scenario::with_tasks(network, 40).await;
        let (agent, a) = (&scenario.agent, &scenario.a);
        scenario.held.tasks[3].state = TaskState::Failed;
        let theirs = sums(come_back(agent, a, &scenario.held).await);
        let mut said = back(agent, a, &scenario.held, Some(&theirs));
        let report = said.report.as_mut().unwrap();
        report.differing[0] = (report.differing[0] + 1) % report.buckets;
        assert_eq!(sums(say(agent, said).await.unwrap()), theirs);
    });
}

type Change = fn(&mut ReregisterAgent);

/// Each inconsistent field is refused with its value and the expected one.
#[test]
fn inconsistent_registration_is_refused_by_name() {
    simulate_network(|network| async move {
        let scenario = Scenario::with_tasks(network, 40).await;
        let (agent, a) = (&scenario.agent, &scenario.a);
        let theirs = Digest::of([], 16).buckets().to_vec();
        let changes: &[(&str, Change)] = &[
            ("agent.id is `not set`", |m| m.agent.id = None),
            ("report.buckets is `3`", |m| report(m).buckets = 3),
            ("report.buckets is `2048`", |m| report(m).buckets = 2048),
            ("report.differing is `16`", |m| {
                report(m).differing = vec![1, 16]
            }),
            ("report.differing is `2`", |m| {
                report(m).differing = vec![2, 2]
            }),
            ("summary.items is `7`", |m| m.summary.items = 7),
            ("held.tasks.task_id is `", |m| {
                let held = &mut report(m).held;
                held.tasks.push(held.tasks[0].clone());
                m.summary.items += 1;
            }),
            ("held.tasks.agent_id is `another`", |m| {
                let info = &mut report(m).held.tasks[0].info;
                info.agent_id = AgentId::new("another").unwrap();
            }),
            ("held.tasks is `", |m| {
                report(m).held.tasks[0].info.command = None;
            }),
            ("held.executors.executor_id is `e`", |m| {
                let executor = RunningExecutor {
                    framework_id: report(m).held.tasks[0].framework_id.clone(),
                    info: own("e"),
                };
                report(m).held.executors = vec![executor.clone(), executor];
                m.summary.items += 2;
            }),
            ("held.frameworks.id is `not set`", |m| {
                let info = FrameworkInfo::new("nobody", "web");
                report(m).held.frameworks = vec![info];
            }),
            ("held.frameworks.id is `stray`", |m| {
                report(m).held.frameworks = vec![named("stray")];
            }),
            ("held.frameworks.id is `", |m| {
                let owner = report(m).held.tasks[0].framework_id.clone();
                let owner = named(owner.as_str());
                report(m).held.frameworks = vec![owner.clone(), owner];
            }),
            ("held.frameworks.roles is `a b`", |m| {
                let owner = report(m).held.tasks[0].framework_id.clone();
                let mut owner = named(owner.as_str());
                owner.roles = BTreeSet::from(["a b".to_owned()]);
                report(m).held.frameworks = vec![owner];
            }),
        ];
        for (words, change) in changes {
            let mut message = back(agent, a, &scenario.held, Some(&theirs));
            change(&mut message);
            let refused = say(agent, message).await.unwrap_err();
            assert!(
                matches!(&refused, RegistrationRefused::Never { reason }
                    if reason.starts_with(words) && reason.contains("expected")),
                "{words}: {refused}"
            );
        }
    });
}

fn report(message: &mut ReregisterAgent) -> &mut InventoryReport {
    message.report.as_mut().unwrap()
}

fn named(id: &str) -> FrameworkInfo {
    FrameworkInfo {
        id: Some(FrameworkId::new(id).unwrap()),
        ..FrameworkInfo::new("nobody", "web")
    }
}
