//! Nested containers of a real zygote: started by the init of their parent, ended with it.

use std::collections::BTreeMap;
use std::sync::mpsc::{Receiver, channel};

use meros_agent::launcher::ContainerEnd;
use module_api::isolator::LaunchPlan;

use super::*;

/// A zygote with its events.
struct Zygote {
    launcher: ZygoteLauncher,
    events: Receiver<LauncherEvent>,
    sandbox: tempfile::TempDir,
}

fn id(name: &str) -> ContainerId {
    ContainerId::new(name).unwrap()
}

fn with_zygote(story: impl AsyncFnOnce(Zygote)) {
    let runtime = tokio::runtime::Builder::new_current_thread();
    let runtime = { runtime }.enable_all().build().unwrap();
    tokio::task::LocalSet::new().block_on(&runtime, async {
        let work_dir = tempfile::tempdir().unwrap();
        let program = zygote_program();
        let mut launcher = ZygoteLauncher::start(&program, &[], work_dir.path(), PATIENCE).unwrap();
        let (sender, events) = channel();
        let sender = std::sync::Mutex::new(sender);
        launcher.attach(Arc::new(move |event| {
            let _ = sender.lock().unwrap().send(event);
        }));
        story(Zygote {
            launcher,
            events,
            sandbox: tempfile::tempdir().unwrap(),
        })
        .await;
    });
}

impl Zygote {
    fn request(&self, name: &str, program: ContainerProgram) -> LaunchRequest {
        let container_id = id(name);
        let mut sandbox = self.sandbox.path().to_owned();
        for inner in name.split('.').skip(1) {
            sandbox = sandbox.join("containers").join(inner);
        }
        std::fs::create_dir_all(&sandbox).unwrap();
        LaunchRequest {
            container_id,
            program,
            sandbox,
            environment: BTreeMap::new(),
            user: None,
            account: None,
            outlives: false,
            grace: Duration::from_secs(5),
            plan: LaunchPlan::default(),
            session: None,
            has_terminal: false,
        }
    }

    fn launch(&mut self, name: &str, line: &str) {
        let command = ContainerProgram::Command(CommandInfo::shell(line));
        let request = self.request(name, command);
        self.launcher.launch(request).unwrap();
    }

    fn group(&mut self, name: &str, plan: LaunchPlan) {
        let request = self.request(name, ContainerProgram::Group);
        let request = LaunchRequest { plan, ..request };
        self.launcher.launch(request).unwrap();
    }

    async fn event(&self) -> LauncherEvent {
        let clock = Clock::real();
        for _ in 0..2000 {
            match self.events.try_recv() {
                Ok(event) => return event,
                Err(_) => clock.sleep(Duration::from_millis(5)).await,
            }
        }
        panic!("no event")
    }

    async fn started(&self, name: &str) -> i32 {
        match self.event().await {
            LauncherEvent::Started { container_id, pid } if container_id == id(name) => pid,
            other => panic!("{name}: {other:?}"),
        }
    }

    async fn ended(&self) -> (String, ContainerEnd) {
        match self.event().await {
            LauncherEvent::Exited { container_id, end } => (container_id.to_string(), end),
            other => panic!("{other:?}"),
        }
    }

    fn output(&self, path: &str) -> String {
        std::fs::read_to_string(self.sandbox.path().join(path)).unwrap()
    }
}

fn exited(termination: Termination, kill_wanted: bool) -> ContainerEnd {
    ContainerEnd::Command {
        termination,
        kill_wanted,
    }
}

#[test]
fn nested_containers_run_and_end_one_by_one() {
    with_zygote(async |mut zygote| {
        zygote.group("p", LaunchPlan::default());
        let outer = zygote.started("p").await;
        zygote.launch("p.a", "pwd; echo err >&2; exit 3");
        let inner = zygote.started("p.a").await;
        assert_ne!(inner, outer);
        let end = zygote.ended().await;
        assert_eq!(end, ("p.a".into(), exited(Termination::Exited(3), false)));
        let directory = zygote.sandbox.path().join("containers/a");
        let directory = directory.canonicalize().unwrap();
        let directory = format!("{}\n", directory.display());
        assert_eq!(zygote.output("containers/a/stdout"), directory);
        assert_eq!(zygote.output("containers/a/stderr"), "err\n");

        // Asked to end, it gets SIGTERM and its time; the others go on.
        zygote.launch(
            "p.b",
            "trap 'exit 4' TERM; echo up; while :; do sleep 0.1; done",
        );
        zygote.started("p.b").await;
        zygote.launch("p.c", "exec sleep 1000");
        zygote.started("p.c").await;
        let at = zygote.sandbox.path().join("containers/b/stdout");
        bounded("p.b is up", || std::fs::read(&at).unwrap() == b"up\n");
        let grace = Duration::from_secs(20);
        zygote.launcher.terminate(&id("p.b"), grace);
        let end = zygote.ended().await;
        assert_eq!(end, ("p.b".into(), exited(Termination::Exited(4), true)));

        // The parent takes the rest along, the nested one first.
        zygote.launcher.kill(&id("p"));
        let end = zygote.ended().await;
        assert_eq!(end.0, "p.c");
        let end = zygote.ended().await;
        let own = ContainerEnd::Leader(Termination::Exited(0));
        assert_eq!(end, ("p".into(), own));
    });
}

