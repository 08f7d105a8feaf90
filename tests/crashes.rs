//! Crashes of an agent, its zygote and container inits at each step of a container's life, on a
//! real agent with images, networks and control groups (SPEC 5.3, 5.5).
//!
//! A plugin of the test, a server that does not answer and a frozen control group hold a container
//! at a step until the process is killed. Needs root and control groups; skipped elsewhere.

use std::collections::BTreeSet;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use agent::host::procfs;
use protocol::task::container::{ContainerInfo, Image};
use protocol::task::network::NetworkInfo;
use protocol::task::uri::Uri;
use protocol::{
    CommandInfo, ExecutorId, ExecutorInfo, Filters, KillPolicy, Operation, TaskId, TaskInfo,
    TaskState, TaskStatus,
};
use resources::{Resources, Role};
use serde_json::json;
use v1::Form;

use crate::http_executor::{HttpExecutor, SLEEPER, acknowledged, executor, for_executor};
use crate::images::{host, save_image};
use crate::isolation::Isolated;
use crate::scripted_framework::{Callback, task};
use crate::support::{Running, eventually, signal};

/// A command that is stopped by SIGKILL only, and prints each of its signals.
const STUBBORN: &str = "trap 'echo asked' TERM; echo started; while :; do sleep 0.02; done";

/// A step at which a container is held.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    /// A plugin adds its network.
    Attaching,
    /// Its file is being fetched.
    Fetching,
    /// Its init has joined a frozen group, before it starts the command.
    Isolating,
    Running,
    /// It has had SIGTERM, and its grace period goes on.
    Ending,
    /// It has ended, and a plugin deletes its network.
    Detaching,
}

const STEPS: [Step; 6] = [
    Step::Attaching,
    Step::Fetching,
    Step::Isolating,
    Step::Running,
    Step::Ending,
    Step::Detaching,
];

/// The processes that are killed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Victim {
    Agent,
    Zygote,
    AgentAndZygote,
    Init,
}

/// The state in which the task ends; `None` if it goes on.
fn expected(step: Step, victim: Victim) -> Option<TaskState> {
    match (step, victim) {
        (Step::Detaching, _) => Some(TaskState::Finished),
        // It is not launched by another agent process.
        (Step::Attaching | Step::Fetching, Victim::Agent | Victim::AgentAndZygote) => {
            Some(TaskState::Failed)
        }
        // It is launched by the next zygote.
        (Step::Attaching | Step::Fetching, _) => None,
        (Step::Isolating | Step::Running, Victim::Agent) => None,
        (Step::Ending, Victim::Agent | Victim::Init) => Some(TaskState::Killed),
        (Step::Isolating | Step::Running | Step::Ending, _) => Some(TaskState::Failed),
    }
}

/// An agent whose containers can be held.
struct Fixture {
    isolated: Isolated,
    /// The plugin, and the files that hold it.
    plugins: tempfile::TempDir,
    _registry: tempfile::TempDir,
    server: TcpListener,
    /// The connection of a fetcher.
    fetcher: Option<TcpStream>,
    /// The control groups of containers in the unified tree, if there is one.
    groups: Option<PathBuf>,
}

impl Fixture {
    fn begin(name: &str) -> Option<Self> {
        Self::with_registry(name, None)
    }

