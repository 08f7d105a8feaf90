//! A limiter: so many permits in so much time, given out evenly and in the order they were asked for.
//!
//! Remembers who waits, in order and up to a bound, and when the next permit is free. Whoever waits is a future; dropping it gives
//! its place up. Knows nothing of what the permits are for, and saves none up: after a quiet hour the first comes at once and
//! the second waits its time.

use std::collections::{BTreeMap, BTreeSet};
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use crate::clock::{Clock, Instant, Sleep};
use crate::lock;

/// How much of the lateness of a timer is made good by giving the next permit early. Timers count in milliseconds.
const LATENESS_MADE_GOOD: Duration = Duration::from_millis(2);

/// A rate that cannot be kept.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "rate is {permits} permits per {per:?}, expected at least one permit, and a time above zero"
)]
pub struct BadRate {
    /// Permits asked for.
    pub permits: u32,
    /// In this time.
    pub per: Duration,
}

/// As many wait for a permit as may: ask later, or refuse what it was for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{bound} wait for a permit already")]
pub struct TooManyWait {
    /// The bound of the limiter.
    pub bound: usize,
}

/// When the next permit is free.
#[derive(Clone, Copy, Debug)]
struct Pace {
    /// Between two permits.
    gap: Duration,
    free_at: Instant,
}

impl Pace {
    /// Gives a permit now, or says when there will be one.
    fn permit(&mut self, now: Instant) -> Result<(), Instant> {
        if now < self.free_at {
            return Err(self.free_at);
        }
        let was_late = now - self.free_at <= LATENESS_MADE_GOOD;
        let given_at = if was_late { self.free_at } else { now };
        self.free_at = given_at + self.gap;
        Ok(())
    }
}

/// Gives out permits at a steady rate; its clones are the same limiter.
///
/// ```
/// use std::time::Duration;
/// use runtime::{RateLimiter, rehearsal::rehearse};
///
/// rehearse(|node| async move {
///     let removals = RateLimiter::new(node.clock(), 1, Duration::from_secs(20), 100).unwrap();
///     let started = node.clock().now();
///     removals.acquire().unwrap().await;
///     removals.acquire().unwrap().await;
///     assert_eq!((node.clock().now() - started).as_secs(), 20);
/// });
/// ```
#[derive(Clone)]
pub struct RateLimiter(Arc<Inner>);

struct Inner {
    clock: Clock,
    /// How many places there are.
    bound: usize,
    state: Mutex<State>,
}

struct State {
    pace: Pace,
    /// Who waits, by the order of their coming, and whom to wake if somebody has asked.
    queue: BTreeMap<u64, Option<Waker>>,
    /// Who has a permit and does not know it yet.
    given: BTreeSet<u64>,
    next: u64,
}

impl State {
    /// Gives the permits that are free to those in front; says when the next is free.
    fn give(&mut self, now: Instant) -> Instant {
        while let Some(first) = self.queue.first_entry() {
            if let Err(free_at) = self.pace.permit(now) {
                return free_at;
            }
            let (place, waker) = first.remove_entry();
            self.given.insert(place);
            if let Some(waker) = waker {
                waker.wake();
            }
        }
        self.pace.free_at
    }

    /// Who keeps the time for all: the first whom somebody polls.
    fn timekeeper(&mut self) -> Option<(&u64, &mut Option<Waker>)> {
        self.queue.iter_mut().find(|(_, waker)| waker.is_some())
    }

    fn wake_timekeeper(&mut self) {
        if let Some((_, Some(waker))) = self.timekeeper() {
            waker.wake_by_ref();
        }
    }
}

