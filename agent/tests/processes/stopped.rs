//! Tasks that are stopped, or leave processes that have detached themselves, and are killed.

use super::*;

/// Whether a process is stopped.
fn is_stopped(pid: i32) -> bool {
    let line = std::fs::read_to_string(format!("/proc/{pid}/stat"));
    line.is_ok_and(|line| line.contains(") T "))
}

impl World {
    async fn is_stopped(&self, count: usize) {
        let stopped = || self.processes().into_iter().filter(|&pid| is_stopped(pid));
        eventually(&self.node, 20, "it is stopped", || {
            stopped().count() == count
        })
        .await;
    }
}

fn with_grace(id: &str, line: &str, grace: Duration) -> TaskInfo {
    TaskInfo {
        kill_policy: Some(KillPolicy {
            grace_period: grace,
        }),
        ..shell(id, line)
    }
}

// Covers 5.4 in part: kill policies.
#[test]
fn stopped_task_ends_in_its_grace_period() {
    world(|world| async move {
        let line = "trap 'echo asked; exit 0' TERM; kill -STOP $$; while :; do sleep 0.02; done";
        world
            .master
            .run(vec![with_grace("t", line, Duration::from_secs(60))]);
        world.is_stopped(1).await;
        world.master.kill("t");
        let status = world.ends("t").await;
        assert_eq!(
            (status.state, status.termination),
            (TaskState::Killed, Some(Termination::Exited(0)))
        );
        assert_eq!(world.file("t", "stdout").await, b"asked\n");
        assert_eq!(world.processes(), [0_i32; 0]);
    });
}

#[test]
fn task_that_stops_when_asked_to_end_is_killed() {
    world(|world| async move {
        let line =
            "trap 'echo asked; kill -STOP $$' TERM; echo ready; while :; do sleep 0.02; done";
        let grace = Duration::from_millis(300);
        world.master.run(vec![with_grace("t", line, grace)]);
        world.prints("t", "ready").await;
        world.master.kill("t");
        let status = world.ends("t").await;
        assert_eq!(
            (status.state, status.termination),
            (TaskState::Killed, Some(Termination::Signaled(9)))
        );
        assert_eq!(world.processes(), [0_i32; 0]);
    });
}

/// Two forks, a session of its own, no environment, and stopped: found as a descendant only.
#[test]
fn double_forked_process_ends_with_its_task() {
    const DAEMON: &str = "(env -i setsid sh -c 'kill -STOP $$; sleep 98761' < /dev/null \
        > /dev/null 2>&1 &); (env -i setsid sleep 98762 < /dev/null > /dev/null 2>&1 &)";
    let running = || {
        let is_daemon = |pid: &i32| {
            let line = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
            let line = String::from_utf8_lossy(&line).replace('\0', " ");
            line.starts_with("sh -c kill -STOP") || line.starts_with("sleep 98762")
        };
        let all = procfs::processes().unwrap();
        let ours = procfs::descendants(&all, &[std::process::id() as i32]);
        let alive = all.iter().filter(|one| !one.zombie).map(|one| one.pid);
        let found = alive.filter(|pid| ours.contains(pid) && is_daemon(pid));
        found.collect::<Vec<i32>>()
    };
    for is_killed in [true, false] {
        world(|world| async move {
            let line = match is_killed {
                true => format!("{DAEMON}; exec sleep 98763"),
                false => format!("{DAEMON}; until [ -e go ]; do sleep 0.02; done"),
            };
            let grace = Duration::from_millis(300);
            world.master.run(vec![with_grace("t", &line, grace)]);
            world.is("t", TaskState::Running).await;
            let are_up = || running().len() == 2 && running().into_iter().any(is_stopped);
            eventually(&world.node, 20, "both daemons", are_up).await;
            match is_killed {
                true => world.master.kill("t"),
                false => {
                    let go = only_sandbox(world.work_dir.path()).join("go");
                    std::fs::write(go, "").unwrap();
                }
            }
            let status = world.ends("t").await;
            let expected = match is_killed {
                true => TaskState::Killed,
                false => TaskState::Finished,
            };
            assert_eq!(status.state, expected);
            assert_eq!(running(), [0_i32; 0]);
        });
    }
}
