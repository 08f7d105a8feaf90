//! Tests of streams and calls: a real master whose allocator grants nothing, in virtual time.
//!
//! | module | contents |
//! |---|---|
//! | `counters` | counters of a framework's calls and events |
//! | `forbidden` | subscriptions and updates that ACLs forbid |
//! | `many` | large calls, handled in parts |
//! | `offers` | offers over HTTP: demands, conversions, inverse offers |
//! | `rejected` | calls that are invalid in part or as a whole |
//! | `tasks` | tasks over HTTP: messages to agents and events for frameworks |
//! | `updates` | updates of frameworks, and suppressed roles |

mod counters;
mod forbidden;
mod many;
mod offers;
mod rejected;
mod tasks;
mod updates;

use std::time::Duration;

use authority::Subject;
use axum::body::{Body, BodyDataStream};
use futures_util::{FutureExt, StreamExt};
use module_api::AllocatorRef;
use runtime::testing::simulate;
use serde_json::{Value, json};
use testkit::{assert_contains, assert_starts, rows};
use v1::recordio::Decoder;
use v1::schema::scheduler::Event;
use v1::{Limits, form};

use super::*;
use crate::config::Config;
use crate::registry::{MemoryRegistry, Registry};

/// A page with its master.
struct Fixture {
    api: SchedulerApi,
    local: LocalLeader,
    master: Handle<Master>,
}

/// Runs a test with an API without agents and frameworks.
fn simulate_api<F: Future>(test: impl FnOnce(Fixture) -> F) {
    simulate(|node| async move {
        test(Fixture::new(&node).await).await;
    });
}

impl Fixture {
    async fn new(node: &Node) -> Self {
        Self::with(node, Config::default()).await
    }

    async fn with(node: &Node, config: Config) -> Self {
        Self::over(node, config, Box::new(MemoryRegistry::new())).await
    }

    async fn over(node: &Node, config: Config, registry: Box<dyn Registry>) -> Self {
        let nobody = Pid::new("allocator", node.id().clone(), 0);
        let allocator = AllocatorRef::new(node.refer(nobody));
        let started = crate::start(node, config, 0, allocator, registry).unwrap();
        node.clock().settle().await;
        let api = SchedulerApi {
            node: node.clone(),
            streams: EventStreams::new(node),
            subscriptions: SubscriptionTable::default(),
        };
        Self {
            api,
            local: LocalLeader::of(&started.master),
            master: started.master,
        }
    }

    async fn settle(&self) {
        self.api.node.clock().settle().await;
    }

    async fn pass(&self, seconds: u64) {
        let clock = self.api.node.clock();
        clock.advance(Duration::from_secs(seconds)).await;
    }

    /// The answer to this body on this stream from this caller.
    async fn post(
        &self,
        body: &Value,
        stream_id: Option<&str>,
        subject: &Subject,
    ) -> Result<Response, Refusal> {
        self.post_text(body.to_string(), stream_id, subject).await
    }

    async fn post_text(
        &self,
        body: String,
        stream_id: Option<&str>,
        subject: &Subject,
    ) -> Result<Response, Refusal> {
        let mut request =
            Request::post("/api/v1/scheduler").header("Content-Type", "application/json");
        if let Some(stream_id) = stream_id {
            request = request.header(form::STREAM_ID, stream_id);
        }
        let mut request = request.body(Body::from(body)).unwrap();
        request.extensions_mut().insert(subject.clone());
        page(
            State(self.api.clone()),
            Extension(self.local.clone()),
            request,
        )
        .await
    }

    async fn subscribe(&self, framework: Value) -> Stream {
        let (call, nobody) = (subscribe(framework), Subject::default());
        Stream::of(self.post(&call, None, &nobody).await.unwrap())
    }

    /// The answer to a call.
    async fn answer(
        &self,
        id: &str,
        stream_id: &str,
        mut call: Value,
    ) -> Result<Response, Refusal> {
        call["framework_id"] = json!({ "value": id });
        self.post(&call, Some(stream_id), &Subject::default()).await
    }

    /// The status of a call.
    async fn call(&self, id: &str, stream_id: &str, call: Value) -> u16 {
        status(self.answer(id, stream_id, call).await)
    }

