//! Task groups with real processes: the agent is their executor.

use protocol::{ExecutorKind, FrameworkInfo};
use resources::Resources;

use super::*;

/// A task of the group that begins with `first`, under the executor `pod`.
fn member(first: &str, id: &str, line: &str) -> TaskInfo {
    let resources = Resources::parse("cpus:0.1;mem:32;disk:32").unwrap();
    let executor = ExecutorInfo::default_kind(ExecutorId::new("pod").unwrap(), resources);
    assert_eq!(executor.kind, ExecutorKind::Default);
    TaskInfo {
        group: Some(task_id(first)),
        ..shell(id, line).with_executor(executor)
    }
}

const FOREVER: &str = "exec sleep 1000";

impl World {
    /// The statuses of the executors that have ended.
    fn exits(&self) -> Vec<Option<Termination>> {
        let received = self.master.received.lock().unwrap();
        let exits = received.exited.iter();
        exits
            .filter(|exited| exited.executor_id.as_str() == "pod")
            .map(|exited| exited.termination)
            .collect()
    }

    async fn has_exits(&self, count: usize) {
        let have = || self.exits().len() == count;
        eventually(&self.node, 20, "the executor has ended", have).await;
    }

    async fn nothing_is_left(&self) {
        let gone = || self.processes().is_empty();
        eventually(&self.node, 20, "all processes are gone", gone).await;
    }
}

/// SPEC 5.4, 5.12.
#[test]
fn tasks_of_a_group_run_beside_each_other_until_the_last_ends() {
    world(|world| async move {
        world.master.run(vec![
            member("a", "a", "echo out; pwd; env | sort"),
            member("a", "b", "until [ -e stop ]; do sleep 0.05; done; exit 0"),
        ]);
        world.ends("a").await;
        let states = [TaskState::Starting, TaskState::Running, TaskState::Finished];
        assert_eq!(world.master.states("a"), states);
        world.is("b", TaskState::Running).await;
        assert_eq!(world.exits(), []);
        let status = world.master.last("a").unwrap().status;
        assert_eq!(status.executor_id.unwrap().as_str(), "pod");
        assert_eq!(status.message, "Command exited with status 0");
        let nested = status.container_id.unwrap();
        assert!(nested.parent().is_some(), "{nested}");

        let out = world.file("pod", "tasks/a/stdout").await;
        let path = format!("containers/{}/stdout", nested.name());
        assert_eq!(world.file("pod", &path).await, out);
        let out = String::from_utf8(out).unwrap();
        let mut lines = out.lines();
        assert_eq!(lines.next(), Some("out"));
        let sandbox = lines.next().unwrap();
        assert!(sandbox.ends_with(&format!("containers/{}", nested.name())));
        let names: Vec<&str> = lines
            .filter_map(|line| line.split_once('='))
            .map(|(name, _)| name)
            .collect();
        for name in ["MESOS_SANDBOX", "PATH", "HOME"] {
            assert!(names.contains(&name), "{names:?}");
        }
        let of_executors = |name: &&str| name.starts_with("MESOS_") || name.starts_with("MEROS_");
        let known: Vec<&str> = names.into_iter().filter(of_executors).collect();
        assert!(!known.contains(&"MESOS_TASK_ID"), "{known:?}");
        assert!(!known.contains(&"MESOS_EXECUTOR_ID"), "{known:?}");

        let status = world.master.last("b").unwrap().status;
        let other = status.container_id.unwrap();
        let outer = Path::new(sandbox).parent().unwrap();
        std::fs::write(outer.join(other.name()).join("stop"), "").unwrap();
        let status = world.ends("b").await;
        assert_eq!(status.state, TaskState::Finished);
        world.has_exits(1).await;
        assert_eq!(world.exits(), [Some(Termination::Exited(0))]);
        world.nothing_is_left().await;
    });
}

