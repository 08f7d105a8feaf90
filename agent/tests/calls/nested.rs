//! Calls about nested containers, without processes.

use std::pin::pin;

use futures_util::FutureExt;

use super::*;

fn call(kind: &str, body: Value) -> axum::extract::Request {
    let call = json!({ "type": kind, kind.to_lowercase(): body });
    request("POST", "/api/v1", JSON, call.to_string())
}

/// SPEC 5.6.
#[test]
fn kill_before_the_sandbox_is_made_is_not_lost() {
    world(FixtureOptions::default(), |world| async move {
        let (routes, _) = running(&world).await;
        let (_, containers) = fetch(&routes, request("GET", "/containers", JSON, "")).await;
        let containers: Value = serde_json::from_str(&containers).unwrap();
        let parent = json!({ "value": containers[0]["container_id"] });
        let id = json!({ "value": "early", "parent": parent });
        let ask = async |kind: &str, body| fetch(&routes, call(kind, body)).await;
        let launched = world.launcher.launched.lock().unwrap().len();
        world.node.slow_blocking(Duration::from_secs(2));
        let launch = json!({ "container_id": id, "command": { "value": "true" } });
        let mut launch = pin!(ask("LAUNCH_NESTED_CONTAINER", launch));
        assert!(launch.as_mut().now_or_never().is_none());
        world.node.clock().settle().await;
        let about = json!({ "container_id": id });
        let mut wait = pin!(ask("WAIT_NESTED_CONTAINER", about.clone()));
        assert!(wait.as_mut().now_or_never().is_none());
        let killed = ask("KILL_NESTED_CONTAINER", about.clone()).await;
        assert_eq!(killed, (200, String::new()));
        let end = "Container destroyed during preparing".to_owned();
        assert_eq!(launch.await, (400, end));
        assert_eq!(world.launcher.launched.lock().unwrap().len(), launched);
        let ended = json!({ "type": "WAIT_NESTED_CONTAINER", "wait_nested_container": {} });
        let (status, waited) = wait.await;
        assert_eq!(
            (status, serde_json::from_str(&waited).ok()),
            (200, Some(ended))
        );
        assert_eq!(ask("KILL_NESTED_CONTAINER", about).await.0, 404);
    });
}
