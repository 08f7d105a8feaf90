//! Memory: a soft limit by the request, a hard limit by the limit, statistics, and the message of
//! an exceeded limit.

use std::fmt::Write;

use module_api::isolator::{ContainerResources, Limit, Limitation};
use protocol::text::bytes;
use protocol::usage::Throttle;
use protocol::{Reason, ResourceStatistics};
use resources::{Resources, Scalar};

use super::{Setting, Version, value_of};
use crate::isolator::cgroups::options::Options;

const MEGABYTE: u64 = 1 << 20;
/// Minimum of both limits, in bytes.
const LIMIT_MIN: u64 = 32 * MEGABYTE;
/// From here on a limit of v1 means none: the kernel's maximum is the largest whole page.
const UNLIMITED_FROM: u64 = i64::MAX as u64 - (1 << 20);

/// The limit and the use of a group before a change.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MemoryNow {
    /// Bytes; `None` without a limit.
    pub limit: Option<u64>,
    /// Bytes in use.
    pub used: u64,
}

impl MemoryNow {
    /// Reads the files of the limit and the use. One that is missing counts as no limit or no use.
    pub fn parse(limit: &str, used: &str) -> Self {
        let limit = limit.trim().parse().ok();
        Self {
            limit: limit.filter(|limit| *limit < UNLIMITED_FROM),
            used: used.trim().parse().unwrap_or(0),
        }
    }
}

/// The limits of a container, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Limits {
    soft: u64,
    /// `None` for infinite.
    hard: Option<u64>,
}

impl Limits {
    fn of(resources: &ContainerResources) -> Self {
        let soft = bytes(resources.requests.mem().as_f64());
        let hard = match resources.mem_limit {
            Some(Limit::Infinite) => None,
            Some(Limit::Amount(megabytes)) => Some(bytes(megabytes)),
            None => Some(soft),
        };
        Self { soft, hard }
    }
}

fn bytes(megabytes: f64) -> u64 {
    ((megabytes * MEGABYTE as f64) as u64).max(LIMIT_MIN)
}

/// The content of `memory.high`: a part of the hard limit, or of the request without one.
fn high(limits: &Limits, throttle: Throttle) -> String {
    let Some(degree) = throttle.memory else {
        return "max".to_owned();
    };
    let whole = limits.hard.unwrap_or(limits.soft);
    let part = (whole / u64::from(Throttle::WHOLE)).saturating_mul(u64::from(degree));
    part.max(LIMIT_MIN).to_string()
}

/// The control files of the memory controller. Throttling needs v2: v1 can only kill.
///
/// A hard limit is raised at once. It is lowered only while the use is below the new one, since
/// the kernel would kill; else it stays until a later update. The limit of memory with swap may
/// never be below the one of memory, so the order of the two depends on the direction.
///
/// The soft limit of v2 is `memory.low`: when the host runs short, memory above it is taken first.
/// The kernel grants no more protection than the ancestors of the group have, so this needs a
/// `memory.low` of `--cgroups_root`, which is the operator's: with `max` there, and the mount
/// option `memory_recursiveprot`, all memory of containers would be protected from the rest of the
/// host.
pub fn settings(
    version: Version,
    resources: &ContainerResources,
    options: &Options,
    now: MemoryNow,
) -> Vec<Setting> {
    let limits = Limits::of(resources);
    let raised = match (limits.hard, now.limit) {
        (None, _) => true,
        (Some(_), None) => false,
        (Some(new), Some(old)) => new >= old,
    };
    let may_change = raised || limits.hard.is_none_or(|hard| now.used <= hard);
    let number = |infinite: &str| match limits.hard {
        Some(hard) => hard.to_string(),
        None => infinite.to_owned(),
    };
    let mut settings = Vec::new();
    match version {
        Version::V1 => {
            settings.push(Setting::new("memory.soft_limit_in_bytes", limits.soft));
            if may_change {
                settings.push(Setting::new("memory.limit_in_bytes", number("-1")));
                if options.limit_swap {
                    let at = if raised { 1 } else { 2 };
                    let limit = Setting::new("memory.memsw.limit_in_bytes", number("-1"));
                    settings.insert(at, limit);
                }
            }
        }
        Version::V2 => {
            settings.push(Setting::new("memory.low", limits.soft));
            if may_change {
                settings.push(Setting::new("memory.max", number("max")));
            }
            if let Some(throttle) = resources.throttle {
                settings.push(Setting::new("memory.high", high(&limits, throttle)).optional());
            }
            if options.limit_swap {
                // Swap is apart from memory here: with none the sum is as limited as in v1.
                let swap = if limits.hard.is_none() { "max" } else { "0" };
                settings.push(Setting::new("memory.swap.max", swap));
            }
        }
    }
    settings
}

