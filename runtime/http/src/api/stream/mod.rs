//! Bounded event streams: a slow reader is cut off with a reason and its memory is freed.
//!
//! [`EventStreams`] belongs to a listener; it opens streams, and ends them when the listener stops.
//! [`EventWriter`] is the writing end, used by an actor; the reading end is a response body.
//! Writing never waits; unread events are kept in a `queue`. Knows no API: it writes messages in
//! the stream's encoding.

mod queue;

use std::pin::Pin;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use axum::body::Body;
use axum::http::header::CONTENT_TYPE;
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use futures_util::Stream;
use runtime::{Clock, Instant, Node};
use v1::{Content, Form, Message, recordio};

pub use queue::Batch;
use queue::Queue;

use crate::realm::stream_principals::StreamPrincipals;

/// Bounds of one stream.
#[derive(Clone, Copy, Debug)]
pub struct Bounds {
    /// Maximum unread bytes before one more event. A single event may be larger. Default 4 MiB.
    pub bytes_max: usize,
    /// How long an event may stay unread. Default 75 s, five heartbeats of a scheduler's stream.
    pub wait_max: Duration,
    /// Maximum memory of unread events in all streams of the listener that have this bound,
    /// including events that connections have taken and not sent. Beyond it each stream may exceed
    /// its equal share only for one second, down to an eighth of that the higher the excess; a
    /// single event may be of any size. Default 256 MiB. `None` for streams that share the memory
    /// of their events, which their writer bounds.
    pub common_max: Option<usize>,
}

/// How long a stream may exceed its share while the common bound is exceeded.
const BURST: Duration = Duration::from_secs(1);
/// The shortest such time.
const BURST_MIN: Duration = Duration::from_millis(125);
/// Minimum time between two alarms while the common bound is exceeded; each alarm makes all writers
/// check their readers.
const ALARM: Duration = Duration::from_millis(125);

/// How long a stream may exceed its share while `waiting` bytes exceed `max`. New events arrive
/// meanwhile, so the time shrinks with the excess, to the minimum at a sixteenth above `max`.
fn burst(waiting: usize, max: usize) -> Duration {
    let over = (max / 16).max(1);
    let left = over.saturating_sub(waiting.saturating_sub(max));
    BURST_MIN + (BURST - BURST_MIN).mul_f64(left as f64 / over as f64)
}

impl Default for Bounds {
    fn default() -> Self {
        Self {
            bytes_max: 4 << 20,
            wait_max: Duration::from_secs(75),
            common_max: Some(256 << 20),
        }
    }
}

/// The stream has ended: its reader has gone or was cut off.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the stream has ended")]
pub struct Closed;

/// All streams of a listener.
#[derive(Clone, Debug)]
pub struct EventStreams(Arc<Listener>);

#[derive(Debug)]
struct Listener {
    clock: Clock,
    open: AtomicUsize,
    /// Number of streams with the common bound, and their unread bytes.
    bounded: AtomicUsize,
    waiting: AtomicUsize,
    /// Number of alarms, and the time of the last one.
    alarms: AtomicU64,
    alarmed: Mutex<Option<Instant>>,
    /// All opened streams; some may have ended.
    all: Mutex<Vec<Weak<Shared>>>,
    declared: StreamPrincipals,
}

impl EventStreams {
    /// The streams of a listener on this node.
    pub fn new(node: &Node) -> Self {
        Self(Arc::new(Listener {
            clock: node.clock().clone(),
            open: AtomicUsize::new(0),
            bounded: AtomicUsize::new(0),
            waiting: AtomicUsize::new(0),
            alarms: AtomicU64::new(0),
            alarmed: Mutex::default(),
            all: Mutex::default(),
            declared: StreamPrincipals::default(),
        }))
    }

    /// The principals that frameworks declared on their streams.
    pub fn principals(&self) -> &StreamPrincipals {
        &self.0.declared
    }

    /// Number of open streams.
    pub fn open_count(&self) -> usize {
        self.0.open.load(Ordering::Relaxed)
    }

    /// Bytes of memory of unread and unsent events in the streams with the common bound.
    pub fn waiting(&self) -> usize {
        self.0.waiting.load(Ordering::Relaxed)
    }

