//! The body of a request: whole in time and as large as there is room for, or an error to whoever reads it.
//!
//! While it is outstanding its request has no place in the [`gate`](crate::gate): whoever never ends what it says keeps nobody out. Why a body
//! was cut is for the gate to say, whatever its reader makes of the error.

use std::future::Future;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use axum::body::{Body, HttpBody};
use axum::http::StatusCode;
use bytes::Bytes;
use futures_util::{FutureExt, StreamExt, stream};

use crate::api::Refusal;
use crate::bodies::Crowded;
use crate::gate::{Arrival, Full};

/// How long a body may take to arrive.
pub(crate) const BODY_PATIENCE: Duration = Duration::from_secs(30);
/// A piece that is not longer is copied: it would keep the whole buffer that it was read into, of 8 to 16 KiB, as long as it is held.
const SMALL: usize = 8 << 10;

/// Why a body is read no further.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Cut {
    /// It took too long.
    #[error("the body is not whole after {} s", BODY_PATIENCE.as_secs())]
    Late,
    /// There is no room for more of it.
    #[error(transparent)]
    Crowded(#[from] Crowded),
    /// It is whole, and as many others are served as can be.
    #[error(transparent)]
    Full(#[from] Full),
}

impl From<&Cut> for Refusal {
    fn from(cut: &Cut) -> Self {
        match cut {
            Cut::Late => Self::new(StatusCode::REQUEST_TIMEOUT, cut),
            Cut::Crowded(_) | Cut::Full(_) => Self::not_now(cut),
        }
    }
}

/// The same body, which ends in a [`Cut`] if it is not whole then, or there is no room for it, or for its request once it is whole.
pub(crate) fn arriving(
    body: Body,
    arrival: Arc<Arrival>,
    late: impl Future<Output = ()> + Send + 'static,
) -> Body {
    if body.is_end_stream() {
        return body;
    }
    let (mut pieces, mut late) = (body.into_data_stream(), Box::pin(late.fuse()));
    Body::from_stream(stream::poll_fn(move |cx| {
        let cut = match pieces.poll_next_unpin(cx) {
            Poll::Ready(Some(Ok(piece))) => match arrival.held.takes(piece.len()) {
                Ok(()) => return Poll::Ready(Some(Ok(compact(piece)))),
                Err(crowded) => Cut::from(crowded),
            },
            Poll::Ready(None) => match arrival.place.enter() {
                Ok(()) => return Poll::Ready(None),
                Err(full) => Cut::from(full),
            },
            Poll::Ready(broken) => return Poll::Ready(broken),
            Poll::Pending => {
                arrival.place.leave();
                if late.poll_unpin(cx).is_pending() {
                    return Poll::Pending;
                }
                Cut::Late
            }
        };
        Poll::Ready(Some(Err(axum::Error::new(arrival.is_cut(cut)))))
    }))
}

fn compact(piece: Bytes) -> Bytes {
    match piece.len() > SMALL {
        true => piece,
        false => Bytes::copy_from_slice(&piece),
    }
}
