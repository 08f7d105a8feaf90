//! Where the master is that leads (`/redirect`; SPEC 3.9).

use axum::extract::State;
use axum::response::Response;

use super::Pages;

/// `/redirect`: to the master that leads, by whatever scheme this one was asked.
pub(super) async fn redirect(State(pages): State<Pages>) -> Response {
    let own = || pages.front.master().map(|_| pages.address.clone());
    match pages.front.leader().or_else(own) {
        Some(leader) => super::at_the_leader(leader, ""),
        None => super::to_the_leader(&pages.front, "/"),
    }
}
