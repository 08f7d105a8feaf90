//! Each rule of validation, and the name of the field it finds wrong.

use std::collections::BTreeMap;
use std::time::Duration;

use proptest::prelude::*;
use protocol::task::check::{
    CheckInfo, CheckKind, CheckTiming, HealthCheck, HttpCheck, NamedCheck, TcpCheck,
};
use protocol::task::container::Image;
use protocol::task::{ContainerInfo, Limit, TaskLimits};
use protocol::{FrameworkId, TaskId, TaskState};
use resources::Revocable;
use runtime::Timestamp;
use testkit::assert_starts;

use super::*;
use crate::tasks::{Limits, Task};

fn policy() -> Policy {
    Policy {
        acls: Default::default(),
        roles: None,
        root_submissions: false,
        offer_timeout: None,
        offer_budget: None,
        agent_reregister_timeout: Duration::from_secs(600),
        publish_per_framework_metrics: true,
    }
}

fn known() -> Framework {
    Framework {
        id: FrameworkId::new("f").unwrap(),
        info: FrameworkInfo::new("nobody", "web"),
        scheduler: None,
        session: 0,
        registered: Timestamp::from_nanos(0),
        reregistered: None,
        unregistered: None,
        wants: Default::default(),
        recovered: false,
    }
}

fn a() -> AgentId {
    AgentId::new("a").unwrap()
}

fn good() -> TaskInfo {
    TaskInfo::new(
        TaskId::new("t").unwrap(),
        a(),
        "cpus:1;mem:32".parse().unwrap(),
    )
    .with_command(CommandInfo::shell("true"))
}

fn own(command: &str) -> ExecutorInfo {
    ExecutorInfo {
        name: "e".into(),
        ..ExecutorInfo::new(
            ExecutorId::new("e").unwrap(),
            CommandInfo::shell(command),
            "cpus:0.5".parse().unwrap(),
        )
    }
}

/// Known tasks: task `taken`, and executor `e` with a task.
fn running() -> Tasks {
    let mut tasks = Tasks::new(Limits {
        completed: 10,
        unreachable: 10,
    });
    let mut taken = good();
    taken.task_id = TaskId::new("taken").unwrap();
    let resources = taken.resources.clone();
    let framework = known().id;
    tasks.insert(
        Task::placed(
            framework.clone(),
            &taken,
            resources.clone(),
            TaskState::Running,
        ),
        None,
    );
    let star = Role::new("*").unwrap();
    let mut executor = own("./e");
    executor.resources = executor.resources.allocate(&star);
    let mut with = good();
    with.task_id = TaskId::new("with").unwrap();
    with.executor = Some(executor.clone());
    tasks.insert(
        Task::placed(framework, &with, resources, TaskState::Running),
        Some(&executor),
    );
    tasks
}

fn check(task: &TaskInfo, offered: &str, tasks: &Tasks) -> Result<Needs, TaskInvalid> {
    let (framework, policy, role) = (known(), policy(), Role::new("*").unwrap());
    let revocable: Resources = "cpus:8".parse().unwrap();
    let revocable = revocable.to_revocable(Revocable::Throttleable).unwrap();
    let offered = (&offered.parse::<Resources>().unwrap() + &revocable).allocate(&role);
    let rules = TaskRules {
        framework: &framework,
        agent_id: &a(),
        role: &role,
        remaining: &offered,
        tasks,
        policy: &policy,
    };
    rules.check(task)
}

