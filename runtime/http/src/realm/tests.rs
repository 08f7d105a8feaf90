//! What each door asks, and whose turn it is.

use authority::RateLimits;
use axum::http::header::RETRY_AFTER;
use hyper::service::Service;
use hyper_util::service::TowerToHyperService;
use runtime::rehearsal::{node, stage};

use super::*;

const OPS: &str = r#"{"credentials":[{"principal":"ops","secret":"hush:hush"}]}"#;

fn inner(realms: Realms, limits: &str) -> Arc<Inner> {
    let throttle = Throttle::new(RateLimits::parse(limits).unwrap());
    let guard = Guard::new("master", &node("node").build());
    guard
        .asking(realms, Shared::default())
        .throttling(throttle)
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
fn each_path_has_its_door_with_and_without_the_actors_name() {
    let check = |method: Method, path: &str, door: Door| {
        assert_eq!(Door::of(&method, bare(path)), door, "{method} {path}");
    };
    let (get, post) = (Method::GET, Method::POST);
    check(get.clone(), "/health", Door::Open);
    check(get.clone(), "/master/redirect", Door::Open);
    check(get.clone(), "/state", Door::Readonly);
    check(Method::HEAD, "/slave(1)/state", Door::Readonly);
    check(get.clone(), "/no/such/page", Door::Readonly);
    check(post.clone(), "/master/reserve", Door::Readwrite);
    check(Method::PUT, "/weights", Door::Readwrite);
    check(Method::DELETE, "/quota/a/b", Door::Readwrite);
    check(post.clone(), "/api/v1", Door::Readwrite);
    check(get, "/api/v1", Door::Readwrite);
    check(post.clone(), "/master/api/v1/operator", Door::Readwrite);
    check(post.clone(), "/master/api/v1/scheduler", Door::Scheduler);
    check(post, "/slave(1)/api/v1/executor", Door::Executor);
    assert_eq!(bare("/master"), "/master");
    assert_eq!(bare("/masters/x"), "/masters/x");
    for page in FILTERED {
        assert_eq!(Door::of(&Method::GET, page), Door::Readonly);
    }
}

/// SPEC 3.7, 3.9.
#[test]
fn the_log_is_changed_by_those_who_may_see_the_page_and_set_the_level() {
    stage(async {
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
            let acls = Shared::new(Acls::parse(&acls).unwrap());
            let Guard(inner) = guard.clone().asking(Realms::default(), acls);
            let may = |name: &str| inner.may_enter(&Subject::named(name), Door::Readwrite, TOGGLE);
            assert_eq!((may("ops").is_ok(), may("ann").is_ok()), (ops, true));
        }
        assert_eq!(
            Door::of(&Method::POST, bare("/master/logging/toggle")),
            Door::Readwrite
        );
    });
}

