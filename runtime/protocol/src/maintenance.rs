//! Maintenance: which machines will be away, and when (SPEC 3.6).
//!
//! Only the words, and what is wrong in themselves; what may follow what is the master's to judge.

use std::fmt;
use std::net::IpAddr;
use std::time::Duration;

use resources::Invalid;
use runtime::Timestamp;
use serde::{Deserialize, Serialize};

use crate::agent::Served;
use crate::id::{AgentId, FrameworkId, OfferId};

/// The most bytes of a host's name.
const HOSTNAME_BYTES_MAX: usize = 255;

/// Names a machine: by its host name, its address or both; one of the two is there. Both are in their one form, wherever they come from.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "Said")]
pub struct MachineId {
    hostname: String,
    ip: String,
}

/// A machine's name as somebody else has written it, field by field the same.
#[derive(Deserialize)]
struct Said {
    hostname: String,
    ip: String,
}

impl TryFrom<Said> for MachineId {
    type Error = Invalid;

    fn try_from(said: Said) -> Result<Self, Invalid> {
        Self::new(&said.hostname, &said.ip)
    }
}

impl MachineId {
    /// The machine of this host name, in any case, and this address; an empty text is none.
    pub fn new(hostname: &str, ip: &str) -> Result<Self, Invalid> {
        if hostname.is_empty() && ip.is_empty() {
            let expected = "a `hostname` or an `ip`";
            return Err(Invalid::new("machine_id", "empty", expected));
        }
        if hostname.len() > HOSTNAME_BYTES_MAX || hostname.chars().any(char::is_control) {
            let shown: String = hostname.chars().take(80).collect();
            let expected = format!("the name of a host, of at most {HOSTNAME_BYTES_MAX} bytes");
            return Err(Invalid::new("hostname", shown, expected));
        }
        let ip = match ip {
            "" => String::new(),
            text => canonical(text).ok_or_else(|| {
                let shown: String = text.chars().take(80).collect();
                Invalid::new("ip", shown, "an address, as 10.0.0.7")
            })?,
        };
        let hostname = hostname.to_lowercase();
        Ok(Self { hostname, ip })
    }

    /// Its host name, in small letters; empty if it has none.
    pub fn hostname(&self) -> &str {
        &self.hostname
    }

    /// Its address; empty if it has none.
    pub fn ip(&self) -> &str {
        &self.ip
    }

    /// Whether it names the machine of that host name and address, as far as the address is known. A host that is called by its address is
    /// named by it as well.
    pub fn names(&self, hostname: &str, ip: Option<&str>) -> bool {
        let by_name = self.hostname.is_empty() || self.hostname == hostname.to_lowercase();
        let by_address = match ip {
            _ if self.ip.is_empty() => true,
            _ if canonical(hostname).as_deref() == Some(self.ip.as_str()) => true,
            Some(ip) => self.ip == ip,
            None => !self.hostname.is_empty(),
        };
        by_name && by_address
    }
}

impl fmt::Display for MachineId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.hostname.as_str(), self.ip.as_str()) {
            (hostname, "") => f.write_str(hostname),
            ("", ip) => f.write_str(ip),
            (hostname, ip) => write!(f, "{hostname} ({ip})"),
        }
    }
}

/// An address as it is always written.
fn canonical(text: &str) -> Option<String> {
    let ip: IpAddr = text.parse().ok()?;
    Some(ip.to_canonical().to_string())
}

/// When something will be away.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Unavailability {
    /// From then on.
    pub start: Timestamp,
    /// For so long; `None` is for ever.
    pub duration: Option<Duration>,
}

/// Machines that will be away together.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Window {
    /// Which.
    pub machines: Vec<MachineId>,
    /// When.
    pub unavailability: Unavailability,
}

