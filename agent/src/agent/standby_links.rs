//! Links to the masters that do not act: kept, so that whichever of them leads next is reached without a handshake.
//!
//! With many agents the handshakes are most of what a failover takes. The links are there from the search for the first leader; one is
//! lost when its master restarts, and then the agent dials it again: after a while of its own, so that not all of them come at once, and
//! ever more rarely while nobody answers. Nothing is said on them. The link to a master that was killed is found dead when its next life
//! is there: the agent has told it that it hears no more of it, which is said again until that life answers that it knows no such link.

use std::time::Duration;

use rand::Rng;
use runtime::prelude::*;

use super::Agent;

/// How often it is looked whether a link is there.
const LOOK: Duration = Duration::from_secs(2);
/// The same while its master cannot be reached.
const LOOK_MAX: Duration = Duration::from_secs(60);
const DIAL_PATIENCE: Duration = Duration::from_secs(10);

impl Agent {
    /// Begins to keep a link to each master, if there are several.
    pub(super) fn keep_links(&mut self, ctx: &mut Context<Self>) {
        let masters = &self.config.settings.masters;
        if masters.len() > 1 {
            for master in masters.clone() {
                self.keep_link(master, LOOK, ctx);
            }
        }
    }

    fn keep_link(&mut self, master: String, pause: Duration, ctx: &mut Context<Self>) {
        let chance: f64 = self.rng.random();
        ctx.after(pause.mul_f64(0.5 + chance), move |this, ctx| {
            if this.end.is_some() {
                return;
            }
            let (node, address) = (ctx.node().clone(), master.clone());
            let linking = async move {
                let linking = node.connect(&address);
                let linked = node.clock().timeout(DIAL_PATIENCE, linking).await;
                linked.is_ok_and(|linked| linked.is_ok())
            };
            ctx.then(linking, move |this, linked, ctx| {
                let pause = if linked {
                    LOOK
                } else {
                    LOOK_MAX.min(pause * 2)
                };
                this.keep_link(master, pause, ctx);
            });
        });
    }
}
