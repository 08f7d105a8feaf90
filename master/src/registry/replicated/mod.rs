//! A registry that a majority of masters holds, as its leader uses it.
//!
//! Stateless: requests go to this master's member of the group, and the answers are translated.
//! Answers only after a majority's disks are synced and the result is applied here. Never asks
//! another master: if this one does not lead, it must stop.

use consensus::member::{MemberHandle, ProposeError};
use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use protocol::FrameworkId;
use protocol::message::state::StateValue;

use super::machine::RegistryMachine;
use super::state::RegistryState;
use super::{Applied, Registry, RegistryError, RegistryOperation};

/// The registry of a group of masters, as its leader uses it.
#[derive(Clone)]
pub struct ReplicatedRegistry {
    member: MemberHandle<RegistryMachine>,
}

impl ReplicatedRegistry {
    /// The registry of this member.
    pub fn over(member: MemberHandle<RegistryMachine>) -> Self {
        Self { member }
    }
}

impl Registry for ReplicatedRegistry {
    fn apply(
        &mut self,
        operation: RegistryOperation,
    ) -> BoxFuture<'static, Result<Applied, RegistryError>> {
        let proposed = self.member.propose(operation);
        async move { proposed.await.map_err(translate)? }.boxed()
    }

    /// Everything answered before now by any leader: the start of a leadership.
    fn read(&mut self) -> BoxFuture<'static, Result<RegistryState, RegistryError>> {
        let read = self.member.read(|machine| machine.state().clone());
        async move { read.await.map_err(translate) }.boxed()
    }

    /// Asks a majority: a deposed leader finds none.
    fn still_leads(&mut self) -> BoxFuture<'static, Result<(), RegistryError>> {
        let read = self.member.read(|_| ());
        async move { read.await.map_err(translate) }.boxed()
    }

    fn framework_state(
        &mut self,
        framework_id: &FrameworkId,
        key: &str,
    ) -> BoxFuture<'static, Result<Option<StateValue>, RegistryError>> {
        let (id, key) = (framework_id.clone(), key.to_owned());
        let read = self.member.read(move |machine| {
            let states = &machine.state().framework_states;
            states.get(&id, &key).cloned()
        });
        async move { read.await.map_err(translate) }.boxed()
    }
}

/// Translates an error to the caller's options: retry, stop, or end.
fn translate(error: ProposeError) -> RegistryError {
    let reason = error.to_string();
    match error {
        ProposeError::Busy { .. } => RegistryError::NotNow { reason },
        ProposeError::Refused { .. } => RegistryError::Refused { reason },
        ProposeError::Broken { .. } => RegistryError::Broken { reason },
        // Whether it was applied or not: this master no longer leads, and the next one reads the
        // result.
        ProposeError::NotLeader { .. } | ProposeError::Lost | ProposeError::Unknown => {
            RegistryError::LostLeadership
        }
    }
}

#[cfg(test)]
mod tests;
