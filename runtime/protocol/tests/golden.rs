//! The bytes of every message, as they were released.
//!
//! bincode has no schema, so a released struct never changes: a change is a new version of its
//! message. This test holds the bytes of one sample of each message and fails when they become
//! others. `MEROS_WRITE_GOLDEN=1 cargo test -p meros-protocol --test golden` writes the file anew;
//! its diff may only ever add lines, once there has been a release.

#![allow(clippy::unwrap_used, reason = "a test may end by a panic")]

mod samples;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use std::time::Duration;

use meros_protocol as protocol;
use protocol::digest::{DigestKey, DigestSummary};
use protocol::maintenance::Window;
use protocol::message::executor::*;
use protocol::message::operation::*;
use protocol::message::operator::*;
use protocol::message::oversubscription::*;
use protocol::message::registration::*;
use protocol::message::scheduler::*;
use protocol::message::standby::*;
use protocol::message::state::*;
use protocol::message::task::*;
use protocol::*;
use resources::{Conversion, Quantities, Reservation, Resources, Revocable};
use runtime::wire::codec;
use runtime::{NodeId, Pid, Remote, Timestamp};
use samples::*;
use serde::Serialize;

const GOLDEN: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/golden.txt");

/// One line a message: its name, its version, its bytes.
fn line<M: Remote>(message: M) -> String {
    let mut text = format!("{} v{} ", M::NAME, M::VERSION);
    for byte in codec::encode(&message).unwrap() {
        write!(text, "{byte:02x}").unwrap();
    }
    text
}

