//! What becomes of an operation whose disk fails.

use std::path::Path;
use std::sync::{Arc, Mutex};

use protocol::message::operator::FilePiece;
use protocol::{ContainerId, FrameworkId, OperationId};
use resources::{Annotations, Conversion, DiskInfo, Name, Reservation, Resource, Scalar};
use runtime::rehearsal::rehearse;
use storage::forgetful::{Failure, ForgetfulDisk};

use super::*;
use crate::detect::Host;
use crate::launcher::{Events, LaunchError, LaunchRequest};
use crate::sandbox::ReadError;
use crate::status::StatusUpdates;
use crate::{Launcher, Sandboxes, Settings};

/// Where nothing is ever launched.
struct Nowhere;

impl Launcher for Nowhere {
    fn attach(&mut self, _: Events) {}

    fn launch(&mut self, _: LaunchRequest) -> Result<(), LaunchError> {
        let reason = "nothing is launched here".to_owned();
        Err(LaunchError { reason })
    }

    fn kill(&mut self, _: &ContainerId) {}
}

impl Sandboxes for Nowhere {
    fn create(&self, _: &Path, _: &ContainerId, _: Option<&str>) -> Result<(), String> {
        Ok(())
    }

    fn read(&self, _: &Path, _: &str, _: u64, _: u32) -> Result<FilePiece, ReadError> {
        Err(ReadError::NotFound)
    }
}

/// Writes down which operations it hears of, and how they went, which serials are over, and what is reported.
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
    fn hears(ears: &mut Ears<Self>) {
        ears.hear_local::<OperationUpdated>();
        ears.hear_local::<OperationsSettled>();
        ears.hear_local::<ResourcesReported>();
    }
}

