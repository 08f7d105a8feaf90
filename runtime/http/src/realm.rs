//! Who asks, before anything is answered: realms with HTTP Basic or a certificate, pages that are for some only, and requests that wait for
//! their turn (SPEC 3.7, 3.3).
//!
//! A [`Guard`] stands before all routes of a service. It puts the [`Subject`] into the request's extensions; what that subject may see of an
//! answer, or change, is decided behind it. Who shows a certificate is the name in it, unless a realm that asks for HTTP Basic is given that:
//! then it is who that proves, or nobody at all. Of the cluster's own certificates only those of operators count, and of frameworks where they speak.
//! Where a realm asks for nothing and there is no certificate it is nobody in particular.
//! A framework that has to prove nothing has the turn of the principal that it declares: on its stream here, and for its SUBSCRIBE, which only the
//! page can read, by [`Declaring`].
//! Leaves `/api/v1/executor` alone: executors have tokens, and what they report is lost if it is refused. Never says whether a principal or a
//! secret was wrong, and never logs either.

use std::sync::Arc;

use authority::{
    Acls, Action, Credentials, Forbidden, LINE_MAX, LINE_PATIENCE, Shared, Subject, Throttle, Turn,
};
use axum::Router;
use axum::extract::{Request, State};
use axum::http::header::{AUTHORIZATION, WWW_AUTHENTICATE};
use axum::http::{HeaderMap, HeaderValue, Method, StatusCode};
use axum::middleware::{Next, from_fn_with_state};
use axum::response::{IntoResponse, Response};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use runtime::{Instant, Node, Role};
use transport::tls::Principal;

use crate::api::Refusal;
use crate::declared::Declared;
use crate::gate::Place;
use crate::pages::TOGGLE;

/// Pages that anybody may see: whoever asks them asks whether somebody is there.
const OPEN: [&str; 3] = ["/health", "/version", "/redirect"];

/// Pages that show each asker what ACLs of their own let it see. All others are for `get_endpoints`.
const FILTERED: [&str; 17] = [
    "/state",
    "/state.json",
    "/state-summary",
    "/slaves",
    "/frameworks",
    "/tasks",
    "/tasks.json",
    "/roles",
    "/weights",
    "/quota",
    "/flags",
    "/allocator/offer_constraints_debug",
    "/maintenance/schedule",
    "/maintenance/status",
    "/files/browse",
    "/files/read",
    "/files/download",
];

/// Who is on the other side of a connection, as its certificate has proved; the door puts it into each request.
#[derive(Clone, Debug)]
pub(crate) struct Verified {
    subject: Subject,
    /// What kind of node of ours it is, if it is one.
    role: Option<Role>,
}

impl From<Principal> for Verified {
    fn from(Principal { name, role }: Principal) -> Self {
        let subject = Subject::named(name);
        Self { subject, role }
    }
}

impl Verified {
    /// Who that is at this door. Keys of masters, agents and what runs there prove nothing here, or whoever holds one could do what operators do.
    fn at(&self, door: Door) -> Option<&Subject> {
        let counts = match self.role {
            None | Some(Role::Operator) => true,
            Some(Role::Framework) => door == Door::Scheduler,
            Some(_) => false,
        };
        counts.then_some(&self.subject)
    }
}

/// What each realm asks for: who has one of these credentials, or a certificate. `None` asks for nothing.
#[derive(Clone, Debug, Default)]
pub struct Realms {
    /// `mesos-*-readonly`: pages that change nothing.
    pub readonly: Option<Shared<Credentials>>,
    /// `mesos-*-readwrite`: changes, and the operator API.
    pub readwrite: Option<Shared<Credentials>>,
    /// `mesos-master-scheduler`: the scheduler API.
    pub frameworks: Option<Shared<Credentials>>,
}

/// Stands before a service's routes.
#[derive(Clone)]
pub struct Guard(Arc<Inner>);

#[derive(Clone)]
struct Inner {
    service: &'static str,
    realms: Realms,
    acls: Shared<Acls>,
    throttle: Throttle,
    declared: Declared,
    node: Node,
}

/// Goes with a request of a framework of which nothing was proved, for whoever reads as whose scheduler it subscribes.
#[derive(Clone)]
pub struct Declaring {
    inner: Arc<Inner>,
    place: Option<Place>,
}

