//! Rate limits of frameworks' HTTP calls, at the master's own routes behind a guard (SPEC 3.3,
//! W29).

use ::http::testing::{request, send};
use authority::RateLimits;

use super::*;

/// W29.
#[test]
fn http_framework_uses_its_declared_principals_limit() {
    simulate(|node| async move {
        let master = master(&node).await;
        let local = LocalLeader::of(&master);
        let limits = r#"{"limits":[{"principal":"noisy","qps":2,"capacity":0}]}"#;
        let throttle = Throttle::new(RateLimits::parse(limits).unwrap());
        let (events, streams) = (event_stream(&node, &local), EventStreams::new(&node));
        let counters = counters(&local, &node, &allocator(&node), &events, &throttle);
        let routes = routes(&local, &node, &config(), counters, &events, &streams);
        let guard = ::http::Guard::new("master", &node)
            .with_throttle(throttle.clone())
            .with_stream_principals(streams.principals());
        let routes = guard.protect(routes);
        let ask = async |call: Value, stream: Option<&str>| {
            let mut request = request("POST", "/api/v1/scheduler", JSON, call.to_string());
            if let Some(stream) = stream {
                let stream = stream.parse().unwrap();
                request.headers_mut().insert("Mesos-Stream-Id", stream);
            }
            send(&routes, request).await
        };
        let subscribe = async |principal: &str| {
            let info = json!({ "user": "nobody", "name": principal, "principal": principal });
            let call = json!({ "type": "SUBSCRIBE", "subscribe": { "framework_info": info } });
            ask(call, None).await
        };
        for (principal, statuses) in [("noisy", [202, 503, 503]), ("other", [202, 202, 202])] {
            let subscribed = subscribe(principal).await;
            assert_eq!(subscribed.status(), 200, "{principal}");
            let stream = subscribed.headers()["Mesos-Stream-Id"].to_str().unwrap();
            let state = master.ask(TakeSnapshot, PATIENCE).await.unwrap();
            let mut known = state.frameworks.iter();
            let own = known.find(|one| one.info.name == principal).unwrap();
            let revive = json!({ "type": "REVIVE", "framework_id": { "value": own.id } });
            for status in statuses {
                let answer = ask(revive.clone(), Some(stream)).await;
                assert_eq!(answer.status(), status, "{principal}");
            }
            let traffic = throttle.traffic()[principal];
            let dropped = statuses.iter().filter(|status| **status == 503).count() as u64;
            assert_eq!((traffic.received, traffic.dropped), (4, dropped));
        }
        // Another stream is the same principal's.
        assert_eq!(subscribe("noisy").await.status(), 503);
        assert_eq!(subscribe("other").await.status(), 200);
    });
}
