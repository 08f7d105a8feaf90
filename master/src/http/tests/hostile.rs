//! Bodies that are wrong in every way, at every endpoint of a master that reads one (SPEC 2.1, 3.9). What agents are told stands in the
//! agent's own tests, and what the listener does with them before any route in `door`.

use ::http::rehearsal::{
    hostile, hostile_calls, request, said, takes, very_many, very_many_within,
};

use super::super::changes::BODY_MAX;

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

/// SPEC 2.1: a million entries, or as many as a body may have, of which each could be meant.
#[test]
fn very_many_valid_entries_are_refused_in_words_or_accepted_and_others_are_answered_meanwhile() {
    rehearse(|node| async move {
        let master = master(&node).await;
        let routes = all_routes(&node, pages(&node, &master));
        let weight = |n| format!(r#"{{"role":"r{n}","weight":1}}"#);
        let quota = |n| format!(r#"{{"role":"r{n}"}}"#);
        let machine = |n| format!(r#"{{"hostname":"h{n}"}}"#);
        let window = |n| {
            let machine = machine(n);
            format!(
                r#"{{"machine_ids":[{machine}],"unavailability":{{"start":{{"nanoseconds":1}}}}}}"#
            )
        };
        let role = |n| format!(r#""r{n}""#);
        let all = ["[", "]"];
        let bodies = [
            ("POST", "/api/v1", JSON, very_many(WEIGHTS, weight)),
            ("POST", "/api/v1/scheduler", JSON, very_many(REVIVE, role)),
            ("PUT", "/weights", JSON, very_many(all, weight)),
            (
                "PUT",
                "/quota",
                JSON,
                very_many([r#"{"quota_configs":["#, "]}"], quota),
            ),
            (
                "POST",
                "/maintenance/schedule",
                JSON,
                very_many([r#"{"windows":["#, "]}"], window),
            ),
            ("POST", "/machine/down", JSON, very_many(all, machine)),
            ("POST", "/machine/up", JSON, very_many(all, machine)),
        ];
        for (method, path, kind, body) in bodies {
            let status = asked(&node, &master, &routes, request(method, path, kind, body)).await;
            assert!(
                (400..500).contains(&status) || matches!(status, 200 | 202),
                "{method} {path}: {status}"
            );
        }
    });
}

/// What is answered to this: in words if it is refused, and others are answered meanwhile.
async fn asked(node: &Node, master: &Handle<Master>, routes: &Router, asked: Request) -> u16 {
    let path = asked.uri().path().to_owned();
    let other = async {
        node.clock().settle().await;
        said(routes, request("GET", "/state-summary", JSON, ""))
            .await
            .0
    };
    let ((status, text), other) = futures_util::join!(said(routes, asked), other);
    let words: String = text.chars().take(200).collect();
    assert!(status < 400 || text.len() > 10, "{path}: {status} {words}");
    assert_eq!(other, 200, "{path}");
    assert!(master.ask(TakeSnapshot, PATIENCE).await.is_ok(), "{path}");
    status
}

/// SPEC 2.1, 3.9: the same of forms, of which each entry is a resource of its own that the agent does not have.
#[test]
fn very_many_valid_resources_in_a_form_are_refused_in_words_and_others_are_answered_meanwhile() {
    rehearse(|node| async move {
        let master = master(&node).await;
        let routes = all_routes(&node, pages(&node, &master));
        let books = master.ask(TakeSnapshot, PATIENCE).await.unwrap();
        let agent = books.agents.iter().next().unwrap().id.clone();
        let scalar = |n| {
            format!(
                r#"{{"name":"r{n}","type":"SCALAR","scalar":{{"value":1}},"role":"ads","reservation":{{}}}}"#
            )
        };
        let volume = |n| {
            format!(
                r#"{{"name":"disk","type":"SCALAR","scalar":{{"value":1}},"role":"ads","reservation":{{}},"disk":{{"persistence":{{"id":"v{n}"}},"volume":{{"mode":"RW","container_path":"v"}}}}}}"#
            )
        };
        for prefix in ["", "/master"] {
            for (path, field, entry) in [
                ("/reserve", "resources", &scalar as &dyn Fn(u32) -> String),
                ("/unreserve", "resources", &scalar),
                ("/create-volumes", "volumes", &volume),
                ("/destroy-volumes", "volumes", &volume),
            ] {
                let before = format!("slaveId={agent}&{field}=[");
                for (bytes, expected) in [(BODY_MAX - 10, [400, 409]), (BODY_MAX + 200, [413; 2])] {
                    let body = very_many_within(bytes, [&before, "]"], entry);
                    let path = format!("{prefix}{path}");
                    let form = request("POST", &path, FORM, body);
                    let status = asked(&node, &master, &routes, form).await;
                    assert!(expected.contains(&status), "{path}: {status}");
                }
            }
        }
    });
}

/// SPEC 2.1, 3.9: wherever a body is read it may have so many bytes and no more, whatever they say.
#[test]
fn a_body_that_is_too_long_is_refused_with_how_long_it_may_be() {
    rehearse(|node| async move {
        let master = master(&node).await;
        let routes = all_routes(&node, pages(&node, &master));
        for (method, path, kind) in [
            ("PUT", "/weights", JSON),
            ("POST", "/quota", JSON),
            ("PUT", "/quota", JSON),
            ("POST", "/maintenance/schedule", JSON),
            ("POST", "/machine/down", JSON),
            ("POST", "/machine/up", JSON),
            ("POST", "/teardown", FORM),
            ("POST", "/reserve", FORM),
        ] {
            let body = "[".repeat(BODY_MAX + 1);
            let (status, text) = said(&routes, request(method, path, kind, body)).await;
            assert_eq!(status, 413, "{method} {path}: {text}");
            assert!(text.contains("more than 4194304 bytes"), "{path}: {text}");
        }
    });
}

/// SPEC 2.1, 3.9: in words of the house, and not in those of what reads queries and forms.
#[test]
fn a_query_or_a_form_that_is_wrong_is_refused_with_what_was_expected() {
    rehearse(|node| async move {
        let master = master(&node).await;
        let routes = all_routes(&node, pages(&node, &master));
        let twice = "query is `framework_id=a&framework_id=b`: expected each name once\n";
        for (method, path, body, words) in [
            (
                "GET",
                "/frameworks?framework_id=a&framework_id=b",
                "",
                twice,
            ),
            (
                "GET",
                "/master/frameworks?framework_id=a&framework_id=b",
                "",
                twice,
            ),
            (
                "GET",
                "/slaves?slave_id=a&slave_id=b",
                "",
                "query is `slave_id=a&slave_id=b`: expected each name once\n",
            ),
            (
                "POST",
                "/teardown",
                "frameworkId=nobody",
                "framework_id is `nobody`: expected",
            ),
            ("POST", "/teardown", "frameworkId=a/b", "frameworkId: "),
            (
                "POST",
                "/teardown",
                "framework=f",
                "expected a form with frameworkId=ID",
            ),
        ] {
            let (status, text) = said(&routes, request(method, path, FORM, body)).await;
            assert_eq!(status, 400, "{method} {path} {body}: {text}");
            assert!(text.contains(words), "{method} {path} {body}: {text}");
        }
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

/// SPEC 3.9: what stands behind a path may be anything too.
#[test]
fn whatever_is_asked_of_a_page_is_answered_or_refused_in_words() {
    rehearse(|node| async move {
        let master = master(&node).await;
        let routes = all_routes(&node, pages(&node, &master));
        let (long, many) = (format!("a={}", "x".repeat(60_000)), "a=1&".repeat(10_000));
        let mut queries = vec!["", "=", "&&&", "%ff%fe=%ff", "%", "a[b]=c", &*long, &*many];
        let names = "limit offset order framework_id slave_id task_id framework role agent format";
        let values = [
            "",
            "-1",
            "18446744073709551616",
            "1e9",
            "..%2f",
            "%00",
            "%ff",
        ];
        let asked: Vec<String> = names
            .split(' ')
            .flat_map(|name| values.map(|value| format!("{name}={value}&{name}={value}")))
            .collect();
        queries.extend(asked.iter().map(String::as_str));
        for (path, _) in HELP {
            for query in &queries {
                let asked = request("GET", &format!("{path}?{query}"), JSON, "");
                let (status, text) = said(&routes, asked).await;
                let shown: String = query.chars().take(80).collect();
                // The words of a 405 are the listener's.
                let is_told = status < 400 || status == 405 || text.len() > 10;
                assert!(status != 500 && is_told, "{path}?{shown}: {status} {text}");
            }
        }
    });
}
