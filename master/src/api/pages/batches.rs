//! Batching of page requests: a request for a page that is being rendered shares the next rendering
//! with all others.
//!
//! A page is rendered from a snapshot taken after its readers' requests, so no reader sees an older
//! state than it knows; one page of a kind is rendered at a time, and compressed once. Frequent
//! requests wait a little for others ([`pause`]), so that rendering uses a small part of a busy
//! master's machine; repeated requests over one connection do not wait. Requests are equal if path,
//! principal and conditions are. Bounded by the concurrent requests, and those of the last tenth of
//! a second.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use ::http::api::Refusal;
use ::http::{ConnectionNumber, SharedBody};
use authority::Subject;
use axum::body::{HttpBody, to_bytes};
use axum::extract::{Request, State};
use axum::http::header::CACHE_CONTROL;
use axum::http::{HeaderMap, Method, StatusCode};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use runtime::{Clock, Instant};
use tokio::sync::oneshot;

use crate::api::path_of;

/// The pause after a page is this many times its rendering time: small pages use a hundredth of a
/// processor,
const PAUSE: u32 = 100;
/// up to this maximum: ten large pages per second.
const PAUSE_MAX: Duration = Duration::from_millis(100);

/// The key of equal requests: path, cache conditions and caller.
type Key = (String, Vec<Vec<u8>>, Subject);

/// The key of a request with these headers.
pub(in crate::api) fn key(asked: String, headers: &HeaderMap, subject: Subject) -> Key {
    let ages = headers.get_all(CACHE_CONTROL).iter();
    let ages = ages.map(|age| age.as_bytes().to_vec()).collect();
    (asked, ages, subject)
}

/// An answer that can be sent to several readers.
#[derive(Clone)]
struct SharedAnswer {
    status: StatusCode,
    headers: HeaderMap,
    shared: SharedBody,
}

/// The outcome for a waiting request.
enum BatchOutcome {
    /// The answer.
    Answer(SharedAnswer),
    /// Render it, for these others too.
    Make(PageRenderer),
}

/// Requests that wait for the next page of some kind, while one is being rendered.
type Waiting = Vec<oneshot::Sender<BatchOutcome>>;

/// All pages that are being rendered, and the newest finished ones.
#[derive(Clone)]
pub(in crate::api) struct Batches {
    inside: Arc<Mutex<BatchTable>>,
    hits: Hits,
    clock: Clock,
}

#[derive(Default)]
struct BatchTable {
    made: BTreeMap<Key, Waiting>,
    /// The newest page of each kind.
    last: BTreeMap<Key, Last>,
}

/// A finished page.
struct Last {
    /// Further requests wait until then.
    pause_ends: Instant,
    /// Its reader's connection, if it had only one.
    by: Option<ConnectionNumber>,
}

/// The pause after a page with this rendering time, for other connections than its reader's.
fn pause(took: Duration) -> Duration {
    PAUSE_MAX.min(took.saturating_mul(PAUSE))
}

/// Number of requests that shared another one's answer (metric `http_cache_hits`).
#[derive(Clone, Debug, Default)]
pub(crate) struct Hits(Arc<AtomicU64>);

impl Hits {
    /// The current value.
    pub fn count(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }

