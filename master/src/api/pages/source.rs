//! The source of a page: the local master's state, or a mirror of the leader's.
//!
//! `find` selects it for one request. A page from a mirror has its age in seconds in [`STALENESS`],
//! and the leader's address in [`LEADER`]. A reader limits the age like for any cache:
//! `Cache-Control: no-cache` or `max-age=5` (RFC 9111). Beyond the limit it is redirected to the
//! leader.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use ::http::SharedBody;
use ::http::api::Refusal;
use authority::{Action, Forbidden};
use axum::http::header::{CACHE_CONTROL, CONTENT_TYPE};
use axum::http::{HeaderMap, HeaderName, HeaderValue};
use axum::response::{IntoResponse, Response};
use runtime::{Handle, Instant, Node};
use serde::{Deserialize, Serialize};

use super::changes::bad;
use super::visible::VisibleState;
use crate::api::PATIENCE;
use crate::api::pages::cache::PageCache;
use crate::config::Config;
use crate::leadership::LocalLeader;
use crate::leadership::mirror::{Mirrored, SETTLING_MAX, STALENESS_MAX};
use crate::master::{Master, SnapshotNow};
use crate::permission::Caller;
use crate::state::MasterState;

/// The age of the mirror in seconds with decimals. Absent if the leader itself answers.
pub const STALENESS: HeaderName = HeaderName::from_static("meros-staleness");
/// The leader of that mirror, as `host:port`.
pub const LEADER: HeaderName = HeaderName::from_static("meros-leader");

/// The operator's flags, as far as pages show them.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct PublishedFlags {
    pub flags: BTreeMap<String, String>,
}

impl PublishedFlags {
    /// The flags of this configuration.
    pub fn of(config: &Config) -> Self {
        Self {
            flags: config.flags.clone(),
        }
    }
}

/// The source of one page for one caller.
#[derive(Clone)]
pub(crate) struct Source {
    state: Arc<MasterState>,
    published: Arc<PublishedFlags>,
    caller: Caller,
    cache: PageCache,
    pub node: Node,
    /// Headers that describe the mirror, if it is one.
    pub marks: HeaderMap,
}

/// Where a request is answered.
pub(crate) enum Found {
    /// Here.
    Here(Source),
    /// By the leader.
    Elsewhere,
    /// The local master did not answer in time, or has not read the registry yet, and there is no
    /// mirror.
    Late,
}

/// Selects the source for a request with these headers. A new leader's state is used once it is
/// complete; until then its mirror contains more.
pub(crate) async fn find(
    local: &LocalLeader,
    node: &Node,
    published: &Arc<PublishedFlags>,
    caller: Caller,
    headers: &HeaderMap,
) -> Found {
    let mirrored = fresh(local, node.clock().now(), allowed(headers));
    let state = match local.master() {
        None if mirrored.is_none() => return Found::Elsewhere,
        None => None,
        Some(master) => read(&master).await,
    };
    let wall = node.clock().wall();
    let is_enough =
        |state: &Arc<MasterState>| mirrored.is_none() || state.is_settled(SETTLING_MAX, wall);
    let (state, published, marks) = match (state.filter(is_enough), mirrored) {
        (Some(state), _) => (state, published.clone(), HeaderMap::new()),
        (None, Some(mirrored)) => {
            let marks = marks(&mirrored, node.clock().now());
            (mirrored.state.clone(), mirrored.published.clone(), marks)
        }
        (None, None) => return Found::Late,
    };
    Found::Here(Source {
        state,
        published,
        caller,
        cache: PageCache::new(node),
        node: node.clone(),
        marks,
    })
}

/// Selects the local master's state, for content that a mirror does not have.
pub(crate) async fn local_only(
    local: &LocalLeader,
    node: &Node,
    published: &Arc<PublishedFlags>,
    caller: Caller,
) -> Found {
    let Some(master) = local.master() else {
        return Found::Elsewhere;
    };
    match read(&master).await {
        Some(state) => Found::Here(Source {
            state,
            published: published.clone(),
            caller,
            cache: PageCache::new(node),
            node: node.clone(),
            marks: HeaderMap::new(),
        }),
        None => Found::Late,
    }
}