    /// With this registry instead of a local one.
    fn with_registry(name: &str, url: Option<&str>) -> Option<Self> {
        let plugins = tempfile::tempdir().expect("a directory");
        let registry = tempfile::tempdir().expect("a directory");
        let groups = Isolated::unified_group(name);
        write_plugin(plugins.path(), groups.as_deref());
        let open = std::fs::Permissions::from_mode(0o755);
        std::fs::set_permissions(registry.path(), open).expect("a mode");
        save_image(registry.path(), "own");
        let path = plugins.path().display();
        let local = registry.path().display().to_string();
        let flags = [
            format!("--network_cni_plugins_dir={path}"),
            format!("--network_cni_config_dir={path}/config"),
            "--image_providers=DOCKER".to_owned(),
            format!("--docker_registry={}", url.unwrap_or(&local)),
            "--executor_reregistration_timeout=15secs".to_owned(),
        ];
        let flags: Vec<&str> = flags.iter().map(String::as_str).collect();
        let isolated = Isolated::begin(name, "filesystem/linux,network/cni", &flags)?;
        let server = TcpListener::bind("127.0.0.1:0").expect("a port");
        server.set_nonblocking(true).expect("a socket");
        Some(Self {
            isolated,
            plugins,
            _registry: registry,
            server,
            fetcher: None,
            groups,
        })
    }

    fn work_dir(&self) -> PathBuf {
        self.isolated.cluster.directory().join("agent")
    }

    fn hold(&self, what: &str) {
        std::fs::write(self.plugins.path().join(what), "").expect("a file");
    }

    /// Lets all go on.
    fn release(&mut self) {
        for what in ["hold-ADD", "hold-DEL", "freeze"] {
            let _ = std::fs::remove_file(self.plugins.path().join(what)); // Perhaps not there.
        }
        let groups = self.groups.iter();
        for group in groups.flat_map(|path| entries(path)) {
            // It may be gone already.
            let _ = std::fs::write(group.join("cgroup.freeze"), "0");
        }
        if let Some(mut fetcher) = self.fetcher.take() {
            // The fetcher may be gone already.
            let _ = fetcher.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok");
        }
    }

    /// The calls of the plugin: `ADD` or `DEL`, and the container.
    fn calls(&self, command: &str) -> Vec<String> {
        let calls = std::fs::read_to_string(self.plugins.path().join("calls"));
        let calls = calls.unwrap_or_default();
        let calls = calls.lines().filter_map(|line| line.strip_prefix(command));
        calls.map(|id| id.trim().to_owned()).collect()
    }

    fn port(&self) -> u16 {
        self.server.local_addr().expect("an address").port()
    }

    /// Launches tasks in containers that can be held.
    fn launch(&mut self, names: &[&str], line: &str, change: impl Fn(&mut TaskInfo)) {
        let container = ContainerInfo {
            image: Some(Image {
                name: "own".into(),
                is_cached: true,
            }),
            networks: vec![NetworkInfo {
                name: "held".into(),
                ..NetworkInfo::default()
            }],
            ..ContainerInfo::default()
        };
        self.launch_plain(names, line, |info| {
            info.container = Some(Box::new(container.clone()));
            change(info);
        });
    }

    fn launch_plain(&mut self, names: &[&str], line: &str, change: impl Fn(&mut TaskInfo)) {
        let offer = self.isolated.framework.standing_offer();
        let tasks = names.iter().map(|name| {
            let mut info = task(name, &offer, "cpus:0.1;mem:32", line);
            info.kill_policy = Some(KillPolicy {
                grace_period: Duration::from_millis(500),
            });
            change(&mut info);
            info
        });
        self.isolated.framework.launch(&offer, tasks.collect());
    }

    /// Runs plain tasks until one ends regularly: earlier ones may have offers of a time before a
    /// crash.
    fn works(&mut self, name: &str) {
        for attempt in 0.. {
            let name = format!("{name}-{attempt}");
            self.launch_plain(&[&name], "true", |_| ());
            let ended = self.end(&name);
            match ended.state {
                TaskState::Finished => return,
                TaskState::Lost if attempt < 100 => {}
                _ => panic!("{ended:?}"),
            }
        }
    }

    /// The terminal status of a task.
    fn end(&mut self, name: &str) -> TaskStatus {
        let is_end = |callback: &Callback| match callback {
            Callback::Status(status) if status.task_id.as_str() == name => {
                status.state.is_terminal().then(|| (**status).clone())
            }
            _ => None,
        };
        let framework = &mut self.isolated.framework;
        let past = framework.past.iter();
        let known = past.into_iter().find_map(|(_, callback)| is_end(callback));
        known.unwrap_or_else(|| framework.wait_for("the end of a task", is_end))
    }

