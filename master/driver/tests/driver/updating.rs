//! A framework that becomes something else while it is subscribed.

use super::*;

/// Takes any name but `taken`; at `later` it has another answer the next time.
impl Handler<UpdateFramework> for Master {
    type Result = MessageResult<UpdateFramework>;
    fn handle(&mut self, message: UpdateFramework, ctx: &mut Context<Self>) -> Self::Result {
        let name = &message.framework.name;
        self.note(format!("update {name} at {}", ctx.clock().now_secs()));
        let reason = format!("framework.name is `{name}`");
        MessageResult(match name.as_str() {
            "taken" => Err(SubscriptionRefused::Never { reason }),
            "later" if !std::mem::replace(&mut self.asked_later, true) => {
                Err(SubscriptionRefused::NotNow { reason })
            }
            _ => Ok(()),
        })
    }
}

/// SPEC 2.2, UPDATE_FRAMEWORK.
#[test]
fn what_the_framework_becomes_is_asked_of_the_master_and_said_again_when_it_subscribes() {
    rehearse_network(|network| async move {
        let stage = Stage::new(network);
        let driver = stage.drive();
        stage.settle().await;
        take(&stage.told);
        take(&stage.asked);
        let become_named = |name: &str| {
            let info = FrameworkInfo::new("user", name);
            let roles = BTreeSet::from([format!("{name}-role")]);
            driver.update(info, Wants::but_not(roles)).unwrap();
        };
        become_named("taken");
        stage.settle().await;
        assert_eq!(
            take(&stage.told),
            [r#"updated Err("framework.name is `taken`")"#]
        );
        become_named("later");
        stage.pass(60).await;
        assert_eq!(take(&stage.told), ["updated Ok(())"]);
        assert_eq!(take(&stage.asked).len(), 3, "one was asked twice");
        become_named("next");
        become_named("last");
        stage.settle().await;
        assert_eq!(
            take(&stage.told),
            ["updated Ok(())"],
            "only the newest counts"
        );
        take(&stage.asked);
        stage.network.sever("master", "framework");
        stage.settle().await;
        stage.network.heal("master", "framework");
        stage.pass(60).await;
        let again = take(&stage.asked);
        assert!(
            again[0].contains(r#"suppressed ["last-role"]"#),
            "{again:?}"
        );
    });
}
