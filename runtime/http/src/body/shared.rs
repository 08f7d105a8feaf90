//! Response bodies with several readers: sent in parts as they are, and compressed once, for the
//! first reader that accepts gzip.

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
use v1::body_parts::BodyParts;

/// Larger bodies are compressed off the thread that serves pages.
const INLINE_MAX: usize = 16 * 1024;

/// A response body with several readers. It is an extension of each response that has it as its
/// body.
#[derive(Clone, Debug, Default)]
pub struct SharedBody {
    parts: BodyParts,
    gzip: Arc<OnceCell<Option<Bytes>>>,
}

impl<T: Into<BodyParts>> From<T> for SharedBody {
    fn from(parts: T) -> Self {
        Self {
            parts: parts.into(),
            ..Self::default()
        }
    }
}

impl SharedBody {
    /// The body, uncompressed.
    pub fn body(&self) -> Body {
        body_of(self.parts.bytes().cloned().collect())
    }

    /// The body as gzip; none if it cannot be compressed.
    pub(crate) async fn gzip(&self, node: &Node) -> Option<Body> {
        let compressed = self.gzip.get_or_init(async || {
            let parts = self.parts.clone();
            match parts.len() <= INLINE_MAX {
                true => parts.gzip(),
                false => {
                    let compressed = node.blocking_low_priority(move || parts.gzip()).await;
                    compressed.unwrap_or(None)
                }
            }
        });
        let compressed = compressed.await.clone();
        compressed.map(|compressed| body_of(vec![compressed]))
    }
}

impl IntoResponse for SharedBody {
    fn into_response(self) -> Response {
        let body = self.body();
        (axum::Extension(self), body).into_response()
    }
}

fn body_of(parts: Vec<Bytes>) -> Body {
    Body::new(BufferSequence {
        left: parts.iter().map(|part| part.len() as u64).sum(),
        parts: parts.into_iter(),
    })
}

/// A body of several buffers, sent one after the other.
struct BufferSequence {
    parts: std::vec::IntoIter<Bytes>,
    left: u64,
}

impl HttpBody for BufferSequence {
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
    use runtime::testing::simulate;
    use v1::body_parts::BodyPart;

    use super::*;

    #[test]
    fn parts_are_one_body_of_a_known_length() {
        simulate(|_| async move {
            let parts: BodyParts = ["one, ", "", "two"]
                .map(BodyPart::new)
                .into_iter()
                .collect();
            let body = SharedBody::from(parts).body();
            assert_eq!(body.size_hint().exact(), Some(8));
            assert_eq!(to_bytes(body, 100).await.unwrap(), "one, two");
            let none = SharedBody::from("").body();
            assert!(none.is_end_stream());
            assert_eq!(to_bytes(none, 100).await.unwrap(), "");
        });
    }

    /// W15: a page that is made for many is compressed for many.
    // Covers W15 in part: that no page waits behind the mailbox, the snapshots, the batches and
    // what is kept.
    #[test]
    fn a_shared_body_is_compressed_once() {
        simulate(|node| async move {
            let text = "x".repeat(300_000);
            let (shared, alone) = (SharedBody::from(text.clone()), SharedBody::from(text));
            // The first reader gives up before the result is there.
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
