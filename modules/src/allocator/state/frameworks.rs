//! Frameworks: whether they are active, their roles, and their suppressed roles.
//!
//! A framework that has left a role remains a client until all its resources there are recovered.

use std::collections::BTreeSet;

use module_api::allocator::{
    FrameworkActivity, FrameworkAdded, FrameworkRemoved, OfferBudgetSpent, Revived, Suppressed,
};
use module_api::sorter::{Client, Shape};
use protocol::view::explain::OfferBlocker;
use protocol::{Capability, Demand, FrameworkId};
use resources::Role;

use super::{AllocatorState, Framework};
use crate::allocator::agent_verdicts::Choice;
use crate::allocator::clients::{ClientCapabilities, ClientRecord};

impl AllocatorState {
    /// Adds or updates a framework. Marks the agents for which it has not been considered: all
    /// agents for a new role or for changed demands or capabilities, otherwise none.
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
                .inspect_err(
                    |error| tracing::warn!(%error, "ignoring an invalid role of a framework"),
                )
                .ok()
        };
        let roles: BTreeSet<Role> = info.roles.iter().filter_map(sound).collect();
        for role in &roles {
            self.clients.admit(&id, role);
        }
        for client in self.clients.of(&id) {
            let Some(record) = self.clients.get_mut(client) else {
                continue;
            };
            let subscribed = roles.contains(&record.role);
            let suppressed = wants.suppressed_roles.contains(record.role.as_str());
            let unsuppressed = record.suppressed && !suppressed;
            (record.subscribed, record.suppressed) = (subscribed, suppressed);
            let demand = wants.demands.get(record.role.as_str());
            let choice =
                demand.map_or_else(Choice::default, |demand| Choice::new(&record.role, demand));
            let chooses_anew = !record.choice.is_same(&choice);
            if chooses_anew {
                record.choice = choice; // Otherwise the cached verdicts stay.
            }
            let shape = shape(&record.role, demand);
            if self.clients.set_shape(client, shape) || chooses_anew {
                self.reset_scans(client);
            }
            self.refresh(client);
            if !subscribed || unsuppressed || !active {
                self.clear_filters(client);
            }
            self.clients.release(client);
        }
        self.ask_again_to_leave(&id);
    }

    /// Removes a framework. Its allocations count until they are recovered or their agent is
    /// removed.
    pub fn framework_removed(&mut self, removed: &FrameworkRemoved) {
        self.frameworks.remove(&removed.framework_id);
        self.forget_inverse(&removed.framework_id);
        for client in self.clients.of(&removed.framework_id) {
            if let Some(record) = self.clients.get_mut(client) {
                record.subscribed = false;
            }
            self.refresh(client);
            self.clear_filters(client);
            self.clients.release(client);
        }
    }

    /// Activates or deactivates a framework. On activation, marks the agents that its filters hid
    /// and those that it missed.
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
                self.clear_filters(client);
            }
        }
        self.ask_again_to_leave(&activity.framework_id);
    }

    /// Sets or clears the reached limit of unanswered offers.
    pub fn offer_budget_spent(&mut self, spent: &OfferBudgetSpent) {
        let Some(framework) = self.frameworks.get_mut(&spent.framework_id) else {
            return;
        };
        framework.budget_spent = spent.most;
        for client in self.clients.of(&spent.framework_id) {
            self.refresh(client);
        }
    }

    /// Suppresses roles of a framework.
    pub fn suppressed(&mut self, suppressed: &Suppressed) {
        for client in self.named(&suppressed.framework_id, &suppressed.roles) {
            if let Some(record) = self.clients.get_mut(client) {
                record.suppressed = true;
            }
            self.refresh(client);
        }
    }

    /// Revives roles of a framework and drops its filters there. Marks only the agents that the
    /// filters hid and those considered while it was suppressed, so that repeated revives cost
    /// nothing.
    pub fn revived(&mut self, revived: &Revived) {
        self.drop_inverse_filters(&revived.framework_id);
        for client in self.named(&revived.framework_id, &revived.roles) {
            if let Some(record) = self.clients.get_mut(client) {
                record.suppressed = false;
            }
            self.refresh(client);
            self.clear_filters(client);
        }
    }

    /// Recomputes whether a client is active, and marks the agents that it missed.
    fn refresh(&mut self, client: Client) {
        let Some(record) = self.clients.get(client) else {
            return;
        };
        let framework = self.frameworks.get(&record.framework);
        let active = record.subscribed && self.standing(record).next().is_none();
        let can = |capability: Capability| {
            framework.is_some_and(|framework| framework.capabilities.contains(&capability))
        };
        let capabilities = ClientCapabilities {
            gpus: can(Capability::GpuResources),
            remote: can(Capability::RegionAware),
            shared: can(Capability::SharedResources),
            refined: can(Capability::ReservationRefinement),
            // Without the capability, a framework never gets revocable resources.
            revocable: can(Capability::RevocableResources),
        };
        let gains_capability = capabilities.is_more_than(&record.capabilities);
        if let Some(record) = self.clients.get_mut(client) {
            record.capabilities = capabilities;
        }
        if gains_capability {
            self.reset_scans(client);
        }
        self.clients
            .set_active(client, [active, active && capabilities.revocable]);
        self.update_presence(client, active);
    }

    /// Properties of its framework that exclude a client from every offer.
    pub(in crate::allocator) fn standing(
        &self,
        record: &ClientRecord,
    ) -> impl Iterator<Item = OfferBlocker> + use<> {
        let framework = self.frameworks.get(&record.framework);
        let active = framework.is_some_and(|framework| framework.active);
        let inactive = (!active).then_some(OfferBlocker::Inactive);
        let suppressed = record.suppressed.then_some(OfferBlocker::Suppressed);
        let spent = framework.and_then(|framework| framework.budget_spent);
        let spent = spent.map(|most| OfferBlocker::BudgetSpent { most });
        inactive.into_iter().chain(suppressed).chain(spent)
    }

    /// The clients of a framework in these roles; an empty set means all.
    fn named(&self, framework: &FrameworkId, roles: &BTreeSet<String>) -> Vec<Client> {
        let mut named = self.clients.of(framework);
        if !roles.is_empty() {
            named.retain(|client| {
                let record = self.clients.get(*client);
                record.is_some_and(|record| roles.contains(record.role.as_str()))
            });
        }
        named
    }
}

/// The shape of a demand. The master has already rejected invalid ones; one that arrives anyway
/// counts as any.
fn shape(role: &Role, demand: Option<&Demand>) -> Shape {
    let shape = demand.map(|demand| Shape::new(role.as_str(), demand));
    let shape = shape.unwrap_or_else(|| Ok(Shape::default()));
    shape.unwrap_or_else(|error| {
        tracing::warn!(%error, "ignoring an invalid offer shape");
        Shape::default()
    })
}
