//! Tests of operations on a failing disk.

use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use protocol::message::operator::FileChunk;
use protocol::{ContainerId, FrameworkId, OperationId};
use resources::{Annotations, Conversion, DiskInfo, Name, Reservation, Resource, Scalar};
use runtime::testing::simulate;
use testkit::disk::{Failure, SimulatedDisk};

use super::*;
use crate::host::detect::Host;
use crate::launcher::{Events, LaunchError, LaunchRequest};
use crate::sandbox::ReadError;
use crate::status::StatusUpdates;
use crate::{Launcher, Sandboxes, Settings};

/// Launches nothing.
struct Nowhere;

impl Launcher for Nowhere {
    fn attach(&mut self, _: Events) {}

    fn launch(&mut self, _: LaunchRequest) -> Result<(), LaunchError> {
        let reason = "nothing is launched here".to_owned();
        Err(LaunchError { reason })
    }

    fn terminate(&mut self, _: &ContainerId, _: Duration) {}

    fn kill(&mut self, _: &ContainerId) {}
}

impl Sandboxes for Nowhere {
    fn create(&self, _: &Path, _: &ContainerId, _: Option<&str>) -> Result<(), String> {
        Ok(())
    }

    fn read(&self, _: &Path, _: &str, _: u64, _: u32) -> Result<FileChunk, ReadError> {
        Err(ReadError::NotFound)
    }
}

/// Records operation statuses, finished serials and reports.
#[derive(Clone, Default)]
struct Listener(
    Arc<Mutex<Vec<(String, OperationState)>>>,
    Arc<Mutex<Vec<u64>>>,
    Arc<Mutex<Vec<AgentResources>>>,
);

impl Actor for Listener {
    type Context = Context<Self>;
}

impl Process for Listener {
    fn accepts(handlers: &mut RemoteHandlers<Self>) {
        handlers.accept_local::<OperationUpdated>();
        handlers.accept_local::<OperationsSettled>();
        handlers.accept_local::<ResourcesReported>();
    }
}

impl Handler<OperationUpdated> for Listener {
    type Result = ();
    fn handle(&mut self, updated: OperationUpdated, _: &mut Context<Self>) {
        let status = updated.update.status;
        let statuses = (status.operation_id.to_string(), status.state);
        self.0.lock().unwrap().push(statuses);
    }
}

impl Handler<OperationsSettled> for Listener {
    type Result = ();
    fn handle(&mut self, settled: OperationsSettled, _: &mut Context<Self>) {
        self.1.lock().unwrap().push(settled.serial);
    }
}

impl Handler<ResourcesReported> for Listener {
    type Result = ();
    fn handle(&mut self, reported: ResourcesReported, _: &mut Context<Self>) {
        self.2.lock().unwrap().push(reported.resources);
    }
}

fn reserved(text: &str) -> Resources {
    let ads = Reservation::dynamic("ads".parse().unwrap(), None);
    let resources = Resources::parse(text).unwrap();
    resources.push_reservation(&ads).unwrap()
}

fn volume(size: u32) -> Resource {
    let annotations = Annotations {
        reservations: vec![Reservation::dynamic("ads".parse().unwrap(), None)],
        disk: Some(Box::new(DiskInfo::persistent("v", None, "data"))),
        ..Annotations::default()
    };
    Resource::annotated(Name::Disk, Scalar::whole(size), annotations).unwrap()
}

/// An agent's operations on a disk, and a master.
struct Fixture {
    node: Node,
    disk: SimulatedDisk,
    operations: Handle<Operations>,
    master: Listener,
    pid: Pid,
}

fn store(disk: &SimulatedDisk) -> OperationStore {
    let disk = disk.clone();
    OperationStore::simulated(Arc::new(move || Ok(Box::new(disk.open()?))))
}

impl Fixture {
    fn start(node: Node) -> Self {
        let disk = SimulatedDisk::new();
        Self::over(node, "cpus:4", disk.clone(), store(&disk))
    }

    /// An operation with serial 1 whose checkpoint may be on disk.
    async fn in_doubt(node: Node) -> Self {
        let fixture = Self::start(node);
        for _ in 0..2 {
            fixture.disk.fail_next(sync());
        }
        let version = fixture.report().await.version;
        fixture.send_reservation("doubtful", version, Some(1)).await;
        fixture
    }

