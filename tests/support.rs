//! Shared helpers: a cluster of real processes, and bounded waits.
//!
//! Nothing here asserts anything about Meros.

use std::io::{BufRead, BufReader};
use std::net::{TcpListener, UdpSocket};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::atomic::{AtomicU16, Ordering};
use std::sync::mpsc::{Receiver, channel};

use serde_json::Value;
pub use testkit::http::{get, get_over, get_with, header, page, request, send, send_whole};
pub use testkit::waits::{Deadline, LONGEST, PATIENCE, eventually, within};

use crate::in_time::InTime;

/// The `meros` binary with these arguments, ready to run.
pub fn meros<'a>(arguments: impl IntoIterator<Item = &'a str>) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_meros"));
    command
        .args(arguments)
        .stdin(Stdio::null())
        .env_remove("MEROS_CERTS")
        .env_remove("RUST_BACKTRACE");
    command
}

/// The first of `count + 1` consecutive ports that are free for TCP and UDP.
pub fn free_ports(count: u16) -> u16 {
    static NEXT: AtomicU16 = AtomicU16::new(0);
    let start = 20_000 + (std::process::id() % 300) as u16 * 40;
    loop {
        let base = start + NEXT.fetch_add(count + 1, Ordering::Relaxed) % 11_000;
        let free = |port| {
            TcpListener::bind(("127.0.0.1", port)).is_ok()
                && UdpSocket::bind(("127.0.0.1", port)).is_ok()
        };
        if (base..=base + count).all(free) {
            return base;
        }
    }
}

/// A process that is killed when this is dropped.
pub struct Running {
    child: Child,
    lines: Option<Receiver<String>>,
}

impl Running {
    /// Starts `command`; it inherits standard error. A piped standard output is read continuously,
    /// so that the process never blocks on a full pipe.
    pub fn start(command: &mut Command) -> Self {
        let mut child = command
            .spawn()
            .unwrap_or_else(|error| panic!("{command:?}: {error}"));
        let lines = child.stdout.take().map(|stdout| {
            let (say, lines) = channel();
            let read = move || {
                let read = BufReader::new(stdout).lines().map_while(Result::ok);
                read.for_each(|line| drop(say.send(line))); // Nobody may listen any more.
            };
            std::thread::spawn(read);
            lines
        });
        Self { child, lines }
    }

    /// Its process id.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// Sends it a signal by name, for example `KILL`.
    pub fn signal(&self, name: &str) {
        signal(self.child.id(), name);
    }

    /// Waits for its exit.
    pub fn wait(&mut self) -> std::process::ExitStatus {
        eventually("the process to end", || {
            self.child.try_wait().ok().flatten()
        })
    }

    /// Whether it still runs.
    pub fn is_running(&mut self) -> bool {
        matches!(self.child.try_wait(), Ok(None))
    }

