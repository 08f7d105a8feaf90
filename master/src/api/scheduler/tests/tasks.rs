//! Tasks over HTTP: messages to agents and events for frameworks (SPEC 2.2 KILL, ACKNOWLEDGE; 2.3
//! UPDATE, FAILURE, RESCIND).

use module_api::allocator::{InverseGrant, InverseGranted, Withdrawn};
use protocol::maintenance::{Unavailability, Window};
use protocol::message::operator::UpdateMaintenanceSchedule;
use protocol::message::task::{ExecutorExited, TaskUpdated};
use protocol::{
    AgentId, ExecutorId, MachineId, Source, StatusUpdate, TaskId, TaskState, TaskStatus,
    Termination, Uuid,
};
use runtime::Timestamp;

use super::offers::{Registered, ops, value};
use super::*;

/// The framework that knows that agents can be out of reach.
fn aware() -> Value {
    let mut framework = ops();
    let capabilities = framework["capabilities"].as_array_mut().unwrap();
    capabilities.push(json!({ "type": "PARTITION_AWARE" }));
    framework
}

fn cpus(amount: f64) -> Value {
    json!([{ "name": "cpus", "type": "SCALAR", "scalar": { "value": amount } }])
}

fn task(id: &str, agent: &AgentId) -> Value {
    json!({
        "name": id, "task_id": { "value": id }, "agent_id": { "value": agent.as_str() },
        "resources": cpus(0.5),
    })
}

/// A task of a shell line.
fn shell(id: &str, agent: &AgentId) -> Value {
    let mut task = task(id, agent);
    task["command"] = json!({ "value": "exec sleep 1000" });
    task
}

/// A task of the framework's own executor `e`.
fn own(id: &str, agent: &AgentId) -> Value {
    let mut task = task(id, agent);
    task["executor"] = json!({
        "executor_id": { "value": "e" }, "command": { "value": "./executor" }, "resources": cpus(0.25),
    });
    task
}

/// A master, its agent, and a framework.
struct Scenario {
    fixture: Fixture,
    agent: Registered,
    stream: Stream,
    id: String,
}

impl Scenario {
    async fn new(node: &Node) -> Self {
        let fixture = Fixture::new(node).await;
        let agent = fixture.agent().await;
        let mut stream = fixture.subscribe(aware()).await;
        let id = stream.framework();
        Self {
            fixture,
            agent,
            stream,
            id,
        }
    }

    async fn says(&self, call: Value) {
        let status = self
            .fixture
            .call(&self.id, &self.stream.id, call.clone())
            .await;
        assert_eq!(status, 202, "{call}");
        self.fixture.settle().await;
    }

    async fn offer(&mut self) -> Value {
        let offered = self
            .fixture
            .offer(&mut self.stream, &self.id, &self.agent.id, "cpus:1");
        offered.await
    }

    async fn launch(&mut self, task: Value) {
        let offer = self.offer().await;
        let launch = json!([{ "type": "LAUNCH", "launch": { "task_infos": [task] } }]);
        self.says(json!({ "type": "ACCEPT", "accept": { "offer_ids": [offer["id"]], "operations": launch } }))
            .await;
        assert_eq!(self.stream.read(), [""; 0], "it is launched");
    }

    /// The agent gives the task this state, in a status with this uuid.
    async fn reports(&self, task: &str, state: TaskState, uuid: u8) {
        let at = self.fixture.api.node.clock().wall();
        let mut status = TaskStatus::new(TaskId::new(task).unwrap(), state, Source::Executor, at);
        status.uuid = Some(Uuid([uuid; 16]));
        self.fixture.tell(TaskUpdated {
            agent_id: self.agent.id.clone(),
            update: StatusUpdate {
                framework_id: FrameworkId::new(&self.id).unwrap(),
                status,
                latest_state: state,
            },
        });
        self.fixture.settle().await;
    }

    /// The events that can be read now.
    fn told(&mut self) -> Vec<Value> {
        self.stream.events().0.iter().map(value).collect()
    }

