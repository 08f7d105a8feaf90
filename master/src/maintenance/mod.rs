//! Maintenance: machines that are or will be down, and inverse offers to their frameworks.
//!
//! Pure decisions on [`MasterState`]. An operator's change is validated here, recorded, and then
//! applied by the other half. Offers of a scheduled machine's agents contain the time of the
//! maintenance, and frameworks with resources there get an inverse offer, whose answer is not
//! binding. Nothing happens by the clock: a machine is down when an operator says so. [`draining`]
//! has the orders for single agents.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use module_api::allocator::{InverseAnswered, InverseGrant, InverseGranted, UnavailabilityChanged};
use protocol::maintenance::{DrainingMachine, InverseAnswer, MaintenanceStatus, Window};
use protocol::message::operator::{
    StartMaintenance, StopMaintenance, UpdateMaintenanceSchedule, UpdateRefused,
};
use protocol::message::scheduler::{
    AcceptInverseOffers, DeclineInverseOffers, InverseOfferRescinded, InverseOffersMade,
};
use protocol::{AgentId, Filters, FrameworkId, InverseOffer, MachineId, OfferId, Unavailability};
use resources::Invalid;
use runtime::{Pid, Timestamp};
use v1::schema::MachineID;

use crate::agents::Agent;
use crate::api::visibility::Visibility;
use crate::frameworks::counters::FrameworkCounter;
use crate::registry::{MACHINES_MAX, Machine, Machines, RegistryOperation};
use crate::state::MasterState;
use crate::state::effects::{Due, Effect, Effects, SendEffects, ToAllocator, ToScheduler};
use crate::state::size::in_frames;

/// The latest answers of frameworks, by agent.
pub type Answers = BTreeMap<AgentId, BTreeMap<FrameworkId, InverseAnswer>>;

/// Checks a schedule; returns the operation to record.
pub fn prepare_schedule(
    machines: &Machines,
    update: &UpdateMaintenanceSchedule,
) -> Result<RegistryOperation, UpdateRefused> {
    let mut listed = BTreeSet::new();
    for window in &update.windows {
        if window.machines.is_empty() {
            return Err(invalid(
                "List of machines in the maintenance window is empty",
            ));
        }
        for id in &window.machines {
            if !listed.insert(id) {
                return Err(twice(id));
            }
        }
    }
    if listed.len() > MACHINES_MAX {
        let expected = format!("at most {MACHINES_MAX} machines");
        return Err(invalid(Invalid::new("windows", listed.len(), expected)));
    }
    let mut down = machines.iter().filter(|(_, machine)| machine.down);
    if let Some((id, _)) = down.find(|(id, _)| !listed.contains(id)) {
        let problem = "is deactivated and cannot be removed from the schedule";
        return Err(machine(id, problem));
    }
    let windows = update.windows.clone();
    Ok(RegistryOperation::UpdateMaintenanceSchedule { windows })
}

/// Checks whether these machines may be taken down; returns the operation to record.
pub fn prepare_start(
    machines: &Machines,
    start: &StartMaintenance,
) -> Result<RegistryOperation, UpdateRefused> {
    let draining = |machine: &Machine| !machine.down;
    let otherwise = "is not in DRAINING mode and cannot be brought down";
    check_machines(machines, &start.machines, draining, otherwise)?;
    let machines = start.machines.clone();
    Ok(RegistryOperation::StartMaintenance { machines })
}

/// Checks whether these machines may be brought up; returns the operation to record.
pub fn prepare_stop(
    machines: &Machines,
    stop: &StopMaintenance,
) -> Result<RegistryOperation, UpdateRefused> {
    let down = |machine: &Machine| machine.down;
    let otherwise = "is not in DOWN mode and cannot be brought up";
    check_machines(machines, &stop.machines, down, otherwise)?;
    let machines = stop.machines.clone();
    Ok(RegistryOperation::StopMaintenance { machines })
}

