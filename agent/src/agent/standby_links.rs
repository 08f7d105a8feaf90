//! Links to the standby masters, kept open so that the next leader is reached without a handshake.
//!
//! With many agents, handshakes take most of a failover. A link that breaks is dialled again after
//! a random pause, which grows while its master is unreachable. No messages are sent on these
//! links.

use std::time::Duration;

use rand::Rng;
use runtime::prelude::*;

use super::Agent;

/// How often a link is checked.
const CHECK_INTERVAL: Duration = Duration::from_secs(2);
/// The longest pause while its master is unreachable.
const CHECK_INTERVAL_MAX: Duration = Duration::from_secs(60);
const DIAL_PATIENCE: Duration = Duration::from_secs(10);

impl Agent {
    /// Keeps a link to each master, if there are several.
    pub(super) fn keep_links(&mut self, ctx: &mut Context<Self>) {
        let masters = &self.config.settings.masters;
        if masters.len() > 1 {
            for master in masters.clone() {
                self.keep_link(master, CHECK_INTERVAL, ctx);
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
                    CHECK_INTERVAL
                } else {
                    CHECK_INTERVAL_MAX.min(pause * 2)
                };
                this.keep_link(master, pause, ctx);
            });
        });
    }
}