/// SPEC 5.4: the words of Mesos 1.11.
#[test]
fn invalid_checks_have_the_messages_of_mesos() {
    let http = |scheme: &str, path: &str| {
        CheckKind::Http(HttpCheck {
            port: 80,
            path: Some(path.to_owned()),
            scheme: Some(scheme.to_owned()),
            ..HttpCheck::default()
        })
    };
    let message = |kind: &CheckKind| {
        let timing = CheckTiming::default();
        let plain = CheckInfo {
            kind: kind.clone(),
            timing,
        };
        let health = HealthCheck {
            kind: kind.clone(),
            timing,
            grace_period: Duration::ZERO,
            consecutive_failures: 1,
        };
        let with_check = TaskInfo {
            check: Some(Box::new(plain)),
            ..good()
        };
        let with_health = TaskInfo {
            health_check: Some(Box::new(health)),
            ..good()
        };
        [with_check, with_health].map(|task| match check(&task, "cpus:4;mem:128", &running()) {
            Ok(_) => String::new(),
            Err(invalid) => invalid.message,
        })
    };
    assert_eq!(message(&http("https", "/ok")), ["", ""]);
    assert_eq!(
        message(&http("http", "ok")),
        [
            "Task uses invalid check: The path 'ok' of HTTP check must start with '/'",
            "Task uses invalid health check: The path 'ok' of HTTP health check must start with '/'"
        ]
    );
    assert_eq!(
        message(&http("ftp", "/"))[1],
        "Task uses invalid health check: Unsupported HTTP health check scheme: 'ftp'"
    );
    let empty = CheckKind::Command(CommandInfo::shell(""));
    let [check, health] = message(&empty);
    let owner = "Task uses invalid check: Check's `CommandInfo` is invalid: task.check.command";
    assert!(check.starts_with(owner), "{check}");
    let owner = "Task uses invalid health check: Health check's `CommandInfo` is invalid: ";
    assert!(health.starts_with(owner), "{health}");
    let large = CheckKind::Command(CommandInfo::shell("x".repeat(2 << 20)));
    assert!(message(&large)[0].starts_with("task.check is"));
}

#[test]
fn named_checks_are_bounded_and_unique() {
    let named = |name: &str, kind: CheckKind| NamedCheck {
        name: name.to_owned(),
        check: CheckInfo {
            kind,
            timing: CheckTiming::default(),
        },
    };
    let tcp = |name: &str| named(name, CheckKind::Tcp(TcpCheck::default()));
    let message = |checks: Vec<NamedCheck>| {
        let task = TaskInfo { checks, ..good() };
        match check(&task, "cpus:4;mem:128", &running()) {
            Ok(_) => String::new(),
            Err(invalid) => invalid.message,
        }
    };
    let numbered = |count: usize| (0..count).map(|one| tcp(&one.to_string())).collect();
    assert_eq!(message(numbered(16)), "");
    let many = "Task uses invalid check: task.checks is `17`: expected at most 16 checks";
    assert_eq!(message(numbered(17)), many);
    let name = "Task uses invalid check: task.checks[1].name is `a`: ";
    let twice = message(vec![tcp("a"), tcp("a")]);
    assert!(twice.starts_with(name), "{twice}");
    let empty = message(vec![tcp("")]);
    assert!(empty.contains("task.checks[0].name"), "{empty}");
    assert_ne!(message(vec![tcp(&"x".repeat(65))]), "");
    let http = CheckKind::Http(HttpCheck {
        path: Some("ok".to_owned()),
        ..HttpCheck::default()
    });
    let path =
        "Task uses invalid check: task.checks[1]: The path 'ok' of HTTP check must start with '/'";
    assert_eq!(message(vec![tcp("a"), named("b", http)]), path);
}

// Covers 5.12 Isolation; S125 in part: the master's rules for limits.
#[test]
fn limits_are_at_least_the_request_with_the_messages_of_mesos() {
    let with = |resources: &str, cpus: Option<Limit>, mem: Option<Limit>| {
        let mut task = good();
        task.resources = resources.parse().unwrap();
        task.limits = TaskLimits { cpus, mem };
        let checked = check(&task, "cpus:4;mem:128", &running());
        checked.map(drop).map_err(|bad| bad.message)
    };
    let both = "cpus:1;mem:32";
    let amount = |amount| Some(Limit::Amount(amount));
    assert_eq!(with(both, amount(1.0), amount(32.0)), Ok(()));
    assert_eq!(
        with(both, Some(Limit::Infinite), Some(Limit::Infinite)),
        Ok(())
    );
    for (resources, cpus, mem, message) in [
        (
            both,
            amount(0.5),
            None,
            "The cpu limit must be greater than or equal to the cpu request",
        ),
        (
            both,
            None,
            amount(31.0),
            "The memory limit must be greater than or equal to the memory request",
        ),
        (
            "mem:32",
            amount(1.0),
            None,
            "When a CPU limit is specified, a CPU request must also be specified",
        ),
        (
            "cpus:1",
            None,
            amount(32.0),
            "When a memory limit is specified, a memory request must also be specified",
        ),
    ] {
        assert_eq!(with(resources, cpus, mem), Err(message.to_owned()));
    }
}

