//! The books' part on frameworks: who takes part, in which roles, and what they do not want for the present.
//!
//! Pure, like all of the books. A framework that has left a role stays as its client until all that it holds there is recovered.

use std::collections::BTreeSet;

use module_api::allocator::{
    FrameworkActivity, FrameworkAdded, FrameworkRemoved, OfferBudgetSpent, Revived, Suppressed,
};
use module_api::sorter::{Client, Shape};
use protocol::explain::Standing;
use protocol::{Capability, Demand, FrameworkId};
use resources::Role;

use super::{Books, Framework};
use crate::allocator::choice::Choice;
use crate::allocator::clients::{Member, Takes};

impl Books {
    /// A framework may be offered to, or its info has changed. Looked at is what it could be given and has not been asked about: all there is
    /// in a new role, or if it wants or understands something else; of what it was asked about, nothing.
    pub fn framework_added(&mut self, added: FrameworkAdded) {
        let FrameworkAdded {
            framework_id: id,
            info,
            wants,
            active,
        } = added;
        let before = self.frameworks.get(&id);
        let framework = Framework {
            active,
            capabilities: info.capabilities,
            ..before.cloned().unwrap_or_default()
        };
        self.frameworks.insert(id.clone(), framework);
        let sound = |text: &String| {
            Role::new(text)
                .inspect_err(|error| tracing::warn!(%error, "passed over"))
                .ok()
        };
        let roles: BTreeSet<Role> = info.roles.iter().filter_map(sound).collect();
        for role in &roles {
            self.clients.admit(&id, role);
        }
        for client in self.clients.of(&id) {
            let Some(member) = self.clients.get_mut(client) else {
                continue;
            };
            let subscribed = roles.contains(&member.role);
            let suppressed = wants.suppressed_roles.contains(member.role.as_str());
            let unsuppressed = member.suppressed && !suppressed;
            (member.subscribed, member.suppressed) = (subscribed, suppressed);
            let demand = wants.demands.get(member.role.as_str());
            let choice =
                demand.map_or_else(Choice::default, |demand| Choice::new(&member.role, demand));
            let chooses_anew = !member.choice.is_same(&choice);
            if chooses_anew {
                member.choice = choice; // Else agents need not be judged again.
            }
            let shape = shape(&member.role, demand);
            if self.clients.set_shape(client, shape) || chooses_anew {
                self.forget_looks(client);
            }
            self.refresh(client);
            if !subscribed || unsuppressed || !active {
                self.refuse_nothing(client);
            }
            self.clients.release(client);
        }
        self.ask_again_to_leave(&id);
    }

    /// A framework is no more. What it still holds counts until it is recovered or its agent removed.
    pub fn framework_removed(&mut self, removed: &FrameworkRemoved) {
        self.frameworks.remove(&removed.framework_id);
        self.forget_inverse(&removed.framework_id);
        for client in self.clients.of(&removed.framework_id) {
            if let Some(member) = self.clients.get_mut(client) {
                member.subscribed = false;
            }
            self.refresh(client);
            self.refuse_nothing(client);
            self.clients.release(client);
        }
    }

    /// A framework is offered to, or not for the present. If it is again, looked at is what its filters hid and what was looked at without it.
    pub fn framework_activity(&mut self, activity: &FrameworkActivity) {
        let Some(framework) = self.frameworks.get_mut(&activity.framework_id) else {
            return;
        };
        framework.active = activity.active;
        if !activity.active {
            self.drop_inverse_filters(&activity.framework_id);
        }
        for client in self.clients.of(&activity.framework_id) {
            self.refresh(client);
            if !activity.active {
                self.refuse_nothing(client);
            }
        }
        self.ask_again_to_leave(&activity.framework_id);
    }

    /// A framework holds as many unanswered offers as it may, or no longer.
    pub fn offer_budget_spent(&mut self, spent: &OfferBudgetSpent) {
        let Some(framework) = self.frameworks.get_mut(&spent.framework_id) else {
            return;
        };
        framework.budget_spent = spent.most;
        for client in self.clients.of(&spent.framework_id) {
            self.refresh(client);
        }
    }

    /// A framework wants nothing in these roles.
    pub fn suppressed(&mut self, suppressed: &Suppressed) {
        for client in self.named(&suppressed.framework_id, &suppressed.roles) {
            if let Some(member) = self.clients.get_mut(client) {
                member.suppressed = true;
            }
            self.refresh(client);
        }
    }

    /// A framework wants offers in these roles again, its filters there forgotten. Looked at is what they hid, and what was looked at without
    /// it while it wanted none: of all else it was asked before, and whoever revives without end costs nobody anything.
    pub fn revived(&mut self, revived: &Revived) {
        self.drop_inverse_filters(&revived.framework_id);
        for client in self.named(&revived.framework_id, &revived.roles) {
            if let Some(member) = self.clients.get_mut(client) {
                member.suppressed = false;
            }
            self.refresh(client);
            self.refuse_nothing(client);
        }
    }

    /// Recomputes whether a client is offered anything, and has looked at for it what was looked at without it.
    fn refresh(&mut self, client: Client) {
        let Some(member) = self.clients.get(client) else {
            return;
        };
        let framework = self.frameworks.get(&member.framework);
        let takes_part = member.subscribed && self.standing(member).next().is_none();
        let can = |capability: Capability| {
            framework.is_some_and(|framework| framework.capabilities.contains(&capability))
        };
        let takes = Takes {
            gpus: can(Capability::GpuResources),
            remote: can(Capability::RegionAware),
            shared: can(Capability::SharedResources),
            refined: can(Capability::ReservationRefinement),
            // S11: whoever has not asked for revocable resources never sees one.
            revocable: can(Capability::RevocableResources),
        };
        let takes_more = takes.is_more_than(&member.takes);
        if let Some(member) = self.clients.get_mut(client) {
            member.takes = takes;
        }
        if takes_more {
            self.forget_looks(client);
        }
        self.clients
            .set_active(client, [takes_part, takes_part && takes.revocable]);
        self.come_or_go(client, takes_part);
    }

    /// What of its framework keeps a client from every offer.
    pub(in crate::allocator) fn standing(
        &self,
        member: &Member,
    ) -> impl Iterator<Item = Standing> + use<> {
        let framework = self.frameworks.get(&member.framework);
        let active = framework.is_some_and(|framework| framework.active);
        let inactive = (!active).then_some(Standing::Inactive);
        let suppressed = member.suppressed.then_some(Standing::Suppressed);
        let spent = framework.and_then(|framework| framework.budget_spent);
        let spent = spent.map(|most| Standing::BudgetSpent { most });
        inactive.into_iter().chain(suppressed).chain(spent)
    }

    /// The clients of a framework in these roles; of no roles, in all.
    fn named(&self, framework: &FrameworkId, roles: &BTreeSet<String>) -> Vec<Client> {
        let mut named = self.clients.of(framework);
        if !roles.is_empty() {
            named.retain(|client| {
                let member = self.clients.get(*client);
                member.is_some_and(|member| roles.contains(member.role.as_str()))
            });
        }
        named
    }
}

/// The shape that a demand asks for. The master has refused what cannot be; if it has not, any will do.
fn shape(role: &Role, demand: Option<&Demand>) -> Shape {
    let shape = demand.map(|demand| Shape::new(role.as_str(), demand));
    let shape = shape.unwrap_or_else(|| Ok(Shape::default()));
    shape.unwrap_or_else(|error| {
        tracing::warn!(%error, "a shape is passed over");
        Shape::default()
    })
}
