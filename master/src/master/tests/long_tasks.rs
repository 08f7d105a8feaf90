//! The bound on long tasks, and unlabeled tasks that run long (S121).

use super::*;
use protocol::text::reserved_labels::{DURATION, long_left};

const GRACE: u64 = 30;
const SHORT_MAX: u64 = 100;

fn marked(mark: &str, name: &str, agent: &AgentId, text: &str) -> TaskInfo {
    let mut task = task(name, agent, text);
    task.labels.insert(DURATION.to_owned(), mark.to_owned());
    task
}

fn left(offer: &Offer) -> Option<String> {
    long_left(&offer.attributes).map(|left| left.to_string())
}

impl World {
    /// The allocator's bound: half of each agent.
    async fn bound(&self, short_max: Option<u64>) {
        let bounded = LongTasksBounded {
            share: 500,
            short_max: short_max.map(Duration::from_secs),
            grace: Duration::from_secs(GRACE),
        };
        self.node.tell(&self.master.pid(), bounded).unwrap();
        self.settle().await;
    }
}

// Covers S121.
#[test]
fn long_task_bound_is_offered_and_enforced() {
    simulate_world(|world| async move {
        let (agent, a) = world.agent("host-1").await;
        let (scheduler, f) = world.framework("mpi", |_| {}).await;
        let offer = world.offer(&scheduler, &f, &a, "cpus:1").await;
        assert_eq!(left(&offer), None, "nothing is bounded");
        world.bound(None).await;
        let offer = world.offer(&scheduler, &f, &a, "cpus:7").await;
        assert_eq!(left(&offer).unwrap(), "cpus:4;mem:4096");
        let tasks = vec![
            marked("long", "t", &a, "cpus:3"),
            marked("long", "u", &a, "cpus:2"),
            marked("short", "v", &a, "cpus:2.5"),
            marked("long", "w", &a, "cpus:1"),
            marked("eternal", "x", &a, "cpus:0.1"),
        ];
        world.tell(&scheduler, accept(&f, &[&offer], tasks)).await;
        let refused = scheduler.statuses();
        assert_eq!(refused.len(), 2, "{refused:?}");
        let (u, x) = (&refused[0], &refused[1]);
        assert_eq!(
            (u.state, u.reason),
            (TaskState::Lost, Some(Reason::InvalidOffers)),
            "it may run elsewhere"
        );
        let expected = "task.resources is `cpus:2`: expected at most the remaining amount for long tasks on its agent, cpus:1;mem:4096";
        assert_eq!(u.message, expected);
        assert_eq!(x.reason, Some(Reason::TaskInvalid), "{}", x.message);
        let offer = world.offer(&scheduler, &f, &a, "cpus:0.5").await;
        assert_eq!(left(&offer).unwrap(), "cpus:0;mem:4096");
        world.update(&agent, &f, &a, "t", TaskState::Finished).await;
        let offer = world.offer(&scheduler, &f, &a, "cpus:0.5").await;
        assert_eq!(left(&offer).unwrap(), "cpus:3;mem:4096");
    });
}

/// S121: an executor is as long as the longest of its tasks.
// Covers S121.
#[test]
fn executor_counts_once_for_its_long_tasks() {
    simulate_world(|world| async move {
        let (_agent, a) = world.agent("host-1").await;
        let (scheduler, f) = world.framework("mpi", |_| {}).await;
        world.bound(None).await;
        let served = |mark: &str, name: &str, executor: &str| {
            let mut task = marked(mark, name, &a, "cpus:1");
            task.executor = Some(ExecutorInfo::new(
                ExecutorId::new(executor).unwrap(),
                task.command.take().unwrap(),
                resources("cpus:0.5;mem:32"),
            ));
            task
        };
        let offer = world.offer(&scheduler, &f, &a, "cpus:8;mem:1024").await;
        assert_eq!(left(&offer).unwrap(), "cpus:4;mem:4096");
        let tasks = vec![
            served("short", "s", "one"),
            served("long", "t", "one"),
            served("long", "u", "one"),
            marked("long", "w", &a, "cpus:0.1"),
            served("long", "v", "two"),
        ];
        world.tell(&scheduler, accept(&f, &[&offer], tasks)).await;
        let refused = scheduler.statuses();
        assert_eq!(refused.len(), 1, "{refused:?}");
        let expected = "task.resources is `cpus:1.5;mem:32`: expected at most the remaining amount for long tasks on its agent, cpus:1.4;mem:4064";
        assert_eq!(
            (refused[0].task_id.as_str(), &*refused[0].message),
            ("v", expected)
        );
    });
}