#[test]
fn valid_task_takes_its_resources_and_shares_a_new_executor() {
    let tasks = running();
    let needs = check(&good(), "cpus:1;mem:32", &tasks).unwrap();
    assert_eq!(needs.total.unallocate(), good().resources);
    assert!(
        needs
            .total
            .iter()
            .all(|one| one.allocation_role().is_some())
    );

    let mut with = good();
    with.command = None;
    with.executor = Some(own("./e"));
    let needs = check(&with, "cpus:1;mem:32", &tasks).unwrap();
    assert_eq!(
        needs.total.unallocate(),
        good().resources,
        "it runs already"
    );
    with.executor.as_mut().unwrap().executor_id = ExecutorId::new("new").unwrap();
    assert!(
        check(&with, "cpus:1;mem:32", &tasks).is_err(),
        "a new one needs more"
    );
    let needs = check(&with, "cpus:1.5;mem:32", &tasks).unwrap();
    assert_eq!(needs.total.unallocate(), "cpus:1.5;mem:32".parse().unwrap());
}

/// SPEC 3.3: each field is refused by its name, in the order given there.
#[test]
fn invalid_task_fields_are_refused_by_name() {
    type Change = fn(&mut TaskInfo);
    let changes: [(&str, Change); 17] = [
        ("task.agent_id", |t| t.agent_id = AgentId::new("b").unwrap()),
        ("task.task_id", |t| {
            t.task_id = TaskId::new("taken").unwrap()
        }),
        ("task.task_id", |t| t.task_id = TaskId::new("e").unwrap()),
        ("task.command", |t| t.command = None),
        ("task.command", |t| t.executor = Some(own("./e"))),
        ("task.command.value", |t| {
            t.command = Some(CommandInfo::shell(""))
        }),
        ("task.command.value", |t| {
            t.command = Some(CommandInfo::program("", []))
        }),
        ("task.command.value", |t| {
            t.command = Some(CommandInfo::shell("a\0b"))
        }),
        ("task.command.arguments", |t| {
            t.command = Some(CommandInfo::program("x", ["a\0b".to_owned()]));
        }),
        ("task.command.environment", |t| {
            let variable = ("A=B".to_owned(), String::new());
            t.command.as_mut().unwrap().environment = BTreeMap::from([variable]);
        }),
        ("task.command.user", |t| {
            t.command.as_mut().unwrap().user = Some("root".into())
        }),
        ("task.command.user", |t| {
            t.command.as_mut().unwrap().user = Some("a b".into())
        }),
        ("task.executor.command.value", |t| {
            (t.command, t.executor) = (None, Some(own("")));
        }),
        ("task.executor.executor_id", |t| {
            (t.command, t.executor) = (None, Some(own("./another")));
        }),
        ("task.resources", |t| t.resources = Resources::default()),
        ("task.resources.allocation_info.role", |t| {
            t.resources = t.resources.allocate(&Role::new("other").unwrap());
        }),
        ("task.resources", |t| {
            let lent: Resources = "cpus:1".parse().unwrap();
            t.resources += &lent.to_revocable(Revocable::Throttleable).unwrap();
        }),
    ];
    let tasks = running();
    for (n, (field, change)) in changes.into_iter().enumerate() {
        let mut task = good();
        change(&mut task);
        let invalid = check(&task, "cpus:8;mem:1000", &tasks).unwrap_err();
        assert_eq!(invalid.field, field, "case {n}: {invalid}");
    }
    let invalid = check(&good(), "cpus:0.5;mem:1000", &tasks).unwrap_err();
    let expected = "Total resources cpus:1;mem:32 required by task and its executor is more than available cpus:";
    assert!(invalid.to_string().starts_with(expected), "{invalid}");
}

