//! All types that the codec decodes from a link or a store: messages, answers, and records of the
//! registry.
//!
//! `every_message_is_fuzzed` reads the sources and fails if a version of a message is missing here.

use std::collections::BTreeSet;
use std::fmt::Debug;
use std::fs;
use std::path::Path;

use consensus::member::bootstrap::Introduce;
use consensus::member::dumping::{ReadDump, TakeDump};
use consensus::member::operator::{ChangeMasters, ViewMaster};
use consensus::member::{Arrived, Dismissed, PacketSent};
use master::leadership::mirror::MirrorUpdate;
use module_api::allocator::*;
use module_api::isolator::*;
use module_api::qos_controller::*;
use module_api::resource_estimator::*;
use module_api::sorter::*;
use module_api::usage::*;
use protocol::message::executor::*;
use protocol::message::operation::*;
use protocol::message::operator::*;
use protocol::message::oversubscription::*;
use protocol::message::registration::*;
use protocol::message::scheduler::*;
use protocol::message::standby::*;
use protocol::message::state::*;
use protocol::message::task::*;
use runtime::delivery::Sequenced;
use runtime::{Pid, Remote};
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::corpus;
use crate::target::{Target, body};

const GOLDEN: &str = include_str!("../../runtime/protocol/tests/golden.txt");

/// A message and, unless it is empty, its answer.
fn message<M: Remote + Debug>() -> Vec<Target>
where
    M::Result: Serialize + DeserializeOwned + Debug,
{
    let mut target = body::<M>(M::NAME);
    let released = format!("{} v{} ", M::NAME, M::VERSION);
    let golden = GOLDEN
        .lines()
        .filter_map(|line| corpus::input(line.strip_prefix(&released)?));
    target.seeds.extend(golden);
    match size_of::<M::Result>() {
        0 => vec![target],
        _ => vec![target, body::<M::Result>(format!("{} answer", M::NAME))],
    }
}

/// The targets of one version of a message.
struct Fuzzed {
    name: &'static str,
    version: u16,
    targets: Vec<Target>,
}

macro_rules! messages {
    ($($message:ty)*) => {
        vec![$(Fuzzed {
            name: <$message>::NAME,
            version: <$message>::VERSION,
            targets: message::<$message>(),
        }),*]
    };
}

/// All messages in all versions that are decoded.
fn messages() -> Vec<Fuzzed> {
    messages! {
        RegisterAgent ReregisterAgent PingAgent UnregisterAgent AgentSuspended AgentResumed ShutDownAgent DisownTasks AwaitLeader LeaderAnnounced TermSeen
        Subscribe UpdateFramework AcceptOffers DeclineOffers ReviveOffers SuppressOffers AcknowledgeStatus ReconcileTasks
        AcknowledgeOperation ReconcileOperations OperationChanged ApplyOperation OperationUpdated OperationsSettled
        ResourcesReported Operate
        KillTask TearDown FrameworkMessage OffersMade OfferRescinded StatusChanged TasksRevoked Lost FrameworkFailed
        InverseOffersMade InverseOfferRescinded AcceptInverseOffers DeclineInverseOffers
        StandBy SchedulerElected GetState ChangeState
        RunTasks TaskUpdated ExecutorExited ShutDownFramework EndExecutor FrameworkChanged
        SubscribeExecutor LaunchTask EndTask ShutDownExecutor ExecutorUpdated UpdateStored
        OversubscribedChanged ViewCluster ViewRoles ExplainOffers UpdateQuotas UpdateWeights KillByOperator ReadSandbox ViewOversubscription
        ViewMaintenanceSchedule ViewMaintenanceStatus UpdateMaintenanceSchedule StartMaintenance StopMaintenance
        DrainAgent DeactivateAgent ReactivateAgent CancelDrain MarkAgentGone DrainTasks
        Begin QuotasChanged WeightsChanged WhitelistChanged AgentAdded AgentRemoved AgentActivity AgentOversubscribed FrameworkAdded FrameworkRemoved
        FrameworkActivity OfferBudgetSpent Recovered Converted Suppressed Revived Granted Withdrawn Explain Measure UnavailabilityChanged InverseAnswered InverseGranted
        TasksWanted TasksListed VictimsNamed StillLacking LongTasksBounded
        PacketSent Arrived Dismissed Introduce ViewMaster ChangeMasters TakeDump ReadDump MirrorUpdate
        RecoverContainers PrepareContainer UpdateContainer MeasureContainers CleanUpContainer ContainerLimited NetworkRecovered
        Sequenced Slate InitializeQos Corrections InitializeEstimator Oversubscribable CurrentUsage
    }
}