    /// Opens a stream: the writing end, and the response with the reading end as body. The framing
    /// is always RecordIO; `content` selects the content type: scheduler and executor streams name
    /// the type of their messages, as in Mesos.
    pub fn open(&self, content: Content, bounds: Bounds) -> (EventWriter, Response) {
        let shared = Arc::new(Shared {
            listener: self.0.clone(),
            bounds,
            form: content.form(),
            state: Mutex::default(),
        });
        {
            let mut all = self.0.all.lock().unwrap_or_else(PoisonError::into_inner);
            all.retain(|stream| stream.strong_count() > 0);
            all.push(Arc::downgrade(&shared));
        }
        self.0.open.fetch_add(1, Ordering::Relaxed);
        if bounds.common_max.is_some() {
            self.0.bounded.fetch_add(1, Ordering::Relaxed);
        }
        let reader = Reader(shared.clone());
        let body = Body::from_stream(reader);
        let form = content.form().media_type();
        let response = match content {
            Content::One(_) => ([(CONTENT_TYPE, form)], body).into_response(),
            Content::Stream(_) => {
                let types = [
                    (CONTENT_TYPE.as_str(), "application/recordio"),
                    ("Message-Content-Type", form),
                ];
                (types, body).into_response()
            }
        };
        (EventWriter { shared }, response)
    }

    /// Ends all streams when a listener stops; events written before are still read.
    pub fn end_all(&self) {
        let all = std::mem::take(&mut *self.0.all.lock().unwrap_or_else(PoisonError::into_inner));
        for stream in all.iter().filter_map(Weak::upgrade) {
            stream.end();
        }
    }
}

impl Listener {
    /// Makes all writers check their readers, unless the last alarm is recent.
    fn alarm(&self, now: Instant) {
        {
            let mut alarmed = self.alarmed.lock().unwrap_or_else(PoisonError::into_inner);
            if alarmed.is_some_and(|at| now - at < ALARM) {
                return;
            }
            *alarmed = Some(now);
        }
        self.alarms.fetch_add(1, Ordering::Relaxed);
        let all: Vec<_> = {
            let all = self.all.lock().unwrap_or_else(PoisonError::into_inner);
            all.iter().filter_map(Weak::upgrade).collect()
        };
        let bounded = all.iter().filter(|one| one.bounds.common_max.is_some());
        for stream in bounded {
            stream.change(|state| state.alarm_wakers.drain(..).for_each(Waker::wake));
        }
    }
}

#[derive(Debug)]
struct Shared {
    listener: Arc<Listener>,
    bounds: Bounds,
    form: Form,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    queue: Queue,
    /// Nothing more is written; unread events are still read.
    ended: bool,
    /// The reader has gone.
    unread: bool,
    reader: Option<Waker>,
    writers: Vec<Waker>,
    /// Wakers of writers that wait for an alarm.
    alarm_wakers: Vec<Waker>,
    /// Wakers of writers that wait until at most this many bytes are unread.
    drains: Vec<(usize, Waker)>,
}

impl State {
    fn end(&mut self) {
        self.ended = true;
        self.reader.take().into_iter().for_each(Waker::wake);
        self.writers.drain(..).for_each(Waker::wake);
        self.drains.drain(..).for_each(|(_, waker)| waker.wake());
    }

    /// Wakes writers after a read.
    fn drained(&mut self) {
        let bytes = self.queue.bytes();
        let reached = self.drains.extract_if(.., |(most, _)| bytes <= *most);
        reached.for_each(|(_, waker)| waker.wake());
    }
}

/// Registers this task once.
fn note(wakers: &mut Vec<Waker>, cx: &Context<'_>) {
    wakers.retain(|waker| !waker.will_wake(cx.waker()));
    wakers.push(cx.waker().clone());
}

impl Shared {
    fn change<T>(&self, change: impl FnOnce(&mut State) -> T) -> T {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let before = state.queue.held();
        let changed = change(&mut state);
        if self.bounds.common_max.is_some() {
            let (waiting, held) = (&self.listener.waiting, state.queue.held());
            match held.checked_sub(before) {
                Some(more) => waiting.fetch_add(more, Ordering::Relaxed),
                None => waiting.fetch_sub(before - held, Ordering::Relaxed),
            };
        }
        changed
    }

