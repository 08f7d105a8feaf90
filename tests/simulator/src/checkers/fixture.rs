//! Fixture: hand-made events for the unit tests of checkers.
//!
//! One framework `f` on node `framework-1`, one agent `a` on node `agent-1`, one `master`. All
//! other events are explicit.

use std::time::Duration;

use master::registry::{Applied, RegistryOperation, RegistryState};
use protocol::digest::{self, DigestKey, DigestSummary};
use protocol::message::executor::{ExecutorUpdated, SubscribeExecutor, UpdateStored};
use protocol::message::registration::{
    AgentInventory, AgentRegistered, InventoryReport, RegisterAgent, RegistrationRefused,
    ReregisterAgent, Reregistered, RunningTask,
};
use protocol::message::scheduler::{
    AcceptOffers, AcknowledgeStatus, DeclineOffers, OfferRescinded, OffersMade, StatusChanged,
    Subscribe, Subscribed, SubscriptionRefused,
};
use protocol::message::standby::{SchedulerElected, StandBy, StandbyReply, StandingBy};
use protocol::message::task::{RunTasks, TaskUpdated};
use protocol::{
    AgentId, AgentInfo, CommandInfo, ContainerId, ExecutorId, Filters, FrameworkId, FrameworkInfo,
    MasterInfo, Offer, OfferId, Operation, Source, StatusUpdate, TaskId, TaskInfo, TaskState,
    TaskStatus, Uuid,
};
use resources::{Resources, Revocable, Role as Tenant};
use runtime::{NodeId, Pid, Remote, Role, Timestamp};

use crate::checkers::checker::{Checker, Violation};
use crate::event::{Event, EventKind, RegistryCaller, SeenMessage};
use crate::linear::{RegistryAnswer, RegistryRequest};

/// A checker and the time.
pub struct Fixture<C> {
    pub checker: C,
    at: Duration,
    verdict: Result<(), Violation>,
}

pub fn framework() -> FrameworkId {
    FrameworkId::new("f").unwrap()
}

pub fn agent() -> AgentId {
    AgentId::new("a").unwrap()
}

/// A report of an agent without an id that has only these resources.
pub fn arrival(has: Resources) -> RegisterAgent {
    testkit::values::registration(AgentInfo::new("host", has), pid("agent-1"))
}

pub fn resources(text: &str) -> Resources {
    Resources::parse(text).unwrap()
}

