//! Batches: whoever asks for a page that is just being made for somebody gets the next one, together with all who do (W15).
//!
//! A page is made from a snapshot that is taken after each of its readers has asked, so nobody is shown less than it has already heard
//! of; and however many ask at once, one page is made at a time, and compressed once. Where many ask one after the other, each waits a
//! little for company ([`pause`]), so that making pages takes little of a busy master's machine; one who asks again and again over one connection
//! waits for nobody. Equal is what was asked with the same path, by the same principal, under the same conditions. Bounded by the requests
//! that are served at once, and by those of the last tenth of a second.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use ::http::api::Refusal;
use ::http::{Connection, Shared};
use authority::Subject;
use axum::body::{HttpBody, to_bytes};
use axum::extract::{Request, State};
use axum::http::header::CACHE_CONTROL;
use axum::http::{HeaderMap, Method, StatusCode};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use runtime::{Clock, Instant};
use tokio::sync::oneshot;

use super::path_of;

/// The pause after a page is so many times longer than it took to make that one: a hundredth of a processor goes to small pages,
const PAUSE: u32 = 100;
/// but it is no longer than this: of large ones ten are made each second.
const PAUSE_MAX: Duration = Duration::from_millis(100);

/// What makes two requests equal: what is asked, how old the answer may be, and who asks.
type Key = (String, Vec<Vec<u8>>, Subject);

/// Whoever asks this, with these headers.
pub(super) fn key(asked: String, headers: &HeaderMap, subject: Subject) -> Key {
    let ages = headers.get_all(CACHE_CONTROL).iter();
    let ages = ages.map(|age| age.as_bytes().to_vec()).collect();
    (asked, ages, subject)
}

/// An answer, for each who waits for it.
#[derive(Clone)]
struct Made {
    status: StatusCode,
    headers: HeaderMap,
    shared: Shared,
}

/// What somebody who waits is told.
enum Turn {
    /// Here it is.
    Answer(Made),
    /// Make it, for these too.
    Make(Maker),
}

/// Those who wait for the next page of some kind, while one is being made.
type Waiting = Vec<oneshot::Sender<Turn>>;

/// All pages that are being made, and the last ones that were.
#[derive(Clone)]
pub(super) struct Batches {
    inside: Arc<Mutex<Inside>>,
    hits: Hits,
    clock: Clock,
}

#[derive(Default)]
struct Inside {
    made: BTreeMap<Key, Waiting>,
    /// The last of each kind.
    last: BTreeMap<Key, Last>,
}

/// A page that was made.
struct Last {
    /// Who else asks for one waits until then.
    pause_ends: Instant,
    /// Who had it, if only one had.
    by: Option<Connection>,
}

/// How long others than its reader wait for the next page where one took so long to make.
fn pause(took: Duration) -> Duration {
    PAUSE_MAX.min(took.saturating_mul(PAUSE))
}

/// How many were given an answer that was made for somebody else (SPEC 3.10: `http_cache_hits`).
#[derive(Clone, Debug, Default)]
pub(crate) struct Hits(Arc<AtomicU64>);

impl Hits {
    /// So many until now.
    pub fn count(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }

