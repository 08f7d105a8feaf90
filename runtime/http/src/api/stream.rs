//! Streams of events, each bounded: who reads too slowly is cut off with a reason, and keeps no memory.
//!
//! [`Streams`] belongs to a listener, opens streams and ends them when it stops. [`Events`] is the end that is written to, by an actor; the other end
//! is the body of a response. Writing never waits. Knows no API: what is written are messages in the stream's form.

use std::collections::VecDeque;
use std::pin::Pin;
use std::sync::atomic::{AtomicUsize, Ordering};
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

/// How much one stream may hold back.
#[derive(Clone, Copy, Debug)]
pub struct Bounds {
    /// Bytes that wait to be read, before one more event. A single event may be larger. Default 4 MiB.
    pub bytes_max: usize,
    /// How long an event may wait to be read. Default 75 s, five heartbeats of a scheduler's stream.
    pub wait_max: Duration,
    /// Bytes that wait to be read in all streams of the listener that have this bound, together. While there are more, each of them may hold
    /// back no more than its share for longer than a second; a single event may be as large as it likes. Default 256 MiB. None where what waits is
    /// the same memory in many streams, which their writer bounds.
    pub together_max: Option<usize>,
}

/// How long events may wait before it counts what all leave unread together.
const BURST: Duration = Duration::from_secs(1);

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
    /// Those that were opened, some of which may have ended.
    all: Mutex<Vec<Weak<Shared>>>,
}

impl Streams {
    /// Of a listener on this node.
    pub fn new(node: &Node) -> Self {
        Self(Arc::new(Listener {
            clock: node.clock().clone(),
            open: AtomicUsize::new(0),
            bounded: AtomicUsize::new(0),
            waiting: AtomicUsize::new(0),
            all: Mutex::default(),
        }))
    }

    /// How many are open.
    pub fn open_now(&self) -> usize {
        self.0.open.load(Ordering::Relaxed)
    }

    /// How many bytes wait to be read in the streams that are bounded together.
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
            queue: Mutex::default(),
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

#[derive(Debug)]
struct Shared {
    listener: Arc<Listener>,
    bounds: Bounds,
    form: Form,
    queue: Mutex<Queue>,
}

#[derive(Debug, Default)]
struct Queue {
    /// Records with the time they were written at.
    records: VecDeque<(Instant, Bytes)>,
    bytes: usize,
    /// Nothing more is written; what waits is read.
    ended: bool,
    /// Nobody reads any more.
    unread: bool,
    reader: Option<Waker>,
    writers: Vec<Waker>,
}

impl Queue {
    fn end(&mut self) {
        self.ended = true;
        self.reader.take().into_iter().for_each(Waker::wake);
        self.writers.drain(..).for_each(Waker::wake);
    }
}

impl Shared {
    fn change<T>(&self, change: impl FnOnce(&mut Queue) -> T) -> T {
        let mut queue = self.queue.lock().unwrap_or_else(PoisonError::into_inner);
        let before = queue.bytes;
        let changed = change(&mut queue);
        if self.bounds.together_max.is_some() {
            let waiting = &self.listener.waiting;
            match queue.bytes.checked_sub(before) {
                Some(more) => waiting.fetch_add(more, Ordering::Relaxed),
                None => waiting.fetch_sub(before - queue.bytes, Ordering::Relaxed),
            };
        }
        changed
    }

    /// The most that this stream may hold back now, if its first event waits for so long, and why if that is for the others.
    fn bytes_max(&self, waits: Option<Duration>) -> (usize, &'static str) {
        let bytes_max = self.bounds.bytes_max;
        // Whoever reads well may have much to read in one moment.
        let stands = waits.is_some_and(|waits| waits >= BURST);
        match self.share().filter(|share| stands && *share < bytes_max) {
            None => (bytes_max, ""),
            Some(share) => {
                let because = ", its share while all subscribers together leave too much unread";
                (share, because)
            }
        }
    }

    /// What it may hold back for longer than a moment, while all together leave too much unread.
    fn share(&self) -> Option<usize> {
        let max = self.bounds.together_max?;
        let Listener {
            waiting, bounded, ..
        } = &*self.listener;
        let crowded = waiting.load(Ordering::Relaxed) > max;
        crowded.then(|| max / bounded.load(Ordering::Relaxed).max(1))
    }

