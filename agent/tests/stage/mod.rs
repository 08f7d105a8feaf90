//! The stage of the rehearsals: an agent whose launcher, master and modules are played by test actors, in virtual time.
#![allow(dead_code, reason = "each test target uses its own part")]

use std::sync::{Arc, Mutex};
use std::time::Duration;

pub use crate::common::*;
use authority::{Acls, Shared};
use executor_driver::{Environment, Executor, ExecutorDriverRef};
use meros_agent::{Settings, Started};
use protocol::message::executor::ExecutorSubscribed;
use protocol::{CommandInfo, ExecutorId, ExecutorInfo, KillPolicy, TaskId, TaskInfo, TaskState};
use resources::{Resources, Revocable};
use runtime::memory::Network;
use runtime::prelude::*;
use runtime::rehearsal::rehearse_network;

pub struct World {
    pub network: Network,
    pub master: Master,
    pub agent: Started,
    pub node: Node,
    pub stage: Stage,
    pub work_dir: Arc<tempfile::TempDir>,
    /// Who may do what; a story may choose anew.
    pub acls: Shared<Acls>,
}

/// What a story may want otherwise.
pub struct Cast {
    pub manners: Manners,
    pub stage: Stage,
    pub estimator: FakeModule,
    pub controller: FakeModule,
    pub severed: bool,
    /// Whether executors that speak HTTP must prove who they are.
    pub authenticates: bool,
    /// Nodes of masters that do not act.
    pub standbys: Vec<&'static str>,
    /// The master that the agent is given before these.
    pub given: &'static str,
    /// What the agent's operator wants otherwise.
    pub change: fn(&mut Settings),
}

impl Default for Cast {
    fn default() -> Self {
        Self {
            manners: Manners::default(),
            stage: Stage::prompt(),
            estimator: FakeModule::silent(),
            controller: FakeModule::silent(),
            severed: false,
            authenticates: false,
            standbys: Vec::new(),
            given: "master",
            change: |_| (),
        }
    }
}

pub fn world<F: Future>(cast: Cast, story: impl FnOnce(World) -> F) -> F::Output {
    rehearse_network(|network| async move {
        let work_dir = Arc::new(tempfile::tempdir().unwrap());
        let master = Master::start(
            &network.node("master", Role::Master, &[Role::Agent]),
            cast.manners,
        );
        let node = network.node("agent", Role::Agent, &[Role::Master, Role::Executor]);
        if cast.severed {
            network.sever("agent", "master");
        }
        let standby = |name: &&str| network.node(name, Role::Master, &[Role::Agent]);
        let _standbys: Vec<Node> = cast.standbys.iter().map(standby).collect();
        let masters = std::iter::once(cast.given).chain(cast.standbys);
        let masters = masters.map(str::to_owned).collect();
        let mut settings = Settings::new(masters, work_dir.path());
        settings.resources = Some("cpus:4;mem:1024;disk:1024".into());
        settings.authenticate_http_executors = cast.authenticates;
        (cast.change)(&mut settings);
        let acls = settings.acls.clone();
        network.join(
            &node,
            &format!("unix:{}", settings.executor_socket.display()),
        );
        network.join(&node, "agent");
        let launcher = Box::new(FakeLauncher(cast.stage.clone()));
        let agent = start_agent_with(&node, settings, launcher, cast.estimator, cast.controller);
        node.clock().settle().await;
        story(World {
            network,
            master,
            agent,
            node,
            stage: cast.stage,
            work_dir,
            acls,
        })
        .await
    })
}

impl World {
    /// The agent's process ends as if it were killed, and another begins in its place, whose launcher has what is in `stage`.
    pub async fn restart(self, stage: Stage) -> Self {
        let work_dir = self.work_dir.clone();
        self.node.shutdown().await;
        drop(self.agent);
        let node = self
            .network
            .node("agent", Role::Agent, &[Role::Master, Role::Executor]);
        let mut settings = Settings::new(vec!["master".to_owned()], work_dir.path());
        settings.resources = Some("cpus:4;mem:1024;disk:1024".into());
        let acls = settings.acls.clone();
        self.network.join(
            &node,
            &format!("unix:{}", settings.executor_socket.display()),
        );
        let launcher = Box::new(FakeLauncher(stage.clone()));
        let modules = (FakeModule::silent(), FakeModule::silent());
        let agent = start_agent_with(&node, settings, launcher, modules.0, modules.1);
        Self {
            network: self.network,
            master: self.master,
            agent,
            node,
            stage,
            work_dir,
            acls,
        }
    }