    /// Launches a task and waits until it is held at this step.
    fn reach(&mut self, step: Step, name: &str) {
        let (added, deleted) = (self.calls("ADD").len(), self.calls("DEL").len());
        let url = format!("http://127.0.0.1:{}/file", self.port());
        match step {
            Step::Attaching => self.hold("hold-ADD"),
            Step::Isolating => self.hold("freeze"),
            Step::Detaching => self.hold("hold-DEL"),
            Step::Fetching | Step::Running | Step::Ending => {}
        }
        let line = match step {
            Step::Detaching => "echo started",
            _ => STUBBORN,
        };
        self.launch(&[name], line, |info| {
            let command = info.command.as_mut().expect("a command");
            if step == Step::Fetching {
                command.uris = vec![Uri::new(&url)];
            }
        });
        match step {
            Step::Attaching => eventually("the addition", || {
                (self.calls("ADD").len() > added).then_some(())
            }),
            Step::Fetching => {
                let asked = eventually("the fetcher", || self.server.accept().ok());
                asked.0.set_nonblocking(false).expect("a socket");
                self.fetcher = Some(asked.0);
            }
            Step::Isolating => eventually("the init in its group", || {
                let frozen = self.groups.iter().flat_map(|path| entries(path));
                let mut frozen = frozen.filter(|group| {
                    let events = std::fs::read_to_string(group.join("cgroup.events"));
                    events.is_ok_and(|events| events.contains("frozen 1"))
                });
                frozen
                    .any(|group| {
                        let members = std::fs::read_to_string(group.join("cgroup.procs"));
                        members.is_ok_and(|members| !members.is_empty())
                    })
                    .then_some(())
            }),
            Step::Running | Step::Ending => {
                self.isolated.framework.state(name, TaskState::Running);
                eventually("its output", || {
                    self.outputs(name).contains("started").then_some(())
                });
                if step == Step::Ending {
                    self.kill(name);
                    eventually("the signal", || {
                        self.outputs(name).contains("asked").then_some(())
                    });
                }
            }
            Step::Detaching => {
                self.isolated.framework.state(name, TaskState::Finished);
                eventually("the deletion", || {
                    (self.calls("DEL").len() > deleted).then_some(())
                });
            }
        }
    }

    fn kill(&self, name: &str) {
        let id = TaskId::new(name).expect("an id");
        self.isolated.framework.kill(id);
    }

    /// What all containers of a task have printed.
    fn outputs(&self, name: &str) -> String {
        let mut directory = self.work_dir().join("slaves");
        for below in ["frameworks", "executors"] {
            let inside = entries(&directory).into_iter().next().unwrap_or_default();
            directory = inside.join(below);
        }
        let runs = entries(&directory.join(name).join("runs")).into_iter();
        let runs = runs.filter(|run| !run.is_symlink());
        let outputs = runs.filter_map(|run| std::fs::read_to_string(run.join("stdout")).ok());
        outputs.collect()
    }

    /// The process that forks container inits.
    fn zygote(&self) -> u32 {
        let lock = self.work_dir().join("launcher.lock");
        let holds_lock = |pid: &i32| {
            entries(Path::new(&format!("/proc/{pid}/fd")))
                .iter()
                .any(|fd| std::fs::read_link(fd).is_ok_and(|open| open == lock))
        };
        let processes = procfs::processes().expect("/proc can be read");
        let mut ids = processes.iter().map(|process| process.pid);
        ids.find(holds_lock).expect("a zygote").cast_unsigned()
    }

