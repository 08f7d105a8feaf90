//! `linux/seccomp`: the system calls that processes of a container may use, by a profile in the
//! format of Docker.
//!
//! A filter of the kernel here knows one action for what it matches. A profile with several actions
//! becomes several filters; of their verdicts the kernel takes the strictest.

use std::collections::BTreeMap;
use std::path::PathBuf;

use module_api::{Fault, ModuleError, Parameters};
use protocol::task::container::{LinuxCapabilities, LinuxInfo, Seccomp};
use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter,
    SeccompRule, TargetArch,
};
use serde::Deserialize;
use syscalls::Sysno;

/// `EPERM`, the error of a refused call unless a profile names another.
const DEFAULT_ERROR: u32 = 1;

/// A profile.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Profile {
    default_action: String,
    default_errno_ret: Option<u32>,
    #[serde(default)]
    syscalls: Vec<Rule>,
}

/// What happens to these system calls.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Rule {
    /// The older form has one name.
    name: Option<String>,
    #[serde(default)]
    names: Vec<String>,
    action: String,
    errno_ret: Option<u32>,
    args: Option<Vec<Argument>>,
    includes: Option<Conditions>,
    excludes: Option<Conditions>,
}

/// A comparison of an argument.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Argument {
    index: u8,
    value: u64,
    #[serde(default)]
    value_two: u64,
    op: String,
}

/// Where a rule holds.
#[derive(Debug, Default, Deserialize)]
struct Conditions {
    #[serde(default)]
    caps: Vec<String>,
    #[serde(default)]
    arches: Vec<String>,
}

/// The operator's profiles.
#[derive(Clone, Debug, Default)]
pub(super) struct Profiles {
    directory: Option<PathBuf>,
    default: Option<String>,
}

impl Profiles {
    /// Reads the flags `seccomp_config_dir` and `seccomp_profile_name`.
    pub(super) fn from_parameters(given: &Parameters) -> Result<Self, ModuleError> {
        let directory = given.optional("seccomp_config_dir", "a directory", |text| {
            Some(PathBuf::from(text)).filter(|path| path.is_dir())
        })?;
        let is_there = |name: &str| {
            let path = directory.as_ref()?.join(name);
            path.is_file().then(|| name.to_owned())
        };
        let expected = "the name of a file in --seccomp_config_dir";
        let default = given.optional("seccomp_profile_name", expected, is_there)?;
        Ok(Self { directory, default })
    }

    /// The filters of a container, which may have these capabilities. Reads the profile.
    pub(super) fn of(
        &self,
        linux: &LinuxInfo,
        capabilities: Option<LinuxCapabilities>,
    ) -> Result<Vec<Vec<u8>>, Fault> {
        let name = match &linux.seccomp {
            Some(Seccomp::Unconfined) => return Ok(Vec::new()),
            Some(Seccomp::Profile(name)) => Some(name),
            None => self.default.as_ref(),
        };
        let Some(name) = name else {
            return Ok(Vec::new());
        };
        let failed =
            |problem: String| Fault::failed(format!("Seccomp profile '{name}': {problem}"));
        let directory = self.directory.as_ref();
        let Some(directory) = directory.filter(|_| !name.contains('/') && name != "..") else {
            let expected = "expected the name of a file in the agent's --seccomp_config_dir";
            return Err(failed(expected.to_owned()));
        };
        let text = std::fs::read_to_string(directory.join(name));
        let text = text.map_err(|error| failed(error.to_string()))?;
        let capabilities = capabilities.unwrap_or(LinuxCapabilities(u64::MAX));
        filters(&text, capabilities).map_err(failed)
    }
}

/// The filters of a profile.
fn filters(text: &str, capabilities: LinuxCapabilities) -> Result<Vec<Vec<u8>>, String> {
    let profile: Profile = serde_json::from_str(text).map_err(|error| error.to_string())?;
    let default = action(&profile.default_action, profile.default_errno_ret)?;
    let mut groups: BTreeMap<u32, Group> = BTreeMap::new();
    for rule in &profile.syscalls {
        let action = action(&rule.action, rule.errno_ret)?;
        if !rule.holds(capabilities) || action == default {
            continue;
        }
        let group = groups.entry(u32::from(action.clone()));
        let group = group.or_insert_with(|| Group::of(action));
        rule.add_to(&mut group.rules)?;
    }
    let others = groups
        .values()
        .filter(|group| group.action != SeccompAction::Allow);
    let decided: Vec<i64> = others
        .flat_map(|group| group.rules.keys().copied())
        .collect();
    if default != SeccompAction::Allow {
        let allowed = groups.entry(u32::from(SeccompAction::Allow));
        let allowed = allowed.or_insert_with(|| Group::of(SeccompAction::Allow));
        // Their own filters judge these.
        allowed
            .rules
            .extend(decided.into_iter().map(|call| (call, Vec::new())));
    }
    let filters = groups.into_values().map(|group| {
        let otherwise = match group.action {
            SeccompAction::Allow => default.clone(),
            _ => SeccompAction::Allow,
        };
        group.filter(otherwise)
    });
    filters.collect()
}