#[test]
fn a_released_message_keeps_its_bytes() {
    let pid = Pid::new("agent", NodeId::new("agent-1", 0x3fa), 7);
    let (framework_id, agent_id): (FrameworkId, AgentId) = (id("m-0000"), id("m-S1"));
    let (task_id, executor_id): (TaskId, ExecutorId) = (id("t"), id("e"));
    let (offer_ids, roles) = (vec![id("m-O1")], BTreeSet::from(["ads".to_owned()]));
    let filters = Filters {
        refuse_seconds: 5.0,
    };
    let demand = Demand {
        most: Quantities::parse("cpus:4;mem:128;disk:0").unwrap(),
        least: Some(vec![Quantities::parse("cpus:1;mem:64").unwrap()]),
        ..Demand::on_hosts(["foobar"])
    };
    let wants = Wants {
        demands: BTreeMap::from([("ads".to_owned(), demand)]),
        ..Wants::suppressing(roles.clone())
    };
    let update = StatusUpdate {
        framework_id: framework_id.clone(),
        status: status(),
        latest_state: TaskState::Failed,
    };
    let running = RunningTask {
        framework_id: framework_id.clone(),
        info: task(),
        state: TaskState::Running,
    };
    let held = AgentInventory {
        tasks: vec![running],
        executors: vec![RunningExecutor {
            framework_id: framework_id.clone(),
            info: executor(),
        }],
        frameworks: vec![framework()],
    };
    let digest_key = DigestKey::new([5; 16]);
    let oversubscribed = Resources::parse("cpus:14").unwrap();
    let oversubscribed = oversubscribed
        .to_revocable(Revocable::Throttleable)
        .unwrap();
    let kill_policy = Some(KillPolicy {
        grace_period: Duration::from_secs(1),
    });
    let launch = Operation::Launch {
        tasks: vec![task()],
    };
    let ads = Reservation::dynamic("ads".parse().unwrap(), Some("ops"));
    let reserved = Resources::parse("cpus:8;mem:4096").unwrap();
    let reserved = reserved.push_reservation(&ads).unwrap();
    let reserve = Conversion::Reserve {
        resources: reserved.clone(),
    };
    let operation_id: OperationId = id("op");
    let operation_status = OperationStatus {
        converted: reserved.clone(),
        uuid: Some(Uuid([9; 16])),
        ..OperationStatus::new(operation_id.clone(), OperationState::Finished, "").on(&agent_id)
    };
    let operation_update = OperationUpdate {
        framework_id: framework_id.clone(),
        status: operation_status.clone(),
    };
    let agent_resources = AgentResources {
        version: Uuid([3; 16]),
        total: Resources::parse("cpus:24;mem:61440").unwrap() + &reserved,
        operations: vec![operation_update.clone()],
        settled: Some(5),
    };
    let operations = vec![
        Operation::Convert {
            id: Some(operation_id.clone()),
            conversion: reserve.clone(),
        },
        launch,
        Operation::LaunchGroup {
            executor: Box::new(executor()),
            tasks: vec![task()],
        },
    ];
    let register = RegisterAgent {
        agent: agent(),
        pid: pid.clone(),
        version: "0.1.0".to_owned(),
        held: held.clone(),
        digest_key,
        oversubscribed: oversubscribed.clone(),
        resources: Some(agent_resources.clone()),
        term_seen: 6,
    };
    let reregister = ReregisterAgent {
        agent: agent(),
        pid: pid.clone(),
        version: "0.1.0".to_owned(),
        summary: DigestSummary {
            form: 1,
            key: digest_key,
            items: 2,
            sum: 1 << 60,
        },
        report: Some(InventoryReport {
            buckets: 4,
            differing: vec![1, 3],
            held,
        }),
        oversubscribed,
        resources: None,
        term_seen: 6,
    };
    let apply = ApplyOperation {
        feedback: Some((framework_id.clone(), operation_id.clone())),
        conversion: reserve.clone(),
        version: Uuid([3; 16]),
        serial: Some(6),
    };
    let reported = ResourcesReported {
        agent_id: agent_id.clone(),
        resources: agent_resources.clone(),
    };
    let lines = [
        line(register),
        line(reregister),
        line(PingAgent { connected: true }),
        line(UnregisterAgent {
            agent_id: agent_id.clone(),
        }),
        line(AgentSuspended {
            agent_id: agent_id.clone(),
            reason: "the disk is full".to_owned(),
        }),
        line(AgentResumed {
            agent_id: agent_id.clone(),
        }),
        line(ShutDownAgent {
            reason: "because".to_owned(),
        }),
        line(DisownTasks {
            tasks: vec![(framework_id.clone(), task_id.clone())],
        }),
        line(AwaitLeader { term: 6 }),
        line(LeaderAnnounced {
            address: "10.0.0.2:5050".to_owned(),
            term: 7,
        }),
        line(TermSeen { term: 7 }),
        line(Subscribe {
            framework: framework(),
            scheduler: pid.clone(),
            wants: wants.clone(),
        }),
        line(UpdateFramework {
            framework_id: framework_id.clone(),
            framework: framework(),
            wants,
        }),
        line(AcceptOffers {
            framework_id: framework_id.clone(),
            offer_ids: offer_ids.clone(),
            operations,
            filters,
        }),
        line(DeclineOffers {
            framework_id: framework_id.clone(),
            offer_ids,
            filters,
        }),
        line(AcceptInverseOffers {
            framework_id: framework_id.clone(),
            inverse_offer_ids: vec![id("m-O2")],
            filters,
        }),
        line(DeclineInverseOffers {
            framework_id: framework_id.clone(),
            inverse_offer_ids: vec![id("m-O2")],
            filters,
        }),
        line(ReviveOffers {
            framework_id: framework_id.clone(),
            roles: roles.clone(),
        }),
        line(SuppressOffers {
            framework_id: framework_id.clone(),
            roles,
        }),
        line(AcknowledgeStatus {
            framework_id: framework_id.clone(),
            agent_id: agent_id.clone(),
            task_id: task_id.clone(),
            uuid: Uuid([9; 16]),
        }),
        line(ReconcileTasks {
            framework_id: framework_id.clone(),
            tasks: vec![(task_id.clone(), Some(agent_id.clone()))],
        }),
        line(AcknowledgeOperation {
            framework_id: framework_id.clone(),
            agent_id: agent_id.clone(),
            operation_id: operation_id.clone(),
            uuid: Uuid([9; 16]),
        }),
        line(ReconcileOperations {
            framework_id: framework_id.clone(),
            operations: vec![(operation_id.clone(), Some(agent_id.clone()))],
        }),
        line(OperationChanged {
            status: operation_status,
        }),
        line(apply),
        line(OperationUpdated {
            agent_id: agent_id.clone(),
            update: operation_update,
        }),
        line(reported),
        line(OperationsSettled {
            agent_id: agent_id.clone(),
            serial: 6,
        }),
        line(Operate {
            agent_id: agent_id.clone(),
            conversion: reserve,
        }),
        line(KillTask {
            framework_id: framework_id.clone(),
            task_id: task_id.clone(),
            agent_id: Some(agent_id.clone()),
            kill_policy,
        }),
        line(TearDown {
            framework_id: framework_id.clone(),
        }),
        line(FrameworkMessage {
            framework_id: framework_id.clone(),
            agent_id: agent_id.clone(),
            executor_id: executor_id.clone(),
            data: vec![1, 2, 3],
        }),
        line(OffersMade {
            offers: vec![offer()],
        }),
        line(OfferRescinded {
            offer_id: id("m-O1"),
        }),
        line(InverseOffersMade {
            inverse_offers: vec![InverseOffer {
                id: id("m-O2"),
                framework_id: framework_id.clone(),
                agent_id: agent_id.clone(),
                unavailability: unavailability(),
                hostname: String::new(),
                endpoint: None,
            }],
        }),
        line(InverseOfferRescinded {
            inverse_offer_id: id("m-O2"),
        }),
        line(StatusChanged { status: status() }),
        line(TasksRevoked {
            tasks: vec![status()],
            deadline: Timestamp::default(),
            grace: Duration::from_secs(30),
            role: Some("ads".to_owned()),
        }),
        line(Lost {
            agent_id: agent_id.clone(),
            executor_id: Some(executor_id.clone()),
            termination: Some(Termination::Exited(3)),
        }),
        line(FrameworkFailed {
            message: "Framework failed over".to_owned(),
        }),
        line(StandBy {
            framework: framework(),
            scheduler: pid.clone(),
            wants: Default::default(),
        }),
        line(SchedulerElected {
            subscribed: Subscribed {
                framework_id: framework_id.clone(),
                master: master(),
            },
        }),
        line(GetState {
            framework_id: framework_id.clone(),
            scheduler: pid.clone(),
            key: "progress".to_owned(),
        }),
        line(ChangeState {
            framework_id: framework_id.clone(),
            scheduler: pid.clone(),
            key: "progress".to_owned(),
            expected: Some(7),
            value: Some(vec![1, 2, 3]),
        }),
        line(RunTasks {
            framework: framework(),
            tasks: vec![task()],
        }),
        line(TaskUpdated {
            agent_id: agent_id.clone(),
            update,
        }),
        line(ExecutorExited {
            agent_id: agent_id.clone(),
            framework_id: framework_id.clone(),
            executor_id: executor_id.clone(),
            termination: Some(Termination::Signaled(15)),
        }),
        line(DrainTasks {
            max_grace_period: Some(Duration::from_secs(7)),
        }),
        line(ShutDownFramework {
            framework_id: framework_id.clone(),
        }),
        line(EndExecutor {
            framework_id: framework_id.clone(),
            executor_id: executor_id.clone(),
        }),
        line(FrameworkChanged {
            framework: framework(),
        }),
        line(SubscribeExecutor {
            framework_id: framework_id.clone(),
            executor_id: executor_id.clone(),
            container_id: Uuid([7; 16]).into(),
            token: "secret".to_owned(),
            pid,
        }),
        line(LaunchTask {
            task: TaskInfo {
                command: None,
                executor: Some(executor()),
                ..task()
            },
        }),
        line(EndTask {
            task_id: task_id.clone(),
            kill_policy,
        }),
        line(ShutDownExecutor {
            grace_period: Duration::from_secs(5),
        }),
        line(ExecutorUpdated { status: status() }),
        line(UpdateStored {
            task_id: task_id.clone(),
            uuid: Uuid([9; 16]),
        }),
        line(OversubscribedChanged {
            agent_id,
            total: Resources::parse("cpus:14")
                .unwrap()
                .to_revocable(Revocable::Throttleable)
                .unwrap(),
        }),
        line(ViewRoles),
        line(UpdateQuotas {
            quotas: BTreeMap::from([("eng/web".to_owned(), quota())]),
            force: true,
        }),
        line(UpdateWeights {
            weights: BTreeMap::from([("eng/web".to_owned(), 2.5)]),
        }),
        line(ViewMaintenanceSchedule),
        line(ViewMaintenanceStatus),
        line(UpdateMaintenanceSchedule {
            windows: vec![Window {
                machines: vec![machine()],
                unavailability: unavailability(),
            }],
        }),
        line(StartMaintenance {
            machines: vec![machine()],
        }),
        line(StopMaintenance {
            machines: vec![machine()],
        }),
        line(DrainAgent {
            agent_id: id("m-S1"),
            max_grace_period: Some(Duration::from_secs(7)),
            mark_gone: true,
        }),
        line(DeactivateAgent {
            agent_id: id("m-S1"),
        }),
        line(ReactivateAgent {
            agent_id: id("m-S1"),
        }),
        line(CancelDrain {
            agent_id: id("m-S1"),
        }),
        line(MarkAgentGone {
            agent_id: id("m-S1"),
        }),
        line(ExplainOffers {
            framework: "web".to_owned(),
            role: Some("eng/web".to_owned()),
            agent: None,
        }),
        line(ViewCluster),
        line(KillByOperator {
            task_id,
            framework_id: Some(framework_id.clone()),
        }),
        line(ReadSandbox {
            framework_id,
            executor_id,
            path: "stdout".to_owned(),
            offset: 300,
            length: 70_000,
        }),
        line(ViewOversubscription),
    ];
    let mut now = lines.join("\n");
    writeln!(
        now,
        "\nanswer/view_cluster v4 {}",
        hex(&answered(cluster()))
    )
    .unwrap();
    writeln!(now, "answer/view_roles v2 {}", hex(&answered(role()))).unwrap();
    let explained: Result<_, ExplainError> = Ok(explained());
    writeln!(now, "answer/explain_offers v3 {}", hex(&explained)).unwrap();
    if std::env::var_os("MEROS_WRITE_GOLDEN").is_some() {
        std::fs::write(GOLDEN, &now).unwrap();
    }
    let golden = std::fs::read_to_string(GOLDEN).unwrap();
    for (golden, now) in golden.lines().zip(now.lines()) {
        assert_eq!(
            golden, now,
            "a released message has other bytes: give it a new version instead"
        );
    }
    assert_eq!(
        golden.lines().count(),
        now.lines().count(),
        "a message has no golden bytes yet: see the top of this file"
    );
}

fn answered<T>(view: T) -> Result<T, OverRateLimit> {
    Ok(view)
}

fn hex(view: &impl Serialize) -> String {
    let bytes = codec::encode(view).unwrap();
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
