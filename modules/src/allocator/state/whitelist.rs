//! Whitelist: if there is one, only agents of listed hosts are offered.
//!
//! Existing allocations are not affected when a host is removed from the list.

use module_api::allocator::WhitelistChanged;

use super::filters::Mark;
use super::{Agent, AllocatorState};

impl AllocatorState {
    /// Sets the whitelist. Newly listed agents are considered at once.
    pub fn whitelist_changed(&mut self, changed: &WhitelistChanged) {
        let hosts = changed.hosts.as_ref();
        self.whitelist = hosts.map(|hosts| hosts.iter().map(|host| host.to_lowercase()).collect());
        for slot in 0..self.slots() {
            let Some(hostname) = self.name_of(slot).map(|(_, hostname)| hostname) else {
                continue;
            };
            let listed = self.lists(hostname);
            let Some((agent, _)) = self.agent_in(slot) else {
                continue;
            };
            if std::mem::replace(&mut agent.listed, listed) == listed {
                continue;
            }
            self.touch(slot);
            if listed {
                self.mark(slot, Mark::Run);
            }
        }
    }

    /// Whether agents of this host may be offered.
    pub(super) fn lists(&self, hostname: &str) -> bool {
        let whitelist = self.whitelist.as_ref();
        whitelist.is_none_or(|hosts| hosts.contains(&hostname.to_lowercase()))
    }
}

impl Agent {
    /// Whether it may be offered at all.
    pub fn is_offered(&self) -> bool {
        self.active && self.listed
    }
}