/// Rules with one action, by the numbers of the calls; one without rules always matches.
struct Group {
    action: SeccompAction,
    rules: BTreeMap<i64, Vec<SeccompRule>>,
}

impl Group {
    fn of(action: SeccompAction) -> Self {
        Self {
            action,
            rules: BTreeMap::new(),
        }
    }

    fn filter(self, otherwise: SeccompAction) -> Result<Vec<u8>, String> {
        let host = TargetArch::try_from(std::env::consts::ARCH);
        let host = host.map_err(|error| error.to_string())?;
        let filter = SeccompFilter::new(self.rules, otherwise, self.action, host);
        let filter = filter.map_err(|error| error.to_string())?;
        let program: BpfProgram = filter
            .try_into()
            .map_err(|error: seccompiler::BackendError| error.to_string())?;
        let bytes = program.iter().flat_map(|instruction| {
            let [code0, code1] = instruction.code.to_ne_bytes();
            let [k0, k1, k2, k3] = instruction.k.to_ne_bytes();
            [code0, code1, instruction.jt, instruction.jf, k0, k1, k2, k3]
        });
        Ok(bytes.collect())
    }
}

impl Rule {
    fn holds(&self, capabilities: LinuxCapabilities) -> bool {
        let has = |name: &String| {
            let name = name.trim_start_matches("CAP_");
            LinuxCapabilities::from_names([name]).is_ok_and(|one| one.is_subset(capabilities))
        };
        let is_here = |arch: &String| arch == docker_arch();
        let included = self.includes.as_ref().is_none_or(|on| {
            on.caps.iter().all(has) && (on.arches.is_empty() || on.arches.iter().any(is_here))
        });
        let excluded = self
            .excludes
            .as_ref()
            .is_some_and(|off| off.caps.iter().any(has) || off.arches.iter().any(is_here));
        included && !excluded
    }

    fn add_to(&self, rules: &mut BTreeMap<i64, Vec<SeccompRule>>) -> Result<(), String> {
        let arguments = self.args.as_deref().unwrap_or_default();
        let conditions: Vec<SeccompCondition> = arguments
            .iter()
            .map(Argument::condition)
            .collect::<Result<_, _>>()?;
        for name in self.names.iter().chain(&self.name) {
            // A profile names calls of all architectures and of newer kernels, too.
            let Ok(call) = name.parse::<Sysno>() else {
                continue;
            };
            let call = i64::from(call.id());
            let is_always = rules.get(&call).is_some_and(Vec::is_empty);
            match conditions.is_empty() {
                true => drop(rules.insert(call, Vec::new())),
                false if is_always => {}
                false => {
                    let rule = SeccompRule::new(conditions.clone());
                    let rule = rule.map_err(|error| error.to_string())?;
                    rules.entry(call).or_default().push(rule);
                }
            }
        }
        Ok(())
    }
}

impl Argument {
    fn condition(&self) -> Result<SeccompCondition, String> {
        let (op, value) = match self.op.as_str() {
            "SCMP_CMP_EQ" => (SeccompCmpOp::Eq, self.value),
            "SCMP_CMP_NE" => (SeccompCmpOp::Ne, self.value),
            "SCMP_CMP_LT" => (SeccompCmpOp::Lt, self.value),
            "SCMP_CMP_LE" => (SeccompCmpOp::Le, self.value),
            "SCMP_CMP_GT" => (SeccompCmpOp::Gt, self.value),
            "SCMP_CMP_GE" => (SeccompCmpOp::Ge, self.value),
            "SCMP_CMP_MASKED_EQ" => (SeccompCmpOp::MaskedEq(self.value), self.value_two),
            other => return Err(format!("op is `{other}`: expected SCMP_CMP_EQ or another")),
        };
        let condition = SeccompCondition::new(self.index, SeccompCmpArgLen::Qword, op, value);
        condition.map_err(|error| error.to_string())
    }
}

