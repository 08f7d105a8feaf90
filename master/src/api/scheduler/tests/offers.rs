//! Offers over HTTP: demands, conversions and inverse offers (SPEC 2.2, 2.4, 2.8).

use std::sync::{Arc, Mutex};

use module_api::allocator::{Grant, Granted, InverseGrant, InverseGranted};
use protocol::maintenance::{Unavailability, Window};
use protocol::message::operation::{ApplyOperation, OperationUpdated};
use protocol::message::operator::UpdateMaintenanceSchedule;
use protocol::message::registration::{AgentInventory, RegisterAgent};
use protocol::message::scheduler::{AcknowledgeOperation, AcknowledgeStatus, KillTask};
use protocol::message::task::{FrameworkChanged, RunTasks};
use protocol::offers::wants::{Constraint, Predicate, Selector};
use protocol::operation::OperationUpdate;
use protocol::{
    AgentId, AgentInfo, AgentResources, Demand, MachineId, OperationId, OperationState,
    OperationStatus, Uuid,
};
use resources::{Resources, Role};
use runtime::Timestamp;

use super::*;

/// An agent that records its messages except launches.
struct Machine(Arc<Mutex<Vec<String>>>);

impl Actor for Machine {
    type Context = Context<Self>;
}

impl Process for Machine {
    fn accepts(handlers: &mut RemoteHandlers<Self>) {
        handlers.accept_local::<ApplyOperation>();
        handlers.accept_local::<RunTasks>();
        handlers.accept_local::<KillTask>();
        handlers.accept_local::<AcknowledgeStatus>();
        handlers.accept_local::<AcknowledgeOperation>();
        handlers.accept_local::<FrameworkChanged>();
    }
}

macro_rules! writes_down {
    ($($message:ty => $line:expr;)*) => {$(
        impl Handler<$message> for Machine {
            type Result = ();

            fn handle(&mut self, message: $message, _: &mut Context<Self>) {
                let line: fn(&$message) -> String = $line;
                self.0.lock().unwrap().push(line(&message));
            }
        }
    )*};
}

writes_down! {
    KillTask => |m| format!("kill {} within {:?}", m.task_id, m.kill_policy.map(|policy| policy.grace_period));
    AcknowledgeStatus => |m| format!("acknowledge {}", m.task_id);
    AcknowledgeOperation => |m| format!("acknowledge {}", m.operation_id);
    FrameworkChanged => |m| format!("framework {}", m.framework.name);
}

impl Handler<RunTasks> for Machine {
    type Result = ();

    fn handle(&mut self, _: RunTasks, _: &mut Context<Self>) {}
}

impl Handler<ApplyOperation> for Machine {
    type Result = ();

    fn handle(&mut self, apply: ApplyOperation, _: &mut Context<Self>) {
        let id = apply.feedback.map(|(_, id)| id.to_string());
        let line = format!("{} {}", apply.conversion.name(), id.unwrap_or_default());
        self.0.lock().unwrap().push(line);
    }
}

/// A registered agent and its messages.
pub(super) struct Registered {
    pub id: AgentId,
    heard: Arc<Mutex<Vec<String>>>,
}

impl Registered {
    pub fn received(&self) -> Vec<String> {
        std::mem::take(&mut self.heard.lock().unwrap())
    }
}

impl Fixture {
    pub(super) async fn agent(&self) -> Registered {
        self.agent_with(AgentInventory::default()).await
    }

    /// The agent comes, with all this.
    pub(super) async fn agent_with(&self, held: AgentInventory) -> Registered {
        let heard = Arc::default();
        let machine = Machine(Arc::clone(&heard));
        let machine = self.api.node.spawn("agent", machine).unwrap();
        let resources: Resources = "cpus:4;mem:512;disk:100".parse().unwrap();
        let register = RegisterAgent {
            held,
            resources: Some(AgentResources {
                total: resources.clone(),
                version: Uuid([1; 16]),
                operations: Vec::new(),
                settled: None,
            }),
            ..testkit::values::registration(AgentInfo::new("host-1", resources), machine.pid())
        };
        let registered = self.master.ask(register, PATIENCE).await.unwrap();
        let id = registered.unwrap().agent_id;
        Registered { id, heard }
    }

