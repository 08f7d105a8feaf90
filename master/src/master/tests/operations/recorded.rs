//! What the registry has of operations, and what comes of them when somebody falls.

use super::*;
use crate::registry::RegistryError;

fn seconds(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

fn launch(id: &str, agent: &AgentId) -> Operation {
    let tasks = vec![task(id, agent, "cpus:1")];
    Operation::Launch { tasks }
}

impl Story {
    /// The serials of what the registry has.
    fn recorded(&self) -> Vec<u64> {
        let state = self.world.whims.state();
        state.accepted.iter().map(|(_, serial, _)| serial).collect()
    }

    fn settled(&self, serial: u64) -> OperationsSettled {
        OperationsSettled {
            agent_id: self.agent_id.clone(),
            serial,
        }
    }

    /// A registration of an agent that comes back with this, all up to that serial being over.
    fn back(&self, total: Resources, number: u8, settled: u64) -> RegisterAgent {
        let mut back = keeping(&self.agent, Some(self.agent_id.clone()), total, number);
        back.resources.as_mut().unwrap().settled = Some(settled);
        back
    }

    /// The agent comes back as one of an earlier Meros, which knows no serials. Gives an offer of it.
    async fn offer_of_older_agent(&self) -> Offer {
        let total = resources("cpus:8;mem:8192;disk:100");
        let mut older = self.back(total, 2, 0);
        older.resources.as_mut().unwrap().settled = None;
        comes(&self.agent, older).await;
        self.offer(resources("cpus:4")).await
    }

    async fn reconcile(&self) -> Vec<String> {
        self.scheduler.say(ReconcileOperations {
            framework_id: self.id.clone(),
            operations: vec![],
        });
        self.world.settle().await;
        self.scheduler.heard()
    }

    /// The master's machine dies, and the next one knows what the registry has. The framework is subscribed there; the agent is not back.
    async fn next(mut self) -> Self {
        self.world = self.world.next().await;
        let find = |node: Node| async move { node.find("master", "master", PATIENCE).await };
        self.agent.master = find(self.agent.node.clone()).await.unwrap();
        self.scheduler.master = find(self.scheduler.node.clone()).await.unwrap();
        let mut info = FrameworkInfo::new("nobody", "ads");
        advertiser(&mut info);
        info.failover_timeout = seconds(3600);
        info.id = Some(self.id.clone());
        subscribe(&self.scheduler, info).await.unwrap();
        self.scheduler.heard();
        self.agent.heard();
        self
    }
}

/// A framework that outlives a master.
fn lasting(info: &mut FrameworkInfo) {
    advertiser(info);
    info.failover_timeout = seconds(3600);
}

#[test]
fn an_agent_hears_of_an_operation_when_the_registry_has_it_and_of_nothing_later_before_it() {
    rehearse_network(|network| async move {
        let story = Story::begin(network).await;
        let offer = story.offer(resources("cpus:4")).await;
        let before = story.world.whims.asked().len();
        story.world.whims.delay(seconds(1));
        let steps = vec![
            launch("t0", &story.agent_id),
            named("a", reserve("cpus:1")),
            named("b", reserve("cpus:1")),
            launch("t1", &story.agent_id),
        ];
        story.accept(&[&offer], steps).await;
        let heard = story.agent.heard();
        assert!(heard.len() == 1 && heard[0].starts_with("run t0="));
        assert_eq!(story.recorded(), [0_u64; 0]);
        let pending = ["a OPERATION_PENDING", "b OPERATION_PENDING"];
        assert_eq!(story.reconcile().await, pending);
        story.scheduler.say(KillTask {
            framework_id: story.id.clone(),
            task_id: TaskId::new("t1").unwrap(),
            agent_id: None,
            kill_policy: None,
        });
        story.world.pass(1).await;
        let heard = story.agent.heard();
        assert_eq!(heard[..2], ["apply reserve to 1", "apply reserve to 1"]);
        assert!(heard[2].starts_with("run t1="), "{heard:?}");
        assert_eq!(heard[3..], ["kill t1"]);
        assert_eq!(story.recorded(), [1, 2]);
        let asked = story.world.whims.asked().len() - before;
        assert_eq!(asked, 1, "those of one accept are one change");
        // Without an operation nothing waits.
        let offer = story.offer(resources("cpus:1")).await;
        let tasks = vec![launch("t2", &story.agent_id)];
        story.accept(&[&offer], tasks).await;
        assert_eq!(story.agent.heard().len(), 1);
    });
}

#[test]
fn what_its_agent_has_done_the_registry_forgets() {
    rehearse_network(|network| async move {
        let story = Story::begin(network).await;
        let offer = story.offer(resources("cpus:4")).await;
        let steps = vec![
            Operation::convert(reserve("cpus:1")),
            named("named", reserve("cpus:1")),
        ];
        story.accept(&[&offer], steps).await;
        assert_eq!(story.recorded(), [1, 2]);
        story.agent.tell(story.settled(1));
        story.world.settle().await;
        assert_eq!(story.recorded(), [2]);
        story
            .agent
            .tell(story.updated("named", OperationState::Finished));
        story.agent.tell(story.settled(2));
        story.world.settle().await;
        assert_eq!(story.scheduler.heard(), ["named OPERATION_FINISHED"]);
        assert_eq!(story.recorded(), [0_u64; 0]);
    });
}

/// A later master must not send what is said to have failed.
#[test]
fn what_has_failed_is_told_when_the_registry_has_forgotten_it_and_once() {
    rehearse_network(|network| async move {
        let story = Story::begin(network).await;
        let offer = story.offer(resources("cpus:4")).await;
        let steps = vec![named("op", reserve("cpus:1"))];
        story.accept(&[&offer], steps).await;
        story.world.whims.delay(seconds(1));
        let failed = || story.updated("op", OperationState::Failed);
        story.agent.tell(failed());
        story.agent.tell(failed());
        story.world.settle().await;
        assert_eq!(story.scheduler.heard(), [""; 0]);
        assert_eq!(story.reconcile().await, ["op OPERATION_PENDING"]);
        story.world.pass(1).await;
        assert_eq!(story.scheduler.heard(), ["op OPERATION_FAILED"]);
        assert_eq!(story.recorded(), [0_u64; 0]);
        // Until it is acknowledged its agent sends it, and it is passed on.
        story.agent.tell(failed());
        story.world.settle().await;
        assert_eq!(story.scheduler.heard(), ["op OPERATION_FAILED"]);
    });
}

#[test]
fn what_the_registry_does_not_take_its_agent_never_hears_of_nor_of_what_was_built_upon_it() {
    rehearse_network(|network| async move {
        let story = Story::begin(network).await;
        let offer = story.offer(resources("cpus:4")).await;
        let reason = "busy".to_owned();
        story.world.whims.refuse(RegistryError::NotNow { reason });
        let steps = vec![named("op", reserve("cpus:1")), launch("t", &story.agent_id)];
        story.accept(&[&offer], steps).await;
        let heard = story.scheduler.heard();
        let expected = [
            "op OPERATION_DROPPED",
            "t TASK_LOST REASON_SLAVE_DISCONNECTED",
        ];
        assert_eq!(heard, expected);
        assert_eq!(story.agent.heard(), ["register again"]);
        assert_eq!(story.recorded(), [0_u64; 0]);
        let total = resources("cpus:8;mem:8192;disk:100");
        comes(&story.agent, story.back(total.clone(), 2, 0)).await;
        assert_eq!(story.total().await, total);

        let reason = "too large".to_owned();
        story.world.whims.refuse(RegistryError::Refused { reason });
        let refused = story.operate(reserve("cpus:1")).await.unwrap_err();
        assert!(refused.to_string().contains("too large"), "{refused}");
    });
}

#[test]
fn who_leads_no_more_when_it_records_an_operation_tells_nobody_of_it() {
    rehearse_network(|network| async move {
        let story = Story::begin(network).await;
        let offer = story.offer(resources("cpus:4")).await;
        story.world.whims.refuse(RegistryError::LostLeadership);
        let steps = vec![named("op", reserve("cpus:1")), launch("t", &story.agent_id)];
        story.accept(&[&offer], steps).await;
        assert_eq!(
            (story.agent.heard(), story.scheduler.heard()),
            Default::default()
        );
    });
}

#[test]
fn an_operator_is_answered_when_the_registry_has_the_operation() {
    rehearse_network(|network| async move {
        let story = Story::begin(network).await;
        story.world.whims.delay(seconds(3));
        let clock = story.world.node.clock();
        let asked = clock.now();
        story.operate(reserve("cpus:1")).await.unwrap();
        assert!(clock.now() - asked >= seconds(3));
        assert_eq!(story.recorded(), [1]);
        story.world.settle().await;
        assert_eq!(story.agent.heard(), ["apply reserve to 1"]);
    });
}

/// DESIGN 5: on re-registration the agent applies accepted ones that it has not seen, in order.
#[test]
fn the_next_master_sends_what_its_agent_has_not_seen_and_until_then_it_is_pending() {
    rehearse_network(|network| async move {
        let story = Story::with(network, lasting).await;
        let offer = story.offer(resources("cpus:4")).await;
        let steps = vec![
            named("seen", reserve("cpus:1")),
            named("lost", reserve("cpus:2")),
            named("next", reserve("cpus:1")),
        ];
        story.accept(&[&offer], steps).await;
        // The first master falls before the agent has heard of the others.
        let story = story.next().await;
        let pending = ["lost", "next", "seen"].map(|id| format!("{id} OPERATION_PENDING"));
        assert_eq!(story.reconcile().await, pending);
        let has = resources("cpus:7;mem:8192;disk:100") + reserved("cpus:1");
        let mut back = story.back(has, 2, 1);
        let seen = story.updated("seen", OperationState::Finished);
        let told = &mut back.resources.as_mut().unwrap().operations;
        told.push(seen.update.clone());
        comes(&story.agent, back).await;
        story.world.settle().await;
        let again = ["apply reserve to 2", "apply reserve to 2"];
        assert_eq!(story.agent.heard(), again);
        let total = resources("cpus:4;mem:8192;disk:100") + reserved("cpus:4");
        assert_eq!(story.total().await, total);
        assert_eq!(story.scheduler.heard(), [""; 0]);
        story.agent.tell(seen);
        for (id, serial) in [("lost", 2), ("next", 3)] {
            story
                .agent
                .tell(story.updated(id, OperationState::Finished));
            story.agent.tell(story.settled(serial));
        }
        story.world.settle().await;
        let finished = ["seen", "lost", "next"].map(|id| format!("{id} OPERATION_FINISHED"));
        assert_eq!(story.scheduler.heard(), finished);
        assert_eq!(story.recorded(), [0_u64; 0]);
    });
}

#[test]
fn what_cannot_be_done_any_more_is_dropped_and_what_was_acknowledged_is_finished() {
    rehearse_network(|network| async move {
        let story = Story::with(network, lasting).await;
        let offer = story.offer(resources("cpus:8")).await;
        let steps = vec![
            named("done", reserve("cpus:1")),
            named("lost", reserve("cpus:7")),
        ];
        story.accept(&[&offer], steps).await;
        let story = story.next().await;
        // It has said how the first went, and that was acknowledged; somebody has taken something else.
        let other = Reservation::dynamic(ResourceRole::new("web").unwrap(), None);
        let others = resources("cpus:2").push_reservation(&other).unwrap();
        let has = resources("cpus:5;mem:8192;disk:100") + reserved("cpus:1") + others;
        comes(&story.agent, story.back(has.clone(), 2, 1)).await;
        story.world.settle().await;
        let expected = ["done OPERATION_FINISHED", "lost OPERATION_DROPPED"];
        assert_eq!(story.scheduler.heard(), expected);
        assert_eq!(story.agent.heard(), [""; 0]);
        assert_eq!((story.total().await, story.recorded()), (has, vec![]));
    });
}

/// S132: the driver says again what an earlier master may not have heard.
#[test]
fn an_accept_that_is_said_again_to_the_next_master_voids_no_operation_that_the_registry_has() {
    rehearse_network(|network| async move {
        let story = Story::with(network, lasting).await;
        let offer = story.offer(resources("cpus:4")).await;
        let steps = || vec![named("op", reserve("cpus:1")), launch("t", &story.agent_id)];
        story.accept(&[&offer], steps()).await;
        let steps = steps();
        let story = story.next().await;
        story.accept(&[&offer], steps).await;
        let heard = story.scheduler.heard();
        assert_eq!(heard, ["op OPERATION_PENDING"]);
    });
}

/// Found by a rehearsal of a group (seed 16779): it was done and forgotten, its framework heard ERROR, and FINISHED once the agent was back.
#[test]
fn an_accept_that_is_said_again_voids_no_operation_of_an_agent_that_is_not_back() {
    rehearse_network(|network| async move {
        let story = Story::with(network, lasting).await;
        let offer = story.offer(resources("cpus:4")).await;
        let story = story.next().await;
        let op = || named("op", reserve("cpus:1"));
        story.accept(&[&offer], vec![op()]).await;
        assert_eq!(story.scheduler.heard(), ["op OPERATION_RECOVERING"]);
        let steps = vec![op(), launch("t", &story.agent_id)];
        story.accept(&[&offer], steps).await;
        assert_eq!(story.scheduler.heard(), ["op OPERATION_RECOVERING"]);
        let elsewhere = AgentId::new("elsewhere").unwrap();
        let steps = vec![op(), launch("u", &elsewhere)];
        story.accept(&[&offer], steps).await;
        let heard = story.scheduler.heard();
        assert_eq!(heard[0], "op OPERATION_ERROR", "there is no such agent");
        let total = resources("cpus:8;mem:8192;disk:100");
        comes(&story.agent, story.back(total, 2, 0)).await;
        story.accept(&[&offer], vec![op()]).await;
        assert_eq!(story.scheduler.heard(), ["op OPERATION_ERROR"]);
    });
}

#[test]
fn an_agent_that_registers_while_the_registry_writes_hears_of_the_operation_after_that() {
    rehearse_network(|network| async move {
        let story = Story::begin(network).await;
        let offer = story.offer(resources("cpus:4")).await;
        story.world.whims.delay(seconds(1));
        let steps = vec![named("op", reserve("cpus:1")), launch("t", &story.agent_id)];
        story.accept(&[&offer], steps).await;
        let total = resources("cpus:8;mem:8192;disk:100");
        comes(&story.agent, story.back(total, 2, 0)).await;
        story.world.settle().await;
        assert_eq!(
            story.agent.heard(),
            ["disown t"],
            "the task was lost with the line"
        );
        let heard = story.scheduler.heard();
        assert!(
            heard.len() == 1 && heard[0].starts_with("t TASK_LOST"),
            "{heard:?}"
        );
        story.world.pass(1).await;
        assert_eq!(story.agent.heard(), ["apply reserve to 2"]);
        let expected = resources("cpus:7;mem:8192;disk:100") + reserved("cpus:1");
        assert_eq!(story.total().await, expected);
        let facts = story.world.allocator();
        assert_eq!(facts.last().unwrap(), "agent S0 used []");
    });
}

#[test]
fn what_was_built_upon_what_an_agent_has_not_done_is_dropped() {
    rehearse_network(|network| async move {
        let story = Story::begin(network).await;
        let offer = story.offer(resources("cpus:4;disk:100")).await;
        let steps = vec![
            named("first", reserve("disk:10")),
            named(
                "second",
                Conversion::Create {
                    volumes: volume("v", 10).into(),
                },
            ),
        ];
        story.accept(&[&offer], steps).await;
        story.agent.tell(ResourcesReported {
            agent_id: story.agent_id.clone(),
            resources: AgentResources {
                version: version(2),
                total: resources("cpus:8;mem:8192;disk:100"),
                operations: vec![],
                settled: Some(1),
            },
        });
        story
            .agent
            .tell(story.updated("first", OperationState::Failed));
        story.agent.tell(story.settled(1));
        story.world.settle().await;
        let heard: BTreeSet<String> = story.scheduler.heard().into_iter().collect();
        let expected = ["first OPERATION_FAILED", "second OPERATION_DROPPED"];
        assert_eq!(heard, expected.map(str::to_owned).into());
        assert_eq!(story.recorded(), [0_u64; 0]);
    });
}

#[test]
fn an_agent_that_is_gone_takes_what_it_was_to_do_with_it() {
    rehearse_network(|network| async move {
        let story = Story::begin(network).await;
        let offer = story.offer(resources("cpus:4")).await;
        let steps = vec![named("op", reserve("cpus:1"))];
        story.accept(&[&offer], steps).await;
        assert_eq!(story.recorded(), [1]);
        let agent_id = story.agent_id.clone();
        let gone = protocol::message::operator::MarkAgentGone { agent_id };
        let marked = story.world.master.ask(gone, PATIENCE).await.unwrap();
        marked.unwrap();
        story.world.settle().await;
        let heard = story.scheduler.heard();
        let told = "op OPERATION_GONE_BY_OPERATOR".to_owned();
        assert!(heard.contains(&told), "{heard:?}");
        assert_eq!(story.recorded(), [0_u64; 0]);
    });
}

/// One of an earlier Meros would never say that it is over.
#[test]
fn an_agent_that_knows_no_serials_is_sent_an_operation_once_and_the_registry_forgets_it() {
    rehearse_network(|network| async move {
        let story = Story::begin(network).await;
        let offer = story.offer_of_older_agent().await;
        let steps = vec![named("op", reserve("cpus:1"))];
        story.accept(&[&offer], steps).await;
        assert_eq!(story.agent.heard(), ["apply reserve to 2"]);
        assert_eq!(story.recorded(), [0_u64; 0]);
        story
            .agent
            .tell(story.updated("op", OperationState::Failed));
        story.world.settle().await;
        assert_eq!(story.scheduler.heard(), ["op OPERATION_FAILED"]);
    });
}

/// Nor is it said again only because its agent was quicker than the registry.
#[test]
fn what_an_agent_without_serials_says_of_a_failure_waits_for_the_registry_and_is_told() {
    rehearse_network(|network| async move {
        let story = Story::begin(network).await;
        let offer = story.offer_of_older_agent().await;
        story.world.whims.delay(seconds(1));
        let steps = vec![named("op", reserve("cpus:1"))];
        story.accept(&[&offer], steps).await;
        story.world.pass(1).await;
        assert_eq!(story.agent.heard(), ["apply reserve to 2"]);
        let failed = story.updated("op", OperationState::Failed);
        story.agent.tell(failed);
        story.world.settle().await;
        assert_eq!(
            story.scheduler.heard(),
            [""; 0],
            "the registry has it still"
        );
        story.world.pass(1).await;
        assert_eq!(story.scheduler.heard(), ["op OPERATION_FAILED"]);
    });
}

/// DESIGN 10.7: found by a rehearsal of a group (seed 209): a framework had heard that its operation was done, its leader fell before the
/// registry had forgotten it, and the next one told that it went with its agent.
#[test]
fn that_an_operation_is_done_is_told_when_no_next_leader_can_tell_otherwise() {
    rehearse_network(|network| async move {
        let story = Story::begin(network).await;
        let offer = story.offer(resources("cpus:4")).await;
        let steps = vec![named("op", reserve("cpus:1"))];
        story.accept(&[&offer], steps).await;
        story.world.whims.delay(seconds(1));
        let finished = || story.updated("op", OperationState::Finished);
        story.agent.tell(finished());
        story.agent.tell(story.settled(1));
        story.agent.tell(finished());
        story.world.settle().await;
        assert_eq!(story.scheduler.heard(), [""; 0]);
        story.world.pass(1).await;
        assert_eq!(story.scheduler.heard(), ["op OPERATION_FINISHED"]);
        story.agent.tell(finished());
        story.world.settle().await;
        assert_eq!(
            story.scheduler.heard(),
            ["op OPERATION_FINISHED"],
            "its agent says it until it is acknowledged"
        );
    });
}

/// A framework may ask for one after the other of an agent that is stuck, or for ever lets one wait.
#[test]
fn what_waits_on_one_agent_keeps_no_operation_from_another() {
    rehearse_network(|network| async move {
        let mut story = Story::begin(network).await;
        let share = crate::registry::ACCEPTED_MAX / 10;
        for _ in 0..share {
            story.operate(reserve("cpus:0.001")).await.unwrap();
        }
        let refused = story.operate(reserve("cpus:0.001")).await.unwrap_err();
        let expected = format!("fewer than {share} operations under way on the agent");
        assert!(refused.to_string().contains(&expected), "{refused}");

        let other = story.world.member("other", "agent", Role::Agent).await;
        let total = resources("cpus:8;mem:8192;disk:100");
        let stuck = story.agent_id.clone();
        story.agent_id = comes(&other, keeping(&other, None, total, 1)).await;
        story.operate(reserve("cpus:0.001")).await.unwrap();

        // And as soon as one is over, there is room for one.
        story.agent_id = stuck;
        story.agent.say(story.settled(1));
        story.world.settle().await;
        story.operate(reserve("cpus:0.001")).await.unwrap();
        story.operate(reserve("cpus:0.001")).await.unwrap_err();
    });
}