    /// The only container init.
    fn init(&self) -> u32 {
        let zygote = self.zygote().cast_signed();
        let processes = procfs::processes().expect("/proc can be read");
        let mut inits = processes.iter().filter(|one| one.parent == zygote);
        inits.next().expect("an init").pid.cast_unsigned()
    }

    /// Kills, and starts the agent again if it was killed.
    fn crash(&mut self, victim: Victim) {
        match victim {
            Victim::Zygote => {
                signal(self.zygote(), "KILL");
                let count = self.isolated.framework.past.len();
                self.works(&format!("again-{count}"));
            }
            Victim::Init => signal(self.init(), "KILL"),
            Victim::Agent | Victim::AgentAndZygote => {
                let zygote = self.zygote();
                self.isolated.agent.signal("KILL");
                self.isolated.agent.wait();
                if victim == Victim::AgentAndZygote {
                    signal(zygote, "KILL");
                }
                if let Some(mut fetcher) = self.fetcher.take() {
                    // It ends with its agent.
                    let _ = fetcher.read_to_end(&mut Vec::new());
                }
                self.isolated.agent = Running::start(&mut self.isolated.command);
                self.isolated.until_registered();
            }
        }
    }

    /// Whatever is left of containers.
    fn left(&self) -> Vec<String> {
        let work_dir = self.work_dir();
        let mut left: Vec<String> = ["networks", "provisioner"]
            .iter()
            .flat_map(|name| entries(&work_dir.join(name)))
            .map(|path| path.display().to_string())
            .collect();
        let mounts = std::fs::read_to_string("/proc/self/mountinfo").expect("it can be read");
        let own = mounts.lines();
        left.extend(
            own.filter(|line| line.contains(&*work_dir.to_string_lossy()))
                .map(str::to_owned),
        );
        let sandboxes = work_dir.join("slaves");
        for process in procfs::processes().expect("/proc can be read") {
            let pid = process.pid;
            let sandbox = procfs::variable(pid, "MESOS_SANDBOX").map(PathBuf::from);
            let at = std::fs::read_link(format!("/proc/{pid}/cwd")).ok();
            let is_inside =
                |path: Option<PathBuf>| path.is_some_and(|at| at.starts_with(&sandboxes));
            if is_inside(sandbox) || is_inside(at) {
                left.push(format!("process {pid}"));
            }
        }
        left.extend(
            self.isolated
                .left()
                .iter()
                .map(|path| path.display().to_string()),
        );
        let deleted: BTreeSet<String> = self.calls("DEL").into_iter().collect();
        let added = self.calls("ADD").into_iter();
        left.extend(added.filter(|id| !deleted.contains(id)));
        left
    }

    fn leaves_nothing(&self) {
        let mut left = Vec::new();
        let gone = crate::support::within(Duration::from_secs(40), || {
            left = self.left();
            left.is_empty().then_some(())
        });
        assert!(gone.is_some(), "left: {left:#?}");
    }

    /// Whether this task has had each state at most once, and ended last and once.
    fn check_states(&self, name: &str) {
        let states = self.isolated.framework.states(name);
        let distinct: BTreeSet<String> = states.iter().map(ToString::to_string).collect();
        assert_eq!(distinct.len(), states.len(), "{name}: {states:?}");
        let ends = states.iter().filter(|state| state.is_terminal());
        let last = states.last().is_some_and(|last| last.is_terminal());
        assert!(ends.count() == 1 && last, "{name}: {states:?}");
    }

