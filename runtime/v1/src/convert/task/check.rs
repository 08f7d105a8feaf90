//! Checks and health checks of tasks. What they lack is an error with Mesos' message.

use std::time::Duration;

use protocol::task::check::{
    CheckInfo as Check, CheckKind, CheckTiming, HealthCheck as Health, HttpCheck, IpProtocol,
    NamedCheck as Named, TcpCheck,
};
use resources::Invalid;

use crate::convert::read_seconds;
use crate::schema::{
    CheckInfo, CheckInfoCommand, CheckInfoHttp, CheckInfoTcp, CheckInfoType, CheckStatusInfo,
    CheckStatusInfoCommand, CheckStatusInfoHttp, CheckStatusInfoTcp, CommandInfo, HealthCheck,
    HealthCheckHTTPCheckInfo, HealthCheckTCPCheckInfo, HealthCheckType, NamedCheck,
    NetworkInfoProtocol,
};

const GRACE_PERIOD: Duration = Duration::from_secs(10);
const CONSECUTIVE_FAILURES: u32 = 3;

impl TryFrom<&HealthCheck> for Health {
    type Error = Invalid;

    fn try_from(check: &HealthCheck) -> Result<Self, Invalid> {
        read_health(check).map_err(|bad| prefixed("Task uses invalid health check", &bad))
    }
}

fn read_health(check: &HealthCheck) -> Result<Health, Invalid> {
    let absent = |name: &str, kind: &str| {
        Invalid::message(format!(
            "Expecting '{name}' to be set for {kind} health check"
        ))
    };
    let kind = match check.r#type {
        None => return Err(Invalid::message("HealthCheck must specify 'type'")),
        Some(HealthCheckType::Unknown) => {
            let problem = "'UNKNOWN' is not a valid health check type";
            return Err(Invalid::message(problem));
        }
        Some(HealthCheckType::Command) => {
            let command = check.command.as_deref();
            let command = command.ok_or_else(|| absent("command", "COMMAND"))?;
            CheckKind::Command(read_command(command, "Command health", "Health check's")?)
        }
        Some(HealthCheckType::Http) => {
            let http = check.http.as_deref();
            let http = http.ok_or_else(|| absent("http", "HTTP"))?;
            CheckKind::Http(HttpCheck {
                port: http.port,
                path: http.path.clone(),
                scheme: http.scheme.clone(),
                statuses: http.statuses.clone(),
                protocol: read_protocol(http.protocol),
            })
        }
        Some(HealthCheckType::Tcp) => {
            let tcp = check.tcp.as_ref().ok_or_else(|| absent("tcp", "TCP"))?;
            CheckKind::Tcp(TcpCheck {
                port: tcp.port,
                protocol: read_protocol(tcp.protocol),
            })
        }
    };
    let delay = read_time("delay_seconds", check.delay_seconds)?;
    let grace_period = read_time("grace_period_seconds", check.grace_period_seconds)?;
    Ok(Health {
        kind,
        timing: timing(delay, check.interval_seconds, check.timeout_seconds)?,
        grace_period: grace_period.unwrap_or(GRACE_PERIOD),
        consecutive_failures: check.consecutive_failures.unwrap_or(CONSECUTIVE_FAILURES),
    })
}

impl TryFrom<&CheckInfo> for Check {
    type Error = Invalid;

    fn try_from(check: &CheckInfo) -> Result<Self, Invalid> {
        read_check(check).map_err(|bad| prefixed("Task uses invalid check", &bad))
    }
}

/// The named checks of a task.
pub(super) fn read_named(checks: &[NamedCheck]) -> Result<Vec<Named>, Invalid> {
    let read = |(index, named): (usize, &NamedCheck)| {
        let rule = format!("Task uses invalid check: task.checks[{index}]");
        let check = read_check(&named.check).map_err(|bad| prefixed(&rule, &bad))?;
        let name = named.name.clone();
        Ok(Named { name, check })
    };
    checks.iter().enumerate().map(read).collect()
}

impl From<&Named> for NamedCheck {
    fn from(own: &Named) -> Self {
        Self {
            name: own.name.clone(),
            check: (&own.check).into(),
        }
    }
}

fn read_check(check: &CheckInfo) -> Result<Check, Invalid> {
    let absent = |name: &str, kind: &str| {
        Invalid::message(format!("Expecting '{name}' to be set for {kind} check"))
    };
    let kind = match check.r#type {
        None => return Err(Invalid::message("CheckInfo must specify 'type'")),
        Some(CheckInfoType::Unknown) => {
            let problem = "'UNKNOWN' is not a valid check type";
            return Err(Invalid::message(problem));
        }
        Some(CheckInfoType::Command) => {
            let command = check.command.as_deref();
            let command = command.ok_or_else(|| absent("command", "COMMAND"))?;
            CheckKind::Command(read_command(&command.command, "Command", "Check's")?)
        }
        Some(CheckInfoType::Http) => {
            let http = check.http.as_ref().ok_or_else(|| absent("http", "HTTP"))?;
            CheckKind::Http(HttpCheck {
                port: http.port,
                path: http.path.clone(),
                ..HttpCheck::default()
            })
        }
        Some(CheckInfoType::Tcp) => {
            let tcp = check.tcp.as_ref().ok_or_else(|| absent("tcp", "TCP"))?;
            CheckKind::Tcp(TcpCheck {
                port: tcp.port,
                ..TcpCheck::default()
            })
        }
    };
    let delay = read_time("delay_seconds", check.delay_seconds)?;
    let timing = timing(delay, check.interval_seconds, check.timeout_seconds)?;
    Ok(Check { kind, timing })
}