#[test]
fn containers_nest_further_and_each_kill_reaches_its_own() {
    with_zygote(async |mut zygote| {
        zygote.group("p", LaunchPlan::default());
        zygote.started("p").await;
        zygote.launch("p.a", "exec sleep 1000");
        zygote.started("p.a").await;
        zygote.launch("p.a.x", "trap '' TERM; sleep 1000; sleep 1000");
        zygote.started("p.a.x").await;
        zygote.launcher.kill(&id("p.a.x"));
        let end = zygote.ended().await;
        assert_eq!(
            end,
            ("p.a.x".into(), exited(Termination::Signaled(9), true))
        );
        zygote.launcher.kill(&id("p.a"));
        let (name, end) = zygote.ended().await;
        let killed = exited(Termination::Signaled(9), true);
        assert_eq!((name.as_str(), end), ("p.a", killed));
    });
}

#[test]
fn killed_inits_leave_nothing() {
    with_zygote(async |mut zygote| {
        zygote.group("p", LaunchPlan::default());
        let outer = zygote.started("p").await;
        let kill = |pid| {
            nix::sys::signal::kill(nix::unistd::Pid::from_raw(pid), nix::sys::signal::SIGKILL)
        };
        zygote.launch("p.a", "sleep 1000 & echo $!; wait");
        let inner = zygote.started("p.a").await;
        let at = zygote.sandbox.path().join("containers/a/stdout");
        bounded("the child is up", || {
            std::fs::read(&at).unwrap().ends_with(b"\n")
        });
        let child: i32 = zygote.output("containers/a/stdout").trim().parse().unwrap();
        kill(inner).unwrap();
        let end = zygote.ended().await;
        let killed = ContainerEnd::Leader(Termination::Signaled(9));
        assert_eq!(end, ("p.a".into(), killed.clone()));
        let is_gone = |pid: i32| !Path::new(&format!("/proc/{pid}")).exists();
        bounded("the child of the killed one is gone", || is_gone(child));

        zygote.launch("p.b", "sleep 1000 & echo $!; wait");
        zygote.started("p.b").await;
        let at = zygote.sandbox.path().join("containers/b/stdout");
        bounded("the child is up", || {
            std::fs::read(&at).unwrap().ends_with(b"\n")
        });
        let child: i32 = zygote.output("containers/b/stdout").trim().parse().unwrap();
        kill(outer).unwrap();
        assert_eq!(zygote.ended().await, ("p.b".into(), killed.clone()));
        assert_eq!(zygote.ended().await, ("p".into(), killed));
        bounded("the child of the outer one is gone", || is_gone(child));

        // Without a parent nothing starts.
        zygote.launch("p.c", "true");
        let failed = zygote.event().await;
        let LauncherEvent::Failed { reason, .. } = failed else {
            panic!("{failed:?}")
        };
        assert_eq!(reason, "its parent has ended");
    });
}

/// The task may change its sandbox before the nested container is started.
#[test]
fn sandbox_of_a_nested_container_is_not_reached_through_links() {
    with_zygote(async |mut zygote| {
        zygote.group("p", LaunchPlan::default());
        zygote.started("p").await;
        let command = ContainerProgram::Command(CommandInfo::shell("echo here"));
        let request = zygote.request("p.a", command);
        let elsewhere = tempfile::tempdir().unwrap();
        std::fs::remove_dir(&request.sandbox).unwrap();
        std::os::unix::fs::symlink(elsewhere.path(), &request.sandbox).unwrap();
        zygote.launcher.launch(request).unwrap();
        let LauncherEvent::Failed { reason, .. } = zygote.event().await else {
            panic!("it was started")
        };
        assert!(reason.contains("open `"), "{reason}");
        assert_eq!(std::fs::read_dir(elsewhere.path()).unwrap().count(), 0);
    });
}

#[test]
fn nested_container_is_in_the_namespaces_of_its_parent_and_may_have_its_own() {
    if !is_root() {
        return;
    }
    with_zygote(async |mut zygote| {
        let own = Namespaces {
            pid: true,
            ipc: true,
            ..Namespaces::default()
        };
        let plan = LaunchPlan {
            namespaces: own,
            ..LaunchPlan::default()
        };
        zygote.group("p", plan.clone());
        zygote.started("p").await;
        let show = "readlink /proc/self/ns/ipc; readlink /proc/self/ns/pid; echo $$";
        zygote.launch("p.a", show);
        zygote.started("p.a").await;
        assert_eq!(zygote.ended().await.0, "p.a");
        let own = ContainerProgram::Command(CommandInfo::shell(show));
        let request = zygote.request("p.b", own);
        let request = LaunchRequest { plan, ..request };
        zygote.launcher.launch(request).unwrap();
        zygote.started("p.b").await;
        assert_eq!(zygote.ended().await.0, "p.b");
        let lines = |path: &str| -> Vec<String> {
            let text = zygote.output(path);
            text.lines().map(str::to_owned).collect()
        };
        let (shared, private) = (lines("containers/a/stdout"), lines("containers/b/stdout"));
        let ours = std::fs::read_link("/proc/self/ns/ipc").unwrap();
        assert_ne!(shared[0], ours.display().to_string());
        assert_ne!((&shared[0], &shared[1]), (&private[0], &private[1]));
        assert_eq!(private[2], "2", "the first process after its init");
    });
}
