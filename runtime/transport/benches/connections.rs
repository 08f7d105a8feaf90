//! Cost of connections for a host, and the reconnection of many peers at once, beside bare quinn: a
//! small form of `meros-lab bench connections` within this crate. Prints one line of JSON per kind.
//!
//! `NODES` is the number of nodes (2,000), `SETTLE` the seconds before memory is read (5). Host and
//! peers are separate processes, so that memory and CPU time are known for each.

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::Duration;

use nix::sys::resource::{Resource, UsageWho, getrlimit, getrusage, setrlimit};
use tokio::sync::mpsc;
use transport::connections::{Host, PeerFleet, ReconnectReport, bare};
use transport::{Authority, Options};

type Failure = Box<dyn std::error::Error + Send + Sync>;

/// A part of the measurement in its own process: it replies to each line with a line.
struct Part {
    child: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
}

impl Part {
    /// Starts the process; returns its first line.
    fn start(arguments: &[&str], directory: &Path) -> Result<(Self, String), Failure> {
        let mut child = Command::new(std::env::current_exe()?)
            .arg("part")
            .arg(directory)
            .args(arguments)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()?;
        let input = child.stdin.take().ok_or("no input")?;
        let output = BufReader::new(child.stdout.take().ok_or("no output")?);
        let mut part = Self {
            child,
            input,
            output,
        };
        let first = part.line()?;
        Ok((part, first))
    }

    fn line(&mut self) -> Result<String, Failure> {
        let mut line = String::new();
        match self.output.read_line(&mut line)? {
            0 => Err("a part has ended".into()),
            _ => Ok(line.trim().to_owned()),
        }
    }

    fn ask(&mut self) -> Result<Vec<f64>, Failure> {
        self.input.write_all(b"\n")?;
        let line = self.line()?;
        let numbers = line.split(' ').map(str::parse);
        Ok(numbers.collect::<Result<_, _>>()?)
    }
}

impl Drop for Part {
    fn drop(&mut self) {
        let _ = self.child.kill(); // it may have ended
        let _ = self.child.wait();
    }
}

/// Resident memory in KiB, and CPU time in seconds.
fn usage() -> Result<[f64; 2], Failure> {
    let status = std::fs::read_to_string("/proc/self/status")?;
    let resident = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let resident = resident.ok_or("no VmRSS")?.trim_end_matches("kB").trim();
    let spent = getrusage(UsageWho::RUSAGE_SELF)?;
    let seconds = [spent.user_time(), spent.system_time()]
        .map(|time| time.tv_sec() as f64 + time.tv_usec() as f64 / 1e6);
    Ok([resident.parse()?, seconds.iter().sum()])
}

/// Indices of the values at the beginning of a reply.
const RESIDENT: usize = 0;
const SPENT: usize = 1;

fn say(numbers: &[f64]) -> Result<(), Failure> {
    let all = usage()?;
    let words: Vec<String> = all.iter().chain(numbers).map(f64::to_string).collect();
    println!("{}", words.join(" "));
    Ok(())
}

fn linking(linking: ReconnectReport) -> [f64; 4] {
    [
        linking.took.as_secs_f64(),
        linking.took_half.as_secs_f64(),
        linking.dials as f64,
        linking.failures as f64,
    ]
}

async fn part(arguments: &[String]) -> Result<(), Failure> {
    let files = getrlimit(Resource::RLIMIT_NOFILE)?;
    setrlimit(Resource::RLIMIT_NOFILE, files.1, files.1)?;
    let [directory, kind, host, count] = arguments else {
        return Err("a part has four arguments".into());
    };
    let authority = Authority::load(Path::new(directory))?;
    let (asked, mut asks) = mpsc::unbounded_channel();
    std::thread::spawn(move || {
        for line in std::io::stdin().lines() {
            if line.is_err() || asked.send(()).is_err() {
                break;
            }
        }
    });
    match kind.as_str() {
        "host" => {
            let host = Host::start(&authority, Options::default().handshakes_max)?;
            println!("{}", host.address()?);
            while asks.recv().await.is_some() {
                let seen = host.handshakes();
                let counts = [seen.refused, seen.retried, seen.waiting_most as u64];
                say(&counts.map(|count| count as f64))?;
            }
        }
        "bare_host" => {
            let host = bare::Host::start(&authority)?;
            println!("{}", host.address()?);
            while asks.recv().await.is_some() {
                say(&[0.0; 3])?;
            }
        }
        "crowd" => {
            let mut fleet = PeerFleet::new(&authority, host.parse()?, count.parse()?)?;
            println!("gathered");
            while asks.recv().await.is_some() {
                say(&linking(fleet.reconnect_all().await?))?;
            }
        }
        _ => {
            let mut fleet = bare::PeerFleet::new(&authority, host.parse()?, count.parse()?)?;
            println!("gathered");
            while asks.recv().await.is_some() {
                say(&linking(fleet.reconnect_all().await?))?;
            }
        }
    }
    Ok(())
}

/// Measures one kind: the memory of idle links, and the time in which all reconnect.
#[allow(
    clippy::disallowed_methods,
    reason = "memory is looked at when things have settled, which nothing announces"
)]
fn measure(name: &str, parts: [&str; 2], directory: &Path) -> Result<(), Failure> {
    let (count, settle) = (number("NODES", 2000), number("SETTLE", 5));
    let (mut host, address) = Part::start(&[parts[0], "-", "0"], directory)?;
    let fleet = [parts[1], &address, &count.to_string()];
    let (mut fleet, _) = Part::start(&fleet, directory)?;
    let empty = host.ask()?;
    let first = fleet.ask()?;
    std::thread::sleep(Duration::from_secs(settle));
    let linked = host.ask()?;
    let again = fleet.ask()?;
    let after = host.ask()?;
    let per_link = (linked[RESIDENT] - empty[RESIDENT]) / count as f64;
    println!(
        "{{\"bench\":\"{name}\",\"links\":{count},\"kib_per_link\":{per_link:.1},\"storm_s\":{:.2},\"half_s\":{:.2},\"first_s\":{:.2},\
         \"host_cpu_s\":{:.2},\"crowd_cpu_s\":{:.2},\"dials\":{},\"refused\":{},\"retried\":{},\"waited_most\":{}}}",
        again[2],
        again[3],
        first[2],
        after[SPENT] - linked[SPENT],
        again[SPENT] - first[SPENT],
        again[4],
        after[2],
        after[3],
        after[4]
    );
    Ok(())
}

fn number(name: &str, default: u64) -> u64 {
    let given = std::env::var(name).ok();
    given
        .and_then(|given| given.parse().ok())
        .unwrap_or(default)
}

fn main() -> Result<(), Failure> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if let Some(("part", arguments)) = arguments
        .split_first()
        .map(|(first, rest)| (first.as_str(), rest))
    {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()?;
        return tokio::task::LocalSet::new().block_on(&runtime, part(arguments));
    }
    let directory = tempfile::tempdir()?;
    Authority::load_or_create(directory.path())?;
    measure("bare", ["bare_host", "bare_fleet"], directory.path())?;
    measure("links", ["host", "crowd"], directory.path())
}
