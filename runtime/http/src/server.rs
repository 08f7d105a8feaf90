//! Runs routes on a listener that is already bound, until the node shuts down.
//!
//! Bounded: so many requests at once, so large a body in so long a time, and a refusal in words beyond that. A reader that takes nothing for
//! a while is disconnected, so that what waits for it is not held for ever.

use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use axum::Router;
use axum::body::{Body, HttpBody};
use axum::extract::{DefaultBodyLimit, Request, State};
use axum::http::StatusCode;
use axum::middleware::{Next, from_fn_with_state};
use axum::response::{IntoResponse, Response};
use axum::serve::ListenerExt;
use futures_util::{FutureExt, StreamExt, stream};
use runtime::Node;
use socket2::SockRef;
use tokio::net::TcpListener;

use crate::api::BODY_PATIENCE;
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
    axum::serve(listener, routes)
        .with_graceful_shutdown(until)
        .await
}

/// Gives a request a body that comes to its end.
async fn in_time(State(node): State<Node>, request: Request, next: Next) -> Response {
    let late = node.clock().sleep(BODY_PATIENCE);
    next.run(request.map(|body| ending(body, late))).await
}

/// The same body, which ends in an error if it is not whole when it is late.
fn ending(body: Body, late: impl Future<Output = ()> + Send + 'static) -> Body {
    if body.is_end_stream() {
        return body;
    }
    let (mut pieces, mut late) = (body.into_data_stream(), Box::pin(late.fuse()));
    Body::from_stream(stream::poll_fn(move |cx| {
        let piece = pieces.poll_next_unpin(cx);
        if piece.is_ready() {
            return piece;
        }
        late.poll_unpin(cx).map(|()| {
            let problem = format!("not whole after {} s", BODY_PATIENCE.as_secs());
            Some(Err(axum::Error::new(std::io::Error::other(problem))))
        })
    }))
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

#[cfg(test)]
mod tests {
    use axum::body::to_bytes;
    use runtime::rehearsal::stage;

    use super::*;

    #[test]
    fn a_body_without_end_ends_in_an_error_and_a_whole_one_is_read() {
        stage(async {
            let node = runtime::rehearsal::node("node").build();
            let read = |body| to_bytes(ending(body, node.clock().sleep(BODY_PATIENCE)), 9);
            assert_eq!(read(Body::from("all")).await.unwrap(), "all");
            let begun = stream::iter([Ok::<_, std::io::Error>("a")]).chain(stream::pending());
            let problem = read(Body::from_stream(begun)).await.unwrap_err();
            let source = std::error::Error::source(&problem).map(ToString::to_string);
            assert!(format!("{problem} {source:?}").contains("not whole after 30 s"));
        });
    }
}
