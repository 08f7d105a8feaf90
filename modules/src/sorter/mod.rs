//! Sorters: order roles, and frameworks within them, by weighted dominant resource fairness, strict
//! priority or lottery.
//!
//! Handles slates from the allocator. Keeps clients, weights and allocations of one epoch; a
//! restarted sorter rejects the next slate, and the allocator then begins a new epoch with its full
//! state. The allocator alone decides on grants. `walk` takes the agents of a slate in order,
//! `tree` chooses the next client, and `order` is its policy.

mod order;
mod siblings;
mod tree;
mod walk;

pub use order::{Fair, Lottery, Order, OrderedF64, Priority};
pub use tree::{Tree, Visit};
pub use walk::{Drf, TreeSorter};

use module_api::Fault;
use module_api::sorter::{Advice, Slate};
use runtime::prelude::*;

/// The decision of a sorter.
pub trait SortPolicy: Unpin + 'static {
    /// Advises clients for the slate's rooms. Rejects a slate out of sequence.
    fn advise(&mut self, slate: Slate) -> Result<Vec<Advice>, Fault>;
}

impl<O: Order> SortPolicy for TreeSorter<O> {
    fn advise(&mut self, slate: Slate) -> Result<Vec<Advice>, Fault> {
        TreeSorter::advise(self, slate)
    }
}

/// The actor around a policy.
pub struct Sorter<P> {
    policy: P,
}

impl<P: SortPolicy> Sorter<P> {
    /// A sorter with this policy.
    pub fn new(policy: P) -> Self {
        Self { policy }
    }
}

impl<P: SortPolicy> Actor for Sorter<P> {
    type Context = Context<Self>;
}

impl<P: SortPolicy> Process for Sorter<P> {
    fn accepts(handlers: &mut RemoteHandlers<Self>) {
        handlers.accept::<Slate>(&[Role::Master]);
    }
}

impl<P: SortPolicy> Handler<Slate> for Sorter<P> {
    type Result = Result<Vec<Advice>, Fault>;

    fn handle(&mut self, slate: Slate, _: &mut Context<Self>) -> Self::Result {
        self.policy.advise(slate)
    }
}
