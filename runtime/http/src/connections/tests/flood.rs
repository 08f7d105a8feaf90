//! Floods of connections from one address: which are evicted, and which requests are still
//! answered.

use super::*;

#[test]
fn a_busy_flood_is_evicted_for_other_addresses() {
    simulate(|node| async move {
        let never = || async {
            std::future::pending::<()>().await;
            "late"
        };
        let acceptor = Acceptor {
            routes: acceptor(&node).routes.route("/never", get(never)),
            connections_max: 10,
            ..acceptor(&node)
        };
        let table = table_of(&acceptor);
        let from = |host| connect_from(host, &acceptor, &table, 1000);
        // Partial requests, and subscriptions.
        for request in ["GET /small HTTP", "GET /never HTTP/1.1\r\nHost: h\r\n\r\n"] {
            let mut flood = Vec::new();
            while let Some((mut connection, served)) = from(1) {
                connection.write_all(request.as_bytes()).await.unwrap();
                flood.push((connection, served));
                node.clock().sleep(Duration::from_millis(1)).await;
            }
            assert_eq!(flood.len(), 10);
            let mut others = Vec::new();
            for _ in 0..5 {
                let (mut other, served) = from(2).expect("the flood makes room");
                other.write_all(ASK).await.unwrap();
                read_small(&mut other).await;
                others.push((other, served));
            }
            let ended = flood.iter().filter(|(_, served)| served.is_finished());
            assert_eq!(ended.count(), 5, "no more than its share is left to it");
            assert!(from(1).is_none());
            drop((flood, others));
            node.clock().sleep(Duration::from_secs(1)).await;
        }
        assert_eq!(figure(&acceptor.metrics, "evicted"), 10.0);
    });
}

#[test]
fn health_is_answered_beyond_the_connection_limit() {
    simulate(|node| async move {
        let acceptor = Acceptor {
            routes: acceptor(&node)
                .routes
                .route("/health", get(|| async { "small" })),
            ..acceptor(&node)
        };
        let table = table_of(&acceptor);
        let begin = async |open: OpenConnection| {
            let (near, far) = duplex(1000);
            let acceptor = acceptor.clone();
            let served =
                spawn_local(async move { acceptor.serve(far, None, &open, pending()).await });
            (near, served)
        };
        let mut flood = Vec::new();
        while let Some(open) = table.enter(source(1)) {
            let (mut near, served) = begin(open).await;
            near.write_all(b"GET").await.unwrap();
            flood.push((near, served));
            node.clock().sleep(Duration::from_millis(1)).await;
        }
        // The flood fills the places for health checks as well.
        for _ in 0..100 {
            let (mut near, served) = begin(table.enter_for_check(source(1))).await;
            near.write_all(b"GET").await.unwrap();
            flood.push((near, served));
        }
        for (host, path, status) in [
            (1, "/health", "200"),
            (2, "/master/health", "404"),
            (1, "/small", "503"),
        ] {
            let (mut near, served) = begin(table.enter_for_check(source(host))).await;
            let ask = format!("GET {path} HTTP/1.1\r\nHost: h\r\n\r\n");
            near.write_all(ask.as_bytes()).await.unwrap();
            let mut text = String::new();
            near.read_to_string(&mut text).await.unwrap();
            assert!(text.starts_with(&format!("HTTP/1.1 {status}")), "{text}");
            drop(near);
            served.await.unwrap();
        }
        let open = flood.iter().filter(|(_, served)| !served.is_finished());
        assert_eq!(open.count(), 2 + 64 - 1, "the oldest checks are ended");
    });
}
