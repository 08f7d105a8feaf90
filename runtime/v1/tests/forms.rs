//! Every message in both encodings: an encoded message decodes to the same one, and invalid input
//! is refused with a reason.
//!
//! Messages are filled at random through their tables, so new messages are covered, too.

#![allow(clippy::unwrap_used, clippy::panic, reason = "all of it is tests")]

mod chance;

use chance::{Chance, fill};
use meros_v1::schema::{agent, executor, master, scheduler};
use meros_v1::{Invalid, Limits, Message, json, protobuf};
use testkit::rows;

fn check_forms<M: Message + Default + PartialEq>(name: &str) {
    for seed in 0..50 {
        let mut message = M::default();
        fill(&mut message, &mut Chance(seed), 7);
        let bytes = protobuf::write(&message);
        let again: M = protobuf::read(&bytes, Limits::default())
            .unwrap_or_else(|bad| panic!("{name} of seed {seed}: {bad}"));
        assert_eq!(again, message, "{name} of seed {seed}, in protobuf");

        let text = json::write(&message);
        let again: M = json::read(&text, Limits::default()).unwrap_or_else(|bad| {
            panic!(
                "{name} of seed {seed}: {bad}\n{}",
                String::from_utf8_lossy(&text)
            )
        });
        // JSON writes defaults, so the messages may differ, but not their texts.
        let again = String::from_utf8(json::write(&again)).unwrap();
        let text = String::from_utf8(text).unwrap();
        assert_eq!(again, text, "{name} of seed {seed}, in JSON");
    }
}

#[test]
fn every_message_survives_a_round_trip() {
    check_forms::<scheduler::Call>("scheduler::Call");
    check_forms::<scheduler::Event>("scheduler::Event");
    check_forms::<scheduler::Response>("scheduler::Response");
    check_forms::<executor::Call>("executor::Call");
    check_forms::<executor::Event>("executor::Event");
    check_forms::<master::Call>("master::Call");
    check_forms::<master::Response>("master::Response");
    check_forms::<master::Event>("master::Event");
    check_forms::<agent::Call>("agent::Call");
    check_forms::<agent::Response>("agent::Response");
    check_forms::<agent::ProcessIO>("agent::ProcessIO");
}

fn from_json(text: &str) -> Result<scheduler::Call, Invalid> {
    json::read(text.as_bytes(), Limits::default())
}

#[track_caller]
fn refused(text: &str, words: &str) {
    assert_eq!(from_json(text).unwrap_err().to_string(), words, "{text}");
}

