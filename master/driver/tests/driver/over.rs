//! A framework that is over, and its scheduler that keeps the id.

use super::*;

/// W14.
#[test]
fn a_framework_that_is_over_fails_or_begins_anew_as_it_likes() {
    rehearse_network(|network| async move {
        let stage = Stage::new(network);
        let id = FrameworkId::new("over").unwrap();
        let mut framework = FrameworkInfo::new("user", "test");
        framework.id = Some(id);
        let driver = || SchedulerDriver::new(["master"], framework.clone());
        let locked_out = driver()
            .start(&stage.framework, Notes(stage.told.clone()))
            .unwrap();
        let reason = "framework.id is `over`: it is over".to_owned();
        let failed = format!("failed: {reason}");
        assert_eq!(locked_out.ended().await, Ended::Failed { reason });
        assert_eq!(take(&stage.told), [failed]);

        let anew = driver()
            .or_anew()
            .start(&stage.framework, Notes(stage.told.clone()))
            .unwrap();
        anew.kill(TaskId::new("of the old one").unwrap(), None)
            .unwrap();
        stage.settle().await;
        let told = take(&stage.told);
        assert!(
            told.iter().any(|line| line.starts_with("undelivered")),
            "{told:?}"
        );
        assert!(
            told.iter().any(|line| line == "subscribed m-0000"),
            "{told:?}"
        );
        let asked = take(&stage.asked);
        assert!(
            asked
                .iter()
                .any(|line| line.starts_with(r#"subscribe "over""#)),
            "{asked:?}"
        );
        assert!(
            asked
                .iter()
                .any(|line| line.starts_with(r#"subscribe "" "#)),
            "{asked:?}"
        );
        assert!(
            !asked.iter().any(|line| line.starts_with("kill")),
            "{asked:?}"
        );
    });
}
