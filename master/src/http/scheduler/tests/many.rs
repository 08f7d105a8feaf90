//! Stories of what is much: it is asked, answered and taken in parts, and neither the master nor a stream has too much of it at once (W4).

use protocol::message::registration::{Held, RunningTask};
use protocol::{AgentId, CommandInfo, FrameworkInfo, TaskId, TaskInfo, TaskState};
use resources::Resources;

use super::offers::ops;
use super::*;

/// So many tasks of this framework, all of which run.
fn running(id: &str, many: usize) -> Held {
    let framework_id = FrameworkId::new(id).unwrap();
    let resources: Resources = "cpus:0.001".parse().unwrap();
    let task = |number: usize| RunningTask {
        framework_id: framework_id.clone(),
        info: TaskInfo {
            name: "web".into(),
            task_id: TaskId::new(format!("t{number}")).unwrap(),
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

impl Stage {
    /// Says this, and reads meanwhile: the call's status, and how many events of each kind came.
    async fn call_and_read(
        &self,
        id: &str,
        stream: &mut Stream,
        call: Value,
    ) -> (u16, Vec<(String, usize)>) {
        let stream_id = stream.id.clone();
        let mut said = Box::pin(self.call(id, &stream_id, call));
        let mut told: Vec<(String, usize)> = Vec::new();
        loop {
            let status = said.as_mut().now_or_never();
            self.settle().await;
            for event in stream.read() {
                match told.last_mut() {
                    Some((kind, many)) if *kind == event => *many += 1,
                    _ => told.push((event, 1)),
                }
            }
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

/// SPEC 2.2 RECONCILE without tasks. As many answers in one turn would find no room with their subscriber, which has some for 65,536.
#[test]
fn whoever_has_very_many_tasks_is_told_how_all_of_them_are() {
    rehearse(|node| async move {
        let stage = Stage::new(&node).await;
        let mut stream = stage.subscribe(web()).await;
        let id = stream.framework();
        let many = 70_000;
        stage.agent_with(running(&id, many)).await;
        stage.settle().await;
        assert_eq!(stream.read(), Vec::<String>::new());
        let all = json!({ "type": "RECONCILE", "reconcile": {} });
        let told = stage.call_and_read(&id, &mut stream, all).await;
        assert_eq!(told, (202, vec![("UPDATE".to_owned(), many)]));
        assert_eq!(stage.connected(&id).await, Some(true));
        // It was one question, whatever parts it was answered in.
        let counted = stage.counted_of("master/messages_reconcile_tasks");
        assert_eq!(counted.await, 1.0);
    });
}

/// Half of what a stream may hold back is 32 MiB.
#[test]
fn who_asks_for_more_than_a_stream_may_hold_back_is_answered_as_it_reads() {
    rehearse(|node| async move {
        let stage = Stage::new(&node).await;
        let mut stream = stage.subscribe(web()).await;
        let id = stream.framework();
        let long = "x".repeat(40);
        let task = |number| json!({ "task_id": { "value": format!("{long}-{number}") } });
        let many = 150_000;
        let tasks: Vec<Value> = (0..many).map(task).collect();
        let call = || json!({ "type": "RECONCILE", "reconcile": { "tasks": tasks } });
        // Nobody reads.
        assert_eq!(stage.call(&id, &stream.id, call()).await, 503);
        assert_eq!(stage.connected(&id).await, Some(true));
        let told = stream.read().len();
        assert!((1..many).contains(&told), "{told}");
        let told = stage.call_and_read(&id, &mut stream, call()).await;
        assert_eq!(told, (202, vec![("UPDATE".to_owned(), many)]));
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
