//! The network between the machines of a simulated cluster.
//!
//! | file | content |
//! |---|---|
//! | `faults` | the faults of the network, and their effect on a packet |
//! | `memory` | frames over in-memory streams: for thousands of agents, and for executors |
//! | `quic` | the real transport over datagrams with faults |

pub mod faults;
pub mod memory;
pub mod quic;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rand::SeedableRng;
use rand::rngs::SmallRng;
use tokio::sync::Notify;

use self::faults::{NetworkFaults, Passage};

/// The network's faults with their randomness and counters, shared by all transports. Clones share
/// it.
#[derive(Clone)]
pub struct SharedNetwork(Arc<Shared>);

struct Shared {
    state: Mutex<State>,
    changed: Notify,
}

struct State {
    faults: NetworkFaults,
    rng: SmallRng,
    figures: Figures,
}

/// Counters of packets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Figures {
    /// Lost.
    pub lost: u64,
    /// Duplicated.
    pub duplicated: u64,
    /// Delayed.
    pub delayed: u64,
}

impl SharedNetwork {
    /// A network without faults.
    pub fn new(seed: u64) -> Self {
        let state = State {
            faults: NetworkFaults::default(),
            rng: SmallRng::seed_from_u64(seed),
            figures: Figures::default(),
        };
        Self(Arc::new(Shared {
            state: Mutex::new(state),
            changed: Notify::new(),
        }))
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Changes the faults and wakes waiting tasks.
    pub fn change(&self, change: impl FnOnce(&mut NetworkFaults)) {
        change(&mut self.state().faults);
        self.0.changed.notify_waiters();
    }

    /// Reads the faults.
    pub fn look<T>(&self, look: impl FnOnce(&NetworkFaults) -> T) -> T {
        look(&self.state().faults)
    }

    /// The fate of a packet, by faults and chance. A blocked path loses it.
    pub fn passage(&self, from: &str, to: &str) -> Passage {
        let mut state = self.state();
        let State {
            faults,
            rng,
            figures,
        } = &mut *state;
        let mut passage = faults.passage(from, to, rng);
        passage.lost |= faults.blocked(from, to).is_some();
        if passage.lost {
            figures.lost += 1;
            return passage;
        }
        figures.duplicated += u64::from(passage.again.is_some());
        figures.delayed += u64::from(!passage.wait.is_zero());
        passage
    }

    /// The counters so far.
    pub fn figures(&self) -> Figures {
        self.state().figures
    }

    /// Waits until the faults satisfy a condition.
    pub async fn until(&self, wanted: impl Fn(&NetworkFaults) -> bool) {
        loop {
            let changed = self.0.changed.notified();
            if self.look(&wanted) {
                return;
            }
            changed.await;
        }
    }
}
