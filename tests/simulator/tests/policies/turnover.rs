//! Turnover of short tasks: a late framework gets its share as soon as enough tasks of others have
//! ended, without a kill (S114).

use std::sync::{Arc, Mutex};

use protocol::{Filters, Offer, TaskState, TaskStatus};
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use runtime::testing::simulate_network;
use scheduler_driver::{Calls, Scheduler};

use crate::mini_cluster::{MiniCluster, task};

const AGENTS: u64 = 10;
const SLOTS: u64 = 10;
/// The first frameworks; with the late one the share of each is a tenth.
const FIRST: u64 = 9;
/// A tenth of all slots.
const SHARE: usize = 10;

/// The results of one framework's tasks.
#[derive(Clone, Copy, Debug, Default)]
struct Figures {
    running: usize,
    /// Tasks that did not end by themselves.
    lost: usize,
}

/// A framework with endless tasks, of a length between half and one and a half times the mean.
struct Crew {
    dice: SmallRng,
    mean: u64,
    begun: usize,
    figures: Arc<Mutex<Figures>>,
}

impl Scheduler for Crew {
    fn offers(&mut self, driver: &mut Calls, offers: Vec<Offer>) {
        for mut offer in offers {
            let mut tasks = Vec::new();
            loop {
                let seconds = self.dice.random_range(self.mean / 2..=self.mean * 3 / 2);
                let (name, seconds) = (format!("t{}", self.begun), seconds.to_string());
                let Some(task) = task(&name, &seconds, "cpus:1;mem:64", &mut offer) else {
                    break;
                };
                self.begun += 1;
                tasks.push(task);
            }
            let launch = protocol::Operation::Launch { tasks };
            driver.accept(vec![offer.id], vec![launch], Filters::default());
        }
    }

    fn status(&mut self, _: &mut Calls, status: &TaskStatus) {
        let mut figures = self.figures.lock().unwrap();
        match status.state {
            TaskState::Running => figures.running += 1,
            TaskState::Finished => figures.running -= 1,
            _ => figures.lost += 1,
        }
    }
}

/// Seconds until a late framework has nine tenths of its share, in a cluster full of tasks of this
/// mean length in seconds.
fn waited(mean: u64) -> u64 {
    simulate_network(|network| async move {
        let cluster = MiniCluster::new(network, &[]).await;
        for n in 0..AGENTS {
            let total = format!("cpus:{SLOTS};mem:{}", 64 * SLOTS);
            cluster.agent(&format!("host-{n}"), &total).await;
        }
        let (mut drivers, mut all) = (Vec::new(), Vec::new());
        for n in 0..=FIRST {
            if n == FIRST {
                // By now the ends of tasks are spread out.
                cluster.pass(3 * mean).await;
            }
            let figures = Arc::<Mutex<Figures>>::default();
            let crew = Crew {
                dice: SmallRng::seed_from_u64(n),
                mean,
                begun: 0,
                figures: figures.clone(),
            };
            let name = format!("crew-{n}");
            drivers.push(cluster.framework(&name, &name, crew).await);
            all.push(figures);
        }
        let figures = || -> Vec<Figures> { all.iter().map(|one| *one.lock().unwrap()).collect() };
        let share = || figures().last().map_or(0, |late| late.running);
        let mut waited = 0;
        while share() < SHARE * 9 / 10 {
            assert!(waited < mean, "it has {} tasks", share());
            cluster.pass(1).await;
            waited += 1;
        }
        // It keeps its share from then on, like all others, and nothing is idle.
        cluster.pass(mean).await;
        let figures = figures();
        let shares = figures.iter().map(|one| one.running);
        assert!(
            shares.clone().all(|own| own.abs_diff(SHARE) <= 2),
            "{figures:?}"
        );
        assert!(shares.sum::<usize>() >= 98, "{figures:?}");
        assert!(figures.iter().all(|one| one.lost == 0), "{figures:?}");
        waited
    })
}

// Covers S114.
#[test]
fn late_framework_gets_its_share_quickly() {
    for mean in [40, 200] {
        let waited = waited(mean);
        println!("tasks of {mean} s: {waited} s");
        let tenth = mean / 10;
        assert!(
            (tenth / 2..=tenth * 3 / 2).contains(&waited),
            "{waited} s with tasks of {mean}"
        );
    }
}
