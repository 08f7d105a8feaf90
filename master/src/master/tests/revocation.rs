//! Tasks revoked for a role's guarantee (S122, S123).

use super::*;
use protocol::text::reserved_labels::PRIORITY;

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
    /// Sent like the allocator.
    async fn name_victims(&self, victims: Vec<Victim>) {
        let grace = Duration::from_secs(GRACE);
        let named = VictimsNamed { victims, grace };
        self.node.tell(&self.master.pid(), named).unwrap();
        self.settle().await;
    }

    /// This task fails by itself, its framework acknowledges that, and launches another of the same
    /// id.
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

    /// Sent like the allocator: only these roles are still below guarantee.
    async fn still_lacking(&self, roles: &[&str]) {
        let roles = roles.iter().map(|role| (*role).to_owned()).collect();
        let lacking = StillLacking { roles };
        self.node.tell(&self.master.pid(), lacking).unwrap();
        self.settle().await;
    }

    /// The tasks there, as the allocator gets them.
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

/// A cluster with one agent and a framework that runs these tasks there, of one cpu each; those
/// with an executor under `shared`.
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
            task.executor = Some(ExecutorInfo::new(
                ExecutorId::new("shared").unwrap(),
                command,
                Resources::default(),
            ));
        }
        task
    });
    scheduler.tell(accept(&f, &[&offer], tasks.collect()));
    world.settle().await;
    for name in names {
        world.update(&agent, &f, &a, name, TaskState::Running).await;
    }
    for log in [&agent, &scheduler] {
        log.received();
        log.statuses();
    }
    (world, (agent, a), (scheduler, f))
}

/// S122: a warning, then the kill, then the executor with all its tasks.
// Covers S122.
#[test]
fn revocation_warns_then_kills_then_ends_the_executor() {
    simulate_network(|network| async move {
        let cluster = running_tasks(network, &["t", "u"], true);
        let (world, (agent, a), (scheduler, f)) = cluster.await;
        world.name_victims(vec![victim(&f, &a, "t")]).await;
        scheduler.receives("revoked t for web in 30s");
        world.name_victims(vec![victim(&f, &a, "t")]).await;
        // Only once.
        scheduler.receives("");
        world.pass(GRACE - 1).await;
        agent.receives("");
        world.pass(1).await;
        agent.receives("kill t");
        world.pass(GRACE).await;
        agent.receives("end shared");
        world.pass(GRACE).await;
        // The agent was away, perhaps.
        agent.receives("end shared");
        for name in ["t", "u"] {
            agent.tell(update(&agent.node, &f, &a, name, TaskState::Failed));
        }
        world.settle().await;
        let ended = ["t TASK_FAILED REASON_CONTAINER_PREEMPTED", "u TASK_FAILED"];
        assert_eq!(scheduler.received(), ended);
        world.pass(10 * GRACE).await;
        agent.receives("");
    });
}

/// S122: nothing is revoked in vain.
#[test]
fn spared_frameworks_are_notified_unless_killed_already() {
    simulate_network(|network| async move {
        let cluster = running_tasks(network, &["t", "u"], false);
        let (world, (agent, a), (scheduler, f)) = cluster.await;
        world.name_victims(vec![victim(&f, &a, "t")]).await;
        world.pass(GRACE - 10).await;
        let other = Victim {
            role: "ads".to_owned(),
            ..victim(&f, &a, "u")
        };
        world.name_victims(vec![other]).await;
        scheduler.received();
        scheduler.statuses();
        world.still_lacking(&["ads", "web"]).await;
        // Both still lack resources.
        scheduler.receives("");
        world.pass(10).await;
        agent.receives("kill t");
        world.still_lacking(&[]).await;
        scheduler.receives("u TASK_RUNNING REASON_RECONCILIATION");
        let status = scheduler.statuses().pop().unwrap();
        let expected = "no longer revoked: role `ads` lacks nothing any more";
        assert_eq!((&*status.message, status.uuid), (expected, None));
        world.pass(GRACE).await;
        // And u is left alone.
        agent.receives("end t");
        world.name_victims(vec![victim(&f, &a, "u")]).await;
        scheduler.receives("revoked u for web in 30s");
        world.pass(GRACE).await;
        // The grace period starts again.
        agent.receives("end t | kill u");
    });
}