    fn one_more(&self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

/// Who makes a page, and those who get it too. Dropped without a page, since its reader has gone, it leaves the task to the next of
/// them.
struct Maker {
    batches: Batches,
    /// None if it is not to be left to anybody.
    key: Option<Key>,
    with: Waiting,
}

impl Batches {
    /// None yet; who is given what was made for another is counted here.
    pub fn new(clock: &Clock, hits: Hits) -> Self {
        Self {
            inside: Arc::default(),
            hits,
            clock: clock.clone(),
        }
    }

    /// Either makes the page or waits for it.
    fn join(&self, key: Key) -> Result<Maker, oneshot::Receiver<Turn>> {
        self.change(|inside| match inside.made.get_mut(&key) {
            Some(waiting) => {
                let (told, turn) = oneshot::channel();
                waiting.push(told);
                Err(turn)
            }
            None => {
                inside.made.insert(key.clone(), Waiting::new());
                Ok(Maker {
                    batches: self.clone(),
                    key: Some(key),
                    with: Waiting::new(),
                })
            }
        })
    }

    fn change<T>(&self, change: impl FnOnce(&mut Inside) -> T) -> T {
        change(&mut self.inside.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// A page was made just now, for this one or for several.
    fn made(&self, key: Key, took: Duration, by: Option<Connection>) {
        let now = self.clock.now();
        let pause_ends = now + pause(took);
        self.change(|inside| {
            inside.last.retain(|_, last| last.pause_ends > now);
            inside.last.insert(key, Last { pause_ends, by });
        });
    }

    /// Ready once it is time for the next page for this one.
    async fn time(&self, key: &Key, by: Option<Connection>) {
        let pause_ends = self.change(|inside| {
            let last = inside.last.get(key)?;
            (last.by.is_none() || last.by != by).then_some(last.pause_ends)
        });
        if let Some(at) = pause_ends {
            self.clock.sleep_until(at).await;
        }
    }

    /// The first of these who is still there makes the next page, for the others too; if nobody is left none is made.
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
            let maker = Maker {
                batches: self.clone(),
                key: Some(key.clone()),
                with: to,
            };
            match next.send(Turn::Make(maker)) {
                Ok(()) => return,
                // It has gone: the next one.
                Err(Turn::Make(mut maker)) => {
                    maker.key = None;
                    to = std::mem::take(&mut maker.with);
                }
                Err(Turn::Answer(_)) => return,
            }
        }
    }
}

impl Maker {
    /// Waits for company, which gets the page too, if it is soon after the page before.
    async fn gather(&mut self, by: Option<Connection>) {
        let Some(key) = &self.key else {
            return;
        };
        self.batches.time(key, by).await;
        let come = |inside: &mut Inside| inside.made.get_mut(key).map(std::mem::take);
        let come = self.batches.change(come);
        self.with.extend(come.into_iter().flatten());
    }

    /// The page is made.
    fn tell(mut self, made: &Made) {
        for one in self.with.drain(..) {
            // Whoever has gone needs none.
            let _ = one.send(Turn::Answer(made.clone()));
        }
    }
}

impl Drop for Maker {
    fn drop(&mut self) {
        if let Some(key) = self.key.take() {
            let with = std::mem::take(&mut self.with);
            self.batches.pass_on(&key, with);
        }
    }
}

impl Made {
    /// An answer that is whole; one that is not can be read only once.
    async fn of(response: Response) -> Result<Self, Response> {
        if response.body().size_hint().exact().is_none() {
            return Err(response);
        }
        let (mut head, body) = response.into_parts();
        let shared = match head.extensions.remove::<Shared>() {
            Some(shared) => shared,
            None => match to_bytes(body, usize::MAX).await {
                Ok(body) => Shared::from(body),
                Err(broken) => {
                    let problem = format!("the page was cut while it was made: {broken}");
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

impl IntoResponse for Made {
    fn into_response(self) -> Response {
        (self.status, self.headers, self.shared).into_response()
    }
}

/// Serves a page, or gives one that is made for somebody else too.
pub(super) async fn batched(
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

/// Gives the answer that is made for this one, or one that is made for somebody else too.
pub(super) async fn share(
    batches: &Batches,
    key: Key,
    by: Option<Connection>,
    make: impl Future<Output = Response>,
) -> Response {
    let mut maker = match batches.join(key.clone()) {
        Ok(maker) => maker,
        Err(turn) => match turn.await {
            Ok(Turn::Answer(made)) => {
                batches.hits.one_more();
                return made.into_response();
            }
            Ok(Turn::Make(maker)) => maker,
            // Whoever has to make it goes only with its process.
            Err(_) => {
                let gone = "whoever was to make this page has gone; try again";
                return Refusal::not_now(gone).into_response();
            }
        },
    };
    maker.gather(by).await;
    let (begun, alone) = (batches.clock.now(), maker.with.is_empty());
    match Made::of(make.await).await {
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
    use runtime::rehearsal::stage;

    use super::*;

    /// Counts the pages that are made; each says its number, once it is let go.
    struct Press {
        batches: Batches,
        made: Arc<AtomicUsize>,
    }

    fn state() -> Key {
        ("/state".to_owned(), Vec::new(), Subject::default())
    }

    type Asked = LocalBoxFuture<'static, String>;

    fn batches() -> Batches {
        Batches::new(&Clock::paused(), Hits::default())
    }

    impl Press {
        fn new() -> Self {
            Self {
                batches: batches(),
                made: Arc::default(),
            }
        }

        /// Somebody asks; the page is made when the sender has said so.
        fn ask(&self, path: &str) -> (Asked, oneshot::Sender<()>) {
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
    #[test]
    fn who_asks_while_a_page_is_made_gets_the_next_one_with_all_others() {
        stage(async {
            let press = Press::new();
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
    fn whoever_goes_leaves_the_page_to_the_next_who_is_still_there() {
        stage(async {
            let press = Press::new();
            let (first, _) = press.ask("/state");
            let (second, _) = press.ask("/state");
            let (third, _) = press.ask("/state");
            let (fourth, go) = press.ask("/state");
            drop(second);
            drop(first);
            // The third was told to make it, and goes before it does.
            drop(third);
            go.send(()).unwrap();
            assert_eq!(fourth.await, "2");
            assert!(press.batches.change(|inside| inside.made.is_empty()));
        });
    }

    /// W15: a master that many poll makes few pages.
    #[test]
    fn others_who_ask_soon_after_a_page_wait_a_little_for_company() {
        stage(async {
            let (batches, made) = (batches(), AtomicUsize::new(0));
            let ask = async |by: u64, takes: u64| {
                let make = async {
                    batches.clock.sleep(Duration::from_millis(takes)).await;
                    let number = made.fetch_add(1, Ordering::Relaxed) + 1;
                    number.to_string().into_response()
                };
                let by = Some(Connection::numbered(by));
                let response = share(&batches, state(), by, make).await;
                let bytes = to_bytes(response.into_body(), 100).await.unwrap();
                String::from_utf8(bytes.to_vec()).unwrap()
            };
            let mut before = batches.clock.now();
            let mut passed = || {
                let now = batches.clock.now();
                (now - std::mem::replace(&mut before, now)).as_millis()
            };
            // One who asks again as soon as it has had its page waits for nothing.
            for number in ["1", "2", "3"] {
                assert_eq!(ask(1, 3).await, number);
            }
            assert_eq!(passed(), 9);
            // Others come together.
            let later = async {
                batches.clock.sleep(Duration::from_millis(15)).await;
                ask(3, 3).await
            };
            let both = futures_util::join!(ask(2, 3), later);
            assert_eq!(both, ("4".to_owned(), "4".to_owned()));
            assert_eq!(passed(), 103);
            // Each of several is another one.
            assert_eq!(ask(2, 0).await, "5");
            assert_eq!(passed(), 100);
            // What takes no time needs no pause.
            assert_eq!(ask(3, 50).await, "6");
            assert_eq!(passed(), 50);
            assert_eq!(batches.hits.count(), 1);
            // Nothing is remembered for longer.
            let other = ("/other".into(), Vec::new(), Subject::default());
            batches.made(state(), Duration::ZERO, None);
            batches.made(other, PAUSE_MAX, None);
            assert_eq!(batches.change(|inside| inside.last.len()), 1);
        });
    }

    #[test]
    fn a_pause_is_as_long_as_a_page_is_dear_but_never_long() {
        let after = |micros| pause(Duration::from_micros(micros)).as_micros();
        assert_eq!([0, 20, 300, 5_000].map(after), [0, 2_000, 30_000, 100_000]);
        assert_eq!(pause(Duration::MAX), PAUSE_MAX);
    }

    #[test]
    fn a_page_that_is_cut_while_it_is_made_says_so_and_is_given_to_nobody_else() {
        stage(async {
            let (batches, key) = (batches(), state());
            let make = async { Response::new(::http::rehearsal::cut_body(5)) };
            let response = share(&batches, key.clone(), None, make).await;
            assert_eq!(response.status(), StatusCode::INTERNAL_SERVER_ERROR);
            let bytes = to_bytes(response.into_body(), 100).await.unwrap();
            assert_eq!(bytes, "the page was cut while it was made: it broke\n");
            let next = share(&batches, key, None, async { "whole".into_response() }).await;
            assert_eq!(next.status(), StatusCode::OK);
        });
    }
}