    pub(super) fn tell<M: Message + Send + 'static>(&self, message: M)
    where
        M::Result: Send,
        Master: Handler<M>,
    {
        self.master.tell(message).unwrap();
    }

    /// The offer event for these resources.
    pub(super) async fn offer(
        &self,
        stream: &mut Stream,
        id: &str,
        agent: &AgentId,
        text: &str,
    ) -> Value {
        let role = "ops".to_owned();
        let resources: Resources = text.parse().unwrap();
        let state = self.master.ask(TakeSnapshot, PATIENCE).await.unwrap();
        let grant = Grant {
            framework_id: FrameworkId::new(id).unwrap(),
            resources: resources.allocate(&Role::new(&role).unwrap()),
            agent_id: agent.clone(),
            session: state.agents.get(agent).unwrap().session,
            role,
        };
        self.tell(Granted {
            grants: vec![grant],
        });
        self.settle().await;
        let (mut events, _) = stream.events();
        value(&events.pop().unwrap())["offers"]["offers"][0].take()
    }

    /// The framework's demand in the role `ops`.
    async fn demand(&self, id: &str) -> Option<Demand> {
        let state = self.master.ask(TakeSnapshot, PATIENCE).await.unwrap();
        let known = state.frameworks.get(&FrameworkId::new(id).unwrap());
        known.unwrap().wants.demands.get("ops").cloned()
    }
}

pub(super) fn value(event: &Event) -> Value {
    serde_json::from_slice(&v1::json::write(event)).unwrap()
}

pub(super) fn ops() -> Value {
    let capabilities = json!([{ "type": "MULTI_ROLE" }, { "type": "RESERVATION_REFINEMENT" }]);
    json!({
        "user": "nobody", "name": "web", "principal": "p", "failover_timeout": 60.0,
        "roles": ["ops"], "capabilities": capabilities,
    })
}

/// Each operation's id with its reported state.
fn operations(events: &[Event]) -> Vec<String> {
    let told = events.iter().map(|event| {
        let status = value(event)["update_operation_status"]["status"].take();
        let text = |at: &Value| at.as_str().unwrap_or("?").to_owned();
        let (id, state) = (
            text(&status["operation_id"]["value"]),
            text(&status["state"]),
        );
        format!("{id} {state}")
    });
    told.collect()
}

/// SPEC 2.4: set with the subscription, and changed without one.
// Covers 2.4 Offer constraints.
#[test]
fn offer_constraints_last_until_replaced() {
    simulate_api(|fixture| async move {
        let constraints = |selector: Value, predicate: Value| {
            let constraint = json!({ "selector": selector, "predicate": predicate });
            let group = json!({ "attribute_constraints": [constraint] });
            json!({ "role_constraints": { "ops": { "groups": [group] } } })
        };
        let on_rack = constraints(
            json!({ "attribute_name": "rack" }),
            json!({ "text_matches": { "regex": "r[0-9]" } }),
        );
        let mut call = subscribe(ops());
        call["subscribe"]["offer_constraints"] = on_rack;
        let nobody = Subject::default();
        let response = fixture.post(&call, None, &nobody).await.unwrap();
        let mut stream = Stream::of(response);
        let id = stream.framework();
        let one = |selector, predicate| Demand {
            agents: vec![vec![Constraint {
                selector,
                predicate,
            }]],
            ..Demand::default()
        };
        let rack = Selector::Attribute("rack".to_owned());
        let on_rack = one(rack, Predicate::TextMatches("r[0-9]".to_owned()));
        assert_eq!(fixture.demand(&id).await, Some(on_rack.clone()));

        let mut framework = ops();
        framework["id"] = json!({ "value": id });
        let update = |constraints: Value| {
            let said = json!({ "framework_info": framework, "offer_constraints": constraints });
            json!({ "type": "UPDATE_FRAMEWORK", "update_framework": said })
        };
        let zone = json!({ "pseudoattribute_type": "ZONE" });
        for wrong in [
            constraints(zone.clone(), json!({ "text_matches": { "regex": "a(" } })),
            constraints(zone.clone(), json!({})),
            constraints(json!({}), json!({ "exists": {} })),
            json!({ "role_constraints": { "ops": { "groups": [] } } }),
            json!({ "role_constraints": { "ops": { "groups": [{ "attribute_constraints": [] }] } } }),
            json!({ "role_constraints": { "others": { "groups": [{ "attribute_constraints": [] }] } } }),
        ] {
            let status = fixture.call(&id, &stream.id, update(wrong.clone())).await;
            assert_eq!(status, 400, "{wrong}");
            assert_eq!(fixture.demand(&id).await, Some(on_rack.clone()));
        }
        let nowhere = update(constraints(zone, json!({ "not_exists": {} })));
        assert_eq!(fixture.call(&id, &stream.id, nowhere).await, 200);
        let nowhere = one(Selector::Zone, Predicate::NotExists);
        assert_eq!(fixture.demand(&id).await, Some(nowhere));
        assert_eq!(fixture.call(&id, &stream.id, update(json!({}))).await, 200);
        assert_eq!(fixture.demand(&id).await, None);
    });
}

