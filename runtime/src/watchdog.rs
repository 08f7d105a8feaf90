//! The watchdog: finds handlers that block their thread, which is felt by every actor on it and by no counter of theirs (W5).
//!
//! One thread per process looks every 25 ms at what the threads with actors are doing: an actor that has not moved for 100 ms is counted
//! and logged, with the type of the message, while it is still blocked. Actors only leave a note when a turn begins and ends. A block is
//! found for certain from 125 ms on, and told up to 25 ms too short. Also keeps the coarse time that ages are taken from.
//! Looks only at nodes in real time: in paused time no thread is started and nothing is found. Never interferes with what it sees.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, Weak};
use std::time::Duration;

use crate::clock::{Clock, Instant};
use crate::lock;
use crate::mailbox::Step;
use crate::node::WeakNode;

/// How often it looks.
const LOOK: Duration = Duration::from_millis(25);
/// A handler may take this long.
const LIMIT: Duration = Duration::from_millis(100);
/// A block that goes on is logged again when it is this long, and each time it is this many times longer.
const AGAIN: u32 = 10;

/// Milliseconds since the watchdog began, as of its last look.
static MILLIS: AtomicU32 = AtomicU32::new(0);
static WATCHDOG: OnceLock<Watchdog> = OnceLock::new();

thread_local! {
    static POST: Arc<Post> = {
        let post = Arc::new(Post::default());
        watchdog().guard(&post);
        post
    };
}

/// The coarse time in real time; wraps around after 49 days.
#[inline]
pub(crate) fn millis() -> u32 {
    MILLIS.load(Ordering::Relaxed)
}

/// What one thread is doing now.
#[derive(Default)]
pub(crate) struct Post {
    node: AtomicU64,
    /// 0 between turns.
    incarnation: AtomicU64,
    turns: AtomicU64,
}

impl Post {
    /// That of the present thread.
    pub(crate) fn here() -> Arc<Self> {
        POST.with(Arc::clone)
    }

    /// An actor's turn begins. Written by the thread itself alone.
    #[inline]
    pub(crate) fn enter(&self, node: u64, incarnation: u64) {
        let turns = self.turns.load(Ordering::Relaxed);
        self.turns.store(turns + 1, Ordering::Relaxed);
        self.node.store(node, Ordering::Relaxed);
        self.incarnation.store(incarnation, Ordering::Relaxed);
    }

    /// Its turn is over.
    #[inline]
    pub(crate) fn leave(&self) {
        self.incarnation.store(0, Ordering::Relaxed);
    }
}

/// Has nodes in real time looked at; gives the number under which their actors enter.
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
        if let Err(error) = thread.spawn(patrol) {
            tracing::warn!(%error, "no watchdog: blocked threads and the age of messages stay unknown");
        }
        Watchdog::default()
    })
}

fn patrol() {
    let clock = Clock::real();
    loop {
        // A place to rest, not to wait for something: a thread without a runtime has no timer.
        std::thread::park_timeout(LOOK);
        let now = clock.now();
        MILLIS.store(now.since_start().as_millis() as u32, Ordering::Relaxed);
        if let Some(watchdog) = WATCHDOG.get() {
            watchdog.look(now);
        }
    }
}

#[derive(Default)]
struct Watchdog {
    posts: Mutex<Vec<(Weak<Post>, Vigil)>>,
    nodes: Mutex<Nodes>,
}

#[derive(Default)]
struct Nodes {
    watched: Vec<(u64, WeakNode)>,
    numbers: u64,
}

/// What was seen at one post: which actor of which node in which turn, and where in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Sight {
    node: u64,
    incarnation: u64,
    turn: u64,
    step: Step,
}

/// What follows from a look at one post.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Finding {
    Nothing,
    /// It does not move, for so long by now. The first time is counted, and some of the others are logged.
    Blocked {
        sight: Sight,
        lasted: Duration,
        first: bool,
        log: bool,
    },
    /// It moves again.
    Over {
        sight: Sight,
        lasted: Duration,
    },
}

/// What the watchdog remembers of one post.
#[derive(Debug, Default)]
struct Vigil {
    seen: Option<(Sight, Instant)>,
    /// From which length on it is logged next; 0 as long as it is not blocked.
    log_at: Duration,
}