    /// The status and the words with which a call is refused.
    async fn refused(&self, id: &str, stream_id: &str, call: Value) -> (u16, String) {
        let refusal = self.answer(id, stream_id, call).await.unwrap_err();
        (refusal.status.as_u16(), refusal.problem)
    }

    /// Whether the master knows the framework, and holds it for connected.
    async fn connected(&self, id: &str) -> Option<bool> {
        let state = self.master.ask(TakeSnapshot, PATIENCE).await.unwrap();
        let known = state.frameworks.get(&FrameworkId::new(id).unwrap());
        known.map(|framework| framework.is_connected())
    }
}

fn status(answer: Result<Response, Refusal>) -> u16 {
    let status = answer.map_or_else(|refusal| refusal.status, |response| response.status());
    status.as_u16()
}

fn subscribe(framework: Value) -> Value {
    let mut call = json!({"type": "SUBSCRIBE", "subscribe": {"framework_info": framework}});
    if let Some(id) = framework.get("id") {
        call["framework_id"] = id.clone();
    }
    call
}

/// A framework that may be away for a minute.
fn web() -> Value {
    json!({"user": "nobody", "name": "web", "failover_timeout": 60.0})
}

fn again(id: &str) -> Value {
    let mut framework = web();
    framework["id"] = json!({ "value": id });
    framework
}

/// A stream and its unread bytes.
struct Stream {
    id: String,
    body: BodyDataStream,
    decoder: Decoder,
}

impl Stream {
    fn of(response: Response) -> Self {
        assert_eq!(response.status(), StatusCode::OK);
        let id = response.headers()[form::STREAM_ID].to_str().unwrap();
        Self {
            id: id.to_owned(),
            body: response.into_body().into_data_stream(),
            decoder: Decoder::new(1 << 20),
        }
    }

    /// Readable events by type and text; the last is `END` if the stream has ended.
    fn read(&mut self) -> Vec<String> {
        let (events, has_ended) = self.events();
        let mut read: Vec<String> = events.iter().map(told).collect();
        read.extend(has_ended.then(|| "END".to_owned()));
        read
    }

    /// The events that can be read now, and whether there will be no more.
    fn events(&mut self) -> (Vec<Event>, bool) {
        let mut events = Vec::new();
        while let Some(piece) = self.body.next().now_or_never() {
            let Some(piece) = piece else {
                return (events, true);
            };
            let piece = piece.unwrap();
            let mut rest = &piece[..];
            while let Some(record) = self.decoder.next(&mut rest).unwrap() {
                events.push(v1::json::read(&record, Limits::default()).unwrap());
            }
        }
        (events, false)
    }

    /// The framework's id from the first event.
    fn framework(&mut self) -> String {
        let first = self.read().remove(0);
        first.strip_prefix("SUBSCRIBED ").unwrap().to_owned()
    }
}

fn told(event: &Event) -> String {
    let value: Value = serde_json::from_slice(&v1::json::write(event)).unwrap();
    let more = [
        &value["subscribed"]["framework_id"]["value"],
        &value["error"]["message"],
    ];
    let more = more.iter().find_map(|one| one.as_str()).unwrap_or("");
    let kind = value["type"].as_str().unwrap();
    format!("{kind} {more}").trim_end().to_owned()
}

/// SPEC 2.2 SUBSCRIBE, 2.3.
// Covers 2.2 SUBSCRIBE; 2.3 SUBSCRIBED, HEARTBEAT.
#[test]
fn stream_begins_with_subscribed_and_sends_heartbeats() {
    simulate_api(|fixture| async move {
        let mut stream = fixture.subscribe(web()).await;
        assert_eq!(stream.id.len(), 36);
        let first = stream.read();
        assert_eq!(first[1..], ["HEARTBEAT"], "as from Mesos, one at once");
        let id = first[0].strip_prefix("SUBSCRIBED ").unwrap().to_owned();
        assert_eq!(fixture.connected(&id).await, Some(true));
        fixture.pass(15).await;
        assert_eq!(stream.read(), ["HEARTBEAT"]);
        fixture.pass(30).await;
        assert_eq!(stream.read(), ["HEARTBEAT", "HEARTBEAT"]);
    });
}

