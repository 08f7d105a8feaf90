//! Settings of a member, read and checked once at its start.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use crate::core;
use crate::replica::Policy;
use crate::wire::MEMBERS_MAX;

/// The longest address, in bytes.
pub const ADDRESS_BYTES_MAX: usize = 256;

/// The settings of a member, each with its cost.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// The address at which other members reach this one.
    pub address: String,
    /// `--initial_masters`: the addresses of the first members, the same list on each of them, in
    /// any order. Only read with an empty directory. If it lacks this member's own address, it
    /// lists the masters to ask for admission. If it is empty, this member founds a group of one.
    pub initial: Vec<String>,
    /// The length of a tick, the unit of all times in [`core::Settings`]. Default 30 ms: elections
    /// start 0.3 to 0.6 s after a leader fails. Less: a loaded machine causes elections. More: a
    /// longer gap.
    pub tick: Duration,
    /// The time limit for finding a peer at its address. Default 2 s.
    pub find_timeout: Duration,
    /// Raft's settings.
    pub raft: core::Settings,
    /// When snapshots are taken, and time limits of proposals.
    pub policy: Policy,
    /// The permissions of operators. Default: everything is allowed.
    pub permits: Permits,
}

/// A kind of request by an operator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AdminRequest {
    /// To read the content of the machine.
    ReadContent,
    /// To see the status of the masters.
    ViewStatus,
    /// To change the members or the leader.
    ChangeMembers,
}

/// Returns why the operator of this name, from its certificate, may not make the request; `Ok` if
/// it may.
type Authorize = dyn Fn(&str, AdminRequest) -> Result<(), String> + Send + Sync;

/// The permissions of operators.
#[derive(Clone, Default)]
pub struct Permits(Option<Arc<Authorize>>);

impl Permits {
    /// Permissions decided by this function.
    pub fn new(
        authorize: impl Fn(&str, AdminRequest) -> Result<(), String> + Send + Sync + 'static,
    ) -> Self {
        Self(Some(Arc::new(authorize)))
    }

    /// Whether this operator may make this request.
    pub(super) fn authorize(&self, name: &str, request: AdminRequest) -> Result<(), String> {
        self.0
            .as_ref()
            .map_or(Ok(()), |authorize| authorize(name, request))
    }
}

impl fmt::Debug for Permits {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Permits")
    }
}

/// Two are equal if they share one function.
impl PartialEq for Permits {
    fn eq(&self, other: &Self) -> bool {
        match (&self.0, &other.0) {
            (None, None) => true,
            (Some(own), Some(other)) => Arc::ptr_eq(own, other),
            _ => false,
        }
    }
}

impl Eq for Permits {}

/// An invalid setting.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SettingsError {
    /// A setting of Raft.
    #[error(transparent)]
    Raft(#[from] core::InvalidSetting),
    /// A setting of a member.
    #[error("{field} is {found}, expected {expected}")]
    Field {
        /// The field.
        field: &'static str,
        /// Its value.
        found: String,
        /// The accepted values.
        expected: &'static str,
    },
}

impl Settings {
    /// Settings for this address and this initial group; default values otherwise.
    pub fn new(address: impl Into<String>, initial: &[&str]) -> Self {
        Self {
            address: address.into(),
            initial: initial.iter().map(|&one| one.to_owned()).collect(),
            tick: Duration::from_millis(30),
            find_timeout: Duration::from_secs(2),
            raft: core::Settings::default(),
            policy: Policy::default(),
            permits: Permits::default(),
        }
    }

    /// Sets the tick length, and the number of ticks without a leader's message before an election.
    #[must_use]
    pub fn with_elections(mut self, tick: Duration, election_ticks: usize) -> Self {
        self.tick = tick;
        self.raft.election_ticks = election_ticks;
        self
    }

    /// Sets whether reads are answered from the leader's lease. See the assumption at `lease_reads`
    /// of the Raft settings.
    #[must_use]
    pub fn with_lease_reads(mut self, from_lease: bool) -> Self {
        self.raft.lease_reads = from_lease;
        self
    }

    /// Checks all settings.
    pub fn check(&self) -> Result<(), SettingsError> {
        self.raft.check()?;
        let unusable = |field, found: String, expected| {
            Err(SettingsError::Field {
                field,
                found,
                expected,
            })
        };
        let (least, most) = (Duration::from_millis(1), Duration::from_secs(10));
        if self.tick < least || self.tick > most {
            return unusable("tick", format!("{:?}", self.tick), "from 1 ms to 10 s");
        }
        if self.find_timeout < self.tick {
            let found = format!("{:?}", self.find_timeout);
            return unusable("find_timeout", found, "at least a tick");
        }
        for address in self.initial.iter().chain([&self.address]) {
            if !is_address(address) {
                let expected = "an address of 1 to 256 bytes";
                return unusable("address", format!("{address:?}"), expected);
            }
        }
        let mut distinct = self.initial.clone();
        distinct.sort();
        distinct.dedup();
        if distinct.len() != self.initial.len() {
            let found = self.initial.join(",");
            return unusable("initial_masters", found, "each address once");
        }
        if distinct.len() > MEMBERS_MAX {
            let found = format!("{} addresses", distinct.len());
            return unusable("initial_masters", found, "at most 64");
        }
        Ok(())
    }
}

/// Whether the length is valid for an address. The transport interprets the content.
pub(crate) fn is_address(text: &str) -> bool {
    (1..=ADDRESS_BYTES_MAX).contains(&text.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn invalid_settings_are_named() {
        let good = Settings::new("a:1", &["a:1", "b:1"]);
        assert_eq!(good.check(), Ok(()));
        let check = |change: fn(&mut Settings), expected: &str| {
            let mut settings = good.clone();
            change(&mut settings);
            assert_eq!(settings.check().unwrap_err().to_string(), expected);
        };
        check(
            |settings| settings.tick = Duration::ZERO,
            "tick is 0ns, expected from 1 ms to 10 s",
        );
        check(
            |settings| settings.initial.push("a:1".into()),
            "initial_masters is a:1,b:1,a:1, expected each address once",
        );
        check(
            |settings| settings.address.clear(),
            "address is \"\", expected an address of 1 to 256 bytes",
        );
        check(
            |settings| *settings = settings.clone().with_elections(settings.tick, 2),
            "election_ticks is 2, expected more than heartbeat_ticks, at most 10,000",
        );
        check(
            |settings| settings.raft.heartbeat_ticks = 0,
            "heartbeat_ticks is 0, expected more than 0",
        );
    }
}
