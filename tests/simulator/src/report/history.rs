//! Faults as lines of text, for replay commands and hand-written scenarios.
//!
//! `90secs+30secs crash agent-2` begins 90 s after the start and lasts 30 s. Formatting and parsing
//! round-trip.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use protocol::text::duration;

use crate::scenario::{Fault, FaultKind, Step};

/// The forms that [`Fault::from_str`] reads, for help and errors.
pub const FORMS: &str = "AT+FOR and one of `crash NODE`, `crash_process AGENT` (its machine goes on), `crash_at NODE write|packet COUNT`, `restart NODE`, `pause NODE`, `flap NODE EVERY`, \
     `partition NODE NODE`, `one_way FROM TO`, \
     `slow_reader NODE`, `packet_faults NODE LOSS DUPLICATION LATENCY` (shares in thousandths), `slow_disk NODE BY`, `failing_disk NODE`, `rewind MASTER` (its disk is put back to what it was), \
     `wall_jump NODE SECONDS`, `drift NODE PPM`, `kill_executor AGENT`, `busy AGENT`, `isolation AGENT` (isolators fail), `lie MASTER` (its sorter answers nonsense), `panic MASTER` (of a group: the actor alone), `change_quotas MASTER` (an operator changes quotas and weights), `maintain AGENT` (an operator takes its machine down), as in `90secs+30secs crash agent-2`; a NODE may be `leader`, `follower`, `masters`, `minority`, `majority` \
     or `everyone`";

/// Maximum drift of a clock in millionths: half as fast again, or half as fast.
const DRIFT_MAX: u32 = 500_000;

/// Maximum characters of the problem in an error.
const PROBLEM_MAX: usize = 200;

/// A text that is not a fault.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{text}` is not a fault: {problem}; expected {FORMS}")]
pub struct InvalidFault {
    /// The text, cut to 120 characters.
    pub text: String,
    /// The problem, cut to 200 characters: it may contain a word of the text.
    pub problem: String,
}

impl FaultKind {
    /// The nodes in the fault.
    pub fn nodes(&self) -> Vec<&str> {
        match self {
            Self::Partition { one, other } => vec![one, other],
            Self::OneWay { from, to } => vec![from, to],
            Self::PacketFaults { node, .. }
            | Self::SlowReader { node }
            | Self::Crash { node }
            | Self::CrashProcess { node }
            | Self::CrashAt { node, .. }
            | Self::Pause { node }
            | Self::Flap { node, .. }
            | Self::Restart { node }
            | Self::SlowDisk { node, .. }
            | Self::Rewind { node }
            | Self::FailingDisk { node }
            | Self::WallJump { node, .. }
            | Self::Drift { node, .. }
            | Self::KillExecutor { node }
            | Self::Busy { node }
            | Self::Isolation { node }
            | Self::Lie { node }
            | Self::Panic { node }
            | Self::ChangeQuotas { node }
            | Self::Maintain { node } => vec![node],
        }
    }

    fn read(words: &[&str]) -> Result<Self, String> {
        let name = |text: &str| text.to_owned();
        let number = |text: &str| {
            let share = text.parse().ok().filter(|share| *share <= 1000);
            share.ok_or_else(|| format!("`{text}` is not a share from 0 to 1000"))
        };
        Ok(match *words {
            ["crash", node] => Self::Crash { node: name(node) },
            ["crash_process", node] => Self::CrashProcess { node: name(node) },
            ["crash_at", node, step, count] => Self::CrashAt {
                node: name(node),
                step: Step::ALL
                    .into_iter()
                    .find(|known| known.name() == step)
                    .ok_or_else(|| format!("`{step}` is neither write nor packet"))?,
                count: count
                    .parse()
                    .ok()
                    .filter(|count| *count > 0)
                    .ok_or_else(|| format!("`{count}` is not a number from 1 on"))?,
            },
            ["pause", node] => Self::Pause { node: name(node) },
            ["flap", node, every] => Self::Flap {
                node: name(node),
                every: some_time(every)?,
            },
            ["restart", node] => Self::Restart { node: name(node) },
            ["slow_reader", node] => Self::SlowReader { node: name(node) },
            ["rewind", node] => Self::Rewind { node: name(node) },
            ["failing_disk", node] => Self::FailingDisk { node: name(node) },
            ["kill_executor", node] => Self::KillExecutor { node: name(node) },
            ["busy", node] => Self::Busy { node: name(node) },
            ["isolation", node] => Self::Isolation { node: name(node) },
            ["lie", node] => Self::Lie { node: name(node) },
            ["panic", node] => Self::Panic { node: name(node) },
            ["change_quotas", node] => Self::ChangeQuotas { node: name(node) },
            ["maintain", node] => Self::Maintain { node: name(node) },
            ["drift", node, ppm] => Self::Drift {
                node: name(node),
                ppm: ppm
                    .parse()
                    .ok()
                    .filter(|ppm: &i32| ppm.unsigned_abs() <= DRIFT_MAX)
                    .ok_or_else(|| {
                        format!(
                            "`{ppm}` is not a number of millionths from -{DRIFT_MAX} to {DRIFT_MAX}"
                        )
                    })?,
            },
            ["partition", one, other] => Self::Partition {
                one: name(one),
                other: name(other),
            },
            ["one_way", from, to] => Self::OneWay {
                from: name(from),
                to: name(to),
            },
            ["slow_disk", node, by] => Self::SlowDisk {
                node: name(node),
                by: time(by)?,
            },
            ["wall_jump", node, seconds] => Self::WallJump {
                node: name(node),
                seconds: seconds
                    .parse()
                    .map_err(|_| format!("`{seconds}` is not a whole number of seconds"))?,
            },
            ["packet_faults", node, loss, duplication, latency] => Self::PacketFaults {
                node: name(node),
                loss: number(loss)?,
                duplication: number(duplication)?,
                latency_max: time(latency)?,
            },
            [kind, ..] => return Err(format!("`{kind}` with {} words", words.len() - 1)),
            [] => return Err("it does not say what happens".to_owned()),
        })
    }
}

