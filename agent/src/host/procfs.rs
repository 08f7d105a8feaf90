//! Reads processes and disks from /proc.
//!
//! Plain functions; the parsers are pure. Processes that end while being read are left out.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io::{self, Read};
use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::OnceLock;

use rustc_hash::FxHashMap;
use rustix::fs::{CWD, Dir, Mode, OFlags, openat};

/// One process at one moment, from `/proc/<pid>/stat`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Process {
    /// Its id.
    pub pid: i32,
    /// Its parent's id.
    pub parent: i32,
    /// Its process group.
    pub group: i32,
    /// Its session.
    pub session: i32,
    /// Whether it has ended and waits to be reaped.
    pub zombie: bool,
    /// Time in user mode, of itself and of its reaped children, in clock ticks.
    pub user_ticks: u64,
    /// Time in the kernel, of itself and of its reaped children, in clock ticks.
    pub system_ticks: u64,
    /// Number of threads.
    pub threads: u32,
    /// Resident memory in pages.
    pub resident_pages: u64,
}

/// Parses `/proc/<pid>/stat`. The program name may contain blanks and parentheses.
pub fn parse_stat(line: &str) -> Option<Process> {
    let (pid, rest) = line.split_once(" (")?;
    let (_, rest) = rest.rsplit_once(") ")?;
    let fields: Vec<&str> = rest.split_ascii_whitespace().collect();
    // Field 3 of proc(5), the state, is the first here.
    let signed = |number: usize| fields.get(number - 3)?.parse::<i64>().ok();
    let ticks = |number: usize| signed(number).map(|ticks| ticks.max(0) as u64);
    let id = |number: usize| signed(number).and_then(|id| i32::try_from(id).ok());
    Some(Process {
        pid: pid.trim().parse().ok()?,
        parent: id(4)?,
        group: id(5)?,
        session: id(6)?,
        zombie: matches!(fields.first(), Some(&"Z" | &"X")),
        user_ticks: ticks(14)? + ticks(16)?,
        system_ticks: ticks(15)? + ticks(17)?,
        threads: u32::try_from(signed(20)?).unwrap_or(0),
        resident_pages: ticks(24)?,
    })
}

/// All readable processes.
pub fn processes() -> io::Result<Vec<Process>> {
    let mut processes = Vec::new();
    let mut path = String::new();
    for pid in list(".")? {
        if !pid.bytes().all(|byte| byte.is_ascii_digit()) {
            continue;
        }
        path.clear();
        path.push_str(&pid);
        path.push_str("/stat");
        // Program names need not be UTF-8.
        let Ok(line) = read(&path) else {
            continue;
        };
        processes.extend(parse_stat(&String::from_utf8_lossy(&line)));
    }
    Ok(processes)
}

/// The `/proc` of this process, if another could be mounted over it.
static KEPT: OnceLock<OwnedFd> = OnceLock::new();

/// Reads only this `/proc` from now on, whatever is mounted over its path.
pub fn keep(proc: OwnedFd) {
    let _ = KEPT.set(proc); // A process has one.
}

fn open(path: &str) -> io::Result<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::CLOEXEC;
    let opened = match KEPT.get() {
        Some(proc) => openat(proc, path, flags, Mode::empty()),
        None => openat(CWD, Path::new("/proc").join(path), flags, Mode::empty()),
    };
    Ok(opened?)
}

/// A file below `/proc`.
fn read(path: &str) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    File::from(open(path)?).read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// The names in a directory below `/proc` that are UTF-8.
fn list(path: &str) -> io::Result<Vec<String>> {
    let mut names = Vec::new();
    for entry in Dir::new(open(path)?)? {
        let entry = entry?;
        let name = entry.file_name().to_str().ok();
        names.extend(
            name.filter(|name| !name.starts_with('.'))
                .map(str::to_owned),
        );
    }
    Ok(names)
}

