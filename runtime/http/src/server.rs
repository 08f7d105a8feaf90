//! Runs routes on a listener that is already bound, until the node shuts down.
//!
//! Bounded, and a refusal in words beyond that: how large a body may be here, how many requests there are at once and how much of all bodies is
//! held by the `gate`, how many connections there are, and how long one may take, by the `door`.

use std::future::Future;
use std::sync::Arc;

use axum::Router;
use axum::extract::DefaultBodyLimit;
use axum::middleware::from_fn_with_state;
use runtime::Node;
use tokio::net::TcpListener;
use transport::tls::Tls;

use crate::browsers::{AllowedHosts, refuse_other_sites};
use crate::door::{Door, Figures, Patience};
use crate::gate::{Gate, admit};
use crate::outgoing::{Outgoing, outgoing};

/// The bounds of one listener.
#[derive(Clone, Debug)]
pub struct HttpOptions {
    /// Connections open at the same time. One more takes the place of one of an address beyond its share; if there is none it is answered
    /// `/health` and 503 to all else, and closed. Default 4096.
    pub connections_max: usize,
    /// How long each thing may take on a connection.
    pub patience: Patience,
    /// TLS, if pages are served over that.
    pub tls: Option<Tls>,
    /// Whether plain HTTP is answered beside TLS, on the same port.
    pub plain: bool,
    /// What has become of connections is counted here.
    pub figures: Figures,
    /// Requests served at the same time, those aside whose bodies are outstanding, and of one address no more than are left free; one more
    /// gets 503. Default 1024, so 512 of one address alone.
    pub requests_max: usize,
    /// Bytes of a request's body; more gets 413. Default 16 MiB.
    pub body_max: usize,
    /// Bytes of all bodies that are held at once, those of executors aside, and of one address no more than are left free; more gets 503. Each
    /// costs several times as much once it is read. Default 256 MiB.
    pub bodies_max: usize,
    /// The same of executors' calls, for which no other request takes the room. Default 64 MiB.
    pub executor_bodies_max: usize,
    /// The host names that requests may be for; others get 403. Default: any.
    pub hosts: AllowedHosts,
    /// Whether answers are wrapped into the function that `?jsonp=` names; otherwise that gets 403. Default: no.
    pub jsonp: bool,
}

impl Default for HttpOptions {
    fn default() -> Self {
        Self {
            connections_max: 4096,
            patience: Patience::default(),
            tls: None,
            plain: false,
            figures: Figures::default(),
            requests_max: 1024,
            body_max: 16 << 20,
            bodies_max: 256 << 20,
            executor_bodies_max: 64 << 20,
            hosts: AllowedHosts::any(),
            jsonp: false,
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
    let door = Door {
        node: node.clone(),
        routes: bounded(node, routes, &options),
        connections_max: options.connections_max,
        patience: options.patience,
        tls: options.tls,
        plain: options.plain,
        figures: options.figures,
    };
    door.open(listener, until).await
}

/// These routes behind a gate of their own.
pub(crate) fn bounded(node: &Node, routes: Router, options: &HttpOptions) -> Router {
    let gate = Gate::new(node, options);
    let outgoing_state = Outgoing {
        node: node.clone(),
        jsonp: options.jsonp,
    };
    routes
        .layer(DefaultBodyLimit::max(options.body_max))
        .layer(from_fn_with_state(outgoing_state, outgoing))
        .layer(from_fn_with_state(gate, admit))
        .layer(from_fn_with_state(
            Arc::new(options.hosts.clone()),
            refuse_other_sites,
        ))
        // Handlers are made now, and not anew for each request.
        .with_state(())
}
