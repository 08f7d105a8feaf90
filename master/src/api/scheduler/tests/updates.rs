//! Updates of frameworks, and suppressed roles (SPEC 2.2 SUBSCRIBE, UPDATE_FRAMEWORK, REVIVE,
//! SUPPRESS).

use super::offers::ops;
use super::*;
use crate::api::PublishedFlags;
use crate::registry::{FaultPlan, FaultyRegistry};

/// A framework of one role that knows offers in their first form only.
fn older() -> Value {
    json!({ "user": "nobody", "name": "web", "principal": "p", "failover_timeout": 60.0, "role": "ops" })
}

fn update(id: &str, mut framework: Value, suppressed_roles: Value) -> Value {
    framework["id"] = json!({ "value": id });
    let said = json!({ "framework_info": framework, "suppressed_roles": suppressed_roles });
    json!({ "type": "UPDATE_FRAMEWORK", "update_framework": said })
}

/// The allocation role of an offer, and of its first resource.
fn form(offer: &Value) -> (Value, Value) {
    let (allocation, resource) = (&offer["allocation_info"], &offer["resources"][0]);
    (allocation["role"].clone(), resource["role"].clone())
}

/// SPEC 2.2 UPDATE_FRAMEWORK, 2.8 `MULTI_ROLE`, `RESERVATION_REFINEMENT`.
// Covers 2.2 UPDATE_FRAMEWORK.
#[test]
fn new_capabilities_change_the_form_of_offers() {
    simulate_api(|fixture| async move {
        let agent = fixture.agent().await;
        let mut stream = fixture.subscribe(older()).await;
        let id = stream.framework();
        let offer = fixture.offer(&mut stream, &id, &agent.id, "cpus:1").await;
        assert_eq!(form(&offer), (Value::Null, json!("*")));
        let learned = update(&id, ops(), json!([]));
        assert_eq!(fixture.call(&id, &stream.id, learned).await, 200);
        let offer = fixture.offer(&mut stream, &id, &agent.id, "cpus:1").await;
        assert_eq!(form(&offer), (json!("ops"), Value::Null));
    });
}

/// The same after the caller has gone: the update still takes effect.
// Covers 2.2 UPDATE_FRAMEWORK.
#[test]
fn late_framework_update_changes_the_form_of_offers() {
    simulate(|node| async move {
        let faults = FaultPlan::none();
        let registry = FaultyRegistry::new(faults.clone(), node.clock().clone());
        let fixture = Fixture::over(&node, Config::default(), Box::new(registry)).await;
        let agent = fixture.agent().await;
        let mut stream = fixture.subscribe(older()).await;
        let id = stream.framework();
        faults.delay(SUBSCRIBE_PATIENCE + Duration::from_secs(5));
        let learned = update(&id, ops(), json!([]));
        assert_eq!(fixture.call(&id, &stream.id, learned).await, 503);
        let offer = fixture.offer(&mut stream, &id, &agent.id, "cpus:1").await;
        assert_eq!(form(&offer), (Value::Null, json!("*")));
        fixture.pass(10).await;
        let offer = fixture.offer(&mut stream, &id, &agent.id, "cpus:1").await;
        assert_eq!(form(&offer), (json!("ops"), Value::Null));
    });
}

/// SPEC 2.2: `suppressed_roles` of SUBSCRIBE and UPDATE_FRAMEWORK, `roles` of REVIVE and SUPPRESS.
// Covers 2.2 REVIVE, SUPPRESS; 2.2 UPDATE_FRAMEWORK.
#[test]
fn framework_suppresses_single_roles() {
    simulate_api(|fixture| async move {
        let mut framework = ops();
        framework["roles"] = json!(["ops", "qa"]);
        let mut call = subscribe(framework.clone());
        call["subscribe"]["suppressed_roles"] = json!(["qa"]);
        let subscribed = fixture.post(&call, None, &Subject::default()).await;
        let mut stream = Stream::of(subscribed.unwrap());
        let id = stream.framework();
        let suppressed = async || {
            let state = fixture.master.ask(TakeSnapshot, PATIENCE).await.unwrap();
            let known = state.frameworks.get(&FrameworkId::new(&id).unwrap());
            let roles = known.unwrap().wants.suppressed_roles.iter().cloned();
            roles.collect::<Vec<_>>().join(" ")
        };
        assert_eq!(suppressed().await, "qa");
        let others = update(&id, framework.clone(), json!(["ops"]));
        assert_eq!(fixture.call(&id, &stream.id, others).await, 200);
        assert_eq!(suppressed().await, "ops");
        let strange = update(&id, framework, json!(["others"]));
        assert_eq!(fixture.call(&id, &stream.id, strange).await, 400);
        for (kind, roles, left) in [
            ("REVIVE", json!(["ops"]), ""),
            ("SUPPRESS", json!(["qa"]), "qa"),
            // Those that the framework does not have are passed over.
            ("SUPPRESS", json!(["ops", "others"]), "ops qa"),
            ("REVIVE", json!(["qa", "others"]), "ops"),
            ("REVIVE", json!(["others"]), "ops"),
            ("SUPPRESS", json!([]), "ops qa"),
            ("REVIVE", json!([]), ""),
        ] {
            let mut call = json!({ "type": kind });
            call[kind.to_lowercase()] = json!({ "roles": roles });
            assert_eq!(fixture.call(&id, &stream.id, call).await, 202);
            assert_eq!(suppressed().await, left, "{kind} {roles}");
        }
    });
}

/// SPEC 3.12: `webui_url`.
#[test]
fn pages_show_the_frameworks_newest_webui_url() {
    simulate_api(|fixture| async move {
        let at = |url: &str| {
            let mut framework = ops();
            framework["webui_url"] = json!(url);
            framework
        };
        let mut stream = fixture.subscribe(at("http://web-1:80")).await;
        let id = stream.framework();
        let visible = async || {
            let state = fixture.master.ask(TakeSnapshot, PATIENCE).await.unwrap();
            let mut pages = crate::api::tests::everything(&state, &PublishedFlags::default());
            let [page, summary] =
                [0, 1].map(|page| pages[page]["frameworks"][0]["webui_url"].take());
            assert_eq!(page, summary);
            page
        };
        assert_eq!(visible().await, "http://web-1:80");
        let moved = update(&id, at("http://web-2:80"), json!([]));
        assert_eq!(fixture.call(&id, &stream.id, moved).await, 200);
        assert_eq!(visible().await, "http://web-2:80");
    });
}
