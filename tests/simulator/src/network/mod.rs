//! Network: what lies between the machines of a rehearsed cluster.
//!
//! | file | what it is |
//! |---|---|
//! | `weather` | what becomes of a packet between two machines: the faults of the network |
//! | `memory` | frames over streams in memory: for thousands of agents, and for executors on their agent's machine |
//! | `quic` | the real transport, whose datagrams meet the weather |

pub mod memory;
pub mod quic;
pub mod weather;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rand::SeedableRng;
use rand::rngs::SmallRng;
use tokio::sync::Notify;

use self::weather::{Passage, Weather};

/// The weather with its chance and its figures, shared by all that carries packets. Clones are the same air.
#[derive(Clone)]
pub struct Air(Arc<Shared>);

struct Shared {
    state: Mutex<State>,
    changed: Notify,
}

struct State {
    weather: Weather,
    rng: SmallRng,
    figures: Figures,
}

/// What happened to packets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Figures {
    /// Lost.
    pub lost: u64,
    /// Delivered twice.
    pub duplicated: u64,
    /// Held up on purpose.
    pub delayed: u64,
}

impl Air {
    /// Calm air.
    pub fn new(seed: u64) -> Self {
        let state = State {
            weather: Weather::default(),
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

    /// Changes the weather; whoever waits for better looks again.
    pub fn change(&self, change: impl FnOnce(&mut Weather)) {
        change(&mut self.state().weather);
        self.0.changed.notify_waiters();
    }

    /// Asks about the weather.
    pub fn look<T>(&self, look: impl FnOnce(&Weather) -> T) -> T {
        look(&self.state().weather)
    }

    /// What becomes of a packet, by the weather and by chance. A way that is blocked loses it.
    pub fn passage(&self, from: &str, to: &str) -> Passage {
        let mut state = self.state();
        let State {
            weather,
            rng,
            figures,
        } = &mut *state;
        let mut passage = weather.passage(from, to, rng);
        passage.lost |= weather.blocked(from, to).is_some();
        if passage.lost {
            figures.lost += 1;
            return passage;
        }
        figures.duplicated += u64::from(passage.again.is_some());
        figures.delayed += u64::from(!passage.wait.is_zero());
        passage
    }

    /// What happened so far.
    pub fn figures(&self) -> Figures {
        self.state().figures
    }

    /// Waits until the weather holds what is wanted of it.
    pub async fn until(&self, wanted: impl Fn(&Weather) -> bool) {
        loop {
            let changed = self.0.changed.notified();
            if self.look(&wanted) {
                return;
            }
            changed.await;
        }
    }
}
