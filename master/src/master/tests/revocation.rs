//! Tasks that must make room for what is guaranteed to a role (S122, S123).

use super::*;
use protocol::marks::PRIORITY;

const GRACE: u64 = 30;

fn victim(framework: &FrameworkId, agent: &AgentId, id: &str) -> Victim {
    Victim {
        framework_id: framework.clone(),
        task_id: TaskId::new(id).unwrap(),
        agent_id: agent.clone(),
        role: "web".to_owned(),
    }
}

impl World {
    /// As the allocator says it.
    async fn name_victims(&self, victims: Vec<Victim>) {
        let grace = Duration::from_secs(GRACE);
        let named = VictimsNamed { victims, grace };
        self.node.tell(&self.master.pid(), named).unwrap();
        self.settle().await;
    }

    /// This task fails by itself, its framework acknowledges that, and launches another of the same id.
    async fn launch_anew(
        &self,
        (agent, a): (&Member, &AgentId),
        (scheduler, f): (&Member, &FrameworkId),
        id: &str,
    ) {
        let end = update(&agent.node, f, a, id, TaskState::Failed);
        agent.tell(end.clone());
        self.settle().await;
        scheduler.tell(acknowledgement(f, &end));
        let offer = self.offer(scheduler, f, a, "cpus:1").await;
        scheduler.tell(accept(f, &[&offer], vec![task(id, a, "cpus:1")]));
    }

    /// As the allocator says it: only these roles lack something still.
    async fn still_lacking(&self, roles: &[&str]) {
        let roles = roles.iter().map(|role| (*role).to_owned()).collect();
        let lacking = StillLacking { roles };
        self.node.tell(&self.master.pid(), lacking).unwrap();
        self.settle().await;
    }

    /// What runs there, as the allocator is told.
    async fn listed(&self, agent: &AgentId) -> Vec<String> {
        self.allocator();
        let agents = BTreeSet::from([agent.clone()]);
        let wanted = TasksWanted {
            number: 7,
            agents,
            roles: BTreeSet::from(["web".to_owned()]),
            names: BTreeSet::from([resources::Name::Cpus]),
        };
        self.node.tell(&self.master.pid(), wanted).unwrap();
        self.settle().await;
        self.allocator()
    }
}

/// A cluster with one agent and a framework that runs these tasks there, of one cpu each; those with an executor under `shared`.
async fn running_tasks(
    network: Network,
    names: &[&str],
    own: bool,
) -> (World, (Member, AgentId), (Member, FrameworkId)) {
    let world = World::new(network, Config::default()).await;
    let (agent, a) = world.agent("host-1").await;
    let (scheduler, f) = world.framework("batch", |_| {}).await;
    let offer = world.offer(&scheduler, &f, &a, "cpus:8;mem:512").await;
    let tasks = names.iter().map(|name| {
        let mut task = task(name, &a, "cpus:1");
        task.labels.insert(PRIORITY.to_owned(), "3".to_owned());
        if own {
            let command = task.command.take().unwrap();
            task.executor = Some(ExecutorInfo {
                executor_id: ExecutorId::new("shared").unwrap(),
                name: String::new(),
                command,
                resources: Resources::default(),
                data: vec![],
                shutdown_grace_period: None,
                labels: Default::default(),
            });
        }
        task
    });
    scheduler.tell(accept(&f, &[&offer], tasks.collect()));
    world.settle().await;
    for name in names {
        agent.tell(update(&agent.node, &f, &a, name, TaskState::Running));
        world.settle().await;
    }
    for log in [&agent, &scheduler] {
        log.heard();
        log.statuses();
    }
    (world, (agent, a), (scheduler, f))
}

/// S122: a warning, then the kill, then the executor with all its tasks.
#[test]
fn a_framework_is_warned_then_its_task_is_killed_and_then_its_executor_ends() {
    rehearse_network(|network| async move {
        let cluster = running_tasks(network, &["t", "u"], true);
        let (world, (agent, a), (scheduler, f)) = cluster.await;
        world.name_victims(vec![victim(&f, &a, "t")]).await;
        assert_eq!(scheduler.heard(), ["revoked t for web in 30s"]);
        world.name_victims(vec![victim(&f, &a, "t")]).await;
        assert_eq!(scheduler.heard(), [""; 0], "told once");
        world.pass(GRACE - 1).await;
        assert_eq!(agent.heard(), [""; 0]);
        world.pass(1).await;
        assert_eq!(agent.heard(), ["kill t"]);
        world.pass(GRACE).await;
        assert_eq!(agent.heard(), ["end shared"]);
        world.pass(GRACE).await;
        assert_eq!(agent.heard(), ["end shared"], "the agent was away, perhaps");
        for name in ["t", "u"] {
            agent.tell(update(&agent.node, &f, &a, name, TaskState::Failed));
        }
        world.settle().await;
        let ended = ["t TASK_FAILED REASON_CONTAINER_PREEMPTED", "u TASK_FAILED"];
        assert_eq!(scheduler.heard(), ended);
        world.pass(10 * GRACE).await;
        assert_eq!(agent.heard(), [""; 0]);
    });
}