#[test]
fn failed_or_killed_task_takes_its_group_along_and_no_other() {
    world(|world| async move {
        world.master.run(vec![
            member("a", "a", FOREVER),
            member("a", "b", "trap 'exit 0' TERM; while :; do sleep 0.05; done"),
        ]);
        world.master.run(vec![
            member("c", "c", FOREVER),
            member("c", "d", "until [ -e stop ]; do sleep 0.05; done; exit 7"),
        ]);
        for task in ["a", "b", "c", "d"] {
            world.is(task, TaskState::Running).await;
        }
        world.master.kill("a");
        for (task, message) in [
            ("a", "Command terminated with signal Terminated"),
            ("b", "Command exited with status 0"),
        ] {
            let status = world.ends(task).await;
            assert_eq!(status.state, TaskState::Killed, "{task}");
            assert_eq!((status.message.as_str(), status.reason), (message, None));
        }
        assert!(!world.master.last("c").unwrap().status.state.is_terminal());
        assert_eq!(world.exits(), [], "the other group goes on");

        let status = world.master.last("d").unwrap().status;
        let nested = status.container_id.unwrap();
        let runs = only_sandbox(world.work_dir.path());
        std::fs::write(runs.join("containers").join(nested.name()).join("stop"), "").unwrap();
        let status = world.ends("d").await;
        assert_eq!(status.message, "Command exited with status 7");
        assert_eq!(status.state, TaskState::Failed);
        let status = world.ends("c").await;
        assert_eq!(status.state, TaskState::Killed);
        world.has_exits(1).await;
        world.nothing_is_left().await;
        // The id of the executor may be used again.
        world.master.run(vec![member("e", "e", "true")]);
        assert_eq!(world.ends("e").await.state, TaskState::Finished);
        world.has_exits(2).await;
    });
}

#[test]
fn end_of_the_container_ends_its_groups() {
    world(|world| async move {
        world.master.run(vec![
            member("a", "a", FOREVER),
            member("a", "b", "sleep 1000 & sleep 1000 & wait"),
        ]);
        world.is("a", TaskState::Running).await;
        world.is("b", TaskState::Running).await;
        // This test, its zygote, the init of the outer container, and those of the nested ones.
        let all = procfs::processes().unwrap();
        let parent = |pid: i32| all.iter().find(|one| one.pid == pid).unwrap().parent;
        let is_outer = |pid: i32| parent(parent(pid)) == std::process::id() as i32;
        let mut outer = world.processes()[0];
        while !is_outer(outer) {
            outer = parent(outer);
        }
        let pid = nix::unistd::Pid::from_raw(outer);
        nix::sys::signal::kill(pid, nix::sys::signal::SIGKILL).unwrap();
        for task in ["a", "b"] {
            let status = world.ends(task).await;
            assert_eq!(status.state, TaskState::Failed);
            assert_eq!(status.reason, Some(Reason::ExecutorTerminated));
            assert_eq!(status.message, "Executor terminated");
        }
        world.has_exits(1).await;
        assert_eq!(world.exits(), [Some(Termination::Signaled(9))]);
        world.nothing_is_left().await;
    });
}

#[test]
fn shutdown_of_the_executor_kills_its_tasks_with_their_grace() {
    world(|world| async move {
        world.master.run(vec![
            member("a", "a", FOREVER),
            member("a", "b", "trap 'exit 5' TERM; while :; do sleep 0.05; done"),
        ]);
        world.is("a", TaskState::Running).await;
        world.is("b", TaskState::Running).await;
        world.master.tell(EndExecutor {
            framework_id: framework_id(),
            executor_id: ExecutorId::new("pod").unwrap(),
        });
        assert_eq!(world.ends("a").await.state, TaskState::Killed);
        let status = world.ends("b").await;
        assert_eq!(status.state, TaskState::Killed);
        assert_eq!(status.message, "Command exited with status 5");
        world.has_exits(1).await;
        world.nothing_is_left().await;
    });
}

#[test]
fn task_that_cannot_start_fails_its_group() {
    world(|world| async move {
        let mut bad = member("a", "b", "");
        bad.command = Some(CommandInfo::program("/no/such/file", []));
        world.master.run(vec![member("a", "a", FOREVER), bad]);
        let status = world.ends("b").await;
        assert_eq!(status.state, TaskState::Failed);
        assert_eq!(world.ends("a").await.state, TaskState::Killed);
        world.has_exits(1).await;
        let unknown = FrameworkInfo {
            user: "no-such-user".to_owned(),
            ..framework()
        };
        world.master.tell(protocol::message::task::RunTasks {
            framework: unknown,
            tasks: vec![member("c", "c", FOREVER)],
        });
        let status = world.ends("c").await;
        assert!(status.message.contains("no-such-user"), "{status:?}");
        world.nothing_is_left().await;
    });
}

/// A socket of datagrams would hold ten requests.
#[test]
fn large_group_starts_at_once() {
    world(|world| async move {
        let names: Vec<String> = (0..40).map(|number| format!("t{number}")).collect();
        let tasks = names.iter().map(|name| member("t0", name, "exit 0"));
        world.master.run(tasks.collect());
        for name in &names {
            let status = world.ends(name).await;
            assert_eq!(status.state, TaskState::Finished, "{status:?}");
        }
        world.has_exits(1).await;
        world.nothing_is_left().await;
    });
}
