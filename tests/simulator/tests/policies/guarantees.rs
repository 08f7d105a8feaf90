//! Unused guarantees are lent to other roles and recovered by warnings and kills (S115, S122, S123,
//! S124).

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};

use protocol::message::scheduler::TasksRevoked;
use protocol::text::reserved_labels::PRIORITY;
use protocol::{Demand, Offer, Reason, TaskId, TaskState, TaskStatus};
use resources::Quantities;
use runtime::testing::simulate_network;
use runtime::{Clock, Instant};
use scheduler_driver::{Calls, Scheduler};

use crate::mini_cluster::{MiniCluster, STUBBORN, task};

/// A framework's task events, each line with the second of its receipt.
type Diary = Arc<Mutex<Vec<String>>>;

/// Runs this number of tasks of one cpu each.
struct Batch {
    clock: Clock,
    diary: Diary,
    /// Name, command and priority.
    tasks: VecDeque<(String, &'static str, i32)>,
    /// The number of revoked tasks that it ends itself, at once.
    heeds: usize,
    /// Whether it launches another task for each ended one.
    relaunches: bool,
}

impl Batch {
    fn new(
        cluster: &MiniCluster,
        name: &str,
        tasks: impl IntoIterator<Item = (&'static str, i32)>,
    ) -> (Self, Diary) {
        let diary = Diary::default();
        let tasks = tasks.into_iter().enumerate();
        let tasks = tasks.map(|(n, (command, priority))| (format!("{name}{n}"), command, priority));
        let batch = Self {
            clock: cluster.node.clock().clone(),
            diary: diary.clone(),
            tasks: tasks.collect(),
            heeds: 0,
            relaunches: false,
        };
        (batch, diary)
    }

    fn note(&self, line: String) {
        let second = self.clock.now() - Instant::default();
        let line = format!("{}: {line}", second.as_secs());
        self.diary.lock().unwrap().push(line);
    }
}

fn second(line: &str) -> u64 {
    line.split(':').next().unwrap().parse().unwrap()
}

/// The lines since the last call; lines of one second are sorted.
fn take(diary: &Diary) -> Vec<String> {
    let mut lines = std::mem::take(&mut *diary.lock().unwrap());
    lines.sort_by_key(|line| (second(line), line.clone()));
    lines
}

impl Scheduler for Batch {
    fn offers(&mut self, driver: &mut Calls, offers: Vec<Offer>) {
        for mut offer in offers {
            let mut launched = Vec::new();
            while let Some((name, command, priority)) = self.tasks.pop_front() {
                let Some(mut task) = task(&name, command, "cpus:1;mem:64", &mut offer) else {
                    self.tasks.push_front((name, command, priority));
                    break;
                };
                let label = (PRIORITY.to_owned(), priority.to_string());
                task.labels.extend([label]);
                launched.push(task);
            }
            driver.launch(vec![offer.id], launched);
        }
        if self.tasks.is_empty() {
            driver.suppress(Default::default());
        }
    }

    fn status(&mut self, driver: &mut Calls, status: &TaskStatus) {
        let reason = match status.reason {
            Some(Reason::ContainerPreempted) => " to make room",
            _ => "",
        };
        self.note(format!("{} {}{reason}", status.task_id, status.state));
        if self.relaunches && status.state.is_terminal() {
            let name = format!("{}-again", status.task_id);
            self.tasks.push_back((name, "forever", 0));
            driver.revive(Default::default());
        }
    }

