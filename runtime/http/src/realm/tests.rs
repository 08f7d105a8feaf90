//! The credentials that each access class requires, and rate limits.

use authority::RateLimits;
use axum::http::header::RETRY_AFTER;
use hyper::service::Service;
use hyper_util::service::TowerToHyperService;
use runtime::testing::{node, run_simulated};

use super::*;

const OPS: &str = r#"{"credentials":[{"principal":"ops","secret":"hush:hush"}]}"#;

fn inner(realms: Realms, limits: &str) -> Arc<Inner> {
    let throttle = Throttle::new(RateLimits::parse(limits).unwrap());
    let guard = Guard::new("master", &node("node").build());
    guard
        .with_access(realms, Reloadable::default())
        .with_throttle(throttle)
        .0
}

fn with(authorization: Option<&str>) -> HeaderMap {
    let mut headers = HeaderMap::new();
    if let Some(text) = authorization {
        headers.insert(AUTHORIZATION, HeaderValue::try_from(text).unwrap());
    }
    headers
}

fn token(pair: &str) -> String {
    format!("Basic {}", STANDARD.encode(pair))
}

/// SPEC 3.7.
#[test]
fn each_path_has_its_access_class() {
    let check = |method: Method, path: &str, class: AccessClass| {
        assert_eq!(
            AccessClass::of(&method, bare(path)),
            class,
            "{method} {path}"
        );
    };
    let (get, post) = (Method::GET, Method::POST);
    check(get.clone(), "/health", AccessClass::Open);
    check(get.clone(), "/master/redirect", AccessClass::Open);
    check(get.clone(), "/state", AccessClass::Readonly);
    check(Method::HEAD, "/slave(1)/state", AccessClass::Readonly);
    check(get.clone(), "/no/such/page", AccessClass::Readonly);
    check(post.clone(), "/master/reserve", AccessClass::Readwrite);
    check(Method::PUT, "/weights", AccessClass::Readwrite);
    check(Method::DELETE, "/quota/a/b", AccessClass::Readwrite);
    check(post.clone(), "/api/v1", AccessClass::Readwrite);
    check(get, "/api/v1", AccessClass::Readwrite);
    check(
        post.clone(),
        "/master/api/v1/operator",
        AccessClass::Readwrite,
    );
    check(
        post.clone(),
        "/master/api/v1/scheduler",
        AccessClass::Scheduler,
    );
    check(post, "/slave(1)/api/v1/executor", AccessClass::Executor);
    assert_eq!(bare("/master"), "/master");
    assert_eq!(bare("/masters/x"), "/masters/x");
    for page in ["/state", "/quota", "/metrics", "/unknown"] {
        assert_eq!(AccessClass::of(&Method::GET, page), AccessClass::Readonly);
    }
    assert_eq!(access("/quota"), PageAccess::Filtered);
    assert_eq!(access("/unknown"), PageAccess::Endpoint);
}

/// SPEC 3.7, 3.9.
#[test]
fn changing_the_log_needs_both_permissions() {
    run_simulated(async {
        let guard = Guard::new("master", &node("node").build());
        let only = |acl: &str, object: &str| {
            format!(
                r#"{{"{acl}":[{{"principals":{{"values":["ops"]}},"{object}":{{"type":"NONE"}}}}]}}"#
            )
        };
        for (acls, ops) in [
            ("{}".to_owned(), true),
            (only("get_endpoints", "paths"), false),
            (only("set_log_level", "level"), false),
        ] {
            let acls = Reloadable::new(Acls::parse(&acls).unwrap());
            let Guard(inner) = guard.clone().with_access(Realms::default(), acls);
            let may = |name: &str| {
                inner.check_page(&Subject::named(name), AccessClass::Readwrite, TOGGLE)
            };
            assert_eq!((may("ops").is_ok(), may("ann").is_ok()), (ops, true));
        }
        assert_eq!(
            AccessClass::of(&Method::POST, bare("/master/logging/toggle")),
            AccessClass::Readwrite
        );
    });
}

