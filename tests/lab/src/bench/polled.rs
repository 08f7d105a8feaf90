//! Launches while clients poll `/state` of a large cluster, compared with launches without polling:
//! part of `meros-lab bench http`, with the hidden verb `readers-part`.
//!
//! It is one load of many short slices, alternately polled and not, because whole loads differ by
//! more than the measured effect. The polled slices alternate between plain and compressed pages;
//! clients in Go and Python request the latter by default.
//!
//! The cluster has one real agent, which runs the tasks, and synthetic agents, which only make the
//! page large. Their resources are reserved for an unused role, so that all launches use the real
//! agent. The pollers stand for other machines and run in a process of the lowest priority; bodies
//! are counted and discarded in the kernel without a copy.

use std::cell::RefCell;
use std::net::SocketAddr;
use std::os::fd::AsRawFd;
use std::pin::pin;
use std::rc::Rc;
use std::time::Duration;

use clap::Args;
use futures_util::future::{Either, select};
use meros::flags::Threads;
use meros::out;
use meros::service::local::LocalCluster;
use meros::service::raise_open_files;
use nix::sys::socket::{MsgFlags, recv};
use protocol::message::registration::RegisterAgent;
use resources::{Resources, Role as ResourceRole};
use runtime::prelude::*;
use runtime::{Clock, Instant, Role};
use scheduler_driver::{DriverRef, SchedulerDriver};
use serde::{Deserialize, Serialize};
use serde_json::json;
use simulator::synthetic_agents::{MasterCounts, register};
use testkit::agents::SyntheticAgents;
use tokio::io::{AsyncReadExt, AsyncWriteExt, Interest};
use tokio::net::TcpStream;
use tokio::sync::watch;
use transport::{Authority, Endpoint};

use super::client::Connection;
use super::http::{DecliningScheduler, HttpArgs, WIDTH, all_finished, end_half, native, owners};
use super::launch::{self, Launches};
use super::process::{Part, input};
use super::{Figure, Result, Times, agents, cores, rounded};

/// Duration of a slice; short, so that other work on the machine affects both kinds equally.
const SLICE: Duration = Duration::from_secs(2);
/// Loads of `--tasks` tasks without a pause between them.
const LOADS: u32 = 28;
/// Encodings of requested pages, with the names of their figures.
const ENCODINGS: [(&str, &str); 2] = [
    ("identity", "launch_polled"),
    ("gzip", "launch_polled_gzip"),
];
/// Goal for the rate with pollers, as a fraction of the rate without.
const WANTED: f64 = 0.95;

