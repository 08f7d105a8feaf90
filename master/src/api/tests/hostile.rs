//! Malformed bodies at every endpoint of a master that reads one (SPEC 2.1, 3.9). The agent's are
//! in the agent's tests, and the listener's handling before any route in `runtime/http`.

use ::http::testing::{
    REFUSAL_MAX, fetch, hostile, hostile_calls, long_list, long_list_within, request, send,
    wrong_answers,
};
use futures_util::StreamExt;
use testkit::rows;

use crate::api::pages::changes::BODY_MAX;

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

/// All pages of this master.
async fn shown_of(master: &Handle<Master>) -> Value {
    let state = master.ask(TakeSnapshot, PATIENCE).await.unwrap();
    everything(&state, &PublishedFlags::default())
}

/// SPEC 2.1.
// Covers 2.1 400, 406, 413, 415.
#[test]
fn hostile_requests_are_refused_and_change_nothing() {
    simulate(|node| async move {
        let master = master(&node).await;
        let routes = all_routes(&node, pages(&node, &master));
        let state = async || shown_of(&master).await;
        let before = state().await;
        let mut wrong = Vec::new();
        for path in ["/api/v1", "/api/v1/operator", "/master/api/v1"] {
            wrong.extend(wrong_answers(&routes, "POST", path, hostile_calls(WEIGHTS)).await);
        }
        for path in ["/api/v1/scheduler", "/master/api/v1/scheduler"] {
            wrong.extend(wrong_answers(&routes, "POST", path, hostile_calls(REVIVE)).await);
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
            wrong.extend(wrong_answers(&routes, method, path, hostile(kind, list)).await);
        }
        assert!(wrong.is_empty(), "{}", wrong.join("\n"));
        assert_eq!(state().await, before);
    });
}

