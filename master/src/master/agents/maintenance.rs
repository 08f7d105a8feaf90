//! Maintenance: operators' plans, and the allocator's inverse offers.
//!
//! Each change is validated by [`crate::maintenance`], recorded, and then carried out; the next one
//! waits until the registry has recorded the last.

use authority::Action;
use module_api::allocator::InverseGranted;
use protocol::MachineId;
use protocol::maintenance::{MaintenanceStatus, Window};
use protocol::message::operator::{
    StartMaintenance, StopMaintenance, UpdateMaintenanceSchedule, UpdateRefused,
    ViewMaintenanceSchedule, ViewMaintenanceStatus,
};
use runtime::prelude::*;

use crate::agents::admission::Removal;
use crate::maintenance;
use crate::master::Master;
use crate::master::operators::not_allowed;
use crate::master::verbs::InTurn;
use crate::registry::{Machines, RegistryOperation};

type Prepared = Result<RegistryOperation, UpdateRefused>;

impl Handler<InverseGranted> for Master {
    type Result = ();

    fn handle(&mut self, granted: InverseGranted, ctx: &mut Context<Self>) {
        self.change(ctx, |state, _, out| state.inverse_granted(granted, out));
    }
}

impl Handler<InTurn<ViewMaintenanceSchedule>> for Master {
    type Result = Result<Vec<Window>, UpdateRefused>;

    fn handle(
        &mut self,
        _: InTurn<ViewMaintenanceSchedule>,
        ctx: &mut Context<Self>,
    ) -> Self::Result {
        self.may_maintain(Action::GetMaintenanceSchedules, ctx)?;
        Ok(self.state.machines.windows())
    }
}

impl Handler<InTurn<ViewMaintenanceStatus>> for Master {
    type Result = Result<MaintenanceStatus, UpdateRefused>;

    fn handle(
        &mut self,
        _: InTurn<ViewMaintenanceStatus>,
        ctx: &mut Context<Self>,
    ) -> Self::Result {
        self.may_maintain(Action::GetMaintenanceStatuses, ctx)?;
        Ok(match self.caller(ctx) {
            Some(caller) => self.state.visible_maintenance(&caller.visibility()),
            None => self.state.maintenance_status(),
        })
    }
}

impl Handler<InTurn<UpdateMaintenanceSchedule>> for Master {
    type Result = Reply<Result<(), UpdateRefused>>;

    fn handle(
        &mut self,
        InTurn(update): InTurn<UpdateMaintenanceSchedule>,
        ctx: &mut Context<Self>,
    ) -> Self::Result {
        let prepare = |machines: &Machines| maintenance::prepare_schedule(machines, &update);
        let prepared = self.prepare_maintenance(Action::UpdateMaintenanceSchedules, prepare, ctx);
        self.maintain(prepared, ctx, move |master, ctx| {
            tracing::info!(windows = update.windows.len(), "maintenance is scheduled");
            let windows = &update.windows;
            master.change(ctx, |state, _, out| state.schedule_updated(windows, out));
        })
    }
}

impl Handler<InTurn<StartMaintenance>> for Master {
    type Result = Reply<Result<(), UpdateRefused>>;

    fn handle(
        &mut self,
        InTurn(start): InTurn<StartMaintenance>,
        ctx: &mut Context<Self>,
    ) -> Self::Result {
        let prepare = |machines: &Machines| maintenance::prepare_start(machines, &start);
        let prepared = self.prepare_maintenance(Action::StartMaintenances, prepare, ctx);
        self.maintain(prepared, ctx, move |master, ctx| {
            tracing::info!(machines = %listed(&start.machines), "machines are down");
            let machines = &start.machines;
            master.change(ctx, |state, _, _| state.maintenance_started(machines));
            master.remove_agents_on_down_machines(ctx);
        })
    }
}

impl Handler<InTurn<StopMaintenance>> for Master {
    type Result = Reply<Result<(), UpdateRefused>>;

    fn handle(
        &mut self,
        InTurn(stop): InTurn<StopMaintenance>,
        ctx: &mut Context<Self>,
    ) -> Self::Result {
        let prepare = |machines: &Machines| maintenance::prepare_stop(machines, &stop);
        let prepared = self.prepare_maintenance(Action::StopMaintenances, prepare, ctx);
        self.maintain(prepared, ctx, move |master, ctx| {
            tracing::info!(machines = %listed(&stop.machines), "machines are up again");
            let machines = &stop.machines;
            master.change(ctx, |state, _, out| {
                state.maintenance_stopped(machines, out)
            });
        })
    }
}

impl Master {
    /// Removes agents on down machines.
    pub(in crate::master) fn remove_agents_on_down_machines(&mut self, ctx: &mut Context<Self>) {
        for agent in self.state.on_down_machines() {
            // An agent that is being marked unreachable is removed when it returns.
            if !self.leaving.contains(&agent) {
                self.remove_agent(agent, Removal::Maintenance, ctx);
            }
        }
    }

    /// Whether a remote caller may do this with machines now.
    pub(in crate::master) fn may_maintain(
        &self,
        action: Action,
        ctx: &Context<Self>,
    ) -> Result<(), UpdateRefused> {
        self.may_update()?;
        let caller = self.caller(ctx);
        let allowed = caller.map_or(Ok(()), |caller| caller.authorize(action, None));
        allowed.map_err(not_allowed)
    }

    fn prepare_maintenance(
        &self,
        action: Action,
        prepare: impl FnOnce(&Machines) -> Prepared,
        ctx: &Context<Self>,
    ) -> Prepared {
        self.may_maintain(action, ctx)?;
        if self.updating_maintenance {
            let reason = "another change of maintenance is being recorded; try again".to_owned();
            return Err(UpdateRefused::NotNow { reason });
        }
        prepare(&self.state.machines)
    }

    /// Records a change, and then carries it out.
    fn maintain(
        &mut self,
        prepared: Prepared,
        ctx: &mut Context<Self>,
        carry_out: impl FnOnce(&mut Self, &mut Context<Self>) + 'static,
    ) -> Reply<Result<(), UpdateRefused>> {
        let (promise, reply) = promise();
        let operation = match prepared {
            Ok(operation) => operation,
            Err(refused) => {
                promise.answer(Err(refused));
                return reply;
            }
        };
        self.updating_maintenance = true;
        let applied = self.registry.apply(operation);
        ctx.then(applied, move |master: &mut Self, applied, ctx| {
            master.updating_maintenance = false;
            if let Some(answer) = master.recorded(applied, ctx) {
                if answer.is_ok() {
                    carry_out(master, ctx);
                }
                promise.answer(answer);
            }
        });
        reply
    }
}

/// Machines as text for the log.
fn listed(machines: &[MachineId]) -> String {
    let machines: Vec<String> = machines.iter().take(20).map(ToString::to_string).collect();
    machines.join(", ")
}