#[test]
fn an_invalid_task_is_refused_as_by_mesos() {
    type Change = fn(&mut TaskInfo);
    let changes: [(&str, Change); 6] = [
        ("Task uses invalid agent b while agent a is expected", |t| {
            t.agent_id = AgentId::new("b").unwrap()
        }),
        ("Task has duplicate ID: taken", |t| {
            t.task_id = TaskId::new("taken").unwrap()
        }),
        (
            "Task should have at least one (but not both) of CommandInfo or ExecutorInfo present",
            |t| t.command = None,
        ),
        ("Task uses no resources", |t| {
            t.resources = Resources::default()
        }),
        ("Task mixes revocable and non-revocable resources: ", |t| {
            let lent: Resources = "cpus:1".parse().unwrap();
            t.resources += &lent.to_revocable(Revocable::Throttleable).unwrap();
        }),
        (
            "ExecutorInfo is not compatible with existing ExecutorInfo with same ExecutorID",
            |t| (t.command, t.executor) = (None, Some(own("./another"))),
        ),
    ];
    let tasks = running();
    for (words, change) in changes {
        let mut task = good();
        change(&mut task);
        let invalid = check(&task, "cpus:8;mem:1000", &tasks).unwrap_err();
        assert!(invalid.message.starts_with(words), "{invalid}");
    }
}

#[test]
fn an_invalid_framework_is_refused_as_by_mesos() {
    let refused = |change: fn(&mut FrameworkInfo), policy: &Policy| {
        let mut info = FrameworkInfo::new("nobody", "web");
        change(&mut info);
        let refused = framework(&info, &Wants::default(), policy);
        refused.map_err(|invalid| invalid.to_string())
    };
    let closed = Policy {
        roles: Some(["ads".to_owned()].into()),
        ..policy()
    };
    assert_eq!(
        refused(|_| (), &closed).unwrap_err(),
        "Roles { * } are not present in the master's --roles"
    );
    assert_eq!(
        refused(|info| info.user = "root".to_owned(), &policy()).unwrap_err(),
        "User 'root' is not allowed to run frameworks without --root_submissions set"
    );
    assert_eq!(
        refused(|info| info.roles = ["a/".to_owned()].into(), &policy()).unwrap_err(),
        "'FrameworkInfo.role' is not a valid role: Role 'a/' cannot end with a slash"
    );
    assert_eq!(refused(|info| info.user.clear(), &policy()), Ok(()));
}

/// Its agent would run it as its own user, which may be root.
#[test]
fn task_without_user_cannot_become_root() {
    let mut framework = known();
    framework.info.user.clear();
    let (role, tasks, offered) = (Role::STAR, running(), "cpus:8;mem:1000");
    let offered: Resources = offered.parse().unwrap();
    let check = |root_submissions| {
        let policy = Policy {
            root_submissions,
            ..policy()
        };
        let rules = TaskRules {
            framework: &framework,
            agent_id: &a(),
            role: &role,
            remaining: &offered.allocate(&role),
            tasks: &tasks,
            policy: &policy,
        };
        rules.check(&good()).map_err(|invalid| invalid.field)
    };
    assert_eq!(check(false), Err("framework.user".to_owned()));
    assert!(check(true).is_ok());
}