impl Handler<OperationUpdated> for Listener {
    type Result = ();
    fn handle(&mut self, updated: OperationUpdated, _: &mut Context<Self>) {
        let status = updated.update.status;
        let heard = (status.operation_id.to_string(), status.state);
        self.0.lock().unwrap().push(heard);
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
struct Story {
    node: Node,
    disk: ForgetfulDisk,
    operations: Handle<Operations>,
    master: Listener,
    pid: Pid,
}

fn keeper(disk: &ForgetfulDisk) -> Keeper {
    let disk = disk.clone();
    Keeper::rehearsed(Arc::new(move || Ok(Box::new(disk.open()?))))
}

impl Story {
    fn begin(node: Node) -> Self {
        let disk = ForgetfulDisk::new();
        Self::over(node, "cpus:4", disk.clone(), keeper(&disk))
    }

    /// Of an operation that was told with the serial 1, and of which nobody knows whether it is on the disk.
    async fn in_doubt(node: Node) -> Self {
        let story = Self::begin(node);
        for _ in 0..2 {
            story.disk.fail_next(sync());
        }
        let version = story.report().await.version;
        story.tell("doubtful", version, Some(1)).await;
        story
    }

    /// Of an agent that has this, and keeps it there.
    fn over(node: Node, described: &str, disk: ForgetfulDisk, keeper: Keeper) -> Self {
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
        let held = Held::recovered(&described, Checkpoint::default(), version, now).unwrap();
        let operations = Operations::new(held, keeper, containerizer);
        let operations = node.spawn("operations", operations).unwrap();
        let master = Listener::default();
        let pid = node.spawn("master", master.clone()).unwrap().pid();
        let agent_id = AgentId::new("s").unwrap();
        operations
            .tell(MasterIs(Some((agent_id, pid.clone()))))
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

    /// Does this, as the master asks which knows what there is.
    async fn apply(&self, name: &str, conversion: Conversion) {
        let version = self.report().await.version;
        self.say(name, conversion, version, None).await;
    }

    async fn report(&self) -> AgentResources {
        self.report_as(AgentId::new("s").ok()).await
    }

    async fn report_as(&self, agent_id: Option<AgentId>) -> AgentResources {
        let report = Report { agent_id };
        self.operations.ask(report, PATIENCE).await.unwrap()
    }

    /// Tells it to reserve a core, by that serial and for that version.
    async fn tell(&self, name: &str, version: Uuid, serial: Option<u64>) {
        let resources = reserved("cpus:1");
        let conversion = Conversion::Reserve { resources };
        self.say(name, conversion, version, serial).await;
    }

    async fn say(&self, name: &str, conversion: Conversion, version: Uuid, serial: Option<u64>) {
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
        self.node.clock().advance(PUT_BACK_EVERY).await;
    }

    /// What it says that it knows: of each the name, the kind and how it is.
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

    fn heard(&self) -> Vec<(String, OperationState)> {
        self.master.0.lock().unwrap().clone()
    }

    /// How many operations the next process finds done.
    async fn found(self) -> usize {
        self.node.shutdown().await;
        self.disk.crash();
        keeper(&self.disk).read().unwrap().unacknowledged.len()
    }
}

fn sync() -> Failure {
    Failure::Sync("the disk did not answer".to_owned())
}

/// SPEC 5.1: what is said to have failed is not there after a restart.
#[test]
fn an_operation_has_failed_only_once_it_is_certain_that_it_is_not_on_the_disk() {
    rehearse(|node| async move {
        let story = Story::begin(node);
        for _ in 0..3 {
            story.disk.fail_next(sync());
        }
        story.reserve("doubtful").await;
        assert_eq!(story.heard(), [], "it may be there");
        story.advance().await;
        assert_eq!(story.heard(), [], "it still may");
        story.advance().await;
        let failed = ("doubtful".to_owned(), OperationState::Failed);
        assert_eq!(story.heard(), std::slice::from_ref(&failed));
        story.reserve("next").await;
        let finished = ("next".to_owned(), OperationState::Finished);
        assert_eq!(story.heard(), [failed, finished]);
        assert_eq!(story.found().await, 2);
    });
}

#[test]
fn another_operation_meanwhile_waits_and_is_not_built_upon_what_failed() {
    rehearse(|node| async move {
        let story = Story::begin(node);
        story.disk.fail_next(sync());
        story.disk.fail_next(sync());
        story.reserve("doubtful").await;
        story.reserve("meanwhile").await;
        assert_eq!(story.heard(), []);
        story.advance().await;
        let told = |name: &str, state| (name.to_owned(), state);
        let expected = [
            told("doubtful", OperationState::Failed),
            told("meanwhile", OperationState::Dropped),
        ];
        assert_eq!(story.heard(), expected);
        assert_eq!(story.found().await, 0);
    });
}

/// SPEC 3.5: GROW_VOLUME and SHRINK_VOLUME, on a real disk.
#[test]
fn a_volume_that_is_resized_keeps_what_is_in_it_and_the_next_process_knows_its_size() {
    let work_dir = tempfile::tempdir().unwrap();
    let path = work_dir.path().to_owned();
    rehearse(move |node| async move {
        let keeper = Keeper::on_disk(&path);
        let story = Story::over(node, "disk:100", ForgetfulDisk::new(), keeper);
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
        story
            .apply("reserve", Conversion::Reserve { resources })
            .await;
        story.apply("create", Conversion::Create { volumes }).await;
        let file = path.join("volumes/roles/ads/v/file");
        std::fs::write(&file, "content").unwrap();
        for (name, resized) in [
            ("grow", grow(10, 30)),
            ("shrink", shrink(40, 5)),
            ("too large", grow(35, 26)),
            ("too small", shrink(35, 35)),
            ("not its size", shrink(40, 5)),
        ] {
            story.apply(name, resized).await;
            assert_eq!(std::fs::read_to_string(&file).unwrap(), "content", "{name}");
        }
        let done = |name: &str| (name.to_owned(), OperationState::Finished);
        let failed = |name: &str| (name.to_owned(), OperationState::Failed);
        let mut expected = ["reserve", "create", "grow", "shrink"].map(done).to_vec();
        expected.extend(["too large", "too small", "not its size"].map(failed));
        assert_eq!(story.heard(), expected);
        story.node.shutdown().await;
        drop(story);
        let kept = Keeper::on_disk(&path).read().unwrap();
        assert_eq!(kept.made, reserved("disk:25") + Resources::from(volume(35)));
    });
}

/// SPEC 2.7, GET_OPERATIONS.
/// A machine that was called gone and comes back is a new agent: of what the old one has done its frameworks have heard the end.
#[test]
fn who_comes_back_as_a_new_agent_keeps_its_resources_and_tells_no_more_of_the_old_one() {
    rehearse(|node| async move {
        let story = Story::begin(node);
        story.reserve("old").await;
        assert_eq!(story.report().await.operations.len(), 1, "it is itself");
        let new = story.report_as(None).await;
        assert_eq!(new.operations, []);
        assert!(new.total.contains(&reserved("cpus:1")), "{}", new.total);
        assert_eq!(story.listed().await, []);
        let told = story.heard().len();
        story.advance().await;
        assert_eq!(story.heard().len(), told);
    });
}

#[test]
fn an_operation_is_listed_from_its_beginning_until_its_status_is_acknowledged() {
    rehearse(|node| async move {
        let story = Story::begin(node);
        assert_eq!(story.listed().await, []);
        story.disk.fail_next(sync());
        story.disk.fail_next(sync());
        story.reserve("doubtful").await;
        let doubtful = |state| ("doubtful".to_owned(), "reserve", state);
        assert_eq!(story.listed().await, [doubtful(OperationState::Pending)]);
        story.advance().await;
        assert_eq!(story.listed().await, [doubtful(OperationState::Failed)]);
        story.reserve("done").await;
        let done = ("done".to_owned(), "reserve", OperationState::Finished);
        let both = [done.clone(), doubtful(OperationState::Failed)];
        assert_eq!(story.listed().await, both);
        let known = story
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
        let told = story.operations.ask(Acknowledged(acknowledged), PATIENCE);
        told.await.unwrap();
        assert_eq!(story.listed().await, [done]);
    });
}

/// SPEC 3.5: a new master says again what its registry has.
#[test]
fn what_is_said_again_is_done_once_also_by_the_next_process() {
    rehearse(|node| async move {
        let story = Story::begin(node);
        let version = story.report().await.version;
        story.tell("first", version, Some(1)).await;
        story.tell("first", version, Some(1)).await;
        story.tell("stale", Uuid([7; 16]), Some(2)).await;
        let finished = ("first".to_owned(), OperationState::Finished);
        assert_eq!(
            story.heard(),
            std::slice::from_ref(&finished),
            "the rest is in vain"
        );
        let over = || story.master.1.lock().unwrap().clone();
        assert_eq!(over(), [1, 1], "who says it again hears that it is over");
        let now = story.report().await;
        assert_eq!(now.settled, Some(1));
        story.tell("again", now.version, Some(2)).await;
        assert_eq!(over(), [1, 1, 2]);
        story.node.shutdown().await;
        story.disk.crash();
        assert_eq!(keeper(&story.disk).read().unwrap().settled, 2);
    });
}

/// It took so long that the agent told a master what there was before it, and that master has taken the agent in only since.
#[test]
fn what_changed_while_there_was_no_master_is_reported_to_the_next() {
    rehearse(|node| async move {
        let story = Story::in_doubt(node).await;
        let told = story.report().await.version;
        story.operations.tell(MasterIs(None)).unwrap();
        story.advance().await;
        assert_eq!(story.master.2.lock().unwrap().len(), 0);
        let master = story.pid.clone();
        let agent_id = AgentId::new("s").unwrap();
        story
            .operations
            .tell(MasterIs(Some((agent_id, master))))
            .unwrap();
        story.node.clock().settle().await;
        let reported = story.master.2.lock().unwrap().clone();
        assert!(reported.len() == 1 && reported[0].version != told);
        assert_eq!(reported[0].settled, Some(1));
    });
}

#[test]
fn what_cannot_be_done_is_over_as_well() {
    rehearse(|node| async move {
        let story = Story::in_doubt(node).await;
        assert_eq!(*story.master.1.lock().unwrap(), [0_u64; 0], "nobody knows");
        story.advance().await;
        assert_eq!(story.heard().len(), 1);
        assert_eq!(*story.master.1.lock().unwrap(), [1]);
        assert_eq!(story.report().await.settled, Some(1));
    });
}