fn check_machines(
    machines: &Machines,
    named: &[MachineId],
    is_right: impl Fn(&Machine) -> bool,
    otherwise: &str,
) -> Result<(), UpdateRefused> {
    if named.is_empty() {
        return Err(invalid("List of machines is empty"));
    }
    let mut listed = BTreeSet::new();
    if let Some(id) = named.iter().find(|id| !listed.insert(*id)) {
        return Err(twice(id));
    }
    for id in named {
        match machines.get(id) {
            None => return Err(machine(id, "is not part of a maintenance schedule")),
            Some(found) if !is_right(found) => return Err(machine(id, otherwise)),
            Some(_) => {}
        }
    }
    Ok(())
}

/// Sends the allocator an agent's planned maintenance.
pub(crate) fn send_plan(
    agent: &AgentId,
    unavailability: Option<Unavailability>,
    out: &mut Effects,
) {
    let agent_id = agent.clone();
    out.allocator(ToAllocator::UnavailabilityChanged(UnavailabilityChanged {
        agent_id,
        unavailability,
    }));
}

fn invalid(problem: impl std::fmt::Display) -> UpdateRefused {
    UpdateRefused::Invalid {
        reason: problem.to_string(),
    }
}

/// The refusal of one machine, with the message of Mesos, which clients compare.
fn machine(id: &MachineId, problem: &str) -> UpdateRefused {
    let id = v1::json::write(&MachineID::from(id));
    let id = String::from_utf8_lossy(&id);
    invalid(format_args!("Machine '{id}' {problem}"))
}

fn twice(id: &MachineId) -> UpdateRefused {
    machine(id, "appears more than once in the schedule")
}

impl MasterState {
    /// The down machine of an agent with this host name and address, if there is one.
    pub(crate) fn down_machine(&self, hostname: &str, ip: Option<&str>) -> Option<&MachineId> {
        let (id, machine) = self.machines.of(hostname, ip)?;
        machine.down.then_some(id)
    }

    /// The status of all maintenance.
    pub fn maintenance_status(&self) -> MaintenanceStatus {
        let mut status = MaintenanceStatus::default();
        let mut answers: BTreeMap<&MachineId, Vec<InverseAnswer>> = BTreeMap::new();
        for (id, answered) in self.inverse_answers.iter() {
            let agent = self.agents.get(id);
            let machine = agent.and_then(|agent| self.machine_of(agent));
            if let Some((machine, _)) = machine {
                answers
                    .entry(machine)
                    .or_default()
                    .extend(answered.values().cloned());
            }
        }
        for (id, machine) in self.machines.iter() {
            match machine.down {
                true => status.down.push(id.clone()),
                false => status.draining.push(DrainingMachine {
                    id: id.clone(),
                    answers: answers.remove(id).unwrap_or_default(),
                }),
            }
        }
        status
    }

    /// The same without answers of frameworks that the viewer may not see.
    pub fn visible_maintenance(&self, visibility: &Visibility) -> MaintenanceStatus {
        let mut status = self.maintenance_status();
        let is_seen = |answer: &InverseAnswer| {
            let framework = self.frameworks.get(&answer.framework_id);
            framework.is_some_and(|framework| visibility.framework(&framework.info))
        };
        if !visibility.is_whole() {
            for machine in &mut status.draining {
                machine.answers.retain(is_seen);
            }
        }
        status
    }

    fn machine_of(&self, agent: &Agent) -> Option<(&MachineId, &Machine)> {
        self.machines.of(&agent.info.hostname, agent.ip.as_deref())
    }

    /// A schedule is recorded: offers of agents with changed plans are rescinded, and offered again
    /// with the time.
    pub fn schedule_updated(&mut self, windows: &[Window], out: &mut Effects) {
        // The registry has accepted it.
        let _ = Arc::make_mut(&mut self.machines).schedule(windows);
        self.plans_changed(out);
    }

    /// It is recorded that these machines are down. Their agents must be removed.
    pub fn maintenance_started(&mut self, machines: &[MachineId]) {
        Arc::make_mut(&mut self.machines).start(machines);
    }

