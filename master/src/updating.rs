//! Updating: a framework becomes something else, or wants other offers, without subscribing anew (SPEC 2.2 UPDATE_FRAMEWORK).
//!
//! Pure decisions on [`Books`]. The registry stands between `prepare_update` and the other half, as with a subscription. What may never
//! change (user, principal, checkpointing) stays; offers that are out stay, but for those of roles that were left.

use module_api::allocator::FrameworkAdded;
use protocol::FrameworkId;
use protocol::message::scheduler::{SubscriptionRefused, UpdateFramework};
use resources::Invalid;

use crate::books::Books;
use crate::dealings::Dealing;
use crate::effects::{Effects, Tell, ToAllocator};
use crate::subscription::FrameworkPrepared;
use crate::validation;

impl Books {
    /// Whether the framework may become this, and what must be recorded first.
    pub fn prepare_update(
        &mut self,
        message: &UpdateFramework,
    ) -> Result<FrameworkPrepared, SubscriptionRefused> {
        self.counters.count("master/messages_update_framework");
        let never = |invalid: Invalid| SubscriptionRefused::Never {
            reason: invalid.to_string(),
        };
        let framework_id = message.framework_id.clone();
        self.frameworks.dealt(&framework_id, Dealing::Update, 1);
        let Some(known) = self.frameworks.get(&framework_id) else {
            let expected = "a framework that is subscribed";
            return Err(never(Invalid::new("framework_id", framework_id, expected)));
        };
        let info = message.framework.clone();
        let same = |field, given: &str, own: &str| match given == own {
            true => Ok(()),
            false => {
                let expected = format!("`{own}`, which cannot change");
                Err(Invalid::new(field, given, expected))
            }
        };
        let unchanged = || {
            let id = info.id.as_ref().unwrap_or(&framework_id);
            same("framework.id", id.as_str(), framework_id.as_str())?;
            same("framework.user", &info.user, &known.info.user)?;
            let principal = |of: &Option<String>| of.clone().unwrap_or_default();
            let (given, own) = (principal(&info.principal), principal(&known.info.principal));
            same("framework.principal", &given, &own)?;
            let checkpoint = |on: bool| if on { "true" } else { "false" };
            let (given, own) = (
                checkpoint(info.checkpoint),
                checkpoint(known.info.checkpoint),
            );
            same("framework.checkpoint", given, own)?;
            validation::framework(&info, &message.wants, &self.policy)
        };
        unchanged().map_err(never)?;
        Ok(FrameworkPrepared::admission(framework_id, info))
    }

    /// The registry knows what the framework is now.
    pub fn update(
        &mut self,
        prepared: FrameworkPrepared,
        message: UpdateFramework,
        out: &mut Effects,
    ) -> Result<(), SubscriptionRefused> {
        let FrameworkPrepared {
            info, framework_id, ..
        } = prepared;
        let Some(active) = self.frameworks.update(&framework_id, &info, &message.wants) else {
            let reason = "the framework was removed meanwhile".to_owned();
            return Err(SubscriptionRefused::Never { reason });
        };
        self.rescind_of_roles_left(&framework_id, out);
        out.allocator(ToAllocator::FrameworkAdded(Box::new(FrameworkAdded {
            framework_id,
            info,
            wants: message.wants,
            active,
        })));
        Ok(())
    }

    fn rescind_of_roles_left(&mut self, id: &FrameworkId, out: &mut Effects) {
        let Some(framework) = self.frameworks.get(id) else {
            return;
        };
        let roles = &framework.info.roles;
        let offers = self.offers.of_framework(id);
        let left = offers.filter(|offer| !roles.contains(&offer.role));
        let left = left.map(|offer| offer.id.clone()).collect();
        self.rescind(left, out);
    }
}
