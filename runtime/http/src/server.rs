//! Runs routes on a listener that is already bound, until the node shuts down.
//!
//! Bounded: so many requests at once, so large a body in so long a time, and a refusal in words beyond that. How many connections there are,
//! and how long one may take, is for the [`door`](crate::door).

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
    let gate = Arc::new(Gate {
        under_way: AtomicUsize::new(0),
        requests_max: options.requests_max,
    });
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

struct Gate {
    under_way: AtomicUsize,
    requests_max: usize,
}

/// One place in the gate, given back when dropped.
struct Place(Arc<Gate>);

impl Drop for Place {
    fn drop(&mut self) {
        self.0.under_way.fetch_sub(1, Ordering::Relaxed);
    }
}

async fn admit(State(gate): State<Arc<Gate>>, request: Request, next: Next) -> Response {
    let place = Place(gate.clone());
    if gate.under_way.fetch_add(1, Ordering::Relaxed) >= gate.requests_max {
        let problem = format!(
            "{} requests are under way, which is all that is served at once; try again\n",
            gate.requests_max
        );
        return (StatusCode::SERVICE_UNAVAILABLE, problem).into_response();
    }
    let response = next.run(request).await;
    drop(place);
    response
}
