//! Where a page comes from: the books of the master that acts here, or a mirror of the leader's.
//!
//! `find` decides it for one request. A page from a mirror says so: [`STALENESS`] is how old the mirror is, in seconds, and [`LEADER`]
//! whose books it shows. A reader that wants no mirror, or none beyond an age, says it as to any cache: `Cache-Control: no-cache` or
//! `max-age=5` (RFC 9111). It is sent to the leader then.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use ::http::Shared;
use ::http::api::Refusal;
use authority::{Action, Forbidden};
use axum::http::header::{CACHE_CONTROL, CONTENT_TYPE};
use axum::http::{HeaderMap, HeaderName, HeaderValue};
use axum::response::{IntoResponse, Response};
use runtime::{Handle, Instant, Node};
use serde::{Deserialize, Serialize};

use super::PATIENCE;
use super::changes::bad;
use super::kept::Kept;
use super::shown::Shown;
use crate::books::Books;
use crate::config::Config;
use crate::master::{Glance, Master};
use crate::mirror::{Mirrored, SETTLING_MAX, STALENESS_MAX};
use crate::office::Front;
use crate::permission::Asker;

/// How old the mirror is that a page is made from, in seconds with decimals. Absent where the leader itself answers.
pub const STALENESS: HeaderName = HeaderName::from_static("meros-staleness");
/// Whose books that mirror shows, as `host:port`.
pub const LEADER: HeaderName = HeaderName::from_static("meros-leader");

/// What the operator has chosen, as far as pages show it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Chosen {
    pub flags: BTreeMap<String, String>,
}

impl Chosen {
    /// What this configuration says.
    pub fn of(config: &Config) -> Self {
        Self {
            flags: config.flags.clone(),
        }
    }
}

/// What one page is made from, as far as who asks may see it.
#[derive(Clone)]
pub(crate) struct Source {
    books: Arc<Books>,
    chosen: Arc<Chosen>,
    asker: Asker,
    kept: Kept,
    pub node: Node,
    /// What the answer says of the mirror, if it is one.
    pub marks: HeaderMap,
}

/// Where the answer to a request is.
pub(crate) enum Found {
    /// Here.
    Here(Source),
    /// Where the leader is.
    Elsewhere,
    /// The master that acts here did not answer in time, or has not read the registry yet, and there is no mirror.
    Late,
}

/// Finds what the answer to a request with these headers is made from. A new leader's books count once they are settled; until then
/// what its mirror knew is more.
pub(crate) async fn find(
    front: &Front,
    node: &Node,
    chosen: &Arc<Chosen>,
    asker: Asker,
    headers: &HeaderMap,
) -> Found {
    let mirrored = fresh(front, node.clock().now(), allowed(headers));
    let books = match front.master() {
        None if mirrored.is_none() => return Found::Elsewhere,
        None => None,
        Some(master) => read(&master).await,
    };
    let wall = node.clock().wall();
    let is_enough = |books: &Arc<Books>| mirrored.is_none() || books.is_settled(SETTLING_MAX, wall);
    let (books, chosen, marks) = match (books.filter(is_enough), mirrored) {
        (Some(books), _) => (books, chosen.clone(), HeaderMap::new()),
        (None, Some(mirrored)) => {
            let marks = marks(&mirrored, node.clock().now());
            (mirrored.books.clone(), mirrored.chosen.clone(), marks)
        }
        (None, None) => return Found::Late,
    };
    Found::Here(Source {
        books,
        chosen,
        asker,
        kept: Kept::new(node),
        node: node.clone(),
        marks,
    })
}

/// Finds the books of the master that acts here, for what a mirror does not know.
pub(crate) async fn of_the_leader(
    front: &Front,
    node: &Node,
    chosen: &Arc<Chosen>,
    asker: Asker,
) -> Found {
    let Some(master) = front.master() else {
        return Found::Elsewhere;
    };
    match read(&master).await {
        Some(books) => Found::Here(Source {
            books,
            chosen: chosen.clone(),
            asker,
            kept: Kept::new(node),
            node: node.clone(),
            marks: HeaderMap::new(),
        }),
        None => Found::Late,
    }
}

/// The books as they are between two messages of the master: no page waits for those that wait in its mailbox (W15).
pub(super) async fn glance(master: &Handle<Master>) -> Option<Arc<Books>> {
    master.ask(Glance, PATIENCE).await.ok()
}

/// The same, once the registry has been read: before, they say nothing, which is not that there is nothing.
pub(super) async fn read(master: &Handle<Master>) -> Option<Arc<Books>> {
    glance(master).await.filter(|books| books.has_begun())
}

/// The answer where the master that acts here gave none.
pub(super) fn late() -> Response {
    Refusal::not_now("the master gave no answer in time; try again").into_response()
}

/// The mirror here, if it is not older than that.
pub(super) fn fresh(
    front: &Front,
    now: Instant,
    allowed: Option<Duration>,
) -> Option<Arc<Mirrored>> {
    let (mirrored, allowed) = (front.mirrored()?, allowed?);
    (mirrored.staleness(now) <= allowed).then_some(mirrored)
}