impl Vigil {
    /// Judges what is seen now by what was seen before.
    fn look(&mut self, sight: Option<Sight>, now: Instant) -> Finding {
        let before = self.seen;
        if let (Some((seen, since)), Some(sight)) = (before, sight)
            && seen == sight
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
                sight,
                lasted,
                first,
                log,
            };
        }
        self.seen = sight.map(|sight| (sight, now));
        let was_blocked = !std::mem::take(&mut self.log_at).is_zero();
        match before {
            Some((sight, since)) if was_blocked => Finding::Over {
                sight,
                lasted: now - since,
            },
            _ => Finding::Nothing,
        }
    }
}

impl Watchdog {
    fn guard(&self, post: &Arc<Post>) {
        lock(&self.posts).push((Arc::downgrade(post), Vigil::default()));
    }

    fn look(&self, now: Instant) {
        let mut posts = lock(&self.posts);
        posts.retain_mut(|(post, vigil)| {
            let Some(post) = post.upgrade() else {
                return false;
            };
            let finding = vigil.look(self.see(&post), now);
            self.tell(finding);
            true
        });
    }

    fn see(&self, post: &Post) -> Option<Sight> {
        let incarnation = post.incarnation.load(Ordering::Relaxed);
        if incarnation == 0 {
            return None;
        }
        let node = post.node.load(Ordering::Relaxed);
        let entry = self.node(node)?.entry(incarnation)?;
        Some(Sight {
            node,
            incarnation,
            turn: post.turns.load(Ordering::Relaxed),
            step: entry.meter.step(),
        })
    }

    fn node(&self, number: u64) -> Option<crate::node::Node> {
        let nodes = lock(&self.nodes);
        let found = nodes.watched.iter().find(|(known, _)| *known == number);
        found.and_then(|(_, node)| node.upgrade())
    }

    fn tell(&self, finding: Finding) {
        let (sight, lasted, first, log) = match finding {
            Finding::Nothing => return,
            Finding::Blocked {
                sight,
                lasted,
                first,
                log,
            } => (sight, lasted, first, log),
            Finding::Over { sight, lasted } => (sight, lasted, false, true),
        };
        let node = self.node(sight.node);
        let Some(entry) = node.and_then(|node| node.entry(sight.incarnation)) else {
            return;
        };
        let message = entry.meter.note_blocked(sight.step, lasted, first);
        let (pid, millis) = (&entry.pid, lasted.as_millis() as u64);
        match finding {
            Finding::Over { .. } => {
                tracing::warn!(%pid, message, millis, "an actor has blocked its thread");
            }
            _ if log => tracing::warn!(%pid, message, millis, "an actor blocks its thread"),
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sight(turn: u64) -> Option<Sight> {
        let step = Step::default();
        Some(Sight {
            node: 1,
            incarnation: 1,
            turn,
            step,
        })
    }

    /// What is found at looks 25 ms apart: `*` where a block is counted, `!` where one is logged, `.` when it is over.
    fn story(sights: impl IntoIterator<Item = Option<Sight>>) -> String {
        let mut vigil = Vigil::default();
        let mut now = Instant::default();
        let findings = sights.into_iter().map(|sight| {
            now = now + LOOK;
            match vigil.look(sight, now) {
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
    fn an_actor_that_moves_is_never_found_however_long_it_is_busy() {
        assert_eq!(story((0..50).map(sight)).trim(), "");
        assert_eq!(story([None; 50]).trim(), "", "nor one that sleeps");
        assert_eq!(story((0..50).map(|look| sight(look / 4))).trim(), "");
    }

    #[test]
    fn a_block_is_counted_once_and_logged_again_when_it_is_ten_times_as_long() {
        let blocked = |looks| std::iter::repeat_n(sight(1), looks);
        assert_eq!(story(blocked(5)), "    *");
        let long = story(blocked(500).chain([sight(2)]));
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
        let twice = [1, 2].map(|turn| std::iter::repeat_n(sight(turn), 6));
        assert_eq!(
            story(twice.into_iter().flatten().chain([None])),
            "    *_.   *_."
        );
    }
}
