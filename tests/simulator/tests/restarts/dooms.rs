//! Falls in the middle of things: of the allocator at the nth message that it hears or says, of the sorter at the nth slate.
//!
//! Numbers count over all lives, so a doom may lie in what is told anew after an earlier one. Who falls at a message that it hears has done
//! nothing of it, and nothing of what waits behind it. Who falls at one that it says has booked it, and it is never said.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use module_api::Fault;
use module_api::sorter::{Advice, Slate};
use modules::allocator::Allocator;
use modules::sorter::{Drf, SortPolicy};
use proptest::prelude::*;
use runtime::prelude::*;
use runtime::tap::{Fate, Passing};

use crate::world::Fall;

/// At which messages somebody falls, from 0 on.
#[derive(Clone, Debug, Default)]
pub struct Dooms {
    /// The allocator, by what it hears.
    pub heard: BTreeSet<u64>,
    /// The allocator, by what it says.
    pub said: BTreeSet<u64>,
    /// The sorter. At even ones it has not thought yet, at odd ones it has and does not answer any more.
    pub slates: BTreeSet<u64>,
}

/// How much was heard, said and asked so far. Clones are the same.
#[derive(Clone, Debug, Default)]
pub struct Counts(Arc<[AtomicU64; 3]>);

impl Counts {
    fn next(&self, which: usize) -> u64 {
        self.0[which].fetch_add(1, Ordering::Relaxed)
    }

    /// Heard, said and asked.
    pub fn all(&self) -> [u64; 3] {
        self.0.each_ref().map(|count| count.load(Ordering::Relaxed))
    }
}

pub fn dooms() -> impl Strategy<Value = Dooms> {
    let set = |most, count| proptest::collection::btree_set(0..most, count);
    (set(40_u64, 0..4_usize), set(15, 0..3), set(15, 0..3)).prop_map(|(heard, said, slates)| {
        Dooms {
            heard,
            said,
            slates,
        }
    })
}

/// Has the allocator of this node fall by its dooms. To be said before it hears anything.
pub fn doom(node: &Node, allocator: Handle<Allocator>, dooms: Dooms, counts: Counts) {
    let is_allocator = |pid: Option<&Pid>| pid.is_some_and(|pid| pid.name() == "allocator");
    node.set_tap(move |passing: &Passing<'_>| {
        if !passing.name.starts_with("allocator/") {
            return Fate::Pass;
        }
        if is_allocator(passing.to) {
            if dooms.heard.contains(&counts.next(0)) {
                let _ = allocator.tell(Fall); // It may be down already.
            }
        } else if is_allocator(passing.from) && dooms.said.contains(&counts.next(1)) {
            panic!("the allocator falls as it speaks, as this test wants it");
        }
        Fate::Pass
    });
}

/// The real policy, until a doom.
pub struct Doomed {
    honest: Drf,
    dooms: Dooms,
    counts: Counts,
}

impl Doomed {
    pub fn new(dooms: Dooms, counts: Counts) -> Self {
        Self {
            honest: Drf::default(),
            dooms,
            counts,
        }
    }
}

impl SortPolicy for Doomed {
    fn advise(&mut self, slate: Slate) -> Result<Vec<Advice>, Fault> {
        let number = self.counts.next(2);
        let falls = self.dooms.slates.contains(&number);
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
