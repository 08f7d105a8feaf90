//! Completed executors and their authorization.

use std::sync::Arc;

use super::*;

/// A survey that includes a completed framework.
pub(super) fn survey_with_history() -> ContainersView {
    let mut gone = container("gone", Phase::Terminated, false, &[]);
    gone.completed = container("gone", Phase::Terminated, false, &[TaskState::Killed]).tasks;
    let mut other = container("other", Phase::Terminated, true, &[]);
    other.framework_id = FrameworkId::new("g").unwrap();
    other.completed = container("other", Phase::Terminated, true, &[TaskState::Finished]).tasks;
    let mut survey = ContainersView {
        completed: vec![Arc::new(gone), Arc::new(other)],
        completed_frameworks: vec![FrameworkInfo {
            id: Some(FrameworkId::new("g").unwrap()),
            ..FrameworkInfo::new("carol", "batch")
        }],
        ..survey()
    };
    let early = container("runs", Phase::Running, true, &[TaskState::Finished]);
    survey.containers[1].completed = early.tasks;
    survey
}

/// SPEC 2.7, 3.12: `completed_frameworks`, `completed_executors`, `completed_tasks`.
#[test]
fn acknowledged_ends_are_listed_as_completed() {
    let survey = survey_with_history();
    let ids = |list: &Value, id: &str| -> Vec<String> {
        let list = list.as_array().into_iter().flatten();
        let text = |one: &Value| one.pointer(id).and_then(Value::as_str).map(str::to_owned);
        list.filter_map(text).collect()
    };
    let allocated = state::allocated(&survey);
    assert_eq!(allocated, state::allocated(&self::survey()));
    let json = state::whole(&agent(), &survey, &allocated, &roles("{}"));
    let framework = &json["frameworks"][0];
    assert_eq!(
        ids(&framework["completed_executors"], "/id"),
        ["gone", "over"]
    );
    let gone = &framework["completed_executors"][0];
    assert_eq!(gone["completed_tasks"][0]["state"], "TASK_KILLED");
    assert_eq!(gone["directory"], "/w/gone");
    let runs = &framework["executors"][1];
    assert_eq!(ids(&runs["completed_tasks"], "/id"), ["runs-0", "runs-1"]);
    assert_eq!(ids(&json["completed_frameworks"], "/id"), ["g"]);
    let other = &json["completed_frameworks"][0];
    assert_eq!(other["executors"], json!([]));
    assert_eq!(ids(&other["completed_executors"], "/id"), ["other"]);

    let state = json_of(&answers::state(&survey));
    let tasks = &state["get_tasks"];
    let id = "/task_id/value";
    assert_eq!(
        ids(&tasks["completed_tasks"], id),
        ["gone-0", "other-0", "runs-0"]
    );
    assert_eq!(ids(&tasks["terminated_tasks"], id), ["runs-1", "over-0"]);
    let id = "/executor_info/executor_id/value";
    let executors = &state["get_executors"];
    assert_eq!(ids(&executors["executors"], id), ["early", "runs"]);
    assert_eq!(
        ids(&executors["completed_executors"], id),
        ["gone", "other", "over"]
    );
    // A command's description keeps its resources.
    let other = &executors["completed_executors"][1]["executor_info"]["resources"];
    assert_eq!(ids(other, "/name"), ["cpus", "mem"]);
    let frameworks = &state["get_frameworks"]["completed_frameworks"];
    assert_eq!(ids(frameworks, "/framework_info/name"), ["batch"]);
}

/// SPEC 3.7: `view_frameworks`, `view_executors`, `view_tasks`, `access_sandboxes`.
#[test]
fn completed_items_are_filtered_like_live_ones() {
    let bob = Subject::named("bob");
    let seen = |acls: &str| {
        let survey = visibility::visible(survey_with_history(), &Acls::parse(acls).unwrap(), &bob);
        let tasks = survey.completed.iter().map(|one| one.completed.len());
        let running = survey.containers.iter().map(|one| one.completed.len());
        let tasks: usize = tasks.chain(running).sum();
        let frameworks = survey.completed_frameworks.len();
        (frameworks, survey.completed.len(), tasks)
    };
    let only = |action: &str, user: &str| {
        let rule = json!([
            {"principals": {"values": ["bob"]}, "users": {"values": [user]}},
            {"principals": {"values": ["bob"]}, "users": {"type": "NONE"}},
        ]);
        json!({ action: rule }).to_string()
    };
    assert_eq!(seen("{}"), (1, 2, 3));
    assert_eq!(seen(r#"{"permissive": false}"#), (0, 0, 0));
    let nobody = json!([{"principals": {"type": "ANY"}, "users": {"type": "NONE"}}]);
    let none = |action: &str| json!({ action: nobody }).to_string();
    assert_eq!(seen(&none("view_frameworks")), (0, 0, 0));
    assert_eq!(seen(&none("view_executors")), (1, 0, 0));
    assert_eq!(seen(&none("view_tasks")), (1, 2, 0));

    // The owner of a completed run's sandbox stays known.
    let owner = |framework, executor: &str, run| {
        let survey = survey_with_history();
        visibility::owner(&survey, framework, executor, run).map(str::to_owned)
    };
    assert_eq!(owner("f", "gone", "c-gone"), Some("alice".to_owned()));
    assert_eq!(owner("g", "other", "c-other"), Some("carol".to_owned()));
    assert_eq!(owner("f", "other", "c-other"), None);
    let alices = Acls::parse(&only("access_sandboxes", "alice")).unwrap();
    assert!(visibility::check_sandbox_access(Some("alice"), &alices, &bob).is_ok());
    assert!(visibility::check_sandbox_access(Some("carol"), &alices, &bob).is_err());
}