    /// The bound on unread bytes now, if the oldest event has been unread for `waits`; with the
    /// reason if the common bound lowers it.
    fn bytes_max(&self, waits: Option<Duration>) -> (usize, &'static str) {
        let bytes_max = self.bounds.bytes_max;
        // A good reader may have much to read for one moment.
        let stands = |moment: Duration| waits.is_some_and(|waits| waits >= moment);
        let share = self.share().filter(|(share, _)| *share < bytes_max);
        match share.filter(|(_, moment)| stands(*moment)) {
            None => (bytes_max, ""),
            Some((share, _)) => {
                let because = ", its share while all subscribers together leave too much unread";
                (share, because)
            }
        }
    }

    /// While the common bound is exceeded: the share of this stream, and how long it may exceed it.
    fn share(&self) -> Option<(usize, Duration)> {
        let max = self.bounds.common_max?;
        let Listener {
            waiting, bounded, ..
        } = &*self.listener;
        let waiting = waiting.load(Ordering::Relaxed);
        let share = || max / bounded.load(Ordering::Relaxed).max(1);
        (waiting > max).then(|| (share(), burst(waiting, max)))
    }

    fn end(&self) {
        self.change(State::end);
    }
}

/// The writing end of a stream. Dropping it ends the stream.
#[derive(Debug)]
pub struct EventWriter {
    shared: Arc<Shared>,
}

impl EventWriter {
    /// The encoding of its messages.
    pub fn form(&self) -> Form {
        self.shared.form
    }

    /// Writes one event.
    pub fn write(&self, event: &dyn Message) -> Result<(), Closed> {
        let record = recordio::encode(&self.shared.form.write(event));
        self.push(|queue, now| queue.push(record, now))
    }

    /// Writes a record whose memory other streams with the same encoding may share.
    pub fn write_record(&self, record: Bytes) -> Result<(), Closed> {
        self.push(|queue, now| queue.push_shared(record, now))
    }

    /// Writes records whose memory other streams with the same encoding share.
    pub fn write_batch(&self, batch: &Batch) -> Result<(), Closed> {
        self.push(|queue, now| queue.push_batch(batch, now))
    }

    fn push(&self, push: impl FnOnce(&mut Queue, Instant)) -> Result<(), Closed> {
        let now = self.shared.listener.clock.now();
        self.shared.change(|state| {
            if state.ended || state.unread {
                return Err(Closed);
            }
            push(&mut state.queue, now);
            state.reader.take().into_iter().for_each(Waker::wake);
            Ok(())
        })?;
        if self.shared.share().is_some() {
            self.shared.listener.alarm(now);
        }
        Ok(())
    }

    /// The reason why the reader is too slow, if it is; the writer then calls [`EventWriter::cut`]
    /// with it.
    pub fn lag(&self) -> Option<String> {
        let wait_max = self.shared.bounds.wait_max;
        let now = self.shared.listener.clock.now();
        self.shared.change(|State { queue, .. }| {
            let waits = queue.since().map(|since| now - since);
            let (bytes_max, because) = self.shared.bytes_max(waits);
            // A single record may exceed the stream's own bound, but not the common bound.
            let (bounded, bytes) = match because {
                "" => (queue.records() > 1, queue.bytes()),
                _ => (true, queue.held()),
            };
            if bounded && bytes > bytes_max {
                return Some(format!(
                    "{bytes} bytes of events wait to be read, which are more than {bytes_max}{because}"
                ));
            }
            waits.filter(|waits| *waits > wait_max).map(|_| {
                format!(
                    "events wait to be read for more than {} s",
                    wait_max.as_secs()
                )
            })
        })
    }

    /// How long the oldest event has been unread, and the unread bytes; none if all is read.
    pub fn waits(&self) -> Option<(Duration, usize)> {
        let now = self.shared.listener.clock.now();
        self.shared
            .change(|State { queue, .. }| Some((now - queue.since()?, queue.bytes())))
    }

    /// In how long [`EventWriter::lag`] would report the reader because of the common bound. The
    /// writer checks again then, since it may have nothing more to write.
    pub fn time_until_lag(&self) -> Option<Duration> {
        let (share, moment) = self.shared.share()?;
        let now = self.shared.listener.clock.now();
        self.shared.change(|State { queue, .. }| {
            let since = queue.since()?;
            (queue.held() > share).then(|| moment.saturating_sub(now - since))
        })
    }

