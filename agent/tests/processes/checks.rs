//! Checks, health checks and completion times of commands, with real processes and servers.

use std::io::{Read, Write};
use std::net::TcpListener;

use meros_agent::launcher::ProgramEnd;
use protocol::task::check::{CheckKind, CheckTiming, HttpCheck, NamedCheck, TcpCheck};
use protocol::task::{CheckInfo, HealthCheck};
use protocol::{StatusUpdate, TaskStatus, Uuid};
use v1::convert::{check_status, check_statuses};

use super::*;

/// No delay, short intervals, and a timeout that no test reaches unless it wants to.
const SHORT: CheckTiming = CheckTiming {
    delay: Duration::ZERO,
    interval: Duration::from_millis(20),
    timeout: Duration::from_secs(60),
};

fn health(kind: CheckKind, consecutive_failures: u32) -> HealthCheck {
    HealthCheck {
        kind,
        timing: SHORT,
        grace_period: Duration::ZERO,
        consecutive_failures,
    }
}

fn command(line: &str) -> CheckKind {
    CheckKind::Command(CommandInfo::shell(line))
}

fn with_health(task: TaskInfo, health_check: HealthCheck) -> TaskInfo {
    TaskInfo {
        health_check: Some(Box::new(health_check)),
        ..task
    }
}

fn with_check(task: TaskInfo, kind: CheckKind, timing: CheckTiming) -> TaskInfo {
    TaskInfo {
        check: Some(Box::new(CheckInfo { kind, timing })),
        ..task
    }
}

/// An HTTP server on a free port that answers each request like this, until its process ends.
fn server(answer: impl Fn(&str) -> String + Send + 'static) -> u32 {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            let mut request = [0; 4096];
            let length = stream.read(&mut request).unwrap_or_default();
            let request = String::from_utf8_lossy(&request[..length]).into_owned();
            let _ = stream.write_all(answer(&request).as_bytes()); // The client may be gone.
        }
    });
    port.into()
}

fn answer(status: u16, more: &str) -> String {
    format!("HTTP/1.1 {status} X\r\nContent-Length: 0\r\nConnection: close\r\n{more}\r\n")
}

impl World {
    /// The distinct statuses of a task, in order of arrival.
    fn statuses(&self, task: &str) -> Vec<TaskStatus> {
        let received = self.master.received.lock().unwrap();
        let mut seen = Vec::new();
        let mut statuses = Vec::new();
        for (_, StatusUpdate { status, .. }) in &received.updates {
            if status.task_id == task_id(task) && !seen.contains(&status.uuid) {
                seen.push(status.uuid);
                statuses.push(status.clone());
            }
        }
        statuses
    }

    /// State, health and check status of each, as `RUNNING healthy {"…"}`.
    fn told(&self, task: &str) -> Vec<String> {
        let told = |status: &TaskStatus| {
            let health = match status.healthy {
                None => "",
                Some(true) => " healthy",
                Some(false) => " unhealthy",
            };
            let check = check_status(&status.labels);
            let check = check.map(|check| {
                let json = v1::json::write(&check);
                format!(" {}", String::from_utf8_lossy(&json))
            });
            let state = status.state.name().trim_start_matches("TASK_");
            format!("{state}{health}{}", check.unwrap_or_default())
        };
        self.statuses(task).iter().map(told).collect()
    }

    async fn tells(&self, task: &str, last: &str) {
        let told = || self.told(task).last().is_some_and(|told| told == last);
        eventually(&self.node, 30, &format!("{task} is {last}"), told).await;
    }
}

