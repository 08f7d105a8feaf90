//! Authentication, page access and rate limits, before a request reaches its handler.
//!
//! A [`Guard`] stands before all routes of a service and puts the [`Subject`] into the request's
//! extensions. Handlers decide its access to data and changes.
//!
//! The principal is the client certificate's name. If the realm uses HTTP Basic and credentials are
//! sent, they decide instead; invalid credentials never fall back to the certificate. Of the
//! cluster's own certificates only those of operators count, and those of frameworks on the
//! scheduler API. Without required credentials and without a certificate the subject has no
//! principal.
//!
//! An unauthenticated framework has the rate limit of the principal that it declares: on its stream
//! through [`StreamPrincipals`], and for its SUBSCRIBE, which only the handler can decode, through
//! [`DeclaredPrincipal`].
//!
//! `/api/v1/executor` passes unchecked: executors have tokens, and a refused executor report is
//! lost. Responses never say whether the principal or the secret was wrong, and neither is ever
//! logged.

use std::sync::Arc;

use authority::{
    Acls, Action, Credentials, Forbidden, RateDecision, Reloadable, Subject, THROTTLE_QUEUE_MAX,
    THROTTLE_QUEUE_TIMEOUT, Throttle,
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

use crate::admission::RequestSlot;
use crate::api::Refusal;
use crate::pages::TOGGLE;
use crate::realm::stream_principals::StreamPrincipals;
use crate::request::path::{PageAccess, access};

/// The peer of a connection, as authenticated by its certificate; an extension of each of its
/// requests.
#[derive(Clone, Debug)]
pub(crate) struct VerifiedPeer {
    subject: Subject,
    /// The node's role, if it is a node of the cluster.
    role: Option<Role>,
}

impl From<Principal> for VerifiedPeer {
    fn from(Principal { name, role }: Principal) -> Self {
        let subject = Subject::named(name);
        Self { subject, role }
    }
}

impl VerifiedPeer {
    /// The subject for this access class. Certificates of masters, agents and their children do not
    /// count, or a holder of one could act as an operator.
    fn at(&self, class: AccessClass) -> Option<&Subject> {
        let counts = match self.role {
            None | Some(Role::Operator) => true,
            Some(Role::Framework) => class == AccessClass::Scheduler,
            Some(_) => false,
        };
        counts.then_some(&self.subject)
    }
}

/// Credentials of each realm. `None` requires none; a client certificate is accepted in place of
/// credentials.
#[derive(Clone, Debug, Default)]
pub struct Realms {
    /// `mesos-*-readonly`: pages that change nothing.
    pub readonly: Option<Reloadable<Credentials>>,
    /// `mesos-*-readwrite`: changes, and the operator API.
    pub readwrite: Option<Reloadable<Credentials>>,
    /// `mesos-master-scheduler`: the scheduler API.
    pub frameworks: Option<Reloadable<Credentials>>,
}

/// Access control before all routes of a service.
#[derive(Clone)]
pub struct Guard(Arc<Inner>);

#[derive(Clone)]
struct Inner {
    service: &'static str,
    realms: Realms,
    acls: Reloadable<Acls>,
    throttle: Throttle,
    stream_principals: StreamPrincipals,
    node: Node,
}

/// Extension of an unauthenticated framework's request, for the handler that decodes the principal
/// of its SUBSCRIBE.
#[derive(Clone)]
pub struct DeclaredPrincipal {
    inner: Arc<Inner>,
    slot: Option<RequestSlot>,
}

impl DeclaredPrincipal {
    /// Applies the rate limit of this principal, if it has one of its own. The limit for requests
    /// without a principal was applied before.
    pub async fn wait_turn(&self, principal: &str) -> Result<(), Refusal> {
        let Self { inner, slot } = self;
        if inner.throttle.is_named(principal) {
            return inner.wait_turn(Some(principal), slot.as_ref()).await;
        }
        inner.throttle.count(Some(principal), |traffic| {
            traffic.received += 1;
            traffic.processed += 1;
        });
        Ok(())
    }
}

/// Access class of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum AccessClass {
    Open,
    Readonly,
    Readwrite,
    Scheduler,
    /// Authenticated by its handler.
    Executor,
}

