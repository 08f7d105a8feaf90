//! Agents that come back with what does not fit together.

use super::*;

#[test]
fn a_report_that_does_not_fit_its_buckets_is_not_taken() {
    rehearse_network(|network| async move {
        let mut story = Story::with_tasks(network, 40).await;
        let (agent, a) = (&story.agent, &story.a);
        story.held.tasks[3].state = TaskState::Failed;
        let theirs = sums(come_back(agent, a, &story.held).await);
        let mut said = back(agent, a, &story.held, Some(&theirs));
        let report = said.report.as_mut().unwrap();
        report.differing[0] = (report.differing[0] + 1) % report.buckets;
        assert_eq!(sums(say(agent, said).await.unwrap()), theirs);
    });
}

type Change = fn(&mut ReregisterAgent);

/// Each field that does not fit is refused by name, with what it was and what was expected.
#[test]
fn a_registration_that_does_not_fit_together_is_refused_by_name() {
    rehearse_network(|network| async move {
        let story = Story::with_tasks(network, 40).await;
        let (agent, a) = (&story.agent, &story.a);
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
            let mut message = back(agent, a, &story.held, Some(&theirs));
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

fn report(message: &mut ReregisterAgent) -> &mut Report {
    message.report.as_mut().unwrap()
}

fn named(id: &str) -> FrameworkInfo {
    FrameworkInfo {
        id: Some(FrameworkId::new(id).unwrap()),
        ..FrameworkInfo::new("nobody", "web")
    }
}