/// The state between two messages of the master: pages do not wait for its mailbox.
pub(in crate::api) async fn snapshot(master: &Handle<Master>) -> Option<Arc<MasterState>> {
    master.ask(SnapshotNow, PATIENCE).await.ok()
}

/// The same, once the registry has been read: before that an empty state means nothing.
pub(in crate::api) async fn read(master: &Handle<Master>) -> Option<Arc<MasterState>> {
    snapshot(master).await.filter(|state| state.has_begun())
}

/// The answer if the local master does not answer.
pub(in crate::api) fn late() -> Response {
    Refusal::not_now("the master did not answer in time; try again").into_response()
}

/// The local mirror, if it is not older than `allowed`.
pub(in crate::api) fn fresh(
    local: &LocalLeader,
    now: Instant,
    allowed: Option<Duration>,
) -> Option<Arc<Mirrored>> {
    let (mirrored, allowed) = (local.mirrored()?, allowed?);
    (mirrored.staleness(now) <= allowed).then_some(mirrored)
}

/// The allowed age of a mirror for a request with these headers; `None` forbids a mirror.
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

/// The headers for an answer from this mirror.
pub(in crate::api) fn marks(mirrored: &Mirrored, now: Instant) -> HeaderMap {
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
    /// The same with a page cache.
    pub fn with_cache(self, cache: &PageCache) -> Self {
        let cache = cache.clone();
        Self { cache, ..self }
    }

    /// A page rendered from it, off this thread.
    pub async fn page(
        self,
        make: impl FnOnce(VisibleState<'_>, &PublishedFlags) -> Vec<u8> + Send + 'static,
    ) -> Response {
        let made = self.made("application/json", |state, published, _| {
            make(VisibleState::of(state), published)
        });
        made.await
    }

    /// A page rendered from it, off this thread, or the error in the question.
    pub async fn asked(
        self,
        make: impl FnOnce(VisibleState<'_>) -> Result<Vec<u8>, String> + Send + 'static,
    ) -> Response {
        let node = self.node.clone();
        let made = node.blocking_low_priority(move || make(VisibleState::of(&self.state())));
        match made.await {
            Ok(Ok(page)) => ([(CONTENT_TYPE, "application/json")], page).into_response(),
            Ok(Err(problem)) => bad(problem),
            Err(fallen) => Refusal::not_now(fallen).into_response(),
        }
    }

    /// An answer of this type from the visible state, off this thread. Large ones may be cached.
    pub async fn made<T>(
        self,
        content_type: &'static str,
        make: impl FnOnce(&Arc<MasterState>, &PublishedFlags, &PageCache) -> T + Send + 'static,
    ) -> Response
    where
        T: Into<SharedBody> + Send + 'static,
    {
        let node = self.node.clone();
        let seen = move || {
            let published = self
                .flags()
                .map_or_else(|_| Arc::default(), |_| self.published.clone());
            make(&self.state(), &published, &self.cache)
        };
        match node.blocking_low_priority(seen).await {
            Ok(made) => {
                let made: SharedBody = made.into();
                ([(CONTENT_TYPE, content_type)], made).into_response()
            }
            Err(fallen) => Refusal::not_now(fallen).into_response(),
        }
    }

    /// The visible part of the state. May visit each task.
    pub fn state(&self) -> Arc<MasterState> {
        self.caller.visibility().filter(&self.state)
    }

    /// The flags, if the caller may see them.
    pub fn flags(&self) -> Result<&BTreeMap<String, String>, Forbidden> {
        self.caller.authorize(Action::ViewFlags, None)?;
        Ok(&self.published.flags)
    }
}

#[cfg(test)]
mod tests {
    use runtime::testing::simulate;

    use super::*;

    #[test]
    fn cache_control_limits_the_mirrors_age() {
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

    /// SPEC 2.1: the body has the error and when to retry.
    #[test]
    fn panic_while_rendering_gives_an_error_text() {
        simulate(|node| async move {
            let source = || Source {
                state: Arc::new(crate::leadership::mirror::tests::properties::state()),
                published: Arc::default(),
                caller: Caller::default(),
                cache: PageCache::new(&node),
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
