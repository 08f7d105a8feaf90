//! A framework past its failover timeout, and a scheduler that keeps its id.

use super::*;

// Covers W14.
#[test]
fn expired_framework_fails_or_subscribes_as_new() {
    simulate_driver(|fixture| async move {
        let id = FrameworkId::new("over").unwrap();
        let mut framework = FrameworkInfo::new("user", "test");
        framework.id = Some(id);
        let driver = || SchedulerDriver::new(["master"], framework.clone());
        let locked_out = driver()
            .start(
                &fixture.framework,
                RecordingScheduler(fixture.callbacks.clone()),
            )
            .unwrap();
        let reason = "framework.id is `over`: it is over".to_owned();
        let failed = format!("failed: {reason}");
        assert_eq!(locked_out.ended().await, Ended::Failed { reason });
        assert_eq!(take(&fixture.callbacks), [failed]);

        let anew = driver()
            .resubscribe_as_new()
            .start(
                &fixture.framework,
                RecordingScheduler(fixture.callbacks.clone()),
            )
            .unwrap();
        anew.kill(TaskId::new("of the old one").unwrap(), None)
            .unwrap();
        fixture.settle().await;
        let callbacks = take(&fixture.callbacks);
        assert!(
            callbacks.iter().any(|line| line.starts_with("undelivered")),
            "{callbacks:?}"
        );
        assert!(
            callbacks.iter().any(|line| line == "subscribed m-0000"),
            "{callbacks:?}"
        );
        let requests = take(&fixture.requests);
        assert!(
            requests
                .iter()
                .any(|line| line.starts_with(r#"subscribe "over""#)),
            "{requests:?}"
        );
        assert!(
            requests
                .iter()
                .any(|line| line.starts_with(r#"subscribe "" "#)),
            "{requests:?}"
        );
        assert!(
            !requests.iter().any(|line| line.starts_with("kill")),
            "{requests:?}"
        );
    });
}