fn action(name: &str, error: Option<u32>) -> Result<SeccompAction, String> {
    Ok(match name {
        "SCMP_ACT_ALLOW" => SeccompAction::Allow,
        "SCMP_ACT_ERRNO" => SeccompAction::Errno(error.unwrap_or(DEFAULT_ERROR)),
        "SCMP_ACT_KILL" | "SCMP_ACT_KILL_THREAD" => SeccompAction::KillThread,
        "SCMP_ACT_KILL_PROCESS" => SeccompAction::KillProcess,
        "SCMP_ACT_LOG" => SeccompAction::Log,
        "SCMP_ACT_TRAP" => SeccompAction::Trap,
        other => {
            return Err(format!(
                "action is `{other}`: expected SCMP_ACT_ALLOW, ERRNO, KILL, KILL_PROCESS, LOG or TRAP"
            ));
        }
    })
}

/// Docker's name of this host's architecture.
fn docker_arch() -> &'static str {
    match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn compiled(text: &str, capabilities: u64) -> Result<usize, String> {
        filters(text, LinuxCapabilities(capabilities)).map(|filters| filters.len())
    }

    #[test]
    fn each_action_becomes_a_filter() {
        let profile = |rules: &str| {
            format!(r#"{{"defaultAction": "SCMP_ACT_ERRNO", "syscalls": [{rules}]}}"#)
        };
        let allow = r#"{"names": ["read", "no_such_call"], "action": "SCMP_ACT_ALLOW"}"#;
        let unknown = r#"{"names": ["clone3"], "action": "SCMP_ACT_ERRNO", "errnoRet": 38}"#;
        let same = r#"{"names": ["mount"], "action": "SCMP_ACT_ERRNO"}"#;
        let guarded =
            r#"{"names": ["bpf"], "action": "SCMP_ACT_LOG", "includes": {"caps": ["CAP_BPF"]}}"#;
        assert_eq!(compiled(&profile(allow), 0), Ok(1));
        assert_eq!(compiled(&profile(""), 0), Ok(1), "all is refused");
        let all = [allow, unknown, same, guarded].join(",");
        assert_eq!(compiled(&profile(&all), 0), Ok(2));
        assert_eq!(compiled(&profile(&all), u64::MAX), Ok(3));
    }

    #[test]
    fn what_is_no_profile_is_refused_with_what_was_expected() {
        for (text, problem) in [
            ("{}", "missing field `defaultAction`"),
            (
                r#"{"defaultAction": "SCMP_ACT_X"}"#,
                "action is `SCMP_ACT_X`",
            ),
            (
                r#"{"defaultAction": "SCMP_ACT_ALLOW", "syscalls": [{"name": "read", "action": "SCMP_ACT_ERRNO", "args": [{"index": 0, "value": 1, "op": "EQ"}]}]}"#,
                "op is `EQ`",
            ),
            (
                r#"{"defaultAction": "SCMP_ACT_ALLOW", "syscalls": [{"name": "read", "action": "SCMP_ACT_ERRNO", "args": [{"index": 9, "value": 1, "op": "SCMP_CMP_EQ"}]}]}"#,
                "argument",
            ),
        ] {
            let refused = compiled(text, 0).unwrap_err();
            assert!(refused.contains(problem), "{text}: {refused}");
        }
    }

    #[test]
    fn profile_is_the_containers_or_the_operators() {
        let directory = tempfile::tempdir().unwrap();
        let text = r#"{"defaultAction": "SCMP_ACT_ALLOW", "syscalls": [{"name": "mount", "action": "SCMP_ACT_ERRNO"}]}"#;
        std::fs::write(directory.path().join("own.json"), text).unwrap();
        let given = Parameters::none("isolators")
            .with("seccomp_config_dir", directory.path().to_str().unwrap());
        let profiles = Profiles::from_parameters(&given).unwrap();
        let of = |seccomp: Option<Seccomp>| {
            let linux = LinuxInfo {
                seccomp,
                ..LinuxInfo::default()
            };
            let filters = profiles.of(&linux, None);
            filters
                .map(|all| all.len())
                .map_err(|fault| fault.to_string())
        };
        assert_eq!(of(None), Ok(0));
        assert_eq!(of(Some(Seccomp::Profile("own.json".into()))), Ok(1));
        for bad in ["missing.json", "../own.json", ".."] {
            let refused = of(Some(Seccomp::Profile(bad.into()))).unwrap_err();
            assert!(refused.contains(&format!("profile '{bad}'")), "{refused}");
        }
        let default = given.clone().with("seccomp_profile_name", "own.json");
        let profiles = Profiles::from_parameters(&default).unwrap();
        assert_eq!(profiles.of(&LinuxInfo::default(), None).unwrap().len(), 1);
        let bad = given.with("seccomp_profile_name", "none.json");
        assert!(Profiles::from_parameters(&bad).is_err());
    }
}