/// The descendants of one process, without itself. Reads only them, if the kernel lists children.
pub fn descendants_of(root: i32) -> io::Result<Vec<Process>> {
    let mut found = Vec::new();
    let mut open = vec![root];
    let mut seen = BTreeSet::from([root]);
    // Terminates: each process is visited once.
    while let Some(pid) = open.pop() {
        let children = match children(pid) {
            Ok(children) => children,
            Err(_) if pid == root => return scanned_descendants(root),
            Err(_) => continue, // It has ended.
        };
        for child in children.into_iter().filter(|&child| seen.insert(child)) {
            let line = read(&format!("{child}/stat")).unwrap_or_default();
            found.extend(parse_stat(&String::from_utf8_lossy(&line)));
            open.push(child);
        }
    }
    Ok(found)
}

/// The children of all threads of a process. An error if it has ended, or if the kernel was built
/// without this list.
fn children(pid: i32) -> io::Result<Vec<i32>> {
    let mut lists = Vec::new();
    for thread in list(&format!("{pid}/task"))? {
        // A thread may have ended.
        let list = read(&format!("{pid}/task/{thread}/children"));
        lists.extend(list.map(|list| String::from_utf8_lossy(&list).into_owned()));
    }
    if lists.is_empty() {
        return Err(io::ErrorKind::NotFound.into());
    }
    let pids = lists.iter().flat_map(|list| list.split_ascii_whitespace());
    Ok(pids.filter_map(|pid| pid.parse().ok()).collect())
}

fn scanned_descendants(root: i32) -> io::Result<Vec<Process>> {
    let mut processes = processes()?;
    let found = descendants(&processes, &[root]);
    processes.retain(|process| found.contains(&process.pid));
    Ok(processes)
}

/// All descendants of these processes, without themselves.
pub fn descendants(processes: &[Process], roots: &[i32]) -> BTreeSet<i32> {
    let mut children: FxHashMap<i32, Vec<i32>> = FxHashMap::default();
    for process in processes {
        children
            .entry(process.parent)
            .or_default()
            .push(process.pid);
    }
    let mut found = BTreeSet::new();
    let mut open: Vec<i32> = roots.to_vec();
    // Terminates: each process is pushed once.
    while let Some(pid) = open.pop() {
        for &child in children.get(&pid).into_iter().flatten() {
            if found.insert(child) {
                open.push(child);
            }
        }
    }
    found
}

/// The processes of each session leader: its session and its descendants, itself included, without
/// zombies.
pub fn by_leader(processes: &[Process], leaders: &[i32]) -> BTreeMap<i32, Vec<Process>> {
    let known: FxHashMap<i32, &Process> = processes
        .iter()
        .map(|process| (process.pid, process))
        .collect();
    let wanted: BTreeSet<i32> = leaders.iter().copied().collect();
    let mut sorted: BTreeMap<i32, Vec<Process>> =
        leaders.iter().map(|&leader| (leader, Vec::new())).collect();
    for process in processes.iter().filter(|process| !process.zombie) {
        // The nearest leader among the ancestors; the session only if the parents are gone.
        let mut at = process.pid;
        let mut owner = None;
        for _ in 0..4096 {
            if wanted.contains(&at) {
                owner = Some(at);
                break;
            }
            match known.get(&at) {
                Some(parent) if parent.parent > 0 => at = parent.parent,
                _ => break,
            }
        }
        let owner = owner.or_else(|| wanted.contains(&process.session).then_some(process.session));
        if let Some(of_leader) = owner.and_then(|owner| sorted.get_mut(&owner)) {
            of_leader.push(*process);
        }
    }
    sorted
}

/// A variable of another process's environment, if readable.
pub fn variable(pid: i32, name: &str) -> Option<String> {
    let environment = std::fs::read(format!("/proc/{pid}/environ")).ok()?;
    environment
        .split(|&byte| byte == 0)
        .filter_map(|entry| std::str::from_utf8(entry).ok())
        .find_map(|entry| {
            entry
                .strip_prefix(name)?
                .strip_prefix('=')
                .map(str::to_owned)
        })
}

/// The size in bytes of the file system that holds `path`.
pub fn disk_size(path: &Path) -> io::Result<u64> {
    let disk = nix::sys::statvfs::statvfs(path)?;
    Ok(disk.blocks() as u64 * disk.fragment_size() as u64)
}