/// How old a mirror may be for a request with these headers; none if it must be no mirror.
fn allowed(headers: &HeaderMap) -> Option<Duration> {
    let texts = headers.get_all(CACHE_CONTROL).iter();
    let texts = texts.filter_map(|value| value.to_str().ok());
    let mut allowed = STALENESS_MAX;
    for directive in texts.flat_map(|text| text.split(',')) {
        let directive = directive.trim().to_ascii_lowercase();
        if directive == "no-cache" || directive == "no-store" {
            return None;
        }
        let age = directive.strip_prefix("max-age=").map(str::parse);
        if let Some(Ok(seconds)) = age {
            allowed = allowed.min(Duration::from_secs(seconds));
        }
    }
    (!allowed.is_zero()).then_some(allowed)
}

/// What an answer that is made from this mirror says of it.
pub(super) fn marks(mirrored: &Mirrored, now: Instant) -> HeaderMap {
    let mut marks = HeaderMap::new();
    let staleness = format!("{:.3}", mirrored.staleness(now).as_secs_f64());
    for (name, value) in [(STALENESS, staleness), (LEADER, mirrored.leader())] {
        if let Ok(value) = HeaderValue::try_from(value) {
            marks.insert(name, value);
        }
    }
    marks
}

impl Source {
    /// The same, with what was written of pages before.
    pub fn keeping(self, kept: &Kept) -> Self {
        let kept = kept.clone();
        Self { kept, ..self }
    }

    /// A page made from it, off this thread.
    pub async fn page(
        self,
        make: impl FnOnce(Shown<'_>, &Chosen) -> Vec<u8> + Send + 'static,
    ) -> Response {
        let made = self.made("application/json", |books, chosen, _| {
            make(Shown::of(books), chosen)
        });
        made.await
    }

    /// A page made from it, off this thread, or what is wrong with the question.
    pub async fn asked(
        self,
        make: impl FnOnce(Shown<'_>) -> Result<Vec<u8>, String> + Send + 'static,
    ) -> Response {
        let node = self.node.clone();
        let made = node.blocking_behind(move || make(Shown::of(&self.books())));
        match made.await {
            Ok(Ok(page)) => ([(CONTENT_TYPE, "application/json")], page).into_response(),
            Ok(Err(problem)) => bad(problem),
            Err(fallen) => Refusal::not_now(fallen).into_response(),
        }
    }

    /// An answer of this type made from it, off this thread: of what who asks may see. What is large may be kept.
    pub async fn made<T>(
        self,
        content_type: &'static str,
        make: impl FnOnce(&Arc<Books>, &Chosen, &Kept) -> T + Send + 'static,
    ) -> Response
    where
        T: Into<Shared> + Send + 'static,
    {
        let node = self.node.clone();
        let seen = move || {
            let chosen = self
                .flags()
                .map_or_else(|_| Arc::default(), |_| self.chosen.clone());
            make(&self.books(), &chosen, &self.kept)
        };
        match node.blocking_behind(seen).await {
            Ok(made) => {
                let made: Shared = made.into();
                ([(CONTENT_TYPE, content_type)], made).into_response()
            }
            Err(fallen) => Refusal::not_now(fallen).into_response(),
        }
    }

    /// The books, as far as who asks may see them. It may cost a look at each task.
    pub fn books(&self) -> Arc<Books> {
        self.asker.sight().books(&self.books)
    }

    /// The flags, if who asks may see them.
    pub fn flags(&self) -> Result<&BTreeMap<String, String>, Forbidden> {
        self.asker.may(Action::ViewFlags, None)?;
        Ok(&self.chosen.flags)
    }
}

#[cfg(test)]
mod tests {
    use runtime::rehearsal::rehearse;

    use super::*;

    #[test]
    fn a_reader_says_as_to_any_cache_how_old_an_answer_may_be() {
        let check = |texts: &[&'static str], seconds: Option<u64>| {
            let mut headers = HeaderMap::new();
            for text in texts {
                headers.append(CACHE_CONTROL, HeaderValue::from_static(text));
            }
            let expected = seconds.map(Duration::from_secs);
            assert_eq!(allowed(&headers), expected, "{texts:?}");
        };
        check(&[], Some(30));
        check(&["max-age=5"], Some(5));
        check(&["max-age=500"], Some(30));
        check(&["Max-Age=7, no-transform", "max-age=3"], Some(3));
        check(&["max-age=soon, max-age=-1"], Some(30));
        check(&["no-transform, No-Cache"], None);
        check(&["no-store"], None);
        check(&["max-age=0"], None);
    }

    /// SPEC 2.1: a body that says what was wrong, and when to try again.
    #[test]
    fn a_page_whose_making_falls_is_refused_in_words() {
        rehearse(|node| async move {
            let source = || Source {
                books: Arc::new(crate::mirror::tests::laws::books()),
                chosen: Arc::default(),
                asker: Asker::default(),
                kept: Kept::new(&node),
                node: node.clone(),
                marks: HeaderMap::new(),
            };
            let asked = source().asked(|_| panic!("no page"));
            let page = source().page(|_, _| panic!("no page"));
            for response in [asked.await, page.await, late()] {
                assert_eq!(response.status().as_u16(), 503);
                assert_eq!(response.headers()["Retry-After"], "1");
                let body = axum::body::to_bytes(response.into_body(), 1000);
                assert!(body.await.unwrap().len() > 10);
            }
        });
    }
}