impl RateLimiter {
    /// So many permits in so much time, for which so many may wait (at least one). The gap between two is never below a nanosecond.
    pub fn new(
        clock: &Clock,
        permits: u32,
        per: Duration,
        waiting_max: usize,
    ) -> Result<Self, BadRate> {
        if permits == 0 || per.is_zero() {
            return Err(BadRate { permits, per });
        }
        let pace = Pace {
            gap: (per / permits).max(Duration::from_nanos(1)),
            free_at: Instant::default(),
        };
        let state = State {
            pace,
            queue: BTreeMap::new(),
            given: BTreeSet::new(),
            next: 0,
        };
        Ok(Self(Arc::new(Inner {
            clock: clock.clone(),
            bound: waiting_max.max(1),
            state: Mutex::new(state),
        })))
    }

    /// Takes the last place in the queue now; ready when its permit is there. Who has a permit and has not looked yet has a place too.
    pub fn acquire(&self) -> Result<Acquiring, TooManyWait> {
        let mut state = lock(&self.0.state);
        if state.queue.len() + state.given.len() >= self.0.bound {
            return Err(TooManyWait {
                bound: self.0.bound,
            });
        }
        let place = state.next;
        state.next += 1;
        state.queue.insert(place, None);
        Ok(Acquiring {
            limiter: self.0.clone(),
            place: Some(place),
            sleep: None,
        })
    }

    /// How many wait for a permit.
    pub fn waiting(&self) -> usize {
        lock(&self.0.state).queue.len()
    }
}

/// A place in the queue of a [`RateLimiter`], which gets its permit in its turn whether or not somebody waits for it;
/// dropping it gives the place up.
#[must_use = "dropping it gives the place in the queue up"]
pub struct Acquiring {
    limiter: Arc<Inner>,
    /// `None` once the permit was given.
    place: Option<u64>,
    sleep: Option<Sleep>,
}

impl Future for Acquiring {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let this = &mut *self;
        let Some(place) = this.place else {
            return Poll::Ready(());
        };
        let free_at = {
            let mut state = lock(&this.limiter.state);
            let free_at = state.give(this.limiter.clock.now());
            if state.given.remove(&place) {
                this.place = None;
                state.wake_timekeeper();
                return Poll::Ready(());
            }
            state.queue.insert(place, Some(cx.waker().clone()));
            if state
                .timekeeper()
                .is_none_or(|(keeper, _)| *keeper != place)
            {
                return Poll::Pending;
            }
            free_at
        };
        let mut sleep = this.limiter.clock.sleep_until(free_at);
        if Pin::new(&mut sleep).poll(cx).is_ready() {
            cx.waker().wake_by_ref();
        }
        this.sleep = Some(sleep);
        Poll::Pending
    }
}

