//! Long tasks share agents with short ones, for which there is always room (S120, S121).

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};

use protocol::message::scheduler::TasksRevoked;
use protocol::text::reserved_labels::{self, DURATION};
use protocol::{Filters, Offer, Operation, TaskState, TaskStatus};
use resources::Quantities;
use runtime::testing::simulate_network;
use runtime::{Clock, Instant};
use scheduler_driver::{Calls, Scheduler};

use crate::mini_cluster::{MiniCluster, task};

const NEEDS: &str = "cpus:1;mem:64";

/// The results of a job's tasks.
#[derive(Default)]
struct Seen {
    /// Each line with the second of its receipt.
    told: Vec<(u64, String)>,
    running: usize,
    running_most: usize,
    finished: usize,
}

/// Runs tasks of one cpu each, all with the same command.
struct Job {
    clock: Clock,
    command: &'static str,
    mark: Option<&'static str>,
    /// Whether it requests the remaining room for long tasks.
    heeds: bool,
    tasks: VecDeque<String>,
    seen: Arc<Mutex<Seen>>,
}

impl Job {
    fn new(
        cluster: &MiniCluster,
        name: &str,
        tasks: usize,
        command: &'static str,
        mark: Option<&'static str>,
    ) -> (Self, Arc<Mutex<Seen>>) {
        let seen = Arc::<Mutex<Seen>>::default();
        let job = Self {
            clock: cluster.node.clock().clone(),
            command,
            mark,
            heeds: false,
            tasks: (0..tasks).map(|n| format!("{name}{n}")).collect(),
            seen: seen.clone(),
        };
        (job, seen)
    }

    fn note(&self, line: String) {
        let second = self.clock.now() - Instant::default();
        let line = (second.as_secs(), line);
        self.seen.lock().unwrap().told.push(line);
    }
}

impl Scheduler for Job {
    fn offers(&mut self, driver: &mut Calls, offers: Vec<Offer>) {
        let needs = Quantities::parse(NEEDS).unwrap();
        for mut offer in offers {
            let mut left = reserved_labels::long_left(&offer.attributes).unwrap();
            let mut tasks = Vec::new();
            while let Some(name) = self.tasks.pop_front() {
                let fits = !self.heeds || left.contains(&needs);
                let task = task(&name, self.command, NEEDS, &mut offer).filter(|_| fits);
                let Some(mut task) = task else {
                    self.tasks.push_front(name);
                    break;
                };
                left -= &needs;
                let mark = self.mark.map(|mark| (DURATION.to_owned(), mark.to_owned()));
                task.labels.extend(mark);
                tasks.push(task);
            }
            let launch = Operation::Launch { tasks };
            let filters = Filters {
                refuse_seconds: 1.0,
            };
            driver.accept(vec![offer.id], vec![launch], filters);
        }
    }

    fn status(&mut self, _: &mut Calls, status: &TaskStatus) {
        self.note(format!("{} {}", status.task_id, status.state));
        let mut seen = self.seen.lock().unwrap();
        if status.state == TaskState::Running {
            seen.running += 1;
            seen.running_most = seen.running_most.max(seen.running);
        } else if status.state.is_terminal() {
            seen.running = seen.running.saturating_sub(1);
            seen.finished += usize::from(status.state == TaskState::Finished);
        }
    }

    fn revoked(&mut self, _: &mut Calls, revoked: &TasksRevoked) {
        assert_eq!(revoked.role, None, "nobody lacks anything");
        let names = revoked.tasks.iter().map(|one| one.task_id.to_string());
        let names: Vec<String> = names.collect();
        self.note(format!("revoked {}", names.join(" ")));
    }
}

const PARAMETERS: [(&str, &str); 3] = [
    ("long_task_share", "0.5"),
    ("short_task_max", "60secs"),
    ("revocation_grace_period", "20secs"),
];

/// S120: a node with four cores runs MPI on two of them and MapReduce on the rest.
// Covers S120.
#[test]
fn two_of_four_cores_stay_for_short_tasks() {
    simulate_network(|network| async move {
        let cluster = MiniCluster::new(network, &PARAMETERS).await;
        cluster.agent("a1", "cpus:4;mem:1024").await;
        let (mut mpi, of_mpi) = Job::new(&cluster, "rank", 8, "forever", Some("long"));
        mpi.heeds = true;
        let _mpi = cluster.framework("mpi", "mpi", mpi).await;
        cluster.pass(5).await;
        let (maps, of_maps) = Job::new(&cluster, "map", 40, "4", Some("short"));
        let _maps = cluster.framework("mapreduce", "mapreduce", maps).await;
        cluster.pass(200).await;
        let mpi = of_mpi.lock().unwrap();
        assert_eq!(mpi.told.len(), 2, "never revoked: {:?}", mpi.told);
        assert_eq!(mpi.running, 2);
        let maps = of_maps.lock().unwrap();
        assert_eq!((maps.finished, maps.running_most), (40, 2));
    });
}

/// S121: long tasks have a bounded share, and a long task without the mark is revoked in the end.
// Covers S121.
#[test]
fn long_tasks_beyond_their_share_are_refused() {
    simulate_network(|network| async move {
        let cluster = MiniCluster::new(network, &PARAMETERS).await;
        cluster.agent("a1", "cpus:4;mem:1024").await;
        let (greedy, of_greedy) = Job::new(&cluster, "g", 3, "forever", Some("long"));
        let _greedy = cluster.framework("greedy", "greedy", greedy).await;
        cluster.pass(1).await;
        let (silent, of_silent) = Job::new(&cluster, "s", 1, "forever", None);
        let _silent = cluster.framework("silent", "silent", silent).await;
        cluster.pass(5).await;
        let mut told = std::mem::take(&mut of_greedy.lock().unwrap().told);
        told.sort_by(|one, other| one.1.cmp(&other.1));
        let told: Vec<&str> = told.iter().map(|(_, line)| &**line).collect();
        assert_eq!(told, ["g0 TASK_RUNNING", "g1 TASK_RUNNING", "g2 TASK_LOST"]);
        cluster.pass(200).await;
        let silent = &of_silent.lock().unwrap().told;
        let lines: Vec<&str> = silent.iter().map(|(_, line)| &**line).collect();
        assert_eq!(lines, ["s0 TASK_RUNNING", "revoked s0", "s0 TASK_KILLED"]);
        let began = silent[0].0;
        assert!(
            (began + 60..=began + 61).contains(&silent[1].0),
            "{silent:?}"
        );
        assert_eq!(silent[2].0, silent[1].0 + 20);
        assert_eq!(of_greedy.lock().unwrap().running, 2, "long ones stay");
    });
}