    /// The agents on down machines, which must be removed; a new leader may find some too. Of
    /// awaited agents only the host name is known: if a machine is also identified by an address,
    /// its agents are removed when they register, like unreachable ones
    /// ([`MasterState::comes_from_down_machine`]).
    pub fn on_down_machines(&self) -> Vec<AgentId> {
        let is_down = |hostname: &str, ip| self.down_machine(hostname, ip).is_some();
        let here = self.agents.iter().map(|agent| &**agent);
        let here = here.filter(|agent| is_down(&agent.info.hostname, agent.ip.as_deref()));
        let awaited = self.agents.recovered();
        let no_address = Some("");
        let awaited = awaited.filter(|(_, info)| is_down(&info.hostname, no_address));
        let away = here.map(|agent| &agent.id).chain(awaited.map(|(id, _)| id));
        away.cloned().collect()
    }

    /// It is recorded that these machines are up.
    pub fn maintenance_stopped(&mut self, machines: &[MachineId], out: &mut Effects) {
        Arc::make_mut(&mut self.machines).stop(machines);
        self.plans_changed(out);
    }

    /// Applies changed plans to the agents.
    fn plans_changed(&mut self, out: &mut Effects) {
        let changed: Vec<_> = self
            .agents
            .iter()
            .filter_map(|agent| {
                let planned = self.machine_of(agent);
                let planned = planned.map(|(_, machine)| machine.unavailability);
                (planned != agent.unavailability).then(|| (agent.id.clone(), planned))
            })
            .collect();
        for (id, planned) in changed {
            self.rescind_of_agent(&id, out);
            self.forget_answers_of(&id);
            self.agents
                .update(&id, |agent| agent.unavailability = planned);
            send_plan(&id, planned, out);
        }
    }

    /// Sends the allocator an agent's planned maintenance if it differs from the known one.
    pub(crate) fn send_changed_plan(
        &mut self,
        agent: &Agent,
        believed: Option<Unavailability>,
        out: &mut Effects,
    ) {
        let planned = agent.unavailability;
        if planned != believed {
            self.forget_answers_of(&agent.id);
            send_plan(&agent.id, planned, out);
        }
    }

    /// Forgets the answers about an agent.
    pub(crate) fn forget_answers_of(&mut self, agent: &AgentId) {
        if self.inverse_answers.contains_key(agent) {
            Arc::make_mut(&mut self.inverse_answers).remove(agent);
        }
    }

    /// Forgets a framework's answers.
    pub(crate) fn forget_answers_by(&mut self, framework: &FrameworkId) {
        if self.inverse_answers.is_empty() {
            return;
        }
        let answers = Arc::make_mut(&mut self.inverse_answers);
        answers.retain(|_, answered| {
            answered.remove(framework);
            !answered.is_empty()
        });
    }

    /// Sends the allocator's inverse offers, several per message.
    pub fn inverse_granted(&mut self, granted: InverseGranted, out: &mut Effects) {
        let mut made: BTreeMap<FrameworkId, (Pid, Vec<InverseOffer>)> = BTreeMap::new();
        let mut ids = Vec::new();
        for grant in granted.grants {
            if !self.is_planned(&grant) || self.is_asked(&grant) {
                // Granted before the allocator knew the latest changes, which make it drop this
                // grant.
                continue;
            }
            let Some(pid) = self.frameworks.scheduler(&grant.framework_id).cloned() else {
                self.reject_inverse_grant(grant.framework_id, grant.agent_id, None, out);
                continue;
            };
            let agent = self.agents.get(&grant.agent_id);
            let offer = InverseOffer {
                id: self.ids.offer(),
                framework_id: grant.framework_id.clone(),
                agent_id: grant.agent_id,
                unavailability: grant.unavailability,
                hostname: agent
                    .map(|agent| agent.info.hostname.clone())
                    .unwrap_or_default(),
                endpoint: agent.map(Agent::endpoint),
            };
            ids.push(offer.id.clone());
            self.inverse_offers.insert(Arc::new(offer.clone()));
            let of = made.entry(grant.framework_id);
            of.or_insert_with(|| (pid, Vec::new())).1.push(offer);
        }
        for (pid, offers) in made.into_values() {
            for inverse_offers in in_frames(offers) {
                let made = InverseOffersMade { inverse_offers };
                out.scheduler(Some(&pid), ToScheduler::InverseOffers(made));
            }
        }
        if let Some(timeout) = self.policy.offer_timeout.filter(|_| !ids.is_empty()) {
            out.push(Effect::Later(timeout, Due::InverseOffersExpired(ids)));
        }
    }

