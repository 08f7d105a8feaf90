//! Operations of frameworks and operators, from the accept to the acknowledgement (SPEC 3.5; S91).
//!
//! | module | contents |
//! |---|---|
//! | `counting` | counters of operations |
//! | `groups` | task groups among the operations of one accept |
//! | `operators` | operators' operations on agents |
//! | `recorded` | recorded operations, and crashes |
//! | `resizing` | GROW_VOLUME and SHRINK_VOLUME |
//! | `sharing` | shared volumes in the tasks of one accept |

mod counting;
mod groups;
mod operators;
mod recorded;
mod resizing;
mod sharing;

use resources::{
    Annotations, Conversion, DiskInfo, Label, Labels, Name, Reservation, Resource, Revocable,
    Scalar,
};

use super::*;

fn ads() -> ResourceRole {
    ResourceRole::new("ads").unwrap()
}

fn reserved(text: &str) -> Resources {
    let entry = Reservation::dynamic(ads(), Some("ops"));
    resources(text).push_reservation(&entry).unwrap()
}

fn reserve(text: &str) -> Conversion {
    let resources = reserved(text);
    Conversion::Reserve { resources }
}

fn volume(id: &str, size: u32) -> Resource {
    let annotations = Annotations {
        reservations: vec![Reservation::dynamic(ads(), Some("ops"))],
        disk: Some(Box::new(DiskInfo::persistent(id, Some("ops"), "data"))),
        ..Annotations::default()
    };
    Resource::annotated(Name::Disk, Scalar::whole(size), annotations).unwrap()
}

fn shared(id: &str, size: u32) -> Resource {
    let mut annotations = volume(id, size).annotations().clone();
    annotations.shared = true;
    Resource::annotated(Name::Disk, Scalar::whole(size), annotations).unwrap()
}

fn named(id: &str, conversion: Conversion) -> Operation {
    Operation::Convert {
        id: Some(OperationId::new(id).unwrap()),
        conversion,
    }
}

fn version(number: u8) -> Uuid {
    Uuid([number; 16])
}

/// A registration of an agent that keeps operations, and has this.
fn keeping(agent: &Member, id: Option<AgentId>, total: Resources, number: u8) -> RegisterAgent {
    let mut message = registration(agent, id, vec![]);
    message.agent.resources = resources("cpus:8;mem:8192;disk:100");
    message.resources = Some(AgentResources {
        version: version(number),
        total,
        operations: Vec::new(),
        settled: Some(0),
    });
    message
}

async fn comes(agent: &Member, message: RegisterAgent) -> AgentId {
    let answer = agent.node.ask(&agent.master, message, PATIENCE).await;
    answer.unwrap().unwrap().agent_id
}

/// A framework in role `ads` that signs as `ops`.
fn advertiser(info: &mut FrameworkInfo) {
    info.roles = ["ads".to_owned()].into();
    info.principal = Some("ops".to_owned());
}

/// A world with one agent that keeps operations and one framework of role `ads`, after all initial
/// messages.
struct Scenario {
    world: World,
    agent: Member,
    agent_id: AgentId,
    scheduler: Member,
    id: FrameworkId,
}

/// Runs a test from the beginning of a scenario.
fn simulate_scenario<F: Future>(test: impl FnOnce(Scenario) -> F) {
    simulate_network(|network| async move {
        test(Scenario::begin(network).await).await;
    });
}

impl Scenario {
    async fn begin(network: Network) -> Self {
        Self::with(network, advertiser).await
    }

    async fn with(network: Network, change: impl FnOnce(&mut FrameworkInfo)) -> Self {
        let world = World::new(network, Config::default()).await;
        let agent = world.member("agent", "agent", Role::Agent).await;
        let total = resources("cpus:8;mem:8192;disk:100");
        let agent_id = comes(&agent, keeping(&agent, None, total, 1)).await;
        let (scheduler, id) = world.framework("ads", change).await;
        world.allocator();
        Self {
            world,
            agent,
            agent_id,
            scheduler,
            id,
        }
    }

    async fn offer(&self, what: Resources) -> Offer {
        let role = self
            .world
            .state()
            .await
            .frameworks
            .get(&self.id)
            .unwrap()
            .info
            .roles
            .clone();
        let role = role.into_iter().next().unwrap();
        let granted = Grant {
            role: role.clone(),
            resources: what.allocate(&ResourceRole::new(&role).unwrap()),
            ..grant(&self.id, &self.agent_id, "")
        };
        self.world.grant(vec![granted]).await;
        self.scheduler.received();
        self.scheduler.offers().pop().expect("an offer")
    }

