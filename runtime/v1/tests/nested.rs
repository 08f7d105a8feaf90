//! Calls about containers in the agent's operator API: decoding, and Mesos' messages; streams of
//! input and output.
#![allow(clippy::unwrap_used, clippy::panic, reason = "all of it is tests")]

use meros_v1::convert::operator::nested::{NestedCall, nested_call};
use meros_v1::convert::operator::process_io::{ProcessInput, Records, process_input, record};
use meros_v1::schema::agent::{Call, ProcessIO, ProcessIODataType};
use meros_v1::{Form, Limits, json};
use testkit::rows;

fn read(text: &str) -> Call {
    json::read(text.as_bytes(), Limits::default()).unwrap()
}

fn decode(text: &str) -> Result<NestedCall, String> {
    let call = nested_call(&read(text)).unwrap();
    call.map_err(|bad| bad.to_string())
}

fn call(kind: &str, rest: &str) -> String {
    let field = kind.to_lowercase();
    format!(
        r#"{{"type": "{kind}", "{field}": {{"container_id": {{"value": "c", "parent": {{"value": "p"}}}}{rest}}}}}"#
    )
}

// Covers 5.6.
#[test]
fn both_generations_of_a_call_are_the_same() {
    for (older, newer) in [
        ("LAUNCH_NESTED_CONTAINER", "LAUNCH_CONTAINER"),
        ("WAIT_NESTED_CONTAINER", "WAIT_CONTAINER"),
        ("KILL_NESTED_CONTAINER", "KILL_CONTAINER"),
        ("REMOVE_NESTED_CONTAINER", "REMOVE_CONTAINER"),
    ] {
        let decoded = decode(&call(older, "")).unwrap();
        assert_eq!(decode(&call(newer, "")).unwrap(), decoded);
        let orphan = call(older, "").replace(r#", "parent": {"value": "p"}"#, "");
        let field = older.to_lowercase();
        assert_eq!(
            decode(&orphan).unwrap_err(),
            format!(
                "Failed to validate agent::Call: Expecting '{field}.container_id.parent' to be present"
            )
        );
    }
    let kill = |rest: &str| match decode(&call("KILL_CONTAINER", rest)) {
        Ok(NestedCall::Kill(id, signal)) => (id.to_string(), signal),
        other => panic!("{other:?}"),
    };
    assert_eq!(kill(""), ("p.c".to_owned(), 9));
    assert_eq!(kill(r#", "signal": 15"#).1, 15);
    assert!(nested_call(&read(r#"{"type": "GET_STATE"}"#)).is_none());
}

#[test]
fn a_session_may_have_a_terminal() {
    let session = |rest: &str| decode(&call("LAUNCH_NESTED_CONTAINER_SESSION", rest));
    let tty = r#", "command": {"value": "sh"}, "container": {"type": "MESOS", "tty_info": {}}"#;
    let Ok(NestedCall::Launch(launch)) = session(tty) else {
        panic!("no launch")
    };
    assert!(
        launch.is_session
            && launch
                .container
                .as_ref()
                .is_some_and(|one| one.has_terminal)
    );
    assert_eq!(launch.command.unwrap().value, "sh");
    let Ok(NestedCall::Launch(launch)) = session("") else {
        panic!("no launch")
    };
    assert!(launch.container.is_none() && launch.command.is_none());
    let own = r#", "container": {"type": "MESOS", "linux_info": {"share_cgroups": false}}"#;
    assert_eq!(
        session(own).unwrap_err(),
        "Failed to validate agent::Call: 'launch_nested_container_session.container.linux_info' is invalid: 'share_cgroups' cannot be set to 'false' for nested container sessions"
    );
}

// Covers 5.6.
#[test]
fn invalid_calls_have_the_messages_of_mesos() {
    let id = |id: &str| {
        format!(r#"{{"type": "WAIT_CONTAINER", "wait_container": {{"container_id": {id}}}}}"#)
    };
    let alone =
        |rest: &str| call("LAUNCH_CONTAINER", rest).replace(r#", "parent": {"value": "p"}"#, "");
    let deep = |rest: &str| {
        let parent = r#""parent": {"value": "p", "parent": {"value": "q"}}"#;
        call("LAUNCH_CONTAINER", rest).replace(r#""parent": {"value": "p"}"#, parent)
    };
    let own = |shares: bool| {
        format!(
            r#", "container": {{"type": "MESOS", "linux_info": {{"share_cgroups": {shares}}}}}"#
        )
    };
    let cpus = r#", "resources": [{"name": "cpus", "type": "SCALAR", "scalar": {"value": 1}}]"#;
    let reserved = cpus.replace(
        r#""scalar""#,
        r#""reservations": [{"type": "STATIC", "role": "a"}], "scalar""#,
    );
    let gpus = cpus.replace("cpus", "gpus").replace("1}", "0.5}");
    let input = |rest: &str| {
        format!(r#"{{"type": "ATTACH_CONTAINER_INPUT", "attach_container_input": {{{rest}}}}}"#)
    };
    let too_deep =
        "'launch_container' is invalid: containers nested at the second level or greater cannot";
    for (text, words) in [
        (r#"{"type": "WAIT_CONTAINER"}"#.to_owned(), "Expecting 'wait_container' to be present".to_owned()),
        (id(r#"{"value": ""}"#), "'wait_container.container_id' is invalid: ID must not be empty".to_owned()),
        (id(r#"{"value": "a.b"}"#), "'wait_container.container_id' is invalid: 'ContainerID.value' 'a.b' contains invalid characters".to_owned()),
        (
            id(r#"{"value": "a", "parent": {"value": "b c"}}"#),
            "'wait_container.container_id' is invalid: 'ContainerID.parent' is invalid: 'ContainerID.value' 'b c' contains invalid characters".to_owned(),
        ),
        (alone(&reserved), "'launch_container.resources' must be unreserved".to_owned()),
        (alone(&gpus), "Invalid GPU resources: The 'gpus' resource must be an unsigned integer".to_owned()),
        (alone(&own(true)), "'launch_container' is invalid: containers without a parent cannot set 'share_cgroups' to 'true'".to_owned()),
        (deep(cpus), format!("{too_deep} specify resources")),
        (deep(r#", "limits": {"cpus": {"value": 1}}"#), format!("{too_deep} specify resource limits")),
        (deep(&own(false)), format!("{too_deep} set 'share_cgroups' to 'false'")),
        (input(""), "Expecting 'attach_container_input.type' to be present".to_owned()),
        (input(r#""type": "CONTAINER_ID", "container_id": {"value": ""}"#), "'attach_container_input.container_id' is invalid: ID must not be empty".to_owned()),
    ] {
        let words = format!("Failed to validate agent::Call: {words}");
        assert_eq!(decode(&text).unwrap_err(), words);
    }
    assert_eq!(
        decode(&input(r#""type": "PROCESS_IO""#)).unwrap_err(),
        "Expecting 'attach_container_input.type' to be CONTAINER_ID"
    );
}

#[test]
fn input_is_decoded_or_refused_in_mesos_words() {
    let io = |io: &str| {
        let text = format!(
            r#"{{"type": "ATTACH_CONTAINER_INPUT", "attach_container_input": {{"type": "PROCESS_IO", "process_io": {io}}}}}"#
        );
        process_input(&read(&text)).map_err(|bad| bad.to_string())
    };
    let size = r#"{"type": "CONTROL", "control": {"type": "TTY_INFO", "tty_info": {"window_size": {"rows": 24, "columns": 80}}}}"#;
    assert_eq!(
        io(size),
        Ok(ProcessInput::Window {
            rows: 24,
            columns: 80
        })
    );
    let data = r#"{"type": "DATA", "data": {"type": "STDIN", "data": "aGk="}}"#;
    assert_eq!(io(data), Ok(ProcessInput::Data("hi".into())));
    for [text, words] in rows(
        r#"
        {} | Expecting 'process_io.type' to be present
        {"type": "CONTROL"} | Expecting 'process_io.control' to be present
        {"type": "CONTROL", "control": {"type": "TTY_INFO", "tty_info": {}}} | Expecting 'tty_info.window_size' to be present
        {"type": "CONTROL", "control": {"type": "HEARTBEAT"}} | Expecting 'process_io.control.heartbeat' to be present
        {"type": "DATA", "data": {"type": "STDOUT", "data": "aGk="}} | Expecting 'process_io.data.type' to be 'STDIN'
        {"type": "DATA", "data": {"type": "STDIN"}} | Expecting 'process_io.data.data' to be present
    "#,
    ) {
        assert_eq!(io(text), Err(words.to_owned()));
    }
    let first =
        r#"{"type": "ATTACH_CONTAINER_INPUT", "attach_container_input": {"type": "CONTAINER_ID"}}"#;
    assert_eq!(
        process_input(&read(first)).unwrap_err().to_string(),
        "Expecting 'attach_container_input.type' to be 'PROCESS_IO' instead of: 'CONTAINER_ID'"
    );
}

#[test]
fn messages_of_a_stream_survive_any_chunks() {
    let interval = std::time::Duration::from_secs(30);
    let messages = [
        ProcessIO::data(ProcessIODataType::Stdout, &b"out"[..]),
        ProcessIO::heartbeat(interval),
        ProcessIO::window(24, 80),
    ];
    for form in [Form::Json, Form::Protobuf] {
        let stream: Vec<u8> = messages.iter().flat_map(|io| record(form, io)).collect();
        for size in [1, 7, stream.len()] {
            let mut records = Records::<ProcessIO>::new(form, Limits::default(), 1 << 20);
            let mut read = Vec::new();
            for mut piece in stream.chunks(size) {
                while let Some(io) = records.next(&mut piece).unwrap() {
                    read.push(io);
                }
            }
            assert_eq!(records.end(), Ok(()));
            assert_eq!(read, messages);
        }
    }
    let call = messages[0].clone().into_call();
    assert!(process_input(&call).is_err(), "output is no input");
}