/// SPEC 2.2 ACCEPT, RECONCILE_OPERATIONS; 2.8.
// Covers 2.2 ACKNOWLEDGE_OPERATION_STATUS; 2.2 RECONCILE_OPERATIONS.
#[test]
fn offered_resources_are_reserved_used_and_freed_with_statuses() {
    simulate_api(|fixture| async move {
        let agent = fixture.agent().await;
        let mut stream = fixture.subscribe(ops()).await;
        let id = stream.framework();
        let offer = fixture
            .offer(&mut stream, &id, &agent.id, "cpus:1;disk:100")
            .await;
        let entry = json!([{ "type": "DYNAMIC", "role": "ops", "principal": "p" }]);
        let reserved = json!({ "name": "disk", "type": "SCALAR", "scalar": { "value": 100.0 }, "reservations": entry });
        let mut volume = reserved.clone();
        volume["disk"] = json!({
            "persistence": { "id": "v", "principal": "p" },
            "volume": { "mode": "RW", "container_path": "data" },
        });
        let operation = |kind: &str, id: &str, field: &str, one: &Value| {
            let mut operation = json!({ "type": kind, "id": { "value": id } });
            operation[kind.to_lowercase()] = json!({ field: [one] });
            operation
        };
        let accept = |operations: Value| json!({ "type": "ACCEPT", "accept": { "offer_ids": [offer["id"]], "operations": operations } });
        let all = json!([
            operation("RESERVE", "one", "resources", &reserved),
            operation("CREATE", "two", "volumes", &volume),
            operation("DESTROY", "three", "volumes", &volume),
            operation("UNRESERVE", "four", "resources", &reserved),
            // There is no such volume any more.
            operation("DESTROY", "five", "volumes", &volume),
        ]);
        assert_eq!(fixture.call(&id, &stream.id, accept(all)).await, 202);
        fixture.settle().await;
        assert_eq!(
            agent.received(),
            [
                "reserve one",
                "create two",
                "destroy three",
                "unreserve four"
            ]
        );
        assert_eq!(operations(&stream.events().0), ["five OPERATION_ERROR"]);

        let finished = OperationUpdated {
            agent_id: agent.id.clone(),
            update: OperationUpdate {
                framework_id: FrameworkId::new(&id).unwrap(),
                status: OperationStatus {
                    uuid: Some(Uuid([3; 16])),
                    ..OperationStatus::new(
                        OperationId::new("one").unwrap(),
                        OperationState::Finished,
                        "",
                    )
                },
            },
        };
        fixture.tell(finished);
        fixture.settle().await;
        let (events, _) = stream.events();
        assert_eq!(operations(&events), ["one OPERATION_FINISHED"]);
        let finished = value(&events[0])["update_operation_status"]["status"].take();
        assert_eq!(finished["agent_id"]["value"], agent.id.as_str());
        let ask = |operations: Value| json!({ "type": "RECONCILE_OPERATIONS", "reconcile_operations": { "operations": operations } });
        let named = |id: &str| json!({ "operation_id": { "value": id } });
        let asked = ask(json!([named("two"), named("nobody's")]));
        assert_eq!(fixture.call(&id, &stream.id, asked).await, 202);
        fixture.settle().await;
        assert_eq!(
            operations(&stream.events().0),
            ["two OPERATION_PENDING", "nobody's OPERATION_UNKNOWN"]
        );
        // None is named: all that are known.
        let mut call = ask(json!([]));
        call["reconcile_operations"] = json!({});
        assert_eq!(fixture.call(&id, &stream.id, call).await, 202);
        fixture.settle().await;
        let mut told = operations(&stream.events().0);
        told.sort();
        assert_eq!(
            told,
            [
                "four OPERATION_PENDING",
                "one OPERATION_FINISHED",
                "three OPERATION_PENDING",
                "two OPERATION_PENDING"
            ]
        );
        // Its agent resends it until it is acknowledged.
        let acknowledge = json!({ "type": "ACKNOWLEDGE_OPERATION_STATUS", "acknowledge_operation_status": {
            "agent_id": finished["agent_id"], "operation_id": finished["operation_id"], "uuid": finished["uuid"]["value"],
        } });
        assert_eq!(fixture.call(&id, &stream.id, acknowledge).await, 202);
        fixture.settle().await;
        assert_eq!(agent.received(), ["acknowledge one"]);
    });
}