    async fn accept(&self, offers: &[&Offer], operations: Vec<Operation>) {
        let call = AcceptOffers {
            operations,
            ..accept(&self.id, offers, vec![])
        };
        self.scheduler.say(call);
        self.world.settle().await;
    }

    async fn operate(&self, conversion: Conversion) -> Result<(), OperationRefused> {
        self.operate_as("ops", conversion).await
    }

    /// As the operator with a certificate of this name.
    async fn operate_as(&self, name: &str, conversion: Conversion) -> Result<(), OperationRefused> {
        let network = &self.world.network;
        let operator = network.node(name, Role::Operator, &[Role::Master]);
        let master = operator.find("master", "master", PATIENCE).await.unwrap();
        let call = Operate {
            agent_id: self.agent_id.clone(),
            conversion,
        };
        operator.ask(&master, call, PATIENCE).await.unwrap()
    }

    async fn total(&self) -> Resources {
        let state = self.world.state().await;
        state
            .agents
            .get(&self.agent_id)
            .unwrap()
            .info
            .resources
            .clone()
    }

    fn updated(&self, id: &str, state: OperationState) -> OperationUpdated {
        let id = OperationId::new(id).unwrap();
        OperationUpdated {
            agent_id: self.agent_id.clone(),
            update: OperationUpdate {
                framework_id: self.id.clone(),
                status: OperationStatus {
                    uuid: Some(version(9)),
                    ..OperationStatus::new(id, state, "")
                },
            },
        }
    }
}

// Covers 2.2 ACCEPT.
#[test] // SPEC 2.2, ACCEPT
fn operations_of_one_accept_build_on_each_other() {
    simulate_scenario(|scenario| async move {
        let offer = scenario.offer(resources("cpus:4;disk:100")).await;
        let mut writer = task("t1", &scenario.agent_id, "cpus:1");
        writer.resources += Resources::from(volume("v", 10));
        let steps = vec![
            Operation::Launch {
                tasks: vec![task("t0", &scenario.agent_id, "cpus:1")],
            },
            named("r", reserve("disk:50")),
            Operation::convert(Conversion::Create {
                volumes: volume("v", 10).into(),
            }),
            Operation::Launch {
                tasks: vec![writer],
            },
            named("bad", reserve("disk:51")),
        ];
        scenario.accept(&[&offer], steps).await;
        let heard = scenario.agent.received();
        assert_eq!(heard.len(), 4, "{heard:?}");
        assert!(heard[0].starts_with("run t0="), "{heard:?}");
        assert_eq!(heard[1..3], ["apply reserve to 1", "apply create to 1"]);
        assert!(heard[3].starts_with("run t1="), "{heard:?}");
        scenario.scheduler.receives("bad OPERATION_ERROR");
        let facts = scenario.world.allocator();
        assert_eq!(facts.len(), 4, "{facts:?}");
        assert_starts!(facts[0], "converted 0000 disk:50 to disk");
        assert!(facts[1].starts_with("converted 0000 disk"), "{facts:?}");
        assert_eq!(facts[2], "recovered 0000 cpus:2;disk:50 for 5s");
        // Resources made just now were not refused: they return without a filter.
        assert!(
            facts[3].starts_with("recovered 0000 ") && !facts[3].contains(" for "),
            "{facts:?}"
        );
        let expected = resources("cpus:8;mem:8192;disk:50")
            + reserved("disk:40")
            + Resources::from(volume("v", 10));
        assert_eq!(scenario.total().await, expected);
    });
}