    async fn counted(&self, name: &str) -> u64 {
        let state = self
            .fixture
            .master
            .ask(TakeSnapshot, PATIENCE)
            .await
            .unwrap();
        state.counters.get(name)
    }
}

/// SPEC 2.2 KILL: with the named policy, and only on the named agent if there is one.
// Covers 2.2 KILL.
#[test]
fn kill_carries_its_policy_and_must_name_the_right_agent() {
    simulate(|node| async move {
        let mut scenario = Scenario::new(&node).await;
        let agent = scenario.agent.id.clone();
        scenario.launch(shell("t", &agent)).await;
        let kill = |agent: &str| {
            let policy = json!({ "grace_period": { "nanoseconds": 7_000_000_000_u64 } });
            let kill = json!({ "task_id": { "value": "t" }, "agent_id": { "value": agent }, "kill_policy": policy });
            json!({ "type": "KILL", "kill": kill })
        };
        let dropped = async |scenario: &Scenario| scenario.counted("master/dropped_messages").await;
        let before = dropped(&scenario).await;
        scenario.says(kill("elsewhere")).await;
        assert_eq!(scenario.agent.received(), [""; 0]);
        assert_eq!(scenario.told(), Vec::<Value>::new());
        assert_eq!(dropped(&scenario).await, before + 1);
        scenario.says(kill(agent.as_str())).await;
        assert_eq!(scenario.agent.received(), ["kill t within Some(7s)"]);
        let bare = json!({ "type": "KILL", "kill": { "task_id": { "value": "t" } } });
        scenario.says(bare).await;
        assert_eq!(scenario.agent.received(), ["kill t within None"]);
    });
}

/// SPEC 2.2 ACKNOWLEDGE: an end is over for its framework when that very status is acknowledged
/// where it came from.
// Covers 2.2 ACKNOWLEDGE.
#[test]
fn task_is_completed_only_by_acknowledging_its_end() {
    simulate(|node| async move {
        let mut scenario = Scenario::new(&node).await;
        let agent = scenario.agent.id.clone();
        scenario.launch(shell("t", &agent)).await;
        scenario.reports("t", TaskState::Running, 1).await;
        scenario.reports("t", TaskState::Finished, 2).await;
        let told = scenario.told();
        let [running, finished] =
            [0, 1].map(|number: usize| told[number]["update"]["status"].clone());
        assert_eq!(finished["state"], "TASK_FINISHED");
        let acknowledge = |agent: &Value, uuid: &Value| {
            let said = json!({ "agent_id": agent, "task_id": finished["task_id"], "uuid": uuid });
            json!({ "type": "ACKNOWLEDGE", "acknowledge": said })
        };
        let (there, elsewhere) = (&finished["agent_id"], json!({ "value": "elsewhere" }));
        for (call, heard, completed) in [
            // The agent receives and checks it.
            (acknowledge(there, &running["uuid"]), 1, 0),
            (acknowledge(&elsewhere, &finished["uuid"]), 0, 0),
            (acknowledge(there, &finished["uuid"]), 1, 1),
        ] {
            scenario.says(call).await;
            assert_eq!(scenario.agent.received(), vec!["acknowledge t"; heard]);
            let state = scenario
                .fixture
                .master
                .ask(TakeSnapshot, PATIENCE)
                .await
                .unwrap();
            let of = state
                .tasks
                .of_framework(&FrameworkId::new(&scenario.id).unwrap());
            assert_eq!(of.unwrap().completed().count(), completed);
        }
        let invalid = "master/invalid_status_update_acknowledgements";
        assert_eq!(scenario.counted(invalid).await, 1);
    });
}