    /// A crash of `victim` while a container is held at `step`.
    fn crash_at(&mut self, step: Step, victim: Victim) {
        if step == Step::Isolating && self.groups.is_none() {
            return;
        }
        let name = format!("{step:?}-{victim:?}");
        self.reach(step, &name);
        self.crash(victim);
        if step == Step::Isolating {
            self.works(&format!("beside-{name}"));
            let states = self.isolated.framework.states(&name);
            assert!(!states.contains(&TaskState::Running), "it has not started");
        }
        self.release();
        let starts = match expected(step, victim) {
            Some(end) => {
                self.isolated.framework.state(&name, end);
                usize::from(matches!(
                    step,
                    Step::Running | Step::Ending | Step::Detaching
                ))
            }
            None => {
                self.isolated.framework.state(&name, TaskState::Running);
                eventually("its output", || {
                    self.outputs(&name).contains("started").then_some(())
                });
                self.kill(&name);
                self.isolated.framework.state(&name, TaskState::Killed);
                1
            }
        };
        self.works(&format!("after-{name}"));
        self.check_states(&name);
        let output = self.outputs(&name);
        let found = output.lines().filter(|line| *line == "started").count();
        assert_eq!(found, starts, "{name}: {output}");
        self.leaves_nothing();
    }
}

/// The paths in a directory; none if there is none.
fn entries(directory: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(directory).into_iter().flatten().flatten();
    entries.map(|entry| entry.path()).collect()
}

/// A plugin that notes its calls, waits while there is a file `hold-ADD` or `hold-DEL`, and freezes
/// the container's group if there is a file `freeze`.
fn write_plugin(directory: &Path, groups: Option<&Path>) {
    let groups = groups.map_or_else(String::new, |path| path.display().to_string());
    let script = format!(
        "#!/bin/sh\ncd {}\ncat > /dev/null\necho \"$CNI_COMMAND $CNI_CONTAINERID\" >> calls\n\
         [ $CNI_COMMAND = ADD ] && [ -e freeze ] && \
         echo 1 > {groups}/$CNI_CONTAINERID/cgroup.freeze\n\
         while [ -e hold-$CNI_COMMAND ]; do sleep 0.02; done\n\
         [ $CNI_COMMAND = ADD ] && echo '{{\"cniVersion\": \"0.4.0\", \"ips\": []}}'\nexit 0\n",
        directory.display()
    );
    let path = directory.join("hold");
    std::fs::write(&path, script).expect("a file");
    let executable = std::fs::Permissions::from_mode(0o755);
    std::fs::set_permissions(&path, executable).expect("a mode");
    let config = json!({ "cniVersion": "0.4.0", "name": "held", "plugins": [{ "type": "hold" }] });
    std::fs::create_dir(directory.join("config")).expect("a directory");
    std::fs::write(directory.join("config/held.conflist"), config.to_string()).expect("a file");
}

fn crash_at_each(name: &str, steps: &[Step], victim: Victim) {
    let Some(mut fixture) = Fixture::begin(name) else {
        return;
    };
    for step in steps {
        fixture.crash_at(*step, victim);
    }
}

// Covers 5.3; 5.5 in part: recovery and orphans.
#[test]
fn killed_agent_leaves_nothing_at_any_step() {
    crash_at_each("crash-a", &STEPS, Victim::Agent);
}

// Covers 5.5 in part: recovery and orphans.
#[test]
fn killed_zygote_leaves_nothing_at_any_step() {
    crash_at_each("crash-z", &STEPS, Victim::Zygote);
}

// Covers 5.3; 5.5 in part: recovery and orphans.
#[test]
fn killed_agent_and_zygote_leave_nothing_at_any_step() {
    crash_at_each("crash-b", &STEPS, Victim::AgentAndZygote);
}

// Covers 5.5 in part: recovery and orphans.
#[test]
fn killed_container_init_leaves_nothing_at_any_step() {
    crash_at_each(
        "crash-i",
        &[Step::Isolating, Step::Running, Step::Ending],
        Victim::Init,
    );
}

