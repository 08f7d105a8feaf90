//! Processes and threads of a group: a limit, so that a fork bomb leaves some for the rest of the
//! host, and their number.

use protocol::ResourceStatistics;

use super::Setting;
use crate::isolator::cgroups::options::Options;

/// The most that the kernel can have, and takes as a limit.
const LIMIT_MAX: u64 = 1 << 22;

/// The control file of the limit.
pub fn settings(options: &Options) -> Vec<Setting> {
    let limit = match options.pids_limit {
        Some(limit @ 1..=LIMIT_MAX) => limit.to_string(),
        None | Some(_) => "max".to_owned(),
    };
    vec![Setting::new("pids.max", limit)]
}

/// The limit that a container has by default: 15 % of the threads that the host can have, as
/// systemd's units. `None` without such a number in the texts of `/proc/sys/kernel/pid_max` and
/// `threads-max`.
pub fn default_limit(pid_max: &str, threads_max: &str) -> Option<u64> {
    let numbers = [pid_max, threads_max];
    let numbers = numbers.iter().filter_map(|text| text.trim().parse().ok());
    numbers.min().map(|host: u64| (host * 15 / 100).max(1))
}

/// Counts from the texts of `cgroup.procs`, one for each directory of the group, and from
/// `pids.current`, which counts threads.
pub fn measure(processes: &[String], threads: &str, into: &mut ResourceStatistics) {
    let lines: usize = processes.iter().map(|text| text.lines().count()).sum();
    into.processes = u32::try_from(lines).unwrap_or(u32::MAX);
    into.threads = threads.trim().parse().unwrap_or(0);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limit_is_the_flag_or_a_share_of_the_host() {
        let written = |pids_limit| {
            let options = Options {
                pids_limit,
                ..Options::default()
            };
            settings(&options)[0].value.clone()
        };
        assert_eq!(written(Some(300)), "300");
        assert_eq!(written(Some(0)), "max");
        assert_eq!(written(Some(LIMIT_MAX + 1)), "max");
        assert_eq!(default_limit("32768\n", "96365\n"), Some(4915));
        assert_eq!(default_limit("4194304\n", "5900\n"), Some(885));
        assert_eq!(default_limit("", ""), None);
    }

    #[test]
    fn processes_of_all_directories_are_counted() {
        let mut found = ResourceStatistics::default();
        measure(&["12\n13\n".into(), "14\n".into()], "9\n", &mut found);
        assert_eq!((found.processes, found.threads), (3, 9));
    }
}
