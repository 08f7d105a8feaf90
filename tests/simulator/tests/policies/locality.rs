//! Delay scheduling: a framework that waits briefly for the agents with its data runs nearly all of
//! its tasks there (S112, P4).

use std::collections::{BTreeSet, VecDeque};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use protocol::{Filters, Offer, TaskStatus};
use rand::rngs::SmallRng;
use rand::seq::index::sample;
use rand::{Rng, SeedableRng};
use runtime::Clock;
use runtime::testing::simulate_network;
use scheduler_driver::{Calls, DelayScheduling, Scheduler};

use crate::mini_cluster::{MiniCluster, task};

const AGENTS: usize = 12;
const SLOTS: usize = 2;
const FRAMEWORKS: u64 = 3;
/// Each framework has tasks of four seconds, with one block of data each, which is on three agents.
const TASKS: usize = 30;
const COPIES: usize = 3;

/// One framework's result.
#[derive(Clone, Copy, Default)]
struct Figures {
    local: usize,
    launched: usize,
    ended: usize,
}

/// A job: each of its tasks reads a block that some hosts have.
struct Job {
    clock: Clock,
    delay: DelayScheduling,
    /// The hosts of each task.
    waiting: VecDeque<(String, BTreeSet<String>)>,
    figures: Arc<Mutex<Figures>>,
}

impl Job {
    /// The index of the next task on this host, and whether its data is there.
    fn next(&mut self, host: &str) -> Option<(usize, bool)> {
        let has_data = |(_, hosts): &(_, BTreeSet<String>)| hosts.contains(host);
        let local = self.waiting.iter().position(has_data);
        let is_local = local.is_some();
        let takes = !self.waiting.is_empty() && self.delay.takes(is_local, self.clock.now());
        takes.then(|| (local.unwrap_or_default(), is_local))
    }
}

impl Scheduler for Job {
    fn offers(&mut self, driver: &mut Calls, offers: Vec<Offer>) {
        for mut offer in offers {
            let mut tasks = Vec::new();
            while let Some((place, is_local)) = self.next(&offer.hostname) {
                let (name, hosts) = self.waiting.remove(place).unwrap();
                let Some(task) = task(&name, "4", "cpus:1;mem:64", &mut offer) else {
                    self.waiting.insert(place, (name, hosts));
                    break;
                };
                tasks.push(task);
                let mut figures = self.figures.lock().unwrap();
                figures.launched += 1;
                figures.local += usize::from(is_local);
            }
            let filters = Filters {
                refuse_seconds: 1.0,
            };
            let launch = protocol::Operation::Launch { tasks };
            driver.accept(vec![offer.id], vec![launch], filters);
        }
        if self.waiting.is_empty() {
            driver.suppress(Default::default());
        }
    }

    fn status(&mut self, _: &mut Calls, status: &TaskStatus) {
        self.figures.lock().unwrap().ended += usize::from(status.state.is_terminal());
    }
}

/// The fraction of tasks that ran where their data is, and the second in which the last one ended.
fn locality(wait: Duration) -> (f64, u64) {
    simulate_network(|network| async move {
        let cluster = MiniCluster::new(network, &[]).await;
        let mut rng = SmallRng::seed_from_u64(112);
        for n in 0..AGENTS {
            let total = format!("cpus:{SLOTS};mem:{}", 64 * SLOTS);
            cluster.agent(&format!("host-{n}"), &total).await;
        }
        let (mut drivers, mut all) = (Vec::new(), Vec::new());
        for n in 0..FRAMEWORKS {
            let mut tasks = VecDeque::new();
            for task in 0..TASKS {
                let mut dice = SmallRng::seed_from_u64(rng.random());
                let hosts = sample(&mut dice, AGENTS, COPIES).into_iter();
                let hosts = hosts.map(|host| format!("host-{host}")).collect();
                tasks.push_back((format!("t{task}"), hosts));
            }
            let figures = Arc::<Mutex<Figures>>::default();
            let job = Job {
                clock: cluster.node.clock().clone(),
                delay: DelayScheduling::new(wait),
                waiting: tasks,
                figures: figures.clone(),
            };
            let name = format!("job-{n}");
            drivers.push(cluster.framework(&name, &name, job).await);
            all.push(figures);
        }
        let sum = |of: fn(&Figures) -> usize| all.iter().map(|one| of(&one.lock().unwrap())).sum();
        let mut seconds = 0;
        loop {
            let ended: usize = sum(|one| one.ended);
            if ended == TASKS * FRAMEWORKS as usize {
                break;
            }
            assert!(seconds < 600, "{ended} tasks have ended");
            cluster.pass(1).await;
            seconds += 1;
        }
        let (local, launched): (usize, usize) = (sum(|one| one.local), sum(|one| one.launched));
        (local as f64 / launched as f64, seconds)
    })
}

// Covers S112; P4.
#[test]
fn delay_scheduling_gives_locality() {
    let waits = [0, 1, 5].map(|seconds| locality(Duration::from_secs(seconds)));
    let [none, one, five] = waits;
    println!("part of the tasks that were local, and seconds: {waits:?}");
    assert!(none.0 < one.0 && one.0 < five.0, "{waits:?}");
    assert!(one.0 > 0.9 && five.0 > 0.95, "{waits:?}");
    assert!(five.1 < 2 * none.1, "and it costs little time: {waits:?}");
}
