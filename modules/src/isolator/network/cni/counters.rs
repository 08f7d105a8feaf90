//! Traffic of containers with networks of their own.

use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;

use module_api::isolator::Measured;
use protocol::usage::{NetworkStatistics, Traffic};
use protocol::{ContainerId, ResourceStatistics};
use runtime::Timestamp;

use super::namespace;

/// The open counters of containers. They are opened once, by a thread that enters the namespace;
/// each keeps its namespace until it is closed.
#[derive(Debug, Default)]
pub(super) struct Counters(BTreeMap<ContainerId, File>);

impl Counters {
    /// Blocking. Measures these containers, whose namespaces are mounted on these files, and
    /// closes the counters of all others.
    pub(super) fn measure<P: AsRef<Path>>(
        &mut self,
        containers: Vec<(ContainerId, P)>,
        now: Timestamp,
    ) -> Measured {
        let mut old = std::mem::take(&mut self.0);
        let mut measured = Measured::new();
        for (container, namespace) in containers {
            let file = old
                .remove(&container)
                .map_or_else(|| open(namespace.as_ref()), Ok);
            let net = file.and_then(|file| {
                let text = read(&file)?;
                self.0.insert(container.clone(), file);
                Ok(sum(&text))
            });
            match net {
                Ok(net) => {
                    let statistics = ResourceStatistics {
                        timestamp: now,
                        net: Some(net),
                        ..ResourceStatistics::default()
                    };
                    measured.insert(container, statistics);
                }
                // Perhaps it has just ended.
                Err(error) => tracing::debug!(%container, %error, "cannot measure a network"),
            }
        }
        measured
    }

    /// Closes the counters of a container.
    pub(super) fn close(&mut self, container: &ContainerId) {
        self.0.remove(container);
    }
}

/// Opens the counters of the namespace that is mounted on this file.
fn open(path: &Path) -> io::Result<File> {
    namespace::within(path, || File::open("/proc/thread-self/net/dev"))
}

/// Reads a file from its start: a line for each interface.
fn read(file: &File) -> io::Result<String> {
    let (mut text, mut buffer) = (Vec::new(), [0; 4096]);
    // Terminates with the interfaces of the namespace.
    loop {
        match file.read_at(&mut buffer, text.len() as u64)? {
            0 => return String::from_utf8(text).map_err(io::Error::other),
            count => text.extend_from_slice(&buffer[..count]),
        }
    }
}

/// The traffic of all interfaces but the loopback, from the text of `/proc/net/dev`.
fn sum(text: &str) -> NetworkStatistics {
    let mut sum = NetworkStatistics::default();
    for line in text.lines() {
        let named = line.split_once(':');
        let Some((_, numbers)) = named.filter(|(name, _)| name.trim() != "lo") else {
            continue;
        };
        let numbers = numbers.split_whitespace();
        let numbers: Vec<u64> = numbers.filter_map(|number| number.parse().ok()).collect();
        let add = |to: &mut Traffic, at: usize| {
            let number = |index: usize| numbers.get(at + index).copied().unwrap_or_default();
            to.bytes += number(0);
            to.packets += number(1);
            to.errors += number(2);
            to.dropped += number(3);
        };
        add(&mut sum.received, 0);
        add(&mut sum.sent, 8);
    }
    sum
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn interfaces_are_summed_without_the_loopback() {
        let text = "\
Inter-|   Receive                                                |  Transmit
 face |bytes    packets errs drop fifo frame compressed multicast|bytes    packets errs drop fifo colls carrier compressed
    lo:   31036     333    0    0    0     0          0         0    31036     333    0    0    0     0       0          0
  eth0: 1000      10    1    2    0     0          0         0   500      5    3    4    0     0       0          0
  eth1: 1      1    0    0    0     0          0         0   2      2    0    0    0     0       0          0
";
        let expected = NetworkStatistics {
            received: Traffic {
                bytes: 1001,
                packets: 11,
                errors: 1,
                dropped: 2,
            },
            sent: Traffic {
                bytes: 502,
                packets: 7,
                errors: 3,
                dropped: 4,
            },
        };
        assert_eq!(sum(text), expected);
    }
}