/// All targets of this module.
pub fn targets() -> Vec<Target> {
    let messages = messages().into_iter();
    let mut all: Vec<Target> = messages.flat_map(|fuzzed| fuzzed.targets).collect();
    all.extend([
        body::<Pid>("pid"),
        body::<resources::Resources>("resources wire"),
        body::<resources::Attributes>("attributes wire"),
        body::<master::registry::RegistryOperation>("registry/operation"),
        body::<master::registry::SnapshotRecord>("registry/snapshot"),
        body::<agent::operations::checkpoint::Checkpoint>("agent/operations"),
        body::<consensus::member::address_book::AddressBook>("consensus/address_book"),
        body::<consensus::member::address_book::AddressChange>("consensus/address_book change"),
    ]);
    all
}

/// Names and versions in the `remote!` entries of a source file, without its tests.
fn message_versions(source: &str) -> Vec<(String, u16)> {
    let source = source.split("#[cfg(test)]").next().unwrap_or_default();
    let code = source.lines().filter(|line| !line.trim().starts_with("//"));
    code.filter_map(|line| {
        let (before, after) = line.split_once("= \"")?;
        let entry =
            before.contains("remote! {") || before.trim().chars().all(char::is_alphanumeric);
        let (name, rest) = after.split_once('"')?;
        let version = rest.trim_start().strip_prefix('v')?;
        let version = version.split(|c: char| !c.is_ascii_digit()).next()?;
        let version = version.parse().ok()?;
        (entry && name.contains('/')).then(|| (name.to_owned(), version))
    })
    .collect()
}

#[test]
fn every_message_is_fuzzed() {
    fn walk(dir: &Path, found: &mut BTreeSet<(String, u16)>) {
        let entries = fs::read_dir(dir).map(|entries| entries.flatten().collect());
        for entry in entries.unwrap_or_else(|_| Vec::new()) {
            let (path, name) = (entry.path(), entry.file_name());
            let name = name.to_string_lossy();
            let for_tests = [
                "target",
                "bench",
                "tests",
                "benches",
                "examples",
                "tests.rs",
                "testing.rs",
                "measure",
                "measure.rs",
                "connections",
                "connections.rs",
            ];
            if name.starts_with('.') || for_tests.contains(&&*name) {
                continue;
            }
            if path.is_dir() {
                walk(&path, found);
            } else if name.ends_with(".rs") {
                found.extend(message_versions(
                    &fs::read_to_string(&path).unwrap_or_default(),
                ));
            }
        }
    }
    let mut found = BTreeSet::new();
    for part in ["runtime", "master", "agent", "modules"] {
        walk(
            &Path::new(env!("CARGO_MANIFEST_DIR")).join(part),
            &mut found,
        );
    }
    assert!(found.len() > 40, "only {} messages were found", found.len());
    let fuzzed = messages().into_iter();
    let fuzzed = fuzzed.map(|fuzzed| (fuzzed.name.to_owned(), fuzzed.version));
    let fuzzed: BTreeSet<(String, u16)> = fuzzed.collect();
    let missing: Vec<&(String, u16)> = found.difference(&fuzzed).collect();
    assert!(
        missing.is_empty(),
        "messages that nobody fuzzes in this shape: add them to tests/fuzz/messages.rs: {missing:?}"
    );
}
