//! Stories of what a framework becomes, and of the roles that it wants offers for (SPEC 2.2 SUBSCRIBE, UPDATE_FRAMEWORK, REVIVE, SUPPRESS).

use super::offers::ops;
use super::*;
use crate::http::Chosen;
use crate::registry::{FickleRegistry, Whims};

/// A framework of one role that knows offers in their first form only.
fn older() -> Value {
    json!({ "user": "nobody", "name": "web", "principal": "p", "failover_timeout": 60.0, "role": "ops" })
}

fn update(id: &str, mut framework: Value, suppressed_roles: Value) -> Value {
    framework["id"] = json!({ "value": id });
    let said = json!({ "framework_info": framework, "suppressed_roles": suppressed_roles });
    json!({ "type": "UPDATE_FRAMEWORK", "update_framework": said })
}

/// To which role an offer says that it is allocated, and of which role its first resource says that it is.
fn form(offer: &Value) -> (Value, Value) {
    let (allocation, resource) = (&offer["allocation_info"], &offer["resources"][0]);
    (allocation["role"].clone(), resource["role"].clone())
}

/// SPEC 2.2 UPDATE_FRAMEWORK, 2.8 `MULTI_ROLE`, `RESERVATION_REFINEMENT`.
#[test]
fn a_framework_that_has_learned_more_is_told_the_next_offer_in_the_newer_form() {
    rehearse(|node| async move {
        let stage = Stage::new(&node).await;
        let agent = stage.agent().await;
        let mut stream = stage.subscribe(older()).await;
        let id = stream.framework();
        let offer = stage.offer(&mut stream, &id, &agent.id, "cpus:1").await;
        assert_eq!(form(&offer), (Value::Null, json!("*")));
        let learned = update(&id, ops(), json!([]));
        assert_eq!(stage.call(&id, &stream.id, learned).await, 200);
        let offer = stage.offer(&mut stream, &id, &agent.id, "cpus:1").await;
        assert_eq!(form(&offer), (json!("ops"), Value::Null));
    });
}

/// The same when nobody waits for the answer any more: the framework has become it all the same.
#[test]
fn a_change_that_comes_after_its_request_was_given_up_changes_the_form_of_offers_too() {
    rehearse(|node| async move {
        let whims = Whims::none();
        let registry = FickleRegistry::new(whims.clone(), node.clock().clone());
        let stage = Stage::over(&node, Config::default(), Box::new(registry)).await;
        let agent = stage.agent().await;
        let mut stream = stage.subscribe(older()).await;
        let id = stream.framework();
        whims.delay(SUBSCRIBE_PATIENCE + Duration::from_secs(5));
        let learned = update(&id, ops(), json!([]));
        assert_eq!(stage.call(&id, &stream.id, learned).await, 503);
        let offer = stage.offer(&mut stream, &id, &agent.id, "cpus:1").await;
        assert_eq!(form(&offer), (Value::Null, json!("*")));
        stage.pass(10).await;
        let offer = stage.offer(&mut stream, &id, &agent.id, "cpus:1").await;
        assert_eq!(form(&offer), (json!("ops"), Value::Null));
    });
}

/// SPEC 2.2: `suppressed_roles` of SUBSCRIBE and UPDATE_FRAMEWORK, `roles` of REVIVE and SUPPRESS.
#[test]
fn a_framework_says_for_which_of_its_roles_it_wants_no_offers() {
    rehearse(|node| async move {
        let stage = Stage::new(&node).await;
        let mut framework = ops();
        framework["roles"] = json!(["ops", "qa"]);
        let mut call = subscribe(framework.clone());
        call["subscribe"]["suppressed_roles"] = json!(["qa"]);
        let subscribed = stage.post(&call, None, &Subject::default()).await;
        let mut stream = Stream::of(subscribed.unwrap());
        let id = stream.framework();
        let suppressed = async || {
            let books = stage.master.ask(TakeSnapshot, PATIENCE).await.unwrap();
            let known = books.frameworks.get(&FrameworkId::new(&id).unwrap());
            let roles = known.unwrap().wants.suppressed_roles.iter().cloned();
            roles.collect::<Vec<_>>().join(" ")
        };
        assert_eq!(suppressed().await, "qa");
        let others = update(&id, framework.clone(), json!(["ops"]));
        assert_eq!(stage.call(&id, &stream.id, others).await, 200);
        assert_eq!(suppressed().await, "ops");
        let strange = update(&id, framework, json!(["others"]));
        assert_eq!(stage.call(&id, &stream.id, strange).await, 400);
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
            assert_eq!(stage.call(&id, &stream.id, call).await, 202);
            assert_eq!(suppressed().await, left, "{kind} {roles}");
        }
    });
}

/// SPEC 3.12: `webui_url`.
#[test]
fn pages_show_a_frameworks_own_page_as_it_was_last_said() {
    rehearse(|node| async move {
        let stage = Stage::new(&node).await;
        let at = |url: &str| {
            let mut framework = ops();
            framework["webui_url"] = json!(url);
            framework
        };
        let mut stream = stage.subscribe(at("http://web-1:80")).await;
        let id = stream.framework();
        let shown = async || {
            let books = stage.master.ask(TakeSnapshot, PATIENCE).await.unwrap();
            let mut pages = crate::http::tests::everything(&books, &Chosen::default());
            let [state, summary] =
                [0, 1].map(|page| pages[page]["frameworks"][0]["webui_url"].take());
            assert_eq!(state, summary);
            state
        };
        assert_eq!(shown().await, "http://web-1:80");
        let moved = update(&id, at("http://web-2:80"), json!([]));
        assert_eq!(stage.call(&id, &stream.id, moved).await, 200);
        assert_eq!(shown().await, "http://web-2:80");
    });
}