/// SPEC 3.13, scheduler failover; 2.1, the id of a stream.
// Covers 2.2 SUBSCRIBE; 2.3 ERROR; 3.13 Scheduler failover.
#[test]
fn newest_subscription_replaces_the_previous() {
    simulate_api(|fixture| async move {
        let mut old = fixture.subscribe(web()).await;
        let id = old.framework();
        let mut new = fixture.subscribe(again(&id)).await;
        assert_eq!(new.framework(), id);
        fixture.settle().await;
        assert_eq!(old.read(), ["ERROR Framework failed over", "END"]);
        let revive = || json!({"type": "REVIVE"});
        assert_eq!(fixture.call(&id, &old.id, revive()).await, 400);
        assert_eq!(fixture.call(&id, &new.id, revive()).await, 202);
        assert_eq!(fixture.connected(&id).await, Some(true));
        fixture.pass(90).await;
        assert_eq!(
            new.read().len(),
            6,
            "the end of the old one changes nothing"
        );
        assert_eq!(fixture.connected(&id).await, Some(true));
    });
}

/// SPEC 2.2, failover.
// Covers 2.2 Failover.
#[test]
fn broken_stream_leaves_the_failover_timeout() {
    simulate_api(|fixture| async move {
        let mut stream = fixture.subscribe(web()).await;
        let (id, stream_id) = (stream.framework(), stream.id.clone());
        drop(stream);
        fixture.settle().await;
        assert_eq!(fixture.connected(&id).await, Some(false));
        let revive = || json!({"type": "REVIVE"});
        let away = "Framework is not subscribed".to_owned();
        let refused = fixture.refused(&id, &stream_id, revive()).await;
        assert_eq!(refused, (403, away));
        let mut back = fixture.subscribe(again(&id)).await;
        assert_eq!(back.framework(), id);
        drop(back);
        fixture.pass(61).await;
        assert_eq!(fixture.connected(&id).await, None);
        assert_eq!(fixture.call(&id, &stream_id, revive()).await, 400);
        // It may not return; the stream has Mesos' error.
        let mut late = fixture.subscribe(again(&id)).await;
        let read = late.read();
        assert!(read[0] == "ERROR Framework has been removed", "{read:?}");
        assert_eq!(read[1..], ["END"]);
        // Nothing is left of any of them.
        fixture.settle().await;
        assert_eq!(fixture.api.subscriptions.slots_taken(), 0);
    });
}

// Covers W4; 2.3 ERROR.
#[test]
fn scheduler_that_does_not_read_is_cut_off() {
    simulate_api(|fixture| async move {
        let mut stream = fixture.subscribe(web()).await;
        let id = stream.framework();
        fixture.pass(75).await;
        assert_eq!(fixture.connected(&id).await, Some(true));
        fixture.pass(30).await;
        assert_eq!(fixture.connected(&id).await, Some(false));
        assert_eq!(
            stream.read(),
            [
                "ERROR Disconnected: events wait to be read for more than 75 s",
                "END"
            ]
        );
    });
}

/// W4: otherwise requests and answers would wait in mailboxes with room for thousands.
// Covers W4.
#[test]
fn reconciliation_is_answered_after_its_events_are_written() {
    simulate(|node| async move {
        let fixture = Fixture::new(&node).await;
        let mut stream = fixture.subscribe(web()).await;
        let id = stream.framework();
        let task = |number| json!({ "task_id": { "value": format!("nobody-has-this-{number}") } });
        for many in [3, 2000, 25_000] {
            let tasks: Vec<Value> = (0..many).map(task).collect();
            let call = json!({ "type": "RECONCILE", "reconcile": { "tasks": tasks } });
            assert_eq!(fixture.call(&id, &stream.id, call).await, 202);
            // It is not too slow because there is much for it in one moment.
            assert_eq!(stream.read(), vec!["UPDATE"; many]);
        }
        // Large questions are split, and the master handles other messages between the parts.
        let state = fixture.master.ask(TakeSnapshot, PATIENCE).await.unwrap();
        let metrics = crate::api::metrics(&state, node.clock().wall());
        assert_eq!(metrics["master/messages_reconcile_tasks"], 5.0);
    });
}