/// Clock ticks per second in `/proc`.
pub fn ticks_per_second() -> f64 {
    let ticks = nix::unistd::sysconf(nix::unistd::SysconfVar::CLK_TCK);
    ticks.ok().flatten().map_or(100.0, |ticks| ticks as f64)
}

/// The page size in bytes.
pub fn page_size() -> u64 {
    let size = nix::unistd::sysconf(nix::unistd::SysconfVar::PAGE_SIZE);
    size.ok().flatten().map_or(4096, |size| size as u64)
}

/// The machine's boot id; empty if the kernel provides none.
pub fn boot_id() -> String {
    let id = std::fs::read_to_string("/proc/sys/kernel/random/boot_id");
    id.map(|id| id.trim().to_owned()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn process(pid: i32, parent: i32, session: i32) -> Process {
        Process {
            pid,
            parent,
            group: pid,
            session,
            zombie: false,
            user_ticks: 0,
            system_ticks: 0,
            threads: 1,
            resident_pages: 0,
        }
    }

    #[test]
    fn program_name_with_blanks_is_parsed() {
        let line =
            "42 (a) R (b) S 7 42 40 0 -1 4194560 1 2 3 4 11 5 6 7 20 0 3 0 100 1000000 250 184 0";
        let found = parse_stat(line).unwrap();
        assert_eq!(
            (found.pid, found.parent, found.group, found.session),
            (42, 7, 42, 40)
        );
        assert_eq!((found.user_ticks, found.system_ticks), (17, 12));
        assert_eq!(
            (found.threads, found.resident_pages, found.zombie),
            (3, 250, false)
        );
        for broken in ["", "42", "42 (x) S", "x (y) S 1 2 3"] {
            assert_eq!(parse_stat(broken), None, "{broken}");
        }
    }

    #[test]
    fn this_process_is_found_with_its_parent() {
        let own = std::process::id() as i32;
        let all = processes().unwrap();
        let me = all.iter().find(|process| process.pid == own).unwrap();
        assert!(descendants(&all, &[me.parent]).contains(&own));
        assert!(!descendants(&all, &[own]).contains(&own));
    }

    #[test]
    fn listed_and_scanned_descendants_are_the_same() {
        let mut child = std::process::Command::new("sh")
            .args(["-c", "sleep 98796 & echo started; wait"])
            .stdout(std::process::Stdio::piped())
            .spawn()
            .unwrap();
        let mut started = [0; 8];
        let output = child.stdout.as_mut().unwrap();
        std::io::Read::read_exact(output, &mut started).unwrap();
        let root = child.id() as i32;
        let pids = |found: Vec<Process>| found.iter().map(|one| one.pid).collect::<Vec<_>>();
        let listed = pids(descendants_of(root).unwrap());
        assert_eq!(listed, pids(scanned_descendants(root).unwrap()));
        assert_eq!(listed.len(), 1);
        for pid in listed.into_iter().chain([root]) {
            let pid = nix::unistd::Pid::from_raw(pid);
            nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGKILL).unwrap();
        }
        child.wait().unwrap();
    }

    #[test]
    fn detached_grandchild_belongs_to_its_leader() {
        let all = [
            process(1, 0, 1),
            process(10, 1, 10),
            process(11, 10, 10),
            process(12, 11, 12),
            process(20, 1, 20),
            process(21, 1, 20),
        ];
        let sorted = by_leader(&all, &[10, 20]);
        let pids = |leader| {
            sorted[&leader]
                .iter()
                .map(|process| process.pid)
                .collect::<Vec<_>>()
        };
        assert_eq!(pids(10), [10, 11, 12]);
        assert_eq!(pids(20), [20, 21]);
        assert_eq!(descendants(&all, &[10]), BTreeSet::from([11, 12]));
    }

    #[test]
    fn boot_id_is_stable() {
        assert_eq!(boot_id(), boot_id());
        assert!(boot_id().len() < 100);
    }
}