/// The score by which the kernel chooses processes to kill when the host runs out of memory.
/// Commands that may use more memory than they requested go first; all others keep the default.
pub fn oom_score_adj(resources: &ContainerResources, host_memory: u64) -> Option<i32> {
    let limits = Limits::of(resources);
    if host_memory == 0 || limits.hard.is_some_and(|hard| hard <= limits.soft) {
        return None;
    }
    let share = limits.soft.min(host_memory) as f64 / host_memory as f64;
    Some(1000 - (1000.0 * share) as i32)
}

/// The memory files of one group. A file that is missing is an empty text.
#[derive(Clone, Debug, Default)]
pub struct MemoryFiles {
    /// `memory.usage_in_bytes` or `memory.current`.
    pub used: String,
    /// `memory.stat`.
    pub stat: String,
    /// `memory.memsw.usage_in_bytes` of v1, or `memory.swap.current` of v2.
    pub swap: String,
}

/// Statistics of a group.
pub fn measure(version: Version, files: &MemoryFiles, into: &mut ResourceStatistics) {
    let stat = |key| value_of(&files.stat, key);
    let number = |text: &str| text.trim().parse::<u64>().ok();
    into.mem_total_bytes = number(&files.used);
    match version {
        Version::V1 => {
            into.mem_total_memsw_bytes = number(&files.swap);
            into.mem_cache_bytes = stat("total_cache");
            into.mem_anon_bytes = stat("total_rss");
            into.mem_mapped_file_bytes = stat("total_mapped_file");
            into.mem_swap_bytes = stat("total_swap");
            into.mem_unevictable_bytes = stat("total_unevictable");
        }
        Version::V2 => {
            into.mem_swap_bytes = number(&files.swap);
            let sum = |swap| into.mem_total_bytes.map(|used| used + swap);
            into.mem_total_memsw_bytes = into.mem_swap_bytes.and_then(sum);
            into.mem_cache_bytes = stat("file");
            into.mem_anon_bytes = stat("anon");
            into.mem_mapped_file_bytes = stat("file_mapped");
            into.mem_unevictable_bytes = stat("unevictable");
            into.mem_kmem_usage_bytes = stat("kernel");
            into.mem_kmem_tcp_usage_bytes = stat("sock");
        }
    }
    into.mem_rss_bytes = into.mem_anon_bytes.unwrap_or_default();
}

/// Whether the kernel has killed a process of the group because the group was at its limit. A kill
/// because the host ran out of memory is none of the container's limits.
///
/// `events` is `memory.oom_control` of v1, with `memory.failcnt` as `failures`, or `memory.events`
/// of v2, which counts both.
pub fn was_killed(version: Version, events: &str, failures: &str) -> bool {
    let killed = value_of(events, "oom_kill").is_some_and(|count| count > 0);
    let at_limit = match version {
        Version::V1 => failures.trim().parse::<u64>().ok(),
        Version::V2 => value_of(events, "oom"),
    };
    // A kernel that does not count it leaves the kill as the only evidence.
    killed && at_limit.is_none_or(|count| count > 0)
}

