//! `/redirect` to the leader.

use axum::extract::State;
use axum::response::Response;

use crate::api::Pages;

/// `/redirect`: to the leader, with the scheme of the request.
pub(in crate::api) async fn redirect(State(pages): State<Pages>) -> Response {
    let own = || pages.local.master().map(|_| pages.address.clone());
    match pages.local.leader().or_else(own) {
        Some(leader) => crate::api::leader_redirect(leader, ""),
        None => crate::api::redirect_to_leader(&pages.local, "/"),
    }
}