#[test]
fn oversized_task_or_framework_is_refused() {
    let tasks = running();
    let labels = |bytes: usize| BTreeMap::from([("k".to_owned(), "x".repeat(bytes))]);
    let refused = |change: &dyn Fn(&mut TaskInfo)| {
        let mut task = good();
        change(&mut task);
        let checked = check(&task, "cpus:8;mem:1000", &tasks);
        checked.map_err(|invalid| invalid.message)
    };
    assert!(refused(&|task| task.labels = labels(1 << 19)).is_ok());
    assert!(refused(&|task| task.data = vec![0; 4 << 20]).is_ok());
    assert_eq!(
        refused(&|task| task.labels = labels(8 << 20)).unwrap_err(),
        "task.labels is `8388673 bytes`: expected at most 1048576 bytes in all of `task`, which has 8388678"
    );
    // Many small labels take as much memory as a few large ones.
    let many = |task: &mut TaskInfo| {
        let empty = |number: u32| (number.to_string(), String::new());
        task.labels = (0..20_000).map(empty).collect();
    };
    let message = refused(&many).unwrap_err();
    assert!(message.starts_with("task.labels is `"), "{message}");
    let large = |task: &mut TaskInfo| {
        let environment = &mut task.command.as_mut().unwrap().environment;
        environment.extend(labels(1 << 20));
    };
    let message = refused(&large).unwrap_err();
    assert!(message.starts_with("task.command is `"), "{message}");
    let message = refused(&|task| task.data = vec![0; (4 << 20) + 1]).unwrap_err();
    assert!(message.starts_with("task.data is `"), "{message}");
    let executor = |task: &mut TaskInfo| {
        let mut own = own("./e");
        own.labels = labels(1 << 20);
        (task.command, task.executor) = (None, Some(own));
    };
    let message = refused(&executor).unwrap_err();
    assert!(message.starts_with("task.executor is `"), "{message}");

    let mut info = FrameworkInfo::new("nobody", "web");
    info.labels = labels(1 << 20);
    let message = framework(&info, &Wants::default(), &policy()).unwrap_err();
    let message = message.to_string();
    assert!(message.starts_with("framework.labels is `"), "{message}");
}

/// A framework that has as many bytes as it may have launches small tasks, and larger ones again
/// when others have ended.
#[test]
fn launch_beyond_the_active_bytes_is_refused() {
    let mut tasks = running();
    let labels = |bytes: usize| BTreeMap::from([("k".to_owned(), "x".repeat(bytes))]);
    let mut large = good();
    large.labels = labels(1_000_000);
    for number in 0..67 {
        large.task_id = TaskId::new(format!("t{number}")).unwrap();
        assert!(check(&large, "cpus:8;mem:1000", &tasks).is_ok(), "{number}");
        let resources = large.resources.clone();
        let task = Task::placed(known().id, &large, resources, TaskState::Running);
        tasks.insert(task, None);
    }
    large.task_id = TaskId::new("more").unwrap();
    let refused = check(&large, "cpus:8;mem:1000", &tasks).unwrap_err();
    assert_eq!(
        refused.message,
        "task is `995970 bytes`: expected at most 67108864 bytes in all active tasks and executors of the framework, which have 66729990 without it (the first 4096 of each do not count)"
    );
    assert!(check(&good(), "cpus:8;mem:1000", &tasks).is_ok());
    let mut with = good();
    let mut executor = own("./other");
    executor.executor_id = ExecutorId::new("other").unwrap();
    executor.data = vec![0; 1 << 20];
    (with.command, with.executor) = (None, Some(executor));
    let refused = check(&with, "cpus:8;mem:1000", &tasks).unwrap_err();
    assert!(refused.message.starts_with("task is `"), "{refused}");

    tasks.complete(&known().id, &TaskId::new("t0").unwrap());
    assert!(check(&large, "cpus:8;mem:1000", &tasks).is_ok());
}

/// A group of tasks `t` and `u` of default executor `d`, after these changes.
fn group(
    change: impl FnOnce(&mut ExecutorInfo, &mut [TaskInfo; 2]),
) -> (ExecutorInfo, [TaskInfo; 2]) {
    let id = ExecutorId::new("d").unwrap();
    let resources = "cpus:0.5;mem:32;disk:1".parse().unwrap();
    let mut executor = ExecutorInfo::default_kind(id, resources);
    let mut tasks = [good(), good()];
    tasks[1].task_id = TaskId::new("u").unwrap();
    change(&mut executor, &mut tasks);
    for task in &mut tasks {
        task.executor.get_or_insert(executor.clone());
    }
    (executor, tasks)
}

