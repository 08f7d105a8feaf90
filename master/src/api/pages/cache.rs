//! Page cache: rendered parts of frequently requested pages, so that the next page costs a copy and
//! the changes.
//!
//! The newest rendering of each full page is cached with the state it was made from, so that
//! unchanged values are identical in memory. Filtered pages are not cached. Pages that nobody
//! requests for a while are evicted.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use runtime::prelude::*;
use runtime::{Clock, Instant};
use v1::Form;
use v1::answer_cache::{self, AnswerWriter};
use v1::body_parts::BodyParts;

use super::page::{Entries, page};
use crate::state::MasterState;

/// Time after which an unused page is evicted.
const KEPT_MAX: Duration = Duration::from_secs(60);

/// The question and the form of its answer.
type Name = (&'static str, Form);

/// All cached pages.
#[derive(Clone, Debug)]
pub(crate) struct PageCache {
    pages: Arc<Mutex<Vec<Page>>>,
    clock: Clock,
}

#[derive(Debug)]
struct Page {
    name: Name,
    pieces: answer_cache::AnswerCache,
    /// The state it was rendered from.
    state: Arc<MasterState>,
    made: Instant,
}

impl PageCache {
    /// An empty cache.
    pub fn new(node: &Node) -> Self {
        Self {
            pages: Arc::default(),
            clock: node.clock().clone(),
        }
    }

    /// A cache with an actor on this node that evicts unused pages. If it cannot be started nothing
    /// is evicted.
    pub fn open(node: &Node) -> Self {
        let cache = Self::new(node);
        if let Err(error) = node.spawn_unnamed("http-kept", Sweeper(cache.clone())) {
            tracing::warn!(%error, "cannot start the page cache's sweeper; pages are not evicted");
        }
        cache
    }

    /// A page of this state, whose text is written by `write`.
    pub fn make(
        &self,
        name: Name,
        state: &Arc<MasterState>,
        write: impl FnOnce(Option<&mut AnswerWriter>) -> Vec<u8>,
    ) -> BodyParts {
        if !state.is_whole() {
            return write(None).into();
        }
        let old = self.change(|pages| take(pages, name));
        let (pieces, before) = match old {
            Some(page) => (page.pieces, Some(page.state)),
            None => (answer_cache::AnswerCache::default(), None),
        };
        let mut writer = AnswerWriter::of(pieces);
        let text = write(Some(&mut writer));
        let (parts, pieces) = writer.done(text);
        // Dropped only now: until here copied values must stay identical.
        drop(before);
        let page = Page {
            name,
            pieces,
            state: state.clone(),
            made: self.clock.now(),
        };
        let other = self.change(|pages| {
            let other = take(pages, name);
            pages.push(page);
            other
        });
        // A page that was rendered meanwhile. Freed outside the lock, because that takes time.
        drop(other);
        parts
    }

    /// A page of this state that consists of this object.
    pub fn page(
        &self,
        name: &'static str,
        state: &Arc<MasterState>,
        entries: &impl Entries,
    ) -> BodyParts {
        self.make((name, Form::Json), state, |writer| page(entries, writer))
    }

    fn sweep(&self) {
        let now = self.clock.now();
        let old: Vec<Page> = self.change(|pages| {
            let is_old = |page: &Page| now - page.made > KEPT_MAX;
            let all = std::mem::take(pages).into_iter();
            let (old, kept) = all.partition(is_old);
            *pages = kept;
            old
        });
        drop(old);
    }

    fn change<T>(&self, change: impl FnOnce(&mut Vec<Page>) -> T) -> T {
        change(&mut self.pages.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

fn take(pages: &mut Vec<Page>, name: Name) -> Option<Page> {
    let place = pages.iter().position(|page| page.name == name)?;
    Some(pages.swap_remove(place))
}

/// Evicts unused pages.
struct Sweeper(PageCache);

impl Actor for Sweeper {
    type Context = Context<Self>;

    fn started(&mut self, ctx: &mut Context<Self>) {
        ctx.every(KEPT_MAX / 4, |this, ctx| {
            let cache = this.0.clone();
            // Freeing takes time, and may delay page requests: not on this thread.
            let swept = ctx.node().blocking_low_priority(move || cache.sweep());
            ctx.spawn(swept.into_actor(this).map(|_, _, _| ()));
        });
    }
}

impl Process for Sweeper {
    fn accepts(_: &mut RemoteHandlers<Self>) {}
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use runtime::testing::simulate;
    use v1::schema::master::CallType;

    use super::super::visible::VisibleState;
    use super::*;
    use crate::api::PublishedFlags;
    use crate::api::operator::answer;
    use crate::api::v0::state::{Frameworks, Slaves, Whole};
    use crate::leadership::mirror::tests::properties::{Event, events, happen, state};

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(48))]

        /// Any changes between two pages.
        // Covers W15 in part: that no page waits behind the mailbox, the snapshots, the batches and
        // what is kept.
        #[test]
        fn partly_cached_page_equals_a_fresh_one(rounds in events()) {
            simulate(|node| async move { check(&PageCache::new(&node), rounds) })?;
        }
    }

    fn check(cache: &PageCache, rounds: Vec<Vec<Event>>) -> Result<(), TestCaseError> {
        let (mut now, mut time) = (Arc::new(state()), 10);
        for round in rounds {
            for event in round {
                time += 1;
                happen(Arc::make_mut(&mut now), event, time);
            }
            let (visible, published) = (VisibleState::of(&now), &PublishedFlags::default());
            let whole = Whole { visible, published };
            prop_assert_eq!(
                cache.page("state", &now, &whole).whole(),
                page(&whole, None)
            );
            let slaves = Slaves(visible);
            prop_assert_eq!(
                cache.page("slaves", &now, &slaves).whole(),
                page(&slaves, None)
            );
            let all = Frameworks(visible);
            prop_assert_eq!(
                cache.page("frameworks", &now, &all).whole(),
                page(&all, None)
            );
            for form in [Form::Json, Form::Protobuf] {
                let kind = CallType::GetState;
                let made = cache.make((kind.name(), form), &now, |writer| {
                    answer(form, kind, visible, published, writer)
                });
                prop_assert_eq!(made.whole(), answer(form, kind, visible, published, None));
            }
        }
        Ok(())
    }

    #[test]
    fn unused_pages_are_evicted() {
        simulate(|node| async move {
            let cache = PageCache::open(&node);
            let state = Arc::new(state());
            let whole = Slaves(VisibleState::of(&state));
            drop(cache.page("slaves", &state, &whole));
            node.clock().advance(KEPT_MAX / 2).await;
            assert_eq!(Arc::strong_count(&state), 2);
            node.clock().advance(KEPT_MAX).await;
            assert_eq!(Arc::strong_count(&state), 1);
        });
    }
}