    /// An agent with these resources and this checkpoint store.
    fn over(node: Node, described: &str, disk: SimulatedDisk, store: OperationStore) -> Self {
        let host = Host {
            name: "h".into(),
            cores: 4,
            memory: 1 << 30,
            disk: 1 << 30,
        };
        let settings = Settings::new(vec!["m:5050".into()], Path::new("/w"));
        let config = settings.check_on(&host).unwrap();
        let status = node.spawn("status", StatusUpdates::default()).unwrap();
        let parts = (Box::new(Nowhere), Arc::new(Nowhere));
        let containerizer = Containerizer::new(config, parts.0, parts.1, status);
        let containerizer = node.spawn("containerizer", containerizer).unwrap();
        let described = Resources::parse(described).unwrap();
        let (version, now) = (Uuid([1; 16]), node.clock().now());
        let resource_state =
            ResourceState::recovered(&described, Checkpoint::default(), version, now).unwrap();
        let operations = Operations::new(resource_state, store, containerizer);
        let operations = node.spawn("operations", operations).unwrap();
        let master = Listener::default();
        let pid = node.spawn("master", master.clone()).unwrap().pid();
        let agent_id = AgentId::new("s").unwrap();
        operations
            .tell(MasterChanged(Some((agent_id, pid.clone()))))
            .unwrap();
        Self {
            node,
            disk,
            operations,
            master,
            pid,
        }
    }

    /// Reserves a core.
    async fn reserve(&self, name: &str) {
        let resources = reserved("cpus:1");
        self.apply(name, Conversion::Reserve { resources }).await;
    }

    /// Applies an operation for the present version.
    async fn apply(&self, name: &str, conversion: Conversion) {
        let version = self.report().await.version;
        self.send(name, conversion, version, None).await;
    }

    async fn report(&self) -> AgentResources {
        self.report_as(AgentId::new("s").ok()).await
    }

    async fn report_as(&self, agent_id: Option<AgentId>) -> AgentResources {
        let report = ReportResources { agent_id };
        self.operations.ask(report, PATIENCE).await.unwrap()
    }

    /// Sends a reservation of a core with this version and serial.
    async fn send_reservation(&self, name: &str, version: Uuid, serial: Option<u64>) {
        let resources = reserved("cpus:1");
        let conversion = Conversion::Reserve { resources };
        self.send(name, conversion, version, serial).await;
    }

    async fn send(&self, name: &str, conversion: Conversion, version: Uuid, serial: Option<u64>) {
        let framework = FrameworkId::new("f").unwrap();
        let apply = ApplyOperation {
            feedback: Some((framework, OperationId::new(name).unwrap())),
            conversion,
            version,
            serial,
        };
        let (node, operations) = (self.node.clone(), self.operations.clone());
        tokio::task::spawn_local(async move { operations.ask(Apply(apply), PATIENCE).await });
        node.clock().settle().await;
    }

    async fn advance(&self) {
        self.node.clock().advance(RESTORE_INTERVAL).await;
    }

    /// The listed operations: name, kind and state.
    async fn listed(&self) -> Vec<(String, &'static str, OperationState)> {
        let known = self.operations.ask(ListOperations, PATIENCE).await.unwrap();
        let known = known.into_iter().map(|one| {
            let status = one.update.status;
            assert_eq!(status.agent_id, Some(AgentId::new("s").unwrap()));
            let kind = one
                .conversion
                .map_or("unknown", |conversion| conversion.name());
            (status.operation_id.to_string(), kind, status.state)
        });
        known.collect()
    }

    fn statuses(&self) -> Vec<(String, OperationState)> {
        self.master.0.lock().unwrap().clone()
    }

    /// How many operations the next process finds.
    async fn found(self) -> usize {
        self.node.shutdown().await;
        self.disk.crash();
        store(&self.disk).read().unwrap().unacknowledged.len()
    }
}

fn sync() -> Failure {
    Failure::Sync("the disk did not answer".to_owned())
}