/// The agent is killed at the first status of these tasks, at the second, and so on.
// Covers 5.3.
#[test]
fn tasks_of_a_crashing_agent_end_once() {
    const TASKS: usize = 3;
    /// Of each task: starting, running and finished.
    const STATUSES: usize = 3 * TASKS;
    let Some(mut fixture) = Fixture::begin("crash-s") else {
        return;
    };
    for crash_after in 0..=STATUSES {
        let names = (0..TASKS).map(|number| format!("{crash_after}-{number}"));
        let names: Vec<String> = names.collect();
        let all: Vec<&str> = names.iter().map(String::as_str).collect();
        fixture.launch(&all, "echo started", |_| ());
        let is_own = |callback: &Callback| match callback {
            Callback::Status(status) => all.contains(&status.task_id.as_str()).then_some(()),
            _ => None,
        };
        let framework = &mut fixture.isolated.framework;
        let mut past = framework.past.iter();
        let known = past.by_ref().filter_map(|(_, past)| is_own(past)).count();
        for _ in known..crash_after {
            framework.wait_for("a status", is_own);
        }
        fixture.crash(Victim::Agent);
        for name in &names {
            fixture.end(name);
        }
        fixture.works(&format!("after-{crash_after}"));
        for name in &names {
            fixture.check_states(name);
            let states = fixture.isolated.framework.states(name);
            let output = fixture.outputs(name);
            let starts = output.lines().count();
            let is_right = match states.last() {
                Some(TaskState::Finished) => starts == 1,
                _ => starts <= 1,
            };
            assert!(is_right, "{name}: {states:?} {output}");
        }
        fixture.leaves_nothing();
    }
}

/// Launches a group of the tasks `NAME-a` and `NAME-b`.
fn launch_group(fixture: &mut Fixture, name: &str) -> [String; 2] {
    let offer = fixture.isolated.framework.standing_offer();
    let role = Role::new(&offer.role).expect("a role");
    let resources: Resources = "cpus:0.1;mem:32;disk:1".parse().expect("resources");
    let id = ExecutorId::new(format!("pod-{name}")).expect("an id");
    let executor = ExecutorInfo::default_kind(id, resources.allocate(&role));
    let names = ["a", "b"].map(|which| format!("{name}-{which}"));
    let tasks = names.iter().map(|name| {
        let mut info = task(name, &offer, "cpus:0.1;mem:32", "");
        info.command = Some(CommandInfo::shell(STUBBORN));
        info.kill_policy = Some(KillPolicy {
            grace_period: Duration::from_millis(500),
        });
        info
    });
    let operation = Operation::LaunchGroup {
        executor: Box::new(executor),
        tasks: tasks.collect(),
    };
    let framework = &fixture.isolated.framework;
    framework.accept(vec![offer.id], vec![operation], Filters::default());
    for name in &names {
        fixture.isolated.framework.state(name, TaskState::Running);
    }
    names
}

// Covers 5.3; 5.4 in part: task groups.
#[test]
fn task_group_outlives_its_agent_and_ends_with_its_zygote() {
    let Some(mut fixture) = Fixture::begin("crash-g") else {
        return;
    };
    for victim in [
        Victim::Agent,
        Victim::Zygote,
        Victim::AgentAndZygote,
        Victim::Init,
    ] {
        let name = format!("{victim:?}");
        let names = launch_group(&mut fixture, &name);
        fixture.crash(victim);
        let end = match victim {
            Victim::Agent => {
                // The other follows.
                fixture.kill(&names[0]);
                TaskState::Killed
            }
            _ => TaskState::Failed,
        };
        for name in &names {
            fixture.isolated.framework.state(name, end);
        }
        fixture.works(&format!("after-{name}"));
        for name in &names {
            fixture.check_states(name);
        }
        fixture.leaves_nothing();
    }
}

/// Whether an executor had subscribed when something was killed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Subscription {
    No,
    Yes,
}

