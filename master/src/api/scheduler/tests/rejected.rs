//! Calls of which a part, or all, is invalid: the part is answered by itself, an invalid SUBSCRIBE
//! by an ERROR event, as by Mesos.

use super::offers::ops;
use super::*;

/// The type of each event, and of statuses the task or operation, state, reason and message.
fn answers(stream: &mut Stream) -> Vec<String> {
    let (events, _) = stream.events();
    let answer = |event: &Event| {
        let value: Value = serde_json::from_slice(&v1::json::write(event)).unwrap();
        let task = &value["update"]["status"];
        let operation = &value["update_operation_status"]["status"];
        let status = if task.is_null() { operation } else { task };
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let id = text(&task["task_id"]["value"]) + &text(&operation["operation_id"]["value"]);
        let (state, reason) = (text(&status["state"]), text(&status["reason"]));
        format!("{id:?} {state} {reason} {}", text(&status["message"]))
    };
    events.iter().map(answer).collect()
}

#[test]
fn empty_task_id_does_not_stop_a_reconciliation() {
    simulate_api(|fixture| async move {
        let mut stream = fixture.subscribe(web()).await;
        let id = stream.framework();
        let tasks = json!([{"task_id": {"value": ""}}, {"task_id": {"value": "t"}}]);
        let call = json!({"type": "RECONCILE", "reconcile": {"tasks": tasks}});
        assert_eq!(fixture.call(&id, &stream.id, call).await, 202);
        fixture.settle().await;
        let heard = answers(&mut stream);
        assert_eq!(heard.len(), 2, "{heard:?}");
        assert_starts!(heard[0], r#""t" TASK_LOST REASON_RECONCILIATION"#);
        assert_eq!(
            heard[1],
            r#""" TASK_ERROR REASON_TASK_INVALID ID must not be empty"#
        );
        let kill = json!({"type": "KILL", "kill": {"task_id": {"value": "a/b"}}});
        assert_eq!(fixture.call(&id, &stream.id, kill).await, 202);
        assert_eq!(
            answers(&mut stream),
            [r#""a/b" TASK_ERROR REASON_TASK_INVALID 'a/b' contains invalid characters"#]
        );
    });
}

#[test]
fn invalid_task_id_does_not_stop_an_accept() {
    simulate_api(|fixture| async move {
        let agent = fixture.agent().await;
        let mut stream = fixture.subscribe(ops()).await;
        let id = stream.framework();
        let offer = fixture
            .offer(&mut stream, &id, &agent.id, "cpus:2;mem:64")
            .await;
        let task = |id: &str| {
            json!({
                "name": "t", "task_id": {"value": id}, "agent_id": {"value": agent.id.as_str()},
                "command": {"value": "true"},
                "resources": [{"name": "cpus", "type": "SCALAR", "scalar": {"value": 1}}],
            })
        };
        let launch = json!({"type": "LAUNCH", "launch": {"task_infos": [task(""), task("good")]}});
        let accept = json!({"offer_ids": [offer["id"]], "operations": [launch]});
        let call = json!({"type": "ACCEPT", "accept": accept});
        assert_eq!(fixture.call(&id, &stream.id, call).await, 202);
        assert_eq!(
            answers(&mut stream),
            [r#""" TASK_ERROR REASON_TASK_INVALID ID must not be empty"#]
        );
        let state = fixture.master.ask(TakeSnapshot, PATIENCE).await.unwrap();
        let framework = FrameworkId::new(&id).unwrap();
        let running = state.tasks.get(&framework, &"good".parse().unwrap());
        assert!(running.is_some());

        // An invalid offer id is one more offer that is no longer valid.
        let offer = fixture.offer(&mut stream, &id, &agent.id, "cpus:1").await;
        let launch = json!({"type": "LAUNCH", "launch": {"task_infos": [task("late")]}});
        let offers = json!([offer["id"], {"value": ""}]);
        let accept = json!({"offer_ids": offers, "operations": [launch]});
        let call = json!({"type": "ACCEPT", "accept": accept});
        assert_eq!(fixture.call(&id, &stream.id, call).await, 202);
        fixture.settle().await;
        assert_eq!(
            answers(&mut stream),
            [
                r#""late" TASK_LOST REASON_INVALID_OFFERS Task launched with invalid offers: Offer  is no longer valid"#
            ]
        );
    });
}

// Covers 2.2 SUBSCRIBE.
#[test]
fn invalid_subscription_is_a_stream_with_an_error() {
    simulate_api(|fixture| async move {
        let multi = json!([{"type": "MULTI_ROLE"}]);
        let long = "x".repeat(1 << 20);
        // The master finds the last two.
        for [field, value, words] in rows(
            r#"
            roles | ["a","a"] | 'FrameworkInfo.roles' contains duplicate items: { a }
            role | "a" | 'FrameworkInfo.role' must not be set when the framework is MULTI_ROLE capable
            failover_timeout | 1e12 | The framework failover_timeout (1e+12) is invalid
            roles | ["/a"] | 'FrameworkInfo.roles' contains invalid role: Role '/a' cannot start with a slash
            labels | {"labels":[{"key":"k","value":"LONG"}]} | framework.labels is `1048641 bytes`: expected at most 92160 bytes in all of `framework`, which has 1048650
        "#,
        ) {
            let mut framework = web();
            framework["capabilities"] = multi.clone();
            framework[field] = serde_json::from_str(&value.replace("LONG", &long)).unwrap();
            let mut stream = fixture.subscribe(framework).await;
            fixture.settle().await;
            assert_eq!(stream.read(), [format!("ERROR {words}"), "END".to_owned()]);
        }
        let mut framework = web();
        framework["user"] = json!("");
        framework["failover_timeout"] = json!(-1);
        let mut stream = fixture.subscribe(framework).await;
        assert!(stream.read()[0].starts_with("SUBSCRIBED "));
        // A malformed SUBSCRIBE has no stream.
        let (nobody, call) = (Subject::default(), json!({"type": "SUBSCRIBE"}));
        let refused = fixture.post(&call, None, &nobody);
        let refused = refused.await.unwrap_err();
        assert_eq!(refused.status.as_u16(), 400);
        assert_eq!(
            refused.problem,
            "Failed to validate scheduler::Call: Expecting 'subscribe' to be present"
        );
        fixture.settle().await;
        assert_eq!(fixture.api.subscriptions.slots_taken(), 1);
    });
}

#[test]
fn nothing_is_written_after_a_teardown() {
    simulate_api(|fixture| async move {
        let agent = fixture.agent().await;
        let mut stream = fixture.subscribe(ops()).await;
        let id = stream.framework();
        fixture.offer(&mut stream, &id, &agent.id, "cpus:1").await;
        let teardown = json!({"type": "TEARDOWN"});
        assert_eq!(fixture.call(&id, &stream.id, teardown).await, 202);
        fixture.settle().await;
        assert_eq!(stream.read(), ["END"]);
    });
}

#[test]
fn replaced_scheduler_gets_one_error_and_no_rescinds() {
    simulate_api(|fixture| async move {
        let agent = fixture.agent().await;
        let mut old = fixture.subscribe(ops()).await;
        let id = old.framework();
        fixture.offer(&mut old, &id, &agent.id, "cpus:1").await;
        let mut again = ops();
        again["id"] = json!({ "value": id });
        let mut new = fixture.subscribe(again).await;
        fixture.settle().await;
        assert_eq!(old.read(), ["ERROR Framework failed over", "END"]);
        assert_eq!(
            new.read(),
            [format!("SUBSCRIBED {id}"), "HEARTBEAT".to_owned()]
        );
    });
}
