//! Timeouts and bounds of connections: in memory and virtual time where possible, over real sockets
//! where the kernel matters.

use std::pin::Pin;
use std::task::{Context, Poll};

use axum::routing::{get, post};
use bytes::Bytes;
use runtime::testing::simulate;
use testkit::assert_contains;
use testkit::recorder::run_in_real_time;
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream, ReadBuf, duplex};
use tokio::sync::oneshot;
use tokio::task::{JoinHandle, spawn_local};

use super::source::Source;
use super::*;

mod flood;
mod refusals;

const LARGE: usize = 4 << 20;
const ASK: &[u8] = b"GET /small HTTP/1.1\r\nHost: h\r\n\r\n";

fn acceptor(node: &Node) -> Acceptor {
    let routes = Router::new()
        .route("/small", get(|| async { "small" }))
        .route("/large", get(|| async { "x".repeat(LARGE) }));
    Acceptor {
        node: node.clone(),
        routes,
        connections_max: 2,
        timeouts: ConnectionTimeouts::default(),
        tls: None,
        plain: false,
        metrics: ConnectionMetrics::default(),
    }
}

/// An in-memory connection, and the end of its service.
fn connect(acceptor: &Acceptor, room: usize) -> (DuplexStream, JoinHandle<()>) {
    connect_in(acceptor, &table_of(acceptor), room)
}

fn source(host: u8) -> Source {
    std::net::IpAddr::from([10, 0, 0, host]).into()
}

fn table_of(acceptor: &Acceptor) -> ConnectionTable {
    let clock = acceptor.node.clock();
    ConnectionTable::new(
        acceptor.connections_max,
        acceptor.timeouts,
        clock,
        &acceptor.metrics,
    )
}

/// A connection with a place in this table.
fn connect_in(
    acceptor: &Acceptor,
    table: &ConnectionTable,
    room: usize,
) -> (DuplexStream, JoinHandle<()>) {
    connect_from(1, acceptor, table, room).expect("there is room")
}

/// A connection from the host of this number, if there is room.
fn connect_from(
    host: u8,
    acceptor: &Acceptor,
    table: &ConnectionTable,
    room: usize,
) -> Option<(DuplexStream, JoinHandle<()>)> {
    let (near, far) = duplex(room);
    let (acceptor, open) = (acceptor.clone(), table.enter(source(host))?);
    let served = spawn_local(async move {
        let never = std::future::pending();
        acceptor.serve(far, None, &open, never).await;
    });
    Some((near, served))
}

fn figure(metrics: &ConnectionMetrics, name: &str) -> f64 {
    metrics.counters()[&format!("http/connections_{name}")]
}

/// Reads an answer of `small`.
async fn read_small(connection: &mut (impl AsyncRead + Unpin)) {
    let mut text = String::new();
    while !text.ends_with("small") {
        let mut piece = [0; 200];
        let read = connection.read(&mut piece).await.unwrap();
        assert!(read > 0, "the answer ends early: {text}");
        text.push_str(std::str::from_utf8(&piece[..read]).unwrap());
    }
    assert!(text.starts_with("HTTP/1.1 200"), "{text}");
}

#[test]
fn a_slow_head_closes_its_connection() {
    simulate(|node| async move {
        let acceptor = acceptor(&node);
        let (mut connection, served) = connect(&acceptor, 1000);
        let started = node.clock().now();
        for byte in ASK {
            if connection.write_all(&[*byte]).await.is_err() {
                break;
            }
            node.clock().sleep(Duration::from_secs(7)).await;
        }
        served.await.unwrap();
        let mut rest = Vec::new();
        connection.read_to_end(&mut rest).await.unwrap();
        assert!(rest.is_empty() && node.clock().now() - started < Duration::from_secs(40));
        assert_eq!(figure(&acceptor.metrics, "late_heads"), 1.0);
    });
}

/// An in-memory connection that records the buffer size of its reader.
struct Noted {
    connection: DuplexStream,
    room: Arc<AtomicUsize>,
}

