//! What the master hears from the allocator about tasks that must make room, and about long ones: it says what runs, and carries out what is
//! decided.

use module_api::allocator::{LongTasksBounded, StillLacking, TasksWanted, VictimsNamed};
use runtime::prelude::*;

use super::Master;

impl Handler<TasksWanted> for Master {
    type Result = ();

    fn handle(&mut self, wanted: TasksWanted, ctx: &mut Context<Self>) {
        self.change(ctx, |books, _, out| books.list_tasks(&wanted, out));
    }
}

impl Handler<VictimsNamed> for Master {
    type Result = ();

    fn handle(&mut self, named: VictimsNamed, ctx: &mut Context<Self>) {
        self.change(ctx, |books, now, out| books.victims_named(named, now, out));
    }
}

impl Handler<StillLacking> for Master {
    type Result = ();

    fn handle(&mut self, lacking: StillLacking, ctx: &mut Context<Self>) {
        self.change(ctx, |books, now, out| books.spare(&lacking.roles, now, out));
    }
}

impl Handler<LongTasksBounded> for Master {
    type Result = ();

    fn handle(&mut self, bound: LongTasksBounded, ctx: &mut Context<Self>) {
        self.change(ctx, |books, now, out| {
            books.long_tasks_bounded(bound, now, out)
        });
    }
}