impl AccessClass {
    fn of(method: &Method, path: &str) -> Self {
        match path {
            path if access(path) == PageAccess::Open => Self::Open,
            "/api/v1/scheduler" => Self::Scheduler,
            "/api/v1/executor" | "/api/v1/resource_provider" => Self::Executor,
            path if path == "/api/v1" || path.starts_with("/api/v1/") => Self::Readwrite,
            _ if matches!(*method, Method::GET | Method::HEAD) => Self::Readonly,
            _ => Self::Readwrite,
        }
    }

    /// The last part of the realm's name.
    fn realm(self) -> &'static str {
        match self {
            Self::Open | Self::Readonly => "readonly",
            Self::Readwrite => "readwrite",
            Self::Scheduler => "scheduler",
            Self::Executor => "executor",
        }
    }
}

/// Whether a request bypasses admission control: health checks, and executors, whose refused
/// reports are lost.
pub(crate) fn bypasses_admission(method: &Method, path: &str) -> bool {
    matches!(
        AccessClass::of(method, bare(path)),
        AccessClass::Open | AccessClass::Executor
    )
}

/// Whether this is the page for load balancers' health checks.
pub(crate) fn is_health(path: &str) -> bool {
    bare(path) == "/health"
}

/// The path without Mesos' actor name in front.
pub(crate) fn bare(path: &str) -> &str {
    let without = ["/master", "/slave(1)"].map(|prefix| path.strip_prefix(prefix));
    let mut without = without.into_iter().flatten();
    let without = without.find(|rest| rest.starts_with('/'));
    without.unwrap_or(path)
}

impl Guard {
    /// A guard of `master` or `agent`, without access control or rate limits.
    pub fn new(service: &'static str, node: &Node) -> Self {
        Self(Arc::new(Inner {
            service,
            realms: Realms::default(),
            acls: Reloadable::default(),
            throttle: Throttle::default(),
            stream_principals: StreamPrincipals::default(),
            node: node.clone(),
        }))
    }

    /// Adds credentials and ACLs.
    pub fn with_access(self, realms: Realms, acls: Reloadable<Acls>) -> Self {
        self.with(|inner| (inner.realms, inner.acls) = (realms, acls))
    }

    /// Adds the declared principals of streams.
    pub fn with_stream_principals(self, declared: &StreamPrincipals) -> Self {
        self.with(|inner| inner.stream_principals = declared.clone())
    }

    /// Adds rate limits.
    pub fn with_throttle(self, throttle: Throttle) -> Self {
        self.with(|inner| inner.throttle = throttle)
    }

    fn with(mut self, change: impl FnOnce(&mut Inner)) -> Self {
        change(Arc::make_mut(&mut self.0));
        self
    }

    /// Wraps these routes.
    pub fn protect(self, routes: Router) -> Router {
        routes.layer(from_fn_with_state(self, guard))
    }
}

async fn guard(State(Guard(inner)): State<Guard>, mut request: Request, next: Next) -> Response {
    // Handlers do not need it.
    let slot = request.extensions_mut().remove::<RequestSlot>();
    let path = bare(request.uri().path());
    let class = AccessClass::of(request.method(), path);
    let verified = request.extensions().get::<VerifiedPeer>();
    let authenticated = inner.authenticate(class, verified, request.headers());
    let mut declared_principal = None;
    if !matches!(class, AccessClass::Open | AccessClass::Executor) {
        // Failed authentication and forbidden requests are rate limited too.
        let limited = authenticated.as_ref().ok();
        let limited =
            limited.and_then(|subject| inner.limited_principal(class, subject, request.headers()));
        if let Err(dropped) = inner.wait_turn(limited.as_deref(), slot.as_ref()).await {
            return dropped.into_response();
        }
        if class == AccessClass::Scheduler && limited.is_none() {
            let inner = inner.clone();
            declared_principal = Some(DeclaredPrincipal { inner, slot });
        }
    }
    let subject = match authenticated {
        Ok(subject) => subject,
        Err(response) => return *response,
    };
    if let Err(forbidden) = inner.check_page(&subject, class, path) {
        return Refusal::from(forbidden).into_response();
    }
    if class != AccessClass::Executor {
        request.extensions_mut().insert(subject);
    }
    if let Some(declared_principal) = declared_principal {
        request.extensions_mut().insert(declared_principal);
    }
    next.run(request).await
}