/// A request to leave an agent by some time: the whole of it, with all that the framework has there.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct InverseOffer {
    /// Used in the answer.
    pub id: OfferId,
    /// To whom.
    pub framework_id: FrameworkId,
    /// Which agent.
    pub agent_id: AgentId,
    /// When it will be away.
    pub unavailability: Unavailability,
    /// The agent's host. No link tells it, nor what follows: frameworks over HTTP are told by their own master, native ones are not.
    #[serde(skip)]
    pub hostname: String,
    /// Where the agent's pages are.
    #[serde(skip)]
    pub served: Option<Served>,
}

/// What a framework said to an inverse offer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct InverseAnswer {
    /// Who.
    pub framework_id: FrameworkId,
    /// Whether it will leave by then.
    pub accepted: bool,
    /// When it said so.
    pub at: Timestamp,
}

/// A machine that is being left.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DrainingMachine {
    /// Which.
    pub id: MachineId,
    /// What frameworks said last, of each agent there.
    pub answers: Vec<InverseAnswer>,
}

/// How far maintenance has come.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct MaintenanceStatus {
    /// Machines that are being left.
    pub draining: Vec<DrainingMachine>,
    /// Machines that are away.
    pub down: Vec<MachineId>,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn machine(hostname: &str, ip: &str) -> MachineId {
        MachineId::new(hostname, ip).unwrap()
    }

    /// SPEC 3.6: host name or address is needed, and the name's case says nothing.
    #[test]
    fn a_machine_is_named_by_its_host_name_its_address_or_both() {
        assert_eq!(machine("Host-1", ""), machine("hOST-1", ""));
        assert_ne!(machine("host-1", ""), machine("host-1", "10.0.0.7"));
        for (hostname, ip, field) in [
            ("", "", "machine_id"),
            ("host", "10.0.0", "ip"),
            ("a\nb", "", "hostname"),
            (&"x".repeat(256), "", "hostname"),
        ] {
            let invalid = MachineId::new(hostname, ip).unwrap_err();
            assert!(invalid.to_string().starts_with(field), "{invalid}");
        }
    }

    #[test]
    fn a_name_from_elsewhere_is_taken_in_its_one_form_or_not_at_all() {
        let read = |hostname: &str, ip: &str| {
            let bytes = runtime::codec::encode(&(hostname, ip)).unwrap();
            runtime::codec::decode::<MachineId>(&bytes)
        };
        let sound = machine("host-1", "10.0.0.7");
        assert_eq!(read("HOST-1", "::ffff:10.0.0.7").unwrap(), sound);
        let bytes = runtime::codec::encode(&sound).unwrap();
        let plain = runtime::codec::encode(&("host-1", "10.0.0.7")).unwrap();
        assert_eq!(bytes, plain, "the form on a wire is that of two texts");
        for (hostname, ip) in [("", ""), ("host", "10.0.0"), ("a\nb", "")] {
            assert!(read(hostname, ip).is_err(), "{hostname:?} {ip:?}");
        }
    }

    #[test]
    fn an_agent_is_on_the_machine_of_its_name_and_of_its_address_where_that_is_known() {
        for (id, host, ip, is_there) in [
            (machine("host-1", ""), "HOST-1", None, true),
            (machine("host-1", ""), "host-2", Some("10.0.0.7"), false),
            (machine("host-1", "10.0.0.7"), "host-1", None, true),
            (
                machine("host-1", "10.0.0.7"),
                "host-1",
                Some("10.0.0.8"),
                false,
            ),
            (
                machine("host-1", "10.0.0.7"),
                "host-1",
                Some("10.0.0.7"),
                true,
            ),
            (machine("", "10.0.0.7"), "host-1", Some("10.0.0.7"), true),
            (machine("", "10.0.0.7"), "host-1", None, false),
            (machine("", "10.0.0.7"), "10.0.0.7", None, true),
            (
                machine("", "::ffff:10.0.0.7"),
                "10.0.0.7",
                Some("10.0.0.9"),
                true,
            ),
        ] {
            assert_eq!(id.names(host, ip), is_there, "{id} and {host} {ip:?}");
        }
    }
}
