//! Changed: a framework has become something else, and what is here of it goes by that from now on (SPEC 3.2).
//!
//! Hears it from the agent, whom its master tells, and learns it from each launch as well. What the ledger keeps of containers follows, so that the next
//! process of the agent knows it too. An executor that has subscribed is told nothing: it was told what its framework was then.

use protocol::FrameworkInfo;
use protocol::message::task::FrameworkChanged;
use runtime::prelude::*;

use super::Containerizer;
use crate::status::TellAgain;

impl Containerizer {
    /// The framework is this from now on; nothing follows if it is so already, or has nothing here.
    pub(super) fn learn(&mut self, framework: &FrameworkInfo) {
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
        self.record_again(&containers);
    }
}

impl Handler<FrameworkChanged> for Containerizer {
    type Result = ();
    fn handle(&mut self, FrameworkChanged { framework }: FrameworkChanged, _: &mut Context<Self>) {
        self.learn(&framework);
        if let Some(id) = framework.id {
            self.status.tell_always(TellAgain(id));
        }
    }
}