    pub async fn settle(&self) {
        self.node.clock().settle().await;
    }

    pub async fn advance(&self, seconds: u64) {
        self.node
            .clock()
            .advance(Duration::from_secs(seconds))
            .await;
    }

    /// The executor of the container that was launched as the `index`th subscribes.
    pub async fn executor(&self, index: usize) -> (Node, Script) {
        let request = self.stage.launched.lock().unwrap()[index].clone();
        let environment = Environment::from(|name| request.environment.get(name).cloned()).unwrap();
        let node = self
            .network
            .node(&format!("executor-{index}"), Role::Executor, &[Role::Agent]);
        let script = Script::default();
        ExecutorDriverRef::connect(&node, environment, script.clone())
            .await
            .unwrap();
        self.settle().await;
        (node, script)
    }
}

/// An executor that does what it is told and writes it down.
#[derive(Clone, Default)]
pub struct Script {
    pub heard: Arc<Mutex<Vec<String>>>,
    pub driver: Arc<Mutex<Option<ExecutorDriverRef>>>,
}

impl Script {
    pub fn note(&self, what: String, driver: &ExecutorDriverRef) {
        self.heard.lock().unwrap().push(what);
        *self.driver.lock().unwrap() = Some(driver.clone());
    }

    pub fn heard(&self) -> Vec<String> {
        self.heard.lock().unwrap().clone()
    }

    pub fn driver(&self) -> ExecutorDriverRef {
        self.driver.lock().unwrap().clone().unwrap()
    }
}

impl Executor for Script {
    fn subscribed(&mut self, subscribed: &ExecutorSubscribed, driver: &ExecutorDriverRef) {
        self.note(
            format!("subscribed {}", subscribed.executor.executor_id),
            driver,
        );
    }

    fn launch(&mut self, task: TaskInfo, driver: &ExecutorDriverRef) {
        self.note(format!("launch {}", task.task_id), driver);
        driver.report(&task.task_id, TaskState::Running);
    }

    fn kill(&mut self, task_id: TaskId, policy: Option<KillPolicy>, driver: &ExecutorDriverRef) {
        self.note(
            format!(
                "kill {task_id} {:?}",
                policy.map(|policy| policy.grace_period)
            ),
            driver,
        );
        driver.report(&task_id, TaskState::Killed);
    }

    fn message(&mut self, data: Vec<u8>, driver: &ExecutorDriverRef) {
        self.note(
            format!("message {}", String::from_utf8_lossy(&data)),
            driver,
        );
        driver.message(data);
    }

    fn shutdown(&mut self, grace: Duration, driver: &ExecutorDriverRef) {
        self.note(format!("shutdown {grace:?}"), driver);
    }

    fn disconnected(&mut self, driver: &ExecutorDriverRef) {
        self.note("disconnected".into(), driver);
    }
}

pub fn shell(id: &str) -> TaskInfo {
    task(id, CommandInfo::shell("true"))
}

pub fn custom(id: &str) -> TaskInfo {
    let executor = ExecutorInfo {
        executor_id: ExecutorId::new("own").unwrap(),
        name: "own".into(),
        command: CommandInfo::shell("./executor"),
        resources: Resources::parse("cpus:0.1;mem:32").unwrap(),
        data: Vec::new(),
        shutdown_grace_period: None,
        labels: Default::default(),
    };
    TaskInfo {
        command: None,
        executor: Some(executor),
        ..shell(id)
    }
}

pub fn revocable(text: &str) -> Resources {
    Resources::parse(text)
        .unwrap()
        .to_revocable(Revocable::Throttleable)
        .unwrap()
}