/// One figure for each encoding.
pub async fn measure(args: &HttpArgs) -> Result<Vec<Figure>> {
    let tasks = args.tasks.saturating_mul(LOADS);
    let (pollers, every, each) = (args.pollers, args.poll_interval, args.tasks_each);
    args.output.say(format_args!(
        "{tasks} tasks, alone and beside {pollers} clients that poll /state every {every:?}, plain and compressed, by turns of {SLICE:?}"
    ));
    let (_directory, mut options) = launch::cluster_for(WIDTH, Threads::default())?;
    // Otherwise the page would include the first load.
    options.master.max_completed_frameworks = Some(0);
    let cluster = LocalCluster::start(options).await?;
    let crowd = RunningAgents::start(&cluster, args).await?;
    // Warms up before the page is measured.
    native(&cluster, args.tasks.div_ceil(4)).await?;
    let mut connection = Connection::open(&cluster.master()).await?;
    let bytes = connection.get("/state").await?.len();
    let mut parts = Vec::new();
    for (encoding, _) in ENCODINGS {
        let flags = [
            ("--master", cluster.master()),
            ("--path", "/state".to_owned()),
            ("--readers", pollers.to_string()),
            ("--every", format!("{}ms", every.as_millis())),
            ("--encoding", encoding.to_owned()),
        ];
        parts.push(Part::start_behind("readers-part", &flags, cluster.certs()).await?);
    }
    let (clock, mut slices, mut results) = (Clock::real(), Vec::new(), Vec::new());
    let ended: Vec<Instant> = {
        let launches = Launches::new("native", tasks, WIDTH, false)?;
        let load = pin!(launch::measure(&cluster, launches, &clock));
        let polling = pin!(poll(&clock, &mut parts, &mut slices, &mut results));
        match select(load, polling).await {
            Either::Left((times, _)) => times?.iter().filter_map(|times| times.ended).collect(),
            Either::Right((failure, _)) => return failure.map(|()| Vec::new()),
        }
    };
    drop(parts);
    crowd.stop().await;
    cluster.stop()?;
    let mut figures = Vec::new();
    for (index, (encoding, bench)) in ENCODINGS.into_iter().enumerate() {
        let compared = Compared::of(index, &slices, &ended)
            .ok_or_else(|| format!("--tasks is {}, too few for {SLICE:?}", args.tasks))?;
        let column = |of: fn(&PollResults) -> f64| {
            let own = results.iter().filter(|(encoding, _)| *encoding == index);
            let values = own.map(|(_, results)| rounded(of(results)));
            values.collect::<Vec<f64>>()
        };
        let ratios: Vec<f64> = compared.ratios.iter().copied().map(rounded).collect();
        figures.push(
            Figure::new(bench, compared.polled, "tasks/s")
                .beside(
                    compared.alone,
                    "the same in the slices of that load in which nobody polls",
                )
                .with(json!({
                    "tasks": tasks, "side_by_side": WIDTH, "slice_ms": SLICE.as_millis() as u64, "encoding": encoding,
                    "pollers": pollers, "poll_interval_ms": every.as_millis() as u64, "bytes": bytes,
                    "agents": args.agents, "running": args.agents * each, "completed": args.agents * each,
                    "pollers_nice": 19, "pages_per_second": column(|results| results.pages as f64 / results.seconds),
                    "bytes_per_second": column(|results| results.bytes as f64 / results.seconds),
                    "page_p50_ms": column(|results| results.p50_ms), "page_p99_ms": column(|results| results.p99_ms),
                    "ratios": ratios, "wanted": WANTED, "cores": cores(),
                })),
        );
    }
    Ok(figures)
}

/// A slice of time, with the index of its encoding if it was polled.
#[derive(Clone, Copy, Debug)]
struct Slice {
    polled: Option<usize>,
    from: Instant,
    to: Instant,
}

/// Records slices, alternately polled and not, until it is dropped at the end of the load, or until
/// the pollers fail.
async fn poll(
    clock: &Clock,
    parts: &mut [Part],
    slices: &mut Vec<Slice>,
    results: &mut Vec<(usize, PollResults)>,
) -> Result {
    let slice = async |polled| {
        let from = clock.now();
        clock.sleep(SLICE).await;
        let to = clock.now();
        Slice { polled, from, to }
    };
    loop {
        for (index, part) in parts.iter_mut().enumerate() {
            part.ask().await?; // It starts to poll.
            slices.push(slice(Some(index)).await);
            // Current pages are completed outside of all slices.
            results.push((index, serde_json::from_value(part.ask().await?)?));
            slices.push(slice(None).await);
        }
    }
}

/// Results of a load.
#[derive(Debug, PartialEq)]
struct Compared {
    /// Tasks that ended per second of polled slices.
    polled: f64,
    /// The same of slices without polling.
    alone: f64,
    /// The ratio of both for each pair of slices, in order.
    ratios: Vec<f64>,
}