/// S122: nothing is revoked in vain.
#[test]
fn where_room_came_otherwise_who_was_warned_stays_and_hears_so_but_not_who_is_killed_already() {
    rehearse_network(|network| async move {
        let cluster = running_tasks(network, &["t", "u"], false);
        let (world, (agent, a), (scheduler, f)) = cluster.await;
        world.name_victims(vec![victim(&f, &a, "t")]).await;
        world.pass(GRACE - 10).await;
        let other = Victim {
            role: "ads".to_owned(),
            ..victim(&f, &a, "u")
        };
        world.name_victims(vec![other]).await;
        scheduler.heard();
        scheduler.statuses();
        world.still_lacking(&["ads", "web"]).await;
        assert_eq!(scheduler.heard(), [""; 0], "both lack something still");
        world.pass(10).await;
        assert_eq!(agent.heard(), ["kill t"]);
        world.still_lacking(&[]).await;
        assert_eq!(scheduler.heard(), ["u TASK_RUNNING REASON_RECONCILIATION"]);
        let status = scheduler.statuses().pop().unwrap();
        let expected = "no longer revoked: role `ads` lacks nothing any more";
        assert_eq!((&*status.message, status.uuid), (expected, None));
        world.pass(GRACE).await;
        assert_eq!(agent.heard(), ["end t"], "and u is left alone");
        world.name_victims(vec![victim(&f, &a, "u")]).await;
        assert_eq!(scheduler.heard(), ["revoked u for web in 30s"]);
        world.pass(GRACE).await;
        assert_eq!(agent.heard(), ["end t", "kill u"], "its whole time anew");
    });
}

#[test]
fn who_ends_a_task_in_time_hears_its_end_as_any_other() {
    rehearse_network(|network| async move {
        let (world, (agent, a), (scheduler, f)) = running_tasks(network, &["t", "u"], false).await;
        let victims = vec![victim(&f, &a, "t"), victim(&f, &a, "u")];
        world.name_victims(victims).await;
        assert_eq!(scheduler.heard(), ["revoked t u for web in 30s"]);
        agent.tell(update(&agent.node, &f, &a, "t", TaskState::Finished));
        agent.tell(update(&agent.node, &f, &a, "u", TaskState::Killed));
        world.settle().await;
        assert_eq!(scheduler.heard(), ["t TASK_FINISHED", "u TASK_KILLED"]);
        world.pass(3 * GRACE).await;
        assert_eq!(agent.heard(), [""; 0]);
    });
}

#[test]
fn a_task_that_was_not_killed_by_us_is_not_said_to_be_and_one_that_is_launched_anew_is_left_alone()
{
    rehearse_network(|network| async move {
        let (world, (agent, a), (scheduler, f)) = running_tasks(network, &["t"], false).await;
        world.name_victims(vec![victim(&f, &a, "t")]).await;
        world.launch_anew((&agent, &a), (&scheduler, &f), "t").await;
        world.settle().await;
        agent.heard();
        world.pass(3 * GRACE).await;
        assert_eq!(agent.heard(), [""; 0]);
        let unknown = [
            victim(&f, &AgentId::new("other").unwrap(), "t"),
            victim(&f, &a, "x"),
        ];
        scheduler.heard();
        world.name_victims(unknown.to_vec()).await;
        assert_eq!(scheduler.heard(), [""; 0]);
    });
}

#[test]
fn the_allocator_is_told_what_runs_how_much_it_matters_and_what_is_leaving() {
    rehearse_network(|network| async move {
        let cluster = running_tasks(network, &["t", "u", "v"], false);
        let (world, (agent, a), (scheduler, f)) = cluster.await;
        world.name_victims(vec![victim(&f, &a, "u")]).await;
        scheduler.tell(KillTask {
            framework_id: f.clone(),
            task_id: TaskId::new("v").unwrap(),
            agent_id: None,
            kill_policy: None,
        });
        world.settle().await;
        // What its framework has killed goes first, but must go like any other if it takes its time.
        let all = "tasks 7: t*3=cpus:1 u*3=cpus:1 leaves v*-2147483648=cpus:1; consumed 0";
        assert_eq!(world.listed(&a).await, [all]);
        agent.tell(update(&agent.node, &f, &a, "t", TaskState::Finished));
        world.settle().await;
        let rest = "tasks 7: u*3=cpus:1 leaves v*-2147483648=cpus:1; consumed 0";
        assert_eq!(world.listed(&a).await, [rest]);
        let (_other, b) = world.agent("host-2").await;
        let elsewhere = world.listed(&b).await;
        let leaves = "tasks 7: u*3=cpus:1 leaves; consumed 0";
        assert_eq!(elsewhere, [leaves], "what must go counts wherever it is");
    });
}

