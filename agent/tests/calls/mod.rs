//! Calls of `POST /api/v1`: each is served or rejected by name, and invalid bytes have no effect.

mod nested;

use v1::message::Enum;
use v1::schema::agent::CallType;

use super::*;

/// SPEC 2.7: each call of the schema is listed here as served or not; those not served are rejected
/// by name.
// Covers 2.6, 2.7 Calls that are not served.
#[test]
fn every_call_of_an_agent_is_tested() {
    world(FixtureOptions::default(), |world| async move {
        let (routes, _) = running(&world).await;
        let (mut served, mut refused) = (0, 0);
        for (_, _, name) in CallType::VALUES.iter().skip(1) {
            let body = json!({ "type": name }).to_string();
            let (status, text) = fetch(&routes, request("POST", "/api/v1", JSON, body)).await;
            let right = match status {
                // The answer of a call that changes something is empty.
                200 => text.contains(name) || *name == "PRUNE_IMAGES",
                501 => text.contains(name),
                400 => text.starts_with("Failed to validate agent::Call: Expecting '"),
                _ => false,
            };
            assert!(right, "{name}: {status} {text}");
            served += usize::from(status != 501);
            refused += usize::from(status == 501);
        }
        assert_eq!((served, refused), (28, 4));
    });
}

/// SPEC 2.7: an unsupported call is named even where the `Accept` header would not allow its
/// answer.
#[test]
fn unsupported_call_is_named_for_any_accept_header() {
    world(FixtureOptions::default(), |world| async move {
        let (routes, _) = running(&world).await;
        let record = |text: &str| format!("{}\n{text}", text.len());
        let attach = |what: &str| json!({ "type": format!("ATTACH_CONTAINER_{what}") }).to_string();
        let input = format!("{}{}", record(&attach("INPUT")), record("never read"));
        for (content, body, expected) in [
            (
                JSON,
                json!({ "type": "MARK_RESOURCE_PROVIDER_GONE" }).to_string(),
                (501, "MARK_RESOURCE_PROVIDER_GONE is not supported"),
            ),
            (
                "application/recordio",
                input,
                (400, "Expecting 'attach_container_input' to be present"),
            ),
            (
                "application/recordio",
                "12".to_owned(),
                (400, "cut after `12`"),
            ),
            (
                "application/recordio",
                "9\n{}".to_owned(),
                (400, "cut after 2 bytes"),
            ),
            (
                "application/recordio",
                String::new(),
                (400, "has no record"),
            ),
            (
                "application/recordio",
                format!("{}\n", 1_u64 << 63),
                (400, "length"),
            ),
            (
                "application/recordio",
                record("{"),
                (400, "Failed to parse body into JSON: "),
            ),
            (
                "application/recordio",
                record(r#"{"type":"GET_STATE"}"#) + "garbage",
                (
                    415,
                    "Streaming 'Content-Type' application/recordio is not supported for GET_STATE call",
                ),
            ),
            (
                "application/recordio",
                record(r#"{"type":"SET_LOGGING_LEVEL"}"#),
                (415, "not supported for SET_LOGGING_LEVEL call"),
            ),
            (
                "application/recordio",
                record(&attach("OUTPUT")),
                (415, "not supported for ATTACH_CONTAINER_OUTPUT call"),
            ),
        ] {
            let mut request = request("POST", "/api/v1", content, body);
            for (name, value) in [
                ("Accept", "application/recordio"),
                ("Message-Accept", JSON),
                ("Message-Content-Type", JSON),
            ] {
                if name != "Message-Content-Type" || content != JSON {
                    request.headers_mut().insert(name, value.parse().unwrap());
                }
            }
            let (status, text) = fetch(&routes, request).await;
            assert!(
                status == expected.0 && text.contains(expected.1),
                "{status} {text}"
            );
        }
    });
}

/// SPEC 2.1, 2.5, 2.7.
#[test]
fn invalid_calls_are_rejected_without_effect() {
    world(FixtureOptions::default(), |world| async move {
        let (routes, _) = running(&world).await;
        let state = async || fetch(&routes, request("GET", "/state", JSON, "")).await;
        let before = state().await;
        let read = [r#"{"type":"READ_FILE","read_file":{"path":["#, "]}}"];
        let update = [
            r#"{"executor_id":{"value":"e"},"framework_id":{"value":"f"},"type":"SUBSCRIBE","subscribe":{"unacknowledged_tasks":["#,
            "]}}",
        ];
        let mut wrong = Vec::new();
        for (path, list) in [
            ("/api/v1", read),
            ("/slave(1)/api/v1", read),
            ("/api/v1/executor", update),
            ("/slave(1)/api/v1/executor", update),
        ] {
            wrong.extend(wrong_answers(&routes, "POST", path, hostile_calls(list)).await);
        }
        assert!(wrong.is_empty(), "{}", wrong.join("\n"));
        for (path, body, words) in [
            (
                "/api/v1",
                json!({ "type": "BREW" }),
                "Failed to validate agent::Call: Expecting 'type' to be present",
            ),
            // The number of LIST_FILES.
            (
                "/api/v1",
                json!({ "type": 7 }),
                "Failed to validate agent::Call: Expecting 'list_files' to be present",
            ),
            (
                "/api/v1",
                json!({ "type": "READ_FILE" }),
                "Failed to validate agent::Call: Expecting 'read_file' to be present",
            ),
            (
                "/api/v1",
                json!({ "type": "READ_FILE", "read_file": { "path": "a", "offset": -1 } }),
                "read_file.offset",
            ),
            (
                "/api/v1/executor",
                json!({}),
                "executor_id is `absent or not known`",
            ),
            (
                "/api/v1/executor",
                of_executor("BREW"),
                "Failed to validate Executor::Call: Expecting 'type' to be present",
            ),
            (
                "/api/v1/executor",
                of_executor("UPDATE"),
                "Failed to validate Executor::Call: Expecting 'update' to be present",
            ),
            // Of another framework, or of none.
            (
                "/api/v1/executor",
                of_executor("HEARTBEAT"),
                "Framework cannot be found",
            ),
        ] {
            let asked = request("POST", path, JSON, body.to_string());
            let (status, text) = fetch(&routes, asked).await;
            assert!(
                status == 400 && text.contains(words),
                "{path} {body}: {status} {text}"
            );
        }
        assert_eq!(state().await, before);
    });
}

fn of_executor(kind: &str) -> Value {
    json!({ "executor_id": { "value": "e" }, "framework_id": { "value": "f" }, "type": kind })
}
