//! Connections that take their time: in memory and virtual time where that is what counts, over real sockets where the kernel has a part in it.

use std::pin::Pin;
use std::task::{Context, Poll};

use axum::routing::{get, post};
use bytes::Bytes;
use runtime::rehearsal::rehearse;
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream, ReadBuf, duplex};
use tokio::sync::oneshot;
use tokio::task::{JoinHandle, spawn_local};

use super::source::Source;
use super::*;

mod flood;
mod refusals;

const LARGE: usize = 4 << 20;
const ASK: &[u8] = b"GET /small HTTP/1.1\r\nHost: h\r\n\r\n";

fn door(node: &Node) -> Door {
    let routes = Router::new()
        .route("/small", get(|| async { "small" }))
        .route("/large", get(|| async { "x".repeat(LARGE) }));
    Door {
        node: node.clone(),
        routes,
        connections_max: 2,
        patience: Patience::default(),
        tls: None,
        plain: false,
        figures: Figures::default(),
    }
}

/// A connection in memory to this door, and its end.
fn connect(door: &Door, room: usize) -> (DuplexStream, JoinHandle<()>) {
    connect_in(door, &room_of(door), room)
}

fn source(host: u8) -> Source {
    std::net::IpAddr::from([10, 0, 0, host]).into()
}

fn room_of(door: &Door) -> Room {
    let clock = door.node.clock();
    Room::new(door.connections_max, door.patience, clock, &door.figures)
}

/// One that has its place in there.
fn connect_in(door: &Door, inside: &Room, room: usize) -> (DuplexStream, JoinHandle<()>) {
    connect_from(1, door, inside, room).expect("there is room")
}

/// One that comes from the host of this number, if there is room.
fn connect_from(
    host: u8,
    door: &Door,
    inside: &Room,
    room: usize,
) -> Option<(DuplexStream, JoinHandle<()>)> {
    let (near, far) = duplex(room);
    let (door, open) = (door.clone(), inside.enter(source(host))?);
    let served = spawn_local(async move {
        let never = std::future::pending();
        door.serve(far, None, &open, never).await;
    });
    Some((near, served))
}