impl AsyncRead for Noted {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        self.room.fetch_max(buffer.remaining(), Ordering::Relaxed);
        Pin::new(&mut self.connection).poll_read(cx, buffer)
    }
}

impl AsyncWrite for Noted {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.connection).poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.connection).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.connection).poll_shutdown(cx)
    }
}

/// W4: schedulers keep connections for their calls.
// Covers W4.
#[test]
fn a_large_body_leaves_a_small_read_buffer() {
    simulate(|node| async move {
        let mut acceptor = acceptor(&node);
        let small = |body: Bytes| async move { if body.len() == 1 << 20 { "small" } else { "" } };
        acceptor.routes = Router::new().route("/small", post(small));
        let table = table_of(&acceptor);
        let open = table.enter(source(1)).unwrap();
        let (mut near, connection) = duplex(1 << 20);
        let room = Arc::new(AtomicUsize::new(0));
        let noted = Noted {
            connection,
            room: room.clone(),
        };
        spawn_local(async move { acceptor.serve(noted, None, &open, pending()).await });
        let length = 1 << 20;
        let head = format!("POST /small HTTP/1.1\r\nHost: h\r\nContent-Length: {length}\r\n\r\n");
        for _ in 0..3 {
            near.write_all(head.as_bytes()).await.unwrap();
            near.write_all(&vec![b'x'; length]).await.unwrap();
            read_small(&mut near).await;
        }
        let room = room.load(Ordering::Relaxed);
        assert!((8 << 10..=32 << 10).contains(&room), "{room}");
    });
}

#[test]
fn a_head_of_more_than_16_kib_is_refused() {
    simulate(|node| async move {
        let acceptor = acceptor(&node);
        for (kib, status) in [(12, "200"), (20, "431")] {
            let (mut connection, _served) = connect(&acceptor, 1 << 20);
            let long = "x".repeat(kib << 10);
            let ask =
                format!("GET /small HTTP/1.1\r\nHost: h\r\nConnection: close\r\nX: {long}\r\n\r\n");
            connection.write_all(ask.as_bytes()).await.unwrap();
            let mut text = String::new();
            connection.read_to_string(&mut text).await.unwrap();
            assert!(text.starts_with(&format!("HTTP/1.1 {status}")), "{text}");
        }
    });
}

/// As the connections that schedulers and executors on Mesos' own library keep for their calls.
#[test]
fn a_connection_may_be_silent_for_hours() {
    simulate(|node| async move {
        let acceptor = acceptor(&node);
        let (mut connection, served) = connect(&acceptor, 1000);
        for _ in 0..3 {
            node.clock().sleep(Duration::from_secs(5 * 3600)).await;
            assert!(!served.is_finished());
            connection.write_all(ASK).await.unwrap();
            read_small(&mut connection).await;
        }
        drop(connection);
        served.await.unwrap();
        assert_eq!(figure(&acceptor.metrics, "closed_idle"), 0.0);
        assert_eq!(figure(&acceptor.metrics, "late_heads"), 0.0);
    });
}

#[test]
fn only_the_longest_idle_connection_is_evicted() {
    simulate(|node| async move {
        let acceptor = acceptor(&node);
        let table = table_of(&acceptor);
        let (mut first, first_served) = connect_in(&acceptor, &table, 1000);
        assert_eq!(acceptor.connections_max, 2);
        let (mut second, second_served) = connect_in(&acceptor, &table, 1000);
        let wait = async |seconds| node.clock().sleep(Duration::from_secs(seconds)).await;
        wait(3).await;
        assert!(
            table.enter(source(1)).is_none(),
            "what they say may be on its way"
        );
        wait(60).await;
        // The first is older, but the second has been idle for longer.
        first.write_all(ASK).await.unwrap();
        read_small(&mut first).await;
        wait(60).await;
        let (mut third, _third_served) = connect_in(&acceptor, &table, 1000);
        assert_eq!(second.read(&mut [0]).await.unwrap(), 0);
        second_served.await.unwrap();
        third.write_all(b"GET").await.unwrap();
        wait(10).await;
        let (mut fourth, _fourth_served) = connect_in(&acceptor, &table, 1000);
        assert_eq!(first.read(&mut [0]).await.unwrap(), 0);
        first_served.await.unwrap();
        fourth.write_all(b"GET").await.unwrap();
        wait(10).await;
        assert!(table.enter(source(1)).is_none(), "all are busy");
        let of = |name| figure(&acceptor.metrics, name);
        assert_eq!(
            (of("closed_idle"), of("evicted"), of("open")),
            (2.0, 0.0, 2.0)
        );
        assert_eq!(of("accepted"), 4.0);
    });
}