fn time(text: &str) -> Result<Duration, String> {
    duration::parse(text).map_err(|error| error.to_string())
}

fn some_time(text: &str) -> Result<Duration, String> {
    match time(text)? {
        Duration::ZERO => Err(format!("`{text}` is no time at all")),
        time => Ok(time),
    }
}

impl fmt::Display for FaultKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())?;
        for node in self.nodes() {
            write!(f, " {node}")?;
        }
        match self {
            Self::PacketFaults {
                loss,
                duplication,
                latency_max,
                ..
            } => {
                let latency = duration::format(*latency_max);
                write!(f, " {loss} {duplication} {latency}")
            }
            Self::SlowDisk { by, .. } => write!(f, " {}", duration::format(*by)),
            Self::Flap { every, .. } => write!(f, " {}", duration::format(*every)),
            Self::CrashAt { step, count, .. } => write!(f, " {} {count}", step.name()),
            Self::WallJump { seconds, .. } => write!(f, " {seconds}"),
            Self::Drift { ppm, .. } => write!(f, " {ppm}"),
            _ => Ok(()),
        }
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { at, lasts, kind } = self;
        let (at, lasts) = (duration::format(*at), duration::format(*lasts));
        write!(f, "{at}+{lasts} {kind}")
    }
}

impl FromStr for Fault {
    type Err = InvalidFault;

    fn from_str(text: &str) -> Result<Self, InvalidFault> {
        let invalid = |problem: String| InvalidFault {
            text: text.chars().take(120).collect(),
            problem: problem.chars().take(PROBLEM_MAX).collect(),
        };
        let words: Vec<&str> = text.split_whitespace().collect();
        let (when, kind) = words
            .split_first()
            .ok_or_else(|| invalid("it is empty".to_owned()))?;
        let (at, lasts) = when
            .split_once('+')
            .ok_or_else(|| invalid(format!("`{when}` is not AT+FOR")))?;
        Ok(Self {
            at: time(at).map_err(invalid)?,
            lasts: time(lasts).map_err(invalid)?,
            kind: FaultKind::read(kind).map_err(invalid)?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fault_text_round_trips() {
        let node = || "agent-2".to_owned();
        let kinds = [
            FaultKind::PacketFaults {
                node: node(),
                loss: 20,
                duplication: 1000,
                latency_max: Duration::from_micros(1500),
            },
            FaultKind::Partition {
                one: "master".to_owned(),
                other: node(),
            },
            FaultKind::OneWay {
                from: node(),
                to: "master".to_owned(),
            },
            FaultKind::SlowReader { node: node() },
            FaultKind::Crash { node: node() },
            FaultKind::CrashProcess { node: node() },
            FaultKind::CrashAt {
                node: "leader".to_owned(),
                step: Step::Write,
                count: 3,
            },
            FaultKind::CrashAt {
                node: node(),
                step: Step::Packet,
                count: 40,
            },
            FaultKind::Pause { node: node() },
            FaultKind::Flap {
                node: node(),
                every: Duration::from_millis(700),
            },
            FaultKind::Restart { node: node() },
            FaultKind::SlowDisk {
                node: node(),
                by: Duration::from_millis(50),
            },
            FaultKind::Rewind { node: node() },
            FaultKind::FailingDisk { node: node() },
            FaultKind::WallJump {
                node: node(),
                seconds: -90,
            },
            FaultKind::Drift {
                node: node(),
                ppm: -50_000,
            },
            FaultKind::KillExecutor { node: node() },
            FaultKind::Busy { node: node() },
            FaultKind::Isolation { node: node() },
            FaultKind::Lie { node: node() },
            FaultKind::Panic { node: node() },
            FaultKind::ChangeQuotas { node: node() },
            FaultKind::Maintain { node: node() },
        ];
        for kind in kinds {
            let fault = Fault {
                at: Duration::from_nanos(92_123_456_789),
                lasts: Duration::from_secs(30),
                kind,
            };
            assert_eq!(fault.to_string().parse(), Ok(fault));
        }
    }

    #[test]
    fn fault_text_is_readable() {
        let fault: Fault = "90secs+0.5mins crash agent-2".parse().unwrap();
        assert_eq!(fault.to_string(), "90secs+30secs crash agent-2");
    }

    #[test]
    fn invalid_fault_error_names_the_problem() {
        for (text, problem) in [
            ("", "empty"),
            ("90secs crash a", "AT+FOR"),
            ("1secs+1parsec crash a", "1parsec"),
            ("1secs+1secs", "what happens"),
            ("1secs+1secs melt a", "melt"),
            ("1secs+1secs crash", "`crash` with 0 words"),
            ("1secs+1secs packet_faults a 1001 0 1ms", "1001"),
            ("1secs+1secs wall_jump a soon", "soon"),
            ("1secs+1secs crash_at a blink 1", "blink"),
            ("1secs+1secs crash_at a write 0", "`0`"),
            ("1secs+1secs flap a 0secs", "no time"),
            ("1secs+1secs drift a 500001", "500001"),
            ("1secs+1secs drift a fast", "fast"),
        ] {
            let error = text.parse::<Fault>().unwrap_err();
            assert!(error.problem.contains(problem), "{text}: {error}");
        }
        let long = format!("1secs+1secs drift a {}", "9".repeat(10_000));
        let error = long.parse::<Fault>().unwrap_err();
        assert_eq!((error.text.len(), error.problem.len()), (120, PROBLEM_MAX));
    }
}