#[test]
fn rule_violations_name_their_field_and_change_nothing() {
    simulate_scenario(|scenario| async move {
        let other = Reservation::dynamic(ResourceRole::new("web").unwrap(), Some("ops"));
        let of_other_role = resources("cpus:1").push_reservation(&other).unwrap();
        let nobody = Reservation::dynamic(ads(), None);
        let unsigned = resources("cpus:1").push_reservation(&nobody).unwrap();
        let deeper = Reservation::dynamic(ads(), Some("ops"));
        let fixed = Reservation::fixed(ResourceRole::new("ads").unwrap());
        let statically = resources("cpus:1").push_reservation(&fixed).unwrap();
        assert!(
            statically.push_reservation(&deeper).is_err(),
            "no refinement of itself"
        );
        let shared = shared("v", 10);
        let slack = resources("cpus(ads):1")
            .to_revocable(Revocable::Throttleable)
            .unwrap();
        for (number, conversion) in [
            Conversion::Reserve {
                resources: of_other_role,
            },
            Conversion::Reserve {
                resources: unsigned,
            },
            Conversion::Reserve {
                resources: statically.clone(),
            },
            Conversion::Reserve { resources: slack },
            reserve("cpus:5"),
            Conversion::Unreserve {
                resources: statically,
            },
            Conversion::Unreserve {
                resources: reserved("cpus:1"),
            },
            Conversion::Create {
                volumes: shared.into(),
            },
            Conversion::Create {
                volumes: volume("v", 10).into(),
            },
        ]
        .into_iter()
        .enumerate()
        {
            let offer = scenario.offer(resources("cpus:4;disk:100")).await;
            scenario
                .accept(&[&offer], vec![named(&number.to_string(), conversion)])
                .await;
            let heard = scenario.scheduler.received();
            assert_eq!(heard, [format!("{number} OPERATION_ERROR")]);
            let facts = scenario.world.allocator();
            assert_eq!(facts, ["recovered 0000 cpus:4;disk:100 for 5s"]);
            scenario.agent.receives("");
        }
        assert_eq!(
            scenario.total().await,
            resources("cpus:8;mem:8192;disk:100")
        );
    });
}

fn labelled(text: &str, label: usize) -> Conversion {
    let labels = vec![Label {
        key: "k".to_owned(),
        value: Some(format!("{label:050000}")),
    }];
    let mut entry = Reservation::dynamic(ads(), Some("ops"));
    entry.labels = Labels::new(labels);
    let resources = resources(text).push_reservation(&entry).unwrap();
    Conversion::Reserve { resources }
}

/// Labels are in each offer of the agent, and are the framework's to choose.
#[test]
fn an_agents_reservations_have_a_bound_in_bytes() {
    simulate_scenario(|scenario| async move {
        let offer = scenario.offer(resources("cpus:4")).await;
        let steps = (0..24).map(|number| labelled("cpus:0.1", number));
        let steps = steps.map(Operation::convert).collect();
        scenario.accept(&[&offer], steps).await;
        let reservations = async || {
            scenario
                .total()
                .await
                .iter()
                .filter(|r| r.is_reserved())
                .count()
        };
        assert_eq!(reservations().await, 20);
        let refused = scenario.operate(labelled("mem:32", 99)).await.unwrap_err();
        let refused = refused.to_string();
        assert_contains!(
            refused,
            "at most 1048576 bytes in all resources of the agent"
        );
    });
}

/// A framework that acknowledges nothing has as many bytes of operations as it may have, and no
/// more.
#[test]
fn unacknowledged_operations_have_a_bound_in_bytes() {
    simulate_scenario(|scenario| async move {
        let offer = scenario.offer(resources("cpus:4")).await;
        let reserve = labelled("cpus:1", 1);
        let resources = reserve.named();
        let unreserve = Conversion::Unreserve { resources };
        let both = [reserve, unreserve];
        let steps = (0..340).map(|number| named(&format!("o{number}"), both[number % 2].clone()));
        scenario.accept(&[&offer], steps.collect()).await;
        let refused = scenario.scheduler.received();
        assert_eq!(refused.first().unwrap(), "o334 OPERATION_ERROR");
        assert_eq!(refused.len(), 6);
    });
}

#[test]
fn the_bytes_of_operations_follow_each_change() {
    let mut operations = crate::operations::Operations::default();
    let (f, a) = (FrameworkId::new("f").unwrap(), AgentId::new("a").unwrap());
    let status = |id: &str| {
        let id = OperationId::new(id).unwrap();
        OperationStatus::new(id, OperationState::Pending, "")
    };
    operations.begin(&f, &a, &labelled("cpus:1", 1), status("r"));
    let one = operations.bytes(&f);
    assert!((50_000..51_000).contains(&one), "{one}");
    operations.put(&f, &a, status("r"));
    assert_eq!(operations.bytes(&f), one);
    operations.begin(&f, &a, &labelled("cpus:1", 2), status("s"));
    assert_eq!(operations.bytes(&f), 2 * one);
    for id in ["r", "s"] {
        operations.remove(&f, &OperationId::new(id).unwrap());
    }
    assert_eq!(operations.bytes(&f), 0);
}