fn figure(figures: &Figures, name: &str) -> f64 {
    figures.counters()[&format!("http/connections_{name}")]
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
fn a_head_that_comes_byte_by_byte_ends_its_connection() {
    rehearse(|node| async move {
        let door = door(&node);
        let (mut connection, served) = connect(&door, 1000);
        let begun = node.clock().now();
        for byte in ASK {
            if connection.write_all(&[*byte]).await.is_err() {
                break;
            }
            node.clock().sleep(Duration::from_secs(7)).await;
        }
        served.await.unwrap();
        let mut rest = Vec::new();
        connection.read_to_end(&mut rest).await.unwrap();
        assert!(rest.is_empty() && node.clock().now() - begun < Duration::from_secs(40));
        assert_eq!(figure(&door.figures, "late_heads"), 1.0);
    });
}

/// A connection in memory that notes for how much there is room at its reader.
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
#[test]
fn a_connection_over_which_much_has_come_keeps_room_for_little() {
    rehearse(|node| async move {
        let mut door = door(&node);
        let small = |body: Bytes| async move { if body.len() == 1 << 20 { "small" } else { "" } };
        door.routes = Router::new().route("/small", post(small));
        let inside = room_of(&door);
        let open = inside.enter(source(1)).unwrap();
        let (mut near, connection) = duplex(1 << 20);
        let room = Arc::new(AtomicUsize::new(0));
        let noted = Noted {
            connection,
            room: room.clone(),
        };
        spawn_local(async move { door.serve(noted, None, &open, pending()).await });
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
    rehearse(|node| async move {
        let door = door(&node);
        for (kib, status) in [(12, "200"), (20, "431")] {
            let (mut connection, _served) = connect(&door, 1 << 20);
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

/// As those are that schedulers and executors on Mesos' own library keep for their calls.
#[test]
fn a_connection_may_be_silent_for_hours_before_its_first_request_and_between_two() {
    rehearse(|node| async move {
        let door = door(&node);
        let (mut connection, served) = connect(&door, 1000);
        for _ in 0..3 {
            node.clock().sleep(Duration::from_secs(5 * 3600)).await;
            assert!(!served.is_finished());
            connection.write_all(ASK).await.unwrap();
            read_small(&mut connection).await;
        }
        drop(connection);
        served.await.unwrap();
        assert_eq!(figure(&door.figures, "closed_idle"), 0.0);
        assert_eq!(figure(&door.figures, "late_heads"), 0.0);
    });
}

#[test]
fn whoever_is_idle_for_longest_makes_room_and_nobody_else() {
    rehearse(|node| async move {
        let door = door(&node);
        let inside = room_of(&door);
        let (mut first, first_served) = connect_in(&door, &inside, 1000);
        assert_eq!(door.connections_max, 2);
        let (mut second, second_served) = connect_in(&door, &inside, 1000);
        let wait = async |seconds| node.clock().sleep(Duration::from_secs(seconds)).await;
        wait(3).await;
        assert!(
            inside.enter(source(1)).is_none(),
            "what they say may be on its way"
        );
        wait(60).await;
        // The first has been there for longer, but the second is idle for longer.
        first.write_all(ASK).await.unwrap();
        read_small(&mut first).await;
        wait(60).await;
        let (mut third, _third_served) = connect_in(&door, &inside, 1000);
        assert_eq!(second.read(&mut [0]).await.unwrap(), 0);
        second_served.await.unwrap();
        third.write_all(b"GET").await.unwrap();
        wait(10).await;
        let (mut fourth, _fourth_served) = connect_in(&door, &inside, 1000);
        assert_eq!(first.read(&mut [0]).await.unwrap(), 0);
        first_served.await.unwrap();
        fourth.write_all(b"GET").await.unwrap();
        wait(10).await;
        assert!(inside.enter(source(1)).is_none(), "all are busy");
        let of = |name| figure(&door.figures, name);
        assert_eq!(
            (of("closed_idle"), of("evicted"), of("open")),
            (2.0, 0.0, 2.0)
        );
        assert_eq!(of("accepted"), 4.0);
    });
}

/// As schedulers and executors are that say nothing for long.
#[test]
fn whoever_is_silent_keeps_its_place_while_another_address_floods() {
    rehearse(|node| async move {
        let door = Door {
            connections_max: 10,
            ..door(&node)
        };
        let inside = room_of(&door);
        let from = |host| connect_from(host, &door, &inside, 1000);
        let (mut silent, silent_served) = from(1).unwrap();
        node.clock().sleep(Duration::from_secs(3600)).await;
        let mut flood = Vec::new();
        for second in 0..100 {
            while let Some(one) = from(2) {
                flood.push(one);
                assert!(flood.len() < 10 * (1 + second), "each makes room once");
            }
            // Others have room at any time, and leave.
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
fn a_reader_that_takes_too_little_of_a_page_is_cut_off_and_one_that_is_slow_is_not() {
    rehearse(|node| async move {
        let door = door(&node);
        let read = async |pace: usize, seconds: u64| {
            let (mut connection, served) = connect(&door, 128 << 10);
            let ask = b"GET /large HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n";
            connection.write_all(ask).await.unwrap();
            let (begun, mut all) = (node.clock().now(), 0);
            let mut piece = vec![0; pace];
            while let Ok(read) = connection.read(&mut piece).await
                && read > 0
            {
                all += read;
                // What was left behind in between is read to its end.
                if !served.is_finished() {
                    node.clock().sleep(Duration::from_secs(seconds)).await;
                }
            }
            served.await.unwrap();
            (all, (node.clock().now() - begun).as_secs())
        };
        let (all, _) = read(64 << 10, 1).await;
        assert!(all > LARGE, "{all}");
        assert_eq!(figure(&door.figures, "stalled"), 0.0);
        // The whole page would be held for an hour.
        let (all, took) = read(64 << 10, 60).await;
        assert!(all < 400 << 10 && took <= 180, "{all} {took}");
        assert_eq!(figure(&door.figures, "stalled"), 1.0);
        let (all, took) = read(1, 60).await;
        assert!(all < 200 << 10 && took <= 180, "{all} {took}");
        assert_eq!(figure(&door.figures, "stalled"), 2.0);
    });
}

#[test]
fn whoever_asks_for_many_pages_at_once_has_one_made_after_the_other_is_taken() {
    rehearse(|node| async move {
        let made = Arc::new(AtomicUsize::new(0));
        let counted = made.clone();
        let page = move || {
            counted.fetch_add(1, Ordering::Relaxed);
            async { "x".repeat(LARGE) }
        };
        let door = Door {
            routes: Router::new().route("/large", get(page)),
            ..door(&node)
        };
        let (mut connection, _served) = connect(&door, 128 << 10);
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

/// SPEC 3.9: clients put slashes together that Mesos passes over.
#[test]
fn a_path_is_found_however_it_is_written() {
    rehearse(|node| async move {
        let door = door(&node);
        let (mut connection, _served) = connect(&door, 1000);
        for path in ["/small", "//small", "/small/", "///small//?a=b"] {
            let asked = format!("GET {path} HTTP/1.1\r\nHost: h\r\n\r\n");
            connection.write_all(asked.as_bytes()).await.unwrap();
            read_small(&mut connection).await;
        }
    });
}

/// SPEC 6.3: whoever has said both at once has no other way to tell the answers apart.
#[test]
fn answers_come_in_the_order_of_the_requests_however_long_the_first_takes() {
    rehearse(|node| async move {
        let ready = Arc::new(tokio::sync::Notify::new());
        let awaited = ready.clone();
        let slow = move || {
            let awaited = awaited.clone();
            async move {
                awaited.notified().await;
                "slow"
            }
        };
        let routes = door(&node).routes.route("/slow", get(slow));
        let door = Door {
            routes,
            ..door(&node)
        };
        let (mut connection, _served) = connect(&door, 64 << 10);
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

/// In real time, with this door open at an address. A story that takes longer than anything should fails.
fn at_a_real_door<F: Future<Output = ()>>(
    door: impl FnOnce(&Node) -> Door,
    story: impl FnOnce(Node, std::net::SocketAddr, oneshot::Sender<()>, JoinHandle<io::Result<()>>) -> F,
) {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    tokio::task::LocalSet::new().block_on(&runtime, async {
        let node = Node::builder("node").build();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (stop, stopped) = oneshot::channel();
        let until = async move { drop(stopped.await) };
        let opened = spawn_local(door(&node).open(listener, until));
        let story = story(node.clone(), address, stop, opened);
        let told = node.clock().timeout(Duration::from_secs(60), story).await;
        assert!(told.is_ok(), "not within a minute");
    });
}

#[test]
fn whoever_comes_beyond_the_bound_is_told_so_and_has_room_when_another_leaves() {
    let figures = Figures::default();
    let counted = figures.clone();
    let door = |node: &Node| Door {
        figures,
        ..door(node)
    };
    at_a_real_door(door, async |node, address, _stop, _opened| {
        let mut inside = Vec::new();
        for _ in 0..2 {
            let mut connection = TcpStream::connect(address).await.unwrap();
            connection.write_all(ASK).await.unwrap();
            read_small(&mut connection).await;
            inside.push(connection);
        }
        let mut third = TcpStream::connect(address).await.unwrap();
        third.write_all(ASK).await.unwrap();
        let mut told = String::new();
        third.read_to_string(&mut told).await.unwrap();
        assert!(
            told.starts_with("HTTP/1.1 503") && told.contains("--http_connections_max"),
            "{told}"
        );
        assert_eq!(figure(&counted, "refused"), 1.0);
        drop((inside.pop(), third));
        while figure(&counted, "open") > 1.0 {
            node.clock().sleep(Duration::from_millis(1)).await;
        }
        let mut fourth = TcpStream::connect(address).await.unwrap();
        fourth.write_all(ASK).await.unwrap();
        read_small(&mut fourth).await;
    });
}

#[test]
fn a_reader_that_takes_nothing_over_a_real_socket_is_cut_off() {
    let figures = Figures::default();
    let counted = figures.clone();
    let door = |node: &Node| Door {
        // More than the buffers of both sides take.
        routes: Router::new().route("/huge", get(|| async { "x".repeat(64 << 20) })),
        patience: Patience {
            stalled: Duration::from_millis(300),
            ..Patience::default()
        },
        figures,
        ..door(node)
    };
    at_a_real_door(door, async |node, address, _stop, _opened| {
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
fn a_door_that_closes_finishes_what_is_under_way_and_takes_nobody_in() {
    let (answer, may_answer) = oneshot::channel::<()>();
    let may_answer = Arc::new(std::sync::Mutex::new(Some(may_answer)));
    let (asked, mut was_asked) = told::channel(false);
    let slow = move || {
        let may_answer = may_answer.lock().unwrap().take().unwrap();
        asked.send_replace(true);
        async move {
            may_answer.await.unwrap();
            "small"
        }
    };
    let door = |node: &Node| Door {
        routes: Router::new().route("/slow", get(slow)),
        ..door(node)
    };
    at_a_real_door(door, async |_node, address, stop, opened| {
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

/// As slow or hostile clients leave them, each on a connection of its own.
#[test]
fn six_hundred_bodies_without_end_keep_nobody_out() {
    rehearse(|node| async move {
        let options = crate::HttpOptions::default();
        let small = |_: Bytes| async { "small" };
        let routes = Router::new().route("/small", get(|| async { "small" }).post(small));
        let door = Door {
            routes: crate::server::bounded(&node, routes, &options),
            connections_max: options.connections_max,
            ..door(&node)
        };
        let inside = room_of(&door);
        let head = b"POST /small HTTP/1.1\r\nHost: h\r\nContent-Length: 2\r\n\r\nx";
        let begun = node.clock().now();
        let mut all = Vec::new();
        for _ in 0..600 {
            let (mut connection, served) = connect_in(&door, &inside, 1000);
            connection.write_all(head).await.unwrap();
            all.push((connection, served));
        }
        node.clock().sleep(Duration::from_secs(1)).await;
        let (mut other, _served) = connect_in(&door, &inside, 1000);
        for asked in [ASK, &[head, &b"y"[..]].concat()] {
            other.write_all(asked).await.unwrap();
            read_small(&mut other).await;
        }
        assert_eq!((node.clock().now() - begun).as_secs(), 1);
        for (mut connection, served) in all {
            let mut text = String::new();
            connection.read_to_string(&mut text).await.unwrap();
            drop(connection);
            let end = "the body is not whole after 30 s\n";
            assert!(
                text.starts_with("HTTP/1.1 408") && text.ends_with(end),
                "{text}"
            );
            served.await.unwrap();
        }
        assert_eq!((node.clock().now() - begun).as_secs(), 30);
    });
}