/// SPEC 3.13, master failover: readers look for the next master.
// Covers 3.13 Master failover.
#[test]
fn scheduler_streams_end_with_their_master() {
    simulate(|node| async move {
        let fixture = Fixture::new(&node).await;
        let mut stream = fixture.subscribe(web()).await;
        let (id, stream_id) = (stream.framework(), stream.id.clone());
        node.stop_now(&fixture.master.pid());
        fixture.settle().await;
        assert_eq!(stream.read(), ["END"]);
        let kill = json!({"type": "KILL", "kill": {"task_id": {"value": "t"}}});
        assert_eq!(fixture.call(&id, &stream_id, kill).await, 503);
        let (late, nobody) = (subscribe(again(&id)), Subject::default());
        assert_eq!(status(fixture.post(&late, None, &nobody).await), 503);
    });
}

/// SPEC 2.1.
// Covers 2.2 SUBSCRIBE.
#[test]
fn unacceptable_calls_have_a_status_and_a_reason() {
    simulate_api(|fixture| async move {
        let mut stream = fixture.subscribe(web()).await;
        let id = json!({ "value": stream.framework() });
        let stranger = fixture.subscribe(web()).await.id;
        // The content of a call, its stream and its caller.
        let cases = r#"
            "REVIVE" | none | nobody | Expecting 'framework_id' to be present
            "LAUNCH","framework_id":ID | none | nobody | Expecting 'type' to be present
            "KILL","framework_id":ID | own | nobody | Expecting 'kill' to be present
            "REQUEST","framework_id":ID | own | nobody | Expecting 'request' to be present
            "REVIVE","framework_id":ID | none | nobody | All non-subscribe calls should include the 'Mesos-Stream-Id' header
            "REVIVE","framework_id":ID | not this | nobody | The stream ID 'not this' included in this request didn't match the stream ID currently associated with framework ID
            "REVIVE","framework_id":ID | stranger | nobody | didn't match the stream ID currently associated with framework ID
            "REVIVE","framework_id":ID | own | ops | Authenticated principal 'ops' does not match principal '' set in `FrameworkInfo`
            "REVIVE","framework_id":{"value":"f"} | own | nobody | Framework cannot be found
            "SUBSCRIBE","subscribe":{"framework_info":WEB} | own | nobody | Subscribe calls should not include the 'Mesos-Stream-Id' header
            "SUBSCRIBE" | none | nobody | Expecting 'subscribe' to be present
            "SUBSCRIBE","subscribe":{"framework_info":DEV} | none | ops | Authenticated principal 'ops' does not match principal 'dev'
        "#;
        let mut dev = web();
        dev["principal"] = json!("dev");
        for [content, stream_id, subject, words] in rows(cases) {
            let content = content.replace("ID", &id.to_string());
            let content = content.replace("WEB", &web().to_string());
            let body = format!(r#"{{"type":{}}}"#, content.replace("DEV", &dev.to_string()));
            let stream_id = match stream_id {
                "none" => None,
                "own" => Some(&*stream.id),
                "stranger" => Some(&*stranger),
                other => Some(other),
            };
            let subject = match subject {
                "nobody" => Subject::default(),
                name => Subject::named(name),
            };
            let refusal = fixture.post_text(body.clone(), stream_id, &subject).await;
            let refusal = refusal.unwrap_err();
            assert_eq!(refusal.status.as_u16(), 400, "{body}: {refusal}");
            assert!(refusal.problem.contains(words), "{body}: {refusal}");
        }
        // None of them has disturbed it.
        fixture.pass(15).await;
        assert_eq!(stream.read(), ["HEARTBEAT"]);
    });
}

/// SPEC 2.2 TEARDOWN: the stream ends without an error for the caller.
// Covers 2.2 TEARDOWN; 2.1 409.
#[test]
fn leaving_framework_gets_no_error_and_changes_nothing() {
    simulate_api(|fixture| async move {
        let mut stream = fixture.subscribe(web()).await;
        let id = stream.framework();
        let update = |name: &str| {
            let mut framework = again(&id);
            framework["name"] = json!(name);
            json!({"type": "UPDATE_FRAMEWORK", "update_framework": {"framework_info": framework}})
        };
        assert_eq!(fixture.call(&id, &stream.id, update("new")).await, 200);
        let mut other_user = update("new");
        other_user["update_framework"]["framework_info"]["user"] = json!("root");
        assert_eq!(fixture.call(&id, &stream.id, other_user).await, 400);
        let state = fixture.master.ask(TakeSnapshot, PATIENCE).await.unwrap();
        let known = state.frameworks.get(&FrameworkId::new(&id).unwrap());
        assert_eq!(known.unwrap().info.name, "new");

        let teardown = json!({"type": "TEARDOWN"});
        assert_eq!(fixture.call(&id, &stream.id, teardown).await, 202);
        let raced = fixture.refused(&id, &stream.id, update("newer")).await;
        let over = format!("framework_id is `{id}`: expected one that is not being removed");
        assert_eq!(raced, (409, over));
        fixture.settle().await;
        assert_eq!(stream.read(), ["END"]);
        assert_eq!(fixture.connected(&id).await, None);
    });
}

/// The scheduler is still there: what ends its stream later is an error for it.
// Covers 2.2 TEARDOWN.
#[test]
fn failed_teardown_leaves_the_stream_as_it_is() {
    simulate_api(|fixture| async move {
        let mut stream = fixture.subscribe(web()).await;
        let id = stream.framework();
        // The master has no turn before its mailbox is full and the call is refused.
        while fixture.master.tell(TakeSnapshot).is_ok() {}
        let teardown = || json!({"type": "TEARDOWN"});
        assert_eq!(fixture.call(&id, &stream.id, teardown()).await, 503);
        fixture.settle().await;
        assert_eq!(fixture.connected(&id).await, Some(true));
        let mut new = fixture.subscribe(again(&id)).await;
        assert_eq!(new.framework(), id);
        fixture.settle().await;
        assert_eq!(stream.read(), ["ERROR Framework failed over", "END"]);
        assert_eq!(fixture.call(&id, &new.id, teardown()).await, 202);
        fixture.settle().await;
        assert_eq!(new.read(), ["END"]);
    });
}

/// SPEC 2.2: unsupported calls, and calls about unknown objects, are accepted.
// Covers 2.2 ACCEPT_INVERSE_OFFERS, DECLINE_INVERSE_OFFERS; 2.2 REQUEST.
#[test]
fn requests_and_answers_to_inverse_offers_are_taken() {
    simulate_api(|fixture| async move {
        let mut stream = fixture.subscribe(web()).await;
        let id = stream.framework();
        for call in [
            json!({"type": "REQUEST", "request": {"requests": []}}),
            json!({"type": "ACCEPT_INVERSE_OFFERS", "accept_inverse_offers": {"inverse_offer_ids": []}}),
            json!({"type": "DECLINE_INVERSE_OFFERS", "decline_inverse_offers": {"inverse_offer_ids": []}}),
        ] {
            assert_eq!(
                fixture.call(&id, &stream.id, call.clone()).await,
                202,
                "{call}"
            );
        }
        fixture.settle().await;
        let state = fixture.master.ask(TakeSnapshot, PATIENCE).await.unwrap();
        assert_eq!(state.counters.get("master/messages_resource_request"), 1);
    });
}

/// Two connections of one framework are two server tasks; calls keep the order of reading.
#[test]
fn calls_are_applied_in_reading_order() {
    simulate_api(|fixture| async move {
        let mut stream = fixture.subscribe(web()).await;
        let id = stream.framework();
        let said = (0..200).map(|number| {
            let kind = ["SUPPRESS", "REVIVE"][usize::from(number % 3 == 0)];
            fixture.call(&id, &stream.id, json!({ "type": kind }))
        });
        let taken = futures_util::future::join_all(said).await;
        assert!(taken.iter().all(|status| *status == 202));
        let state = fixture.master.ask(TakeSnapshot, PATIENCE).await.unwrap();
        let known = state.frameworks.get(&FrameworkId::new(&id).unwrap());
        // The last, number 199, was a SUPPRESS, the one before a REVIVE.
        assert_eq!(known.unwrap().wants.suppressed_roles.len(), 1);
    });
}
