//! A sequence: asynchronous operations that run strictly one after another, in the order they were added.
//!
//! Remembers what was added and not begun, up to a bound. It runs on its node's home thread, so an operation
//! gets on whether or not anybody waits for it. Dropping what [`Sequence::run`] gave skips the operation if it has not
//! begun; one that has begun is never cut short. A panic ends that operation alone.

use std::future::Future;
use std::panic::AssertUnwindSafe;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};

use futures_util::FutureExt;
use futures_util::future::LocalBoxFuture;
use tokio::sync::{mpsc, oneshot};

use crate::clock;
use crate::node::Node;
use crate::supervise::words_of;

/// Why an operation gave nothing.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SequenceError {
    /// As many wait as may: add it later.
    #[error("{bound} operations wait already")]
    Full {
        /// The bound of the sequence.
        bound: usize,
    },
    /// The sequence was dropped, or its node ended, before the operation began.
    #[error("the sequence has ended")]
    Ended,
    /// The operation panicked; those behind it go on.
    #[error("the operation panicked: {words}")]
    Panicked {
        /// The words of the panic.
        words: String,
    },
}

type Operation = Box<dyn FnOnce() -> LocalBoxFuture<'static, ()> + Send>;

/// Runs operations one after another. When it is dropped, what has not begun never will.
///
/// ```
/// use runtime::{Sequence, rehearsal::rehearse};
///
/// rehearse(|node| async move {
///     let writes = Sequence::new(&node, 100);
///     let first = writes.run(|| async { 1 });
///     let second = writes.run(|| async { 2 }); // begins when the first is over
///     assert_eq!((second.await, first.await), (Ok(2), Ok(1)));
/// });
/// ```
pub struct Sequence {
    operations: mpsc::Sender<Operation>,
    bound: usize,
    dropped: Arc<AtomicBool>,
}

impl Sequence {
    /// A sequence in which so many operations may wait, at least one.
    pub fn new(node: &Node, bound: usize) -> Self {
        let bound = bound.clamp(1, tokio::sync::Semaphore::MAX_PERMITS);
        let (operations, queue) = mpsc::channel(bound);
        let dropped = Arc::new(AtomicBool::new(false));
        let ended = dropped.clone();
        // If the thread has ended, or takes no more, so has the queue, and every operation says so.
        let _ = node.home().run(Box::new(move || {
            tokio::task::spawn_local(work(queue, ended));
        }));
        Self {
            operations,
            bound,
            dropped,
        }
    }

