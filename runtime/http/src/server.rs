//! Runs routes on an already bound listener until the node shuts down.
//!
//! Bounds, each with an explicit refusal: this module bounds the size of a body, the `admission`
//! the number of concurrent requests and the bytes of all bodies, and the `connections` the number
//! of connections and their timeouts.

use std::future::Future;
use std::sync::Arc;

use axum::Router;
use axum::extract::DefaultBodyLimit;
use axum::middleware::from_fn_with_state;
use runtime::Node;
use tokio::net::TcpListener;
use transport::tls::Tls;

use crate::admission::{Admission, admit};
use crate::connections::{Acceptor, ConnectionMetrics, ConnectionTimeouts};
use crate::postprocess::{Postprocess, postprocess};
use crate::request::browsers::{AllowedHosts, refuse_other_sites};

/// Bounds of one listener.
#[derive(Clone, Debug)]
pub struct HttpOptions {
    /// Maximum open connections. Beyond it a new one evicts one of an address above its share; if
    /// there is none, the new one is answered `/health`, and 503 for all else, and closed. Default
    /// 4096.
    pub connections_max: usize,
    /// Timeouts of a connection.
    pub timeouts: ConnectionTimeouts,
    /// TLS, if enabled.
    pub tls: Option<Tls>,
    /// Whether plain HTTP is also served, on the same port as TLS.
    pub plain: bool,
    /// Counters of connections.
    pub metrics: ConnectionMetrics,
    /// Maximum requests served at the same time, not counting those that wait for their bodies. One
    /// address gets at most as many as remain free. Beyond it: 503. Default 1024, so 512 for a
    /// single address.
    pub requests_max: usize,
    /// Maximum bytes of a request's body; beyond it: 413. Default 16 MiB.
    pub body_max: usize,
    /// Maximum bytes of all bodies in memory, without executors' calls. One address gets at most as
    /// many as remain free. Beyond it: 503. A decoded body takes several times its bytes. Default
    /// 256 MiB.
    pub bodies_max: usize,
    /// The same bound for executors' calls, which no other request can use up. Default 64 MiB.
    pub executor_bodies_max: usize,
    /// Accepted host names; others get 403. Default: any.
    pub hosts: AllowedHosts,
    /// Whether `?jsonp=` is supported; otherwise it gets 403. Default: no.
    pub jsonp: bool,
}

impl Default for HttpOptions {
    fn default() -> Self {
        Self {
            connections_max: 4096,
            timeouts: ConnectionTimeouts::default(),
            tls: None,
            plain: false,
            metrics: ConnectionMetrics::default(),
            requests_max: 1024,
            body_max: 16 << 20,
            bodies_max: 256 << 20,
            executor_bodies_max: 64 << 20,
            hosts: AllowedHosts::any(),
            jsonp: false,
        }
    }
}

/// Serves `routes` on `listener` until `until` completes, then finishes the requests in progress.
pub async fn serve(
    node: &Node,
    listener: TcpListener,
    routes: Router,
    options: HttpOptions,
    until: impl Future<Output = ()> + Send + 'static,
) -> std::io::Result<()> {
    let connections = Acceptor {
        node: node.clone(),
        routes: bounded(node, routes, &options),
        connections_max: options.connections_max,
        timeouts: options.timeouts,
        tls: options.tls,
        plain: options.plain,
        metrics: options.metrics,
    };
    connections.run(listener, until).await
}

/// Adds the bounds of `options` to these routes.
pub(crate) fn bounded(node: &Node, routes: Router, options: &HttpOptions) -> Router {
    let admission = Admission::new(node, options);
    let postprocess_state = Postprocess {
        node: node.clone(),
        jsonp: options.jsonp,
    };
    routes
        .layer(DefaultBodyLimit::max(options.body_max))
        .layer(from_fn_with_state(postprocess_state, postprocess))
        .layer(from_fn_with_state(admission, admit))
        .layer(from_fn_with_state(
            Arc::new(options.hosts.clone()),
            refuse_other_sites,
        ))
        // Builds the handlers now, not for each request.
        .with_state(())
}
