//! Processes and threads of a group: counted, not limited.

use protocol::ResourceStatistics;

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
    fn processes_of_all_directories_are_counted() {
        let mut found = ResourceStatistics::default();
        measure(&["12\n13\n".into(), "14\n".into()], "9\n", &mut found);
        assert_eq!((found.processes, found.threads), (3, 9));
    }
}
