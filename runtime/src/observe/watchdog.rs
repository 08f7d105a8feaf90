//! The watchdog: finds handlers that block their thread, and with it every other actor on the
//! thread.
//!
//! One thread per process checks every 25 ms what the actors' threads are doing: an actor that has
//! not moved for 100 ms is counted and logged, with the message type, while it is still blocked.
//! Actors only write a note when a turn begins and ends. A block is always found from 125 ms on,
//! and reported up to 25 ms too short. The watchdog also keeps the coarse time for message ages. It
//! checks only nodes in real time: in paused time no thread is started. It never interferes with
//! the actors.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, Weak};
use std::time::Duration;

use crate::actor::mailbox::Step;
use crate::clock::{Clock, Instant};
use crate::lock;
use crate::node::WeakNode;

/// The interval of its checks.
const INTERVAL: Duration = Duration::from_millis(25);
/// The time after which a handler counts as blocking.
const LIMIT: Duration = Duration::from_millis(100);
/// A block is logged again each time its length has grown by this factor.
const AGAIN: u32 = 10;

/// Milliseconds since the watchdog started, as of its last check.
static MILLIS: AtomicU32 = AtomicU32::new(0);
static WATCHDOG: OnceLock<Watchdog> = OnceLock::new();

thread_local! {
    static SLOT: Arc<ThreadSlot> = {
        let slot = Arc::new(ThreadSlot::default());
        watchdog().add(&slot);
        slot
    };
}

/// The coarse time in real time; wraps around after 49 days.
#[inline]
pub(crate) fn millis() -> u32 {
    MILLIS.load(Ordering::Relaxed)
}

/// The current activity of one thread.
#[derive(Default)]
pub(crate) struct ThreadSlot {
    node: AtomicU64,
    /// 0 between turns.
    incarnation: AtomicU64,
    turns: AtomicU64,
}

impl ThreadSlot {
    /// The slot of the current thread.
    pub(crate) fn here() -> Arc<Self> {
        SLOT.with(Arc::clone)
    }

    /// An actor's turn begins. Called by the thread itself alone.
    #[inline]
    pub(crate) fn enter(&self, node: u64, incarnation: u64) {
        let turns = self.turns.load(Ordering::Relaxed);
        self.turns.store(turns + 1, Ordering::Relaxed);
        self.node.store(node, Ordering::Relaxed);
        self.incarnation.store(incarnation, Ordering::Relaxed);
    }

    /// The turn has ended.
    #[inline]
    pub(crate) fn leave(&self) {
        self.incarnation.store(0, Ordering::Relaxed);
    }
}

/// Adds a node in real time; returns the number for its actors' `enter`.
pub(crate) fn watch(node: WeakNode) -> u64 {
    let watchdog = watchdog();
    let mut nodes = lock(&watchdog.nodes);
    nodes.watched.retain(|(_, node)| node.is_there());
    nodes.numbers += 1;
    let number = nodes.numbers;
    nodes.watched.push((number, node));
    number
}

fn watchdog() -> &'static Watchdog {
    WATCHDOG.get_or_init(|| {
        let thread = std::thread::Builder::new().name("watchdog".to_owned());
        if let Err(error) = thread.spawn(run_checks) {
            tracing::warn!(%error, "no watchdog thread: blocked handlers and message ages are not tracked");
        }
        Watchdog::default()
    })
}

fn run_checks() {
    let clock = Clock::real();
    loop {
        // A plain sleep: a thread without a runtime has no timer.
        std::thread::park_timeout(INTERVAL);
        let now = clock.now();
        MILLIS.store(now.since_start().as_millis() as u32, Ordering::Relaxed);
        if let Some(watchdog) = WATCHDOG.get() {
            watchdog.look(now);
        }
    }
}

#[derive(Default)]
struct Watchdog {
    slots: Mutex<Vec<(Weak<ThreadSlot>, ThreadWatch)>>,
    nodes: Mutex<Nodes>,
}

#[derive(Default)]
struct Nodes {
    watched: Vec<(u64, WeakNode)>,
    numbers: u64,
}

/// An observation of one thread: the actor, its node and turn, and its progress.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Observation {
    node: u64,
    incarnation: u64,
    turn: u64,
    step: Step,
}

/// The result of a check of one thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Finding {
    Nothing,
    /// It has not moved for this long. The first result of a block is counted, and some of the
    /// later ones are logged.
    Blocked {
        observation: Observation,
        lasted: Duration,
        first: bool,
        log: bool,
    },
    /// It moves again.
    Over {
        observation: Observation,
        lasted: Duration,
    },
}

/// The watchdog's state of one thread.
#[derive(Debug, Default)]
struct ThreadWatch {
    seen: Option<(Observation, Instant)>,
    /// The block length at which it is logged next; 0 while it is not blocked.
    log_at: Duration,
}

