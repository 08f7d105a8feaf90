//! CPU: shares or weight by the request, a CFS quota by the limit, and CPU time.

use module_api::isolator::{ContainerResources, Limit};
use protocol::ResourceStatistics;
use protocol::usage::Throttle;

use super::{Setting, Version, value_of};
use crate::isolator::cgroups::options::Options;

/// `cpu.shares` for each CPU.
const SHARES_PER_CPU: u64 = 1024;
const SHARES_PER_REVOCABLE_CPU: u64 = 10;
/// The kernel's minimum.
const SHARES_MIN: u64 = 2;
/// `cpu.weight` for each CPU.
const WEIGHT_PER_CPU: u64 = 100;
const WEIGHT_PER_REVOCABLE_CPU: u64 = 1;
/// The kernel's bounds.
const WEIGHT_MIN: u64 = 1;
const WEIGHT_MAX: u64 = 10_000;
/// Period of the CFS quota, in microseconds.
const PERIOD_US: u64 = 100_000;
/// The kernel's minimum quota, in microseconds.
const QUOTA_MIN_US: u64 = 1000;

/// The control files of the CPU controller. A kernel without CFS bandwidth has no files of a quota;
/// that is an error only for a container with a quota.
pub fn settings(
    version: Version,
    resources: &ContainerResources,
    options: &Options,
) -> Vec<Setting> {
    let millicpus = u64::try_from(resources.requests.cpus().thousandths()).unwrap_or(0);
    let revocable =
        options.revocable_cpu_low_priority && !resources.requests.revocable().cpus().is_zero();
    let throttle = resources.throttle.and_then(|throttle| throttle.cpu);
    let part = |whole: u64| match throttle {
        Some(degree) => whole * u64::from(degree) / u64::from(Throttle::WHOLE),
        None => whole,
    };
    let quota = quota(resources, options);
    let bandwidth = |setting: Setting| match quota {
        Some(_) => setting,
        None => setting.optional(),
    };
    match version {
        Version::V1 => {
            let per_cpu = match revocable {
                true => SHARES_PER_REVOCABLE_CPU,
                false => SHARES_PER_CPU,
            };
            let shares = part(millicpus * per_cpu / 1000).max(SHARES_MIN);
            let value = quota.map_or_else(|| "-1".to_owned(), |quota| quota.to_string());
            vec![
                Setting::new("cpu.shares", shares),
                bandwidth(Setting::new("cpu.cfs_period_us", PERIOD_US)),
                bandwidth(Setting::new("cpu.cfs_quota_us", value)),
            ]
        }
        Version::V2 => {
            let per_cpu = match revocable {
                true => WEIGHT_PER_REVOCABLE_CPU,
                false => WEIGHT_PER_CPU,
            };
            let weight = part(millicpus * per_cpu / 1000).clamp(WEIGHT_MIN, WEIGHT_MAX);
            let value = quota.map_or_else(|| "max".to_owned(), |quota| quota.to_string());
            vec![
                Setting::new("cpu.weight", weight),
                bandwidth(Setting::new("cpu.max", format!("{value} {PERIOD_US}"))),
            ]
        }
    }
}

/// Microseconds of CPU time in each period; `None` without a limit.
fn quota(resources: &ContainerResources, options: &Options) -> Option<u64> {
    let requested = resources.requests.cpus().as_f64();
    let limit = match resources.cpus_limit {
        Some(Limit::Infinite) => None,
        Some(Limit::Amount(cpus)) => Some(cpus),
        None => options.enable_cfs.then_some(requested),
    };
    let throttle = resources.throttle.and_then(|throttle| throttle.cpu);
    let throttled =
        throttle.map(|degree| requested * f64::from(degree) / f64::from(Throttle::WHOLE));
    let cpus = match (limit, throttled) {
        (Some(limit), Some(throttled)) => limit.min(throttled),
        (limit, throttled) => limit.or(throttled)?,
    };
    // The cast saturates: a huge limit is a huge quota.
    Some(((cpus * PERIOD_US as f64).round() as u64).max(QUOTA_MIN_US))
}

/// CPU time of v1: the nanoseconds in `cpuacct.usage`, divided as in `cpuacct.stat`, which counts
/// only those ticks of the clock at which a process runs.
pub fn measure_time_v1(usage: &str, stat: &str, into: &mut ResourceStatistics) {
    let total = usage
        .trim()
        .parse()
        .map_or(0.0, |nanos: u64| nanos as f64 / 1e9);
    let ticks = |key| value_of(stat, key).unwrap_or(0) as f64;
    let (user, system) = (ticks("user"), ticks("system"));
    let part = match user + system {
        0.0 => 0.0,
        all => system / all,
    };
    into.cpus_system_time_secs = total * part;
    into.cpus_user_time_secs = total - into.cpus_system_time_secs;
}

/// CPU time from `cpu.stat` of v2.
pub fn measure_time_v2(text: &str, into: &mut ResourceStatistics) {
    let seconds = |key| value_of(text, key).map(|micros| micros as f64 / 1e6);
    into.cpus_user_time_secs = seconds("user_usec").unwrap_or_default();
    into.cpus_system_time_secs = seconds("system_usec").unwrap_or_default();
}