/// SPEC 3.7: whatever is wrong, the answer is the same.
// Covers 2.1 401, 403.
#[test]
fn unauthenticated_callers_get_the_realm() {
    run_simulated(async {
        let credentials = Reloadable::new(Credentials::parse(OPS).unwrap());
        let realms = Realms {
            readonly: Some(credentials.clone()),
            frameworks: Some(credentials),
            readwrite: None,
        };
        let inner = inner(realms, "{}");
        let right = token("ops:hush:hush");
        let prove = |class, header: Option<&str>| inner.authenticate(class, None, &with(header));
        for header in [&right, &right.replace("Basic", "bAsIc")] {
            let subject = prove(AccessClass::Readonly, Some(header)).unwrap();
            assert_eq!(subject, Subject::named("ops"));
        }
        let wrong = [
            token("ops:hush"),
            token("web:hush:hush"),
            token("ops"),
            token(":"),
            "Basic !!".to_owned(),
            "Basic".to_owned(),
            right.replace("Basic", "Bearer"),
        ];
        let mut told = Vec::new();
        for header in wrong.iter().map(|text| Some(text.as_str())).chain([None]) {
            let response = prove(AccessClass::Readonly, header).unwrap_err();
            assert_eq!(response.status(), 401, "{header:?}");
            let challenge = response.headers()[WWW_AUTHENTICATE].clone();
            assert_eq!(challenge, "Basic realm=\"mesos-master-readonly\"");
            told.push(
                axum::body::to_bytes(response.into_body(), 1000)
                    .await
                    .unwrap(),
            );
        }
        told.dedup();
        assert_eq!(told.len(), 1, "{told:?}");
        let told = std::str::from_utf8(&told[0]).unwrap();
        assert_eq!(told, "401 Unauthorized.", "as in Mesos");
        let response = prove(AccessClass::Scheduler, None).unwrap_err();
        let challenge = response.headers()[WWW_AUTHENTICATE].clone();
        assert_eq!(challenge, "Basic realm=\"mesos-master-scheduler\"");
        // A realm without credentials verifies nothing.
        for class in [
            AccessClass::Readwrite,
            AccessClass::Open,
            AccessClass::Executor,
        ] {
            assert_eq!(prove(class, Some(&right)).unwrap(), Subject::default());
        }
    });
}

/// SPEC 3.7, W32: a certificate names the caller, unless HTTP Basic credentials are sent.
// Covers W32.
#[test]
fn a_certificate_authenticates_without_other_credentials() {
    run_simulated(async {
        let credentials = Reloadable::new(Credentials::parse(OPS).unwrap());
        let realms = Realms {
            readwrite: Some(credentials.clone()),
            ..Realms::default()
        };
        let inner = inner(realms, "{}");
        let certificate = |role| {
            let name = "web".to_owned();
            VerifiedPeer::from(Principal { name, role })
        };
        let web = certificate(None);
        let prove = |class, header: Option<String>| {
            let authenticated = inner.authenticate(class, Some(&web), &with(header.as_deref()));
            authenticated.ok().map(|subject| subject.principal.unwrap())
        };
        let some = |name: &str| Some(name.to_owned());
        assert_eq!(prove(AccessClass::Readwrite, None), some("web"));
        assert_eq!(prove(AccessClass::Readonly, None), some("web"));
        assert_eq!(
            prove(AccessClass::Readwrite, Some(token("ops:hush:hush"))),
            some("ops")
        );
        // Wrong credentials are refused in spite of the certificate.
        assert_eq!(prove(AccessClass::Readwrite, Some(token("ops:hush"))), None);
        // Where no credentials are required none are read.
        assert_eq!(
            prove(AccessClass::Readonly, Some(token("ops:hush"))),
            some("web")
        );
        // Operators count, and frameworks on the scheduler API; no other certificate of the
        // cluster.
        let as_role = |class, role| {
            let authenticated =
                inner.authenticate(class, Some(&certificate(Some(role))), &with(None));
            authenticated.ok().map(|subject| subject.principal)
        };
        for role in Role::ALL {
            let (asking, open, scheduler) = match role {
                Role::Operator => (Some(some("web")), some("web"), some("web")),
                Role::Framework => (None, None, some("web")),
                _ => (None, None, None),
            };
            assert_eq!(as_role(AccessClass::Readwrite, role), asking, "{role}");
            assert_eq!(as_role(AccessClass::Readonly, role), Some(open), "{role}");
            assert_eq!(
                as_role(AccessClass::Scheduler, role),
                Some(scheduler),
                "{role}"
            );
        }
        // Reloaded credentials apply from the next request on.
        let anew = r#"{"credentials":[{"principal":"ops","secret":"new"}]}"#;
        credentials.replace(Credentials::parse(anew).unwrap());
        assert_eq!(
            prove(AccessClass::Readwrite, Some(token("ops:hush:hush"))),
            None
        );
        assert_eq!(
            prove(AccessClass::Readwrite, Some(token("ops:new"))),
            some("ops")
        );
    });
}