impl ThreadWatch {
    /// Compares this observation with the previous one.
    fn look(&mut self, observation: Option<Observation>, now: Instant) -> Finding {
        let before = self.seen;
        if let (Some((seen, since)), Some(observation)) = (before, observation)
            && seen == observation
        {
            let lasted = now - since;
            if lasted < LIMIT {
                return Finding::Nothing;
            }
            let first = self.log_at.is_zero();
            let log = lasted >= self.log_at;
            if log {
                self.log_at = (lasted * AGAIN).max(Duration::from_secs(1));
            }
            return Finding::Blocked {
                observation,
                lasted,
                first,
                log,
            };
        }
        self.seen = observation.map(|observation| (observation, now));
        let was_blocked = !std::mem::take(&mut self.log_at).is_zero();
        match before {
            Some((observation, since)) if was_blocked => Finding::Over {
                observation,
                lasted: now - since,
            },
            _ => Finding::Nothing,
        }
    }
}

impl Watchdog {
    fn add(&self, slot: &Arc<ThreadSlot>) {
        lock(&self.slots).push((Arc::downgrade(slot), ThreadWatch::default()));
    }

    fn look(&self, now: Instant) {
        let mut slots = lock(&self.slots);
        slots.retain_mut(|(slot, watch)| {
            let Some(slot) = slot.upgrade() else {
                return false;
            };
            let finding = watch.look(self.observe(&slot), now);
            self.report(finding);
            true
        });
    }

    fn observe(&self, slot: &ThreadSlot) -> Option<Observation> {
        let incarnation = slot.incarnation.load(Ordering::Relaxed);
        if incarnation == 0 {
            return None;
        }
        let node = slot.node.load(Ordering::Relaxed);
        let entry = self.node(node)?.entry(incarnation)?;
        Some(Observation {
            node,
            incarnation,
            turn: slot.turns.load(Ordering::Relaxed),
            step: entry.meter.step(),
        })
    }

    fn node(&self, number: u64) -> Option<crate::node::Node> {
        let nodes = lock(&self.nodes);
        let found = nodes.watched.iter().find(|(known, _)| *known == number);
        found.and_then(|(_, node)| node.upgrade())
    }

    fn report(&self, finding: Finding) {
        let (observation, lasted, first, log) = match finding {
            Finding::Nothing => return,
            Finding::Blocked {
                observation,
                lasted,
                first,
                log,
            } => (observation, lasted, first, log),
            Finding::Over {
                observation,
                lasted,
            } => (observation, lasted, false, true),
        };
        let node = self.node(observation.node);
        let Some(entry) = node.and_then(|node| node.entry(observation.incarnation)) else {
            return;
        };
        let message = entry.meter.note_blocked(observation.step, lasted, first);
        let (pid, millis) = (&entry.pid, lasted.as_millis() as u64);
        match finding {
            Finding::Over { .. } => {
                tracing::warn!(%pid, message, millis, "actor blocked its thread");
            }
            _ if log => tracing::warn!(%pid, message, millis, "actor is blocking its thread"),
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn observation(turn: u64) -> Option<Observation> {
        let step = Step::default();
        Some(Observation {
            node: 1,
            incarnation: 1,
            turn,
            step,
        })
    }

    /// The findings of checks 25 ms apart: `*` where a block is counted, `!` where one is logged,
    /// `.` at its end.
    fn story(observations: impl IntoIterator<Item = Option<Observation>>) -> String {
        let mut watch = ThreadWatch::default();
        let mut now = Instant::default();
        let findings = observations.into_iter().map(|observation| {
            now = now + INTERVAL;
            match watch.look(observation, now) {
                Finding::Blocked { first: true, .. } => "*",
                Finding::Blocked { log: true, .. } => "!",
                Finding::Blocked { .. } => "_",
                Finding::Over { .. } => ".",
                Finding::Nothing => " ",
            }
        });
        findings.collect()
    }

    #[test]
    fn busy_moving_actor_is_never_reported() {
        assert_eq!(story((0..50).map(observation)).trim(), "");
        assert_eq!(story([None; 50]).trim(), "", "nor one that sleeps");
        assert_eq!(story((0..50).map(|look| observation(look / 4))).trim(), "");
    }

    #[test]
    fn block_is_counted_once_and_logged_at_tenfold() {
        let blocked = |looks| std::iter::repeat_n(observation(1), looks);
        assert_eq!(story(blocked(5)), "    *");
        let long = story(blocked(500).chain([observation(2)]));
        assert_eq!(long.matches('*').count(), 1);
        assert_eq!(
            long.match_indices('!')
                .map(|(at, _)| at * 25)
                .collect::<Vec<_>>(),
            [1000, 10_000]
        );
        assert!(long.ends_with("_."));
    }

    #[test]
    fn each_block_counts() {
        let twice = [1, 2].map(|turn| std::iter::repeat_n(observation(turn), 6));
        assert_eq!(
            story(twice.into_iter().flatten().chain([None])),
            "    *_.   *_."
        );
    }
}