impl Inner {
    /// Checks access to the page as a whole. Most pages filter their content or check changes
    /// themselves.
    fn check_page(
        &self,
        subject: &Subject,
        class: AccessClass,
        path: &str,
    ) -> Result<(), Forbidden> {
        let acls = self.acls.current();
        match class {
            AccessClass::Readonly if access(path) == PageAccess::Endpoint => {
                acls.check(subject, Action::GetEndpoints, path)
            }
            // The one page that changes state without a check of its own.
            AccessClass::Readwrite if path == TOGGLE => acls
                .check(subject, Action::GetEndpoints, path)
                .and_then(|()| acls.check(subject, Action::SetLogLevel, None)),
            _ => Ok(()),
        }
    }

    /// Authenticates the caller as far as this class requires.
    fn authenticate(
        &self,
        class: AccessClass,
        verified: Option<&VerifiedPeer>,
        headers: &HeaderMap,
    ) -> Result<Subject, Box<Response>> {
        let credentials = match class {
            AccessClass::Open | AccessClass::Executor => &None,
            AccessClass::Readonly => &self.realms.readonly,
            AccessClass::Readwrite => &self.realms.readwrite,
            AccessClass::Scheduler => &self.realms.frameworks,
        };
        let certified = verified.and_then(|verified| verified.at(class).cloned());
        let Some(credentials) = credentials else {
            return Ok(certified.unwrap_or_default());
        };
        if let Some(subject) = certified.filter(|_| !headers.contains_key(AUTHORIZATION)) {
            return Ok(subject);
        }
        basic(headers)
            .and_then(|(principal, secret)| credentials.current().authenticate(&principal, &secret))
            .ok_or_else(|| Box::new(self.unauthorized(class)))
    }

    /// The response 401.
    fn unauthorized(&self, class: AccessClass) -> Response {
        let realm = format!("mesos-{}-{}", self.service, class.realm());
        let mut response = (StatusCode::UNAUTHORIZED, "401 Unauthorized.").into_response();
        if let Ok(challenge) = HeaderValue::try_from(format!("Basic realm=\"{realm}\"")) {
            response.headers_mut().insert(WWW_AUTHENTICATE, challenge);
        }
        response
    }

    /// The principal whose rate limit applies: the authenticated one, else the declared one of a
    /// framework's stream.
    fn limited_principal(
        &self,
        class: AccessClass,
        subject: &Subject,
        headers: &HeaderMap,
    ) -> Option<String> {
        let authenticated = subject.principal.clone();
        authenticated.or_else(|| match class {
            AccessClass::Scheduler => self.stream_principals.of(headers),
            _ => None,
        })
    }

    /// Waits for the rate limit. Beyond its queue's capacity the request is refused with 503 and a
    /// retry time.
    async fn wait_turn(
        &self,
        principal: Option<&str>,
        slot: Option<&RequestSlot>,
    ) -> Result<(), Refusal> {
        let clock = self.node.clock();
        let now = clock.now() - Instant::default();
        self.throttle
            .count(principal, |traffic| traffic.received += 1);
        let turn = self
            .throttle
            .admit(principal, THROTTLE_QUEUE_MAX, THROTTLE_QUEUE_TIMEOUT, now);
        match turn {
            RateDecision::Now(_) => {}
            RateDecision::After(wait) => {
                let _released = slot.map(RequestSlot::release_while_queued);
                clock.sleep(wait).await;
            }
            RateDecision::Rejected(wait) => {
                self.throttle
                    .count(principal, |traffic| traffic.dropped += 1);
                let caller = match principal {
                    Some(principal) => format!("principal `{principal}`"),
                    None => "those without a principal".to_owned(),
                };
                let problem = format!(
                    "too many calls of {caller} wait for their turn under --rate_limits: this one was dropped"
                );
                return Err(Refusal::not_before(wait, problem));
            }
        }
        self.throttle
            .count(principal, |traffic| traffic.processed += 1);
        Ok(())
    }
}

/// Parses the principal and the secret (RFC 7617).
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

pub(crate) mod stream_principals;
#[cfg(test)]
mod tests;
