//! Authorization of containers.

use protocol::task::container::{SecretData, Volume, VolumeSource};
use protocol::task::{ContainerInfo, Limit, TaskLimits};

use super::*;
use crate::container::events::NestedView;

/// SPEC 3.7: `view_containers`.
#[test]
fn containers_are_filtered_by_view_containers_alone() {
    let bob = Subject::named("bob");
    let rule =
        |principals: Value, users: Value| json!([{"principals": principals, "users": users}]);
    let none = |action: &str| {
        let nobody = rule(json!({"type": "ANY"}), json!({"type": "NONE"}));
        json!({ "permissive": true, action: nobody }).to_string()
    };
    let only = |user: &str| {
        let own = rule(json!({"values": ["bob"]}), json!({"values": [user]}));
        json!({ "permissive": false, "view_containers": own }).to_string()
    };
    let seen = |acls: &str| {
        let acls = Acls::parse(acls).unwrap();
        let survey = visibility::visible_containers(history::survey_with_history(), &acls, &bob);
        (survey.containers.len(), survey.completed.len())
    };
    assert_eq!(seen("{}"), (3, 2));
    assert_eq!(seen(&none("view_containers")), (0, 0));
    assert_eq!(seen(&only("alice")), (3, 1));
    assert_eq!(seen(&only("carol")), (0, 1));
    for other in ["view_frameworks", "view_executors", "view_tasks"] {
        assert_eq!(seen(&none(other)), (3, 2), "{other}");
    }
}

/// SPEC 2.7: as in Mesos, with the chain of ids in the status only.
#[test]
fn nested_containers_are_shown_with_the_one_around_them() {
    let nested = |id: &str, resources| NestedView {
        id: ContainerId::new(id).unwrap(),
        leader: Some(77),
        networks: Vec::new(),
        resources,
    };
    let limits = TaskLimits {
        mem: Some(Limit::Infinite),
        ..TaskLimits::default()
    };
    let mut survey = survey();
    survey.nested = vec![
        nested("c-over.gone", None),
        nested("c-runs.a", Some((resources("cpus:0.5;mem:32"), limits))),
        nested("c-runs.a.session", None),
    ];
    let shown = |survey: &ContainersView, show_nested| {
        let shown = json_of(&answers::containers(survey, &usage(), show_nested));
        shown["containers"].as_array().cloned().unwrap_or_default()
    };
    assert_eq!(shown(&survey, false).len(), 2);
    let all = shown(&survey, true);
    assert_eq!(all.len(), 4, "{all:?}");
    let task = &all[2];
    assert_eq!(task["container_id"], json!({ "value": "a" }));
    let chain = json!({ "value": "a", "parent": { "value": "c-runs" } });
    assert_eq!(task["container_status"]["container_id"], chain);
    assert_eq!(task["container_status"]["executor_pid"], 77);
    for key in ["framework_id", "executor_id", "executor_name"] {
        assert_eq!(task.get(key), None, "{key}");
    }
    let statistics = json!({
        "timestamp": 1.5,
        "cpus_soft_limit": 0.5,
        "cpus_limit": 0.5,
        "mem_soft_limit_bytes": 32 << 20,
    });
    assert_eq!(task["resource_statistics"], statistics);
    let session = &all[3];
    assert_eq!(session["container_id"], json!({ "value": "session" }));
    assert_eq!(session["resource_statistics"], json!({ "timestamp": 1.5 }));

    let none = json!({ "view_containers": [
        { "principals": { "type": "ANY" }, "users": { "type": "NONE" } },
    ]});
    let acls = Acls::parse(&none.to_string()).unwrap();
    let hidden = visibility::visible_containers(survey, &acls, &Subject::named("bob"));
    assert_eq!(shown(&hidden, true), Vec::<Value>::new());
}

#[test]
fn secrets_are_on_no_page() {
    let mut survey = survey();
    let secret = ContainerInfo {
        volumes: vec![Volume {
            container_path: "key".into(),
            is_read_only: true,
            source: VolumeSource::Secret(SecretData(b"hush hush".to_vec())),
        }],
        ..ContainerInfo::default()
    };
    for container in &mut survey.containers {
        container.executor.container = Some(Box::new(secret.clone()));
        for (task, _) in &mut container.tasks {
            task.container = Some(Box::new(secret.clone()));
        }
    }
    let state = json_of(&answers::state(&survey)).to_string();
    assert!(state.contains(r#""container_path":"key""#), "{state}");
    // In base64.
    assert!(!state.contains("aHVzaCBodXNo"), "{state}");
}
