//! Large calls: they are handled in parts, within the bounds of the master and of streams (W4).

use ::http::testing::long_list;
use protocol::message::registration::{AgentInventory, RunningTask};
use protocol::{AgentId, CommandInfo, FrameworkInfo, TaskId, TaskInfo, TaskState};
use resources::Resources;

use super::offers::ops;
use super::*;

/// This many running tasks of the framework, with long ids.
fn running(id: &str, many: usize) -> AgentInventory {
    let framework_id = FrameworkId::new(id).unwrap();
    let resources: Resources = "cpus:0.001".parse().unwrap();
    let long = "x".repeat(245);
    let task = |number: usize| RunningTask {
        framework_id: framework_id.clone(),
        info: TaskInfo {
            name: "web".into(),
            ..TaskInfo::new(
                TaskId::new(format!("{long}-{number}")).unwrap(),
                AgentId::new("a").unwrap(),
                resources.clone(),
            )
            .with_command(CommandInfo::shell("true"))
        },
        state: TaskState::Running,
    };
    AgentInventory {
        tasks: (0..many).map(task).collect(),
        executors: Vec::new(),
        frameworks: vec![FrameworkInfo {
            id: Some(framework_id.clone()),
            ..FrameworkInfo::new("nobody", "web")
        }],
    }
}

impl Stream {
    /// Number of readable updates. Their content is not parsed, which would take long.
    fn updates(&mut self) -> usize {
        let mut updates = 0;
        while let Some(Some(piece)) = self.body.next().now_or_never() {
            let piece = piece.unwrap();
            let mut rest = &piece[..];
            while let Some(record) = self.decoder.next(&mut rest).unwrap() {
                if !record.starts_with(br#"{"type":"HEARTBEAT""#) {
                    assert!(record.starts_with(br#"{"type":"UPDATE""#));
                    updates += 1;
                }
            }
        }
        updates
    }
}

impl Fixture {
    /// Sends a call and reads meanwhile: the call's status, and the number of updates.
    async fn call_and_read(&self, id: &str, stream: &mut Stream, call: Value) -> (u16, usize) {
        let stream_id = stream.id.clone();
        let mut said = Box::pin(self.call(id, &stream_id, call));
        let mut told = 0;
        loop {
            let status = said.as_mut().now_or_never();
            self.settle().await;
            told += stream.updates();
            if let Some(status) = status {
                return (status, told);
            }
        }
    }

    async fn counted_of(&self, name: &str) -> f64 {
        let state = self.master.ask(TakeSnapshot, PATIENCE).await.unwrap();
        crate::api::metrics(&state, self.api.node.clock().wall())[name]
    }
}

/// SPEC 2.2 RECONCILE without tasks. All answers in one turn would overflow the subscriber's
/// mailbox of 65,536 messages, and they exceed the 32 MiB of unread bytes at which it pauses.
// Covers W4; 2.2 RECONCILE.
#[test]
fn huge_reconciliation_follows_the_readers_pace() {
    simulate_api(|fixture| async move {
        let mut stream = fixture.subscribe(web()).await;
        let id = stream.framework();
        let many = 80_000;
        fixture.agent_with(running(&id, many)).await;
        fixture.settle().await;
        assert_eq!(stream.read(), [""; 0]);
        let all = || json!({ "type": "RECONCILE", "reconcile": {} });
        // Without a reader: it is not cut off for the answers to its own request.
        assert_eq!(fixture.call(&id, &stream.id, all()).await, 503);
        assert_eq!(fixture.connected(&id).await, Some(true));
        let told = stream.updates();
        assert!((many / 2..many).contains(&told), "{told}");
        let told = fixture.call_and_read(&id, &mut stream, all()).await;
        assert_eq!(told, (202, many));
        assert_eq!(fixture.connected(&id).await, Some(true));
        // Each was one call, in any number of parts.
        let counted = fixture.counted_of("master/messages_reconcile_tasks");
        assert_eq!(counted.await, 2.0);
    });
}

/// SPEC 2.2 DECLINE, ACCEPT.
// Covers 2.2 DECLINE.
#[test]
fn many_offers_are_declined_in_parts() {
    simulate_api(|fixture| async move {
        let agent = fixture.agent().await;
        let mut stream = fixture.subscribe(ops()).await;
        let id = stream.framework();
        let offer = fixture.offer(&mut stream, &id, &agent.id, "cpus:1").await;
        let mut ids: Vec<Value> = (0..25_000)
            .map(|id| json!({ "value": id.to_string() }))
            .collect();
        ids.push(offer["id"].clone());
        let offers = async || {
            let state = fixture.master.ask(TakeSnapshot, PATIENCE).await.unwrap();
            state.offers.iter().count()
        };
        let accept = json!({ "type": "ACCEPT", "accept": { "offer_ids": ids } });
        assert_eq!(fixture.call(&id, &stream.id, accept).await, 400);
        assert_eq!(offers().await, 1);
        let decline = json!({ "type": "DECLINE", "decline": { "offer_ids": ids } });
        assert_eq!(fixture.call(&id, &stream.id, decline).await, 202);
        assert_eq!(offers().await, 0);
        let counted = fixture.counted_of("master/messages_decline_offers");
        assert_eq!(
            counted.await,
            3.0,
            "between the parts the master hears others"
        );
    });
}

/// SPEC 2.1: a million valid entries, while the answers are not read.
#[test]
fn calls_with_a_million_entries_do_not_block_the_master() {
    simulate_api(|fixture| async move {
        let mut stream = fixture.subscribe(ops()).await;
        let id = stream.framework();
        let role = |number| format!("\"r{number}\"");
        let task = |number| format!(r#"{{"task_id":{{"value":"{number:x}"}}}}"#);
        for (kind, list, status) in [
            ("REVIVE", long_list(["{\"roles\":[", "]}"], role), 202),
            ("SUPPRESS", long_list(["{\"roles\":[", "]}"], role), 202),
            ("RECONCILE", long_list(["{\"tasks\":[", "]}"], task), 503),
        ] {
            let field = kind.to_lowercase();
            let call = format!(
                r#"{{"type":"{kind}","framework_id":{{"value":"{id}"}},"{field}":{list}}}"#
            );
            let nobody = Subject::default();
            let said = fixture.post_text(call, Some(&stream.id), &nobody);
            let others = async {
                fixture.settle().await;
                fixture.connected(&id).await
            };
            let (said, others) = futures_util::future::join(said, others).await;
            assert_eq!(others, Some(true), "{kind}");
            match said {
                Ok(response) => assert_eq!(response.status().as_u16(), status, "{kind}"),
                Err(refusal) => {
                    assert_eq!(refusal.status.as_u16(), status, "{kind}: {refusal}");
                    assert_contains!(refusal.problem, "read them and try again");
                }
            }
        }
        let revive = json!({ "type": "REVIVE" });
        assert_eq!(fixture.call(&id, &stream.id, revive).await, 202);
        assert_eq!(fixture.connected(&id).await, Some(true));
    });
}