fn check_group(
    (executor, group): (ExecutorInfo, [TaskInfo; 2]),
    offered: &str,
    tasks: &Tasks,
) -> Result<Vec<Needs>, TaskInvalid> {
    let (framework, policy, role) = (known(), policy(), Role::STAR);
    let rules = TaskRules {
        framework: &framework,
        agent_id: &a(),
        role: &role,
        remaining: &offered.parse::<Resources>().unwrap().allocate(&role),
        tasks,
        policy: &policy,
    };
    rules.check_group(&executor, &group)
}

/// Mesos' own rules for groups, in its words; a task's problem names the task.
// Covers 2.2 ACCEPT.
#[test]
fn groups_are_refused_in_mesos_words() {
    type Change = fn(&mut ExecutorInfo, &mut [TaskInfo; 2]);
    let cases: [(Change, &str); 17] = [
        (
            |_, tasks| tasks[1].task_id = tasks[0].task_id.clone(),
            "Task 't' is invalid: Task has duplicate ID: t",
        ),
        (
            |_, tasks| tasks[1].task_id = TaskId::new("taken").unwrap(),
            "Task 'taken' is invalid: Task has duplicate ID: taken",
        ),
        (
            |_, tasks| tasks[1].resources = Resources::new(),
            "Task 'u' is invalid: Task uses no resources",
        ),
        (
            |_, tasks| tasks[1].command = None,
            "Task 'u' is invalid: task.command is `not set`: expected the command that the default executor runs",
        ),
        (
            |_, tasks| {
                let docker = Some(Default::default());
                tasks[0].container = Some(Box::new(ContainerInfo {
                    docker,
                    ..Default::default()
                }));
            },
            "Task 't' is invalid: Docker ContainerInfo is not supported on the task",
        ),
        (
            |_, tasks| tasks[0].limits.cpus = Some(Limit::Infinite),
            "Task 't' is invalid: Resource limits may only be set for tasks within a task group when the 'share_cgroups' field is set to 'false'.",
        ),
        (
            |executor, _| executor.kind = ExecutorKind::Custom,
            "executor.type is `CUSTOM`: expected DEFAULT: only the default executor runs task groups",
        ),
        (
            |executor, _| {
                let image = Some(Image {
                    name: "i".to_owned(),
                    is_cached: true,
                });
                executor.container = Some(Box::new(ContainerInfo {
                    image,
                    ..Default::default()
                }));
            },
            "'ExecutorInfo.container.mesos.image' must not be set for 'DEFAULT' executor",
        ),
        (
            |executor, _| executor.executor_id = ExecutorId::new("e").unwrap(),
            "ExecutorInfo is not compatible with existing ExecutorInfo with same ExecutorID: `e`",
        ),
        (
            |executor, tasks| {
                tasks[1].executor = Some(ExecutorInfo {
                    name: "x".to_owned(),
                    ..executor.clone()
                })
            },
            "The `ExecutorInfo` of task 'u' is different from executor 'd'",
        ),
        (
            |executor, _| executor.resources = Resources::new(),
            "Executor 'd' uses less CPUs (None) than the minimum required (0.01)",
        ),
        (
            |executor, _| executor.resources = "cpus:1;mem:31;disk:1".parse().unwrap(),
            "Executor 'd' uses less memory (31) than the minimum required (32MB)",
        ),
        (
            |executor, _| executor.resources = "cpus:1;mem:32".parse().unwrap(),
            "Executor 'd' uses no disk",
        ),
        (
            |_, tasks| tasks[0].resources = "cpus:9".parse().unwrap(),
            "Total resources cpus:10.5;mem:64;disk:1 required by task group and its executor are more than available cpus:4;mem:900;disk:9;ports:[1-2]",
        ),
        (
            |_, tasks| {
                for task in tasks {
                    task.resources = "ports:[1-1]".parse().unwrap()
                }
            },
            "There are overlapping resources in the task group's task resources ports:[1-1]; ports:[1-1] and/or executor resources cpus:0.5;mem:32;disk:1",
        ),
        (
            |executor, _| executor.container = sharing(true),
            "The 'share_cgroups' field cannot be set to 'true' on executor containers",
        ),
        (
            |_, tasks| tasks[0].container = sharing(false),
            "If set, the value of 'share_cgroups' must be the same for all tasks in each task group and under a single executor",
        ),
    ];
    for (change, words) in cases {
        let refused = check_group(
            group(change),
            "cpus:4;disk:9;mem:900;ports:[1-2]",
            &running(),
        );
        assert_eq!(refused.unwrap_err().message, words);
    }
}