pub fn seconds(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

pub fn pid(node: &str) -> Pid {
    Pid::new("someone", NodeId::new(node, 1), 0)
}

pub fn master() -> MasterInfo {
    testkit::values::master()
}

pub fn task(id: &str, needs: &str) -> TaskInfo {
    TaskInfo::new(TaskId::new(id).unwrap(), agent(), resources(needs))
        .with_command(CommandInfo::shell("true"))
}

pub fn offer(id: &str, framework: &str, what: &Resources) -> Offer {
    Offer {
        id: OfferId::new(id).unwrap(),
        framework_id: FrameworkId::new(framework).unwrap(),
        agent_id: agent(),
        hostname: String::new(),
        role: "*".to_owned(),
        resources: what.allocate(&Tenant::new("*").unwrap()),
        attributes: Default::default(),
        executor_ids: Vec::new(),
        unavailability: None,
        domain: None,
        endpoint: None,
    }
}

pub fn status(id: &str, state: TaskState, uuid: Option<u8>) -> TaskStatus {
    let id = TaskId::new(id).unwrap();
    let mut status = TaskStatus::new(id, state, Source::Executor, Timestamp::default());
    status.uuid = uuid.map(|byte| Uuid([byte; 16]));
    status.agent_id = Some(agent());
    status.container_id = Some(container());
    status
}

pub fn container() -> ContainerId {
    ContainerId::new("c").unwrap()
}

impl<C: Checker> Fixture<C> {
    /// With started nodes, the agent registered with `has`, and the framework subscribed.
    pub fn new(checker: C, has: &str) -> Self {
        let mut fixture = Self::bare(checker);
        fixture.register(has, "", Vec::new());
        fixture
    }

    /// With started nodes and the framework subscribed.
    pub fn bare(checker: C) -> Self {
        let mut fixture = Self {
            checker,
            at: Duration::ZERO,
            verdict: Ok(()),
        };
        for (node, role) in [
            ("master", Role::Master),
            ("agent-1", Role::Agent),
            ("framework-1", Role::Framework),
        ] {
            fixture.fact(EventKind::NodeStarted { node, role });
        }
        fixture.fact(EventKind::MasterBegan { node: "master" });
        fixture.subscribe("framework-1", FrameworkInfo::new("user", "f"));
        fixture
    }

    /// Lets time pass.
    pub fn wait(&mut self, time: Duration) -> &mut Self {
        self.at += time;
        self
    }

    pub fn fact(&mut self, what: EventKind<'_>) -> &mut Self {
        if self.verdict.is_ok() {
            self.verdict = self.checker.see(&Event {
                at: self.at,
                kind: what,
            });
        }
        self
    }

    /// The master's registry records this change.
    pub fn recorded(&mut self, operation: RegistryOperation) -> &mut Self {
        let applied = RegistryAnswer::Applied(Applied { version: 1 });
        self.asks_registry(&operation.into(), &applied)
    }

    /// The master reads this content of its registry.
    pub fn reads(&mut self, content: RegistryState) -> &mut Self {
        let content = RegistryAnswer::Content(content.into());
        self.asks_registry(&RegistryRequest::Read, &content)
    }

    fn asks_registry(&mut self, request: &RegistryRequest, answer: &RegistryAnswer) -> &mut Self {
        let (node, call, answer) = ("master", 1, Some(answer));
        self.fact(EventKind::RegistryRequested {
            node,
            by: RegistryCaller::Master,
            call,
            request,
        })
        .fact(EventKind::RegistryAnswered { node, call, answer })
    }

    pub fn sent<M: Remote>(&mut self, from: &str, to: &str, body: &M) -> &mut Self {
        self.fact(EventKind::Sent(observed(from, to, M::NAME, false, body)))
    }

    pub fn received<M: Remote>(&mut self, from: &str, to: &str, body: &M) -> &mut Self {
        self.fact(EventKind::Received(observed(
            from,
            to,
            M::NAME,
            false,
            body,
        )))
    }

    /// Sent and received at once.
    pub fn delivered<M: Remote>(&mut self, from: &str, to: &str, body: &M) -> &mut Self {
        self.sent(from, to, body).received(from, to, body)
    }

    /// The reply to a request `M` of `to`.
    pub fn replied<M: Remote>(&mut self, from: &str, to: &str, body: &M::Result) -> &mut Self {
        self.fact(EventKind::Sent(observed(from, to, M::NAME, true, body)))
            .fact(EventKind::Received(observed(from, to, M::NAME, true, body)))
    }

    pub fn register(&mut self, has: &str, lends: &str, tasks: Vec<RunningTask>) -> &mut Self {
        self.asks_to_register(has, lends, tasks).is_registered()
    }

    /// The agent sends a registration, unanswered.
    pub fn asks_to_register(
        &mut self,
        has: &str,
        lends: &str,
        tasks: Vec<RunningTask>,
    ) -> &mut Self {
        let lent = resources(lends).to_revocable(Revocable::Throttleable);
        let ask = RegisterAgent {
            held: AgentInventory {
                tasks,
                ..AgentInventory::default()
            },
            oversubscribed: lent.unwrap(),
            ..arrival(resources(has))
        };
        self.delivered("agent-1", "master", &ask)
    }

    /// Answers it.
    pub fn is_registered(&mut self) -> &mut Self {
        let welcome: Result<_, RegistrationRefused> = Ok(AgentRegistered {
            agent_id: agent(),
            master: master(),
            total_ping_timeout: seconds(75),
        });
        self.replied::<RegisterAgent>("master", "agent-1", &welcome)
    }

    /// Reregisters without tasks in the buckets of these tasks of `f`; the rest is reported in
    /// short.
    pub fn reregister(&mut self, has: &str, gone: &[&str]) -> &mut Self {
        let key = DigestKey::new([0; 16]);
        let mut printer = digest::Fingerprinter::new(key);
        let place = |task: &&str| printer.task_name_hash(&framework(), &TaskId::new(task).unwrap());
        let of = digest::BUCKETS_MAX;
        let mut differing: Vec<u32> = gone
            .iter()
            .map(place)
            .map(|place| digest::bucket(place, of))
            .collect();
        differing.sort_unstable();
        let report = InventoryReport {
            buckets: of as u32,
            differing,
            held: AgentInventory::default(),
        };
        let nothing = digest::Digest::default().summary(key);
        self.returns(has, nothing, Some(report))
    }

    /// Reregisters with the tasks that its master knows: one, or none.
    pub fn comes_back(&mut self, has: &str, running: bool) -> &mut Self {
        let mut summary = digest::Digest::default().summary(DigestKey::new([0; 16]));
        summary.items = u32::from(running);
        self.returns(has, summary, None)
    }

    fn returns(
        &mut self,
        has: &str,
        summary: DigestSummary,
        report: Option<InventoryReport>,
    ) -> &mut Self {
        let welcome: Result<_, RegistrationRefused> =
            Ok(Reregistered::Registered(AgentRegistered {
                agent_id: agent(),
                master: master(),
                total_ping_timeout: seconds(75),
            }));
        self.asks_to_return(has, summary, report)
            .replied::<ReregisterAgent>("master", "agent-1", &welcome)
    }

    /// The agent sends a reregistration, unanswered.
    pub fn asks_to_return(
        &mut self,
        has: &str,
        summary: DigestSummary,
        report: Option<InventoryReport>,
    ) -> &mut Self {
        let ask = ReregisterAgent {
            agent: AgentInfo {
                id: Some(agent()),
                ..AgentInfo::new("host", resources(has))
            },
            pid: pid("agent-1"),
            version: String::new(),
            summary,
            report,
            oversubscribed: Default::default(),
            resources: None,
            term_seen: 0,
        };
        self.delivered("agent-1", "master", &ask)
    }

    /// Subscribes the framework named as in `info` from that node.
    pub fn subscribe(&mut self, node: &str, info: FrameworkInfo) -> &mut Self {
        let framework_id = FrameworkId::new(&info.name).unwrap();
        let ask = Subscribe {
            framework: info,
            scheduler: pid(node),
            wants: Default::default(),
        };
        let welcome: Result<_, SubscriptionRefused> = Ok(Subscribed {
            framework_id,
            master: master(),
        });
        self.delivered(node, "master", &ask)
            .replied::<Subscribe>("master", node, &welcome)
    }

    /// A master of a group subscribes the scheduler of `f` on that node.
    pub fn welcomed_by(&mut self, name: &str, term: u64, node: &str) -> &mut Self {
        let ask = Subscribe {
            framework: FrameworkInfo::new("user", "f"),
            scheduler: pid(node),
            wants: Default::default(),
        };
        let welcome: Result<_, SubscriptionRefused> = Ok(Subscribed {
            framework_id: framework(),
            master: MasterInfo { term, ..master() },
        });
        self.delivered(node, name, &ask)
            .replied::<Subscribe>(name, node, &welcome)
    }

    /// A scheduler there asks to stand by for the framework `f`, unanswered.
    pub fn asks_to_stand_by(&mut self, node: &str) -> &mut Self {
        let ask = StandBy {
            framework: FrameworkInfo::new("user", "f"),
            scheduler: pid(node),
            wants: Default::default(),
        };
        self.delivered(node, "master", &ask)
    }

    /// Answers it.
    pub fn answered_that_it_stands_by(&mut self, node: &str) -> &mut Self {
        let (framework_id, master) = (framework(), master());
        let standing = StandingBy {
            framework_id,
            master,
        };
        let answer = Ok(StandbyReply::StandsBy(standing));
        self.replied::<StandBy>("master", node, &answer)
    }

    /// Tells it to lead.
    pub fn is_told_to_lead(&mut self, node: &str) -> &mut Self {
        let (framework_id, master) = (framework(), master());
        let subscribed = Subscribed {
            framework_id,
            master,
        };
        self.delivered("master", node, &SchedulerElected { subscribed })
    }

    /// The scheduler of `f` on that node subscribes, unanswered.
    pub fn asks_to_subscribe(&mut self, node: &str) -> &mut Self {
        let ask = Subscribe {
            framework: FrameworkInfo::new("user", "f"),
            scheduler: pid(node),
            wants: Default::default(),
        };
        self.delivered(node, "master", &ask)
    }

    /// The master makes offers, and the framework receives them.
    pub fn offers(&mut self, node: &str, offers: &[Offer]) -> &mut Self {
        let offers = offers.to_vec();
        self.delivered("master", node, &OffersMade { offers })
    }

    pub fn offers_text(&mut self, id: &str, what: &str) -> &mut Self {
        self.offers("framework-1", &[offer(id, "f", &resources(what))])
    }

    /// The master offers to the scheduler of this framework, which may have had several lives.
    pub fn offers_to(&mut self, scheduler: &Pid, id: &str, what: &str) -> &mut Self {
        let offers = vec![offer(id, "f", &resources(what))];
        let offers = OffersMade { offers };
        let node = scheduler.node().name().to_owned();
        for is_heard in [false, true] {
            let mut observed = observed("master", &node, OffersMade::NAME, false, &offers);
            observed.actor = Some(scheduler);
            self.fact(match is_heard {
                false => EventKind::Sent(observed),
                true => EventKind::Received(observed),
            });
        }
        self
    }

    /// The master sends to the scheduler that lived on that node in that epoch.
    pub fn speaks_to(&mut self, node: &str, epoch: u64) -> &mut Self {
        let actor = Pid::new("someone", NodeId::new(node, epoch), 0);
        let offers = OffersMade { offers: Vec::new() };
        let name = OffersMade::NAME;
        let mut observed = observed("master", node, name, false, &offers);
        observed.actor = Some(&actor);
        self.fact(EventKind::Sent(observed))
    }

    pub fn accepts(&mut self, node: &str, offers: &[&str], tasks: &[TaskInfo]) -> &mut Self {
        let call = AcceptOffers {
            framework_id: framework(),
            offer_ids: offer_ids(offers),
            operations: vec![Operation::Launch {
                tasks: tasks.to_vec(),
            }],
            filters: Filters::default(),
        };
        self.delivered(node, "master", &call)
    }

    pub fn declines(&mut self, offers: &[&str]) -> &mut Self {
        let call = DeclineOffers {
            framework_id: framework(),
            offer_ids: offer_ids(offers),
            filters: Filters::default(),
        };
        self.delivered("framework-1", "master", &call)
    }

    pub fn rescinds(&mut self, offer: &str) -> &mut Self {
        let offer_id = OfferId::new(offer).unwrap();
        self.delivered("master", "framework-1", &OfferRescinded { offer_id })
    }

    pub fn runs(&mut self, tasks: &[TaskInfo]) -> &mut Self {
        self.sends("master", tasks)
    }

    /// That master sends tasks to the agent.
    pub fn sends(&mut self, master: &str, tasks: &[TaskInfo]) -> &mut Self {
        let mut framework = FrameworkInfo::new("user", "f");
        framework.id = Some(self::framework());
        let tasks = tasks.to_vec();
        self.delivered(master, "agent-1", &RunTasks { framework, tasks })
    }

    /// The agent reports the end of the task to the master.
    pub fn task_ended(&mut self, id: &str) -> &mut Self {
        self.tells(&status(id, TaskState::Finished, Some(200)))
    }

    /// The agent sends this status to the master.
    pub fn tells(&mut self, status: &TaskStatus) -> &mut Self {
        let update = StatusUpdate {
            framework_id: framework(),
            latest_state: status.state,
            status: status.clone(),
        };
        let agent_id = agent();
        self.delivered("agent-1", "master", &TaskUpdated { agent_id, update })
    }

    /// The executor sends an update and the agent confirms it.
    pub fn stored(&mut self, status: &TaskStatus) -> &mut Self {
        let stored = UpdateStored {
            task_id: status.task_id.clone(),
            uuid: status.uuid.unwrap(),
        };
        let status = status.clone();
        self.delivered("executor-1", "agent-1", &ExecutorUpdated { status })
            .delivered("agent-1", "executor-1", &stored)
    }

    pub fn executor_subscribes(&mut self) -> &mut Self {
        let subscribe = SubscribeExecutor {
            framework_id: framework(),
            executor_id: ExecutorId::new("e").unwrap(),
            container_id: container(),
            token: String::new(),
            pid: pid("executor-1"),
        };
        self.delivered("executor-1", "agent-1", &subscribe)
    }

    pub fn acknowledges(&mut self, status: &TaskStatus) -> &mut Self {
        let call = AcknowledgeStatus {
            framework_id: framework(),
            agent_id: agent(),
            task_id: status.task_id.clone(),
            uuid: status.uuid.unwrap(),
        };
        self.delivered("framework-1", "master", &call)
    }

    pub fn changed(&mut self, status: &TaskStatus) -> &mut Self {
        let status = status.clone();
        self.delivered("master", "framework-1", &StatusChanged { status })
    }

    /// No violation, with at least one judgement.
    pub fn is_clean(&mut self) {
        let at = self.at;
        assert_eq!(self.verdict, Ok(()));
        assert_eq!(self.checker.finish(at), Ok(()));
        assert!(self.checker.judgements() > 0, "it has judged nothing");
    }

    /// A violation whose text contains this.
    pub fn is_broken(&mut self, words: &str) {
        let at = self.at;
        let verdict = self.verdict.clone().and_then(|()| {
            let waited = self.checker.is_waiting(at);
            let judged = self.checker.finish(at);
            // A violation at the start needs no waiting.
            let found = judged.is_ok() || waited || at.is_zero();
            assert!(found, "the recovery would not wait: {judged:?}");
            judged
        });
        let violation = verdict.expect_err("it has found nothing");
        assert!(violation.what.contains(words), "{violation}");
    }
}

fn offer_ids(ids: &[&str]) -> Vec<OfferId> {
    ids.iter().map(|id| OfferId::new(id).unwrap()).collect()
}

fn observed<'a>(
    from: &'a str,
    to: &'a str,
    name: &'static str,
    reply: bool,
    body: &'a dyn std::any::Any,
) -> SeenMessage<'a> {
    SeenMessage {
        from,
        to,
        actor: None,
        name,
        reply,
        body,
        body_type: body.type_id(),
    }
}