/// SPEC 3.3, W29: reads as well as changes, of masters as of agents, but never health checks.
// Covers W29; 6.3 AuthN/Z.
#[test]
fn all_but_open_pages_are_rate_limited() {
    run_simulated(async {
        let node = node("node").build();
        let limits = r#"{"aggregate_default_qps":0.01,"aggregate_default_capacity":0}"#;
        let paths = ["/state", "/api/v1", "/health", "/api/v1/executor"];
        for path in paths {
            let throttle = Throttle::new(RateLimits::parse(limits).unwrap());
            let guard = Guard::new("agent", &node).with_throttle(throttle);
            let page = axum::routing::any(|| async { "here" });
            let routes = TowerToHyperService::new(guard.protect(Router::new().route(path, page)));
            let ask = async || {
                let request = Request::builder().uri(path).body(axum::body::Body::empty());
                let answered = routes.call(request.unwrap()).await;
                answered.unwrap().status().as_u16()
            };
            assert_eq!(ask().await, 200, "{path}");
            let second = match path {
                "/state" | "/api/v1" => 503,
                _ => 200,
            };
            assert_eq!(ask().await, second, "{path}");
        }
    });
}

/// Failed authentication and refusals consume the caller's rate.
#[test]
fn refused_requests_consume_the_rate() {
    run_simulated(async {
        let node = node("node").build();
        let limits = r#"{"limits":[{"principal":"ops","qps":0.01,"capacity":0}],"aggregate_default_qps":0.01,"aggregate_default_capacity":0}"#;
        let acls = r#"{"get_endpoints":[{"principals":{"type":"NONE"},"paths":{"type":"ANY"}}]}"#;
        let credentials = Reloadable::new(Credentials::parse(OPS).unwrap());
        let realms = Realms {
            readonly: Some(credentials),
            ..Realms::default()
        };
        let guard = Guard::new("agent", &node)
            .with_access(realms, Reloadable::new(Acls::parse(acls).unwrap()))
            .with_throttle(Throttle::new(RateLimits::parse(limits).unwrap()));
        let page = axum::routing::any(|| async { "here" });
        let routes = guard.protect(Router::new().route("/metrics", page));
        let routes = TowerToHyperService::new(routes);
        let ask = async |pair: &str| {
            let request = Request::builder().uri("/metrics");
            let request = request.header(AUTHORIZATION, token(pair));
            let answered = routes.call(request.body(axum::body::Body::empty()).unwrap());
            answered.await.unwrap().status().as_u16()
        };
        assert_eq!(ask("ops:guess").await, 401);
        assert_eq!(ask("ops:guess").await, 503);
        // A failed guess does not count against the guessed principal.
        assert_eq!(ask("ops:hush:hush").await, 403);
        assert_eq!(ask("ops:hush:hush").await, 503);
    });
}

