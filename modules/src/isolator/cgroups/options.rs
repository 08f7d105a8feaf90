//! The operator's flags for control groups.

use std::path::{Component, Path, PathBuf};
use std::time::Duration;

use module_api::{ModuleError, ModuleKind, Parameters};

use super::controllers::devices::{AllowedDevice, DeviceWhitelist};

/// The flags, by their names without `cgroups_`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Options {
    /// The folder below which hierarchies are mounted.
    pub hierarchy: PathBuf,
    /// The agent's group in each hierarchy: a relative path.
    pub root: PathBuf,
    /// Whether a request of CPUs is their limit, too.
    pub enable_cfs: bool,
    /// Whether the limit of memory holds for memory and swap together.
    pub limit_swap: bool,
    /// How long the removal of a group may take.
    pub destroy_timeout: Duration,
    /// Whether revocable CPUs weigh a hundredth of others.
    pub revocable_cpu_low_priority: bool,
    /// How many processes and threads a container can have; zero for any number, and `None` for
    /// the default of this host.
    pub pids_limit: Option<u64>,
    /// Devices that containers can use beyond those that all can.
    pub allowed_devices: Vec<AllowedDevice>,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            hierarchy: PathBuf::from("/sys/fs/cgroup"),
            root: PathBuf::from("mesos"),
            enable_cfs: false,
            limit_swap: false,
            destroy_timeout: Duration::from_secs(60),
            revocable_cpu_low_priority: true,
            pids_limit: None,
            allowed_devices: Vec::new(),
        }
    }
}

impl Options {
    /// Reads the flags. Those that are not given have their defaults.
    pub fn from_parameters(given: &Parameters) -> Result<Self, ModuleError> {
        let or_not = |key| given.optional(key, "true or false", |text| text.parse().ok());
        let default = Self::default();
        let hierarchy = given.optional("cgroups_hierarchy", "an absolute path", absolute)?;
        let root = given.optional("cgroups_root", "a path without `..`", relative)?;
        let timeout = given.optional(
            "cgroups_destroy_timeout",
            "a duration such as `1mins`",
            |text| protocol::text::duration::parse(text).ok(),
        )?;
        let pids = given.optional("cgroups_pids_limit", "a number", |text| text.parse().ok())?;
        let expected = r#"JSON such as {"allowed_devices": [{"device": {"path": "/dev/fuse"}, "access": {"read": true, "write": true}}]}"#;
        let devices: Option<DeviceWhitelist> =
            given.optional("allowed_devices", expected, |text| {
                serde_json::from_str(text).ok()
            })?;
        let devices = devices.unwrap_or_default().find();
        let devices = devices.map_err(|reason| ModuleError::NotStarted {
            kind: ModuleKind::Isolator,
            name: "cgroups/devices".to_owned(),
            reason,
        })?;
        Ok(Self {
            hierarchy: hierarchy.unwrap_or(default.hierarchy),
            root: root.unwrap_or(default.root),
            enable_cfs: or_not("cgroups_enable_cfs")?.unwrap_or(default.enable_cfs),
            limit_swap: or_not("cgroups_limit_swap")?.unwrap_or(default.limit_swap),
            destroy_timeout: timeout.unwrap_or(default.destroy_timeout),
            revocable_cpu_low_priority: or_not("revocable_cpu_low_priority")?
                .unwrap_or(default.revocable_cpu_low_priority),
            pids_limit: pids,
            allowed_devices: devices,
        })
    }
}

fn absolute(text: &str) -> Option<PathBuf> {
    Some(PathBuf::from(text)).filter(|path| path.is_absolute())
}

/// The path without slashes at its begin; not empty, since an agent needs a group of its own.
fn relative(text: &str) -> Option<PathBuf> {
    let path = Path::new(text.trim_start_matches('/'));
    let plain = |part| matches!(part, Component::Normal(_));
    (path.components().next().is_some() && path.components().all(plain)).then(|| path.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flags_are_read() {
        let none = Parameters::none("cgroups");
        assert_eq!(Options::from_parameters(&none), Ok(Options::default()));
        let given = none
            .clone()
            .with("cgroups_root", "/mesos/one")
            .with("cgroups_enable_cfs", "true")
            .with("cgroups_destroy_timeout", "5secs")
            .with("cgroups_pids_limit", "300")
            .with("other_flag", "x");
        let options = Options::from_parameters(&given).unwrap();
        assert_eq!(options.root, Path::new("mesos/one"));
        assert!(options.enable_cfs && !options.limit_swap);
        assert_eq!(options.destroy_timeout, Duration::from_secs(5));
        assert_eq!(options.pids_limit, Some(300));
        for (devices, problem) in [
            ("no JSON", "JSON such as"),
            (
                r#"{"allowed_devices":[{"device":{"path":"/dev/no"},"access":{}}]}"#,
                "`/dev/no`",
            ),
        ] {
            let given = none.clone().with("allowed_devices", devices);
            let error = Options::from_parameters(&given).unwrap_err().to_string();
            assert!(error.contains(problem), "{error}");
        }
        for bad in ["", "/", "a/../../b"] {
            let given = none.clone().with("cgroups_root", bad);
            assert!(Options::from_parameters(&given).is_err(), "{bad}");
        }
    }
}