// Covers S121.
#[test]
fn unlabeled_task_is_revoked_after_its_maximum_run_time() {
    simulate_world(|world| async move {
        let (agent, a) = world.agent("host-1").await;
        let (scheduler, f) = world.framework("batch", |_| {}).await;
        world.bound(Some(SHORT_MAX)).await;
        let offer = world.offer(&scheduler, &f, &a, "cpus:8").await;
        let tasks = vec![
            task("t", &a, "cpus:1"),
            marked("long", "u", &a, "cpus:1"),
            marked("short", "v", &a, "cpus:1"),
            task("w", &a, "cpus:1"),
        ];
        world.tell(&scheduler, accept(&f, &[&offer], tasks)).await;
        for name in ["t", "u", "w"] {
            agent.tell(update(&agent.node, &f, &a, name, TaskState::Running));
        }
        world.pass(SHORT_MAX / 2).await;
        agent.tell(update(&agent.node, &f, &a, "v", TaskState::Running));
        world.update(&agent, &f, &a, "w", TaskState::Finished).await;
        agent.received();
        scheduler.received();
        world.pass(SHORT_MAX / 2 - 1).await;
        scheduler.receives("");
        world.pass(2).await;
        scheduler.receives("revoked t for nobody in 30s");
        world.pass(GRACE).await;
        agent.receives("kill t");
        world.pass(SHORT_MAX / 2).await;
        scheduler.receives("revoked v for nobody in 30s");
        world.update(&agent, &f, &a, "t", TaskState::Killed).await;
        let killed = ["t TASK_KILLED REASON_CONTAINER_PREEMPTED"];
        assert_eq!(scheduler.received(), killed);
    });
}

/// S121, S122: a spared task that has become overdue is revoked.
#[test]
fn spared_overdue_task_is_revoked_again() {
    simulate_world(|world| async move {
        let (agent, a) = world.agent("host-1").await;
        let (scheduler, f) = world.framework("batch", |_| {}).await;
        world.bound(Some(SHORT_MAX)).await;
        let offer = world.offer(&scheduler, &f, &a, "cpus:8").await;
        let tasks = vec![task("t", &a, "cpus:1")];
        world.tell(&scheduler, accept(&f, &[&offer], tasks)).await;
        agent.tell(update(&agent.node, &f, &a, "t", TaskState::Running));
        world.pass(SHORT_MAX - 10).await;
        let victims = vec![Victim {
            framework_id: f.clone(),
            task_id: TaskId::new("t").unwrap(),
            agent_id: a.clone(),
            role: "web".to_owned(),
        }];
        let grace = Duration::from_secs(GRACE);
        let named = VictimsNamed { victims, grace };
        world.node.tell(&world.master.pid(), named).unwrap();
        world.settle().await;
        world.pass(20).await;
        scheduler.received();
        let roles = Default::default();
        let lacking = StillLacking { roles };
        world.node.tell(&world.master.pid(), lacking).unwrap();
        world.settle().await;
        scheduler.receives("t TASK_RUNNING REASON_RECONCILIATION | revoked t for nobody in 30s");
        world.pass(GRACE).await;
        assert_eq!(agent.received().pop().unwrap(), "kill t");
    });
}

#[test]
fn reported_tasks_run_time_counts_from_the_election() {
    simulate_world(|world| async move {
        let (scheduler, f) = world.framework("batch", |_| {}).await;
        world.pass(SHORT_MAX / 2).await;
        let agent = world.member("host-1", "agent", Role::Agent).await;
        let id = AgentId::new("earlier-S1").unwrap();
        let mut brought = task("t", &id, "cpus:1");
        let star = ResourceRole::new("*").unwrap();
        brought.resources = brought.resources.allocate(&star);
        let tasks = vec![running(&f, brought, TaskState::Running)];
        register(&agent, Some(id), tasks).await.unwrap();
        world.bound(Some(SHORT_MAX)).await;
        scheduler.received();
        world.pass(SHORT_MAX / 2 - 2).await;
        scheduler.receives("");
        world.pass(4).await;
        scheduler.receives("revoked t for nobody in 30s");
        world.bound(None).await;
        world.pass(GRACE).await;
        // A warned task is still killed.
        agent.receives("kill t");
    });
}

#[test]
fn only_unreserved_resources_are_bounded() {
    simulate_world(|world| async move {
        let agent = world.member("host-1", "agent", Role::Agent).await;
        let mut message = registration(&agent, None, vec![]);
        message.agent.resources = resources("cpus:2;cpus(mpi):6;mem:512");
        let registered = agent.node.ask(&agent.master, message, PATIENCE).await;
        let a = registered.unwrap().unwrap().agent_id;
        let roles = |info: &mut FrameworkInfo| info.roles = ["mpi".to_owned()].into();
        let (scheduler, f) = world.framework("mpi", roles).await;
        world.bound(None).await;
        let role = ResourceRole::new("mpi").unwrap();
        let grant = Grant {
            role: role.to_string(),
            resources: resources("cpus:2;cpus(mpi):6").allocate(&role),
            ..grant(&f, &a, "cpus:2")
        };
        world.grant(vec![grant]).await;
        let offer = scheduler.offers().pop().unwrap();
        assert_eq!(left(&offer).unwrap(), "cpus:1;mem:256");
        let long = marked("long", "t", &a, "cpus:1;cpus(mpi):6");
        scheduler.tell(accept(&f, &[&offer], vec![long]));
        world.settle().await;
        assert_eq!(scheduler.statuses(), []);
        assert_eq!(agent.received().len(), 1);
    });
}