    fn revoked(&mut self, driver: &mut Calls, revoked: &TasksRevoked) {
        let mut ids: Vec<TaskId> = revoked
            .tasks
            .iter()
            .map(|one| one.task_id.clone())
            .collect();
        ids.sort();
        let names: Vec<String> = ids.iter().map(ToString::to_string).collect();
        let time = revoked.grace.as_secs();
        self.note(format!("revoked {} in {time} s", names.join(" ")));
        assert!(
            revoked
                .tasks
                .iter()
                .all(|one| one.state == TaskState::Running)
        );
        let ended = ids.into_iter().take(self.heeds);
        ended.for_each(|id| driver.kill(id, None));
    }
}

const PARAMETERS: [(&str, &str); 2] = [
    ("revoke_after", "10secs"),
    ("revocation_grace_period", "20secs"),
];

// Covers S123; W10.
#[test]
fn guarantee_is_met_by_revoking_the_least_important() {
    simulate_network(|network| async move {
        let cluster = MiniCluster::new(network, &PARAMETERS).await;
        cluster.agent("a1", "cpus:4;mem:1024").await;
        cluster.agent("a2", "cpus:4;mem:1024").await;
        cluster.guarantee("web", "cpus:3").await.unwrap();
        let seen = cluster.role("web").await;
        let guaranteed = seen.quota.guarantees.to_string();
        assert_eq!(guaranteed, "cpus:3", "S123: read through an API");
        let tasks = [7, 7, 7, 1, 2, 7, 3, 7].map(|priority| ("forever", priority));
        let (batch, of_batch) = Batch::new(&cluster, "b", tasks);
        let _batch = cluster.framework("batch", "batch", batch).await;
        cluster.pass(60).await;
        let running = take(&of_batch);
        assert_eq!(
            running.len(),
            8,
            "all is lent while nobody wants it: {running:?}"
        );
        let (web, of_web) = Batch::new(&cluster, "w", [("forever", 0); 3]);
        let _web = cluster.framework("web", "web", web).await;
        cluster.pass(120).await;
        let told = take(&of_batch);
        assert_eq!(told.len(), 4, "{told:?}");
        assert!(told[0].contains("revoked b3 b4 b6 in 20 s"), "{told:?}");
        for (line, name) in told[1..].iter().zip(["b3", "b4", "b6"]) {
            let expected = format!("{name} TASK_KILLED to make room");
            assert!(line.ends_with(&expected), "{told:?}");
        }
        assert!((70..75).contains(&second(&told[0])), "{told:?}");
        assert_eq!(second(&told[1]), second(&told[0]) + 20, "{told:?}");
        let launched = take(&of_web);
        assert_eq!(launched.len(), 3, "{launched:?}");
        cluster.pass(600).await;
        assert_eq!(
            take(&of_batch),
            [""; 0],
            "web has all that it is guaranteed"
        );
    });
}

// Covers S122.
#[test]
fn heeded_warning_prevents_revocation() {
    simulate_network(|network| async move {
        let cluster = MiniCluster::new(network, &PARAMETERS).await;
        cluster.agent("a1", "cpus:4;mem:1024").await;
        let (mut batch, of_batch) = Batch::new(&cluster, "b", [("forever", 1), ("forever", 2)]);
        batch.heeds = usize::MAX;
        let _batch = cluster.framework("batch", "batch", batch).await;
        cluster.pass(1).await;
        let (stuck, of_stuck) = Batch::new(&cluster, "s", [(STUBBORN, 0), ("forever", 9)]);
        let _stuck = cluster.framework("stuck", "stuck", stuck).await;
        cluster.pass(1).await;
        cluster.guarantee("web", "cpus:2").await.unwrap();
        let (web, of_web) = Batch::new(&cluster, "w", [("forever", 0); 3]);
        let _web = cluster.framework("web", "web", web).await;
        cluster.pass(120).await;
        let lines = |diary: &Diary| {
            let words = take(diary).into_iter();
            let words = words.map(|line| line.split_once(": ").unwrap().1.to_owned());
            words.collect::<Vec<_>>()
        };
        let batch = lines(&of_batch);
        assert_eq!(
            batch[2..],
            ["b0 TASK_KILLED", "revoked b0 in 20 s"],
            "{batch:?}"
        );
        let stuck = lines(&of_stuck);
        let end = ["revoked s0 in 20 s", "s0 TASK_FAILED to make room"];
        assert_eq!(stuck[2..], end, "{stuck:?}");
        assert_eq!(lines(&of_web).len(), 2, "the third is beyond its guarantee");
    });
}

/// S122: a task that ends by itself before the deadline makes the room for which another was
/// warned.
// Covers S122.
#[test]
fn warned_task_stays_if_room_appears() {
    simulate_network(|network| async move {
        let cluster = MiniCluster::new(network, &PARAMETERS).await;
        cluster.agent("a1", "cpus:2;mem:1024").await;
        cluster.guarantee("web", "cpus:1").await.unwrap();
        let (batch, of_batch) = Batch::new(&cluster, "b", [("74", 9), ("forever", 0)]);
        let _batch = cluster.framework("batch", "batch", batch).await;
        cluster.pass(60).await;
        assert_eq!(take(&of_batch).len(), 2);
        let (web, of_web) = Batch::new(&cluster, "w", [("forever", 0)]);
        let _web = cluster.framework("web", "web", web).await;
        cluster.pass(300).await;
        let told = take(&of_batch);
        let lines: Vec<&str> = told
            .iter()
            .map(|line| line.split_once(": ").unwrap().1)
            .collect();
        let expected = ["revoked b1 in 20 s", "b0 TASK_FINISHED", "b1 TASK_RUNNING"];
        assert_eq!(lines, expected, "{told:?}");
        let (warned, spared) = (second(&told[0]), second(&told[2]));
        assert!(spared < warned + 20, "before the deadline: {told:?}");
        assert_eq!(take(&of_web).len(), 1);
    });
}

/// W9: room for one big piece is made of small ones, which end one after the other.
// Covers S115.
#[test]
fn large_demand_is_met_despite_small_launches() {
    simulate_network(|network| async move {
        let cluster = MiniCluster::new(network, &PARAMETERS).await;
        cluster.agent("a1", "cpus:4;mem:256").await;
        // Free, but of no use for any framework.
        cluster.agent("stranded", "cpus:10").await;
        cluster.guarantee("web", "cpus:4").await.unwrap();
        let (mut batch, of_batch) = Batch::new(&cluster, "b", [("forever", 0); 4]);
        batch.heeds = 1;
        batch.relaunches = true;
        let _batch = cluster.framework("batch", "batch", batch).await;
        cluster.pass(10).await;
        assert_eq!(take(&of_batch).len(), 4);
        let (web, of_web) = Batch::new(&cluster, "w", [("forever", 0); 4]);
        let least = Quantities::parse("cpus:4;mem:256").unwrap();
        let demand = Demand::shaped(least, Quantities::new());
        let _web = cluster
            .framework_demanding("web", "web", "web", demand, web)
            .await;
        cluster.pass(300).await;
        let told = take(&of_batch);
        let lines: Vec<&str> = told
            .iter()
            .map(|line| line.split_once(": ").unwrap().1)
            .collect();
        let expected = [
            "b0 TASK_KILLED",
            "revoked b0 b1 b2 b3 in 20 s",
            "b1 TASK_KILLED to make room",
            "b2 TASK_KILLED to make room",
            "b3 TASK_KILLED to make room",
        ];
        assert_eq!(lines, expected, "{told:?}");
        let running = take(&of_web);
        assert_eq!(running.len(), 4, "{running:?}");
        assert!(second(&running[0]) <= second(&told[4]) + 1, "{running:?}");
    });
}

/// S123: the module must be able to honour all guarantees at once.
// Covers S123.
#[test]
fn excessive_guarantees_are_refused() {
    simulate_network(|network| async move {
        let cluster = MiniCluster::new(network, &PARAMETERS).await;
        cluster.agent("a1", "cpus:4;mem:1024").await;
        cluster.guarantee("web", "cpus:3").await.unwrap();
        let refused = cluster
            .guarantee("ads", "cpus:2")
            .await
            .unwrap_err()
            .to_string();
        let expected = "total quota guarantees 'cpus:5' exceed cluster capacity 'cpus:4; mem:1024'";
        assert!(refused.contains(expected), "{refused}");
    });
}
