//! Where the master is that leads (`/redirect`), and what no master does yet (`/maintenance`, `/machine`; SPEC 3.9).

use axum::extract::{OriginalUri, State};
use axum::http::StatusCode;
use axum::http::header::LOCATION;
use axum::response::{IntoResponse, Response};

use super::Pages;

/// `/redirect`: to the master that leads, by whatever scheme this one was asked.
pub(super) async fn redirect(State(pages): State<Pages>) -> Response {
    let own = || pages.front.master().map(|_| pages.address.clone());
    match pages.front.leader().or_else(own) {
        Some(leader) => {
            let location = [(LOCATION, format!("//{leader}"))];
            (StatusCode::TEMPORARY_REDIRECT, location).into_response()
        }
        None => super::to_the_leader(&pages.front, "/"),
    }
}

/// Machines cannot be taken out of service by a master yet.
pub(super) async fn no_maintenance(OriginalUri(uri): OriginalUri) -> Response {
    let problem = format!(
        "{} is not served: maintenance is not planned here yet\n",
        uri.path()
    );
    (StatusCode::NOT_IMPLEMENTED, problem).into_response()
}