    fn end(&self) {
        self.change(Queue::end);
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
        self.write_record(self.record(event))
    }

    /// The event as it stands in this stream, to be written into others of the same form too.
    pub fn record(&self, event: &dyn Message) -> Bytes {
        recordio::encode(&self.shared.form.write(event)).into()
    }

    /// Writes an event that [`Events::record`] made.
    pub fn write_record(&self, record: Bytes) -> Result<(), Closed> {
        let now = self.shared.listener.clock.now();
        self.shared.change(|queue| {
            if queue.ended || queue.unread {
                return Err(Closed);
            }
            queue.bytes += record.len();
            queue.records.push_back((now, record));
            queue.reader.take().into_iter().for_each(Waker::wake);
            Ok(())
        })
    }

    /// Why the reader is too slow, if it is: whoever writes then cuts it off with [`Events::cut`], and a reason.
    pub fn lag(&self) -> Option<String> {
        let wait_max = self.shared.bounds.wait_max;
        let now = self.shared.listener.clock.now();
        self.shared.change(|queue| {
            let waits = queue.records.front().map(|(since, _)| now - *since);
            let (bytes_max, because) = self.shared.bytes_max(waits);
            // One record may be larger than what may wait of several, but not while there is no room for it.
            let bounded = queue.records.len() > 1 || !because.is_empty();
            if bounded && queue.bytes > bytes_max {
                return Some(format!(
                    "{} bytes of events wait to be read, which are more than {bytes_max}{because}",
                    queue.bytes
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

    /// In how long [`Events::lag`] finds the reader too slow if it reads nothing until then, where that is because all leave too much unread:
    /// whoever writes then looks again, since there may be nothing more to write.
    pub fn lags_in(&self) -> Option<Duration> {
        let share = self.shared.share()?;
        let now = self.shared.listener.clock.now();
        self.shared.change(|queue| {
            let (since, _) = queue.records.front()?;
            (queue.bytes > share).then(|| BURST.saturating_sub(now - *since))
        })
    }

    /// Cuts the reader off: what waits is dropped, and `last` is all that can still be read.
    pub fn cut(&self, last: Option<&dyn Message>) {
        let last = last.map(|last| self.record(last));
        let now = self.shared.listener.clock.now();
        self.shared.change(|queue| {
            // A record that is half read by the connection is whole there already.
            queue.records.clear();
            queue.bytes = 0;
            if let Some(last) = last.filter(|_| !queue.ended) {
                queue.bytes = last.len();
                queue.records.push_back((now, last));
            }
            queue.end();
        });
    }

    /// Ends the stream when what was written is read.
    pub fn end(&self) {
        self.shared.end();
    }

    /// Whether it has ended.
    pub fn is_closed(&self) -> bool {
        self.shared.change(|queue| queue.ended || queue.unread)
    }

    /// Completes when the stream has ended, whoever ended it.
    pub fn closed(&self) -> impl Future<Output = ()> + Send + 'static {
        let shared = self.shared.clone();
        std::future::poll_fn(move |cx| {
            shared.change(|queue| match queue.ended || queue.unread {
                true => Poll::Ready(()),
                false => {
                    queue.writers.retain(|waker| !waker.will_wake(cx.waker()));
                    queue.writers.push(cx.waker().clone());
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
        self.0.change(|queue| match queue.records.pop_front() {
            Some((_, record)) => {
                queue.bytes -= record.len();
                Poll::Ready(Some(Ok(record)))
            }
            None if queue.ended => Poll::Ready(None),
            None => {
                queue.reader = Some(cx.waker().clone());
                Poll::Pending
            }
        })
    }
}

impl Drop for Reader {
    fn drop(&mut self) {
        let listener = &self.0.listener;
        listener.open.fetch_sub(1, Ordering::Relaxed);
        if self.0.bounds.together_max.is_some() {
            listener.bounded.fetch_sub(1, Ordering::Relaxed);
        }
        self.0.change(|queue| {
            queue.unread = true;
            queue.records = VecDeque::new();
            queue.bytes = 0;
            queue.end();
        });
    }
}

#[cfg(test)]
mod tests {
    use futures_util::{FutureExt, StreamExt};
    use runtime::rehearsal::stage;
    use v1::schema::scheduler::Event;

    use super::*;

    fn streams() -> (Node, Streams) {
        let node = runtime::rehearsal::node("node").build();
        let streams = Streams::new(&node);
        (node, streams)
    }

    async fn rest(response: Response) -> String {
        let bytes = axum::body::to_bytes(response.into_body(), usize::MAX).await;
        String::from_utf8(bytes.unwrap().to_vec()).unwrap()
    }

    fn json() -> Content {
        Content::One(Form::Json)
    }

    /// SPEC 2.1: RecordIO, under the type of the messages in it or under its own.
    #[test]
    fn events_are_read_in_the_order_they_were_written_and_an_end_comes_last() {
        stage(async {
            let (_, streams) = streams();
            let (events, response) = streams.open(json(), Bounds::default());
            assert_eq!(response.headers()[CONTENT_TYPE], "application/json");
            events.write(&Event::heartbeat()).unwrap();
            events.write(&Event::error("no")).unwrap();
            events.end();
            assert_eq!(events.write(&Event::heartbeat()), Err(Closed));
            let text = rest(response).await;
            assert_eq!(
                text,
                "20\n{\"type\":\"HEARTBEAT\"}41\n{\"type\":\"ERROR\",\"error\":{\"message\":\"no\"}}"
            );
            let (_events, response) =
                streams.open(Content::Stream(Form::Protobuf), Bounds::default());
            assert_eq!(response.headers()[CONTENT_TYPE], "application/recordio");
            assert_eq!(
                response.headers()["Message-Content-Type"],
                "application/x-protobuf"
            );
        });
    }

    /// W4.
    #[test]
    fn who_does_not_read_is_found_too_slow_and_is_left_with_the_reason_alone() {
        stage(async {
            let (node, streams) = streams();
            let bounds = Bounds {
                bytes_max: 100,
                ..Bounds::default()
            };
            let (events, response) = streams.open(json(), bounds);
            // One event may be as large as it likes.
            events.write(&Event::error("x".repeat(200))).unwrap();
            assert_eq!(events.lag(), None);
            events.write(&Event::heartbeat()).unwrap();
            let reason = events.lag().unwrap();
            assert!(reason.contains("more than 100"), "{reason}");
            events.cut(Some(&Event::error(&reason)));
            let text = rest(response).await;
            assert!(
                text.contains(&reason) && !text.contains("HEARTBEAT"),
                "{text}"
            );

            let (events, _response) = streams.open(json(), bounds);
            events.write(&Event::heartbeat()).unwrap();
            node.clock().advance(Duration::from_secs(75)).await;
            assert_eq!(events.lag(), None);
            node.clock().advance(Duration::from_secs(1)).await;
            assert!(events.lag().is_some_and(|reason| reason.contains("75 s")));
        });
    }

    /// W4: what one may hold back is much where many do.
    #[test]
    fn many_who_do_not_read_hold_no_more_together_than_a_few_may_and_who_reads_is_let_be() {
        stage(async {
            let (node, streams) = streams();
            let bounds = Bounds {
                together_max: Some(100_000),
                ..Bounds::default()
            };
            let open = |_| streams.open(json(), bounds);
            let (stalled, responses): (Vec<_>, Vec<_>) = (0..1000).map(open).unzip();
            let (read, response) = streams.open(json(), bounds);
            let mut body = response.into_body().into_data_stream();
            // Another kind of stream counts for nothing.
            let together_max = None;
            let (apart, _apart) = streams.open(
                json(),
                Bounds {
                    together_max,
                    ..bounds
                },
            );
            let event = Event::error("x".repeat(50));
            apart.write(&Event::error("x".repeat(200_000))).unwrap();
            let (mut most, mut bursts, mut reasons) = (0, 0, Vec::new());
            for _ in 0..9 {
                // Each of them alone is far below its own bound.
                for events in &stalled {
                    if events.write(&event).is_ok()
                        && let Some(reason) = events.lag()
                    {
                        events.cut(None);
                        reasons.push(reason);
                    }
                    most = most.max(streams.waiting());
                }
                // Many times its share, and read.
                for _ in 0..100 {
                    read.write(&event).unwrap();
                    assert_eq!(read.lag(), None);
                }
                bursts += u32::from(streams.waiting() > 100_000);
                for _ in 0..100 {
                    assert!(body.next().await.is_some());
                }
                node.clock().sleep(BURST).await;
            }
            assert!(bursts > 0);
            assert!((90_000..=100_000).contains(&most), "{most}");
            assert!(reasons.len() > 100, "{}", reasons.len());
            assert!(
                reasons[0].contains("more than 99, its share"),
                "{}",
                reasons[0]
            );
            assert_eq!(apart.lag(), None);
            drop(responses);
            assert_eq!((streams.waiting(), streams.open_now()), (0, 2));
        });
    }

    /// W4: also if nothing more is written to those who do not read.
    #[test]
    fn who_holds_more_than_its_share_is_to_be_looked_at_again_when_its_moment_is_over() {
        stage(async {
            let (node, streams) = streams();
            let bounds = Bounds {
                together_max: Some(1000),
                ..Bounds::default()
            };
            let (first, _first) = streams.open(json(), bounds);
            let (second, response) = streams.open(json(), bounds);
            for _ in 0..3 {
                first.write(&Event::error("x".repeat(200))).unwrap();
            }
            assert_eq!(
                (first.lag(), first.lags_in()),
                (None, None),
                "there is room"
            );
            for _ in 0..3 {
                second.write(&Event::error("x".repeat(200))).unwrap();
            }
            assert_eq!((second.lag(), second.lags_in()), (None, Some(BURST)));
            node.clock().advance(BURST / 4).await;
            assert_eq!(
                (second.lag(), second.lags_in()),
                (None, Some(BURST * 3 / 4))
            );
            node.clock().advance(BURST * 3 / 4).await;
            let reason = second.lag().unwrap();
            assert!(reason.contains("more than 500, its share"), "{reason}");
            // Whoever has read meanwhile is let be.
            let mut body = response.into_body().into_data_stream();
            assert!(body.next().await.is_some());
            assert_eq!((second.lag(), second.lags_in()), (None, None));
        });
    }

    /// W4: one large event for each of many is as much as many small ones.
    #[test]
    fn a_single_event_waits_for_long_only_while_there_is_room_for_it() {
        stage(async {
            let (node, streams) = streams();
            let bounds = Bounds {
                together_max: Some(1000),
                ..Bounds::default()
            };
            let (first, response) = streams.open(json(), bounds);
            let (second, _second) = streams.open(json(), bounds);
            first.write(&Event::error("x".repeat(600))).unwrap();
            node.clock().advance(BURST).await;
            assert_eq!((first.lag(), first.lags_in()), (None, None));
            second.write(&Event::error("x".repeat(600))).unwrap();
            assert_eq!((second.lag(), second.lags_in()), (None, Some(BURST)));
            let reason = first.lag().unwrap();
            assert!(reason.contains("more than 500, its share"), "{reason}");
            let mut body = response.into_body().into_data_stream();
            assert!(body.next().await.is_some());
            node.clock().advance(BURST).await;
            assert_eq!((first.lag(), second.lag()), (None, None));
        });
    }

    #[test]
    fn whoever_ends_a_stream_both_ends_know() {
        stage(async {
            let (_, streams) = streams();
            let (events, response) = streams.open(json(), Bounds::default());
            let mut closed = Box::pin(events.closed());
            assert!(closed.as_mut().now_or_never().is_none());
            assert_eq!(streams.open_now(), 1);
            drop(response);
            assert!(closed.as_mut().now_or_never().is_some());
            assert!(events.is_closed());
            assert_eq!(
                (events.write(&Event::heartbeat()), streams.open_now()),
                (Err(Closed), 0)
            );

            let (events, response) = streams.open(json(), Bounds::default());
            let mut body = response.into_body().into_data_stream();
            assert!(body.next().now_or_never().is_none());
            drop(events);
            assert!(body.next().now_or_never().is_some_and(|end| end.is_none()));

            let (events, response) = streams.open(json(), Bounds::default());
            streams.end_all();
            assert!(events.is_closed());
            assert_eq!(rest(response).await, "");
        });
    }
}
