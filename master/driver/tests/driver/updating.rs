//! Updates of a subscribed framework.

use super::*;

/// Refuses the name `taken`, and `later` once.
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
fn framework_update_survives_resubscription() {
    simulate_driver(|fixture| async move {
        let driver = fixture.drive();
        fixture.settle().await;
        take(&fixture.callbacks);
        take(&fixture.requests);
        let become_named = |name: &str| {
            let info = FrameworkInfo::new("user", name);
            let roles = BTreeSet::from([format!("{name}-role")]);
            driver.update(info, Wants::suppressing(roles)).unwrap();
        };
        become_named("taken");
        fixture.settle().await;
        assert_eq!(
            take(&fixture.callbacks),
            [r#"updated Err("framework.name is `taken`")"#]
        );
        become_named("later");
        fixture.pass(60).await;
        receives(&fixture.callbacks, "updated Ok(())");
        assert_eq!(take(&fixture.requests).len(), 3, "one was repeated");
        become_named("next");
        become_named("last");
        fixture.settle().await;
        // Only the newest counts.
        receives(&fixture.callbacks, "updated Ok(())");
        take(&fixture.requests);
        fixture.network.sever("master", "framework");
        fixture.settle().await;
        fixture.network.heal("master", "framework");
        fixture.pass(60).await;
        let again = take(&fixture.requests);
        assert_contains!(again[0], r#"suppressed ["last-role"]"#);
    });
}