    /// Completes at the next alarm: the common bound is exceeded. The writer then checks its reader
    /// with [`EventWriter::lag`] and [`EventWriter::time_until_lag`] even if it has nothing to
    /// write, and waits for the next alarm.
    pub fn next_alarm(&self) -> impl Future<Output = ()> + Send + 'static {
        let shared = self.shared.clone();
        let before = shared.listener.alarms.load(Ordering::Relaxed);
        std::future::poll_fn(move |cx| {
            shared.change(|state| note(&mut state.alarm_wakers, cx));
            match shared.listener.alarms.load(Ordering::Relaxed) == before {
                true => Poll::Pending,
                false => Poll::Ready(()),
            }
        })
    }

    /// Cuts off the reader: drops unread events and leaves only `last` to be read.
    pub fn cut(&self, last: Option<&dyn Message>) {
        let last = last.map(|last| recordio::encode(&self.shared.form.write(last)));
        let now = self.shared.listener.clock.now();
        self.shared.change(|state| {
            // The connection already holds all of a partly read record.
            state.queue.clear();
            if let Some(last) = last.filter(|_| !state.ended) {
                state.queue.push(last, now);
            }
            state.end();
        });
    }

    /// Ends the stream once the written events are read.
    pub fn end(&self) {
        self.shared.end();
    }

    /// Whether the stream has ended.
    pub fn is_closed(&self) -> bool {
        self.shared.change(|state| state.ended || state.unread)
    }

    /// Completes when at most this many bytes are unread or the stream has ended: backpressure for
    /// writers of long sequences.
    pub fn drained_to(&self, most: usize) -> impl Future<Output = ()> + Send + 'static {
        let shared = self.shared.clone();
        std::future::poll_fn(move |cx| {
            shared.change(|state| {
                if state.ended || state.unread || state.queue.bytes() <= most {
                    return Poll::Ready(());
                }
                let own =
                    |(bytes, waker): &(usize, Waker)| *bytes == most && waker.will_wake(cx.waker());
                state.drains.retain(|drain| !own(drain));
                state.drains.push((most, cx.waker().clone()));
                Poll::Pending
            })
        })
    }

    /// Completes when the stream has ended, by either end.
    pub fn closed(&self) -> impl Future<Output = ()> + Send + 'static {
        let shared = self.shared.clone();
        std::future::poll_fn(move |cx| {
            shared.change(|state| match state.ended || state.unread {
                true => Poll::Ready(()),
                false => {
                    note(&mut state.writers, cx);
                    Poll::Pending
                }
            })
        })
    }
}

impl Drop for EventWriter {
    fn drop(&mut self) {
        self.shared.end();
    }
}

/// The reading end, a response body.
struct Reader(Arc<Shared>);

impl Stream for Reader {
    type Item = Result<Bytes, std::convert::Infallible>;

    fn poll_next(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let piece = self.0.change(|state| match state.queue.pop() {
            Some(piece) => {
                state.drained();
                Poll::Ready(Some(piece))
            }
            None if state.ended => Poll::Ready(None),
            None => {
                state.reader = Some(cx.waker().clone());
                Poll::Pending
            }
        });
        let taken = |bytes| {
            let shared = self.0.clone();
            Ok(Bytes::from_owner(Taken { bytes, shared }))
        };
        piece.map(|piece| piece.map(taken))
    }
}

/// A chunk in the hands of the connection, counted until it is sent.
struct Taken {
    bytes: Bytes,
    shared: Arc<Shared>,
}

impl AsRef<[u8]> for Taken {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

impl Drop for Taken {
    fn drop(&mut self) {
        let bytes = self.bytes.len();
        self.shared.change(|state| state.queue.release(bytes));
    }
}

impl Drop for Reader {
    fn drop(&mut self) {
        let listener = &self.0.listener;
        listener.open.fetch_sub(1, Ordering::Relaxed);
        if self.0.bounds.common_max.is_some() {
            listener.bounded.fetch_sub(1, Ordering::Relaxed);
        }
        self.0.change(|state| {
            state.unread = true;
            state.queue.clear();
            state.end();
        });
    }
}

#[cfg(test)]
mod tests;
