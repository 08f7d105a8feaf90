//! Events for changes between two snapshots.

use super::*;
use crate::agents::Agent;

fn told(before: &MasterState, now: &mut MasterState) -> Vec<Event> {
    let noted = now.tasks.take_noted().unwrap();
    let noted: Vec<&TaskNote> = noted.iter().collect();
    changes::changes(before, now, &noted, Timestamp::from_nanos(9))
}

/// SPEC 2.6: there is no event for that, so the agent is sent again.
// Covers 2.6 Events of agents and tasks.
#[test]
fn changed_or_returned_agent_is_sent_again() {
    let mut before = state();
    happen(&mut before, (0, 0, 0, 1), 5);
    before.tasks.take_noted();
    let id = "a0".parse().unwrap();
    for (what, change) in [
        (
            "hostname",
            (|agent| agent.info.hostname = "other".into()) as fn(&mut Agent),
        ),
        ("port", |agent| agent.info.port = 5052),
        ("version", |agent| agent.version = "2".into()),
        ("address", |agent| agent.ip = Some("10.0.0.7".into())),
        ("time", |agent| {
            agent.reregistered = Some(Timestamp::from_nanos(8))
        }),
    ] {
        let mut now = before.clone();
        now.agents.update(&id, change);
        let told = told(&before, &mut now);
        let added = told.iter().filter(|one| one.agent_added.is_some());
        assert_eq!((added.count(), told.len()), (1, 1), "{what}");
    }
    let mut now = before.clone();
    now.agents.update(&id, |agent| agent.session += 1);
    assert!(told(&before, &mut now).is_empty(), "nobody sees that");
}

/// SPEC 2.6: TASK_ADDED names a framework that was sent before.
// Covers 2.6 Events of agents and tasks.
#[test]
fn tasks_of_forgotten_frameworks_are_not_sent() {
    let mut before = state();
    happen(&mut before, (0, 0, 0, 0), 5);
    before.tasks.take_noted();
    let mut now = before.clone();
    // Two ended frameworks are remembered: the first of three is forgotten.
    for framework in 0..3 {
        for event in [
            (6, 0, framework, 1),
            (10, 0, framework, 2),
            (14, 0, framework, 2),
        ] {
            happen(&mut now, event, 6);
        }
        happen(&mut now, (9, 0, framework, 0), 7);
    }
    let mut known = Known::of(&before);
    let mut named = Vec::new();
    for event in told(&before, &mut now) {
        if let Some(added) = &event.task_added {
            let id = added.task.framework_id.value.clone();
            assert!(known.frameworks.contains_key(&id), "{id} is not known");
            named.push(id);
        }
        known.apply(&event).unwrap();
    }
    assert_eq!(named, ["f1", "f2"]);
    assert!(
        known.frameworks.is_empty(),
        "all of them are told to have ended"
    );
}
