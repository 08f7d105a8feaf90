//! What of the books is seen by somebody who does not see all of them.

use protocol::{CommandInfo, MasterId, MasterInfo, TaskInfo, TaskState};
use runtime::Timestamp;

use super::*;
use crate::config::Config;
use crate::frameworks::Framework;
use crate::view;

fn framework(books: &mut Books, id: &str, user: &str) {
    let id: FrameworkId = id.parse().unwrap();
    let mut info = FrameworkInfo::new(user, id.as_str());
    info.id = Some(id.clone());
    info.roles = [format!("role-of-{user}")].into();
    books.frameworks.insert(Framework {
        id,
        info,
        scheduler: None,
        session: 0,
        registered: Timestamp::from_nanos(1),
        reregistered: None,
        unregistered: None,
        wants: Default::default(),
        recovered: false,
    });
}

fn task(books: &mut Books, framework: &str, id: &str, user: Option<&str>) {
    let command = CommandInfo {
        user: user.map(str::to_owned),
        ..CommandInfo::shell("true")
    };
    let info = TaskInfo {
        name: String::new(),
        task_id: id.parse().unwrap(),
        agent_id: "agent".parse().unwrap(),
        resources: "cpus:1".parse().unwrap(),
        command: Some(command),
        executor: None,
        data: Vec::new(),
        kill_policy: None,
        labels: Default::default(),
    };
    let resources = info.resources.clone();
    let task = Task::placed(
        framework.parse().unwrap(),
        &info,
        resources,
        TaskState::Running,
    );
    books.tasks.insert(task, None);
}

/// Frameworks of alice and bob, of which alice's has a task of hers and one of carol's; carol's own has ended.
fn books() -> Arc<Books> {
    let master = MasterInfo {
        id: MasterId::new("m").unwrap(),
        hostname: "localhost".into(),
        port: 5050,
        version: "1".into(),
        term: 0,
    };
    let config = Config {
        weights: [("role-of-alice".to_owned(), 2.0), ("x".to_owned(), 3.0)].into(),
        ..Config::default()
    };
    let mut books = Books::new(master, &config, Timestamp::from_nanos(1));
    books.quotas = Arc::new([("role-of-bob".to_owned(), Default::default())].into());
    for user in ["alice", "bob", "carol"] {
        framework(&mut books, &format!("of-{user}"), user);
    }
    task(&mut books, "of-alice", "a1", None);
    task(&mut books, "of-alice", "a2", Some("carol"));
    task(&mut books, "of-bob", "b1", None);
    task(&mut books, "of-carol", "c1", None);
    let carol: FrameworkId = "of-carol".parse().unwrap();
    let (tasks, ..) = books.tasks.remove_framework(&carol, |_| {});
    books
        .frameworks
        .complete(&carol, tasks, Timestamp::from_nanos(2));
    Arc::new(books)
}

/// What is seen: frameworks, ended ones, and tasks of all.
fn seen(acls: &str, principal: &str) -> String {
    let acls = Acls::parse(acls).unwrap();
    let seen = Sight::of(&acls, &Subject::named(principal)).books(&books());
    let view = view::cluster(&seen);
    let all = view.frameworks.iter().chain(&view.completed_frameworks);
    let words = all.map(|framework| {
        let tasks = framework.tasks.iter().chain(&framework.completed_tasks);
        let tasks: Vec<&str> = tasks.map(|task| task.id.as_str()).collect();
        format!("{} {}", framework.info.user, tasks.join(" "))
    });
    words.collect::<Vec<_>>().join("; ").replace(" ;", ";")
}

/// SPEC 3.7.
#[test]
fn frameworks_and_tasks_are_seen_by_the_users_that_they_run_as() {
    assert_eq!(seen("{}", "p"), "alice a1 a2; bob b1; carol c1");
    let only = |action: &str, users: &str| {
        let rest = r#"{"principals":{"type":"NONE"},"users":{"type":"ANY"}}"#;
        format!(
            r#"{{"{action}":[{{"principals":{{"values":["p"]}},"users":{{"values":[{users}]}}}},{rest}]}}"#
        )
    };
    let of_alice = only("view_frameworks", r#""alice""#);
    assert_eq!(seen(&of_alice, "p"), "alice a1 a2");
    assert_eq!(seen(&of_alice, "q"), "");
    let of_carol = only("view_tasks", r#""carol""#);
    assert_eq!(seen(&of_carol, "p"), "alice a2; bob; carol c1");
    assert_eq!(seen(&of_carol, "q"), "alice; bob; carol ");
    assert_eq!(seen(r#"{"permissive":false}"#, "p"), "");
}

/// SPEC 3.7.
#[test]
fn roles_and_quotas_are_seen_apart_from_each_other() {
    let of = |acls: &str| {
        let sight = Sight::of(&Acls::parse(acls).unwrap(), &Subject::named("p"));
        let seen = sight.books(&books());
        let roles: Vec<String> = view::roles(&seen)
            .into_iter()
            .map(|role| role.name)
            .collect();
        let weights: Vec<String> = seen.weights.keys().cloned().collect();
        (roles.join(" "), weights.join(" "), seen.quotas.len())
    };
    let all = "* role-of-alice role-of-bob x".to_owned();
    assert_eq!(of("{}"), (all.clone(), "role-of-alice x".to_owned(), 1));
    let one = r#"{"view_roles":[{"principals":{"type":"ANY"},"roles":{"values":["x"]}},
        {"principals":{"type":"ANY"},"roles":{"type":"NONE"}}]}"#;
    assert_eq!(of(one), ("x".to_owned(), "x".to_owned(), 1));
    let none = r#"{"get_quotas":[{"principals":{"type":"ANY"},"roles":{"type":"NONE"}}]}"#;
    assert_eq!(of(none), (all, "role-of-alice x".to_owned(), 0));
}

/// What is used of an agent is no secret, and books that are wholly seen are not copied.
#[test]
fn sums_of_agents_stay_whole() {
    let books = books();
    let nobody = Sight::of(&Acls::default().denying(), &Subject::default());
    let agent = "agent".parse().unwrap();
    let held = |books: &Books| books.tasks.on_agent(&agent).unwrap().held().clone();
    assert_eq!(held(&nobody.books(&books)), held(&books));
    let all = Sight::of(&Acls::default(), &Subject::default());
    assert!(Arc::ptr_eq(&all.books(&books), &books));
}