impl Compared {
    /// Compares whole pairs, a slice polled with this encoding and the next one without. `None`
    /// without such a pair, or if a slice had no ended task.
    fn of(encoding: usize, slices: &[Slice], ended: &[Instant]) -> Option<Self> {
        let count = |slice: &Slice| {
            let within = slice.from..slice.to;
            ended.iter().filter(|at| within.contains(at)).count()
        };
        let rate = |slices: &[Slice]| {
            let lasted: Duration = slices.iter().map(|slice| slice.to - slice.from).sum();
            slices.iter().map(count).sum::<usize>() as f64 / lasted.as_secs_f64()
        };
        let pairs = slices.as_chunks::<2>().0.iter();
        let pairs: Vec<[Slice; 2]> = pairs
            .filter(|[polled, _]| polled.polled == Some(encoding))
            .copied()
            .collect();
        let of = |place: usize| pairs.iter().map(|pair| pair[place]).collect::<Vec<_>>();
        let ratio = |[polled, alone]: &[Slice; 2]| rate(&[*polled]) / rate(&[*alone]);
        let ratios: Vec<f64> = pairs.iter().map(ratio).collect();
        let is_whole = !ratios.is_empty() && ratios.iter().all(|ratio| ratio.is_finite());
        is_whole.then(|| Self {
            polled: rate(&of(0)),
            alone: rate(&of(1)),
            ratios,
        })
    }
}

/// The synthetic agents, with running and completed tasks, and the frameworks of these.
struct RunningAgents {
    home: Node,
    _endpoint: Endpoint,
    frameworks: Vec<DriverRef>,
}

impl RunningAgents {
    async fn start(cluster: &LocalCluster, args: &HttpArgs) -> Result<Self> {
        let (each, masters) = (args.tasks_each, vec![cluster.master()]);
        let authority = Authority::load(cluster.certs())?;
        let mut reports = SyntheticAgents::new(args.agents, 2 * each)?.reports;
        reports.iter_mut().try_for_each(keep_from_others)?;
        let (tally, _watched) = watch::channel(MasterCounts::default());
        let (mut handles, numbered) = (Vec::new(), (0..).zip(reports.clone()));
        let shared: Vec<_> = numbered.collect();
        let (home, endpoint) = agents::share(&authority, &shared, &masters, &tally, &mut handles)?;
        register(&handles).await?;
        let mut frameworks = Vec::new();
        for info in owners(&reports) {
            let identity = cluster.issue(Role::Framework, &info.name)?;
            let driver = SchedulerDriver::new(masters.clone(), info);
            frameworks.push(driver.connect(&identity, DecliningScheduler)?);
        }
        end_half(&home, &masters[0], &reports, each).await?;
        let mut connection = Connection::open(&masters[0]).await?;
        all_finished(&mut connection, args.agents as usize * each as usize).await?;
        Ok(Self {
            home,
            _endpoint: endpoint,
            frameworks,
        })
    }

    async fn stop(self) {
        for framework in self.frameworks {
            let _ = framework.tear_down(); // It may have ended already.
            framework.ended().await;
        }
        self.home.shutdown().await;
    }
}

/// Reserves all resources of this agent for an unused role.
fn keep_from_others(report: &mut RegisterAgent) -> Result {
    let all = "cpus(crowd):32;mem(crowd):65536;disk(crowd):500000;ports(crowd):[31000-32000]";
    report.agent.resources = all.parse()?;
    let needs: Resources = "cpus(crowd):0.5;mem(crowd):64".parse()?;
    let needs = needs.allocate(&ResourceRole::new("crowd")?);
    for task in &mut report.held.tasks {
        task.info.resources = needs.clone();
    }
    Ok(())
}

/// Largest head of a reply, in bytes, and its end.
const HEAD_MAX: usize = 16 << 10;
const END: &[u8] = b"\r\n\r\n";
/// Bytes discarded at once.
const AT_ONCE: usize = 1 << 20;

/// Clients that poll a page
#[derive(Args, Debug)]
#[command(rename_all = "snake_case")]
pub struct ReadersArgs {
    #[arg(long)]
    master: SocketAddr,
    #[arg(long)]
    path: String,
    #[arg(long)]
    readers: u32,
    #[arg(long, value_parser = meros::flags::duration)]
    every: Duration,
    /// How the page may be encoded
    #[arg(long)]
    encoding: String,
}

/// Results of all clients.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
struct PollResults {
    /// Duration of the polling, in seconds.
    seconds: f64,
    /// Number of complete pages, and bytes of their bodies.
    pages: u64,
    bytes: u64,
    /// From the request to the last byte of a page.
    p50_ms: f64,
    p99_ms: f64,
}

