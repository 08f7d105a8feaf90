//! Runs routes on a listener that is already bound, until the node shuts down.
//!
//! Bounded: so many requests at once, so large a body in so long a time, and a refusal in words beyond that; but whether somebody is there, and
//! what executors say, is heard however many others ask. How many connections there are,
//! and how long one may take, is for the `door`.

use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use axum::Router;
use axum::extract::{DefaultBodyLimit, Request, State};
use axum::http::StatusCode;
use axum::middleware::{Next, from_fn_with_state};
use axum::response::{IntoResponse, Response};
use runtime::Node;
use tokio::net::TcpListener;
use transport::tls::Tls;

use crate::body::{BODY_PATIENCE, ending};
use crate::door::{Door, Figures, Patience};
use crate::outgoing::outgoing;
use crate::realm::passes_freely;

/// The bounds of one listener.
#[derive(Clone, Debug)]
pub struct HttpOptions {
    /// Connections open at the same time; one more is told 503 and closed. Default 4096.
    pub connections_max: usize,
    /// How long each thing may take on a connection.
    pub patience: Patience,
    /// TLS, if pages are served over that.
    pub tls: Option<Tls>,
    /// Whether plain HTTP is answered beside TLS, on the same port.
    pub plain: bool,
    /// What has become of connections is counted here.
    pub figures: Figures,
    /// Requests served at the same time; one more gets 503. Default 512.
    pub requests_max: usize,
    /// Bytes of a request's body; more gets 413. Default 16 MiB.
    pub body_max: usize,
}

impl Default for HttpOptions {
    fn default() -> Self {
        Self {
            connections_max: 4096,
            patience: Patience::default(),
            tls: None,
            plain: false,
            figures: Figures::default(),
            requests_max: 512,
            body_max: 16 << 20,
        }
    }
}

/// Serves `routes` of this node on `listener` until `until` completes; requests under way are finished first.
pub async fn serve(
    node: &Node,
    listener: TcpListener,
    routes: Router,
    options: HttpOptions,
    until: impl Future<Output = ()> + Send + 'static,
) -> std::io::Result<()> {
    let gate = Gate(Arc::new(Places {
        under_way: AtomicUsize::new(0),
        requests_max: options.requests_max,
    }));
    let routes = routes
        .layer(DefaultBodyLimit::max(options.body_max))
        .layer(from_fn_with_state(node.clone(), in_time))
        .layer(from_fn_with_state(node.clone(), outgoing))
        .layer(from_fn_with_state(gate, admit))
        // Handlers are made now, and not anew for each request.
        .with_state(());
    let door = Door {
        node: node.clone(),
        routes,
        connections_max: options.connections_max,
        patience: options.patience,
        tls: options.tls,
        plain: options.plain,
        figures: options.figures,
    };
    door.open(listener, until).await
}

/// Gives a request a body that comes to its end.
async fn in_time(State(node): State<Node>, request: Request, next: Next) -> Response {
    let late = node.clock().sleep(BODY_PATIENCE);
    next.run(request.map(|body| ending(body, late))).await
}

/// Where so many requests have a place at once. It is among the extensions of each that has one, for who lets it wait in a line.
#[derive(Clone)]
pub(crate) struct Gate(Arc<Places>);

struct Places {
    under_way: AtomicUsize,
    requests_max: usize,
}

/// One place in the gate, given back when dropped.
struct Place(Arc<Places>);

impl Drop for Place {
    fn drop(&mut self) {
        self.0.under_way.fetch_sub(1, Ordering::Relaxed);
    }
}

/// A request that gave its place back for as long as it waits, and has one again when this is dropped.
pub(crate) struct Aside(Arc<Places>);

impl Gate {
    /// Whoever waits in a line for its turn keeps no place from those who have theirs.
    pub fn aside(&self) -> Aside {
        self.0.under_way.fetch_sub(1, Ordering::Relaxed);
        Aside(self.0.clone())
    }
}

impl Drop for Aside {
    fn drop(&mut self) {
        // Even if there are more than the most by then: the line lets only so many through.
        self.0.under_way.fetch_add(1, Ordering::Relaxed);
    }
}

async fn admit(State(gate): State<Gate>, mut request: Request, next: Next) -> Response {
    if passes_freely(request.method(), request.uri().path()) {
        return next.run(request).await;
    }
    let Gate(places) = &gate;
    let place = Place(places.clone());
    if places.under_way.fetch_add(1, Ordering::Relaxed) >= places.requests_max {
        let problem = format!(
            "{} requests are under way, which is all that is served at once; try again\n",
            places.requests_max
        );
        return (StatusCode::SERVICE_UNAVAILABLE, problem).into_response();
    }
    request.extensions_mut().insert(gate.clone());
    let response = next.run(request).await;
    drop(place);
    response
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use authority::{RateLimits, Throttle};
    use axum::body::Body;
    use axum::routing::any;
    use futures_util::FutureExt;
    use hyper::service::Service;
    use hyper_util::service::TowerToHyperService;
    use runtime::rehearsal::{node, stage};

    use super::*;
    use crate::realm::Guard;

    #[test]
    fn a_full_gate_keeps_out_neither_executors_nor_who_asks_for_health_and_a_line_fills_no_gate() {
        stage(async {
            let node = node("node").build();
            let places = Arc::new(Places {
                under_way: AtomicUsize::new(0),
                requests_max: 1,
            });
            let limits = r#"{"aggregate_default_qps":1}"#;
            let throttle = Throttle::new(RateLimits::parse(limits).unwrap());
            let here = || any(|| async { "here" });
            let routes = Router::new()
                .route("/health", here())
                .route("/api/v1/executor", here())
                .route("/state", here());
            let guard = Guard::new("agent", &node).throttling(throttle);
            let routes = guard.before(routes);
            let gate = Gate(places.clone());
            let routes = routes.layer(from_fn_with_state(gate, admit));
            let routes = TowerToHyperService::new(routes);
            let ask = async |path: &str| {
                let request = Request::builder().uri(path).body(Body::empty());
                let answered = routes.call(request.unwrap()).await;
                answered.unwrap().status().as_u16()
            };
            let under_way = || places.under_way.load(Ordering::Relaxed);
            let held = Place(places.clone());
            places.under_way.fetch_add(1, Ordering::Relaxed);
            assert_eq!(ask("/state").await, 503);
            assert_eq!(ask("/health").await, 200);
            assert_eq!(ask("/api/v1/executor").await, 200);
            drop(held);
            assert_eq!(ask("/state").await, 200);
            {
                let mut waits = std::pin::pin!(ask("/state"));
                assert!(waits.as_mut().now_or_never().is_none());
                assert_eq!(under_way(), 0, "it stands in the line");
                node.clock().sleep(Duration::from_secs(2)).await;
                assert_eq!(waits.await, 200);
                let mut leaves = std::pin::pin!(ask("/state"));
                let _ = leaves.as_mut().now_or_never();
            }
            assert_eq!(under_way(), 0);
        });
    }
}
