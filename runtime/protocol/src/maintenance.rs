//! Maintenance schedules, inverse offers and their types.
//!
//! Only the types and their own validity. The master validates schedule changes.

use std::fmt;
use std::net::IpAddr;
use std::time::Duration;

use resources::Invalid;
use runtime::Timestamp;
use serde::{Deserialize, Serialize};

use crate::agent::HttpEndpoint;
use crate::id::{AgentId, FrameworkId, OfferId};

/// Maximum length of a host name, in bytes.
const HOSTNAME_BYTES_MAX: usize = 255;

/// Names a machine by its host name, its IP address, or both. Always normalized, also after
/// decoding.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "RawMachineId")]
pub struct MachineId {
    hostname: String,
    ip: String,
}

/// The undecoded form of a [`MachineId`], with the same fields.
#[derive(Deserialize)]
struct RawMachineId {
    hostname: String,
    ip: String,
}

impl TryFrom<RawMachineId> for MachineId {
    type Error = Invalid;

    fn try_from(raw: RawMachineId) -> Result<Self, Invalid> {
        Self::new(&raw.hostname, &raw.ip)
    }
}

impl MachineId {
    /// Normalizes and validates: the host name is not case-sensitive, and an empty text means
    /// absent.
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

    /// Host name in lower case, or empty.
    pub fn hostname(&self) -> &str {
        &self.hostname
    }

    /// IP address, or empty.
    pub fn ip(&self) -> &str {
        &self.ip
    }

    /// Whether it names the machine of this host name and address, where known. An address also
    /// matches a host that has this address as its name.
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

/// The normalized form of an IP address.
fn canonical(text: &str) -> Option<String> {
    let ip: IpAddr = text.parse().ok()?;
    Some(ip.to_canonical().to_string())
}

/// A period of unavailability.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Unavailability {
    /// Its start.
    pub start: Timestamp,
    /// Its length; `None` is unlimited.
    pub duration: Option<Duration>,
}

/// Machines with a common period of unavailability.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Window {
    /// The machines.
    pub machines: Vec<MachineId>,
    /// The period.
    pub unavailability: Unavailability,
}

/// A request to leave an agent, with all of the framework's resources there, before the agent
/// becomes unavailable.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct InverseOffer {
    /// Id, used in the answer.
    pub id: OfferId,
    /// Framework that receives the inverse offer.
    pub framework_id: FrameworkId,
    /// The agent.
    pub agent_id: AgentId,
    /// Its planned unavailability.
    pub unavailability: Unavailability,
    /// Host of the agent. Only for HTTP frameworks: it is not sent on links.
    #[serde(skip)]
    pub hostname: String,
    /// Address of the agent's pages. Not sent on links.
    #[serde(skip)]
    pub endpoint: Option<HttpEndpoint>,
}

/// A framework's answer to an inverse offer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct InverseAnswer {
    /// The framework.
    pub framework_id: FrameworkId,
    /// Whether it will leave in time.
    pub accepted: bool,
    /// Time of the answer.
    pub at: Timestamp,
}

/// A machine before its planned unavailability.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DrainingMachine {
    /// The machine.
    pub id: MachineId,
    /// The last answer of each framework, for each agent of the machine.
    pub answers: Vec<InverseAnswer>,
}

/// State of the maintenance.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct MaintenanceStatus {
    /// Machines that frameworks are asked to leave.
    pub draining: Vec<DrainingMachine>,
    /// Machines that are down.
    pub down: Vec<MachineId>,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn machine(hostname: &str, ip: &str) -> MachineId {
        MachineId::new(hostname, ip).unwrap()
    }

    /// SPEC 3.6: a host name or an address is required; the name is not case-sensitive.
    #[test]
    fn machine_id_needs_a_host_name_or_address() {
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
    fn decoded_machine_ids_are_normalized_or_invalid() {
        let read = |hostname: &str, ip: &str| {
            let bytes = runtime::wire::codec::encode(&(hostname, ip)).unwrap();
            runtime::wire::codec::decode::<MachineId>(&bytes)
        };
        let sound = machine("host-1", "10.0.0.7");
        assert_eq!(read("HOST-1", "::ffff:10.0.0.7").unwrap(), sound);
        let bytes = runtime::wire::codec::encode(&sound).unwrap();
        let plain = runtime::wire::codec::encode(&("host-1", "10.0.0.7")).unwrap();
        assert_eq!(bytes, plain, "the form on a wire is that of two texts");
        for (hostname, ip) in [("", ""), ("host", "10.0.0"), ("a\nb", "")] {
            assert!(read(hostname, ip).is_err(), "{hostname:?} {ip:?}");
        }
    }

    #[test]
    fn machine_id_matches_known_host_name_and_address() {
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
