//! Changed frameworks: applies a new `FrameworkInfo` to a framework's containers.
//!
//! Learns it from the master through the agent, and from each launch. Checkpoints are rewritten, so
//! that the next agent process has it too. Subscribed executors are not informed.

use protocol::FrameworkInfo;
use protocol::message::task::FrameworkChanged;
use runtime::prelude::*;

use super::Containerizer;
use crate::status::ResendUpdates;

impl Containerizer {
    /// Stores the framework's new info. No effect if unchanged or if it has nothing here.
    pub(super) fn update_framework(&mut self, framework: &FrameworkInfo) {
        let id = framework.id.as_ref();
        let Some((id, known)) = id.and_then(|id| Some((id, self.frameworks.get_mut(id)?))) else {
            return;
        };
        if known.info == *framework {
            return;
        }
        known.info = framework.clone();
        let containers = self.containers.of_framework(id);
        for id in &containers {
            if let Some(container) = self.containers.get_mut(id) {
                container.framework = framework.clone();
            }
        }
        self.rewrite_records(&containers);
    }
}

impl Handler<FrameworkChanged> for Containerizer {
    type Result = ();
    fn handle(&mut self, FrameworkChanged { framework }: FrameworkChanged, _: &mut Context<Self>) {
        self.update_framework(&framework);
        if let Some(id) = framework.id {
            self.status.tell_always(ResendUpdates(id));
        }
    }
}
