//! Runs routes on a listener that is already bound, until the node shuts down.
//!
//! Bounded: so many requests at once, so large a body in so long a time, and a refusal in words beyond that. A reader that takes nothing for
//! a while is disconnected, so that what waits for it is not held for ever.

use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use axum::Router;
use axum::extract::{DefaultBodyLimit, Request, State};
use axum::http::StatusCode;
use axum::middleware::{Next, from_fn_with_state};
use axum::response::{IntoResponse, Response};
use axum::serve::ListenerExt;
use runtime::Node;
use socket2::SockRef;
use tokio::net::TcpListener;

use crate::body::{BODY_PATIENCE, ending};
use crate::outgoing::outgoing;

/// The bounds of one listener.
#[derive(Clone, Copy, Debug)]
pub struct HttpOptions {
    /// Requests served at the same time; one more gets 503. Default 512.
    pub requests_max: usize,
    /// Bytes of a request's body; more gets 413. Default 16 MiB.
    pub body_max: usize,
}

impl Default for HttpOptions {
    fn default() -> Self {
        Self {
            requests_max: 512,
            body_max: 16 << 20,
        }
    }
}

/// How long what was sent may wait for a reader that takes nothing of it, before its connection is ended.
const STALLED_MAX: Duration = Duration::from_secs(90);

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
        .layer(from_fn_with_state(gate, admit));
    let listener = listener.tap_io(|connection| {
        let bounded = SockRef::from(&*connection).set_tcp_user_timeout(Some(STALLED_MAX));
        if let Err(error) = bounded {
            tracing::debug!(%error, "a connection may stall for ever");
        }
    });
    // All connections share one table of routes; a bare `Router` would be copied for each of them.
    axum::serve(listener, routes.into_make_service())
        .with_graceful_shutdown(until)
        .await
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
