//! Stories of what is much: it is asked, answered and taken in parts, and neither the master nor a stream has too much of it at once (W4).

use ::http::rehearsal::very_many;
use protocol::message::registration::{Held, RunningTask};
use protocol::{AgentId, CommandInfo, FrameworkInfo, TaskId, TaskInfo, TaskState};
use resources::Resources;

use super::offers::ops;
use super::*;

/// So many tasks of this framework, all of which run, with long ids.
fn running(id: &str, many: usize) -> Held {
    let framework_id = FrameworkId::new(id).unwrap();
    let resources: Resources = "cpus:0.001".parse().unwrap();
    let long = "x".repeat(245);
    let task = |number: usize| RunningTask {
        framework_id: framework_id.clone(),
        info: TaskInfo {
            name: "web".into(),
            task_id: TaskId::new(format!("{long}-{number}")).unwrap(),
            agent_id: AgentId::new("a").unwrap(),
            resources: resources.clone(),
            command: Some(CommandInfo::shell("true")),
            executor: None,
            data: Vec::new(),
            kill_policy: None,
            labels: Default::default(),
        },
        state: TaskState::Running,
    };
    Held {
        tasks: (0..many).map(task).collect(),
        executors: Vec::new(),
        frameworks: vec![FrameworkInfo {
            id: Some(framework_id.clone()),
            ..FrameworkInfo::new("nobody", "web")
        }],
    }
}

impl Stream {
    /// How many updates can be read now. What they say is not looked at, since that takes long of so many.
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

impl Stage {
    /// Says this, and reads meanwhile: the call's status, and how many updates came.
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
        let books = self.master.ask(TakeSnapshot, PATIENCE).await.unwrap();
        crate::http::metrics(&books, self.hall.node.clock().wall())[name]
    }
}

/// SPEC 2.2 RECONCILE without tasks. As many answers in one turn would find no room with their subscriber, which has some for 65,536, and they are more than the 32 MiB that it may
/// hold back before it is told of others.
#[test]
fn whoever_has_very_many_tasks_is_told_how_all_of_them_are_as_he_reads() {
    rehearse(|node| async move {
        let stage = Stage::new(&node).await;
        let mut stream = stage.subscribe(web()).await;
        let id = stream.framework();
        let many = 80_000;
        stage.agent_with(running(&id, many)).await;
        stage.settle().await;
        assert_eq!(stream.read(), Vec::<String>::new());
        let all = || json!({ "type": "RECONCILE", "reconcile": {} });
        // Nobody reads: he is not cut off for what he has asked for.
        assert_eq!(stage.call(&id, &stream.id, all()).await, 503);
        assert_eq!(stage.connected(&id).await, Some(true));
        let told = stream.updates();
        assert!((many / 2..many).contains(&told), "{told}");
        let told = stage.call_and_read(&id, &mut stream, all()).await;
        assert_eq!(told, (202, many));
        assert_eq!(stage.connected(&id).await, Some(true));
        // Each was one question, whatever parts it was answered in.
        let counted = stage.counted_of("master/messages_reconcile_tasks");
        assert_eq!(counted.await, 2.0);
    });
}

/// SPEC 2.2 DECLINE, ACCEPT.
#[test]
fn very_many_offers_are_declined_in_parts_and_taken_by_nobody() {
    rehearse(|node| async move {
        let stage = Stage::new(&node).await;
        let agent = stage.agent().await;
        let mut stream = stage.subscribe(ops()).await;
        let id = stream.framework();
        let offer = stage.offer(&mut stream, &id, &agent.id, "cpus:1").await;
        let mut ids: Vec<Value> = (0..25_000)
            .map(|id| json!({ "value": id.to_string() }))
            .collect();
        ids.push(offer["id"].clone());
        let offers = async || {
            let books = stage.master.ask(TakeSnapshot, PATIENCE).await.unwrap();
            books.offers.iter().count()
        };
        let accept = json!({ "type": "ACCEPT", "accept": { "offer_ids": ids } });
        assert_eq!(stage.call(&id, &stream.id, accept).await, 400);
        assert_eq!(offers().await, 1);
        let decline = json!({ "type": "DECLINE", "decline": { "offer_ids": ids } });
        assert_eq!(stage.call(&id, &stream.id, decline).await, 202);
        assert_eq!(offers().await, 0);
        let counted = stage.counted_of("master/messages_decline_offers");
        assert_eq!(
            counted.await,
            3.0,
            "between the parts the master hears others"
        );
    });
}

/// SPEC 2.1: a million entries that mean something. Nobody reads the answers meanwhile.
#[test]
fn calls_of_a_million_entries_are_answered_and_the_master_hears_others_meanwhile() {
    rehearse(|node| async move {
        let stage = Stage::new(&node).await;
        let mut stream = stage.subscribe(ops()).await;
        let id = stream.framework();
        let role = |number| format!("\"r{number}\"");
        let task = |number| format!(r#"{{"task_id":{{"value":"{number:x}"}}}}"#);
        for (kind, list, status) in [
            ("REVIVE", very_many(["{\"roles\":[", "]}"], role), 202),
            ("SUPPRESS", very_many(["{\"roles\":[", "]}"], role), 202),
            ("RECONCILE", very_many(["{\"tasks\":[", "]}"], task), 503),
        ] {
            let field = kind.to_lowercase();
            let call = format!(
                r#"{{"type":"{kind}","framework_id":{{"value":"{id}"}},"{field}":{list}}}"#
            );
            let nobody = Subject::default();
            let said = stage.post_text(call, Some(&stream.id), &nobody);
            let others = async {
                stage.settle().await;
                stage.connected(&id).await
            };
            let (said, others) = futures_util::future::join(said, others).await;
            assert_eq!(others, Some(true), "{kind}");
            match said {
                Ok(response) => assert_eq!(response.status().as_u16(), status, "{kind}"),
                Err(refusal) => {
                    assert_eq!(refusal.status.as_u16(), status, "{kind}: {refusal}");
                    assert!(
                        refusal.problem.contains("read them, and try again"),
                        "{refusal}"
                    );
                }
            }
        }
        let revive = json!({ "type": "REVIVE" });
        assert_eq!(stage.call(&id, &stream.id, revive).await, 202);
        assert_eq!(stage.connected(&id).await, Some(true));
    });
}
