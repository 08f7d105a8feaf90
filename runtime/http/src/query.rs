//! What stands behind the path of a page.
//!
//! A query that cannot be read is refused in words of the house (SPEC 2.1), and not in those of what reads it. Decides nothing of what is asked.

use axum::extract::{FromRequestParts, Query};
use axum::http::request::Parts;
use serde::de::DeserializeOwned;
use v1::Invalid;

use crate::api::Refusal;

/// What a page is asked, of fields that are texts and may all be absent: nothing can be wrong with it but that a name comes twice.
#[derive(Clone, Copy, Debug)]
pub struct Given<T>(pub T);

impl<T: DeserializeOwned, S: Send + Sync> FromRequestParts<S> for Given<T> {
    type Rejection = Refusal;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Refusal> {
        let read = Query::<T>::from_request_parts(parts, state).await;
        let Query(given) = read.map_err(|_| {
            let query = parts.uri.query().unwrap_or_default();
            Refusal::bad(Invalid::new("query", query, "each name once"))
        })?;
        Ok(Self(given))
    }
}