/// As schedulers and executors do.
#[test]
fn silent_connections_survive_a_flood() {
    simulate(|node| async move {
        let acceptor = Acceptor {
            connections_max: 10,
            ..acceptor(&node)
        };
        let table = table_of(&acceptor);
        let from = |host| connect_from(host, &acceptor, &table, 1000);
        let (mut silent, silent_served) = from(1).unwrap();
        node.clock().sleep(Duration::from_secs(3600)).await;
        let mut flood = Vec::new();
        for second in 0..100 {
            while let Some(one) = from(2) {
                flood.push(one);
                assert!(flood.len() < 10 * (1 + second), "each makes room once");
            }
            // Others come and go freely.
            let (mut other, other_served) = from(3).unwrap();
            other.write_all(ASK).await.unwrap();
            read_small(&mut other).await;
            drop(other);
            other_served.await.unwrap();
            node.clock().sleep(Duration::from_secs(1)).await;
        }
        assert!(flood.len() > 100, "{}", flood.len());
        assert!(!silent_served.is_finished());
        silent.write_all(ASK).await.unwrap();
        read_small(&mut silent).await;
    });
}

#[test]
fn a_stalled_reader_is_cut_off_and_a_slow_one_not() {
    simulate(|node| async move {
        let acceptor = acceptor(&node);
        let read = async |pace: usize, seconds: u64| {
            let (mut connection, served) = connect(&acceptor, 128 << 10);
            let ask = b"GET /large HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n";
            connection.write_all(ask).await.unwrap();
            let (started, mut all) = (node.clock().now(), 0);
            let mut piece = vec![0; pace];
            while let Ok(read) = connection.read(&mut piece).await
                && read > 0
            {
                all += read;
                // The rest of the answer is read to its end.
                if !served.is_finished() {
                    node.clock().sleep(Duration::from_secs(seconds)).await;
                }
            }
            served.await.unwrap();
            (all, (node.clock().now() - started).as_secs())
        };
        let (all, _) = read(64 << 10, 1).await;
        assert!(all > LARGE, "{all}");
        assert_eq!(figure(&acceptor.metrics, "stalled"), 0.0);
        // The whole page would be held for an hour.
        let (all, took) = read(64 << 10, 60).await;
        assert!(all < 400 << 10 && took <= 180, "{all} {took}");
        assert_eq!(figure(&acceptor.metrics, "stalled"), 1.0);
        let (all, took) = read(1, 60).await;
        assert!(all < 200 << 10 && took <= 180, "{all} {took}");
        assert_eq!(figure(&acceptor.metrics, "stalled"), 2.0);
    });
}

#[test]
fn pipelined_pages_are_made_one_at_a_time() {
    simulate(|node| async move {
        let made = Arc::new(AtomicUsize::new(0));
        let counted = made.clone();
        let page = move || {
            counted.fetch_add(1, Ordering::Relaxed);
            async { "x".repeat(LARGE) }
        };
        let acceptor = Acceptor {
            routes: Router::new().route("/large", get(page)),
            ..acceptor(&node)
        };
        let (mut connection, _served) = connect(&acceptor, 128 << 10);
        let ask = "GET /large HTTP/1.1\r\nHost: h\r\n\r\n".repeat(50);
        connection.write_all(ask.as_bytes()).await.unwrap();
        node.clock().sleep(Duration::from_secs(1)).await;
        assert_eq!(made.load(Ordering::Relaxed), 1);
        let (mut all, mut piece) = (0, vec![0; 64 << 10]);
        while all < 10 * LARGE {
            all += connection.read(&mut piece).await.unwrap();
        }
        assert!((10..=12).contains(&made.load(Ordering::Relaxed)));
    });
}