impl Drop for Acquiring {
    fn drop(&mut self) {
        if let Some(place) = self.place {
            let mut state = lock(&self.limiter.state);
            state.queue.remove(&place);
            state.given.remove(&place);
            state.wake_timekeeper();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;
    use std::rc::Rc;

    use proptest::prelude::*;

    use super::*;
    use crate::rehearsal::rehearse;

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn a_rate_of_nothing_is_refused() {
        for (permits, per) in [(0, SECOND), (1, Duration::ZERO)] {
            let refused = RateLimiter::new(&Clock::real(), permits, per, 1);
            assert_eq!(refused.err(), Some(BadRate { permits, per }));
        }
    }

    #[test]
    fn a_place_that_was_given_up_costs_those_behind_it_nothing() {
        rehearse(|node| async move {
            let limiter = RateLimiter::new(node.clock(), 1, SECOND, 100).unwrap();
            let started = node.clock().now();
            limiter.acquire().unwrap().await;
            let (given_up, kept) = (limiter.acquire().unwrap(), limiter.acquire().unwrap());
            drop(given_up);
            kept.await;
            assert_eq!(node.clock().now() - started, SECOND);
            assert_eq!(limiter.waiting(), 0);
        });
    }

    #[test]
    fn who_does_not_look_at_his_place_holds_nobody_up() {
        rehearse(|node| async move {
            let limiter = RateLimiter::new(node.clock(), 1, SECOND, 100).unwrap();
            let started = node.clock().now();
            let (unseen, also_unseen) = (limiter.acquire().unwrap(), limiter.acquire().unwrap());
            limiter.acquire().unwrap().await;
            assert_eq!(node.clock().now() - started, 2 * SECOND);
            unseen.await;
            also_unseen.await;
            assert_eq!(node.clock().now() - started, 2 * SECOND);
        });
    }

    #[test]
    fn one_more_than_may_wait_is_refused_until_a_place_is_given_up_or_served() {
        rehearse(|node| async move {
            let limiter = RateLimiter::new(node.clock(), 1, SECOND, 3).unwrap();
            let full = Err(TooManyWait { bound: 3 });
            let [first, second, third] = [(); 3].map(|()| limiter.acquire().unwrap());
            assert_eq!(limiter.acquire().map(drop), full);
            drop(second);
            let fourth = limiter.acquire().unwrap();
            assert_eq!(limiter.acquire().map(drop), full);
            first.await;
            let _fifth = limiter.acquire().unwrap();
            third.await;
            fourth.await;
            assert_eq!(limiter.waiting(), 1);
        });
    }

    #[test]
    fn permits_are_not_saved_up() {
        rehearse(|node| async move {
            let limiter = RateLimiter::new(node.clock(), 1, SECOND, 100).unwrap();
            node.clock().advance(3600 * SECOND).await;
            let started = node.clock().now();
            limiter.acquire().unwrap().await;
            limiter.acquire().unwrap().await;
            assert_eq!((node.clock().now() - started).as_secs(), 1);
        });
    }

    /// Comers by (milliseconds after the one before, milliseconds of patience); gives the order and times of permits.
    fn run(permits: u32, per: Duration, comers: Vec<(u64, u64)>) -> Vec<(usize, Instant)> {
        rehearse(|node| async move {
            let limiter = RateLimiter::new(node.clock(), permits, per, 100).unwrap();
            let given = Rc::new(RefCell::new(Vec::new()));
            let mut tasks = Vec::new();
            for (index, (after, patience)) in comers.into_iter().enumerate() {
                node.clock().sleep(Duration::from_millis(after)).await;
                let (clock, given) = (node.clock().clone(), given.clone());
                let acquiring = limiter.acquire().unwrap();
                tasks.push(tokio::task::spawn_local(async move {
                    let patience = Duration::from_millis(patience);
                    if clock.timeout(patience, acquiring).await.is_ok() {
                        given.borrow_mut().push((index, clock.now()));
                    }
                }));
            }
            for task in tasks {
                task.await.unwrap();
            }
            assert_eq!(limiter.waiting(), 0);
            given.take()
        })
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        #[test]
        fn permits_come_in_order_and_never_faster_than_the_rate(
            permits in 1..5000_u32,
            millis in 1..5000_u64,
            comers in prop::collection::vec((0..50_u64, 0..3000_u64), 1..40),
        ) {
            let per = Duration::from_millis(millis);
            let given = run(permits, per, comers);
            let gap = per / permits;
            prop_assert!(given.is_sorted_by(|one, next| one.0 < next.0));
            for (nth, (_, at)) in given.iter().enumerate() {
                for (back, (_, before)) in given[..nth].iter().rev().enumerate() {
                    let least = gap * (back as u32 + 1);
                    prop_assert!(*at - *before + LATENESS_MADE_GOOD >= least);
                }
            }
        }

        #[test]
        fn nobody_with_patience_is_forgotten(permits in 1..100_u32, comers in 1..40_usize) {
            let given = run(permits, SECOND, vec![(0, u64::from(u32::MAX)); comers]);
            prop_assert_eq!(given.len(), comers);
            let took = given[comers - 1].1 - given[0].1;
            let slowest = (SECOND / permits) * (comers as u32 - 1) + LATENESS_MADE_GOOD;
            prop_assert!(took <= slowest, "{:?} > {:?}", took, slowest);
        }
    }
}