impl Declaring {
    /// Waits for the turn of this principal, if it has a limit of its own. The request has had its turn among those without one already.
    pub async fn turn(&self, principal: &str) -> Result<(), Refusal> {
        let Self { inner, place } = self;
        if inner.throttle.is_named(principal) {
            return inner.turn(Some(principal), place.as_ref()).await;
        }
        inner.throttle.count(Some(principal), |traffic| {
            traffic.received += 1;
            traffic.processed += 1;
        });
        Ok(())
    }
}

/// By which door a request comes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Door {
    Open,
    Readonly,
    Readwrite,
    Scheduler,
    /// Guarded by who is behind it.
    Executor,
}

impl Door {
    fn of(method: &Method, path: &str) -> Self {
        match path {
            path if OPEN.contains(&path) => Self::Open,
            "/api/v1/scheduler" => Self::Scheduler,
            "/api/v1/executor" | "/api/v1/resource_provider" => Self::Executor,
            path if path == "/api/v1" || path.starts_with("/api/v1/") => Self::Readwrite,
            _ if matches!(*method, Method::GET | Method::HEAD) => Self::Readonly,
            _ => Self::Readwrite,
        }
    }

    /// The end of its realm's name.
    fn realm(self) -> &'static str {
        match self {
            Self::Open | Self::Readonly => "readonly",
            Self::Readwrite => "readwrite",
            Self::Scheduler => "scheduler",
            Self::Executor => "executor",
        }
    }
}

/// Whether a request is answered however many others are under way: who asks whether somebody is there, and executors, who lose what is refused.
pub(crate) fn passes_freely(method: &Method, path: &str) -> bool {
    matches!(Door::of(method, bare(path)), Door::Open | Door::Executor)
}

/// A path without the name of the actor that Mesos has in front of it.
pub(crate) fn bare(path: &str) -> &str {
    let without = ["/master", "/slave(1)"].map(|prefix| path.strip_prefix(prefix));
    let mut without = without.into_iter().flatten();
    let without = without.find(|rest| rest.starts_with('/'));
    without.unwrap_or(path)
}

impl Guard {
    /// A guard of `master` or `agent`, which lets all pass and delays nobody.
    pub fn new(service: &'static str, node: &Node) -> Self {
        Self(Arc::new(Inner {
            service,
            realms: Realms::default(),
            acls: Shared::default(),
            throttle: Throttle::default(),
            declared: Declared::default(),
            node: node.clone(),
        }))
    }

    /// One that asks who comes, and shows some pages only to some.
    pub fn asking(self, realms: Realms, acls: Shared<Acls>) -> Self {
        self.with(|inner| (inner.realms, inner.acls) = (realms, acls))
    }

    /// One that knows as whom frameworks speak on their streams.
    pub fn knowing(self, declared: &Declared) -> Self {
        self.with(|inner| inner.declared = declared.clone())
    }

    /// One that lets requests wait for their turn.
    pub fn throttling(self, throttle: Throttle) -> Self {
        self.with(|inner| inner.throttle = throttle)
    }

    fn with(mut self, change: impl FnOnce(&mut Inner)) -> Self {
        change(Arc::make_mut(&mut self.0));
        self
    }

    /// These routes, guarded.
    pub fn before(self, routes: Router) -> Router {
        routes.layer(from_fn_with_state(self, guard))
    }
}

async fn guard(State(Guard(inner)): State<Guard>, mut request: Request, next: Next) -> Response {
    // Whoever goes on beyond this needs it no more.
    let place = request.extensions_mut().remove::<Place>();
    let path = bare(request.uri().path());
    let door = Door::of(request.method(), path);
    let verified = request.extensions().get::<Verified>();
    let proved = inner.prove(door, verified, request.headers());
    let mut declaring = None;
    if !matches!(door, Door::Open | Door::Executor) {
        // Who is not known, or may not, has its turn too: neither guesses of secrets nor refusals are for nothing.
        let whose = proved.as_ref().ok();
        let whose = whose.and_then(|subject| inner.whose(door, subject, request.headers()));
        if let Err(dropped) = inner.turn(whose.as_deref(), place.as_ref()).await {
            return dropped.into_response();
        }
        if door == Door::Scheduler && whose.is_none() {
            let inner = inner.clone();
            declaring = Some(Declaring { inner, place });
        }
    }
    let subject = match proved {
        Ok(subject) => subject,
        Err(response) => return *response,
    };
    if let Err(forbidden) = inner.may_enter(&subject, door, path) {
        return (StatusCode::FORBIDDEN, format!("{forbidden}\n")).into_response();
    }
    if door != Door::Executor {
        request.extensions_mut().insert(subject);
    }
    if let Some(declaring) = declaring {
        request.extensions_mut().insert(declaring);
    }
    next.run(request).await
}

