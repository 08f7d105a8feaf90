//! Streams of events, each bounded: who reads too slowly is cut off with a reason, and keeps no memory.
//!
//! [`Streams`] belongs to a listener, opens streams and ends them when it stops. [`Events`] is the end that is written to, by an actor; the other end
//! is the body of a response. Writing never waits. What waits lies in a `queue`. Knows no API: what is written are messages in the stream's form.

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

use crate::declared::Declared;

/// How much one stream may hold back.
#[derive(Clone, Copy, Debug)]
pub struct Bounds {
    /// Bytes that wait to be read, before one more event. A single event may be larger. Default 4 MiB.
    pub bytes_max: usize,
    /// How long an event may wait to be read. Default 75 s, five heartbeats of a scheduler's stream.
    pub wait_max: Duration,
    /// Bytes of memory that what waits to be read takes in all streams of the listener that have this bound, together, with what their connections have taken and
    /// cannot send. While there are more, each of them may hold back no more than its share for longer than a second, and the more there are the shorter, to an eighth of that; a single event may be as large
    /// as it likes. Default 256 MiB. None where what waits is the same memory in many streams, which their writer bounds.
    pub together_max: Option<usize>,
}

/// How long events may wait before it counts what all leave unread together.
const BURST: Duration = Duration::from_secs(1);
/// How long at least, however much that is.
const BURST_MIN: Duration = Duration::from_millis(125);
/// Time between two alarms, while all leave too much unread: at each of them every stream is looked at.
const ALARM: Duration = Duration::from_millis(125);

/// How long events may wait while so much waits in all streams, of which there should be this much: what comes in that time is beyond the bound, so it is the shorter the more there is already, and the
/// shortest at a sixteenth beyond.
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
            together_max: Some(256 << 20),
        }
    }
}

/// The stream has ended: whoever read it has gone, or was cut off.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the stream has ended")]
pub struct Closed;

/// All streams of a listener.
#[derive(Clone, Debug)]
pub struct Streams(Arc<Listener>);

#[derive(Debug)]
struct Listener {
    clock: Clock,
    open: AtomicUsize,
    /// How many of them are bounded together, and the bytes that wait in those.
    bounded: AtomicUsize,
    waiting: AtomicUsize,
    /// How often all were called to look at their readers, and when last.
    alarms: AtomicU64,
    alarmed: Mutex<Option<Instant>>,
    /// Those that were opened, some of which may have ended.
    all: Mutex<Vec<Weak<Shared>>>,
    declared: Declared,
}

impl Streams {
    /// Of a listener on this node.
    pub fn new(node: &Node) -> Self {
        Self(Arc::new(Listener {
            clock: node.clock().clone(),
            open: AtomicUsize::new(0),
            bounded: AtomicUsize::new(0),
            waiting: AtomicUsize::new(0),
            alarms: AtomicU64::new(0),
            alarmed: Mutex::default(),
            all: Mutex::default(),
            declared: Declared::default(),
        }))
    }

    /// As whose scheduler each is open, in its own word.
    pub fn declared(&self) -> &Declared {
        &self.0.declared
    }

    /// How many are open.
    pub fn open_now(&self) -> usize {
        self.0.open.load(Ordering::Relaxed)
    }

    /// How many bytes of memory are held by what waits to be read in the streams that are bounded together, or to be sent by their connections.
    pub fn waiting(&self) -> usize {
        self.0.waiting.load(Ordering::Relaxed)
    }

    /// Opens a stream: the end to write to, and the response whose body it is. RecordIO in any case; `content` says how it is called:
    /// scheduler and executor streams bear the type of the messages in them, as Mesos has it.
    pub fn open(&self, content: Content, bounds: Bounds) -> (Events, Response) {
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
        if bounds.together_max.is_some() {
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
        (Events { shared }, response)
    }

    /// Ends all streams, as a listener does that stops: what was written before is still read.
    pub fn end_all(&self) {
        let all = std::mem::take(&mut *self.0.all.lock().unwrap_or_else(PoisonError::into_inner));
        for stream in all.iter().filter_map(Weak::upgrade) {
            stream.end();
        }
    }
}

impl Listener {
    /// Has all who write look at their readers, unless they have just done so.
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
        let bounded = all.iter().filter(|one| one.bounds.together_max.is_some());
        for stream in bounded {
            stream.change(|state| state.lookers.drain(..).for_each(Waker::wake));
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
    /// Nothing more is written; what waits is read.
    ended: bool,
    /// Nobody reads any more.
    unread: bool,
    reader: Option<Waker>,
    writers: Vec<Waker>,
    /// Who is to be called when all leave too much unread.
    lookers: Vec<Waker>,
    /// Who is to be called when no more bytes than these wait to be read.
    drains: Vec<(usize, Waker)>,
}

impl State {
    fn end(&mut self) {
        self.ended = true;
        self.reader.take().into_iter().for_each(Waker::wake);
        self.writers.drain(..).for_each(Waker::wake);
        self.drains.drain(..).for_each(|(_, waker)| waker.wake());
    }

