//! `linux/capabilities`: what processes of a container may do beyond the rights of their user.

use module_api::isolator::CapabilitySets;
use module_api::{Fault, ModuleError, Parameters};
use protocol::task::container::{LinuxCapabilities, LinuxInfo};
use serde::Deserialize;

/// Those that a container with an image can gain at most if nobody names any: as with Docker,
/// without that to make devices.
pub(super) fn of_images() -> LinuxCapabilities {
    let names = [
        "AUDIT_WRITE",
        "CHOWN",
        "DAC_OVERRIDE",
        "FOWNER",
        "FSETID",
        "KILL",
        "NET_BIND_SERVICE",
        "NET_RAW",
        "SETFCAP",
        "SETGID",
        "SETPCAP",
        "SETUID",
        "SYS_CHROOT",
    ];
    LinuxCapabilities::from_names(names).unwrap_or_default()
}

/// The operator's sets.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct AllowedCapabilities {
    effective: Option<LinuxCapabilities>,
    bounding: Option<LinuxCapabilities>,
}

/// `CapabilityInfo` of Mesos in JSON.
#[derive(Deserialize)]
struct CapabilityInfo {
    #[serde(default)]
    capabilities: Vec<String>,
}

fn parse(text: &str) -> Option<LinuxCapabilities> {
    let info: CapabilityInfo = serde_json::from_str(text).ok()?;
    LinuxCapabilities::from_names(info.capabilities.iter().map(String::as_str)).ok()
}

impl AllowedCapabilities {
    /// Reads the flags `effective_capabilities` and `bounding_capabilities`.
    pub(super) fn from_parameters(given: &Parameters) -> Result<Self, ModuleError> {
        let expected = r#"JSON such as {"capabilities": ["NET_RAW"]} with known names"#;
        let effective = given.optional("effective_capabilities", expected, parse)?;
        let expected =
            r#"JSON such as {"capabilities": ["NET_RAW"]} with all of --effective_capabilities"#;
        let within = |text: &str| {
            let bounding = parse(text)?;
            let covers = effective.is_none_or(|effective| effective.is_subset(bounding));
            covers.then_some(bounding)
        };
        let bounding = given.optional("bounding_capabilities", expected, within)?;
        Ok(Self {
            effective,
            bounding,
        })
    }

    /// The sets of a container; `None` for those of its user. A privileged one has all of its user
    /// within the bounds of the operator. Errors have the words of Mesos.
    pub(super) fn of(
        &self,
        linux: &LinuxInfo,
        is_privileged: bool,
    ) -> Result<Option<CapabilitySets>, Fault> {
        let within = |what: &str, own: LinuxCapabilities, allowed: LinuxCapabilities| {
            let message = format!("{what} capabilities '{own}', but only '{allowed}' are allowed");
            own.is_subset(allowed)
                .then_some(())
                .ok_or_else(|| Fault::failed(message))
        };
        if let (Some(own), Some(allowed)) = (linux.bounding, self.bounding) {
            within("Bounding", own, allowed)?;
        }
        let usual = self.effective.filter(|_| !is_privileged);
        let effective = linux.effective.or(usual);
        let Some(bounding) = linux.bounding.or(self.bounding).or(effective) else {
            return Ok(None);
        };
        if let Some(effective) = effective {
            within("Requested", effective, bounding)?;
        }
        Ok(Some(CapabilitySets {
            effective,
            bounding,
        }))
    }
}
