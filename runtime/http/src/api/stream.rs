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
}

impl Default for Bounds {
    fn default() -> Self {
        Self {
            bytes_max: 4 << 20,
            wait_max: Duration::from_secs(75),
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
    /// Those that were opened, some of which may have ended.
    all: Mutex<Vec<Weak<Shared>>>,
}

impl Streams {
    /// Of a listener on this node.
    pub fn new(node: &Node) -> Self {
        Self(Arc::new(Listener {
            clock: node.clock().clone(),
            open: AtomicUsize::new(0),
            all: Mutex::default(),
        }))
    }

    /// How many are open.
    pub fn open_now(&self) -> usize {
        self.0.open.load(Ordering::Relaxed)
    }

    /// Opens a stream: the end to write to, and the response whose body it is. RecordIO in any case; `content` says how it is called:
    /// scheduler and executor streams bear the type of the messages in them, as Mesos has it.
    pub fn open(&self, content: Content, bounds: Bounds) -> (Events, Response) {
        let shared = Arc::new(Shared {
            clock: self.0.clock.clone(),
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
        let reader = Reader {
            shared: shared.clone(),
            listener: self.0.clone(),
        };
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
    clock: Clock,
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
        change(&mut self.queue.lock().unwrap_or_else(PoisonError::into_inner))
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
        let now = self.shared.clock.now();
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
        let Bounds {
            bytes_max,
            wait_max,
        } = self.shared.bounds;
        let now = self.shared.clock.now();
        self.shared.change(|queue| {
            let waits = queue.records.front().map(|(since, _)| now - *since);
            if queue.records.len() > 1 && queue.bytes > bytes_max {
                return Some(format!(
                    "{} bytes of events wait to be read, which are more than {bytes_max}",
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

    /// Cuts the reader off: what waits is dropped, and `last` is all that can still be read.
    pub fn cut(&self, last: Option<&dyn Message>) {
        let last = last.map(|last| self.record(last));
        let now = self.shared.clock.now();
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
struct Reader {
    shared: Arc<Shared>,
    listener: Arc<Listener>,
}

impl Stream for Reader {
    type Item = Result<Bytes, std::convert::Infallible>;

    fn poll_next(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.shared.change(|queue| match queue.records.pop_front() {
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
        self.listener.open.fetch_sub(1, Ordering::Relaxed);
        self.shared.change(|queue| {
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
                wait_max: Duration::from_secs(75),
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
