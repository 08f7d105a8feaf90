//! `/redirect` to the leader.

use axum::extract::State;
use axum::response::Response;

use super::Pages;

/// `/redirect`: to the leader, with the scheme of the request.
pub(super) async fn redirect(State(pages): State<Pages>) -> Response {
    let own = || pages.local.master().map(|_| pages.address.clone());
    match pages.local.leader().or_else(own) {
        Some(leader) => super::leader_redirect(leader, ""),
        None => super::redirect_to_leader(&pages.local, "/"),
    }
}