#[test]
fn task_ended_in_time_reports_a_normal_end() {
    simulate_network(|network| async move {
        let (world, (agent, a), (scheduler, f)) = running_tasks(network, &["t", "u"], false).await;
        let victims = vec![victim(&f, &a, "t"), victim(&f, &a, "u")];
        world.name_victims(victims).await;
        scheduler.receives("revoked t u for web in 30s");
        agent.tell(update(&agent.node, &f, &a, "t", TaskState::Finished));
        world.update(&agent, &f, &a, "u", TaskState::Killed).await;
        scheduler.receives("t TASK_FINISHED | u TASK_KILLED");
        world.pass(3 * GRACE).await;
        agent.receives("");
    });
}

#[test]
fn only_tasks_killed_by_revocation_are_reported_so() {
    simulate_network(|network| async move {
        let (world, (agent, a), (scheduler, f)) = running_tasks(network, &["t"], false).await;
        world.name_victims(vec![victim(&f, &a, "t")]).await;
        world.launch_anew((&agent, &a), (&scheduler, &f), "t").await;
        world.settle().await;
        agent.received();
        world.pass(3 * GRACE).await;
        agent.receives("");
        let unknown = [
            victim(&f, &AgentId::new("other").unwrap(), "t"),
            victim(&f, &a, "x"),
        ];
        scheduler.received();
        world.name_victims(unknown.to_vec()).await;
        scheduler.receives("");
    });
}

#[test]
fn allocator_gets_tasks_with_priority_and_leaving_state() {
    simulate_network(|network| async move {
        let cluster = running_tasks(network, &["t", "u", "v"], false);
        let (world, (agent, a), (scheduler, f)) = cluster.await;
        world.name_victims(vec![victim(&f, &a, "u")]).await;
        world.tell(&scheduler, kill_task(&f, "v")).await;
        // A killed task goes first, and is revoked like any other if it takes its time.
        let all = "tasks 7: t*3=cpus:1 u*3=cpus:1 leaves v*-2147483648=cpus:1; consumed 0";
        assert_eq!(world.listed(&a).await, [all]);
        world.update(&agent, &f, &a, "t", TaskState::Finished).await;
        let rest = "tasks 7: u*3=cpus:1 leaves v*-2147483648=cpus:1; consumed 0";
        assert_eq!(world.listed(&a).await, [rest]);
        let (_other, b) = world.agent("host-2").await;
        let elsewhere = world.listed(&b).await;
        let leaves = "tasks 7: u*3=cpus:1 leaves; consumed 0";
        assert_eq!(elsewhere, [leaves], "what must go counts wherever it is");
    });
}

#[test]
fn offers_are_rescinded_before_tasks_are_revoked() {
    simulate_world(|world| async move {
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
        batch.received();
        web.received();
        let recovered = format!("recovered {} cpus:2", short(&b));
        assert_eq!(
            world.listed(&a).await,
            [&*recovered, "tasks 7:; consumed 0"]
        );
        assert_eq!(batch.received(), [format!("rescind {}", short(&offer.id))]);
        // It lacks more, not less.
        web.receives("");
    });
}

#[test]
fn returning_scheduler_is_warned_with_the_remaining_time() {
    simulate_network(|network| async move {
        let (world, (agent, a), (scheduler, f)) = running_tasks(network, &["t", "u"], false).await;
        let victims = vec![victim(&f, &a, "t"), victim(&f, &a, "u")];
        world.name_victims(victims).await;
        agent.tell(update(&agent.node, &f, &a, "u", TaskState::Finished));
        world.pass(10).await;
        scheduler.received();
        let mut info = FrameworkInfo::new("nobody", "batch");
        info.id = Some(f.clone());
        subscribe(&scheduler, info.clone()).await.unwrap();
        world.settle().await;
        scheduler.receives("revoked t for web in 20s");
        world.pass(20).await;
        agent.receives("framework batch | kill t");
        subscribe(&scheduler, info).await.unwrap();
        world.settle().await;
        // It is being killed.
        scheduler.receives("");
    });
}

