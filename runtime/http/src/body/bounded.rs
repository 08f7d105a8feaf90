//! Request bodies with a deadline and a bound on memory.
//!
//! A request holds no slot in the [`admission`](crate::admission) while its body is outstanding, so
//! endless bodies do not block others. Admission control reports the reason of a cut-off,
//! independent of the handler's reaction to the error.

use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::Poll;
use std::time::Duration;

use axum::body::{Body, HttpBody};
use axum::http::StatusCode;
use bytes::Bytes;
use futures_util::{FutureExt, StreamExt, stream};

use crate::admission::{AdmittedRequest, NoSlot};
use crate::api::Refusal;
use crate::body::bytes::NoBodySpace;

/// Maximum time for a body to arrive.
pub(crate) const BODY_TIMEOUT: Duration = Duration::from_secs(30);
/// Chunks up to this size are copied: a chunk would otherwise keep the connection's read buffer of
/// 8 to 16 KiB alive.
const SMALL: usize = 8 << 10;

/// Lets a handler read a body without these bounds, once it knows that it is a stream. Clones share
/// it. It is a request extension.
#[derive(Clone, Debug, Default)]
pub(crate) struct StreamedBody(Arc<AtomicBool>);

impl StreamedBody {
    /// The body is a stream: it may take any time, and its chunks are not kept.
    pub fn allow(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    fn is_allowed(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

/// Why a body was cut off.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum CutOff {
    /// It exceeded the deadline.
    #[error("the body is incomplete after {} s", BODY_TIMEOUT.as_secs())]
    Late,
    /// It exceeded the bound on memory.
    #[error(transparent)]
    NoBodySpace(#[from] NoBodySpace),
    /// It is complete, but no slot is free.
    #[error(transparent)]
    NoSlot(#[from] NoSlot),
}

impl From<&CutOff> for Refusal {
    fn from(cut: &CutOff) -> Self {
        match cut {
            CutOff::Late => Self::new(StatusCode::REQUEST_TIMEOUT, cut),
            CutOff::NoBodySpace(_) | CutOff::NoSlot(_) => Self::not_now(cut),
        }
    }
}

/// Wraps a body: it ends in a [`CutOff`] if it is late, if it exceeds the memory bound, or if no
/// slot is free once it is complete.
pub(crate) fn bounded_body(
    body: Body,
    admitted: Arc<AdmittedRequest>,
    streamed: StreamedBody,
    late: impl Future<Output = ()> + Send + 'static,
) -> Body {
    if body.is_end_stream() {
        return body;
    }
    let (mut pieces, mut late) = (body.into_data_stream(), Box::pin(late.fuse()));
    Body::from_stream(stream::poll_fn(move |cx| {
        if streamed.is_allowed() {
            admitted.slot.leave();
            return pieces.poll_next_unpin(cx);
        }
        let cut = match pieces.poll_next_unpin(cx) {
            Poll::Ready(Some(Ok(piece))) => match admitted.held.add(piece.len()) {
                Ok(()) => return Poll::Ready(Some(Ok(compact(piece)))),
                Err(no_space) => CutOff::from(no_space),
            },
            Poll::Ready(None) => match admitted.slot.enter() {
                Ok(()) => return Poll::Ready(None),
                Err(full) => CutOff::from(full),
            },
            Poll::Ready(broken) => return Poll::Ready(broken),
            Poll::Pending => {
                admitted.slot.leave();
                if late.poll_unpin(cx).is_pending() {
                    return Poll::Pending;
                }
                CutOff::Late
            }
        };
        Poll::Ready(Some(Err(axum::Error::new(admitted.cut_off(cut)))))
    }))
}

fn compact(piece: Bytes) -> Bytes {
    match piece.len() > SMALL {
        true => piece,
        false => Bytes::copy_from_slice(&piece),
    }
}
