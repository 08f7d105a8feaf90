//! Counters of a framework's calls and events, under Mesos' names (SPEC 3.10).

use std::collections::BTreeMap;

use protocol::AgentId;

use super::offers::ops;
use super::*;

impl Fixture {
    /// The metrics of the only framework, without zeros.
    async fn counted(&self, id: &str) -> BTreeMap<String, u64> {
        let state = self.master.ask(TakeSnapshot, PATIENCE).await.unwrap();
        let metrics = crate::api::metrics(&state, self.api.node.clock().wall());
        let prefix = format!("master/frameworks/web/{id}/");
        let own = metrics.iter().filter_map(|(name, value)| {
            let name = name.strip_prefix(&prefix)?;
            (*value > 0.0).then(|| (name.to_owned(), *value as u64))
        });
        own.collect()
    }
}

fn launch(offer: &Value, agent: &AgentId) -> Value {
    let cpus = json!({ "name": "cpus", "type": "SCALAR", "scalar": { "value": 0.5 } });
    let task = |id: &str, resources: Value| {
        json!({
            "name": id, "task_id": { "value": id }, "agent_id": { "value": agent.as_str() },
            "command": { "value": "true" }, "resources": resources,
        })
    };
    let tasks = json!([
        task("runs", json!([cpus])),
        task("needs-nothing", json!([]))
    ]);
    let operation = json!({ "type": "LAUNCH", "launch": { "task_infos": tasks } });
    json!({ "type": "ACCEPT", "accept": { "offer_ids": [offer["id"]], "operations": [operation] } })
}

/// SPEC 3.10.
#[test]
fn framework_counters_cover_calls_events_and_ends() {
    simulate_api(|fixture| async move {
        let agent = fixture.agent().await;
        let mut stream = fixture.subscribe(ops()).await;
        let id = stream.framework();
        let mut offers = Vec::new();
        for _ in 0..3 {
            offers.push(fixture.offer(&mut stream, &id, &agent.id, "cpus:1").await);
        }
        let decline = json!({ "type": "DECLINE", "decline": { "offer_ids": [offers[0]["id"], { "value": "none" }] } });
        for call in [
            decline,
            launch(&offers[1], &agent.id),
            json!({ "type": "SUPPRESS" }),
            json!({ "type": "REVIVE" }),
            json!({ "type": "REVIVE" }),
            json!({ "type": "RECONCILE", "reconcile": {} }),
            json!({ "type": "REQUEST", "request": { "requests": [] } }),
        ] {
            assert_eq!(
                fixture.call(&id, &stream.id, call.clone()).await,
                202,
                "{call}"
            );
        }
        let mut framework = ops();
        framework["id"] = json!({ "value": id });
        let update = json!({ "type": "UPDATE_FRAMEWORK", "update_framework": { "framework_info": framework } });
        assert_eq!(fixture.call(&id, &stream.id, update).await, 200);
        // Every subscription is counted, and the remaining offer is rescinded.
        let mut new = fixture.subscribe(framework).await;
        new.framework();
        fixture.settle().await;
        let counted = fixture.counted(&id).await;
        let expected = [
            ("calls", 10),
            ("calls/accept", 1),
            ("calls/decline", 1),
            ("calls/reconcile", 1),
            ("calls/request", 1),
            ("calls/revive", 2),
            ("calls/subscribe", 2),
            ("calls/suppress", 1),
            ("calls/update_framework", 1),
            // Subscribed twice, each time with a heartbeat, three offers, a task that is refused
            // and one that is reconciled, and the old stream's end, before which its offer is not
            // rescinded.
            ("events", 10),
            ("events/error", 1),
            ("events/heartbeat", 2),
            ("events/offers", 3),
            ("events/subscribed", 2),
            ("events/update", 2),
            ("offers/accepted", 1),
            ("offers/declined", 1),
            ("offers/held_secs/count", 3),
            ("offers/rescinded", 1),
            ("offers/sent", 3),
            ("operations", 1),
            ("operations/launch", 1),
            ("subscribed", 1),
            ("tasks/active/task_staging", 1),
            ("tasks/terminal/task_error", 1),
        ];
        let expected = expected.map(|(name, count)| (name.to_owned(), count));
        assert_eq!(counted, BTreeMap::from(expected));

        let teardown = json!({ "type": "TEARDOWN" });
        assert_eq!(fixture.call(&id, &new.id, teardown).await, 202);
        fixture.settle().await;
        assert_eq!(fixture.counted(&id).await, BTreeMap::new(), "gone with it");
    });
}

/// SPEC 3.8: `--publish_per_framework_metrics`.
#[test]
fn per_framework_metrics_can_be_disabled() {
    simulate(|node| async move {
        let fixture = Fixture::new(&node).await;
        let mut stream = fixture.subscribe(web()).await;
        let id = stream.framework();
        assert_eq!(fixture.counted(&id).await["calls/subscribe"], 1);
        let state = fixture.master.ask(TakeSnapshot, PATIENCE).await.unwrap();
        let mut state = crate::state::MasterState::clone(&state);
        state.policy.publish_per_framework_metrics = false;
        let metrics = crate::api::metrics(&state, node.clock().wall());
        let of_one = |name: &&String| name.starts_with("master/frameworks/");
        assert_eq!(metrics.keys().find(of_one), None);
    });
}
