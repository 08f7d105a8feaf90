//! Refusals of incomplete requests: immediate, and delivered.

use super::*;

#[test]
fn an_oversized_length_is_refused_before_the_body() {
    simulate(|node| async move {
        let options = crate::HttpOptions::default();
        let routes = Router::new().route("/small", post(|_: Bytes| async { "small" }));
        let acceptor = Acceptor {
            routes: crate::server::bounded(&node, routes, &options),
            ..acceptor(&node)
        };
        let (mut connection, _served) = connect(&acceptor, 1000);
        let started = node.clock().now();
        let length = options.body_max + 1;
        let head = format!("POST /small HTTP/1.1\r\nHost: h\r\nContent-Length: {length}\r\n\r\n");
        connection.write_all(head.as_bytes()).await.unwrap();
        let mut text = String::new();
        connection.read_to_string(&mut text).await.unwrap();
        assert!(text.starts_with("HTTP/1.1 413"), "{text}");
        assert_contains!(
            text,
            "Content-Length is `16777217`: expected at most 16777216 bytes"
        );
        assert_eq!(node.clock().now(), started);
    });
}

/// A client that sends all of a body before it reads, as most do.
#[test]
fn an_early_refusal_arrives_despite_the_unread_body() {
    let acceptor = |node: &Node| {
        let options = crate::HttpOptions::default();
        let routes = Router::new().route("/small", post(|_: Bytes| async { "small" }));
        Acceptor {
            routes: crate::server::bounded(node, routes, &options),
            ..acceptor(node)
        }
    };
    with_socket_listener(acceptor, async |_node, address, _stop, _opened| {
        let length = 24 << 20;
        let piece = vec![b'x'; 1 << 20];
        for framing in [
            format!("Content-Length: {length}"),
            "Transfer-Encoding: chunked".to_owned(),
        ] {
            let mut connection = TcpStream::connect(address).await.unwrap();
            let head = format!("POST /small HTTP/1.1\r\nHost: h\r\n{framing}\r\n\r\n");
            connection.write_all(head.as_bytes()).await.unwrap();
            for _ in 0..length / piece.len() {
                if framing.starts_with("Transfer") {
                    let line = format!("{:x}\r\n", piece.len());
                    connection.write_all(line.as_bytes()).await.unwrap();
                }
                connection.write_all(&piece).await.expect("it is taken");
                if framing.starts_with("Transfer") {
                    connection.write_all(b"\r\n").await.unwrap();
                }
            }
            let mut text = String::new();
            connection
                .read_to_string(&mut text)
                .await
                .expect("no reset");
            assert!(text.starts_with("HTTP/1.1 413"), "{text}");
        }
    });
}

#[test]
fn an_endless_sender_is_cut_off_after_a_refusal() {
    simulate(|node| async move {
        let options = crate::HttpOptions::default();
        let routes = Router::new().route("/small", post(|| async { "small" }));
        let acceptor = Acceptor {
            routes: crate::server::bounded(&node, routes, &options),
            ..acceptor(&node)
        };
        let head = b"POST /small HTTP/1.1\r\nHost: h\r\nContent-Length: 1000000000\r\n\r\n";
        // One sends without end, the other stops.
        for (pace, seconds) in [(Some(1), 30), (None, 5)] {
            let (mut connection, served) = connect(&acceptor, 1 << 20);
            let started = node.clock().now();
            connection.write_all(head).await.unwrap();
            while let Some(pace) = pace
                && connection.write_all(b"xxxx").await.is_ok()
            {
                node.clock().sleep(Duration::from_secs(pace)).await;
            }
            served.await.unwrap();
            let took = (node.clock().now() - started).as_secs();
            assert!((seconds..=seconds + 1).contains(&took), "{took}");
        }
    });
}