impl Fixture {
    /// A crash of `victim` while an HTTP executor, the framework's own, has a task. Its statuses are
    /// named by `number` and the next one.
    fn crash_executor(&mut self, subscription: Subscription, victim: Victim, number: u8) {
        let name = format!("{subscription:?}-{victim:?}");
        let id = format!("own-{name}");
        let offer = self.isolated.framework.standing_offer();
        let info = executor(&id, &offer, CommandInfo::shell(SLEEPER));
        let task = for_executor(&name, &offer, &info);
        self.isolated.framework.launch(&offer, vec![task]);
        let client = HttpExecutor::of(&self.isolated.cluster, &id, Form::Json);
        if subscription == Subscription::Yes {
            let mut events = client.subscribe(json!({}));
            assert!(events.next().is_some_and(|event| event.launch.is_some()));
            client.send(&client.update(&name, "TASK_RUNNING", number));
            self.isolated.framework.state(&name, TaskState::Running);
            assert_eq!(acknowledged(&mut events), vec![number; 16]);
        }
        if victim == Victim::Agent {
            self.isolated.agent.signal("KILL");
            self.isolated.agent.wait();
            self.isolated.agent = Running::start(&mut self.isolated.command);
            eventually("the agent's port to answer", || {
                TcpStream::connect(("127.0.0.1", client.port)).ok()
            });
            let mut events = client.subscribe(json!({}));
            if subscription == Subscription::No {
                assert!(events.next().is_some_and(|event| event.launch.is_some()));
            }
            client.send(&client.update(&name, "TASK_FINISHED", number + 1));
            self.isolated.framework.state(&name, TaskState::Finished);
            self.isolated.until_registered();
            // It would go on without a task.
            signal(self.init(), "KILL");
        } else {
            self.crash(victim);
            let end = self.end(&name);
            assert_ne!(end.state, TaskState::Finished, "{end:?}");
        }
        self.works(&format!("after-{name}"));
        self.check_states(&name);
        self.leaves_nothing();
    }
}

// Covers 5.3; 5.5 in part: recovery and orphans.
#[test]
fn http_executor_outlives_its_agent_only_and_leaves_nothing() {
    let Some(mut fixture) = Fixture::begin("crash-h") else {
        return;
    };
    let mut number = 1;
    for subscription in [Subscription::No, Subscription::Yes] {
        for victim in [
            Victim::Agent,
            Victim::Zygote,
            Victim::AgentAndZygote,
            Victim::Init,
        ] {
            fixture.crash_executor(subscription, victim, number);
            number += 2;
        }
    }
}

/// A registry with one image, whose layer stays half sent while `holds` is set.
struct HeldRegistry {
    port: u16,
    holds: Arc<AtomicBool>,
    /// Pulls that have the first half of the layer, and those of them that have ended.
    held: Arc<AtomicUsize>,
    released: Arc<AtomicUsize>,
}

