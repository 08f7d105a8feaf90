//! HTTP errors: a status and a message with the found and the expected value.

use std::fmt::Display;
use std::time::Duration;

use authority::Forbidden;
use axum::http::header::{ALLOW, RETRY_AFTER};
use axum::http::{HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use v1::form::HeaderError;

/// Maximum bytes of a message. Longer ones quote client input, and would stay in memory until the
/// client reads them.
const PROBLEM_MAX: usize = 4 << 10;

/// A refused request, and why.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{problem}")]
pub struct Refusal {
    /// The HTTP status.
    pub status: StatusCode,
    /// The message: where possible the field, its value and the expected value.
    pub problem: String,
    /// When to retry, for a 503.
    later: Duration,
}

impl Refusal {
    /// A refusal with this status.
    pub fn new(status: StatusCode, problem: impl Display) -> Self {
        let mut problem = problem.to_string();
        if problem.len() > PROBLEM_MAX {
            let fits = |end: &usize| problem.is_char_boundary(*end);
            let end = (0..=PROBLEM_MAX).rev().find(fits).unwrap_or(0);
            problem = format!("{}...", &problem[..end]);
        }
        Self {
            status,
            problem,
            later: Duration::from_secs(1),
        }
    }

    /// 400: invalid request.
    pub fn bad(problem: impl Display) -> Self {
        Self::new(StatusCode::BAD_REQUEST, problem)
    }

    /// 403: refused for another reason than the ACLs, which are [`Forbidden`].
    pub fn forbidden(problem: impl Display) -> Self {
        Self::new(StatusCode::FORBIDDEN, problem)
    }

    /// 409: conflicts with the current state.
    pub fn conflict(problem: impl Display) -> Self {
        Self::new(StatusCode::CONFLICT, problem)
    }

    /// 501: not supported.
    pub fn not_served(problem: impl Display) -> Self {
        Self::new(StatusCode::NOT_IMPLEMENTED, problem)
    }

    /// Whether the request is not supported (501).
    pub fn is_not_served(&self) -> bool {
        self.status == StatusCode::NOT_IMPLEMENTED
    }

    /// 503: temporarily unavailable; retry after one second.
    pub fn not_now(problem: impl Display) -> Self {
        Self::new(StatusCode::SERVICE_UNAVAILABLE, problem)
    }

    /// 503: retry after `later`.
    pub fn not_before(later: Duration, problem: impl Display) -> Self {
        Self {
            later,
            ..Self::not_now(problem)
        }
    }
}

/// The message of Mesos, which clients compare. It names neither action nor object: the log does.
impl From<Forbidden> for Refusal {
    fn from(forbidden: Forbidden) -> Self {
        tracing::info!(%forbidden, "refusing an unauthorized request");
        Self::forbidden("403 Forbidden.")
    }
}

impl From<HeaderError> for Refusal {
    fn from(refused: HeaderError) -> Self {
        let status = StatusCode::from_u16(refused.status());
        Self::new(status.unwrap_or(StatusCode::BAD_REQUEST), refused)
    }
}

impl IntoResponse for Refusal {
    fn into_response(self) -> Response {
        // Without a line end, as in Mesos.
        let mut response = (self.status, self.problem).into_response();
        let headers = response.headers_mut();
        match self.status {
            StatusCode::METHOD_NOT_ALLOWED => {
                headers.insert(ALLOW, HeaderValue::from_static("POST"));
            }
            StatusCode::SERVICE_UNAVAILABLE => {
                let seconds = self.later.as_secs_f64().ceil().max(1.0) as u64;
                headers.insert(RETRY_AFTER, seconds.into());
            }
            _ => {}
        }
        response
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// It stays in memory until the client reads it, and is not counted by any bound.
    #[test]
    fn a_refusal_is_bounded_in_length() {
        let refusal = Refusal::bad("\u{e9}".repeat(1 << 20));
        assert_eq!(refusal.problem.len(), PROBLEM_MAX + 3);
        assert!(refusal.problem.ends_with("\u{e9}..."));
        assert!(refusal.problem.capacity() < 4 * PROBLEM_MAX);
        assert_eq!(Refusal::bad("no").problem, "no");
    }
}
