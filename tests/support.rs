//! What the integration tests share: a real cluster of real processes, and waits that end.
//!
//! Nothing here asserts anything about Meros; it starts, runs, waits with a bound, and cleans up.

use std::io::{BufRead, BufReader};
use std::net::{TcpListener, UdpSocket};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::atomic::{AtomicU16, Ordering};
use std::time::Duration;

/// The bound of every wait: far above what is ever needed, so that a slow machine is not a failing one.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// Waits until `condition` gives something; panics with `what` when the patience is spent.
pub fn eventually<T>(what: &str, mut condition: impl FnMut() -> Option<T>) -> T {
    const STEP: Duration = Duration::from_millis(20);
    for _ in 0..PATIENCE.as_millis() / STEP.as_millis() {
        if let Some(value) = condition() {
            return value;
        }
        #[allow(
            clippy::disallowed_methods,
            reason = "a bounded wait on real processes"
        )]
        std::thread::sleep(STEP);
    }
    panic!("not within {PATIENCE:?}: {what}");
}

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

/// `count` port numbers in a row that are free for TCP and UDP.
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

/// A process that is killed when the test is over, however it ends.
pub struct Running {
    child: Child,
}

impl Running {
    /// Starts `command`, its standard error passed on to the test's.
    pub fn start(command: &mut Command) -> Self {
        let child = command
            .spawn()
            .unwrap_or_else(|error| panic!("{command:?}: {error}"));
        Self { child }
    }

    /// Sends it a signal by name, for example `KILL`.
    pub fn signal(&self, name: &str) {
        signal(self.child.id(), name);
    }

    /// Waits for its end.
    pub fn wait(&mut self) -> std::process::ExitStatus {
        eventually("the process to end", || {
            self.child.try_wait().ok().flatten()
        })
    }

    /// Whether it still runs.
    pub fn is_running(&mut self) -> bool {
        matches!(self.child.try_wait(), Ok(None))
    }

    /// Reads its standard output until a line satisfies `wanted`; returns that line.
    pub fn line(&mut self, what: &str, wanted: impl Fn(&str) -> bool) -> String {
        let stdout = self
            .child
            .stdout
            .take()
            .unwrap_or_else(|| panic!("standard output is not piped"));
        let mut lines = BufReader::new(stdout).lines();
        let found = lines
            .by_ref()
            .map_while(Result::ok)
            .find(|line| wanted(line));
        // Whatever follows is read and dropped, so that the process never blocks on a full pipe.
        std::thread::spawn(move || lines.for_each(drop));
        found.unwrap_or_else(|| panic!("the process ended without saying {what}"))
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
        .status();
}

/// `meros local` in a directory of its own.
pub struct Cluster {
    process: Running,
    /// The master's `host:port`.
    pub master: String,
    /// The master's port; agent i has port + i.
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
        let work_dir = tempfile::tempdir().expect("a temporary directory");
        let port = free_ports(agents);
        let mut command = meros([
            "local",
            "--port",
            &port.to_string(),
            "--agents",
            &agents.to_string(),
        ]);
        command
            .arg("--work_dir")
            .arg(work_dir.path())
            .args(flags)
            .stdout(Stdio::piped());
        let mut process = Running::start(&mut command);
        let line = process.line("ready", |line| line.starts_with("ready "));
        assert_eq!(line, format!("ready http://127.0.0.1:{port}"));
        Self {
            process,
            master: format!("127.0.0.1:{port}"),
            port,
            work_dir,
        }
    }

    /// Where it keeps its state, certificates and sandboxes.
    pub fn directory(&self) -> &Path {
        self.work_dir.path()
    }

    /// Where an operator's certificate is.
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

    /// Runs a verb to its end.
    pub fn output<'a>(&self, arguments: impl IntoIterator<Item = &'a str>) -> Output {
        self.verb(arguments).output().expect("meros runs")
    }

    /// `meros run` with a shell line, to its end.
    pub fn run_shell(&self, flags: &[&str], line: &str) -> Output {
        let arguments = ["run"]
            .into_iter()
            .chain(flags.iter().copied())
            .chain(["--", "sh", "-c", line]);
        self.output(arguments)
    }

    /// Ends it politely and waits.
    pub fn stop(mut self) -> std::process::ExitStatus {
        self.process.signal("TERM");
        self.process.wait()
    }

    /// Whether it still runs.
    pub fn is_running(&mut self) -> bool {
        self.process.is_running()
    }
}

/// What a process printed to standard output.
pub fn stdout(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// What a process printed to standard error.
pub fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// Ids of the processes that are `sleep SECONDS`; a test chooses a number of its own, so that it meets no other's.
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

/// Fetches a page over plain HTTP; returns status line and body.
pub fn get(port: u16, path: &str) -> (String, String) {
    use std::io::{Read, Write};
    let mut stream = std::net::TcpStream::connect(("127.0.0.1", port)).expect("the port answers");
    stream
        .set_read_timeout(Some(PATIENCE))
        .expect("a timeout can be set");
    write!(
        stream,
        "GET {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n"
    )
    .expect("the request is sent");
    let mut text = String::new();
    stream
        .read_to_string(&mut text)
        .expect("the answer is read");
    let (head, body) = text.split_once("\r\n\r\n").unwrap_or((&text, ""));
    let status = head.lines().next().unwrap_or_default().to_owned();
    (status, dechunk(head, body))
}

fn dechunk(head: &str, body: &str) -> String {
    if !head
        .to_ascii_lowercase()
        .contains("transfer-encoding: chunked")
    {
        return body.to_owned();
    }
    let (mut rest, mut whole) = (body, String::new());
    while let Some((length, after)) = rest.split_once("\r\n") {
        let length = usize::from_str_radix(length.trim(), 16).unwrap_or(0);
        if length == 0 {
            break;
        }
        whole.push_str(&after[..length]);
        rest = after[length..].trim_start_matches("\r\n");
    }
    whole
}
