//! Calls that come over HTTP: whose they are, and what drivers cannot say.

use resources::Invalid;
use v1::convert::scheduler::{Accepted, Meaningless, Nameless, Said};

use super::*;

impl World {
    /// The page tells this call of the framework's scheduler.
    async fn http(&self, scheduler: &Member, framework: &FrameworkId, said: Said) {
        let call = HttpCall {
            scheduler: scheduler.pid.clone(),
            framework_id: framework.clone(),
            said,
        };
        self.master.tell(call).unwrap();
        self.settle().await;
    }
}

fn invalid() -> Invalid {
    Invalid::new("container.type", "DOCKER", "MESOS")
}

/// A task that asks for what is not served, on that agent.
fn meaningless(id: &str, agent: &str, reason: Reason) -> Meaningless {
    Meaningless {
        task_id: TaskId::new(id).unwrap(),
        name: format!("the {id} one"),
        agent_id: AgentId::new(agent).ok(),
        reason,
        message: invalid().to_string(),
    }
}

/// SPEC 2.2 ACCEPT: a bad task is told as TASK_ERROR, and the others go on.
#[test]
fn what_has_no_meaning_here_is_told_as_an_error_and_the_rest_goes_on() {
    rehearse_network(|network| async move {
        let world = World::new(network, Config::default()).await;
        let (agent, a) = world.agent("agent-1").await;
        let (scheduler, f) = world.framework("web", |_| ()).await;
        let offer = world.offer(&scheduler, &f, &a, "cpus:8;mem:8192").await;
        scheduler.heard();
        let accepted = Accepted {
            offers: accept(&f, &[&offer], vec![task("good", &a, "cpus:1;mem:64")]),
            tasks: vec![
                meaningless("bad", a.as_str(), Reason::TaskInvalid),
                meaningless("pod", "elsewhere", Reason::TaskGroupInvalid),
            ],
            operations: vec![(OperationId::new("disk").unwrap(), invalid())],
            nameless: Some(Nameless {
                count: 3,
                first: invalid(),
            }),
            invalid_offer: None,
        };
        world.http(&scheduler, &f, Said::Accept(accepted)).await;
        let ran = agent.heard().pop().unwrap();
        assert!(ran.starts_with("run good="), "{ran}");
        assert_eq!(
            scheduler.heard(),
            [
                "bad TASK_ERROR REASON_TASK_INVALID",
                "pod TASK_ERROR REASON_TASK_GROUP_INVALID",
                "disk OPERATION_ERROR"
            ]
        );
        let status = scheduler.statuses().pop().unwrap();
        assert_eq!(status.agent_id.as_ref(), Some(&a));
        assert!(
            status.message.contains("container.type is `DOCKER`"),
            "{}",
            status.message
        );
        assert_eq!(status.uuid, None, "nobody acknowledges it");
        let books = world.books().await;
        assert_eq!(books.counters.get("master/operations/error"), 1);
        assert_eq!(books.counters.get("master/operations_nameless"), 3);
        // It is remembered as any other that was refused, and whoever asks hears the same again.
        let of = books.tasks.of_framework(&f).unwrap();
        let completed = of.completed();
        let completed: Vec<_> = completed
            .map(|task| (&*task.name, &task.agent_id))
            .collect();
        assert_eq!(completed, [("the bad one", &a), ("the pod one", &a)]);
        let asked = ReconcileTasks {
            framework_id: f.clone(),
            tasks: vec![(TaskId::new("bad").unwrap(), Some(a.clone()))],
        };
        world.http(&scheduler, &f, Said::Reconcile(asked)).await;
        assert_eq!(scheduler.heard(), ["bad TASK_ERROR REASON_RECONCILIATION"]);
    });
}