/// SPEC 5.1: an operation reported as failed is not there after a restart.
#[test]
fn failure_is_reported_only_once_certain() {
    simulate(|node| async move {
        let fixture = Fixture::start(node);
        for _ in 0..3 {
            fixture.disk.fail_next(sync());
        }
        fixture.reserve("doubtful").await;
        assert_eq!(fixture.statuses(), [], "it may be there");
        fixture.advance().await;
        assert_eq!(fixture.statuses(), [], "it still may");
        fixture.advance().await;
        let failed = ("doubtful".to_owned(), OperationState::Failed);
        assert_eq!(fixture.statuses(), std::slice::from_ref(&failed));
        fixture.reserve("next").await;
        let finished = ("next".to_owned(), OperationState::Finished);
        assert_eq!(fixture.statuses(), [failed, finished]);
        assert_eq!(fixture.found().await, 2);
    });
}

#[test]
fn later_operation_waits_for_an_uncertain_one() {
    simulate(|node| async move {
        let fixture = Fixture::start(node);
        fixture.disk.fail_next(sync());
        fixture.disk.fail_next(sync());
        fixture.reserve("doubtful").await;
        fixture.reserve("meanwhile").await;
        assert_eq!(fixture.statuses(), []);
        fixture.advance().await;
        let sent = |name: &str, state| (name.to_owned(), state);
        let expected = [
            sent("doubtful", OperationState::Failed),
            sent("meanwhile", OperationState::Dropped),
        ];
        assert_eq!(fixture.statuses(), expected);
        assert_eq!(fixture.found().await, 0);
    });
}

/// SPEC 3.5: GROW_VOLUME and SHRINK_VOLUME, on a real disk.
#[test]
fn resized_volume_keeps_its_files_and_size() {
    let work_dir = tempfile::tempdir().unwrap();
    let path = work_dir.path().to_owned();
    simulate(move |node| async move {
        let store = OperationStore::on_disk(&path);
        let fixture = Fixture::over(node, "disk:100", SimulatedDisk::new(), store);
        let grow = |size: u32, by: u32| Conversion::GrowVolume {
            volume: volume(size),
            addition: reserved(&format!("disk:{by}")).into_iter().next().unwrap(),
        };
        let shrink = |size: u32, by: u32| Conversion::ShrinkVolume {
            volume: volume(size),
            subtract: Scalar::whole(by),
        };
        let resources = reserved("disk:60");
        let volumes = Resources::from(volume(10));
        fixture
            .apply("reserve", Conversion::Reserve { resources })
            .await;
        fixture
            .apply("create", Conversion::Create { volumes })
            .await;
        let file = path.join("volumes/roles/ads/v/file");
        std::fs::write(&file, "content").unwrap();
        for (name, resized) in [
            ("grow", grow(10, 30)),
            ("shrink", shrink(40, 5)),
            ("too large", grow(35, 26)),
            ("too small", shrink(35, 35)),
            ("not its size", shrink(40, 5)),
        ] {
            fixture.apply(name, resized).await;
            assert_eq!(std::fs::read_to_string(&file).unwrap(), "content", "{name}");
        }
        let done = |name: &str| (name.to_owned(), OperationState::Finished);
        let failed = |name: &str| (name.to_owned(), OperationState::Failed);
        let mut expected = ["reserve", "create", "grow", "shrink"].map(done).to_vec();
        expected.extend(["too large", "too small", "not its size"].map(failed));
        assert_eq!(fixture.statuses(), expected);
        fixture.node.shutdown().await;
        drop(fixture);
        let kept = OperationStore::on_disk(&path).read().unwrap();
        assert_eq!(kept.made, reserved("disk:25") + Resources::from(volume(35)));
    });
}

/// SPEC 2.7, GET_OPERATIONS. A machine that was declared gone and returns is a new agent; the
/// frameworks have received the ends of the old one's operations.
#[test]
fn new_agent_id_keeps_resources_and_drops_statuses() {
    simulate(|node| async move {
        let fixture = Fixture::start(node);
        fixture.reserve("old").await;
        assert_eq!(fixture.report().await.operations.len(), 1, "it is itself");
        let new = fixture.report_as(None).await;
        assert_eq!(new.operations, []);
        assert!(new.total.contains(&reserved("cpus:1")), "{}", new.total);
        assert_eq!(fixture.listed().await, []);
        let sent = fixture.statuses().len();
        fixture.advance().await;
        assert_eq!(fixture.statuses().len(), sent);
    });
}

