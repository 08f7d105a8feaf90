//! A probe: a tap that is made of small rules, for tests.
//!
//! Each message is shown to every rule in the order in which they were added; the first rule that
//! returns a fate decides.
//!
//! ```
//! use std::time::Duration;
//! use runtime::prelude::*;
//! use runtime::testing::simulate;
//! use runtime::observe::tap::Probe;
//! # #[derive(Message)] #[rtype(result = "u32")] struct Question(u32);
//! # struct Oracle;
//! # impl Actor for Oracle { type Context = Context<Self>; }
//! # impl Process for Oracle {}
//! # impl Handler<Question> for Oracle {
//! #     type Result = u32;
//! #     fn handle(&mut self, asked: Question, _: &mut Context<Self>) -> u32 { asked.0 + 1 }
//! # }
//!
//! simulate(|node| async move {
//!     let oracle = node.spawn("oracle", Oracle).unwrap();
//!     let probe = Probe::on(&node);
//!     let asked = probe.observe::<Question>(|_| true);
//!     let lost = probe.drop_next::<Question>(|Question(number)| *number == 7);
//!     let patience = Duration::from_secs(1);
//!     assert!(oracle.ask(Question(7), patience).await.is_err());
//!     assert_eq!(oracle.ask(Question(7), patience).await, Ok(8));
//!     assert_eq!((asked.count(), lost.count()), (2, 1));
//! });
//! ```

use std::any::Any;
use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::sync::Notify;

use crate::lock;
use crate::node::Node;
use crate::observe::tap::{Fate, Kind, Passing, Tap};

/// Maximum number of messages in a [`Collected`]; beyond it the oldest is dropped.
const COLLECTED_MAX: usize = 65_536;

type Rule = Box<dyn FnMut(&Passing<'_>) -> Option<Fate> + Send>;

/// A tap made of rules. Clones are the same probe, so one can be the tap of several nodes.
#[derive(Clone, Default)]
pub struct Probe(Arc<Mutex<Vec<Rule>>>);

impl Tap for Probe {
    fn fate(&self, passing: &Passing<'_>) -> Fate {
        let mut fate = None;
        for rule in &mut *lock(&self.0) {
            let decision = rule(passing);
            fate = fate.or(decision);
        }
        fate.unwrap_or_default()
    }
}

impl Probe {
    /// A probe that lets everything pass, as the tap of this node.
    pub fn on(node: &Node) -> Self {
        let probe = Self::default();
        node.set_tap(probe.clone());
        probe
    }

    /// Adds any rule: it sees every message, and may decide its fate. Like a tap it must not send
    /// messages.
    pub fn rule(&self, rule: impl FnMut(&Passing<'_>) -> Option<Fate> + Send + 'static) {
        lock(&self.0).push(Box::new(rule));
    }

    /// Counts the messages of this type that match `holds`.
    pub fn observe<M: 'static>(&self, holds: impl Fn(&M) -> bool + Send + 'static) -> Seen {
        self.each(u64::MAX, holds, |_, _| None)
    }

    /// Keeps a copy of each message of this type that matches `holds`.
    pub fn collect<M: Clone + Send + 'static>(
        &self,
        holds: impl Fn(&M) -> bool + Send + 'static,
    ) -> Collected<M> {
        let messages = Arc::new(Mutex::new(VecDeque::new()));
        let kept = messages.clone();
        let seen = self.each(u64::MAX, holds, move |message: &M, _| {
            let mut kept = lock(&kept);
            if kept.len() >= COLLECTED_MAX {
                kept.pop_front();
            }
            kept.push_back(message.clone());
            None
        });
        Collected { seen, messages }
    }

    /// Drops the next message of this type that matches `holds`.
    pub fn drop_next<M: 'static>(&self, holds: impl Fn(&M) -> bool + Send + 'static) -> Seen {
        self.each(1, holds, |_, _| Some(Fate::Drop))
    }

    /// Drops every message of this type that matches `holds`.
    pub fn drop_all<M: 'static>(&self, holds: impl Fn(&M) -> bool + Send + 'static) -> Seen {
        self.each(u64::MAX, holds, |_, _| Some(Fate::Drop))
    }

    /// Delays every message of this type that matches `holds`.
    pub fn delay<M: 'static>(
        &self,
        holds: impl Fn(&M) -> bool + Send + 'static,
        delay: Duration,
    ) -> Seen {
        self.each(u64::MAX, holds, move |_, _| Some(Fate::Delay(delay)))
    }

    /// Duplicates every message of this type that matches `holds`.
    pub fn duplicate<M: Clone + Send + 'static>(
        &self,
        holds: impl Fn(&M) -> bool + Send + 'static,
    ) -> Seen {
        self.each(u64::MAX, holds, |message: &M, _| {
            let copy: Box<dyn Any + Send> = Box::new(message.clone());
            Some(Fate::DuplicateAs(copy))
        })
    }

    /// Swaps the next message of this type that matches `holds` with the following one to the same
    /// actor.
    pub fn reorder<M: 'static>(&self, holds: impl Fn(&M) -> bool + Send + 'static) -> Seen {
        self.each(1, holds, |_, _| Some(Fate::Swap))
    }

    /// Applies `act` to the next `limit` messages of the type that match `holds`.
    fn each<M: 'static>(
        &self,
        mut limit: u64,
        holds: impl Fn(&M) -> bool + Send + 'static,
        mut act: impl FnMut(&M, Kind) -> Option<Fate> + Send + 'static,
    ) -> Seen {
        let seen = Seen::default();
        let tally = seen.clone();
        self.rule(move |passing| {
            let message = passing.is::<M>()?;
            if limit == 0 || !holds(message) {
                return None;
            }
            limit -= 1;
            let fate = act(message, passing.kind);
            tally.0.count.fetch_add(1, Ordering::AcqRel);
            tally.0.changed.notify_waiters();
            fate
        });
        seen
    }
}

/// The number of matches of a probe's rule.
#[derive(Clone, Default)]
pub struct Seen(Arc<Tally>);

#[derive(Default)]
struct Tally {
    count: AtomicU64,
    changed: Notify,
}

impl Seen {
    /// The number of matches so far.
    pub fn count(&self) -> u64 {
        self.0.count.load(Ordering::Acquire)
    }

    /// Resolves after this many matches. Wrap it in a timeout.
    pub async fn times(&self, count: u64) {
        while self.count() < count {
            let changed = self.0.changed.notified();
            if self.count() >= count {
                return;
            }
            changed.await;
        }
    }
}

/// Copies of the messages that a rule of a probe has matched.
pub struct Collected<M> {
    seen: Seen,
    messages: Arc<Mutex<VecDeque<M>>>,
}

impl<M> Collected<M> {
    /// The number of messages seen so far.
    pub fn count(&self) -> u64 {
        self.seen.count()
    }

    /// All messages that were not taken yet, oldest first.
    pub fn take(&self) -> Vec<M> {
        lock(&self.messages).drain(..).collect()
    }

    /// The oldest message that was not taken yet; resolves when there is one.
    pub async fn next(&self) -> M {
        loop {
            let changed = self.seen.0.changed.notified();
            if let Some(message) = lock(&self.messages).pop_front() {
                return message;
            }
            changed.await;
        }
    }
}
