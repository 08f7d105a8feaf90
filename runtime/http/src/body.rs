//! The body of a request: whole in time, or an error to whoever reads it.

use std::error::Error;
use std::future::Future;
use std::time::Duration;

use axum::body::{Body, HttpBody};
use futures_util::{FutureExt, StreamExt, stream};

/// How long a body may take to arrive.
pub(crate) const BODY_PATIENCE: Duration = Duration::from_secs(30);

/// The body took too long.
#[derive(Debug, thiserror::Error)]
#[error("the body is not whole after {} s", BODY_PATIENCE.as_secs())]
pub(crate) struct Late;

/// The same body, which ends in [`Late`] if it is not whole then.
pub(crate) fn ending(body: Body, late: impl Future<Output = ()> + Send + 'static) -> Body {
    if body.is_end_stream() {
        return body;
    }
    let (mut pieces, mut late) = (body.into_data_stream(), Box::pin(late.fuse()));
    Body::from_stream(stream::poll_fn(move |cx| {
        let piece = pieces.poll_next_unpin(cx);
        if piece.is_ready() {
            return piece;
        }
        late.poll_unpin(cx)
            .map(|()| Some(Err(axum::Error::new(Late))))
    }))
}

/// Whether reading failed for being late.
pub(crate) fn is_late(error: &(dyn Error + 'static)) -> bool {
    error.is::<Late>() || error.source().is_some_and(is_late)
}

#[cfg(test)]
mod tests {
    use axum::body::to_bytes;
    use runtime::rehearsal::stage;

    use super::*;

    #[test]
    fn a_body_without_end_ends_in_an_error_and_a_whole_one_is_read() {
        stage(async {
            let node = runtime::rehearsal::node("node").build();
            let read = |body| to_bytes(ending(body, node.clock().sleep(BODY_PATIENCE)), 9);
            assert_eq!(read(Body::from("all")).await.unwrap(), "all");
            let begun = stream::iter([Ok::<_, std::io::Error>("a")]).chain(stream::pending());
            let problem = read(Body::from_stream(begun)).await.unwrap_err();
            assert!(is_late(&problem), "{problem:?}");
        });
    }
}