/// Throttling from `cpu.stat`. All are zero in a group that never had a quota: then they are left
/// out, as Mesos does without `--cgroups_enable_cfs`.
pub fn measure_throttling(version: Version, text: &str, into: &mut ResourceStatistics) {
    let count = |key| value_of(text, key).map(|count| u32::try_from(count).unwrap_or(u32::MAX));
    if count("nr_periods").is_none_or(|periods| periods == 0) {
        return;
    }
    into.cpus_nr_periods = count("nr_periods");
    into.cpus_nr_throttled = count("nr_throttled");
    into.cpus_throttled_time_secs = match version {
        Version::V1 => value_of(text, "throttled_time").map(|nanos| nanos as f64 / 1e9),
        Version::V2 => value_of(text, "throttled_usec").map(|micros| micros as f64 / 1e6),
    };
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::parse_marked;

    /// The settings as `file=value`, separated by blanks and commas.
    fn written(
        version: Version,
        requests: &str,
        limit: Option<Limit>,
        options: &Options,
    ) -> String {
        let resources = ContainerResources {
            requests: parse_marked(requests),
            cpus_limit: limit,
            ..ContainerResources::default()
        };
        let settings = settings(version, &resources, options);
        let lines = settings
            .iter()
            .map(|setting| format!("{}={}", setting.file, setting.value));
        lines.collect::<Vec<_>>().join(", ")
    }

    fn v1(shares: u64, quota: i64) -> String {
        format!("cpu.shares={shares}, cpu.cfs_period_us=100000, cpu.cfs_quota_us={quota}")
    }

    fn v2(weight: u64, quota: &str) -> String {
        format!("cpu.weight={weight}, cpu.max={quota} 100000")
    }

    // Covers S14; S73 in part: weights by the requests, quotas only by limits.
    #[test]
    fn shares_follow_the_request_and_quota_the_limit() {
        let plain = Options::default();
        let cfs = Options {
            enable_cfs: true,
            ..Options::default()
        };
        let proud = Options {
            revocable_cpu_low_priority: false,
            ..Options::default()
        };
        let amount = |cpus| Some(Limit::Amount(cpus));
        let table = [
            // Requests, limit, options, shares, quota, weight, quota of v2.
            ("cpus:0.6", amount(2.1), &plain, 614, 210_000, 60, "210000"),
            ("cpus:1", None, &plain, 1024, -1, 100, "max"),
            ("cpus:0.29", None, &cfs, 296, 29_000, 29, "29000"),
            ("cpus:0.001", None, &cfs, 2, 1000, 1, "1000"),
            ("mem:5", None, &plain, 2, -1, 1, "max"),
            ("cpus:1", Some(Limit::Infinite), &cfs, 1024, -1, 100, "max"),
            ("cpus*:1;cpus:0.1", None, &plain, 11, -1, 1, "max"),
            ("cpus*:1", None, &proud, 1024, -1, 100, "max"),
            ("cpus:256", None, &plain, 262_144, -1, 10_000, "max"),
        ];
        for (requests, limit, options, shares, quota, weight, quota_v2) in table {
            assert_eq!(
                written(Version::V1, requests, limit, options),
                v1(shares, quota),
                "{requests} {limit:?}"
            );
            assert_eq!(
                written(Version::V2, requests, limit, options),
                v2(weight, quota_v2),
                "{requests} {limit:?}"
            );
        }
    }

    #[test]
    fn throttled_container_has_less_weight_and_a_quota() {
        let settings = |version, limit, cpu| {
            let resources = ContainerResources {
                requests: parse_marked("cpus*:4"),
                cpus_limit: limit,
                throttle: Some(Throttle {
                    cpu,
                    ..Throttle::default()
                }),
                ..ContainerResources::default()
            };
            let settings = settings(version, &resources, &Options::default());
            let values = settings.into_iter().map(|setting| setting.value);
            values.collect::<Vec<_>>().join(" ")
        };
        assert_eq!(settings(Version::V2, None, Some(500)), "2 200000 100000");
        assert_eq!(
            settings(Version::V2, None, Some(1)),
            "1 1000 100000",
            "the kernel's minimum"
        );
        assert_eq!(settings(Version::V1, None, Some(500)), "20 100000 200000");
        let limit = Some(Limit::Amount(1.0));
        assert_eq!(
            settings(Version::V2, limit, Some(500)),
            "2 100000 100000",
            "never more"
        );
        assert_eq!(
            settings(Version::V2, None, None),
            "4 max 100000",
            "restored"
        );
    }

    #[test]
    fn cpu_time_and_throttling_are_read() {
        let mut found = ResourceStatistics::default();
        measure_time_v1("3000000000\n", "user 25\nsystem 5\n", &mut found);
        assert_eq!(found.cpus_user_time_secs, 2.5);
        assert_eq!(found.cpus_system_time_secs, 0.5);
        let text = "nr_periods 20\nnr_throttled 3\nthrottled_time 1500000000\n";
        measure_throttling(Version::V1, text, &mut found);
        assert_eq!(found.cpus_nr_periods, Some(20));
        assert_eq!(found.cpus_nr_throttled, Some(3));
        assert_eq!(found.cpus_throttled_time_secs, Some(1.5));

        let mut found = ResourceStatistics::default();
        let text = "usage_usec 5\nuser_usec 2500000\nsystem_usec 500000\nnr_periods 0\n";
        measure_time_v2(text, &mut found);
        measure_throttling(Version::V2, text, &mut found);
        assert_eq!(found.cpus_user_time_secs, 2.5);
        assert_eq!(found.cpus_nr_periods, None, "without a quota");
    }
}