fn sharing(shares: bool) -> Option<Box<ContainerInfo>> {
    let mut container = ContainerInfo::default();
    container.linux.shares_cgroups = Some(shares);
    Some(Box::new(container))
}

/// SPEC 2.8: a group needs its executor as well, but for one that is there already.
#[test]
fn group_needs_its_tasks_and_a_new_executor() {
    let mut tasks = running();
    let offered = "cpus:2.5;mem:96;disk:1";
    let needs = check_group(group(|_, _| ()), offered, &tasks).unwrap();
    let total = |needs: &Needs| needs.total.unallocate().to_string();
    let totals: Vec<String> = needs.iter().map(total).collect();
    assert_eq!(totals, ["cpus:1.5;mem:64;disk:1", "cpus:1;mem:32"]);

    let (mut executor, [mut first, _]) = group(|_, _| ());
    executor.resources = needs[0].executor.clone().unwrap().0;
    first.task_id = TaskId::new("first").unwrap();
    let placed = Task::placed(
        known().id,
        &first,
        needs[0].task.clone(),
        TaskState::Running,
    );
    tasks.insert(placed, Some(&executor));
    let needs = check_group(group(|_, _| ()), "cpus:2;mem:64", &tasks).unwrap();
    assert_eq!(
        needs.iter().map(total).collect::<Vec<_>>(),
        ["cpus:1;mem:32"; 2]
    );
    let other = group(|_, tasks| {
        for task in tasks {
            task.container = sharing(false)
        }
    });
    let refused = check_group(other, offered, &tasks).unwrap_err();
    assert_starts!(refused.message, "If set, the value of 'share_cgroups'");
}

#[test]
fn only_a_group_has_a_default_executor_or_own_cgroups() {
    let (executor, [mut task, _]) = group(|_, _| ());
    (task.command, task.executor) = (None, Some(executor));
    let refused = check(&task, "cpus:4;disk:9;mem:900", &running()).unwrap_err();
    assert_eq!(refused.message, "'ExecutorInfo.type' must be 'CUSTOM'");
    let mut task = good();
    task.container = sharing(false);
    let refused = check(&task, "cpus:4;disk:9;mem:900", &running()).unwrap_err();
    assert_eq!(
        refused.message,
        "Only tasks in a task group may have 'share_cgroups' set to 'false'"
    );
}

#[test]
fn several_roles_require_the_multi_role_capability() {
    let mut info = FrameworkInfo::new("nobody", "web");
    info.roles = BTreeSet::from(["a".to_owned(), "b/c".to_owned()]);
    let none = Wants::default();
    let refused = framework(&info, &none, &policy()).unwrap_err().to_string();
    assert_starts!(refused, "framework.roles is `a,b/c`");
    let nowhere = FrameworkInfo {
        roles: BTreeSet::new(),
        ..info.clone()
    };
    let refused = framework(&nowhere, &none, &policy())
        .unwrap_err()
        .to_string();
    assert!(refused.starts_with("framework.roles is ``"), "{refused}");
    for mut info in [info.clone(), nowhere] {
        info.capabilities.insert(Capability::MultiRole);
        assert_eq!(framework(&info, &none, &policy()), Ok(()));
    }
    info.capabilities.insert(Capability::MultiRole);
    let other = Wants::suppressing(BTreeSet::from(["z".to_owned()]));
    let problem = "Suppressed role 'z' is not contained in the list of roles".to_owned();
    let refused = framework(&info, &other, &policy());
    assert_eq!(refused, Err(FrameworkInvalid::Info(problem)));
}

