//! The hidden verb `meros-lab bench readers-part`: clients that poll a page, in a separate process
//! of the lowest priority.
//!
//! They stand for other machines, so they use as little of this one as possible: bodies are counted
//! and discarded in the kernel without a copy. Each client requests the page once per interval, or
//! as soon as the page before is complete. Follows the protocol of parts (see `bench/part.rs`): the
//! clients poll from one line of input until the next, whose reply has the results.

use std::cell::RefCell;
use std::net::SocketAddr;
use std::os::fd::AsRawFd;
use std::rc::Rc;
use std::time::Duration;

use clap::Args;
use nix::sys::socket::{MsgFlags, recv};
use runtime::{Clock, Statistics};
use serde::{Deserialize, Serialize};
use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt, Interest};
use tokio::net::TcpStream;
use tokio::sync::watch;

use super::super::part::input;
use meros::out;
use meros::output::error::{CliError, Outcome};
use meros::service::raise_open_files;
use meros::service::signals::Signals;

/// Largest head of a reply, in bytes.
const HEAD_MAX: usize = 16 << 10;
/// End of a head.
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
pub struct PollResults {
    /// Duration of the polling, in seconds.
    pub seconds: f64,
    /// Number of complete pages.
    pub pages: u64,
    /// Bytes of their bodies.
    pub bytes: u64,
    /// Median time from the request to the last byte of a page, in milliseconds.
    pub p50_ms: f64,
    /// The 99th percentile.
    pub p99_ms: f64,
}

/// Serves until its input ends.
pub async fn run(args: ReadersArgs, signals: Signals) -> Outcome {
    let served = signals.unless_stopped(serve(&args)).await;
    served.unwrap_or(Ok(()))
}

async fn serve(args: &ReadersArgs) -> Outcome {
    raise_open_files()?;
    let (mut lines, clock) = (input(), Clock::real());
    out!("{}", json!({ "readers": args.readers }));
    while lines.recv().await.is_some() {
        let (stop, stopped) = watch::channel(false);
        let times = Rc::new(RefCell::new(Vec::new()));
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
            Ok(clock.now() - begun)
        };
        let (all, lasted) = futures_util::try_join!(reading, ended)?;
        out!("{}", json!(results(lasted, &all, &times.borrow())));
    }
    Ok(())
}

fn results(lasted: Duration, bytes: &[u64], times: &[f64]) -> PollResults {
    let statistics = Statistics::of(times.iter().copied());
    PollResults {
        seconds: lasted.as_secs_f64(),
        pages: times.len() as u64,
        bytes: bytes.iter().sum(),
        p50_ms: statistics.map_or(f64::NAN, |of| of.p50),
        p99_ms: statistics.map_or(f64::NAN, |of| of.p99),
    }
}

/// One client, until it is stopped. Completes the current page. Returns the received bytes.
async fn read(
    args: &ReadersArgs,
    first: Duration,
    stopped: watch::Receiver<bool>,
    times: Rc<RefCell<Vec<f64>>>,
) -> Outcome<u64> {
    let clock = Clock::real();
    let failed = |error| CliError::because(args.path.clone(), &error);
    let mut connection = TcpStream::connect(args.master).await.map_err(failed)?;
    clock.sleep(first).await;
    let (mut bytes, mut room) = (0, vec![0; AT_ONCE]);
    while !*stopped.borrow() {
        let begun = clock.now();
        let results = page(&mut connection, &mut room, args).await;
        bytes += results.map_err(failed)?;
        let took = clock.now() - begun;
        times.borrow_mut().push(took.as_secs_f64() * 1000.0);
        clock.sleep(args.every.saturating_sub(took)).await;
    }
    Ok(bytes)
}

/// Requests the page and returns the length of its body. Discards at most `room` at once.
async fn page(
    connection: &mut TcpStream,
    room: &mut [u8],
    args: &ReadersArgs,
) -> std::io::Result<u64> {
    let ReadersArgs {
        path,
        master,
        encoding,
        ..
    } = args;
    let request =
        format!("GET {path} HTTP/1.1\r\nhost: {master}\r\naccept-encoding: {encoding}\r\n\r\n");
    connection.write_all(request.as_bytes()).await?;
    let head = head(connection).await?;
    let head = String::from_utf8_lossy(&head);
    let Some(length) = length(&head) else {
        return Err(std::io::Error::other(format!("no page: {head}")));
    };
    let mut left = length;
    while left > 0 {
        left -= skip(connection, room, left).await?;
    }
    Ok(length)
}

/// Reads the head of a reply, and nothing of the body.
async fn head(connection: &mut TcpStream) -> std::io::Result<Vec<u8>> {
    let (mut head, mut ahead) = (Vec::new(), [0; 1024]);
    while !head.ends_with(END) && head.len() < HEAD_MAX {
        let before = head.len();
        let there = connection.peek(&mut ahead).await?;
        if there == 0 {
            return Err(std::io::ErrorKind::UnexpectedEof.into());
        }
        head.extend_from_slice(&ahead[..there]);
        let ends = head.windows(END.len()).position(|four| four == END);
        if let Some(end) = ends {
            head.truncate(end + END.len());
        }
        // Consumes the bytes that were only peeked.
        connection
            .read_exact(&mut ahead[..head.len() - before])
            .await?;
    }
    Ok(head)
}

/// The length of the body, if this is the head of a page.
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
async fn skip(connection: &TcpStream, room: &mut [u8], most: u64) -> std::io::Result<u64> {
    let most = usize::try_from(most).map_or(room.len(), |most| most.min(room.len()));
    let room = &mut room[..most];
    loop {
        connection.readable().await?;
        let taken = connection.try_io(Interest::READABLE, || {
            let flags = MsgFlags::MSG_TRUNC | MsgFlags::MSG_DONTWAIT;
            Ok(recv(connection.as_raw_fd(), room, flags)?)
        });
        match taken {
            Ok(0) => return Err(std::io::ErrorKind::UnexpectedEof.into()),
            Ok(bytes) => return Ok(bytes as u64),
            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {}
            Err(error) => return Err(error),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn length_is_found_in_any_case_of_the_name() {
        let head =
            |status: &str| format!("HTTP/1.1 {status}\r\nA: b\r\nContent-Length: 12\r\n\r\n");
        assert_eq!(length(&head("200 OK")), Some(12));
        assert_eq!(length(&head("503 Service Unavailable")), None);
        assert_eq!(
            length("HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n"),
            None
        );
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