/// The exceeded limit as Mesos words it, from the files of the hard limit, of the maximum use and
/// of the statistics.
pub fn limitation(version: Version, limit: &str, peak: &str, stat: &str) -> Limitation {
    let number = |text: &str| text.trim().parse::<u64>().ok();
    let limit = number(limit);
    let mut message = "Memory limit exceeded: ".to_owned();
    if let Some(limit) = limit {
        _ = write!(message, "Requested: {} ", bytes::format(limit));
    }
    if let Some(peak) = number(peak) {
        _ = writeln!(message, "Maximum Used: {}", bytes::format(peak));
    }
    let stat: String = match version {
        Version::V1 => stat.to_owned(),
        // The others are many, and of no use to a user.
        Version::V2 => {
            let mut lines = stat.lines();
            let chosen = ["anon ", "file ", "kernel "];
            let lines = lines
                .by_ref()
                .filter(|line| chosen.iter().any(|prefix| line.starts_with(prefix)));
            lines.map(|line| format!("{line}\n")).collect()
        }
    };
    _ = write!(message, "\nMEMORY STATISTICS: \n{stat}\n");
    let megabytes = limit.unwrap_or(0) as f64 / MEGABYTE as f64;
    let amount = Scalar::new(megabytes).unwrap_or_default();
    Limitation {
        resources: Resources::parse(&format!("mem:{amount}")).unwrap_or_default(),
        reason: Reason::ContainerLimitationMemory,
        message,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MB: u64 = MEGABYTE;

    fn resources(requests: &str, limit: Option<Limit>) -> ContainerResources {
        ContainerResources {
            requests: Resources::parse(requests).unwrap(),
            mem_limit: limit,
            ..ContainerResources::default()
        }
    }

    fn written(
        version: Version,
        resources: &ContainerResources,
        swap: bool,
        now: MemoryNow,
    ) -> Vec<(&'static str, String)> {
        let options = Options {
            limit_swap: swap,
            ..Options::default()
        };
        let settings = settings(version, resources, &options, now);
        let pair = |setting: Setting| (setting.file, setting.value);
        settings.into_iter().map(pair).collect()
    }

    fn pairs(given: &[(&'static str, u64)]) -> Vec<(&'static str, String)> {
        given
            .iter()
            .map(|(file, value)| (*file, value.to_string()))
            .collect()
    }

    // Covers S74 in part: the written limits.
    #[test]
    fn hard_limit_is_raised_at_once_and_never_below_the_use() {
        let (soft, hard) = ("memory.soft_limit_in_bytes", "memory.limit_in_bytes");
        let asked = resources("mem:96", None);
        let both = pairs(&[(soft, 96 * MB), (hard, 96 * MB)]);
        let now = |limit: Option<u64>, used: u64| MemoryNow {
            limit: limit.map(|limit| limit * MB),
            used: used * MB,
        };
        // A new group, a raised limit, and a lowered one that is above the use.
        for now in [now(None, 0), now(Some(64), 64), now(Some(128), 90)] {
            assert_eq!(written(Version::V1, &asked, false, now), both, "{now:?}");
        }
        let left = pairs(&[(soft, 96 * MB)]);
        assert_eq!(
            written(Version::V1, &asked, false, now(Some(128), 100)),
            left
        );
        let least = resources("mem:5", Some(Limit::Amount(6.0)));
        assert_eq!(
            written(Version::V1, &least, false, now(None, 0)),
            pairs(&[(soft, 32 * MB), (hard, 32 * MB)])
        );
    }

    #[test]
    fn swap_is_limited_with_memory_in_the_right_order() {
        let (soft, hard, both) = (
            "memory.soft_limit_in_bytes",
            "memory.limit_in_bytes",
            "memory.memsw.limit_in_bytes",
        );
        let asked = resources("mem:64", Some(Limit::Amount(96.0)));
        let now = |limit: Option<u64>| MemoryNow {
            limit: limit.map(|limit| limit * MB),
            used: MB,
        };
        assert_eq!(
            written(Version::V1, &asked, true, now(None)),
            pairs(&[(soft, 64 * MB), (hard, 96 * MB), (both, 96 * MB)])
        );
        assert_eq!(
            written(Version::V1, &asked, true, now(Some(64))),
            pairs(&[(soft, 64 * MB), (both, 96 * MB), (hard, 96 * MB)])
        );
        assert_eq!(
            written(Version::V2, &asked, true, now(None)),
            pairs(&[
                ("memory.low", 64 * MB),
                ("memory.max", 96 * MB),
                ("memory.swap.max", 0)
            ])
        );
        let free = resources("mem:64", Some(Limit::Infinite));
        assert_eq!(
            written(Version::V2, &free, false, now(Some(64)))[1],
            ("memory.max", "max".to_owned())
        );
        assert_eq!(
            written(Version::V1, &free, false, now(Some(64)))[1],
            (hard, "-1".to_owned())
        );
    }

    #[test]
    fn memory_is_throttled_in_v2_only() {
        let throttled = |version, memory| {
            let resources = ContainerResources {
                throttle: Some(Throttle {
                    memory,
                    ..Throttle::default()
                }),
                ..resources("mem:1000", None)
            };
            let settings = written(version, &resources, false, MemoryNow::default());
            let high = settings
                .into_iter()
                .find(|(file, _)| *file == "memory.high");
            high.map(|(_, value)| value)
        };
        assert_eq!(
            throttled(Version::V2, Some(500)),
            Some((500 * MB).to_string())
        );
        assert_eq!(throttled(Version::V2, Some(1)), Some((32 * MB).to_string()));
        assert_eq!(
            throttled(Version::V2, None),
            Some("max".to_owned()),
            "restored"
        );
        assert_eq!(throttled(Version::V1, Some(500)), None);
    }

    #[test]
    fn present_limit_is_read() {
        let now = |limit, used| MemoryNow::parse(limit, used);
        assert_eq!(now("9223372036854771712\n", "0\n"), MemoryNow::default());
        assert_eq!(now("max\n", "0\n"), MemoryNow::default());
        assert_eq!(now("", ""), MemoryNow::default());
        let (limit, used) = (Some(4096), 7);
        assert_eq!(now("4096\n", "7\n"), MemoryNow { limit, used });
    }

    #[test]
    fn burstable_containers_are_killed_first() {
        let total = 1000 * MB;
        let score = |requests, limit| oom_score_adj(&resources(requests, limit), total);
        assert_eq!(score("mem:100", None), None);
        assert_eq!(score("mem:100", Some(Limit::Amount(100.0))), None);
        assert_eq!(score("mem:100", Some(Limit::Amount(200.0))), Some(900));
        assert_eq!(score("mem:2000", Some(Limit::Infinite)), Some(0));
        assert_eq!(
            oom_score_adj(&resources("mem:100", Some(Limit::Infinite)), 0),
            None
        );
    }

    #[test]
    fn statistics_are_read() {
        let files = MemoryFiles {
            used: "5000\n".into(),
            stat: "cache 1\ntotal_cache 100\ntotal_rss 200\ntotal_mapped_file 50\n\
                   total_swap 0\ntotal_unevictable 3\n"
                .into(),
            swap: String::new(),
        };
        let mut found = ResourceStatistics::default();
        measure(Version::V1, &files, &mut found);
        assert_eq!(found.mem_total_bytes, Some(5000));
        assert_eq!(found.mem_total_memsw_bytes, None);
        assert_eq!(found.mem_cache_bytes, Some(100));
        assert_eq!(found.mem_rss_bytes, 200);
        assert_eq!(found.mem_swap_bytes, Some(0));

        let files = MemoryFiles {
            used: "5000\n".into(),
            stat: "anon 200\nfile 100\nkernel 30\nsock 4\nfile_mapped 50\nunevictable 3\n".into(),
            swap: "10\n".into(),
        };
        let mut found = ResourceStatistics::default();
        measure(Version::V2, &files, &mut found);
        assert_eq!(found.mem_total_memsw_bytes, Some(5010));
        assert_eq!(found.mem_mapped_file_bytes, Some(50));
        assert_eq!(found.mem_kmem_usage_bytes, Some(30));
    }

    #[test]
    fn kill_of_the_host_is_not_the_containers_limit() {
        let v1 = "oom_kill_disable 0\nunder_oom 0\noom_kill 1\n";
        assert!(was_killed(Version::V1, v1, "12\n"));
        assert!(!was_killed(Version::V1, v1, "0\n"));
        assert!(!was_killed(Version::V1, "oom_kill 0\n", "12\n"));
        let v2 = "low 0\nhigh 0\nmax 8\noom 1\noom_kill 1\n";
        assert!(was_killed(Version::V2, v2, ""));
        assert!(!was_killed(Version::V2, "oom 0\noom_kill 1\n", ""));
    }

    #[test]
    fn limitation_has_the_figures() {
        let stat = "anon 5\nfile 6\nslab 7\n";
        let found = limitation(Version::V1, "100663296\n", "100667392\n", stat);
        assert_eq!(found.resources, Resources::parse("mem:96").unwrap());
        assert_eq!(
            found.message,
            "Memory limit exceeded: Requested: 96MB Maximum Used: 98308KB\n\
             \nMEMORY STATISTICS: \nanon 5\nfile 6\nslab 7\n\n"
        );
        let found = limitation(Version::V2, "max\n", "", stat);
        assert_eq!(
            found.message,
            "Memory limit exceeded: \nMEMORY STATISTICS: \nanon 5\nfile 6\n\n"
        );
    }
}
