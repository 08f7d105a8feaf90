//! Bodies that are wrong in every way, at every endpoint of a master that reads one (SPEC 2.1, 3.9). What agents are told stands in the
//! agent's own tests, and what the listener does with them before any route in `door`.

use ::http::rehearsal::{hostile, hostile_calls, request, said, takes};

use super::*;

const FORM: &str = "application/x-www-form-urlencoded";
/// A framework of another stream, whose id a call names.
const REVIVE: [&str; 2] = [
    r#"{"type":"REVIVE","framework_id":{"value":"f"},"revive":{"roles":["#,
    "]}}",
];
const WEIGHTS: [&str; 2] = [
    r#"{"type":"UPDATE_WEIGHTS","update_weights":{"weight_infos":["#,
    "]}}",
];

/// SPEC 2.1.
#[test]
fn whatever_is_sent_to_whatever_endpoint_is_refused_in_words_and_changes_nothing() {
    rehearse(|node| async move {
        let master = master(&node).await;
        let routes = all_routes(&node, pages(&node, &master));
        let books = async || {
            let books = master.ask(TakeSnapshot, PATIENCE).await.unwrap();
            everything(&books, &Chosen::default())
        };
        let before = books().await;
        let mut wrong = Vec::new();
        for path in ["/api/v1", "/api/v1/operator", "/master/api/v1"] {
            wrong.extend(takes(&routes, "POST", path, hostile_calls(WEIGHTS)).await);
        }
        for path in ["/api/v1/scheduler", "/master/api/v1/scheduler"] {
            wrong.extend(takes(&routes, "POST", path, hostile_calls(REVIVE)).await);
        }
        let quotas = [r#"{"quota_configs":["#, "]}"];
        let quota = [r#"{"role":"r","guarantee":["#, "]}"];
        let windows = [r#"{"windows":["#, "]}"];
        let resources = ["slaveId=S0&resources=[", "]"];
        let volumes = ["slaveId=S0&volumes=[", "]"];
        for (method, path, kind, list) in [
            ("PUT", "/weights", JSON, ["[", "]"]),
            ("PUT", "/weights", FORM, ["[", "]"]),
            ("POST", "/quota", JSON, quotas),
            ("POST", "/quota", JSON, quota),
            ("PUT", "/quota", JSON, quotas),
            ("PUT", "/quota", JSON, quota),
            ("POST", "/maintenance/schedule", JSON, windows),
            ("POST", "/machine/down", JSON, ["[", "]"]),
            ("POST", "/machine/up", JSON, ["[", "]"]),
            ("POST", "/teardown", FORM, ["frameworkId=[", "]"]),
            ("POST", "/teardown", JSON, ["[", "]"]),
            ("POST", "/reserve", FORM, resources),
            ("POST", "/unreserve", FORM, resources),
            ("POST", "/create-volumes", FORM, volumes),
            ("POST", "/destroy-volumes", FORM, volumes),
            ("POST", "/reserve", JSON, ["[", "]"]),
        ] {
            wrong.extend(takes(&routes, method, path, hostile(kind, list)).await);
        }
        assert!(wrong.is_empty(), "{}", wrong.join("\n"));
        assert_eq!(books().await, before);
    });
}

/// SPEC 2.1: each by the field that it has wrong.
#[test]
fn a_call_that_is_none_is_told_which_field_is_wrong() {
    rehearse(|node| async move {
        let master = master(&node).await;
        let routes = all_routes(&node, pages(&node, &master));
        let weights = |entry: &str| WEIGHTS.join(entry);
        for (path, body, words) in [
            ("/api/v1", r#"{"type":"BREW"}"#.to_owned(), "type is"),
            ("/api/v1", r#"{"type":{}}"#.to_owned(), "type"),
            (
                "/api/v1",
                r#"{"type":"TEARDOWN"}"#.to_owned(),
                "teardown is `absent`",
            ),
            ("/api/v1", weights("1"), "update_weights.weight_infos[0]"),
            (
                "/api/v1",
                weights(r#"{"role":"r","weight":"much"}"#),
                "update_weights.weight_infos[0].weight",
            ),
            (
                "/api/v1",
                weights(r#"{"role":"r"}"#),
                "update_weights.weight_infos[0].weight is `absent or not known`",
            ),
            (
                "/api/v1/scheduler",
                REVIVE.join("").replace("REVIVE", "FLY"),
                "type is `absent or not known`",
            ),
            (
                "/api/v1/scheduler",
                r#"{"type":"KILL","framework_id":{"value":"f"}}"#.to_owned(),
                "kill is `absent`",
            ),
            ("/api/v1/scheduler", REVIVE.join("7"), "revive.roles[0]"),
            ("/api/v1/scheduler", REVIVE.join(""), "framework_id is `f`"),
        ] {
            let asked = request("POST", path, JSON, body.clone());
            let (status, text) = said(&routes, asked).await;
            assert!(
                status == 400 && text.contains(words),
                "{path} {body}: {status} {text}"
            );
        }
    });
}