impl HeldRegistry {
    fn start() -> Self {
        let work = tempfile::tempdir().expect("a directory");
        save_image(work.path(), "own");
        let path = |name: &str| work.path().join(name).display().to_string();
        host("tar", &["-C", &path(""), "-xf", &path("own.tar")]);
        let mut files = Vec::new();
        let mut part = |name: &str, kind: &str| {
            let sum = host("sha256sum", &[&path(name)]);
            let digest = format!("sha256:{}", sum.split(' ').next().expect("a digest"));
            let content = std::fs::read(path(name)).expect("a file");
            let described = json!({ "mediaType": kind, "size": content.len(), "digest": digest });
            files.push((format!("/blobs/{digest}"), content));
            described
        };
        let config = part("config.json", "application/vnd.oci.image.config.v1+json");
        let layer = part("layer.tar", "application/vnd.oci.image.layer.v1.tar");
        let manifest = json!({
            "schemaVersion": 2,
            "mediaType": "application/vnd.oci.image.manifest.v1+json",
            "config": config,
            "layers": [layer],
        });
        let held_path = files[1].0.clone();
        files.push(("/manifests/latest".into(), manifest.to_string().into()));
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let registry = Self {
            port: listener.local_addr().expect("an address").port(),
            holds: Arc::new(AtomicBool::new(true)),
            held: Arc::default(),
            released: Arc::default(),
        };
        let (holds, held) = (registry.holds.clone(), registry.held.clone());
        let (released, files) = (registry.released.clone(), Arc::new(files));
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let (files, held_path) = (files.clone(), held_path.clone());
                let (holds, held, released) = (holds.clone(), held.clone(), released.clone());
                std::thread::spawn(move || {
                    let mut reader = BufReader::new(stream);
                    while let Some(path) = requested(&mut reader) {
                        let found = files.iter().find(|(end, _)| path.ends_with(end.as_str()));
                        let (status, body) = match found {
                            Some((_, body)) => ("200 OK", body.as_slice()),
                            None if path.ends_with("/v2/") => ("200 OK", &b"{}"[..]),
                            None => ("404 Not Found", &b"{}"[..]),
                        };
                        let kind = match path.contains("/manifests/") {
                            true => "application/vnd.oci.image.manifest.v1+json",
                            false => "application/octet-stream",
                        };
                        let length = body.len();
                        let head = format!(
                            "HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {length}\r\n\r\n"
                        );
                        let is_held = path.ends_with(&held_path) && holds.load(Ordering::SeqCst);
                        let now = if is_held { &body[..length / 2] } else { body };
                        let stream = reader.get_mut();
                        // The puller may be gone.
                        let _ = stream.write_all(head.as_bytes());
                        let _ = stream.write_all(now);
                        if is_held {
                            held.fetch_add(1, Ordering::SeqCst);
                            let _ = reader.read(&mut [0]); // Until the puller is gone.
                            released.fetch_add(1, Ordering::SeqCst);
                            return;
                        }
                    }
                });
            }
        });
        registry
    }
}

/// The path of the next request; `None` at the end of the connection.
fn requested(reader: &mut BufReader<TcpStream>) -> Option<String> {
    let mut first = String::new();
    reader.read_line(&mut first).ok()?;
    loop {
        let mut header = String::new();
        if reader.read_line(&mut header).ok()? == 0 {
            return None;
        }
        if header.trim().is_empty() {
            return first.split(' ').nth(1).map(str::to_owned);
        }
    }
}

// Covers 5.3; 5.6 in part: pulls.
#[test]
fn agent_killed_during_a_pull_pulls_again_and_leaves_nothing() {
    let registry = HeldRegistry::start();
    let url = format!("http://127.0.0.1:{}", registry.port);
    let Some(mut fixture) = Fixture::with_registry("crash-p", Some(&url)) else {
        return;
    };
    let pulled = |info: &mut TaskInfo| {
        info.container = Some(Box::new(ContainerInfo {
            image: Some(Image {
                name: "own".into(),
                is_cached: true,
            }),
            ..ContainerInfo::default()
        }));
    };
    for round in 1..=2 {
        let name = format!("held-{round}");
        fixture.launch_plain(&[&name], "echo started", pulled);
        let count = |count: &AtomicUsize| (count.load(Ordering::SeqCst) == round).then_some(());
        eventually("half of the layer", || count(&registry.held));
        fixture.crash(Victim::Agent);
        eventually("the end of the puller", || count(&registry.released));
        let end = fixture.end(&name);
        assert_eq!(end.state, TaskState::Failed, "{end:?}");
        fixture.works(&format!("after-{name}"));
        fixture.check_states(&name);
    }
    registry.holds.store(false, Ordering::SeqCst);
    fixture.launch_plain(&["last"], "echo started", pulled);
    fixture
        .isolated
        .framework
        .state("last", TaskState::Finished);
    assert_eq!(fixture.outputs("last"), "started\n");
    let store = fixture.work_dir().join("images");
    assert_eq!(entries(&store.join("images")).len(), 1);
    assert_eq!(entries(&store.join("staging")), [""; 0].map(PathBuf::from));
    fixture.leaves_nothing();
}