/// SPEC 2.1: a million entries, or as many as a body may have, of which each could be meant.
// Covers 2.1 400, 406, 413, 415.
#[test]
fn huge_valid_entries_do_not_block_others() {
    simulate(|node| async move {
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
            ("POST", "/api/v1", JSON, long_list(WEIGHTS, weight)),
            ("POST", "/api/v1/scheduler", JSON, long_list(REVIVE, role)),
            ("PUT", "/weights", JSON, long_list(all, weight)),
            (
                "PUT",
                "/quota",
                JSON,
                long_list([r#"{"quota_configs":["#, "]}"], quota),
            ),
            (
                "POST",
                "/maintenance/schedule",
                JSON,
                long_list([r#"{"windows":["#, "]}"], window),
            ),
            ("POST", "/machine/down", JSON, long_list(all, machine)),
            ("POST", "/machine/up", JSON, long_list(all, machine)),
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

/// The answer: with a reason if refused, while other requests are answered.
async fn asked(node: &Node, master: &Handle<Master>, routes: &Router, asked: Request) -> u16 {
    let path = asked.uri().path().to_owned();
    let other = async {
        node.clock().settle().await;
        fetch(routes, request("GET", "/state-summary", JSON, ""))
            .await
            .0
    };
    let ((status, text), other) = futures_util::join!(fetch(routes, asked), other);
    let words: String = text.chars().take(200).collect();
    assert!(status < 400 || text.len() > 10, "{path}: {status} {words}");
    assert_eq!(other, 200, "{path}");
    assert!(master.ask(TakeSnapshot, PATIENCE).await.is_ok(), "{path}");
    status
}

/// SPEC 2.1, 3.9: the same of forms, of which each entry is a resource of its own that the agent
/// does not have.
// Covers 2.1 400, 406, 413, 415.
#[test]
fn huge_valid_forms_do_not_block_others() {
    simulate(|node| async move {
        let master = master(&node).await;
        let routes = all_routes(&node, pages(&node, &master));
        let state = master.ask(TakeSnapshot, PATIENCE).await.unwrap();
        let agent = state.agents.iter().next().unwrap().id.clone();
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
                    let body = long_list_within(bytes, [&before, "]"], entry);
                    let path = format!("{prefix}{path}");
                    let form = request("POST", &path, FORM, body);
                    let status = asked(&node, &master, &routes, form).await;
                    assert!(expected.contains(&status), "{path}: {status}");
                }
            }
        }
    });
}

/// SPEC 2.1, 3.9: every body has the same bound, regardless of its content.
// Covers 2.1 400, 406, 413, 415.
#[test]
fn too_long_bodies_are_refused_with_the_bound() {
    simulate(|node| async move {
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
            let (status, text) = fetch(&routes, request(method, path, kind, body)).await;
            assert_eq!(status, 413, "{method} {path}: {text}");
            assert!(text.contains("more than 4194304 bytes"), "{path}: {text}");
            // Its length is declared before it arrives.
            let pieces = futures_util::stream::pending::<std::io::Result<bytes::Bytes>>();
            let mut early = request(method, path, kind, axum::body::Body::from_stream(pieces));
            let length = (BODY_MAX + 1).into();
            early.headers_mut().insert("Content-Length", length);
            assert_eq!(fetch(&routes, early).await.0, 413, "{method} {path}");
        }
    });
}

/// SPEC 3.9: as by Mesos, a query of a page that shows something is never wrong, and any method is
/// a GET.
#[test]
fn pages_refuse_no_query_and_no_method() {
    simulate(|node| async move {
        let master = master(&node).await;
        let routes = all_routes(&node, pages(&node, &master));
        let ask = async |method: &str, path: &str| {
            fetch(&routes, request(method, path, "text/plain", "")).await
        };
        for [path, same] in rows(
            "
            /tasks?order=desc | /tasks
            /tasks?limit=-1 | /tasks
            /tasks?limit=abc&offset=x | /tasks
            /tasks?limit=0&limit=5 | /tasks?limit=5
            /tasks.json?limit=0;limit=5 | /tasks?limit=5
            /tasks?offset=-1 | /tasks?limit=0
            /tasks?task_id=%ff | /tasks?limit=0
            /slaves?slave_id=%ff | /slaves?slave_id=nobody
            /master/slaves?slave_id=a&slave_id=b | /slaves?slave_id=b
            /frameworks?framework_id=a&framework_id=b | /frameworks?framework_id=b
            /roles?role=a | /roles
            /state-summary?a&a | /state-summary
            /state?order=up | /state
        ",
        ) {
            let expected = ask("GET", same).await;
            assert_eq!(expected.0, 200, "{same}: {}", expected.1);
            for method in ["GET", "POST", "OPTIONS", "PUT", "DELETE"] {
                assert_eq!(ask(method, path).await, expected, "{method} {path}");
            }
        }
        for path in [
            "/flags",
            "/weights?a&a",
            "/quota?a=%ff",
            "/maintenance/status?a&a",
            "/maintenance/schedule?a&a",
        ] {
            assert_eq!(ask("GET", path).await.0, 200, "{path}");
            // Mesos looks at the method of these.
            assert_eq!(ask("PATCH", path).await.0, 405, "{path}");
        }
    });
}

/// SPEC 2.1, 3.9: in the words of Mesos, not in those of the query or form parser.
// Covers 3.9 Whatever stands behind a path.
#[test]
fn invalid_query_or_form_is_refused_with_the_expectation() {
    simulate(|node| async move {
        let master = master(&node).await;
        let routes = all_routes(&node, pages(&node, &master));
        for [method, path, body, words] in rows(
            r#"
            POST | /teardown | frameworkId=nobody | No framework found with specified ID
            POST | /teardown | frameworkId=a/b | No framework found with specified ID
            POST | /teardown | framework=f | Missing 'frameworkId' query parameter in the request body
            DELETE | /quota/eng |  | Failed to remove quota for path '/master/quota/eng': Role 'eng' has no quota set
            PUT | /weights | [{"role":"a//b","weight":1}] | Failed to validate update weights request JSON: Invalid role 'a//b': Role 'a//b' cannot contain two adjacent slashes
            PUT | /weights | [{"role":"a","weight":0}] | Failed to validate update weights request JSON for role 'a': Invalid weight '0': Weights must be positive
        "#,
        ) {
            let (status, text) = fetch(&routes, request(method, path, FORM, body)).await;
            assert_eq!((status, &*text), (400, words), "{method} {path} {body}");
        }
    });
}

/// SPEC 2.1: each by the field that it has wrong.
#[test]
fn malformed_call_is_refused_with_its_field() {
    simulate(|node| async move {
        let master = master(&node).await;
        let routes = all_routes(&node, pages(&node, &master));
        for [path, body, words] in rows(
            r#"
            /api/v1 | {"type":"BREW"} | Expecting 'type' to be present
            /api/v1 | {"type":{}} | type
            /api/v1 | {"type":"TEARDOWN"} | Expecting 'teardown' to be present
            /api/v1 | WEIGHTS 1 | update_weights.weight_infos[0]
            /api/v1 | WEIGHTS {"role":"r","weight":"much"} | update_weights.weight_infos[0].weight
            /api/v1 | WEIGHTS {"role":"r"} | update_weights.weight_infos[0].weight is `absent or not known`
            /api/v1/scheduler | {"type":"FLY","framework_id":{"value":"f"},"revive":{"roles":[]}} | Expecting 'type' to be present
            /api/v1/scheduler | {"type":"KILL","framework_id":{"value":"f"}} | Expecting 'kill' to be present
            /api/v1/scheduler | REVIVE 7 | revive.roles[0]
            /api/v1/scheduler | {"type":"REVIVE","framework_id":{"value":"f"},"revive":{"roles":[]}} | Framework cannot be found
        "#,
        ) {
            let body = match body.split_once(' ') {
                Some(("WEIGHTS", entry)) => WEIGHTS.join(entry),
                Some(("REVIVE", role)) => REVIVE.join(role),
                _ => body.to_owned(),
            };
            let asked = request("POST", path, JSON, body.clone());
            let (status, text) = fetch(&routes, asked).await;
            assert!(
                status == 400 && text.contains(words),
                "{path} {body}: {status} {text}"
            );
        }
    });
}

/// SPEC 3.9: the rest of a path may be anything too.
// Covers 3.9 Whatever stands behind a path.
#[test]
fn every_page_request_gets_an_answer_or_a_reason() {
    simulate(|node| async move {
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
                let (status, text) = fetch(&routes, asked).await;
                let visible: String = query.chars().take(80).collect();
                // The words of a 405 are the listener's.
                let is_told = status < 400 || status == 405 || text.len() > 10;
                assert!(
                    status != 500 && is_told,
                    "{path}?{visible}: {status} {text}"
                );
            }
        }
    });
}

/// SPEC 2.1, 3.9: invalid text and contradictory fields are not treated as absent.
// Covers 2.1 400; 3.9 Whatever stands behind a path.
#[test]
fn malformed_and_repeated_fields_are_refused_without_effect() {
    simulate(|node| async move {
        let master = master(&node).await;
        let routes = all_routes(&node, pages(&node, &master));
        let state = async || shown_of(&master).await;
        let before = state().await;
        let resources = |role: &[u8]| {
            let begins = br#"slaveId=S&resources=[{"name":"cpus","type":"SCALAR","scalar":{"value":1},"role":""#;
            [begins, role, br#"","reservation":{}}]"#].concat()
        };
        let no_text = "expected text in UTF-8";
        let mut cases = vec![
            ("POST", "/reserve", resources(b"ads%FF"), no_text),
            ("POST", "/unreserve", resources(b"ads\xff"), no_text),
            (
                "POST",
                "/reserve",
                resources(br#"a","role":"b"#),
                "each field once",
            ),
        ];
        for [method, path, body, words] in rows(
            r#"
            POST | /create-volumes | slaveId=%ff&volumes=[] | expected text in UTF-8
            POST | /destroy-volumes | slaveId=a&slaveId=b | expected each name once
            POST | /teardown | frameworkId=f%ff | frameworkId is
            POST | /teardown | frameworkId=f&frameworkId=f | expected each name once
            DELETE | /quota/r%ff |  | path is `/quota/r%ff`
            GET | /explain?framework=web%ff |  | framework is
            GET | /explain?framework=a&framework=b |  | framework is `b`
            GET | /explain?role=a |  | framework is `absent`
            GET | /explain?framework=web&rule=a |  | rule is `a`
            PUT | /quota | {"role":"a","role":"b","guarantee":[]} | field `role` comes twice
            PUT | /weights | [{"role":"a","weight":1,"weight":2}] | field `weight` comes twice
            POST | /machine/down | [{"hostname":"h"}],"x":1 | Failed to parse body into JSON: trailing characters
            POST | /machine/up | [{"hostname":"h","hostname":"i"}] | machines[0].hostname is `there twice`
        "#,
        ) {
            cases.push((method, path, body.as_bytes().to_vec(), words));
        }
        for (method, path, body, words) in cases {
            let (status, text) = fetch(&routes, request(method, path, FORM, body)).await;
            assert_eq!(status, 400, "{method} {path}: {text}");
            assert!(text.contains(words), "{method} {path}: {text}");
            let is_told = text.contains("expected") || text.contains("valid example");
            assert!(is_told, "{method} {path}: {text}");
        }
        let twice = r#"{"type":"GET_HEALTH","type":"UPDATE_WEIGHTS"}"#;
        let (status, text) = fetch(&routes, request("POST", "/api/v1", JSON, twice)).await;
        let words = "Failed to convert JSON into Call protobuf: type is `there twice`: expected each field once";
        assert_eq!((status, &*text), (400, words));
        assert_eq!(state().await, before);
    });
}

/// SPEC 2.1, 2.2: answers about unbounded names are short.
// Covers 2.1 400.
#[test]
fn subscription_with_huge_names_is_answered_briefly() {
    simulate(|node| async move {
        let master = master(&node).await;
        let routes = all_routes(&node, pages(&node, &master));
        let long = || "\\u0001".repeat(2 << 20);
        let info = |more: &str| {
            format!(
                r#"{{"type":"SUBSCRIBE","subscribe":{{"framework_info":{{"user":"u","name":"n","capabilities":[{{"type":"MULTI_ROLE"}}]{more}"#
            )
        };
        let roles = || info(r#","roles":["#);
        let filters = || info(r#","offer_filters":{"#);
        let constraints = || info(r#"},"offer_constraints":{"role_constraints":{"#);
        let suppressed = || info(r#"},"suppressed_roles":["#);
        let least = r#"{"min_allocatable_resources":{"quantities":[{"quantities":{}}]}}"#;
        let group = r#"{"groups":[{"attribute_constraints":[{"selector":{"attribute_name":"a"},"predicate":{}}]}]}"#;
        let (number, unknown) = (
            "expected an object",
            "is not contained in the list of roles",
        );
        for (body, words) in [
            (
                format!("{}\"{}\"]}}}}}}", roles(), long()),
                "contains backspace or whitespace",
            ),
            (
                long_list([&roles(), "]}}}"], |n| format!(r#""r/../{n}""#)),
                "Role 'r/../0' cannot include '..'",
            ),
            (format!("{}\"{}\":3}}}}}}}}", filters(), long()), number),
            (
                format!("{}\"{}\":{least}}}}}}}}}", filters(), long()),
                "must contain at least one quantity",
            ),
            (
                long_list([&filters(), "}}}}"], |n| format!(r#""r{n}":{least}"#)),
                "is `too much`: expected",
            ),
            (format!("{}\"{}\":7}}}}}}}}", constraints(), long()), number),
            (
                format!("{}\"{}\":{group}}}}}}}}}", constraints(), long()),
                "predicate is `empty or not known`",
            ),
            (
                long_list([&constraints(), "}}}}"], |n| format!(r#""r{n}":{group}"#)),
                "is `too much`: expected",
            ),
            (format!("{}\"{}\"]}}}}", suppressed(), long()), unknown),
            (
                long_list([&suppressed(), "]}}"], |n| format!(r#""r{n}""#)),
                unknown,
            ),
        ] {
            let visible: String = body.chars().take(160).collect();
            let asked = request("POST", "/api/v1/scheduler", JSON, body);
            let response = send(&routes, asked).await;
            // A readable but permanently refused subscription is answered by the stream's first
            // event.
            let status = response.status().as_u16();
            assert!(matches!(status, 200 | 400), "{visible}: {status}");
            let first = response.into_body().into_data_stream().next().await;
            let text = String::from_utf8_lossy(&first.unwrap().unwrap()).into_owned();
            assert_eq!(status == 200, text.contains(r#""type":"ERROR""#), "{text}");
            assert!(
                (10..=REFUSAL_MAX).contains(&text.len()),
                "{visible}: {text}"
            );
            assert!(text.contains(words), "{visible}: {text}");
            let is_plain = |c: char| c == '\n' || !c.is_control();
            assert!(text.chars().all(is_plain), "{visible}: {text}");
        }
    });
}

/// SPEC 2.6, 3.2: the maximum duration is valid.
#[test]
fn drain_accepts_the_longest_grace_period() {
    simulate(|node| async move {
        let master = master(&node).await;
        let routes = all_routes(&node, pages(&node, &master));
        let state = master.ask(TakeSnapshot, PATIENCE).await.unwrap();
        let agent = state.agents.iter().next().unwrap().id.clone();
        let drain = |seconds: i64| {
            let grace = json!({ "seconds": seconds });
            let drain = json!({ "agent_id": { "value": agent }, "max_grace_period": grace });
            json!({ "type": "DRAIN_AGENT", "drain_agent": drain }).to_string()
        };
        let call =
            async |body: String| fetch(&routes, request("POST", "/api/v1", JSON, body)).await;
        let (status, text) = call(drain(-1)).await;
        let words = "Failed to validate master::Call: drain_agent.max_grace_period.seconds is `-1`: expected";
        assert!(status == 400 && text.starts_with(words), "{status} {text}");
        let (status, text) = call(drain(i64::MAX)).await;
        assert_eq!((status, &*text), (200, ""));
        let (status, text) = call(r#"{"type":"GET_AGENTS"}"#.to_owned()).await;
        assert_eq!(status, 200);
        assert!(text.contains("9223372036854775807"), "{text}");
    });
}

/// W15: parsing a large body does not delay other pages.
#[test]
fn large_bodies_are_parsed_off_the_server_thread() {
    simulate(|node| async move {
        let master = master(&node).await;
        let routes = all_routes(&node, pages(&node, &master));
        node.slow_blocking(Duration::from_secs(2));
        for (method, path, body) in [
            ("PUT", "/weights", "[]"),
            ("POST", "/quota", r#"{"role":"r","guarantee":[]}"#),
            ("PUT", "/quota", r#"{"quota_configs":[]}"#),
            ("POST", "/maintenance/schedule", r#"{"windows":[]}"#),
            ("POST", "/machine/down", "[]"),
            ("POST", "/machine/up", "[]"),
            ("POST", "/teardown", "frameworkId=f"),
            ("POST", "/reserve", "slaveId=S&resources=[]"),
            ("POST", "/unreserve", "slaveId=S&resources=[]"),
            ("POST", "/create-volumes", "slaveId=S&volumes=[]"),
            ("POST", "/destroy-volumes", "slaveId=S&volumes=[]"),
        ] {
            let mut answers = Vec::new();
            for (padding, seconds) in [(0, 0), (64 << 10, 2)] {
                let padding = match body.contains('=') {
                    true => "&".repeat(padding),
                    false => " ".repeat(padding),
                };
                let begun = node.clock().now();
                let asked = request(method, path, FORM, format!("{body}{padding}"));
                answers.push(fetch(&routes, asked).await);
                let taken = node.clock().now() - begun;
                assert_eq!(taken, Duration::from_secs(seconds), "{method} {path}");
            }
            assert_eq!(answers[0], answers[1], "{method} {path}");
        }
    });
}