#[test]
fn non_numeric_priority_is_refused() {
    simulate_world(|world| async move {
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
fn killed_task_that_stays_ends_with_its_executor() {
    simulate_network(|network| async move {
        let (world, (agent, a), (scheduler, f)) = running_tasks(network, &["t"], false).await;
        scheduler.tell(kill_task(&f, "t"));
        world.pass(3600).await;
        agent.receives("kill t");
        world.name_victims(vec![victim(&f, &a, "t")]).await;
        scheduler.receives("revoked t for web in 30s");
        world.pass(GRACE).await;
        agent.receives("kill t");
        world.pass(GRACE).await;
        agent.receives("end t");
    });
}

#[test]
fn relaunched_task_id_gets_a_full_grace_period() {
    simulate_network(|network| async move {
        let (world, (agent, a), (scheduler, f)) = running_tasks(network, &["t"], false).await;
        world.name_victims(vec![victim(&f, &a, "t")]).await;
        world.launch_anew((&agent, &a), (&scheduler, &f), "t").await;
        world.pass(GRACE - 5).await;
        agent.received();
        world.name_victims(vec![victim(&f, &a, "t")]).await;
        world.pass(GRACE - 1).await;
        agent.receives("");
        world.pass(1).await;
        agent.receives("kill t");
    });
}

#[test]
fn disconnected_framework_learns_why_its_task_was_killed() {
    simulate_network(|network| async move {
        let (world, (agent, a), (scheduler, f)) = running_tasks(network, &["t"], false).await;
        world.name_victims(vec![victim(&f, &a, "t")]).await;
        world.pass(GRACE).await;
        agent.received();
        let end = update(&agent.node, &f, &a, "t", TaskState::Killed);
        agent.tell(end.clone());
        world.pass(10 * GRACE).await;
        scheduler.received();
        world.tell(&agent, end.clone()).await;
        let killed = ["t TASK_KILLED REASON_CONTAINER_PREEMPTED"];
        assert_eq!(
            scheduler.received(),
            killed,
            "said again, since nobody has acknowledged it"
        );
        // And nothing more is done to it.
        agent.receives("");
        scheduler.tell(acknowledgement(&f, &end));
        world.pass(10 * GRACE).await;
        assert_eq!(agent.received().len(), 1, "but the acknowledgement");
    });
}

// Covers S122.
#[test]
fn returning_agent_catches_up_with_revocation_deadlines() {
    simulate_network(|network| async move {
        let (world, (agent, a), (scheduler, f)) = running_tasks(network, &["t"], false).await;
        world.name_victims(vec![victim(&f, &a, "t")]).await;
        world.pass(GRACE - 1).await;
        world.network.sever("master", "host-1");
        world.pass(1).await;
        // The kill does not reach it.
        agent.receives("");
        world.pass(GRACE + GRACE / 2).await;
        world.network.heal("master", "host-1");
        agent.node.connect("master").await.unwrap();
        let tasks = vec![running(&f, task("t", &a, "cpus:1"), TaskState::Running)];
        register(&agent, Some(a.clone()), tasks).await.unwrap();
        world.settle().await;
        // The missed kill.
        agent.receives("kill t");
        scheduler.received();
        world.pass(GRACE / 2).await;
        // At the next deadline.
        agent.receives("end t");
        world.update(&agent, &f, &a, "t", TaskState::Failed).await;
        let ended = ["t TASK_FAILED REASON_CONTAINER_PREEMPTED"];
        assert_eq!(scheduler.received(), ended);
    });
}

#[test]
fn revocation_waits_for_awaited_agents() {
    simulate_world(|first| async move {
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
        agent.received();
        agent.master = agent.node.find("master", "master", PATIENCE).await.unwrap();
        let mut runs = task("t", &a, "cpus:1");
        runs.resources = runs.resources.allocate(&ResourceRole::STAR);
        let tasks = vec![running(&f, runs, TaskState::Running)];
        register(&agent, Some(a.clone()), tasks).await.unwrap();
        world.settle().await;
        let anew = "tasks 7: t*0=cpus:1; consumed 0";
        assert_eq!(world.listed(&a).await, [anew]);
        world.pass(2 * GRACE).await;
        // This master has warned no one.
        agent.receives("");
        world.name_victims(vec![victim(&f, &a, "t")]).await;
        world.pass(GRACE).await;
        agent.receives("kill t");
    });
}