    fn is_planned(&self, grant: &InverseGrant) -> bool {
        let agent = self.agents.get(&grant.agent_id);
        agent.is_some_and(|agent| agent.unavailability == Some(grant.unavailability))
    }

    /// Whether the framework has an open inverse offer for that agent.
    fn is_asked(&self, grant: &InverseGrant) -> bool {
        let mut out = self.inverse_offers.of_framework(&grant.framework_id);
        out.any(|offer| offer.agent_id == grant.agent_id)
    }

    /// The framework will leave these agents in time. Unknown ids are ignored.
    pub fn accept_inverse(&mut self, call: AcceptInverseOffers, now: Timestamp, out: &mut Effects) {
        let (framework, ids) = (&call.framework_id, call.inverse_offer_ids);
        self.answer_inverse(framework, ids, &call.filters, true, now, out);
    }

    /// The framework cannot leave these agents in time. Unknown ids are ignored.
    pub fn decline_inverse(
        &mut self,
        call: DeclineInverseOffers,
        now: Timestamp,
        out: &mut Effects,
    ) {
        let (framework, ids) = (&call.framework_id, call.inverse_offer_ids);
        self.answer_inverse(framework, ids, &call.filters, false, now, out);
    }

    fn answer_inverse(
        &mut self,
        framework: &FrameworkId,
        ids: Vec<OfferId>,
        filters: &Filters,
        accepted: bool,
        now: Timestamp,
        out: &mut Effects,
    ) {
        for id in ids {
            let offer = self.inverse_offers.get(&id);
            let mine = offer.is_some_and(|offer| offer.framework_id == *framework);
            if !mine {
                continue;
            }
            let Some(offer) = self.remove_inverse(&id, Some(filters), out) else {
                continue;
            };
            let answer = InverseAnswer {
                framework_id: framework.clone(),
                accepted,
                at: now,
            };
            let answers = Arc::make_mut(&mut self.inverse_answers);
            let answered = answers.entry(offer.agent_id.clone()).or_default();
            answered.insert(framework.clone(), answer);
        }
    }

    /// Ends an inverse offer; the allocator is sent the end and the framework's filter.
    pub(crate) fn remove_inverse(
        &mut self,
        id: &OfferId,
        filters: Option<&Filters>,
        out: &mut Effects,
    ) -> Option<Arc<InverseOffer>> {
        let offer = self.inverse_offers.remove(id)?;
        let (framework, agent) = (offer.framework_id.clone(), offer.agent_id.clone());
        self.reject_inverse_grant(framework, agent, filters, out);
        Some(offer)
    }

    fn reject_inverse_grant(
        &self,
        framework_id: FrameworkId,
        agent_id: AgentId,
        filters: Option<&Filters>,
        out: &mut Effects,
    ) {
        out.allocator(ToAllocator::InverseAnswered(InverseAnswered {
            framework_id,
            agent_id,
            refuse: filters.map(Filters::refuse),
        }));
    }

    /// Rescinds these inverse offers.
    pub(crate) fn rescind_inverse(&mut self, ids: Vec<OfferId>, out: &mut Effects) {
        for id in ids {
            let Some(offer) = self.remove_inverse(&id, None, out) else {
                continue;
            };
            let rescinded = InverseOfferRescinded {
                inverse_offer_id: id,
            };
            let scheduler = self.frameworks.scheduler(&offer.framework_id);
            out.scheduler(scheduler, ToScheduler::RescindInverse(rescinded));
            self.frameworks
                .count_if_connected(&offer.framework_id, FrameworkCounter::RescindInverseOffer);
        }
    }

    /// Rescinds all inverse offers for an agent.
    pub(crate) fn rescind_inverse_of_agent(&mut self, agent: &AgentId, out: &mut Effects) {
        let ids = self.inverse_offers.of_agent(agent);
        let ids = ids.map(|offer| offer.id.clone()).collect();
        self.rescind_inverse(ids, out);
    }
}

pub mod draining;
#[cfg(test)]
mod tests;