#[test]
fn what_is_only_offered_is_taken_back_before_any_task_has_to_go() {
    rehearse_network(|network| async move {
        let world = World::new(network, Config::default()).await;
        let (_agent, a) = world.agent("host-1").await;
        let (batch, b) = world.framework("batch", |_| {}).await;
        let roles = |info: &mut FrameworkInfo| info.roles = ["web/front".to_owned()].into();
        let (web, w) = world.framework("web", roles).await;
        let offer = world.offer(&batch, &b, &a, "cpus:2").await;
        let role = ResourceRole::new("web/front").unwrap();
        world
            .grant(vec![Grant {
                role: role.to_string(),
                resources: resources("cpus:1").allocate(&role),
                ..grant(&w, &a, "cpus:1")
            }])
            .await;
        assert_eq!(web.offers().len(), 1);
        batch.heard();
        web.heard();
        let recovered = format!("recovered {} cpus:2", short(&b));
        assert_eq!(
            world.listed(&a).await,
            [&*recovered, "tasks 7:; consumed 0"]
        );
        assert_eq!(batch.heard(), [format!("rescind {}", short(&offer.id))]);
        assert_eq!(web.heard(), [""; 0], "it lacks more, not less");
    });
}

#[test]
fn a_scheduler_that_comes_back_is_warned_of_what_is_left_of_the_time() {
    rehearse_network(|network| async move {
        let (world, (agent, a), (scheduler, f)) = running_tasks(network, &["t", "u"], false).await;
        let victims = vec![victim(&f, &a, "t"), victim(&f, &a, "u")];
        world.name_victims(victims).await;
        agent.tell(update(&agent.node, &f, &a, "u", TaskState::Finished));
        world.pass(10).await;
        scheduler.heard();
        let mut info = FrameworkInfo::new("nobody", "batch");
        info.id = Some(f.clone());
        subscribe(&scheduler, info.clone()).await.unwrap();
        world.settle().await;
        assert_eq!(scheduler.heard(), ["revoked t for web in 20s"]);
        world.pass(20).await;
        assert_eq!(agent.heard(), ["framework batch", "kill t"]);
        subscribe(&scheduler, info).await.unwrap();
        world.settle().await;
        assert_eq!(scheduler.heard(), [""; 0], "it is being killed");
    });
}

#[test]
fn a_task_whose_priority_is_no_number_is_refused() {
    rehearse_network(|network| async move {
        let world = World::new(network, Config::default()).await;
        let (_agent, a) = world.agent("host-1").await;
        let (scheduler, f) = world.framework("batch", |_| {}).await;
        let offer = world.offer(&scheduler, &f, &a, "cpus:1").await;
        let mut high = task("t", &a, "cpus:1");
        high.labels.insert(PRIORITY.to_owned(), "high".to_owned());
        scheduler.tell(accept(&f, &[&offer], vec![high]));
        world.settle().await;
        let status = scheduler.statuses().pop().unwrap();
        assert_eq!(status.reason, Some(Reason::TaskInvalid));
        let expected = "task.labels.meros.priority is `high`: expected a whole number";
        assert!(status.message.starts_with(expected), "{}", status.message);
    });
}

#[test]
fn a_task_that_was_killed_before_and_does_not_end_ends_with_its_executor() {
    rehearse_network(|network| async move {
        let (world, (agent, a), (scheduler, f)) = running_tasks(network, &["t"], false).await;
        scheduler.tell(KillTask {
            framework_id: f.clone(),
            task_id: TaskId::new("t").unwrap(),
            agent_id: None,
            kill_policy: None,
        });
        world.pass(3600).await;
        assert_eq!(agent.heard(), ["kill t"]);
        world.name_victims(vec![victim(&f, &a, "t")]).await;
        assert_eq!(scheduler.heard(), ["revoked t for web in 30s"]);
        world.pass(GRACE).await;
        assert_eq!(agent.heard(), ["kill t"]);
        world.pass(GRACE).await;
        assert_eq!(agent.heard(), ["end t"]);
    });
}