/// W9: a shape that no offer could have is refused at once, not silently ignored.
#[test]
fn impossible_offer_shape_is_refused() {
    let info = FrameworkInfo::new("nobody", "web");
    let amounts = |text| resources::Quantities::parse(text).unwrap();
    let mut wants = Wants::default();
    let shape = protocol::Demand::shaped(amounts("cpus:2"), amounts("cpus:4"));
    wants.demands.insert("*".to_owned(), shape);
    assert_eq!(framework(&info, &wants, &policy()), Ok(()));
    let shape = protocol::Demand::shaped(amounts("cpus:2"), amounts("cpus:1"));
    wants.demands.insert("*".to_owned(), shape);
    let refused = framework(&info, &wants, &policy()).unwrap_err().to_string();
    let expected = "demands[*].least is";
    assert!(refused.starts_with(expected), "{refused}");
}

/// More roles are no way to more regular expressions, each of which takes memory in the master and
/// in its allocator.
#[test]
fn the_regular_expressions_of_all_roles_count_together() {
    let mut info = FrameworkInfo::new("nobody", "web");
    info.roles = ["a", "b"].map(str::to_owned).into();
    info.capabilities.insert(Capability::MultiRole);
    let wants = |in_each: usize| {
        let matches = |n| protocol::offers::wants::Constraint {
            selector: protocol::offers::wants::Selector::Hostname,
            predicate: protocol::offers::wants::Predicate::TextMatches(format!("node-{n}-[0-9]")),
        };
        let demand = protocol::Demand {
            agents: (0..in_each).map(|n| vec![matches(n)]).collect(),
            ..Default::default()
        };
        let mut wants = Wants::default();
        for role in &info.roles {
            wants.demands.insert(role.clone(), demand.clone());
        }
        wants
    };
    assert_eq!(framework(&info, &wants(50), &policy()), Ok(()));
    let refused = framework(&info, &wants(60), &policy()).unwrap_err();
    let expected = "demands is `120`: expected at most 100 regular expressions in all roles";
    assert_eq!(refused.to_string(), expected);
}

fn text() -> impl Strategy<Value = String> {
    prop_oneof![
        Just(String::new()),
        "\\PC{0,12}",
        prop::collection::vec(any::<char>(), 0..300).prop_map(|chars| chars.into_iter().collect()),
    ]
}

proptest! {
    // Covers W3 in part: panics in the runtime and bad input at the master.
    #[test]
    fn garbage_is_taken_or_refused_but_never_panics(
        texts in prop::collection::vec(text(), 8),
        shell in any::<bool>(),
        both in any::<bool>(),
        amount in 0.0..1e12_f64,
    ) {
        let mut info = FrameworkInfo::new(texts[0].clone(), texts[1].clone());
        info.roles = BTreeSet::from([texts[2].clone()]);
        let _ = framework(&info, &Wants::suppressing(BTreeSet::from([texts[3].clone()])), &policy());

        let resources: Resources = format!("cpus:{amount};mem:1").parse().unwrap_or_default();
        let about = AgentInfo::new(texts[4].clone(), resources.clone());
        let _ = agent(&about, &resources);

        let mut task = good();
        task.resources = resources;
        task.command = Some(CommandInfo {
            value: texts[5].clone(),
            shell,
            arguments: texts.clone(),
            environment: BTreeMap::from([(texts[6].clone(), texts[7].clone())]),
            user: Some(texts[0].clone()),
            uris: vec![protocol::Uri::new(texts[2].clone())],
        });
        task.executor = both.then(|| own(&texts[5]));
        if let Err(invalid) = check(&task, "cpus:8;mem:1000", &running()) {
            prop_assert!(invalid.to_string().chars().count() < 800, "{}", invalid);
        }
    }
}

/// The serial of the next operation is one more.
#[test]
fn impossible_serial_is_refused() {
    let total = Resources::parse("cpus:4").unwrap();
    let reported = |settled| protocol::AgentResources {
        version: protocol::Uuid([1; 16]),
        total: total.clone(),
        operations: Vec::new(),
        settled,
    };
    for (settled, fits) in [(None, true), (Some(7), true), (Some(u64::MAX), false)] {
        let held = held(&total, &reported(settled));
        assert_eq!(held.is_ok(), fits, "{settled:?}: {held:?}");
    }
}
