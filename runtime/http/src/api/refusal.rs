//! What is wrong with a request, in HTTP: a status, and words that name what was found and what was expected (SPEC 2.1).

use std::fmt::Display;
use std::time::Duration;

use axum::http::header::{ALLOW, RETRY_AFTER};
use axum::http::{HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use v1::media::Refused;

/// The most bytes that a refusal says. What is longer was made of what a stranger sent, and would wait in memory until he reads it.
const PROBLEM_MAX: usize = 4 << 10;

/// A request that is not served, and why.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{problem}")]
pub struct Refusal {
    /// What it is in HTTP.
    pub status: StatusCode,
    /// What was wrong: the field, its value and what was expected, where it is a field.
    pub problem: String,
    /// When to try again, where it may be another time.
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

    /// 400: wrong in itself.
    pub fn bad(problem: impl Display) -> Self {
        Self::new(StatusCode::BAD_REQUEST, problem)
    }

    /// 403: not for whoever asks.
    pub fn forbidden(problem: impl Display) -> Self {
        Self::new(StatusCode::FORBIDDEN, problem)
    }

    /// 409: not as things are.
    pub fn conflict(problem: impl Display) -> Self {
        Self::new(StatusCode::CONFLICT, problem)
    }

    /// 501: nothing here does that.
    pub fn not_served(problem: impl Display) -> Self {
        Self::new(StatusCode::NOT_IMPLEMENTED, problem)
    }

    /// Whether it is that nobody serves what was asked.
    pub fn is_not_served(&self) -> bool {
        self.status == StatusCode::NOT_IMPLEMENTED
    }

    /// 503: not just now, but perhaps in a second.
    pub fn not_now(problem: impl Display) -> Self {
        Self::new(StatusCode::SERVICE_UNAVAILABLE, problem)
    }

    /// 503: not before that time has passed.
    pub fn not_before(later: Duration, problem: impl Display) -> Self {
        Self {
            later,
            ..Self::not_now(problem)
        }
    }
}

impl From<Refused> for Refusal {
    fn from(refused: Refused) -> Self {
        let status = StatusCode::from_u16(refused.status());
        Self::new(status.unwrap_or(StatusCode::BAD_REQUEST), refused)
    }
}

impl IntoResponse for Refusal {
    fn into_response(self) -> Response {
        let mut response = (self.status, format!("{}\n", self.problem)).into_response();
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

    /// It waits in memory until whoever asked has read it, and nobody counts it.
    #[test]
    fn a_refusal_says_no_more_than_so_many_bytes() {
        let refusal = Refusal::bad("\u{e9}".repeat(1 << 20));
        assert_eq!(refusal.problem.len(), PROBLEM_MAX + 3);
        assert!(refusal.problem.ends_with("\u{e9}..."));
        assert!(refusal.problem.capacity() < 4 * PROBLEM_MAX);
        assert_eq!(Refusal::bad("no").problem, "no");
    }
}