/// SPEC 2.3 FAILURE, UPDATE; 2.8 `unreachable_time`.
// Covers 2.3 MESSAGE, FAILURE.
#[test]
fn executor_ends_and_lost_agents_are_reported() {
    simulate(|node| async move {
        let mut scenario = Scenario::new(&node).await;
        let agent = scenario.agent.id.clone();
        scenario.launch(own("with-executor", &agent)).await;
        scenario.launch(shell("t", &agent)).await;
        let offer = scenario.offer().await;
        assert_eq!(offer["executor_ids"], json!([{ "value": "e" }]));
        let address = &offer["url"]["address"];
        assert_eq!(
            (&address["hostname"], &address["port"]),
            (&json!("host-1"), &json!(5051))
        );
        for executor in ["e", "t"] {
            scenario.fixture.tell(ExecutorExited {
                agent_id: agent.clone(),
                framework_id: FrameworkId::new(&scenario.id).unwrap(),
                executor_id: ExecutorId::new(executor).unwrap(),
                termination: Some(Termination::Exited(3)),
            });
        }
        scenario.fixture.settle().await;
        // The end of a command executor is reported as its task's end.
        let failure = json!({
            "agent_id": { "value": agent.as_str() }, "executor_id": { "value": "e" }, "status": 3 << 8,
        });
        let told = scenario.told();
        assert_eq!((told.len(), &told[0]["failure"]), (1, &failure), "{told:?}");

        // It answers no pings.
        let mut told = Vec::new();
        for _ in 0..7 {
            scenario.fixture.pass(15).await;
            told.extend(
                scenario
                    .told()
                    .into_iter()
                    .filter(|event| event["type"] != "HEARTBEAT"),
            );
        }
        let kinds: Vec<_> = told
            .iter()
            .map(|event| event["type"].as_str().unwrap())
            .collect();
        assert_eq!(kinds, ["RESCIND", "UPDATE", "UPDATE", "FAILURE"]);
        assert_eq!(told[0]["rescind"]["offer_id"], offer["id"]);
        for update in &told[1..3] {
            let status = &update["update"]["status"];
            assert_eq!(status["state"], "TASK_UNREACHABLE");
            assert!(
                status["unreachable_time"]["nanoseconds"].is_number(),
                "{status}"
            );
        }
        assert_eq!(
            told[3]["failure"],
            json!({ "agent_id": { "value": agent.as_str() } })
        );
    });
}

/// SPEC 2.3 RESCIND, RESCIND_INVERSE_OFFER: each event has the offer's id.
// Covers 2.3 OFFERS, RESCIND; 2.3 INVERSE_OFFERS, RESCIND_INVERSE_OFFER.
#[test]
fn offers_that_are_taken_back_are_named() {
    simulate(|node| async move {
        let mut scenario = Scenario::new(&node).await;
        let agent_id = scenario.agent.id.clone();
        let offer = scenario.offer().await;
        scenario.fixture.tell(Withdrawn {
            agent_id: agent_id.clone(),
            resources: "cpus:1".parse().unwrap(),
        });
        scenario.fixture.settle().await;
        let rescind = json!({ "type": "RESCIND", "rescind": { "offer_id": offer["id"] } });
        assert_eq!(scenario.told(), [rescind]);

        let unavailability = Unavailability {
            start: Timestamp::from_nanos(1 << 62),
            duration: None,
        };
        let window = Window {
            machines: vec![MachineId::new("host-1", "").unwrap()],
            unavailability,
        };
        let plan = |windows| UpdateMaintenanceSchedule { windows };
        let planned = scenario
            .fixture
            .master
            .ask(plan(vec![window]), PATIENCE)
            .await;
        planned.unwrap().unwrap();
        scenario.fixture.tell(InverseGranted {
            grants: vec![InverseGrant {
                framework_id: FrameworkId::new(&scenario.id).unwrap(),
                agent_id,
                unavailability,
            }],
        });
        scenario.fixture.settle().await;
        let told = scenario.told().pop().unwrap();
        let inverse = &told["inverse_offers"]["inverse_offers"][0]["id"];
        assert!(inverse["value"].is_string());
        let over = scenario
            .fixture
            .master
            .ask(plan(Vec::new()), PATIENCE)
            .await;
        over.unwrap().unwrap();
        scenario.fixture.settle().await;
        let said = json!({ "inverse_offer_id": inverse });
        let rescind = json!({ "type": "RESCIND_INVERSE_OFFER", "rescind_inverse_offer": said });
        assert_eq!(scenario.told(), [rescind]);
    });
}
