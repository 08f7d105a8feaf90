//! The TCP ports on which the processes of containers listen.
//!
//! A process belongs to the container in whose control group it is.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::io::{self, BufRead, BufReader};
use std::path::Path;

use protocol::ContainerId;
use resources::{Range, Ranges};

/// The sockets of the agent's network: those of IPv4 and of IPv6.
const SOCKETS: [&str; 2] = ["/proc/self/net/tcp", "/proc/self/net/tcp6"];
/// The state of a listening socket in these files.
const LISTENING: &str = "0A";

/// The inode and the port of a listening socket, from a line of `/proc/net/tcp`.
fn listener(line: &str) -> Option<(u64, u16)> {
    let mut fields = line.split_ascii_whitespace();
    let (_, port) = fields.nth(1)?.rsplit_once(':')?;
    if fields.nth(1)? != LISTENING {
        return None;
    }
    let inode = fields.nth(5)?.parse().ok()?;
    Some((inode, u16::from_str_radix(port, 16).ok()?))
}

/// The inode in the target of a link in `/proc/<pid>/fd`, if it is a socket.
fn inode(link: &Path) -> Option<u64> {
    let inside = link.to_str()?.strip_prefix("socket:[")?.strip_suffix(']')?;
    inside.parse().ok()
}

/// The container of a process with this `/proc/<pid>/cgroup`.
fn container_of(groups: &str, containers: &BTreeSet<ContainerId>) -> Option<ContainerId> {
    let ids = groups.lines().flat_map(|line| line.split('/').skip(1));
    let mut ids = ids.filter_map(|part| ContainerId::new(part).ok());
    ids.find(|id| containers.contains(id))
}

/// Blocking. The ports on which each of these containers listens. A process that ends meanwhile is
/// left out.
pub(super) fn scan(
    containers: &BTreeSet<ContainerId>,
) -> io::Result<BTreeMap<ContainerId, Ranges>> {
    let mut found: BTreeMap<ContainerId, Ranges> = BTreeMap::new();
    if containers.is_empty() {
        return Ok(found);
    }
    let mut listeners = BTreeMap::new();
    for path in SOCKETS {
        // A kernel without IPv6 has no such file.
        let Ok(file) = File::open(path) else { continue };
        for line in BufReader::new(file).lines() {
            listeners.extend(listener(&line?));
        }
    }
    if listeners.is_empty() {
        return Ok(found);
    }
    for process in fs::read_dir("/proc")? {
        let process = process?.path();
        let Ok(groups) = fs::read_to_string(process.join("cgroup")) else {
            continue;
        };
        let Some(container) = container_of(&groups, containers) else {
            continue;
        };
        let links = fs::read_dir(process.join("fd")).into_iter().flatten();
        let inodes = links.filter_map(|link| inode(&fs::read_link(link.ok()?.path()).ok()?));
        let ports = inodes.filter_map(|inode| listeners.get(&inode).copied());
        let ports = ports.filter_map(|port| Range::new(port.into(), port.into()).ok());
        let ports = Ranges::new(ports);
        if !ports.is_empty() {
            found.entry(container).or_default().add(&ports);
        }
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    const TABLE: &str = "\
  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode
   0: 0100007F:7918 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 41 1 0000 100
   1: 0100007F:7919 0100007F:9C40 01 00000000:00000000 00:00000000 00000000     0        0 42 1 0000 20
   2: 00000000000000000000000001000000:791A 00000000000000000000000000000000:0000 0A 0:0 00:0 0 0 0 43 1 0 1";

    #[test]
    fn only_listening_sockets_count() {
        let found: Vec<_> = TABLE.lines().filter_map(listener).collect();
        assert_eq!(found, [(41, 31000), (43, 31002)]);
        assert_eq!(inode(Path::new("socket:[41]")), Some(41));
        assert_eq!(inode(Path::new("/dev/null")), None);
    }

    #[test]
    fn process_is_found_by_any_of_its_groups() {
        let id = ContainerId::new("c1").unwrap();
        let known = BTreeSet::from([id.clone()]);
        let of = |groups| container_of(groups, &known);
        assert_eq!(of("4:memory:/mesos/c1\n0::/"), Some(id.clone()));
        assert_eq!(of("0::/mesos/c1/processes\n"), Some(id));
        assert_eq!(of("4:memory:/mesos/c2\n0::/system.slice"), None);
    }

    #[test]
    fn own_listener_is_in_the_table_of_this_host() {
        let listening = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listening.local_addr().unwrap().port();
        let table = fs::read_to_string(SOCKETS[0]).unwrap();
        let mut found = table.lines().filter_map(listener);
        assert!(found.any(|(_, own)| own == port));
    }
}
