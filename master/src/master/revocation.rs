//! What the master hears from the allocator about tasks that must make room: it says what runs, and carries out what is decided.

use module_api::allocator::{TasksWanted, VictimsNamed};
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