/// SPEC 3.9: clients send repeated slashes, which Mesos ignores.
// Covers 3.9 Paths.
#[test]
fn repeated_slashes_in_paths_are_ignored() {
    simulate(|node| async move {
        let acceptor = acceptor(&node);
        let (mut connection, _served) = connect(&acceptor, 1000);
        for path in ["/small", "//small", "/small/", "///small//?a=b"] {
            let asked = format!("GET {path} HTTP/1.1\r\nHost: h\r\n\r\n");
            connection.write_all(asked.as_bytes()).await.unwrap();
            read_small(&mut connection).await;
        }
    });
}

/// SPEC 6.3: a pipelining client has no other way to match the answers.
// Covers 6.3 HTTP.
#[test]
fn pipelined_answers_keep_the_order_of_requests() {
    simulate(|node| async move {
        let ready = Arc::new(tokio::sync::Notify::new());
        let awaited = ready.clone();
        let slow = move || {
            let awaited = awaited.clone();
            async move {
                awaited.notified().await;
                "slow"
            }
        };
        let routes = acceptor(&node).routes.route("/slow", get(slow));
        let acceptor = Acceptor {
            routes,
            ..acceptor(&node)
        };
        let (mut connection, _served) = connect(&acceptor, 64 << 10);
        let both = [b"GET /slow HTTP/1.1\r\nHost: h\r\n\r\n", ASK].concat();
        connection.write_all(&both).await.unwrap();
        let mut piece = [0; 500];
        let early = node
            .clock()
            .timeout(Duration::from_secs(5), connection.read(&mut piece))
            .await;
        assert!(
            early.is_err(),
            "the second is not answered before the first"
        );
        ready.notify_one();
        let mut all = String::new();
        while !all.ends_with("small") {
            let read = connection.read(&mut piece).await.unwrap();
            assert!(read > 0, "the answers end early: {all}");
            all.push_str(std::str::from_utf8(&piece[..read]).unwrap());
        }
        let first = all.find("\r\n\r\nslow").unwrap();
        assert!(all[first..].contains("HTTP/1.1 200"), "{all}");
    });
}

/// Runs `story` in real time against a listener on a socket.
fn with_socket_listener<F: Future<Output = ()>>(
    acceptor: impl FnOnce(&Node) -> Acceptor,
    story: impl FnOnce(Node, std::net::SocketAddr, oneshot::Sender<()>, JoinHandle<io::Result<()>>) -> F,
) {
    run_in_real_time(async {
        let node = Node::builder("node").build();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (stop, stopped) = oneshot::channel();
        let until = async move { drop(stopped.await) };
        let opened = spawn_local(acceptor(&node).run(listener, until));
        story(node.clone(), address, stop, opened).await;
    });
}

#[test]
fn connections_beyond_the_limit_get_503() {
    let metrics = ConnectionMetrics::default();
    let counted = metrics.clone();
    let acceptor = |node: &Node| Acceptor {
        metrics,
        ..acceptor(node)
    };
    with_socket_listener(acceptor, async |node, address, _stop, _opened| {
        let mut open = Vec::new();
        for _ in 0..2 {
            let mut connection = TcpStream::connect(address).await.unwrap();
            connection.write_all(ASK).await.unwrap();
            read_small(&mut connection).await;
            open.push(connection);
        }
        let mut third = TcpStream::connect(address).await.unwrap();
        third.write_all(ASK).await.unwrap();
        let mut received = String::new();
        third.read_to_string(&mut received).await.unwrap();
        assert!(
            received.starts_with("HTTP/1.1 503") && received.contains("--http_connections_max"),
            "{received}"
        );
        assert_eq!(figure(&counted, "refused"), 1.0);
        drop((open.pop(), third));
        while figure(&counted, "open") > 1.0 {
            node.clock().sleep(Duration::from_millis(1)).await;
        }
        let mut fourth = TcpStream::connect(address).await.unwrap();
        fourth.write_all(ASK).await.unwrap();
        read_small(&mut fourth).await;
    });
}