/// SPEC 3.7: whatever is wrong, the answer is the same.
#[test]
fn who_is_not_proved_is_asked_by_the_name_of_the_realm() {
    stage(async {
        let credentials = Shared::new(Credentials::parse(OPS).unwrap());
        let realms = Realms {
            readonly: Some(credentials.clone()),
            frameworks: Some(credentials),
            readwrite: None,
        };
        let inner = inner(realms, "{}");
        let right = token("ops:hush:hush");
        let prove = |door, header: Option<&str>| inner.prove(door, None, &with(header));
        for header in [&right, &right.replace("Basic", "bAsIc")] {
            let subject = prove(Door::Readonly, Some(header)).unwrap();
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
            let response = prove(Door::Readonly, header).unwrap_err();
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
        assert!(
            told.contains("realm mesos-master-readonly: expected HTTP Basic"),
            "{told}"
        );
        let response = prove(Door::Scheduler, None).unwrap_err();
        let challenge = response.headers()[WWW_AUTHENTICATE].clone();
        assert_eq!(challenge, "Basic realm=\"mesos-master-scheduler\"");
        // A realm that asks for nothing believes nothing.
        for door in [Door::Readwrite, Door::Open, Door::Executor] {
            assert_eq!(prove(door, Some(&right)).unwrap(), Subject::default());
        }
    });
}

/// SPEC 3.7, W32: whoever shows a certificate is the name in it, unless it says by Basic who it is.
#[test]
fn a_certificate_proves_who_asks_where_nothing_else_is_said() {
    stage(async {
        let credentials = Shared::new(Credentials::parse(OPS).unwrap());
        let realms = Realms {
            readwrite: Some(credentials.clone()),
            ..Realms::default()
        };
        let inner = inner(realms, "{}");
        let certificate = |role| {
            let name = "web".to_owned();
            Verified::from(Principal { name, role })
        };
        let web = certificate(None);
        let prove = |door, header: Option<String>| {
            let proved = inner.prove(door, Some(&web), &with(header.as_deref()));
            proved.ok().map(|subject| subject.principal.unwrap())
        };
        let some = |name: &str| Some(name.to_owned());
        assert_eq!(prove(Door::Readwrite, None), some("web"));
        assert_eq!(prove(Door::Readonly, None), some("web"));
        assert_eq!(
            prove(Door::Readwrite, Some(token("ops:hush:hush"))),
            some("ops")
        );
        // Who says something wrong is not believed for its certificate's sake.
        assert_eq!(prove(Door::Readwrite, Some(token("ops:hush"))), None);
        // Where nothing is asked for nothing is read.
        assert_eq!(prove(Door::Readonly, Some(token("ops:hush"))), some("web"));
        // An operator's and, where it speaks, a framework's counts; no other of the cluster's own.
        let as_role = |door, role| {
            let proved = inner.prove(door, Some(&certificate(Some(role))), &with(None));
            proved.ok().map(|subject| subject.principal)
        };
        for role in Role::ALL {
            let (asking, open, scheduler) = match role {
                Role::Operator => (Some(some("web")), some("web"), some("web")),
                Role::Framework => (None, None, some("web")),
                _ => (None, None, None),
            };
            assert_eq!(as_role(Door::Readwrite, role), asking, "{role}");
            assert_eq!(as_role(Door::Readonly, role), Some(open), "{role}");
            assert_eq!(as_role(Door::Scheduler, role), Some(scheduler), "{role}");
        }
        // Secrets that are chosen anew hold from the next request on.
        let anew = r#"{"credentials":[{"principal":"ops","secret":"new"}]}"#;
        credentials.renew(Credentials::parse(anew).unwrap());
        assert_eq!(prove(Door::Readwrite, Some(token("ops:hush:hush"))), None);
        assert_eq!(prove(Door::Readwrite, Some(token("ops:new"))), some("ops"));
    });
}

/// SPEC 3.3, W29: reads as well as changes, of masters as of agents; but nobody is kept from asking whether somebody is there.
#[test]
fn every_page_but_those_for_everybody_waits_for_its_turn() {
    stage(async {
        let node = node("node").build();
        let limits = r#"{"aggregate_default_qps":0.01,"aggregate_default_capacity":0}"#;
        let paths = ["/state", "/api/v1", "/health", "/api/v1/executor"];
        for path in paths {
            let throttle = Throttle::new(RateLimits::parse(limits).unwrap());
            let guard = Guard::new("agent", &node).throttling(throttle);
            let page = axum::routing::any(|| async { "here" });
            let routes = TowerToHyperService::new(guard.before(Router::new().route(path, page)));
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

/// Guesses and refusals have the turn of who asks.
#[test]
fn whoever_is_refused_has_taken_a_turn() {
    stage(async {
        let node = node("node").build();
        let limits = r#"{"limits":[{"principal":"ops","qps":0.01,"capacity":0}],"aggregate_default_qps":0.01,"aggregate_default_capacity":0}"#;
        let acls = r#"{"get_endpoints":[{"principals":{"type":"NONE"},"paths":{"type":"ANY"}}]}"#;
        let credentials = Shared::new(Credentials::parse(OPS).unwrap());
        let realms = Realms {
            readonly: Some(credentials),
            ..Realms::default()
        };
        let guard = Guard::new("agent", &node)
            .asking(realms, Shared::new(Acls::parse(acls).unwrap()))
            .throttling(Throttle::new(RateLimits::parse(limits).unwrap()));
        let page = axum::routing::any(|| async { "here" });
        let routes = guard.before(Router::new().route("/metrics", page));
        let routes = TowerToHyperService::new(routes);
        let ask = async |pair: &str| {
            let request = Request::builder().uri("/metrics");
            let request = request.header(AUTHORIZATION, token(pair));
            let answered = routes.call(request.body(axum::body::Body::empty()).unwrap());
            answered.await.unwrap().status().as_u16()
        };
        assert_eq!(ask("ops:guess").await, 401);
        assert_eq!(ask("ops:guess").await, 503);
        // A guess costs nothing to the principal whose secret is guessed at.
        assert_eq!(ask("ops:hush:hush").await, 403);
        assert_eq!(ask("ops:hush:hush").await, 503);
    });
}

/// SPEC 3.3, W29.
#[test]
fn a_call_waits_for_its_turn_and_is_dropped_over_the_capacity() {
    stage(async {
        let limits = r#"{"limits":[{"principal":"noisy","qps":1,"capacity":1}]}"#;
        let inner = inner(Realms::default(), limits);
        let clock = inner.node.clock().clone();
        let (noisy, quiet) = (Some("noisy"), Some("quiet"));
        let begun = clock.now();
        inner.turn(noisy, None).await.unwrap();
        let waits = {
            let inner = inner.clone();
            async move { inner.turn(noisy, None).await.is_ok() }
        };
        let over = async {
            let response = inner.turn(noisy, None).await.unwrap_err().into_response();
            assert_eq!(clock.now(), begun, "the others are told at once");
            inner.turn(quiet, None).await.unwrap();
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

/// W29: who need not prove a name and declares one has the limit of that one, and of no other.
#[test]
fn a_framework_that_proves_nothing_has_the_turn_of_the_principal_that_it_declares() {
    stage(async {
        let node = node("node").build();
        let limits = r#"{"limits":[{"principal":"web","qps":0.01,"capacity":0}]}"#;
        let throttle = Throttle::new(RateLimits::parse(limits).unwrap());
        let declared = Declared::default();
        let guard = Guard::new("master", &node)
            .throttling(throttle.clone())
            .knowing(&declared);
        // The page reads whom a SUBSCRIBE names, here in the query.
        let page = async |request: Request| {
            let Some(principal) = request.uri().query().map(str::to_owned) else {
                return StatusCode::ACCEPTED.into_response();
            };
            let declaring = request.extensions().get::<Declaring>().cloned();
            match declaring.unwrap().turn(&principal).await {
                Ok(()) => StatusCode::OK.into_response(),
                Err(refusal) => refusal.into_response(),
            }
        };
        let routes = Router::new()
            .route("/api/v1/scheduler", axum::routing::any(page))
            .route("/api/v1", axum::routing::any(async || "here"));
        let routes = TowerToHyperService::new(guard.before(routes));
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
        declared.write_down("s1", "web");
        declared.write_down("s2", "other");
        let call = "/api/v1/scheduler";
        assert_eq!(ask(call, Some("s1")).await, 202);
        assert_eq!(ask(call, Some("s1")).await, 503);
        for _ in 0..3 {
            assert_eq!(ask(call, Some("s2")).await, 202);
            assert_eq!(ask(call, Some("s3")).await, 202);
            assert_eq!(ask(call, None).await, 202);
            assert_eq!(ask("/api/v1", Some("s1")).await, 200, "no framework's call");
        }
        // So does whoever opens another stream.
        assert_eq!(ask("/api/v1/scheduler?web", None).await, 503);
        assert_eq!(ask("/api/v1/scheduler?other", None).await, 200);
        let traffic = throttle.traffic();
        let of = |name: &str| {
            let traffic = traffic[name];
            (traffic.received, traffic.processed, traffic.dropped)
        };
        assert_eq!((of("web"), of("other")), ((3, 1, 2), (4, 4, 0)));
        declared.strike_off("s1");
        assert_eq!(ask(call, Some("s1")).await, 202);
    });
}