/// SPEC 2.2 ACCEPT, 3.13: one bad offer voids the whole call, whatever else is wrong in it.
#[test]
fn where_an_offer_is_void_what_has_no_meaning_is_told_so_too() {
    rehearse_network(|network| async move {
        let world = World::new(network, Config::default()).await;
        let (_agent, a) = world.agent("agent-1").await;
        let (scheduler, f) = world.framework("web", |_| ()).await;
        let offer = world.offer(&scheduler, &f, &a, "cpus:8;mem:8192").await;
        scheduler.heard();
        let mut gone = offer.clone();
        gone.id = protocol::OfferId::new(format!("{}0", offer.id)).unwrap();
        let tasks = vec![task("good", &a, "cpus:1;mem:64")];
        let accepted = Accepted {
            offers: accept(&f, &[&offer, &gone], tasks),
            tasks: vec![
                meaningless("bad", a.as_str(), Reason::TaskInvalid),
                meaningless("nowhere", "", Reason::TaskInvalid),
            ],
            operations: Vec::new(),
            nameless: None,
            invalid_offer: None,
        };
        world.http(&scheduler, &f, Said::Accept(accepted)).await;
        let heard = scheduler.heard();
        let told = |task: &str| {
            let line = heard.iter().find_map(|line| line.strip_prefix(task));
            line.unwrap_or_else(|| panic!("{heard:?}")).to_owned()
        };
        assert_eq!(told("bad "), told("good "));
        assert!(told("bad ").ends_with("REASON_INVALID_OFFERS"), "{heard:?}");
        assert_eq!(told("nowhere "), told("good "));
        // Where they were to run is said of each that says so.
        let agents = scheduler.statuses().into_iter();
        let agents: Vec<_> = agents.map(|status| status.agent_id).collect();
        assert_eq!(agents, [Some(a.clone()), Some(a), None]);
    });
}

/// SPEC 2.2 SHUTDOWN.
#[test]
fn an_executor_is_ended_by_its_agent_if_that_is_there() {
    rehearse_network(|network| async move {
        let world = World::new(network, Config::default()).await;
        let (agent, a) = world.agent("agent-1").await;
        let (scheduler, f) = world.framework("web", |_| ()).await;
        let executor = || ExecutorId::new("e").unwrap();
        agent.heard();
        let said = Said::Shutdown(a.clone(), executor());
        world.http(&scheduler, &f, said).await;
        assert_eq!(agent.heard(), ["end e"]);
        let nowhere = AgentId::new("nowhere").unwrap();
        world
            .http(&scheduler, &f, Said::Shutdown(nowhere, executor()))
            .await;
        assert_eq!(agent.heard(), Vec::<String>::new());
        let books = world.books().await;
        assert_eq!(books.counters.get("master/dropped_messages"), 1);
    });
}

/// SPEC 3.13, scheduler failover.
#[test]
fn a_scheduler_that_was_replaced_says_nothing_any_more() {
    rehearse_network(|network| async move {
        let world = World::new(network, Config::default()).await;
        let (old, f) = world
            .framework("web", |info| info.failover_timeout = PATIENCE)
            .await;
        let mut info = FrameworkInfo::new("nobody", "web");
        info.id = Some(f.clone());
        let new = world.member("web-2", "scheduler", Role::Framework).await;
        subscribe(&new, info).await.unwrap();
        let tear_down = || {
            Said::TearDown(TearDown {
                framework_id: f.clone(),
            })
        };
        world.http(&old, &f, tear_down()).await;
        let books = world.books().await;
        assert!(books.frameworks.get(&f).is_some());
        assert_eq!(books.counters.get("master/dropped_messages"), 1);
        let update = HttpUpdate {
            scheduler: old.pid.clone(),
            update: UpdateFramework {
                framework_id: f.clone(),
                framework: books.frameworks.get(&f).unwrap().info.clone(),
                wants: Default::default(),
            },
            became: Box::new(|| panic!("it is not that")),
        };
        let late = world.master.ask(update, PATIENCE).await.unwrap();
        let expected = "one that this scheduler speaks for and that is not over";
        let words = format!("framework_id is `{f}`: expected {expected}");
        assert_eq!(late, Err(NotUpdated::Overtaken(words)));
        world.http(&new, &f, tear_down()).await;
        assert!(world.books().await.frameworks.get(&f).is_none());
        assert_eq!(
            new.heard().pop().unwrap(),
            "failed Framework has been removed"
        );
    });
}
