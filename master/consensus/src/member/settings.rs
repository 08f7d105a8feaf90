//! How a member behaves: read and checked once, when it starts.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use crate::core;
use crate::replica::Policy;
use crate::wire::MEMBERS_MAX;

/// The longest address, in bytes.
pub const ADDRESS_BYTES_MAX: usize = 256;

/// What a member is told when it starts. The price of each choice is beside it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Where the other members reach this one.
    pub address: String,
    /// `--initial_masters`: the addresses of the first members, the same list on each of them, in any order. Only an empty directory
    /// looks at it. If this member's own address is not in it, the list says whom to ask for a seat in a group that lives.
    pub initial: Vec<String>,
    /// How long a tick is; all times of [`core::Settings`] count in it. Default 30 ms, so that a leader is missed after 0.3 to 0.6 s.
    /// Less: a loaded machine causes elections. More: a longer gap.
    pub tick: Duration,
    /// How long finding a peer at its address may take. Default 2 s.
    pub find_patience: Duration,
    /// Raft's own.
    pub raft: core::Settings,
    /// When snapshots are taken, and how patient proposers are.
    pub policy: Policy,
    /// Which operators may do what. Default all everything.
    pub permits: Permits,
}

/// What an operator wants of a member.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wish {
    /// To have what the machine holds.
    Read,
    /// To see how the masters stand.
    Look,
    /// To change who is a master, or who leads.
    Change,
}

/// Why the operator of this name, which its certificate has proved, may not do that, if it may not.
type Refuses = dyn Fn(&str, Wish) -> Result<(), String> + Send + Sync;

/// Which operators may do what.
#[derive(Clone, Default)]
pub struct Permits(Option<Arc<Refuses>>);

impl Permits {
    /// What this lets them.
    pub fn asking(may: impl Fn(&str, Wish) -> Result<(), String> + Send + Sync + 'static) -> Self {
        Self(Some(Arc::new(may)))
    }

    /// Whether this one may do that.
    pub(super) fn may(&self, name: &str, wish: Wish) -> Result<(), String> {
        self.0.as_ref().map_or(Ok(()), |may| may(name, wish))
    }
}

impl fmt::Debug for Permits {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Permits")
    }
}

/// Two are the same if they are one.
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

/// A setting that cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unusable {
    /// Of raft.
    #[error(transparent)]
    Raft(#[from] core::Harmful),
    /// Of a member.
    #[error("{field} is {found}, expected {expected}")]
    Field {
        /// Which.
        field: &'static str,
        /// What it holds.
        found: String,
        /// What would do.
        expected: &'static str,
    },
}

impl Settings {
    /// A member at this address whose group begins with these, and everything else as usual.
    pub fn new(address: impl Into<String>, initial: &[&str]) -> Self {
        Self {
            address: address.into(),
            initial: initial.iter().map(|&one| one.to_owned()).collect(),
            tick: Duration::from_millis(30),
            find_patience: Duration::from_secs(2),
            raft: core::Settings::default(),
            policy: Policy::default(),
            permits: Permits::default(),
        }
    }

    /// With ticks of this length, and elections after so many without a word of the leader.
    #[must_use]
    pub fn electing(mut self, tick: Duration, election_ticks: usize) -> Self {
        self.tick = tick;
        self.raft.election_ticks = election_ticks;
        self
    }

    /// With reads answered from the leader's lease or not; see the assumption at `lease_reads` of the raft settings.
    #[must_use]
    pub fn reading(mut self, from_lease: bool) -> Self {
        self.raft.lease_reads = from_lease;
        self
    }

    /// Whether a member can live with them.
    pub fn check(&self) -> Result<(), Unusable> {
        self.raft.check()?;
        let unusable = |field, found: String, expected| {
            Err(Unusable::Field {
                field,
                found,
                expected,
            })
        };
        let (least, most) = (Duration::from_millis(1), Duration::from_secs(10));
        if self.tick < least || self.tick > most {
            return unusable("tick", format!("{:?}", self.tick), "from 1 ms to 10 s");
        }
        if self.find_patience < self.tick {
            let found = format!("{:?}", self.find_patience);
            return unusable("find_patience", found, "at least a tick");
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

/// Whether this may be an address: the transport knows what it means.
pub(crate) fn is_address(text: &str) -> bool {
    (1..=ADDRESS_BYTES_MAX).contains(&text.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_cannot_be_used_is_named_with_what_was_expected() {
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
            |settings| *settings = settings.clone().electing(settings.tick, 2),
            "election_ticks is 2, expected more than heartbeat_ticks, at most 10,000",
        );
        check(
            |settings| settings.raft.heartbeat_ticks = 0,
            "heartbeat_ticks is 0, expected more than 0",
        );
    }
}
