//! Messages from the allocator about revocation and long tasks: lists tasks for it, and carries out
//! its decisions.

use module_api::allocator::{LongTasksBounded, StillLacking, TasksWanted, VictimsNamed};
use runtime::prelude::*;

use super::Master;

impl Handler<TasksWanted> for Master {
    type Result = ();

    fn handle(&mut self, wanted: TasksWanted, ctx: &mut Context<Self>) {
        self.change(ctx, |state, _, out| state.list_tasks(&wanted, out));
    }
}

impl Handler<VictimsNamed> for Master {
    type Result = ();

    fn handle(&mut self, named: VictimsNamed, ctx: &mut Context<Self>) {
        self.change(ctx, |state, now, out| state.victims_named(named, now, out));
    }
}

impl Handler<StillLacking> for Master {
    type Result = ();

    fn handle(&mut self, lacking: StillLacking, ctx: &mut Context<Self>) {
        self.change(ctx, |state, now, out| state.spare(&lacking.roles, now, out));
    }
}

impl Handler<LongTasksBounded> for Master {
    type Result = ();

    fn handle(&mut self, bound: LongTasksBounded, ctx: &mut Context<Self>) {
        self.change(ctx, |state, now, out| {
            state.long_tasks_bounded(bound, now, out)
        });
    }
}