    /// Adds an operation now, behind those added before; ready with what it gives.
    pub fn run<T, F>(&self, operation: impl FnOnce() -> F + Send + 'static) -> Turn<T>
    where
        T: Send + 'static,
        F: Future<Output = T> + 'static,
    {
        let (answer, output) = oneshot::channel();
        let operation: Operation = Box::new(move || {
            async move {
                if answer.is_closed() {
                    return;
                }
                let run = async move { operation().await };
                let result = AssertUnwindSafe(run).catch_unwind().await;
                let result = result.map_err(|panic| SequenceError::Panicked {
                    words: words_of(panic),
                });
                let _ = answer.send(result); // Whoever waited may have gone.
            }
            .boxed_local()
        });
        match self.operations.try_send(operation) {
            Ok(()) => Turn(Source::Waiting(output)),
            Err(mpsc::error::TrySendError::Full(_)) => {
                Turn(Source::Failed(SequenceError::Full { bound: self.bound }))
            }
            Err(mpsc::error::TrySendError::Closed(_)) => Turn(Source::Failed(SequenceError::Ended)),
        }
    }
}

impl Drop for Sequence {
    fn drop(&mut self) {
        self.dropped.store(true, Ordering::Release);
    }
}

async fn work(mut queue: mpsc::Receiver<Operation>, dropped: Arc<AtomicBool>) {
    while let Some(operation) = queue.recv().await {
        if dropped.load(Ordering::Acquire) {
            return;
        }
        clock::moved();
        operation().await;
        clock::moved();
    }
}

/// An operation of a [`Sequence`] that has not ended. Dropping it skips the operation, unless that has begun.
#[must_use = "dropping it skips the operation"]
pub struct Turn<T>(Source<T>);

enum Source<T> {
    Failed(SequenceError),
    Waiting(oneshot::Receiver<Result<T, SequenceError>>),
}

impl<T> Future for Turn<T> {
    type Output = Result<T, SequenceError>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        match &mut self.get_mut().0 {
            Source::Failed(error) => Poll::Ready(Err(error.clone())),
            Source::Waiting(output) => Pin::new(output)
                .poll(cx)
                .map(|output| output.unwrap_or(Err(SequenceError::Ended))),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;
    use std::time::Duration;

    use proptest::prelude::*;

    use super::*;
    use crate::lock;
    use crate::rehearsal::rehearse;

    #[test]
    fn a_panic_ends_one_operation_and_a_full_queue_says_so() {
        rehearse(|node| async move {
            let sequence = Sequence::new(&node, 2);
            let fallen = sequence.run(|| async { panic!("told to fall") });
            let kept = sequence.run(|| async { 2 });
            let refused = sequence.run(|| async { 3 });
            assert_eq!(refused.await, Err(SequenceError::Full { bound: 2 }));
            let words = "told to fall".to_owned();
            let fallen: Result<(), _> = fallen.await;
            assert_eq!(fallen, Err(SequenceError::Panicked { words }));
            assert_eq!(kept.await, Ok(2));
        });
    }

    #[test]
    fn when_the_sequence_is_dropped_what_has_begun_ends_and_the_rest_never_begins() {
        rehearse(|node| async move {
            let sequence = Sequence::new(&node, 10);
            let clock = node.clock().clone();
            let begun = sequence.run(|| async move {
                clock.sleep(Duration::from_secs(1)).await;
                1
            });
            let never = sequence.run(|| async { 2 });
            node.clock().settle().await;
            drop(sequence);
            assert_eq!(
                (begun.await, never.await),
                (Ok(1), Err(SequenceError::Ended))
            );
        });
    }

    /// Runs operations of these many milliseconds, of which some are dropped at some time; gives what began and ended.
    fn run(operations: &[(u64, Option<u64>)]) -> Vec<(char, usize, Duration)> {
        rehearse(|node| async move {
            let sequence = Sequence::new(&node, operations.len());
            let diary = Arc::new(Mutex::new(Vec::new()));
            let started = node.clock().now();
            let mut turns = Vec::new();
            for (index, (millis, dropped)) in operations.iter().copied().enumerate() {
                let (clock, diary) = (node.clock().clone(), diary.clone());
                let turn = sequence.run(move || async move {
                    lock(&diary).push(('b', index, clock.now() - started));
                    clock.sleep(Duration::from_millis(millis)).await;
                    lock(&diary).push(('e', index, clock.now() - started));
                });
                let clock = node.clock().clone();
                turns.push(tokio::task::spawn_local(async move {
                    match dropped {
                        Some(millis) => {
                            drop(clock.timeout(Duration::from_millis(millis), turn).await);
                        }
                        None => turn.await.unwrap(),
                    }
                }));
            }
            for turn in turns {
                turn.await.unwrap();
            }
            node.clock().advance(Duration::from_secs(60)).await;
            lock(&diary).clone()
        })
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        #[test]
        fn operations_run_whole_and_in_order_and_only_dropped_ones_are_skipped(
            operations in prop::collection::vec((0..50_u64, prop::option::of(0..500_u64)), 1..30),
        ) {
            let diary = run(&operations);
            for pair in diary.chunks(2) {
                let [(begin, one, _), (end, other, _)] = pair else { panic!("half an operation") };
                prop_assert_eq!((*begin, *end, one), ('b', 'e', other));
            }
            let ran: Vec<usize> = diary.chunks(2).map(|pair| pair[0].1).collect();
            prop_assert!(ran.is_sorted_by(|one, next| one < next));
            for (index, (_, dropped)) in operations.iter().enumerate() {
                prop_assert!(dropped.is_some() || ran.contains(&index));
            }
            // What began later than it was dropped would not have been skipped.
            for (_, index, at) in diary.iter().filter(|line| line.0 == 'b') {
                if let Some(dropped) = operations[*index].1 {
                    prop_assert!(*at <= Duration::from_millis(dropped + 1));
                }
            }
        }
    }
}