    fn increment(&self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

/// The request that renders a page, and those that share it. If it is dropped without a page
/// because its reader has gone, the next of them takes over.
struct PageRenderer {
    batches: Batches,
    /// `None` if nobody takes over.
    key: Option<Key>,
    with: Waiting,
}

impl Batches {
    /// An empty set; shared answers are counted in `hits`.
    pub fn new(clock: &Clock, hits: Hits) -> Self {
        Self {
            inside: Arc::default(),
            hits,
            clock: clock.clone(),
        }
    }

    /// Either renders the page or waits for it.
    fn join(&self, key: Key) -> Result<PageRenderer, oneshot::Receiver<BatchOutcome>> {
        self.change(|inside| match inside.made.get_mut(&key) {
            Some(waiting) => {
                let (told, turn) = oneshot::channel();
                waiting.push(told);
                Err(turn)
            }
            None => {
                inside.made.insert(key.clone(), Waiting::new());
                Ok(PageRenderer {
                    batches: self.clone(),
                    key: Some(key),
                    with: Waiting::new(),
                })
            }
        })
    }

    fn change<T>(&self, change: impl FnOnce(&mut BatchTable) -> T) -> T {
        change(&mut self.inside.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Records a page that was just rendered.
    fn made(&self, key: Key, took: Duration, by: Option<ConnectionNumber>) {
        let now = self.clock.now();
        let pause_ends = now + pause(took);
        self.change(|inside| {
            inside.last.retain(|_, last| last.pause_ends > now);
            inside.last.insert(key, Last { pause_ends, by });
        });
    }

    /// Waits until the next page may be rendered for this connection.
    async fn time(&self, key: &Key, by: Option<ConnectionNumber>) {
        let pause_ends = self.change(|inside| {
            let last = inside.last.get(key)?;
            (last.by.is_none() || last.by != by).then_some(last.pause_ends)
        });
        if let Some(at) = pause_ends {
            self.clock.sleep_until(at).await;
        }
    }

    /// The first of these that is still connected renders the next page for all; without any, none
    /// is rendered.
    fn pass_on(&self, key: &Key, mut to: Waiting) {
        loop {
            if to.is_empty() {
                let waiting = self.change(|inside| {
                    let waiting = inside.made.remove(key).unwrap_or_default();
                    if !waiting.is_empty() {
                        inside.made.insert(key.clone(), Waiting::new());
                    }
                    waiting
                });
                match waiting.is_empty() {
                    true => return,
                    false => to = waiting,
                }
            }
            let next = to.remove(0);
            let maker = PageRenderer {
                batches: self.clone(),
                key: Some(key.clone()),
                with: to,
            };
            match next.send(BatchOutcome::Make(maker)) {
                Ok(()) => return,
                // It has gone: try the next one.
                Err(BatchOutcome::Make(mut maker)) => {
                    maker.key = None;
                    to = std::mem::take(&mut maker.with);
                }
                Err(BatchOutcome::Answer(_)) => return,
            }
        }
    }
}

impl PageRenderer {
    /// Waits for other requests to share the page, if the previous page is recent.
    async fn gather(&mut self, by: Option<ConnectionNumber>) {
        let Some(key) = &self.key else {
            return;
        };
        self.batches.time(key, by).await;
        let come = |inside: &mut BatchTable| inside.made.get_mut(key).map(std::mem::take);
        let come = self.batches.change(come);
        self.with.extend(come.into_iter().flatten());
    }

    /// Sends the finished page to those that share it.
    fn tell(mut self, made: &SharedAnswer) {
        for one in self.with.drain(..) {
            // A receiver that has gone needs no answer.
            let _ = one.send(BatchOutcome::Answer(made.clone()));
        }
    }
}

impl Drop for PageRenderer {
    fn drop(&mut self) {
        if let Some(key) = self.key.take() {
            let with = std::mem::take(&mut self.with);
            self.batches.pass_on(&key, with);
        }
    }
}

impl SharedAnswer {
    /// A complete answer; a streamed body can be read only once.
    async fn of(response: Response) -> Result<Self, Response> {
        if response.body().size_hint().exact().is_none() {
            return Err(response);
        }
        let (mut head, body) = response.into_parts();
        let shared = match head.extensions.remove::<SharedBody>() {
            Some(shared) => shared,
            None => match to_bytes(body, usize::MAX).await {
                Ok(body) => SharedBody::from(body),
                Err(broken) => {
                    let problem = format!("page rendering failed: {broken}");
                    let refusal = Refusal::new(StatusCode::INTERNAL_SERVER_ERROR, problem);
                    return Err(refusal.into_response());
                }
            },
        };
        Ok(Self {
            status: head.status,
            headers: head.headers,
            shared,
        })
    }
}

impl IntoResponse for SharedAnswer {
    fn into_response(self) -> Response {
        (self.status, self.headers, self.shared).into_response()
    }
}

/// Serves a page, or another request's.
pub(in crate::api) async fn batched(
    State(batches): State<Batches>,
    request: Request,
    next: Next,
) -> Response {
    if request.method() != Method::GET {
        return next.run(request).await;
    }
    let path = path_of(&request);
    let path = path.strip_prefix("/master").unwrap_or(&path).to_owned();
    let subject = request.extensions().get().cloned().unwrap_or_default();
    let key = key(path, request.headers(), subject);
    let by = request.extensions().get().copied();
    share(&batches, key, by, next.run(request)).await
}

/// The answer rendered for this request, or another one's.
pub(in crate::api) async fn share(
    batches: &Batches,
    key: Key,
    by: Option<ConnectionNumber>,
    make: impl Future<Output = Response>,
) -> Response {
    let mut maker = match batches.join(key.clone()) {
        Ok(maker) => maker,
        Err(turn) => match turn.await {
            Ok(BatchOutcome::Answer(made)) => {
                batches.hits.increment();
                return made.into_response();
            }
            Ok(BatchOutcome::Make(maker)) => maker,
            // The renderer disappears only with its process.
            Err(_) => {
                let gone = "page rendering was interrupted; try again";
                return Refusal::not_now(gone).into_response();
            }
        },
    };
    maker.gather(by).await;
    let (begun, alone) = (batches.clock.now(), maker.with.is_empty());
    match SharedAnswer::of(make.await).await {
        Ok(made) => {
            if made.status == StatusCode::OK {
                let took = batches.clock.now() - begun;
                batches.made(key, took, by.filter(|_| alone));
            }
            maker.tell(&made);
            made.into_response()
        }
        Err(response) => response,
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use futures_util::FutureExt;
    use futures_util::future::LocalBoxFuture;
    use runtime::testing::run_simulated;

    use super::*;

    /// Counts rendered pages; each shows its number, once released.
    struct CountingRenderer {
        batches: Batches,
        made: Arc<AtomicUsize>,
    }

    fn state() -> Key {
        ("/state".to_owned(), Vec::new(), Subject::default())
    }

    type PendingAnswer = LocalBoxFuture<'static, String>;

    fn batches() -> Batches {
        Batches::new(&Clock::paused(), Hits::default())
    }

    impl CountingRenderer {
        fn new() -> Self {
            Self {
                batches: batches(),
                made: Arc::default(),
            }
        }

        /// Sends a request; the page is rendered when the sender fires.
        fn ask(&self, path: &str) -> (PendingAnswer, oneshot::Sender<()>) {
            let (go, when) = oneshot::channel::<()>();
            let (batches, made) = (self.batches.clone(), self.made.clone());
            let key = (path.to_owned(), Vec::new(), Subject::default());
            let mut asked = async move {
                let make = async move {
                    let number = made.fetch_add(1, Ordering::Relaxed) + 1;
                    let _ = when.await;
                    number.to_string().into_response()
                };
                let response = share(&batches, key, None, make).await;
                let bytes = to_bytes(response.into_body(), 100).await.unwrap();
                String::from_utf8(bytes.to_vec()).unwrap()
            }
            .boxed_local();
            assert!((&mut asked).now_or_never().is_none());
            (asked, go)
        }

        fn made(&self) -> usize {
            self.made.load(Ordering::Relaxed)
        }
    }

    /// W15; SPEC 3.10: `http_cache_hits`.
    // Covers W15 in part: that no page waits behind the mailbox, the snapshots, the batches and
    // what is kept. Covers 3.10 `http_cache_hits`.
    #[test]
    fn requests_during_rendering_share_the_next_page() {
        run_simulated(async {
            let press = CountingRenderer::new();
            let (first, go) = press.ask("/state");
            let (second, go_on) = press.ask("/state");
            let (third, _never) = press.ask("/state");
            let (other, _never_either) = press.ask("/slaves");
            assert_eq!(press.made(), 2, "one page a kind at a time");
            go.send(()).unwrap();
            assert_eq!(first.await, "1");
            go_on.send(()).unwrap();
            assert_eq!(
                (second.await, third.await),
                ("3".to_owned(), "3".to_owned())
            );
            assert_eq!(press.made(), 3);
            assert_eq!(press.batches.hits.count(), 1, "of three one was given it");
            drop(other);
            let (again, go) = press.ask("/slaves");
            go.send(()).unwrap();
            assert_eq!(again.await, "4");
            assert!(press.batches.change(|inside| inside.made.is_empty()));
        });
    }

    #[test]
    fn next_waiting_request_takes_over_the_rendering() {
        run_simulated(async {
            let press = CountingRenderer::new();
            let (first, _) = press.ask("/state");
            let (second, _) = press.ask("/state");
            let (third, _) = press.ask("/state");
            let (fourth, go) = press.ask("/state");
            drop(second);
            drop(first);
            // The third is chosen to render it, and is dropped before.
            drop(third);
            go.send(()).unwrap();
            assert_eq!(fourth.await, "2");
            assert!(press.batches.change(|inside| inside.made.is_empty()));
        });
    }

    /// W15: a master with many polling clients renders few pages.
    // Covers W15 in part: that no page waits behind the mailbox, the snapshots, the batches and
    // what is kept.
    #[test]
    fn frequent_requests_wait_and_share_a_page() {
        run_simulated(async {
            let (batches, made) = (batches(), AtomicUsize::new(0));
            let ask = async |by: u64, takes: u64| {
                let make = async {
                    batches.clock.sleep(Duration::from_millis(takes)).await;
                    let number = made.fetch_add(1, Ordering::Relaxed) + 1;
                    number.to_string().into_response()
                };
                let by = Some(ConnectionNumber::numbered(by));
                let response = share(&batches, state(), by, make).await;
                let bytes = to_bytes(response.into_body(), 100).await.unwrap();
                String::from_utf8(bytes.to_vec()).unwrap()
            };
            let mut before = batches.clock.now();
            let mut passed = || {
                let now = batches.clock.now();
                (now - std::mem::replace(&mut before, now)).as_millis()
            };
            // A reader that asks again after its page does not wait.
            for number in ["1", "2", "3"] {
                assert_eq!(ask(1, 3).await, number);
            }
            assert_eq!(passed(), 9);
            // Others share a page.
            let later = async {
                batches.clock.sleep(Duration::from_millis(15)).await;
                ask(3, 3).await
            };
            let both = futures_util::join!(ask(2, 3), later);
            assert_eq!(both, ("4".to_owned(), "4".to_owned()));
            assert_eq!(passed(), 103);
            // Each of several is a new connection.
            assert_eq!(ask(2, 0).await, "5");
            assert_eq!(passed(), 100);
            // A page that costs nothing needs no pause.
            assert_eq!(ask(3, 50).await, "6");
            assert_eq!(passed(), 50);
            assert_eq!(batches.hits.count(), 1);
            // Older pages are forgotten.
            let other = ("/other".into(), Vec::new(), Subject::default());
            batches.made(state(), Duration::ZERO, None);
            batches.made(other, PAUSE_MAX, None);
            assert_eq!(batches.change(|inside| inside.last.len()), 1);
        });
    }

    #[test]
    fn pause_depends_on_rendering_time_and_is_bounded() {
        let after = |micros| pause(Duration::from_micros(micros)).as_micros();
        assert_eq!([0, 20, 300, 5_000].map(after), [0, 2_000, 30_000, 100_000]);
        assert_eq!(pause(Duration::MAX), PAUSE_MAX);
    }

    #[test]
    fn failed_page_rendering_is_reported_and_not_shared() {
        run_simulated(async {
            let (batches, key) = (batches(), state());
            let make = async { Response::new(::http::testing::cut_body(5)) };
            let response = share(&batches, key.clone(), None, make).await;
            assert_eq!(response.status(), StatusCode::INTERNAL_SERVER_ERROR);
            let bytes = to_bytes(response.into_body(), 100).await.unwrap();
            assert_eq!(bytes, "page rendering failed: it broke");
            let next = share(&batches, key, None, async { "whole".into_response() }).await;
            assert_eq!(next.status(), StatusCode::OK);
        });
    }
}