#[test]
fn refining_a_reservation_requires_the_capability() {
    simulate_network(|network| async move {
        let video = ResourceRole::new("ads/video").unwrap();
        let refined = reserved("cpus:1")
            .push_reservation(&Reservation::dynamic(video, Some("ops")))
            .unwrap();
        let scenario = Scenario::with(network, |info| {
            advertiser(info);
            info.roles = ["ads/video".to_owned()].into();
        })
        .await;
        scenario.operate(reserve("cpus:2")).await.unwrap();
        let refine = || Conversion::Reserve {
            resources: refined.clone(),
        };
        let offer = scenario.offer(reserved("cpus:2")).await;
        scenario
            .accept(&[&offer], vec![named("no", refine())])
            .await;
        scenario.scheduler.receives("no OPERATION_ERROR");
        let (able, id) = scenario
            .world
            .framework("able", |info| {
                advertiser(info);
                info.roles = ["ads/video".to_owned()].into();
                info.capabilities.insert(Capability::ReservationRefinement);
            })
            .await;
        let scenario = Scenario {
            scheduler: able,
            id,
            ..scenario
        };
        let offer = scenario.offer(reserved("cpus:2")).await;
        scenario
            .accept(&[&offer], vec![named("yes", refine())])
            .await;
        // It is under way.
        scenario.scheduler.receives("");
        assert!(scenario.total().await.contains(&refined));
    });
}

// Covers 2.2 ACKNOWLEDGE_OPERATION_STATUS.
#[test]
fn operation_status_is_forwarded_until_acknowledged() {
    simulate_scenario(|scenario| async move {
        let offer = scenario.offer(resources("cpus:4")).await;
        scenario
            .accept(&[&offer], vec![named("op", reserve("cpus:1"))])
            .await;
        scenario.agent.received();
        let ask = |operations| ReconcileOperations {
            framework_id: scenario.id.clone(),
            operations,
        };
        scenario.scheduler.say(ask(vec![]));
        scenario.world.settle().await;
        scenario.scheduler.receives("op OPERATION_PENDING");
        // A name that is taken is refused.
        let offer = scenario.offer(resources("cpus:4")).await;
        scenario
            .accept(&[&offer], vec![named("op", reserve("cpus:1"))])
            .await;
        scenario.scheduler.receives("op OPERATION_ERROR");
        for _ in 0..2 {
            scenario
                .agent
                .tell(scenario.updated("op", OperationState::Finished));
            scenario.world.settle().await;
            scenario.scheduler.receives("op OPERATION_FINISHED");
        }
        scenario.scheduler.say(AcknowledgeOperation {
            framework_id: scenario.id.clone(),
            agent_id: scenario.agent_id.clone(),
            operation_id: OperationId::new("op").unwrap(),
            uuid: version(9),
        });
        scenario.world.settle().await;
        scenario.agent.receives("acknowledge op");
        let id = |text: &str| OperationId::new(text).unwrap();
        let nobody = AgentId::new("nobody").unwrap();
        let agent_id = scenario.agent_id.clone();
        let asked = vec![
            (id("op"), Some(agent_id)),
            (id("a"), Some(nobody)),
            (id("b"), None),
        ];
        scenario.scheduler.say(ask(asked));
        scenario.world.settle().await;
        let expected = [
            "op OPERATION_DROPPED",
            "a OPERATION_UNKNOWN",
            "b OPERATION_UNKNOWN",
        ];
        assert_eq!(scenario.scheduler.received(), expected);
        // The framework is gone: the master acknowledges.
        let mut orphan = scenario.updated("op", OperationState::Finished);
        orphan.update.framework_id = FrameworkId::new("gone").unwrap();
        scenario.agent.tell(orphan);
        scenario.world.settle().await;
        scenario.agent.receives("acknowledge op");
        // It was acknowledged before.
        scenario.scheduler.say(AcknowledgeOperation {
            framework_id: scenario.id.clone(),
            agent_id: scenario.agent_id.clone(),
            operation_id: id("op"),
            uuid: version(9),
        });
        scenario.world.settle().await;
        let state = scenario.world.state().await;
        let counted = ["status_updates", "status_update_acknowledgements"].map(|of| {
            ["valid", "invalid"]
                .map(|how| state.counters.get(&format!("master/{how}_operation_{of}")))
        });
        assert_eq!(counted, [[2, 1], [1, 1]]);
    });
}