/// The clients poll from one line of input until the next, whose reply has the results.
pub async fn serve(args: &ReadersArgs) -> Result {
    raise_open_files()?;
    let (mut lines, clock) = (input(), Clock::real());
    out!("{}", json!({ "readers": args.readers }));
    while lines.recv().await.is_some() {
        let (stop, stopped) = watch::channel(false);
        let times = Rc::new(RefCell::new(Times::new()?));
        let begun = clock.now();
        let readers = (0..args.readers).map(|number| {
            // Spread over the interval, like independent clients.
            let first = args.every * number / args.readers;
            read(args, first, stopped.clone(), times.clone())
        });
        let reading = futures_util::future::try_join_all(readers);
        out!("{}", json!({}));
        let ended = async {
            let _ = lines.recv().await; // Also ends if the parent has ended.
            let _ = stop.send(true); // They may have failed.
            Ok((clock.now() - begun).as_secs_f64())
        };
        let (bytes, seconds) = futures_util::try_join!(reading, ended)?;
        let times = times.borrow();
        let results = PollResults {
            seconds,
            pages: times.count(),
            bytes: bytes.iter().sum(),
            p50_ms: times.ms(0.5),
            p99_ms: times.ms(0.99),
        };
        out!("{}", json!(results));
    }
    Ok(())
}

/// One client, until it is stopped. Completes the current page. Returns the received bytes.
async fn read(
    args: &ReadersArgs,
    first: Duration,
    stopped: watch::Receiver<bool>,
    times: Rc<RefCell<Times>>,
) -> Result<u64> {
    let clock = Clock::real();
    let mut connection = TcpStream::connect(args.master).await?;
    clock.sleep(first).await;
    let (mut bytes, mut room) = (0, vec![0; AT_ONCE]);
    while !*stopped.borrow() {
        let begun = clock.now();
        bytes += page(&mut connection, &mut room, args).await?;
        let took = clock.now() - begun;
        times.borrow_mut().record(took)?;
        clock.sleep(args.every.saturating_sub(took)).await;
    }
    Ok(bytes)
}

/// Requests the page and returns the length of its body. Discards at most `room` at once.
async fn page(connection: &mut TcpStream, room: &mut [u8], args: &ReadersArgs) -> Result<u64> {
    let (path, master, encoding) = (&args.path, args.master, &args.encoding);
    let request =
        format!("GET {path} HTTP/1.1\r\nhost: {master}\r\naccept-encoding: {encoding}\r\n\r\n");
    connection.write_all(request.as_bytes()).await?;
    let head = head(connection).await?;
    let length = length(&head).ok_or_else(|| format!("no page: {head}"))?;
    let mut left = length;
    while left > 0 {
        left -= skip(connection, room, left).await?;
    }
    Ok(length)
}

/// Reads the head of a reply, and nothing of the body.
async fn head(connection: &mut TcpStream) -> Result<String> {
    let (mut head, mut ahead) = (Vec::new(), [0; 1024]);
    while !head.ends_with(END) && head.len() < HEAD_MAX {
        let there = connection.peek(&mut ahead).await?;
        if there == 0 {
            return Err("the connection has ended".into());
        }
        let before = head.len();
        head.extend_from_slice(&ahead[..there]);
        if let Some(end) = head.windows(END.len()).position(|at| at == END) {
            head.truncate(end + END.len());
        }
        // Consumes the bytes that were only peeked.
        let taken = head.len() - before;
        connection.read_exact(&mut ahead[..taken]).await?;
    }
    Ok(String::from_utf8_lossy(&head).into_owned())
}

/// The length of the page that this head announces; `None` for another reply.
fn length(head: &str) -> Option<u64> {
    let (status, fields) = head.split_once("\r\n")?;
    let fields = fields.lines().filter_map(|line| line.split_once(':'));
    let mut lengths = fields.filter(|(name, _)| name.eq_ignore_ascii_case("content-length"));
    let (_, length) = lengths.next()?;
    let is_page = status.split(' ').nth(1) == Some("200");
    length.trim().parse().ok().filter(|_| is_page)
}