#[test]
fn a_task_of_the_same_id_that_must_go_again_has_its_whole_time() {
    rehearse_network(|network| async move {
        let (world, (agent, a), (scheduler, f)) = running_tasks(network, &["t"], false).await;
        world.name_victims(vec![victim(&f, &a, "t")]).await;
        world.launch_anew((&agent, &a), (&scheduler, &f), "t").await;
        world.pass(GRACE - 5).await;
        agent.heard();
        world.name_victims(vec![victim(&f, &a, "t")]).await;
        world.pass(GRACE - 1).await;
        assert_eq!(agent.heard(), [""; 0]);
        world.pass(1).await;
        assert_eq!(agent.heard(), ["kill t"]);
    });
}

#[test]
fn who_was_away_when_its_task_was_killed_hears_why() {
    rehearse_network(|network| async move {
        let (world, (agent, a), (scheduler, f)) = running_tasks(network, &["t"], false).await;
        world.name_victims(vec![victim(&f, &a, "t")]).await;
        world.pass(GRACE).await;
        agent.heard();
        let end = update(&agent.node, &f, &a, "t", TaskState::Killed);
        agent.tell(end.clone());
        world.pass(10 * GRACE).await;
        scheduler.heard();
        agent.tell(end.clone());
        world.settle().await;
        let killed = ["t TASK_KILLED REASON_CONTAINER_PREEMPTED"];
        assert_eq!(
            scheduler.heard(),
            killed,
            "said again, since nobody has acknowledged it"
        );
        assert_eq!(agent.heard(), [""; 0], "and nothing more is done to it");
        scheduler.tell(acknowledgement(&f, &end));
        world.pass(10 * GRACE).await;
        assert_eq!(agent.heard().len(), 1, "but the acknowledgement");
    });
}

/// S122.
#[test]
fn an_agent_that_is_away_between_the_deadlines_is_told_to_kill_when_it_is_back_and_then_to_end() {
    rehearse_network(|network| async move {
        let (world, (agent, a), (scheduler, f)) = running_tasks(network, &["t"], false).await;
        world.name_victims(vec![victim(&f, &a, "t")]).await;
        world.pass(GRACE - 1).await;
        world.network.sever("master", "host-1");
        world.pass(1).await;
        assert_eq!(agent.heard(), [""; 0], "the kill does not reach it");
        world.pass(GRACE + GRACE / 2).await;
        world.network.heal("master", "host-1");
        agent.node.connect("master").await.unwrap();
        let tasks = vec![running(&f, task("t", &a, "cpus:1"), TaskState::Running)];
        register(&agent, Some(a.clone()), tasks).await.unwrap();
        world.settle().await;
        assert_eq!(agent.heard(), ["kill t"], "what it has missed");
        scheduler.heard();
        world.pass(GRACE / 2).await;
        assert_eq!(agent.heard(), ["end t"], "at the next deadline");
        agent.tell(update(&agent.node, &f, &a, "t", TaskState::Failed));
        world.settle().await;
        let ended = ["t TASK_FAILED REASON_CONTAINER_PREEMPTED"];
        assert_eq!(scheduler.heard(), ended);
    });
}

#[test]
fn a_master_that_awaits_agents_says_nothing_of_tasks_and_revokes_none_that_it_does_not_know() {
    rehearse_network(|network| async move {
        let first = World::new(network, Config::default()).await;
        let (mut agent, a) = first.agent("host-1").await;
        let stays = |info: &mut FrameworkInfo| info.failover_timeout = Duration::from_secs(3600);
        let (_old, f) = first.framework("batch", stays).await;
        let world = first.succeeded().await;
        let scheduler = world.member("batch-2", "scheduler", Role::Framework).await;
        let mut info = FrameworkInfo::new("nobody", "batch");
        info.id = Some(f.clone());
        stays(&mut info);
        subscribe(&scheduler, info).await.unwrap();
        world.settle().await;
        assert_eq!(
            world.listed(&a).await,
            [""; 0],
            "it may have what is lacking"
        );
        world.name_victims(vec![victim(&f, &a, "t")]).await;
        world.pass(GRACE).await;
        agent.heard();
        agent.master = agent.node.find("master", "master", PATIENCE).await.unwrap();
        let mut runs = task("t", &a, "cpus:1");
        runs.resources = runs.resources.allocate(&ResourceRole::STAR);
        let tasks = vec![running(&f, runs, TaskState::Running)];
        register(&agent, Some(a.clone()), tasks).await.unwrap();
        world.settle().await;
        let anew = "tasks 7: t*0=cpus:1; consumed 0";
        assert_eq!(world.listed(&a).await, [anew]);
        world.pass(2 * GRACE).await;
        assert_eq!(agent.heard(), [""; 0], "nobody was warned by this master");
        world.name_victims(vec![victim(&f, &a, "t")]).await;
        world.pass(GRACE).await;
        assert_eq!(agent.heard(), ["kill t"]);
    });
}
