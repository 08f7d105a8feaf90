//! Crashes at certain messages: of the allocator at the nth received or sent message, of the sorter
//! at the nth slate.
//!
//! Numbers count over all lives, so a crash may occur during the replay after an earlier one. A
//! crash at a received message happens before its handling, and loses the queued messages. A crash
//! at a sent message happens after its accounting, and the message is lost.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use module_api::Fault;
use module_api::sorter::{Advice, Slate};
use modules::allocator::Allocator;
use modules::sorter::{Drf, SortPolicy};
use proptest::prelude::*;
use runtime::observe::tap::{Fate, Passing};
use runtime::prelude::*;

use crate::world::Fall;

/// The messages at which actors crash, counted from 0.
#[derive(Clone, Debug, Default)]
pub struct CrashSchedule {
    /// The allocator, at received messages.
    pub heard: BTreeSet<u64>,
    /// The allocator, at sent messages.
    pub said: BTreeSet<u64>,
    /// The sorter: at even ones before its computation, at odd ones before its answer.
    pub slates: BTreeSet<u64>,
}

/// The numbers of received and sent messages and slates so far. Clones share them.
#[derive(Clone, Debug, Default)]
pub struct Counts(Arc<[AtomicU64; 3]>);

impl Counts {
    fn next(&self, which: usize) -> u64 {
        self.0[which].fetch_add(1, Ordering::Relaxed)
    }

    /// Received, sent and slates.
    pub fn all(&self) -> [u64; 3] {
        self.0.each_ref().map(|count| count.load(Ordering::Relaxed))
    }
}

pub fn crashes() -> impl Strategy<Value = CrashSchedule> {
    let set = |most, count| proptest::collection::btree_set(0..most, count);
    (set(40_u64, 0..4_usize), set(15, 0..3), set(15, 0..3)).prop_map(|(heard, said, slates)| {
        CrashSchedule {
            heard,
            said,
            slates,
        }
    })
}

/// Makes the allocator of this node crash by this schedule. Call it before the allocator receives
/// anything.
pub fn schedule_crashes(
    node: &Node,
    allocator: Handle<Allocator>,
    crashes: CrashSchedule,
    counts: Counts,
) {
    let is_allocator = |pid: Option<&Pid>| pid.is_some_and(|pid| pid.name() == "allocator");
    node.set_tap(move |passing: &Passing<'_>| {
        if !passing.name.starts_with("allocator/") {
            return Fate::Pass;
        }
        if is_allocator(passing.to) {
            if crashes.heard.contains(&counts.next(0)) {
                let _ = allocator.tell(Fall); // it may be down already
            }
        } else if is_allocator(passing.from) && crashes.said.contains(&counts.next(1)) {
            panic!("the allocator falls as it speaks, as this test wants it");
        }
        Fate::Pass
    });
}

/// The real policy, until a crash.
pub struct CrashingPolicy {
    honest: Drf,
    crashes: CrashSchedule,
    counts: Counts,
}

impl CrashingPolicy {
    pub fn new(crashes: CrashSchedule, counts: Counts) -> Self {
        Self {
            honest: Drf::default(),
            crashes,
            counts,
        }
    }
}

impl SortPolicy for CrashingPolicy {
    fn advise(&mut self, slate: Slate) -> Result<Vec<Advice>, Fault> {
        let number = self.counts.next(2);
        let falls = self.crashes.slates.contains(&number);
        let advice = if falls && number.is_multiple_of(2) {
            None
        } else {
            Some(self.honest.advise(slate))
        };
        match advice.filter(|_| !falls) {
            Some(advice) => advice,
            None => panic!("the sorter falls at a slate, as this test wants it"),
        }
    }
}