#[test]
fn missing_operation_is_dropped_and_unknown_one_adopted() {
    simulate_scenario(|scenario| async move {
        let offer = scenario.offer(resources("cpus:4")).await;
        let steps = vec![
            named("seen", reserve("cpus:1")),
            named("lost", reserve("cpus:2")),
        ];
        scenario.accept(&[&offer], steps).await;
        scenario.world.allocator();
        let has = resources("cpus:7;mem:8192;disk:100") + reserved("cpus:1");
        let mut back = keeping(
            &scenario.agent,
            Some(scenario.agent_id.clone()),
            has.clone(),
            2,
        );
        back.resources.as_mut().unwrap().settled = None;
        let seen = scenario.updated("seen", OperationState::Finished).update;
        back.resources.as_mut().unwrap().operations.push(seen);
        assert_eq!(comes(&scenario.agent, back).await, scenario.agent_id);
        scenario.world.settle().await;
        scenario.scheduler.receives("lost OPERATION_DROPPED");
        assert_eq!(scenario.total().await, has);
        let state = scenario.world.state().await;
        let agent = state.agents.get(&scenario.agent_id).unwrap();
        assert_eq!(agent.described, resources("cpus:8;mem:8192;disk:100"));
        // Resources that cannot result from its own are refused.
        let more = resources("cpus:8;mem:8192;disk:100") + reserved("cpus:1");
        let wrong = keeping(&scenario.agent, Some(scenario.agent_id.clone()), more, 3);
        let refused = scenario
            .agent
            .node
            .ask(&scenario.agent.master, wrong, PATIENCE)
            .await;
        let RegistrationRefused::Never { reason } = refused.unwrap().unwrap_err() else {
            panic!("it may come again");
        };
        assert!(reason.starts_with("resources.total is"), "{reason}");
    });
}

#[test]
fn resource_mismatch_voids_offers_and_grants() {
    simulate_scenario(|scenario| async move {
        let offer = scenario.offer(resources("cpus:4")).await;
        scenario
            .accept(&[&offer], vec![named("op", reserve("cpus:1"))])
            .await;
        let out = scenario.offer(reserved("cpus:1")).await;
        scenario.world.allocator();
        let before = scenario
            .world
            .state()
            .await
            .agents
            .get(&scenario.agent_id)
            .unwrap()
            .session;
        let total = resources("cpus:8;mem:8192;disk:100");
        scenario.agent.tell(ResourcesReported {
            agent_id: scenario.agent_id.clone(),
            resources: AgentResources {
                version: version(2),
                total: total.clone(),
                operations: vec![],
                settled: Some(1),
            },
        });
        scenario.world.settle().await;
        assert_eq!(scenario.total().await, total);
        assert_eq!(
            scenario.scheduler.received(),
            [format!("rescind {}", short(&out.id))]
        );
        let facts = scenario.world.allocator();
        assert!(facts.contains(&"agent S0 used []".to_owned()), "{facts:?}");
        let stale = Grant {
            session: before,
            role: "ads".to_owned(),
            resources: reserved("cpus:1").allocate(&ads()),
            ..grant(&scenario.id, &scenario.agent_id, "")
        };
        let grants = vec![stale];
        scenario
            .world
            .node
            .tell(&scenario.world.master.pid(), Granted { grants })
            .unwrap();
        scenario.world.settle().await;
        assert!(scenario.scheduler.offers().is_empty());
        // The next operation has the version that the agent has reported.
        let offer = scenario.offer(resources("cpus:4")).await;
        scenario.agent.received();
        scenario
            .accept(&[&offer], vec![Operation::convert(reserve("cpus:1"))])
            .await;
        scenario.agent.receives("apply reserve to 2");
    });
}

#[test]
fn agent_without_operations_is_sent_none() {
    simulate_scenario(|mut scenario| async move {
        let (agent, agent_id) = scenario.world.agent("plain").await;
        (scenario.agent, scenario.agent_id) = (agent, agent_id);
        let offer = scenario.offer(resources("cpus:1")).await;
        scenario
            .accept(&[&offer], vec![named("op", reserve("cpus:1"))])
            .await;
        scenario.scheduler.receives("op OPERATION_ERROR");
        let refused = scenario.operate(reserve("cpus:1")).await;
        assert_matches!(refused, Err(OperationRefused::NoAgent { .. }));
    });
}

// Covers 2.2 ACCEPT.
#[test]
fn rejected_accept_returns_all_resources() {
    simulate_scenario(|scenario| async move {
        let offer = scenario.offer(resources("cpus:4")).await;
        let bogus = Offer {
            id: OfferId::new("bogus").unwrap(),
            ..offer.clone()
        };
        scenario
            .accept(&[&offer, &bogus], vec![named("op", reserve("cpus:1"))])
            .await;
        scenario.scheduler.receives("op OPERATION_ERROR");
        scenario.world.facts_are("recovered 0000 cpus:4 for 0ns");
    });
}
