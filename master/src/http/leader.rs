//! Where the master is that leads (`/redirect`; SPEC 3.9).

use axum::extract::State;
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