/// SPEC 3.3, W29.
// Covers W29.
#[test]
fn calls_beyond_the_rate_wait_and_beyond_the_capacity_fail() {
    run_simulated(async {
        let limits = r#"{"limits":[{"principal":"noisy","qps":1,"capacity":1}]}"#;
        let inner = inner(Realms::default(), limits);
        let clock = inner.node.clock().clone();
        let (noisy, quiet) = (Some("noisy"), Some("quiet"));
        let begun = clock.now();
        inner.wait_turn(noisy, None).await.unwrap();
        let waits = {
            let inner = inner.clone();
            async move { inner.wait_turn(noisy, None).await.is_ok() }
        };
        let over = async {
            let response = inner
                .wait_turn(noisy, None)
                .await
                .unwrap_err()
                .into_response();
            assert_eq!(clock.now(), begun, "the others are told at once");
            inner.wait_turn(quiet, None).await.unwrap();
            assert_eq!(clock.now(), begun, "nobody else is delayed");
            response
        };
        let (waited, response) = futures_util::future::join(waits, over).await;
        assert!(waited && (clock.now() - begun).as_secs() == 1);
        assert_eq!(response.status(), 503);
        assert_eq!(response.headers()[RETRY_AFTER], "2");
        let told = axum::body::to_bytes(response.into_body(), 1000)
            .await
            .unwrap();
        let told = String::from_utf8_lossy(&told).into_owned();
        assert!(told.contains("principal `noisy`"), "{told}");
        let traffic = inner.throttle.traffic();
        let of = |name: &str| {
            let traffic = traffic[name];
            (traffic.received, traffic.processed, traffic.dropped)
        };
        assert_eq!((of("noisy"), of("quiet")), ((3, 2, 1), (1, 1, 0)));
    });
}

/// W29: an unauthenticated framework that declares a principal has that one's limit, and no other.
#[test]
fn a_declared_principal_selects_the_rate_limit() {
    run_simulated(async {
        let node = node("node").build();
        let limits = r#"{"limits":[{"principal":"web","qps":0.01,"capacity":0}]}"#;
        let throttle = Throttle::new(RateLimits::parse(limits).unwrap());
        let declared = StreamPrincipals::default();
        let guard = Guard::new("master", &node)
            .with_throttle(throttle.clone())
            .with_stream_principals(&declared);
        // The endpoint reads the principal of a SUBSCRIBE, here from the query.
        let page = async |request: Request| {
            let Some(principal) = request.uri().query().map(str::to_owned) else {
                return StatusCode::ACCEPTED.into_response();
            };
            let declared_principal = request.extensions().get::<DeclaredPrincipal>().cloned();
            match declared_principal.unwrap().wait_turn(&principal).await {
                Ok(()) => StatusCode::OK.into_response(),
                Err(refusal) => refusal.into_response(),
            }
        };
        let routes = Router::new()
            .route("/api/v1/scheduler", axum::routing::any(page))
            .route("/api/v1", axum::routing::any(async || "here"));
        let routes = TowerToHyperService::new(guard.protect(routes));
        let ask = async |path: &str, stream: Option<&str>| {
            let mut request = Request::post(path);
            if let Some(stream) = stream {
                request = request.header("Mesos-Stream-Id", stream);
            }
            let request = request.body(axum::body::Body::empty());
            let answer = routes.call(request.unwrap()).await.unwrap();
            if answer.status() == 503 {
                assert_eq!(answer.headers()[RETRY_AFTER], "100");
            }
            answer.status()
        };
        declared.insert("s1", "web");
        declared.insert("s2", "other");
        let call = "/api/v1/scheduler";
        assert_eq!(ask(call, Some("s1")).await, 202);
        assert_eq!(ask(call, Some("s1")).await, 503);
        for _ in 0..3 {
            assert_eq!(ask(call, Some("s2")).await, 202);
            assert_eq!(ask(call, Some("s3")).await, 202);
            assert_eq!(ask(call, None).await, 202);
            assert_eq!(ask("/api/v1", Some("s1")).await, 200, "no framework's call");
        }
        // A SUBSCRIBE of the same principal has the same limit.
        assert_eq!(ask("/api/v1/scheduler?web", None).await, 503);
        assert_eq!(ask("/api/v1/scheduler?other", None).await, 200);
        let traffic = throttle.traffic();
        let of = |name: &str| {
            let traffic = traffic[name];
            (traffic.received, traffic.processed, traffic.dropped)
        };
        assert_eq!((of("web"), of("other")), ((3, 1, 2), (4, 4, 0)));
        declared.remove("s1");
        assert_eq!(ask(call, Some("s1")).await, 202);
    });
}
