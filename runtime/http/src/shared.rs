//! What several readers get: an answer in parts, which are sent to each as they are, and what it is compressed to, made for the first of them
//! who reads gzip (SPEC 2.1).

use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use axum::body::{Body, HttpBody};
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use hyper::body::{Frame, SizeHint};
use runtime::Node;
use tokio::sync::OnceCell;
use v1::parts::Parts;

/// What is longer is compressed off the thread that serves pages.
const INLINE_MAX: usize = 16 * 1024;

/// An answer. It is among the extensions of each response that has it for a body.
#[derive(Clone, Debug, Default)]
pub struct Shared {
    parts: Parts,
    gzip: Arc<OnceCell<Option<Bytes>>>,
}

impl<T: Into<Parts>> From<T> for Shared {
    fn from(parts: T) -> Self {
        Self {
            parts: parts.into(),
            ..Self::default()
        }
    }
}

impl Shared {
    /// A body of it.
    pub fn body(&self) -> Body {
        sent(self.parts.bytes().cloned().collect())
    }

    /// A body of it in short, as gzip; none if that cannot be.
    pub(crate) async fn gzip(&self, node: &Node) -> Option<Body> {
        let short = self.gzip.get_or_init(async || {
            let parts = self.parts.clone();
            match parts.len() <= INLINE_MAX {
                true => parts.gzip(),
                false => {
                    let short = node.blocking_behind(move || parts.gzip()).await;
                    short.unwrap_or(None)
                }
            }
        });
        let short = short.await.clone();
        short.map(|short| sent(vec![short]))
    }
}

impl IntoResponse for Shared {
    fn into_response(self) -> Response {
        let body = self.body();
        (axum::Extension(self), body).into_response()
    }
}

/// A body of these.
fn sent(parts: Vec<Bytes>) -> Body {
    Body::new(Sent {
        left: parts.iter().map(|part| part.len() as u64).sum(),
        parts: parts.into_iter(),
    })
}

/// Bytes that are sent one after the other.
struct Sent {
    parts: std::vec::IntoIter<Bytes>,
    left: u64,
}

impl HttpBody for Sent {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        let Some(bytes) = self.parts.next() else {
            return Poll::Ready(None);
        };
        self.left -= bytes.len() as u64;
        Poll::Ready(Some(Ok(Frame::data(bytes))))
    }

    fn is_end_stream(&self) -> bool {
        self.left == 0
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.left)
    }
}

#[cfg(test)]
mod tests {
    use axum::body::to_bytes;
    use futures_util::{FutureExt, StreamExt};
    use runtime::rehearsal::rehearse;
    use v1::parts::Part;

    use super::*;

    #[test]
    fn parts_are_one_body_of_a_known_length() {
        rehearse(|_| async move {
            let parts: Parts = ["one, ", "", "two"].map(Part::new).into_iter().collect();
            let body = Shared::from(parts).body();
            assert_eq!(body.size_hint().exact(), Some(8));
            assert_eq!(to_bytes(body, 100).await.unwrap(), "one, two");
            let none = Shared::from("").body();
            assert!(none.is_end_stream());
            assert_eq!(to_bytes(none, 100).await.unwrap(), "");
        });
    }

    /// W15: a page that is made for many is compressed for many.
    #[test]
    fn what_several_readers_get_is_compressed_for_the_first_of_them() {
        rehearse(|node| async move {
            let text = "x".repeat(300_000);
            let (shared, alone) = (Shared::from(text.clone()), Shared::from(text));
            // The first goes before it has it.
            let _ = shared.gzip(&node).now_or_never();
            let other = shared.clone();
            let (one, other) = futures_util::join!(shared.gzip(&node), other.gzip(&node));
            let mut places = Vec::new();
            for body in [one, other, alone.gzip(&node).await] {
                let mut body = body.unwrap().into_data_stream();
                places.push(body.next().await.unwrap().unwrap().as_ptr());
            }
            assert_eq!(places[0], places[1]);
            assert_ne!(places[0], places[2]);
        });
    }
}