/// The rule of Mesos before its error.
fn prefixed(rule: &str, bad: &Invalid) -> Invalid {
    Invalid::message(format!("{rule}: {bad}"))
}

fn read_command(
    command: &CommandInfo,
    title: &str,
    owner: &str,
) -> Result<protocol::CommandInfo, Invalid> {
    if command.value.is_none() {
        let what = match command.shell.unwrap_or(true) {
            true => "shell command",
            false => "executable path",
        };
        let problem = format!("{title} check must contain '{what}'");
        return Err(Invalid::message(problem));
    }
    let read = protocol::CommandInfo::try_from(command);
    read.map_err(|bad| prefixed(&format!("{owner} `CommandInfo` is invalid"), &bad))
}

pub(super) fn read_protocol(protocol: Option<NetworkInfoProtocol>) -> IpProtocol {
    match protocol {
        Some(NetworkInfoProtocol::IPv6) => IpProtocol::V6,
        _ => IpProtocol::V4,
    }
}

fn read_time(name: &str, seconds: Option<f64>) -> Result<Option<Duration>, Invalid> {
    if seconds.is_some_and(|seconds| seconds < 0.0) {
        let problem = format!("Expecting '{name}' to be non-negative");
        return Err(Invalid::message(problem));
    }
    let read = seconds.map(|seconds| read_seconds(name, Some(seconds)));
    read.transpose()
}

fn timing(
    delay: Option<Duration>,
    interval: Option<f64>,
    timeout: Option<f64>,
) -> Result<CheckTiming, Invalid> {
    let default = CheckTiming::default();
    Ok(CheckTiming {
        delay: delay.unwrap_or(default.delay),
        interval: read_time("interval_seconds", interval)?.unwrap_or(default.interval),
        timeout: read_time("timeout_seconds", timeout)?.unwrap_or(default.timeout),
    })
}

impl From<&Health> for HealthCheck {
    fn from(health: &Health) -> Self {
        let mut check = Self {
            delay_seconds: Some(health.timing.delay.as_secs_f64()),
            interval_seconds: Some(health.timing.interval.as_secs_f64()),
            timeout_seconds: Some(health.timing.timeout.as_secs_f64()),
            consecutive_failures: Some(health.consecutive_failures),
            grace_period_seconds: Some(health.grace_period.as_secs_f64()),
            ..Self::default()
        };
        match &health.kind {
            CheckKind::Command(command) => {
                check.r#type = Some(HealthCheckType::Command);
                check.command = Some(Box::new(command.into()));
            }
            CheckKind::Http(http) => {
                check.r#type = Some(HealthCheckType::Http);
                check.http = Some(Box::new(HealthCheckHTTPCheckInfo {
                    port: http.port,
                    path: http.path.clone(),
                    scheme: http.scheme.clone(),
                    statuses: http.statuses.clone(),
                    protocol: Some(write_protocol(http.protocol)),
                }));
            }
            CheckKind::Tcp(tcp) => {
                check.r#type = Some(HealthCheckType::Tcp);
                check.tcp = Some(HealthCheckTCPCheckInfo {
                    port: tcp.port,
                    protocol: Some(write_protocol(tcp.protocol)),
                });
            }
        }
        check
    }
}

impl From<&Check> for CheckInfo {
    fn from(own: &Check) -> Self {
        let mut check = Self {
            delay_seconds: Some(own.timing.delay.as_secs_f64()),
            interval_seconds: Some(own.timing.interval.as_secs_f64()),
            timeout_seconds: Some(own.timing.timeout.as_secs_f64()),
            r#type: Some(kind_of(&own.kind)),
            ..Self::default()
        };
        match &own.kind {
            CheckKind::Command(command) => {
                let command = command.into();
                check.command = Some(Box::new(CheckInfoCommand { command }));
            }
            CheckKind::Http(http) => {
                check.http = Some(CheckInfoHttp {
                    port: http.port,
                    path: http.path.clone(),
                });
            }
            CheckKind::Tcp(tcp) => check.tcp = Some(CheckInfoTcp { port: tcp.port }),
        }
        check
    }
}

pub(super) fn write_protocol(protocol: IpProtocol) -> NetworkInfoProtocol {
    match protocol {
        IpProtocol::V4 => NetworkInfoProtocol::IPv4,
        IpProtocol::V6 => NetworkInfoProtocol::IPv6,
    }
}

fn kind_of(kind: &CheckKind) -> CheckInfoType {
    match kind {
        CheckKind::Command(_) => CheckInfoType::Command,
        CheckKind::Http(_) => CheckInfoType::Http,
        CheckKind::Tcp(_) => CheckInfoType::Tcp,
    }
}

/// The result of a check of this kind: an exit code, a status code, or whether it could connect (1)
/// or not (0). `None` means no result yet, or none in time.
pub fn check_result(kind: &CheckKind, result: Option<i32>) -> CheckStatusInfo {
    let mut status = CheckStatusInfo {
        r#type: Some(kind_of(kind)),
        ..CheckStatusInfo::default()
    };
    match kind {
        CheckKind::Command(_) => {
            status.command = Some(CheckStatusInfoCommand { exit_code: result });
        }
        CheckKind::Http(_) => {
            let status_code = result.and_then(|code| code.try_into().ok());
            status.http = Some(CheckStatusInfoHttp { status_code });
        }
        CheckKind::Tcp(_) => {
            let succeeded = result.map(|succeeded| succeeded != 0);
            status.tcp = Some(CheckStatusInfoTcp { succeeded });
        }
    }
    status
}
