//! Turnover of short tasks: who comes late has its share as soon as enough of the others' tasks have ended, and nobody is killed for it (S114).

use std::sync::{Arc, Mutex};

use protocol::{Filters, Offer, TaskState, TaskStatus};
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use runtime::rehearsal::rehearse_network;
use scheduler_driver::{Scheduler, Verbs};

use crate::town::{Town, task};

const AGENTS: u64 = 10;
const SLOTS: u64 = 10;
/// Those who are there first; with the late one they are so many that the share of each is a tenth.
const FIRST: u64 = 9;
/// A tenth of all slots.
const SHARE: usize = 10;

/// How one framework's tasks do.
#[derive(Clone, Copy, Debug, Default)]
struct Figures {
    running: usize,
    /// Those that have ended otherwise than by themselves.
    lost: usize,
}

/// A framework that always has another task to run, of a length between half and one and a half times the mean one.
struct Crew {
    dice: SmallRng,
    mean: u64,
    begun: usize,
    figures: Arc<Mutex<Figures>>,
}

impl Scheduler for Crew {
    fn offers(&mut self, driver: &mut Verbs, offers: Vec<Offer>) {
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

    fn status(&mut self, _: &mut Verbs, status: &TaskStatus) {
        let mut figures = self.figures.lock().unwrap();
        match status.state {
            TaskState::Running => figures.running += 1,
            TaskState::Finished => figures.running -= 1,
            _ => figures.lost += 1,
        }
    }
}

/// How many seconds who comes late waits for nine tenths of its share, in a cluster full of tasks of this mean length in seconds.
fn waited(mean: u64) -> u64 {
    rehearse_network(|network| async move {
        let town = Town::new(network, &[]).await;
        for n in 0..AGENTS {
            let total = format!("cpus:{SLOTS};mem:{}", 64 * SLOTS);
            town.agent(&format!("host-{n}"), &total).await;
        }
        let (mut drivers, mut all) = (Vec::new(), Vec::new());
        for n in 0..=FIRST {
            if n == FIRST {
                // By now nobody's tasks end together.
                town.pass(3 * mean).await;
            }
            let figures = Arc::<Mutex<Figures>>::default();
            let crew = Crew {
                dice: SmallRng::seed_from_u64(n),
                mean,
                begun: 0,
                figures: figures.clone(),
            };
            let name = format!("crew-{n}");
            drivers.push(town.framework(&name, &name, crew).await);
            all.push(figures);
        }
        let figures = || -> Vec<Figures> { all.iter().map(|one| *one.lock().unwrap()).collect() };
        let share = || figures().last().map_or(0, |late| late.running);
        let mut waited = 0;
        while share() < SHARE * 9 / 10 {
            assert!(waited < mean, "it has {} tasks", share());
            town.pass(1).await;
            waited += 1;
        }
        // It has that from then on, as everybody has, and nothing lies idle.
        town.pass(mean).await;
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

#[test]
fn who_comes_late_waits_a_tenth_of_a_task_for_its_tenth_of_the_cluster() {
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