    /// Something was read.
    fn drained(&mut self) {
        let bytes = self.queue.bytes();
        let reached = self.drains.extract_if(.., |(most, _)| bytes <= *most);
        reached.for_each(|(_, waker)| waker.wake());
    }
}

/// This one is called too, once.
fn note(wakers: &mut Vec<Waker>, cx: &Context<'_>) {
    wakers.retain(|waker| !waker.will_wake(cx.waker()));
    wakers.push(cx.waker().clone());
}

impl Shared {
    fn change<T>(&self, change: impl FnOnce(&mut State) -> T) -> T {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let before = state.queue.held();
        let changed = change(&mut state);
        if self.bounds.together_max.is_some() {
            let (waiting, held) = (&self.listener.waiting, state.queue.held());
            match held.checked_sub(before) {
                Some(more) => waiting.fetch_add(more, Ordering::Relaxed),
                None => waiting.fetch_sub(before - held, Ordering::Relaxed),
            };
        }
        changed
    }

    /// The most that this stream may hold back now, if its first event waits for so long, and why if that is for the others.
    fn bytes_max(&self, waits: Option<Duration>) -> (usize, &'static str) {
        let bytes_max = self.bounds.bytes_max;
        // Whoever reads well may have much to read in one moment.
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

    /// What it may hold back for longer than a moment, and how long that is, while all together leave too much unread.
    fn share(&self) -> Option<(usize, Duration)> {
        let max = self.bounds.together_max?;
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

/// The end of a stream that is written to. Dropping the last one ends the stream.
#[derive(Debug)]
pub struct Events {
    shared: Arc<Shared>,
}

impl Events {
    /// How its messages are written.
    pub fn form(&self) -> Form {
        self.shared.form
    }

    /// Writes one event.
    pub fn write(&self, event: &dyn Message) -> Result<(), Closed> {
        let record = recordio::encode(&self.shared.form.write(event));
        self.push(|queue, now| queue.push(record, now))
    }

    /// Writes a record that may stand in other streams of the same form too, in the same memory.
    pub fn write_record(&self, record: Bytes) -> Result<(), Closed> {
        self.push(|queue, now| queue.push_shared(record, now))
    }

    /// Writes records that stand in other streams of the same form too, in the same memory.
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

    /// Why the reader is too slow, if it is: whoever writes then cuts it off with [`Events::cut`], and a reason.
    pub fn lag(&self) -> Option<String> {
        let wait_max = self.shared.bounds.wait_max;
        let now = self.shared.listener.clock.now();
        self.shared.change(|State { queue, .. }| {
            let waits = queue.since().map(|since| now - since);
            let (bytes_max, because) = self.shared.bytes_max(waits);
            // One record may be larger than what may wait of several, but not while there is no room for it, or for what its connection holds.
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

    /// For how long the first of what waits to be read has waited, and how many bytes wait; none if all is read.
    pub fn waits(&self) -> Option<(Duration, usize)> {
        let now = self.shared.listener.clock.now();
        self.shared
            .change(|State { queue, .. }| Some((now - queue.since()?, queue.bytes())))
    }

    /// In how long [`Events::lag`] finds the reader too slow if it reads nothing until then, where that is because all leave too much unread:
    /// whoever writes then looks again, since there may be nothing more to write.
    pub fn lags_in(&self) -> Option<Duration> {
        let (share, moment) = self.shared.share()?;
        let now = self.shared.listener.clock.now();
        self.shared.change(|State { queue, .. }| {
            let since = queue.since()?;
            (queue.held() > share).then(|| moment.saturating_sub(now - since))
        })
    }

    /// Completes when all leave too much unread together, after this is called: whoever writes then looks at its reader ([`Events::lag`],
    /// [`Events::lags_in`]), though it has nothing to write, and waits for the next time.
    pub fn crowded(&self) -> impl Future<Output = ()> + Send + 'static {
        let shared = self.shared.clone();
        let before = shared.listener.alarms.load(Ordering::Relaxed);
        std::future::poll_fn(move |cx| {
            shared.change(|state| note(&mut state.lookers, cx));
            match shared.listener.alarms.load(Ordering::Relaxed) == before {
                true => Poll::Pending,
                false => Poll::Ready(()),
            }
        })
    }

    /// Cuts the reader off: what waits is dropped, and `last` is all that can still be read.
    pub fn cut(&self, last: Option<&dyn Message>) {
        let last = last.map(|last| recordio::encode(&self.shared.form.write(last)));
        let now = self.shared.listener.clock.now();
        self.shared.change(|state| {
            // A record that is half read by the connection is whole there already.
            state.queue.clear();
            if let Some(last) = last.filter(|_| !state.ended) {
                state.queue.push(last, now);
            }
            state.end();
        });
    }

    /// Ends the stream when what was written is read.
    pub fn end(&self) {
        self.shared.end();
    }

    /// Whether it has ended.
    pub fn is_closed(&self) -> bool {
        self.shared.change(|state| state.ended || state.unread)
    }

    /// Completes when no more than so many bytes wait to be read, or the stream has ended: whoever has much to write waits so for its reader.
    pub fn drained(&self, most: usize) -> impl Future<Output = ()> + Send + 'static {
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

    /// Completes when the stream has ended, whoever ended it.
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

impl Drop for Events {
    fn drop(&mut self) {
        self.shared.end();
    }
}

/// The end that the connection reads.
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

/// A piece in the hands of the connection, which counts until that has sent it.
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
        self.shared.change(|state| state.queue.let_go(bytes));
    }
}

impl Drop for Reader {
    fn drop(&mut self) {
        let listener = &self.0.listener;
        listener.open.fetch_sub(1, Ordering::Relaxed);
        if self.0.bounds.together_max.is_some() {
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