    /// The next line of its standard output that satisfies `wanted`; skips earlier lines.
    pub fn line(&mut self, what: &str, wanted: impl Fn(&str) -> bool) -> String {
        let lines = self
            .lines
            .as_ref()
            .unwrap_or_else(|| panic!("standard output is not piped"));
        let mut seen = Vec::new();
        let deadline = Deadline::of_a_test();
        loop {
            deadline.check(what);
            match lines.recv_timeout(PATIENCE) {
                Ok(line) if wanted(&line) => return line,
                Ok(line) => seen.push(line),
                Err(error) => panic!("{error}: it has not said {what}, but {seen:?}"),
            }
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Sends a signal to a process by id.
pub fn signal(pid: u32, name: &str) {
    let _ = Command::new("kill")
        .arg(format!("-{name}"))
        .arg(pid.to_string())
        .stderr(Stdio::null())
        .status_in_time();
}

/// A cluster in its own directory: `meros local`, or a `meros master` with separately started
/// agents.
pub struct Cluster {
    /// `meros local`, or the master.
    pub process: Running,
    /// The master's `host:port`.
    pub master: String,
    /// The master's port; agent i of `meros local` has port + i.
    pub port: u16,
    work_dir: tempfile::TempDir,
}

impl Cluster {
    /// Starts `agents` agents, each with these resources, and waits for `ready`.
    pub fn start(agents: u16, resources: &str) -> Self {
        Self::with(agents, &["--resources", resources])
    }

    /// Starts `agents` agents with more flags of `meros local`.
    pub fn with(agents: u16, flags: &[&str]) -> Self {
        Self::local(1, agents, flags)
    }

    /// Starts `masters` masters; verbs get the addresses of all of them.
    pub fn local(masters: u16, agents: u16, flags: &[&str]) -> Self {
        let work_dir = tempfile::tempdir().expect("a temporary directory");
        let port = free_ports(agents + masters - 1);
        let mut command = meros([
            "local",
            "--port",
            &port.to_string(),
            "--agents",
            &agents.to_string(),
            "--masters",
            &masters.to_string(),
        ]);
        command
            .arg("--work_dir")
            .arg(work_dir.path())
            .args(flags)
            .stdout(Stdio::piped());
        let mut process = Running::start(&mut command);
        let line = process.line("ready", |line| line.starts_with("ready "));
        let (_, address) = line.split_once("://").unwrap_or_default();
        assert_eq!(address, format!("127.0.0.1:{port}"));
        // Ports: the first master, then the agents, then the other masters.
        let ports = std::iter::once(port).chain(port + agents + 1..port + agents + masters);
        let addresses: Vec<String> = ports.map(|port| format!("127.0.0.1:{port}")).collect();
        Self {
            process,
            master: addresses.join(","),
            port,
            work_dir,
        }
    }

    /// A separate master process without agents. `configure` may extend its command and gets the
    /// cluster's directory.
    pub fn master_alone(configure: impl FnOnce(&mut Command, &Path)) -> Self {
        let work_dir = certified_directory();
        let port = free_ports(0);
        let mut command = master_command(work_dir.path(), "master", "127.0.0.1", &port.to_string());
        configure(&mut command, work_dir.path());
        let cluster = Self {
            process: Running::start(&mut command),
            master: format!("127.0.0.1:{port}"),
            port,
            work_dir,
        };
        cluster.wait_for_master();
        cluster
    }

    /// Three master processes on loopback, without agents. The cluster's process is the first; the
    /// others are returned.
    pub fn of_three_masters() -> (Self, Vec<Running>) {
        let ports = (0..3).map(|_| free_ports(0));
        let addresses: Vec<String> = ports.map(|port| format!("127.0.0.1:{port}")).collect();
        Self::of_masters(&addresses, |directory, index| {
            Self::master_of_three(directory, &addresses, index)
        })
    }

    /// Masters at these addresses. `command` gets the cluster's directory and the index of the
    /// address.
    pub fn of_masters(
        addresses: &[String],
        mut command: impl FnMut(&Path, usize) -> Command,
    ) -> (Self, Vec<Running>) {
        let work_dir = certified_directory();
        let masters = 0..addresses.len();
        let mut masters = masters.map(|index| Running::start(&mut command(work_dir.path(), index)));
        let first = masters.next().expect("at least one");
        let others = masters.collect();
        let (_, port) = addresses[0].rsplit_once(':').expect("a port");
        let cluster = Self {
            process: first,
            master: addresses.join(","),
            port: port.parse().expect("a port"),
            work_dir,
        };
        cluster.wait_for_master();
        (cluster, others)
    }

    /// The command of one of three masters; it can be run repeatedly. The state is in
    /// `master-INDEX` of the directory.
    pub fn master_of_three(work_dir: &Path, addresses: &[String], index: usize) -> Command {
        let (ip, port) = addresses[index].rsplit_once(':').expect("a port");
        let mut command = master_command(work_dir, &format!("master-{index}"), ip, port);
        command.args(["--initial_masters", &addresses.join(",")]);
        command
    }

    /// The command of another master, with its state in `name` of this directory; it can be run
    /// repeatedly.
    pub fn master_in(work_dir: &Path, name: &str, port: &str) -> Command {
        master_command(work_dir, name, "127.0.0.1", port)
    }

    /// Kills the master's process.
    pub fn kill_master(&mut self) {
        self.process.signal("KILL");
        self.process.wait();
    }

    /// Kills the master's process and starts it again in its directory and on its port.
    pub fn kill_and_restart_master(&mut self) {
        self.kill_master();
        self.process = Running::start(&mut master_command(
            self.directory(),
            "master",
            "127.0.0.1",
            &self.port.to_string(),
        ));
        self.wait_for_master();
    }

    fn wait_for_master(&self) {
        eventually("the master to answer", || {
            self.output(["agents"]).status.success().then_some(())
        });
    }

    /// `meros agent` for this cluster on its own port; it can be run repeatedly. Its work directory
    /// is `name` in the cluster's directory, or an absolute path.
    pub fn agent_command(&self, name: &str, resources: &str) -> Command {
        let port = free_ports(0).to_string();
        let mut command = meros(["agent", "--master", &self.master, "--port", &port]);
        command
            .args(["--ip", "127.0.0.1", "--resources", resources])
            .arg("--work_dir")
            .arg(self.directory().join(name))
            .env("MEROS_CERTS", self.certs());
        command
    }

    /// Starts an agent process and waits for its registration.
    pub fn agent(&self, name: &str, resources: &str) -> Running {
        self.agent_of(&mut self.agent_command(name, resources))
    }

    /// Starts this agent and waits until the number of active agents has grown.
    pub fn agent_of(&self, command: &mut Command) -> Running {
        let active = || {
            let agents = self.list("agents");
            agents
                .iter()
                .filter(|agent| agent["active"] == true)
                .count()
        };
        let before = active();
        let agent = Running::start(command);
        eventually("the agent to register", || {
            (active() > before).then_some(())
        });
        agent
    }

    /// The directory of state, certificates and sandboxes.
    pub fn directory(&self) -> &Path {
        self.work_dir.path()
    }

    /// The directory of the operator's certificate.
    pub fn certs(&self) -> PathBuf {
        self.work_dir.path().join("certs")
    }

    /// A `meros` verb pointed at this cluster, ready to run.
    pub fn verb<'a>(&self, arguments: impl IntoIterator<Item = &'a str>) -> Command {
        let mut command = meros(arguments);
        command
            .env("MEROS_CERTS", self.certs())
            .env("MEROS_MASTER", &self.master);
        command
    }

    /// Runs a verb and waits for its exit.
    pub fn output<'a>(&self, arguments: impl IntoIterator<Item = &'a str>) -> Output {
        self.verb(arguments).output_in_time().expect("meros runs")
    }

    /// Runs a verb that must succeed; returns its output.
    #[track_caller]
    pub fn done(&self, arguments: &[&str]) -> String {
        let output = self.output(arguments.iter().copied());
        let errors = stderr(&output);
        assert!(output.status.success(), "{arguments:?}: {errors}");
        stdout(&output)
    }

    /// Runs a verb that must fail with one line; returns that line.
    #[track_caller]
    pub fn refused(&self, arguments: &[&str]) -> String {
        let output = self.output(arguments.iter().copied());
        let printed = stdout(&output);
        assert!(!output.status.success(), "{arguments:?}: {printed}");
        let text = stderr(&output);
        assert_eq!(text.lines().count(), 1, "{text}");
        text
    }

    /// The output of `meros agents`, `tasks` or `frameworks` as JSON.
    pub fn list(&self, verb: &str) -> Vec<Value> {
        let output = self.output([verb, "--json"]);
        let list = serde_json::from_slice(&output.stdout);
        list.unwrap_or_else(|error| panic!("{verb}: {error}: {}", stderr(&output)))
    }

    /// Runs a shell line by `meros run` and waits for its exit.
    pub fn run_shell(&self, flags: &[&str], line: &str) -> Output {
        let arguments = ["run"]
            .into_iter()
            .chain(flags.iter().copied())
            .chain(["--", "sh", "-c", line]);
        self.output(arguments)
    }

    /// Sends SIGTERM and waits for the exit.
    pub fn stop(mut self) -> std::process::ExitStatus {
        self.process.signal("TERM");
        self.process.wait()
    }

    /// Whether it still runs.
    pub fn is_running(&mut self) -> bool {
        self.process.is_running()
    }
}

/// A directory with an authority's certificates in `certs`.
fn certified_directory() -> tempfile::TempDir {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let made = meros(["certs", "--dir"])
        .arg(directory.path().join("certs"))
        .stdout(Stdio::null())
        .status_in_time();
    assert!(made.expect("meros runs").success());
    directory
}

/// A master that keeps its state in `name` of the cluster's directory.
fn master_command(work_dir: &Path, name: &str, ip: &str, port: &str) -> Command {
    let mut command = meros(["master", "--ip", ip, "--port", port]);
    command
        .arg("--work_dir")
        .arg(work_dir.join(name))
        .env("MEROS_CERTS", work_dir.join("certs"));
    command
}

/// An example of the root package, which `cargo test` builds beside the tests.
pub fn example(name: &str) -> PathBuf {
    let directory = Path::new(env!("CARGO_BIN_EXE_meros")).parent();
    let path = directory.expect("a directory").join("examples").join(name);
    if !path.exists() {
        // Needed only when cargo was asked for a single test target.
        let profile: &[&str] = match cfg!(debug_assertions) {
            true => &[],
            false => &["--release"],
        };
        let built = Command::new(env!("CARGO"))
            .args(["build", "--offline", "--examples"])
            .args(profile)
            .current_dir(env!("CARGO_MANIFEST_DIR"))
            .status();
        assert!(built.expect("cargo runs").success() && path.exists());
    }
    path
}

/// The standard output of a process.
pub fn stdout(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// The standard error of a process.
pub fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// Ids of the processes `sleep SECONDS`. Each test uses its own number.
pub fn sleepers(seconds: u32) -> Vec<u32> {
    let line = format!("sleep\0{seconds}\0");
    let entries = std::fs::read_dir("/proc")
        .expect("/proc can be read")
        .flatten();
    let ids = entries.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    ids.filter(|id| {
        std::fs::read(format!("/proc/{id}/cmdline")).unwrap_or_default() == line.as_bytes()
    })
    .collect()
}