#[test]
fn operation_is_listed_until_acknowledged() {
    simulate(|node| async move {
        let fixture = Fixture::start(node);
        assert_eq!(fixture.listed().await, []);
        fixture.disk.fail_next(sync());
        fixture.disk.fail_next(sync());
        fixture.reserve("doubtful").await;
        let doubtful = |state| ("doubtful".to_owned(), "reserve", state);
        assert_eq!(fixture.listed().await, [doubtful(OperationState::Pending)]);
        fixture.advance().await;
        assert_eq!(fixture.listed().await, [doubtful(OperationState::Failed)]);
        fixture.reserve("done").await;
        let done = ("done".to_owned(), "reserve", OperationState::Finished);
        let both = [done.clone(), doubtful(OperationState::Failed)];
        assert_eq!(fixture.listed().await, both);
        let known = fixture
            .operations
            .ask(ListOperations, PATIENCE)
            .await
            .unwrap();
        let acknowledged = AcknowledgeOperation {
            framework_id: FrameworkId::new("f").unwrap(),
            agent_id: AgentId::new("s").unwrap(),
            operation_id: OperationId::new("doubtful").unwrap(),
            uuid: known[1].update.status.uuid.unwrap(),
        };
        let sent = fixture
            .operations
            .ask(OperationAcknowledged(acknowledged), PATIENCE);
        sent.await.unwrap();
        assert_eq!(fixture.listed().await, [done]);
    });
}

/// SPEC 3.5: a new master resends the operations of its registry.
#[test]
fn resent_operation_is_applied_once() {
    simulate(|node| async move {
        let fixture = Fixture::start(node);
        let version = fixture.report().await.version;
        fixture.send_reservation("first", version, Some(1)).await;
        fixture.send_reservation("first", version, Some(1)).await;
        fixture
            .send_reservation("stale", Uuid([7; 16]), Some(2))
            .await;
        let finished = ("first".to_owned(), OperationState::Finished);
        assert_eq!(
            fixture.statuses(),
            std::slice::from_ref(&finished),
            "the rest is in vain"
        );
        let over = || fixture.master.1.lock().unwrap().clone();
        assert_eq!(over(), [1, 1], "a repetition is answered as finished");
        let now = fixture.report().await;
        assert_eq!(now.settled, Some(1));
        fixture
            .send_reservation("again", now.version, Some(2))
            .await;
        assert_eq!(over(), [1, 1, 2]);
        fixture.node.shutdown().await;
        fixture.disk.crash();
        assert_eq!(store(&fixture.disk).read().unwrap().settled, 2);
    });
}

/// The write took so long that a registration's report did not include the operation.
#[test]
fn change_without_a_master_is_reported_later() {
    simulate(|node| async move {
        let fixture = Fixture::in_doubt(node).await;
        let sent = fixture.report().await.version;
        fixture.operations.tell(MasterChanged(None)).unwrap();
        fixture.advance().await;
        assert_eq!(fixture.master.2.lock().unwrap().len(), 0);
        let master = fixture.pid.clone();
        let agent_id = AgentId::new("s").unwrap();
        fixture
            .operations
            .tell(MasterChanged(Some((agent_id, master))))
            .unwrap();
        fixture.node.clock().settle().await;
        let reported = fixture.master.2.lock().unwrap().clone();
        assert!(reported.len() == 1 && reported[0].version != sent);
        assert_eq!(reported[0].settled, Some(1));
    });
}

#[test]
fn failed_operation_is_finished_too() {
    simulate(|node| async move {
        let fixture = Fixture::in_doubt(node).await;
        assert_eq!(
            *fixture.master.1.lock().unwrap(),
            [0_u64; 0],
            "it is uncertain"
        );
        fixture.advance().await;
        assert_eq!(fixture.statuses().len(), 1);
        assert_eq!(*fixture.master.1.lock().unwrap(), [1]);
        assert_eq!(fixture.report().await.settled, Some(1));
    });
}