/// SPEC 2.2, 3.6: both answers, of offers that there are.
// Covers 2.2 ACCEPT_INVERSE_OFFERS, DECLINE_INVERSE_OFFERS.
// Covers 2.3 INVERSE_OFFERS, RESCIND_INVERSE_OFFER.
#[test]
fn inverse_offer_answers_are_shown_to_the_operator() {
    simulate_api(|fixture| async move {
        let agent = fixture.agent().await;
        let mut stream = fixture.subscribe(ops()).await;
        let id = stream.framework();
        let unavailability = Unavailability {
            start: Timestamp::from_nanos(1 << 62),
            duration: None,
        };
        let machine_ids = vec![MachineId::new("host-1", "").unwrap()];
        let window = Window {
            machines: machine_ids,
            unavailability,
        };
        let plan = UpdateMaintenanceSchedule {
            windows: vec![window],
        };
        fixture.master.ask(plan, PATIENCE).await.unwrap().unwrap();
        for (kind, accepted) in [
            ("DECLINE_INVERSE_OFFERS", false),
            ("ACCEPT_INVERSE_OFFERS", true),
        ] {
            fixture.tell(InverseGranted {
                grants: vec![InverseGrant {
                    framework_id: FrameworkId::new(&id).unwrap(),
                    agent_id: agent.id.clone(),
                    unavailability,
                }],
            });
            fixture.settle().await;
            let (mut events, _) = stream.events();
            let offer = value(&events.pop().unwrap())["inverse_offers"]["inverse_offers"][0].take();
            assert_eq!(offer["agent_id"]["value"], agent.id.as_str());
            assert!(offer["unavailability"]["start"]["nanoseconds"].is_number());
            let mut call = json!({ "type": kind });
            call[kind.to_lowercase()] = json!({ "inverse_offer_ids": [offer["id"]] });
            assert_eq!(fixture.call(&id, &stream.id, call).await, 202);
            fixture.settle().await;
            let state = fixture.master.ask(TakeSnapshot, PATIENCE).await.unwrap();
            let answers = state.maintenance_status().draining.remove(0).answers;
            assert_eq!(
                (answers.len(), answers[0].accepted),
                (1, accepted),
                "{kind}"
            );
            assert_eq!(state.inverse_offers.iter().count(), 0);
        }
    });
}