#[test]
fn json_is_decoded_leniently() {
    let strict = from_json(
        r#"{"type": "ACCEPT", "accept": {"offer_ids": [{"value": "o"}], "filters": {"refuse_seconds": 5.0}}}"#,
    );
    let strict = strict.unwrap();
    for generous in [
        // A single value for a list of one, a text for a number, an integer for a double.
        r#"{"type": "ACCEPT", "accept": {"offer_ids": {"value": "o"}, "filters": {"refuse_seconds": "5"}}}"#,
        r#"{"type": 3, "accept": {"offer_ids": [{"value": "o"}], "filters": {"refuse_seconds": 5}}}"#,
        // Unknown fields and null are skipped.
        r#"{"what": [[{"ever": null}]], "type": "ACCEPT", "kill": null,
            "accept": {"offer_ids": [{"value": "o", "x": 1}, null], "filters": {"refuse_seconds": 5}, "operations": null}}"#,
    ] {
        assert_eq!(from_json(generous).unwrap(), strict, "{generous}");
    }
    let unknown = from_json(r#"{"type": "SING"}"#).unwrap();
    assert_eq!(unknown, scheduler::Call::default());
    let unknown = from_json(r#"{"type": 99}"#).unwrap();
    assert_eq!(unknown, scheduler::Call::default());
}

#[test]
fn json_bytes_are_base64_and_non_finite_numbers_texts() {
    let call = r#"{"message": {"agent_id": {"value": "a"}, "executor_id": {"value": "e"}, "data": "AAH/"}}"#;
    let message = from_json(call).unwrap().message.unwrap();
    assert_eq!(&message.data[..], [0, 1, 255]);
    let text = String::from_utf8(json::write(&*message)).unwrap();
    assert!(text.ends_with(r#""data":"AAH/"}"#), "{text}");
    // With line breaks as in mail, and without padding.
    for written in [r"AAH/\nAQ==\r\n", " AAH/ AQ", r"AA\tH/AQ"] {
        let message = from_json(&call.replace("AAH/", written)).unwrap().message;
        assert_eq!(&message.unwrap().data[..], [0, 1, 255, 1], "{written}");
    }
    assert!(from_json(&call.replace("AAH/", "AA-H/")).is_err());

    let filters = r#"{"decline": {"filters": {"refuse_seconds": "Infinity"}}}"#;
    let decline = from_json(filters).unwrap().decline.unwrap();
    assert_eq!(
        decline.filters.as_ref().unwrap().refuse_seconds,
        Some(f64::INFINITY)
    );
    let text = String::from_utf8(json::write(&decline)).unwrap();
    assert_eq!(text, r#"{"filters":{"refuse_seconds":"Infinity"}}"#);
}

#[test]
fn json_writes_defaults_of_absent_fields() {
    let command = meros_v1::schema::CommandInfo::default();
    assert_eq!(json::write(&command), br#"{"shell":true}"#);
}

#[test]
fn errors_have_the_path_of_the_field() {
    refused(
        r#"{"accept": {"operations": [{}, {"launch": {"task_infos": [{"name": "t", "task_id": {}}]}}]}}"#,
        "accept.operations[1].launch.task_infos[0].task_id.value is `absent or not known`: expected a value, since the field is required",
    );
    refused(
        r#"{"kill": {"task_id": {"value": 7}}}"#,
        "kill.task_id.value is `7`: expected text",
    );
    refused(
        r#"{"suppress": {"roles": ["a", ["b"]]}}"#,
        "suppress.roles[1] is `a list`: expected a single value",
    );
    refused(
        r#"{"framework_id": "f"}"#,
        "framework_id is `f`: expected an object",
    );
    refused(
        r#"{"subscribe": {"framework_info": {"user": {}, "name": "n"}}}"#,
        "subscribe.framework_info.user is `an object`: expected text",
    );
    refused(
        r#"{"subscribe": {"framework_info": {"offer_filters": {"ads": {"min_allocatable_resources": {"quantities": [{"quantities": {"cpus": {"value": "x"}}}]}}}}}}"#,
        "subscribe.framework_info.offer_filters[ads].min_allocatable_resources.quantities[0].quantities[cpus].value is `x`: expected a number",
    );
    refused(
        r#"{"acknowledge": {"uuid": "*"}}"#,
        "acknowledge.uuid is `*`: expected bytes in base64",
    );
}

/// One of the two would be lost silently. Unknown fields may repeat, and for map keys the last
/// value counts.
// Covers 2.1 400.
#[test]
fn a_duplicate_field_is_refused_with_its_path() {
    for [text, path] in rows(
        r#"
        {"type": "KILL", "type": "REVIVE"} | type
        {"type": null, "type": "REVIVE"} | type
        {"revive": {"roles": ["a"], "roles": ["b"]}} | revive.roles
        {"accept": {"operations": [{}, {"launch": {}, "launch": {}}]}} | accept.operations[1].launch
    "#,
    ) {
        let words = format!("{path} is `there twice`: expected each field once");
        refused(text, &words);
    }
    assert!(from_json(r#"{"what": 1, "type": "REVIVE", "what": 2}"#).is_ok());
    let filters = |filters: &str| {
        from_json(&format!(
            r#"{{"subscribe": {{"framework_info": {{"user": "u", "name": "n", "offer_filters": {{{filters}}}}}}}}}"#
        ))
    };
    let last = r#""a": {"min_allocatable_resources": {"quantities": [{}]}}"#;
    assert_eq!(filters(&format!(r#""a": {{}}, {last}"#)), filters(last));
}

/// SPEC 2.1: clients choose the keys of maps and their length.
// Covers 2.1 400.
#[test]
fn errors_below_long_keys_quote_an_excerpt() {
    let long = "\\u0001".repeat(1 << 20);
    let filters = |key: &str, value: &str| {
        format!(
            r#"{{"subscribe": {{"framework_info": {{"user": "u", "name": "n", "offer_filters": {{"{key}": {value}}}}}}}}}"#
        )
    };
    let json = from_json(&filters(&long, "3")).unwrap_err().to_string();
    let begins = r"subscribe.framework_info.offer_filters[\u{1}\u{1}";
    assert!(json.starts_with(begins) && json.len() < 500, "{json}");
    assert!(json.ends_with("...] is `3`: expected an object"), "{json}");

    let value = r#"{"min_allocatable_resources": {}}"#;
    let whole = from_json(&filters(&"x".repeat(1 << 20), value)).unwrap();
    let mut bytes = protobuf::write(&whole);
    // The last two bytes are a message, which becomes a number.
    let last = bytes.len() - 2;
    assert_eq!(bytes[last..], [0x0a, 0]);
    bytes[last] = 0x08;
    let read = protobuf::read::<scheduler::Call>(&bytes, Limits::default());
    let words = read.unwrap_err().to_string();
    assert!(words.contains("[xxx") && words.len() < 500, "{words}");

    // SPEC 2.4, 2.8: decodable, but meaningless.
    let minimum = |role: &str, name: &str| {
        let least = format!(
            r#"{{"min_allocatable_resources": {{"quantities": [{{"quantities": {{"{name}": {{"value": -1}}}}}}]}}}}"#
        );
        from_json(&filters(role, &least)).unwrap()
    };
    let (long, constraints) = ("x".repeat(1 << 20), "offer_constraints.role_constraints");
    for (call, path) in [
        (minimum(&long, "cpus"), "framework_info.offer_filters[xxx"),
        (minimum("a", &long), "framework_info.offer_filters[a]"),
        (
            from_json(&format!(
                r#"{{"subscribe": {{"framework_info": {{"user": "u", "name": "n"}}, "offer_constraints": {{"role_constraints": {{"{long}": {{}}}}}}}}}}"#
            ))
            .unwrap(),
            constraints,
        ),
    ] {
        let subscribe = call.subscribe.unwrap();
        let demands = meros_v1::convert::demands(
            subscribe.offer_constraints.as_ref(),
            &subscribe.framework_info.offer_filters,
        );
        let words = demands.unwrap_err().to_string();
        assert!(words.starts_with(path) && words.len() < 500, "{words}");
    }
}

/// SPEC 3.6, 3.9: `/machine/down` has no object around it.
#[test]
fn a_top_level_list_is_read_to_its_end() {
    let read = |text: &str| {
        json::read_list::<meros_v1::schema::MachineID>(
            "machines",
            text.as_bytes(),
            Limits::default(),
        )
    };
    let two = read(r#"[{"hostname": "a"}, {"ip": "10.0.0.1"}]"#).unwrap();
    assert_eq!(two.len(), 2);
    assert_eq!(read(r#"{"hostname": "a"}"#).unwrap(), two[..1]);
    assert_eq!(read("[]"), Ok(Vec::new()));
    for [text, words] in rows(
        r#"
         | Failed to parse body into JSON: EOF
        [{}],"x":1 | Failed to parse body into JSON: trailing characters
        [{"hostname": 7}] | machines[0].hostname is `7`
        "a" | machines is `a`
        [[]] | machines[0] is `a list`
        [{"ip": "a", "ip": "b"}] | machines[0].ip is `there twice`
    "#,
    ) {
        let found = read(text).unwrap_err().to_string();
        assert!(found.starts_with(words), "{text}: {found}");
    }
}

/// Also those of seventeen digits.
#[test]
fn a_number_survives_writing_and_reading() {
    for n in 1..20_000_u64 {
        let value = f64::from_bits(n.wrapping_mul(0x9e37_79b9_7f4a_7c15));
        if !value.is_finite() {
            continue;
        }
        let scalar = meros_v1::schema::ValueScalar { value };
        let read =
            json::read::<meros_v1::schema::ValueScalar>(&json::write(&scalar), Limits::default());
        assert_eq!(read.unwrap().value.to_bits(), value.to_bits(), "{value}");
    }
}

/// Also within unknown fields.
#[test]
fn invalid_utf8_is_not_json() {
    for text in [
        &b"{\"type\":\"\xff\xfe\"}"[..],
        b"{\"unknown\":\"\xff\xfe\"}",
        b"{\"\xff\":1}",
        b"\xff",
    ] {
        let refused = json::read::<scheduler::Call>(text, Limits::default()).unwrap_err();
        let words = refused.to_string();
        let expected = "Failed to parse body into JSON: invalid utf-8";
        assert!(words.starts_with(expected), "{words}");
    }
}

#[test]
fn invalid_json_is_refused_with_its_position() {
    let no_json = "Failed to parse body into JSON: ";
    for (text, before, found) in [
        ("", no_json, "EOF"),
        ("[]", "body is `", "invalid type: sequence"),
        ("{\"type\": ", no_json, "EOF"),
        ("{} {}", no_json, "trailing characters"),
    ] {
        let words = from_json(text).unwrap_err().to_string();
        assert!(words.starts_with(&format!("{before}{found}")), "{words}");
        assert!(words.contains(" at line 1 column "), "{words}");
    }
    let invalid = json::read::<scheduler::Call>(b"{\"type\": \"\xff\"}", Limits::default());
    assert!(invalid.is_err());
}

#[test]
fn invalid_protobuf_is_refused_with_its_path() {
    let refused = |bytes: &[u8], words: &str| {
        let read = protobuf::read::<scheduler::Call>(bytes, Limits::default());
        assert_eq!(read.unwrap_err().to_string(), words, "{bytes:02x?}");
    };
    // A revive whose roles declare two bytes and have one, are not text, or are a number.
    refused(
        &[0x7a, 3, 0x0a, 2, b'a'],
        "revive.roles[0] is `1 bytes`: expected 2 bytes",
    );
    refused(
        &[0x7a, 3, 0x0a, 1, 0xff],
        "revive.roles[0] is `\u{fffd}`: expected text in UTF-8",
    );
    refused(
        &[0x7a, 2, 0x08, 1],
        "revive.roles[0] is `Varint`: expected the wire type LengthDelimited",
    );
    refused(
        &[0x0a, 0],
        "framework_id.value is `absent or not known`: expected a value, since the field is required",
    );
    refused(
        &[0x7a, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x7f],
        "revive is `0 bytes`: expected 9223372036854775807 bytes",
    );
}

#[test]
fn unknown_protobuf_fields_are_skipped() {
    // Field 99 as a number, a text and a group, and with an unknown type.
    let bytes = [
        0x98, 0x06, 1, 0x9a, 0x06, 1, b'x', 0x9b, 0x06, 0x08, 1, 0x9c, 0x06, 0x10, 99,
    ];
    let read = protobuf::read(&bytes, Limits::default());
    assert_eq!(read, Ok(scheduler::Call::default()));
    // A required enum with an unknown value counts as absent.
    let status = [0x0a, 3, 0x0a, 1, b't', 0x10, 99];
    let read = protobuf::read::<meros_v1::schema::TaskStatus>(&status, Limits::default());
    assert!(read.unwrap_err().to_string().starts_with("state is "));
}

#[test]
fn packed_numbers_are_decoded() {
    let check = |bytes: &[u8]| {
        let read = protobuf::read(bytes, Limits::default());
        let check: meros_v1::schema::HealthCheckHTTPCheckInfo = read.unwrap();
        assert_eq!(check.statuses, [200, 201]);
    };
    check(&[0x08, 80, 0x20, 0xc8, 1, 0x20, 0xc9, 1]);
    check(&[0x08, 80, 0x22, 4, 0xc8, 1, 0xc9, 1]);
}

#[test]
fn excessive_memory_and_depth_are_refused() {
    let limits = Limits {
        depth: 10,
        memory: 100_000,
    };
    let many = format!(
        r#"{{"accept": {{"operations": [{}{{}}]}}}}"#,
        "{},".repeat(10_000)
    );
    let bad = json::read::<scheduler::Call>(many.as_bytes(), limits).unwrap_err();
    let words = bad.to_string();
    assert!(words.starts_with("accept.operations["), "{words}");
    assert!(
        words.ends_with("a message of at most 100000 decoded bytes"),
        "{words}"
    );

    let mut nested = vec![];
    for _ in 0..20 {
        // A container within a container, and then its own name.
        nested = [&[0x12, nested.len() as u8][..], &nested, &[0x0a, 1, b'c']].concat();
    }
    let bad = protobuf::read::<meros_v1::schema::ContainerID>(&nested, limits).unwrap_err();
    assert!(
        bad.to_string()
            .ends_with("expected at most 10 messages within messages"),
        "{bad}"
    );
    // Skipped values may be of any depth.
    let deep = "[".repeat(100_000) + &"]".repeat(100_000);
    assert!(from_json(&format!(r#"{{"what": {deep}}}"#)).is_ok());
}