impl Inner {
    /// Whether the page is for this subject at all. What it shows or changes most pages decide themselves.
    fn may_enter(&self, subject: &Subject, door: Door, path: &str) -> Result<(), Forbidden> {
        let acls = self.acls.now();
        match door {
            Door::Readonly if !FILTERED.contains(&path) => {
                acls.check(subject, Action::GetEndpoints, path)
            }
            // The page that changes something and asks nobody.
            Door::Readwrite if path == TOGGLE => acls
                .check(subject, Action::GetEndpoints, path)
                .and_then(|()| acls.check(subject, Action::SetLogLevel, None)),
            _ => Ok(()),
        }
    }

    /// Who asks, as far as this door wants to know.
    fn prove(
        &self,
        door: Door,
        verified: Option<&Verified>,
        headers: &HeaderMap,
    ) -> Result<Subject, Box<Response>> {
        let credentials = match door {
            Door::Open | Door::Executor => &None,
            Door::Readonly => &self.realms.readonly,
            Door::Readwrite => &self.realms.readwrite,
            Door::Scheduler => &self.realms.frameworks,
        };
        let certified = verified.and_then(|verified| verified.at(door).cloned());
        let Some(credentials) = credentials else {
            return Ok(certified.unwrap_or_default());
        };
        if let Some(subject) = certified.filter(|_| !headers.contains_key(AUTHORIZATION)) {
            return Ok(subject);
        }
        basic(headers)
            .and_then(|(principal, secret)| credentials.now().prove(&principal, &secret))
            .ok_or_else(|| Box::new(self.unknown(door)))
    }

    /// 401.
    fn unknown(&self, door: Door) -> Response {
        let realm = format!("mesos-{}-{}", self.service, door.realm());
        let problem = format!(
            "who asks is not known in the realm {realm}: expected HTTP Basic with a principal and its secret, or a certificate where TLS asks for one\n"
        );
        let mut response = (StatusCode::UNAUTHORIZED, problem).into_response();
        if let Ok(challenge) = HeaderValue::try_from(format!("Basic realm=\"{realm}\"")) {
            response.headers_mut().insert(WWW_AUTHENTICATE, challenge);
        }
        response
    }

    /// Whose turn a request has: what is proved, else, of a framework, what it has declared when its stream was opened.
    fn whose(&self, door: Door, subject: &Subject, headers: &HeaderMap) -> Option<String> {
        let proved = subject.principal.clone();
        proved.or_else(|| match door {
            Door::Scheduler => self.declared.of(headers),
            _ => None,
        })
    }

    /// Waits for the turn of a request. Over its capacity it is dropped, which is a 503 with the time when there will be room.
    async fn turn(&self, principal: Option<&str>, place: Option<&Place>) -> Result<(), Refusal> {
        let clock = self.node.clock();
        let now = clock.now() - Instant::default();
        self.throttle
            .count(principal, |traffic| traffic.received += 1);
        let turn = self
            .throttle
            .stand_in_line(principal, LINE_MAX, LINE_PATIENCE, now);
        match turn {
            Turn::Now(_) => {}
            Turn::After(wait) => {
                let _aside = place.map(Place::aside);
                clock.sleep(wait).await;
            }
            Turn::Over(wait) => {
                self.throttle
                    .count(principal, |traffic| traffic.dropped += 1);
                let whose = match principal {
                    Some(principal) => format!("principal `{principal}`"),
                    None => "those without a principal".to_owned(),
                };
                let problem = format!(
                    "too many calls of {whose} wait for their turn under --rate_limits: this one was dropped"
                );
                return Err(Refusal::not_before(wait, problem));
            }
        }
        self.throttle
            .count(principal, |traffic| traffic.processed += 1);
        Ok(())
    }
}

/// The principal and the secret of a request, if they can be read (RFC 7617).
fn basic(headers: &HeaderMap) -> Option<(String, String)> {
    let given = headers.get(AUTHORIZATION)?.to_str().ok()?;
    let (scheme, token) = given.split_once(' ')?;
    if !scheme.eq_ignore_ascii_case("basic") {
        return None;
    }
    let pair = STANDARD.decode(token.trim()).ok()?;
    let pair = String::from_utf8(pair).ok()?;
    let (principal, secret) = pair.split_once(':')?;
    Some((principal.to_owned(), secret.to_owned()))
}

#[cfg(test)]
mod tests;
