//! Three master processes that a test can stop and restart.
//!
//! Nothing here asserts anything about Meros.

use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use crate::support::{Cluster, Running, eventually, free_ports, get_over};

/// Connection timeout for a master.
const CONNECT_PATIENCE: Duration = Duration::from_millis(500);

/// Makes a master's command from the cluster's directory, all addresses, and its index.
type Start = Box<dyn FnMut(&Path, &[String], usize) -> Command>;

/// Three masters, some of which may have been killed.
pub struct Group {
    /// The rest of the cluster: agents, verbs, the directory.
    pub cluster: Cluster,
    /// The masters' addresses as `host:port`.
    pub addresses: Vec<String>,
    /// The second and the third; the first is the cluster's process.
    others: Vec<Running>,
    command: Start,
}

impl Group {
    /// Starts masters on loopback.
    pub fn start() -> Self {
        Self::start_with(Cluster::master_of_three)
    }

    /// Starts masters on loopback with commands of the test. They log to
    /// [`log_text`](Self::log_text).
    pub fn start_with(command: impl FnMut(&Path, &[String], usize) -> Command + 'static) -> Self {
        let ports = (0..3).map(|_| free_ports(0));
        Self::at(
            ports.map(|port| format!("127.0.0.1:{port}")).collect(),
            command,
        )
    }

    /// Starts masters at these addresses.
    pub fn at(
        addresses: Vec<String>,
        mut command: impl FnMut(&Path, &[String], usize) -> Command + 'static,
    ) -> Self {
        let (cluster, others) = Cluster::of_masters(&addresses, |directory, index| {
            logged(command(directory, &addresses, index), directory, index)
        });
        Self {
            cluster,
            addresses,
            others,
            command: Box::new(command),
        }
    }

    /// The process of this master.
    pub fn process(&mut self, index: usize) -> &mut Running {
        match index {
            0 => &mut self.cluster.process,
            _ => &mut self.others[index - 1],
        }
    }

    /// The head of a page of this master, requested without its mirror; `None` if unreachable.
    pub fn page(&self, index: usize, path: &str) -> Option<String> {
        let address: SocketAddr = self.addresses[index].parse().expect("an address");
        let stream = TcpStream::connect_timeout(&address, CONNECT_PATIENCE).ok()?;
        let page = get_over(stream, path, "Cache-Control: no-cache");
        page.ok().map(|(head, _)| head)
    }

    /// Whether this master leads: the leader serves pages, followers redirect.
    pub fn leads(&self, index: usize) -> bool {
        let status = self.page(index, "/flags");
        status.is_some_and(|head| head.starts_with("HTTP/1.1 200"))
    }

    /// The index of the leader.
    pub fn leader(&self) -> usize {
        self.leader_of(&[0, 1, 2])
    }

    /// The index of the leader among these masters; no other is queried.
    pub fn leader_of(&self, places: &[usize]) -> usize {
        eventually("a leader", || {
            places.iter().copied().find(|index| self.leads(*index))
        })
    }

    /// The indices of the other two masters.
    pub fn others(&self, index: usize) -> [usize; 2] {
        [(index + 1) % 3, (index + 2) % 3]
    }

    /// Waits until this master redirects to the leader.
    pub fn wait_until_follower(&self, index: usize) {
        eventually("it to send to the one that leads", || {
            let status = self.page(index, "/state");
            status.filter(|head| head.contains(" 307 "))
        });
    }

    /// Waits until this master leads or knows the leader.
    pub fn wait_until_back(&self, index: usize) {
        eventually("it to lead or to send to the one that does", || {
            let head = self.page(index, "/state")?;
            let answers = ["HTTP/1.1 200", "HTTP/1.1 307"];
            answers
                .iter()
                .any(|one| head.starts_with(one))
                .then_some(())
        });
    }

    /// Restarts an ended master in its directory.
    pub fn start_again(&mut self, index: usize) {
        let directory = self.cluster.directory().to_owned();
        let command = (self.command)(&directory, &self.addresses, index);
        *self.process(index) = Running::start(&mut logged(command, &directory, index));
    }

    /// The log of all processes of this master.
    pub fn log_text(&self, index: usize) -> String {
        std::fs::read_to_string(log(self.cluster.directory(), index)).unwrap_or_default()
    }

    /// The ids of the active agents.
    pub fn agents(&self) -> Vec<String> {
        let agents = self.cluster.list("agents");
        let active = agents.iter().filter(|agent| agent["active"] == true);
        let mut ids: Vec<String> = active.map(|agent| agent["id"].to_string()).collect();
        ids.sort();
        ids
    }
}

impl Drop for Group {
    /// Prints the masters' logs if the test failed.
    fn drop(&mut self) {
        if std::thread::panicking() {
            for index in 0..self.addresses.len() {
                eprintln!("master {index} said:\n{}", self.log_text(index));
            }
        }
    }
}

fn log(directory: &Path, index: usize) -> std::path::PathBuf {
    directory.join(format!("master-{index}.log"))
}

/// The same command with standard error appended to its log.
fn logged(mut command: Command, directory: &Path, index: usize) -> Command {
    let file = std::fs::OpenOptions::new()
        .create(true)
        .append(true)
        .open(log(directory, index));
    command.stderr(Stdio::from(file.expect("the log can be written")));
    command
}
