//! Random faults: broken links, power failures, slow disks and small snapshots. Deterministic for a
//! seed.

use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};

use super::*;

const NAMES: [&str; 3] = ["a", "b", "c"];

struct FaultyRun {
    cluster: Cluster,
    rng: SmallRng,
    down: Option<&'static str>,
    next: u64,
    under_way: Vec<(
        u64,
        futures_util::future::BoxFuture<'static, Result<usize, ProposeError>>,
    )>,
    acknowledged: Vec<u64>,
    lost: Vec<u64>,
}

impl FaultyRun {
    fn start(&mut self, name: &str) {
        let mut settings = self.cluster.settings(name);
        settings.policy.snapshot_entries = 15;
        settings.policy.keep_entries = 5;
        self.cluster.start_with(settings);
        let takes = Duration::from_millis(self.rng.random_range(0..25));
        self.cluster.nodes[name].slow_blocking(takes);
    }

    fn one(&mut self) -> &'static str {
        NAMES[self.rng.random_range(0..NAMES.len())]
    }

    fn propose(&mut self) {
        // At all members: followers refuse.
        for name in NAMES {
            if let Some(member) = self.cluster.members.get(name) {
                self.next += 1;
                let answer = Box::pin(member.propose((self.next, vec![0; 10])));
                self.under_way.push((self.next, answer));
            }
        }
    }

    async fn inject_fault(&mut self) {
        let (one, other) = (self.one(), self.one());
        match self.rng.random_range(0..10) {
            0 | 1 if one != other => self.cluster.network.sever(one, other),
            2..=4 if one != other => self.cluster.network.heal(one, other),
            5 | 6 => match self.down.take() {
                Some(name) => self.start(name),
                None => {
                    self.cluster.fall(one).await;
                    self.down = Some(one);
                }
            },
            _ => {}
        }
        let millis = self.rng.random_range(20..700);
        self.cluster.wait(millis).await;
    }

    async fn recover(&mut self) {
        if let Some(name) = self.down.take() {
            self.start(name);
        }
        for name in NAMES {
            self.cluster.reunite(name);
        }
        self.cluster.wait(8_000).await;
        for (value, answer) in std::mem::take(&mut self.under_way) {
            match answer.await {
                Ok(_) => self.acknowledged.push(value),
                Err(ProposeError::Unknown) => {}
                Err(_) => self.lost.push(value),
            }
        }
    }
}

fn run(seed: u64) -> (usize, usize) {
    simulate_network(|network| async move {
        let mut run_state = FaultyRun {
            cluster: Cluster::of(network, &NAMES),
            rng: SmallRng::seed_from_u64(seed),
            down: None,
            next: 0,
            under_way: Vec::new(),
            acknowledged: Vec::new(),
            lost: Vec::new(),
        };
        for name in NAMES {
            run_state.start(name);
        }
        run_state.cluster.leader().await;
        for _ in 0..60 {
            run_state.propose();
            run_state.inject_fault().await;
        }
        run_state.recover().await;
        let leader = run_state.cluster.leader().await;
        let truth = run_state.cluster.values(&leader).await;
        for name in NAMES {
            let ended = run_state.cluster.members[name].ended();
            assert_eq!(ended, None, "seed {seed}: {name} has ended");
            let values = run_state.cluster.values(name).await;
            assert_eq!(values, truth, "seed {seed}: {name} differs");
        }
        for value in &run_state.acknowledged {
            let times = truth.iter().filter(|one| *one == value).count();
            assert_eq!(times, 1, "seed {seed}: {value} was acknowledged");
        }
        for value in &run_state.lost {
            assert!(!truth.contains(value), "seed {seed}: {value} was lost");
        }
        (run_state.acknowledged.len(), truth.len())
    })
}

#[test]
fn faults_neither_lose_nor_repeat_writes() {
    let mut acknowledged = 0;
    for seed in 0..12 {
        acknowledged += run(seed).0;
    }
    assert!(
        acknowledged > 12 * 15,
        "only {acknowledged} were acknowledged"
    );
}

#[test]
fn same_seed_gives_the_same_run() {
    assert_eq!(run(3), run(3));
}