/// Discards at most `most` received bytes and returns their number. With `MSG_TRUNC` the kernel
/// writes nothing into the buffer.
async fn skip(connection: &TcpStream, room: &mut [u8], most: u64) -> Result<u64> {
    let most = usize::try_from(most).map_or(room.len(), |most| most.min(room.len()));
    let room = &mut room[..most];
    loop {
        connection.readable().await?;
        let taken = connection.try_io(Interest::READABLE, || {
            let flags = MsgFlags::MSG_TRUNC | MsgFlags::MSG_DONTWAIT;
            Ok(recv(connection.as_raw_fd(), room, flags)?)
        });
        match taken {
            Ok(0) => return Err("the connection has ended".into()),
            Ok(bytes) => return Ok(bytes as u64),
            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {}
            Err(error) => return Err(error.into()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn polled_slices_are_compared_with_unpolled_ones() {
        let at = |millis: u64| Instant::default() + Duration::from_millis(millis);
        let slices = [
            (Some(0), 0, 1_000),
            (None, 1_500, 2_500),
            (Some(1), 2_500, 3_500),
            (None, 3_500, 4_500),
            (Some(0), 4_500, 5_500),
            (None, 6_000, 7_000),
            (Some(1), 7_000, 8_000), // The load ended before its other half.
        ];
        let slices = slices.map(|(polled, from, to)| Slice {
            polled,
            from: at(from),
            to: at(to),
        });
        // Ends between two slices do not count.
        let ended = [
            999, 1_000, 1_500, 2_000, 2_500, 2_600, 2_700, 3_600, 4_000, 4_500, 5_000, 6_000,
            6_500, 7_500,
        ];
        let ended = ended.map(at);
        let expected = Compared {
            polled: 1.5,
            alone: 2.0,
            ratios: vec![0.5, 1.0],
        };
        assert_eq!(Compared::of(0, &slices, &ended), Some(expected));
        let other = Compared::of(1, &slices, &ended);
        assert_eq!(other.map(|other| other.ratios), Some(vec![1.5]));
        assert_eq!(Compared::of(0, &slices[..1], &ended), None);
        assert_eq!(Compared::of(0, &slices, &[]), None);
    }

    #[test]
    fn header_name_may_have_any_case() {
        let head =
            |status: &str| format!("HTTP/1.1 {status}\r\nA: b\r\nContent-Length: 12\r\n\r\n");
        assert_eq!(length(&head("200 OK")), Some(12));
        assert_eq!(length(&head("503 Service Unavailable")), None);
        let chunked = "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n";
        assert_eq!(length(chunked), None);
    }

    #[test]
    fn pages_are_counted_and_discarded() {
        let read = meros::on_this_thread(async {
            let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
            let args = ReadersArgs {
                master: listener.local_addr().unwrap(),
                path: "/state".into(),
                readers: 1,
                every: Duration::ZERO,
                encoding: "identity".into(),
            };
            let serve = async {
                let (mut connection, _) = listener.accept().await.unwrap();
                for length in [3_000_000, 0, 5] {
                    let mut asked = [0; 128];
                    assert!(connection.read(&mut asked).await.unwrap() > 0);
                    // A long head in two parts.
                    let begin = format!("HTTP/1.1 200 OK\r\nx: {}\r\ncontent-", "y".repeat(3_000));
                    connection.write_all(begin.as_bytes()).await.unwrap();
                    let end = format!("length: {length}\r\n\r\n");
                    connection.write_all(end.as_bytes()).await.unwrap();
                    connection.write_all(&vec![b'x'; length]).await.unwrap();
                }
            };
            let ask = async {
                let mut connection = TcpStream::connect(args.master).await.unwrap();
                let (mut lengths, mut room) = (Vec::new(), vec![0; AT_ONCE]);
                for _ in 0..3 {
                    lengths.push(page(&mut connection, &mut room, &args).await.unwrap());
                }
                let after = page(&mut connection, &mut room, &args).await;
                assert!(after.is_err(), "it has ended");
                lengths
            };
            futures_util::join!(serve, ask).1
        });
        assert_eq!(read.unwrap(), [3_000_000, 0, 5]);
    }
}