/// The usage that modules get.
#[test]
fn check_states_the_value_of_an_objective() {
    world(|world| async move {
        let port = server(|_| answer(200, "Meros-Sla: 12.5\r\n"));
        let check = HttpCheck {
            port,
            ..HttpCheck::default()
        };
        let mut task = with_check(shell("t", "exec sleep 1000"), CheckKind::Http(check), SHORT);
        let label = ("meros.sla".to_owned(), "latency:50".to_owned());
        task.labels.extend([label]);
        world.master.run(vec![task]);
        world
            .tells("t", r#"RUNNING {"type":"HTTP","http":{"status_code":200}}"#)
            .await;
        let usage = world.agent.usage().await.unwrap();
        let objectives = &usage.executors[0].objectives;
        let values: Vec<f64> = objectives.iter().map(|one| one.value).collect();
        assert_eq!(values, [12.5]);
        world.master.kill("t");
        world.ends("t").await;
    });
}

#[test]
fn failed_check_misses_an_objective() {
    world(|world| async move {
        let port = server(|_| answer(500, ""));
        let check = HttpCheck {
            port,
            ..HttpCheck::default()
        };
        let mut task = with_check(shell("t", "exec sleep 1000"), CheckKind::Http(check), SHORT);
        let label = ("meros.sla".to_owned(), "latency:60000".to_owned());
        task.labels.extend([label]);
        world.master.run(vec![task]);
        world
            .tells("t", r#"RUNNING {"type":"HTTP","http":{"status_code":500}}"#)
            .await;
        let usage = world.agent.usage().await.unwrap();
        let objectives = &usage.executors[0].objectives;
        let values: Vec<f64> = objectives.iter().map(|one| one.value).collect();
        assert_eq!(values, [120_000.0], "its fast answer is no success");
        world.master.kill("t");
        world.ends("t").await;
    });
}

/// SPEC 5.4, 5.12.
#[test]
fn failing_health_check_kills_its_task() {
    world(|world| async move {
        // Healthy until the task has made its file.
        let line = "sleep 0.3; touch sick; exec sleep 1000";
        let task = shell("t", line);
        let check = health(command("test ! -e sick"), 2);
        world.master.run(vec![with_health(task, check)]);
        let end = world.ends("t").await;
        let expected = [
            "STARTING",
            "RUNNING",
            "RUNNING healthy",
            "RUNNING unhealthy",
            "RUNNING unhealthy",
            "KILLED unhealthy",
        ];
        assert_eq!(world.told("t"), expected);
        assert_eq!(end.reason, None);
        assert_eq!(end.message, "Command terminated with signal Terminated");
        let reason = Some(Reason::TaskHealthCheckStatusUpdated);
        assert_eq!(world.statuses("t")[2].reason, reason);
    });
}

/// SPEC 5.4: HTTP and TCP.
#[test]
fn network_checks_report_status_and_connection() {
    world(|world| async move {
        let answers = |request: &str| match request.split(' ').nth(1) {
            Some("/moved") => answer(302, "Location: /there\r\n"),
            Some("/away") => answer(307, "Location: http://192.0.2.1/\r\n"),
            Some("/there") => answer(204, ""),
            _ => answer(503, ""),
        };
        let port = server(answers);
        let http = |path: &str| {
            CheckKind::Http(HttpCheck {
                port,
                path: Some(path.to_owned()),
                ..HttpCheck::default()
            })
        };
        // No port of a socket, so nothing listens there.
        let closed = 0;
        let tcp = |port| {
            CheckKind::Tcp(TcpCheck {
                port,
                ..TcpCheck::default()
            })
        };
        let checked = |id: &str, kind| with_check(shell(id, "exec sleep 1000"), kind, SHORT);
        world.master.run(vec![
            checked("moved", http("/moved")),
            checked("away", http("/away")),
            checked("busy", http("/")),
            checked("open", tcp(port)),
            checked("closed", tcp(closed)),
            with_health(shell("well", "exec sleep 1000"), health(http("/there"), 1)),
            with_health(shell("ill", "exec sleep 1000"), health(http("/"), 1)),
        ]);
        for (task, last) in [
            (
                "moved",
                r#"RUNNING {"type":"HTTP","http":{"status_code":204}}"#,
            ),
            (
                "away",
                r#"RUNNING {"type":"HTTP","http":{"status_code":307}}"#,
            ),
            (
                "busy",
                r#"RUNNING {"type":"HTTP","http":{"status_code":503}}"#,
            ),
            ("open", r#"RUNNING {"type":"TCP","tcp":{"succeeded":true}}"#),
            (
                "closed",
                r#"RUNNING {"type":"TCP","tcp":{"succeeded":false}}"#,
            ),
            ("well", "RUNNING healthy"),
            ("ill", "KILLED unhealthy"),
        ] {
            world.tells(task, last).await;
        }
        let first = &world.told("moved")[..2];
        let empty = r#"{"type":"HTTP","http":{}}"#;
        assert_eq!(first[0], format!("STARTING {empty}"));
        assert_eq!(first[1], format!("RUNNING {empty}"));
        world.master.kill("moved");
        world.ends("moved").await;
        assert_eq!(
            world.told("moved").last().unwrap(),
            &format!("KILLED {empty}")
        );
    });
}

/// The agent runs them side by side, with the single check: each has its own last result.
#[test]
fn named_checks_have_statuses_of_their_own() {
    world(|world| async move {
        let port = server(|_| answer(204, ""));
        let tcp = |port| {
            CheckKind::Tcp(TcpCheck {
                port,
                ..TcpCheck::default()
            })
        };
        let http = CheckKind::Http(HttpCheck {
            port,
            ..HttpCheck::default()
        });
        let named = |name: &str, kind| NamedCheck {
            name: name.to_owned(),
            check: CheckInfo {
                kind,
                timing: SHORT,
            },
        };
        let task = shell("t", "exec sleep 1000");
        let task = with_check(task, command("exit 3"), SHORT);
        let checks = vec![
            named("web", http),
            named("open", tcp(port)),
            // No port of a socket, so nothing listens there.
            named("closed", tcp(0)),
            named("file", command("exit 4")),
        ];
        world.master.run(vec![TaskInfo { checks, ..task }]);
        let named = |status: &TaskStatus| {
            let named = check_statuses(&status.labels).into_iter();
            let text = |one: v1::schema::NamedCheckStatus| {
                let json = v1::json::write(&one.status);
                format!("{} {}", one.name, String::from_utf8_lossy(&json))
            };
            named.map(text).collect::<Vec<_>>()
        };
        let expected = [
            r#"web {"type":"HTTP","http":{"status_code":204}}"#,
            r#"open {"type":"TCP","tcp":{"succeeded":true}}"#,
            r#"closed {"type":"TCP","tcp":{"succeeded":false}}"#,
            r#"file {"type":"COMMAND","command":{"exit_code":4}}"#,
        ];
        let single = r#"RUNNING {"type":"COMMAND","command":{"exit_code":3}}"#;
        eventually(&world.node, 30, "all have a result", || {
            let told = world.told("t");
            let last = world.statuses("t").last().map(named);
            told.last().is_some_and(|told| told == single)
                && last.is_some_and(|last| last == expected)
        })
        .await;
        let statuses = world.statuses("t");
        let empty = [
            r#"web {"type":"HTTP","http":{}}"#,
            r#"open {"type":"TCP","tcp":{}}"#,
            r#"closed {"type":"TCP","tcp":{}}"#,
            r#"file {"type":"COMMAND","command":{}}"#,
        ];
        assert_eq!(named(&statuses[1]), empty);
        assert_eq!(statuses.len(), 2 + 5, "only changes");
        let v1 = v1::schema::TaskStatus::from(&statuses[6]);
        assert_eq!(v1.check_statuses.len(), 4);
    });
}

/// SPEC 5.4: within the container, as its user, with its environment and its sandbox.
#[test]
fn command_check_runs_beside_its_task() {
    world(|world| async move {
        let own = CommandInfo {
            environment: [("OWN".to_owned(), "1".to_owned())].into(),
            ..CommandInfo::shell("exec sleep 1000")
        };
        let check = CommandInfo {
            environment: [("MORE".to_owned(), "2".to_owned())].into(),
            ..CommandInfo::shell("echo \"$OWN$MORE $MESOS_TASK_ID $PWD\"; exit 7")
        };
        let check = CheckKind::Command(check);
        world
            .master
            .run(vec![with_check(task("t", own), check, SHORT)]);
        world
            .tells(
                "t",
                r#"RUNNING {"type":"COMMAND","command":{"exit_code":7}}"#,
            )
            .await;
        let error = String::from_utf8(world.file("t", "stderr").await).unwrap();
        let line = error.lines().next().unwrap();
        assert!(line.starts_with("12 t /"), "{error}");
        assert!(line.contains("/executors/t/runs/"), "{error}");
        assert!(world.file("t", "stdout").await.is_empty());
        assert_eq!(world.told("t").len(), 3, "only changes");
    });
}

/// SPEC 5.12: no result after a timeout; nothing of the check is left.
#[test]
fn hanging_check_is_killed_with_its_processes() {
    world(|world| async move {
        let timing = CheckTiming {
            timeout: Duration::from_millis(100),
            interval: Duration::from_secs(1000),
            ..SHORT
        };
        let hangs = "trap '' TERM; touch began; setsid sleep 1001 & sleep 1002";
        let hangs = with_health(
            shell("t", "exec sleep 1000"),
            HealthCheck {
                timing,
                ..health(command(hangs), 2)
            },
        );
        let forks = "sleep 1003 & exit 3";
        let forks = with_check(
            shell("u", "exec sleep 1000"),
            command(forks),
            CheckTiming {
                timeout: SHORT.timeout,
                ..timing
            },
        );
        world.master.run(vec![hangs, forks]);
        world.tells("t", "RUNNING unhealthy").await;
        let result = r#"RUNNING {"type":"COMMAND","command":{"exit_code":3}}"#;
        world.tells("u", result).await;
        eventually(&world.node, 10, "only the tasks are left", || {
            world.processes().len() == 2
        })
        .await;
    });
}

/// A flood of output and a kill in the middle of a check do not hold a task's end.
#[test]
fn kill_ends_running_checks() {
    world(|world| async move {
        let check = health(command("trap '' TERM; touch began; exec yes"), 1);
        let task = with_health(shell("t", "exec sleep 1000"), check);
        world.master.run(vec![task]);
        world.is("t", TaskState::Running).await;
        eventually(&world.node, 10, "the check runs", || {
            world.processes().len() == 2
        })
        .await;
        world.master.kill("t");
        let end = world.ends("t").await;
        let message = "Command terminated with signal Terminated";
        assert_eq!(
            (end.state, end.message.as_str()),
            (TaskState::Killed, message)
        );
        assert_eq!(world.told("t"), ["STARTING", "RUNNING", "KILLED"]);
        assert_eq!(world.processes(), [0; 0]);
    });
}

/// SPEC 5.4, 5.12.
#[test]
fn task_is_killed_at_its_maximum_completion_time() {
    world(|world| async move {
        let limited = |id: &str, line: &str, millis| TaskInfo {
            max_completion_time: Some(Duration::from_millis(millis)),
            ..shell(id, line)
        };
        world.master.run(vec![
            limited("t", "exec sleep 1000", 100),
            limited("none", "sleep 0.3", 0),
        ]);
        let end = world.ends("t").await;
        let reason = Some(Reason::MaxCompletionTimeReached);
        assert_eq!((end.state, end.reason), (TaskState::Failed, reason));
        assert!(end.message.starts_with("Command terminated with signal"));
        assert_eq!(world.ends("none").await.state, TaskState::Finished);
    });
}

/// In the namespaces of the container, where a timeout also finds processes that left the group.
#[test]
fn command_check_runs_in_the_containers_namespaces() {
    if !is_root() {
        println!("skipped: namespaces need root");
        return;
    }
    let plan = LaunchPlan {
        namespaces: Namespaces {
            pid: true,
            ipc: true,
            ..Namespaces::default()
        },
        ..LaunchPlan::default()
    };
    with_plan(plan, |world| async move {
        let sees = "test $(readlink /proc/self/ns/pid) = $(readlink /proc/1/ns/pid) && exit 5";
        let hangs = CheckTiming {
            timeout: Duration::from_millis(100),
            ..SHORT
        };
        let checked = with_check(shell("t", "exec sleep 1000"), command(sees), SHORT);
        let hanging = with_health(
            shell("u", "exec sleep 1000"),
            HealthCheck {
                timing: hangs,
                ..health(command("setsid sleep 1004 & sleep 1005"), 1)
            },
        );
        world.master.run(vec![checked, hanging]);
        let result = r#"RUNNING {"type":"COMMAND","command":{"exit_code":5}}"#;
        world.tells("t", result).await;
        world.tells("u", "KILLED unhealthy").await;
        world.master.kill("t");
        world.ends("t").await;
        assert_eq!(world.processes(), [0; 0]);
    });
}

/// No agent would bound their time.
#[test]
fn further_programs_end_with_their_agent() {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    let work_dir = tempfile::tempdir().unwrap();
    let start = || ZygoteLauncher::start(&zygote_program(), &[], work_dir.path(), PATIENCE);
    let id = ContainerId::new("c").unwrap();
    let sandbox = work_dir.path().to_owned();
    let variable = ("MESOS_SANDBOX".to_owned(), sandbox.display().to_string());
    let request = LaunchRequest {
        container_id: id.clone(),
        program: ContainerProgram::Command(CommandInfo::shell("exec sleep 1000")),
        sandbox,
        environment: [variable].into(),
        user: None,
        account: None,
        outlives: true,
        grace: Duration::from_secs(1),
        plan: LaunchPlan::default(),
        session: None,
        has_terminal: false,
    };
    tokio::task::LocalSet::new().block_on(&runtime, async {
        let (sender, mut events) = tokio::sync::mpsc::unbounded_channel();
        let mut launcher = start().unwrap();
        launcher.attach(Arc::new(move |event| drop(sender.send(event))));
        let mut next = async || {
            let patience = Duration::from_secs(20);
            let event = Clock::real().timeout(patience, events.recv()).await;
            event.unwrap().unwrap()
        };
        launcher.launch(request).unwrap();
        assert!(matches!(next().await, LauncherEvent::Started { .. }));
        let (missing, quick, hangs) = (Uuid([1; 16]), Uuid([2; 16]), Uuid([3; 16]));
        launcher.run_program(&id, missing, CommandInfo::program("/no/such/file", []));
        launcher.run_program(&id, hangs, CommandInfo::shell("trap '' TERM; sleep 1001"));
        launcher.run_program(&id, quick, CommandInfo::shell("kill -9 $$"));
        for expected in [missing, quick] {
            let event = next().await;
            let LauncherEvent::ProgramEnded { program, end, .. } = event else {
                panic!("{event:?}")
            };
            assert_eq!(program, expected);
            match end {
                ProgramEnd::NotStarted(reason) => assert!(reason.contains("No such file")),
                end => assert_eq!(end, ProgramEnd::Ended(Termination::Signaled(9))),
            }
        }
        let foreign = ContainerId::new("d").unwrap();
        launcher.run_program(&foreign, quick, CommandInfo::shell("true"));
        let refused = matches!(
            next().await,
            LauncherEvent::ProgramEnded {
                end: ProgramEnd::NotStarted(_),
                ..
            }
        );
        assert!(refused);
    });
    drop(runtime);
    bounded("only the command is left", || {
        processes_of(work_dir.path()).len() == 1
    });
    assert_eq!(start().unwrap().left().len(), 1);
}