#[test]
fn a_stalled_reader_on_a_socket_is_cut_off() {
    let metrics = ConnectionMetrics::default();
    let counted = metrics.clone();
    let acceptor = |node: &Node| Acceptor {
        // More than the buffers of both sides hold.
        routes: Router::new().route("/huge", get(|| async { "x".repeat(64 << 20) })),
        timeouts: ConnectionTimeouts {
            stalled: Duration::from_millis(300),
            ..ConnectionTimeouts::default()
        },
        metrics,
        ..acceptor(node)
    };
    with_socket_listener(acceptor, async |node, address, _stop, _opened| {
        let mut connection = TcpStream::connect(address).await.unwrap();
        connection
            .write_all(b"GET /huge HTTP/1.1\r\nHost: h\r\n\r\n")
            .await
            .unwrap();
        while figure(&counted, "stalled") < 1.0 || figure(&counted, "open") > 0.0 {
            node.clock().sleep(Duration::from_millis(1)).await;
        }
    });
}

#[test]
fn shutdown_finishes_requests_and_accepts_no_connections() {
    let (answer, may_answer) = oneshot::channel::<()>();
    let may_answer = Arc::new(std::sync::Mutex::new(Some(may_answer)));
    let (asked, mut was_asked) = tokio_watch::channel(false);
    let slow = move || {
        let may_answer = may_answer.lock().unwrap().take().unwrap();
        asked.send_replace(true);
        async move {
            may_answer.await.unwrap();
            "small"
        }
    };
    let acceptor = |node: &Node| Acceptor {
        routes: Router::new().route("/slow", get(slow)),
        ..acceptor(node)
    };
    with_socket_listener(acceptor, async |_node, address, stop, opened| {
        let mut idle = TcpStream::connect(address).await.unwrap();
        let mut busy = TcpStream::connect(address).await.unwrap();
        busy.write_all(b"GET /slow HTTP/1.1\r\nHost: h\r\n\r\n")
            .await
            .unwrap();
        was_asked.wait_for(|asked| *asked).await.unwrap();
        stop.send(()).unwrap();
        assert_eq!(idle.read(&mut [0]).await.unwrap(), 0);
        assert!(!opened.is_finished());
        answer.send(()).unwrap();
        read_small(&mut busy).await;
        opened.await.unwrap().unwrap();
        assert!(TcpStream::connect(address).await.is_err());
    });
}

/// As slow or hostile clients leave them, each on its own connection.
#[test]
fn six_hundred_endless_bodies_block_nobody() {
    simulate(|node| async move {
        let options = crate::HttpOptions::default();
        let small = |_: Bytes| async { "small" };
        let routes = Router::new().route("/small", get(|| async { "small" }).post(small));
        let acceptor = Acceptor {
            routes: crate::server::bounded(&node, routes, &options),
            connections_max: options.connections_max,
            ..acceptor(&node)
        };
        let table = table_of(&acceptor);
        let head = b"POST /small HTTP/1.1\r\nHost: h\r\nContent-Length: 2\r\n\r\nx";
        let started = node.clock().now();
        let mut all = Vec::new();
        for _ in 0..600 {
            let (mut connection, served) = connect_in(&acceptor, &table, 1000);
            connection.write_all(head).await.unwrap();
            all.push((connection, served));
        }
        node.clock().sleep(Duration::from_secs(1)).await;
        let (mut other, _served) = connect_in(&acceptor, &table, 1000);
        for asked in [ASK, &[head, &b"y"[..]].concat()] {
            other.write_all(asked).await.unwrap();
            read_small(&mut other).await;
        }
        assert_eq!((node.clock().now() - started).as_secs(), 1);
        for (mut connection, served) in all {
            let mut text = String::new();
            connection.read_to_string(&mut text).await.unwrap();
            drop(connection);
            let end = "the body is incomplete after 30 s";
            assert!(
                text.starts_with("HTTP/1.1 408") && text.ends_with(end),
                "{text}"
            );
            served.await.unwrap();
        }
        assert_eq!((node.clock().now() - started).as_secs(), 30);
    });
}
