//! A session: the tasks that move bytes between one link and its Unix socket.
//!
//! One task reads and delivers, one writes ordinary frames, one the ping lane, and each outgoing
//! bulk has one; all write short chunks in turn. Frames are opaque: the link decodes them.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::{Buf, Bytes, BytesMut};
use futures_util::FutureExt;
use futures_util::future::{Either, join, select};
use runtime::wire::codec::BODY_MAX;
use runtime::{Lane, Link, Node, Outgoing, Peer};
use tokio::sync::Semaphore;

use super::chunk::{ChunkError, Chunks, Kind, LENGTH_MAX, Writer};
use crate::lanes::{BATCH_MAX, StreamError, shrink};

/// Maximum bulks in transfer in each direction.
const BULKS_MAX: u32 = 4;
/// Maximum bytes of bulks that are announced and incomplete.
const BULK_BYTES_MAX: usize = 2 * BODY_MAX;
/// Maximum bytes of bulks that are decoded while others arrive.
const DECODING_MAX: usize = BODY_MAX;
/// Bytes of the token before a piece of a bulk.
const TOKEN: usize = 8;
/// Maximum time in which a closing connection sends its queued bytes.
const FAREWELL_TIMEOUT: std::time::Duration = std::time::Duration::from_secs(2);

/// One link and its socket.
pub(super) struct Session {
    node: Node,
    link: Link,
    chunks: Chunks,
    writer: Arc<Writer>,
}

impl Session {
    pub(super) fn new(node: Node, link: Link, chunks: Chunks, writer: Writer) -> Self {
        Self {
            node,
            link,
            chunks,
            writer: Arc::new(writer),
        }
    }

    /// The other side.
    pub(super) fn peer(&self) -> &Peer {
        self.link.peer()
    }

    /// Serves the link until it or the socket ends.
    pub(super) async fn run(self) {
        let Self {
            node,
            link,
            chunks,
            writer,
        } = self;
        let mut reading = tokio::spawn(read(link.clone(), chunks));
        let writing = tokio::spawn(write(link.clone(), writer.clone()));
        match select(&mut reading, std::pin::pin!(link.closed())).await {
            Either::Left((read, _)) => {
                let (reason, tell) = match read {
                    Ok(Ok(reason)) => (reason, false),
                    Ok(Err(StreamError::Lost)) | Err(_) => {
                        ("the connection was lost".to_owned(), false)
                    }
                    Ok(Err(StreamError::Unread(reason))) => (reason, true),
                    Ok(Err(StreamError::Garbled(reason))) => {
                        tracing::warn!(peer = %link.peer().node, reason, "closing the Unix connection");
                        (reason, true)
                    }
                };
                // Received messages are still decoded, within the timeout.
                let _ = node.clock().timeout(FAREWELL_TIMEOUT, link.decoded()).await;
                link.close(&reason);
                if tell {
                    let farewell = writer.write(Kind::Farewell, &[], cut(&reason));
                    // it is closed either way
                    let _ = node.clock().timeout(FAREWELL_TIMEOUT, farewell).await;
                }
            }
            Either::Right((reason, _)) => {
                let last_words = async {
                    let _ = writing.await; // fails only if the runtime ends
                    // it is closed either way
                    let _ = writer.write(Kind::Farewell, &[], cut(&reason)).await;
                    writer.end().await;
                    // Further data is read and dropped until the peer closes too.
                    let _ = (&mut reading).await;
                };
                let _ = node.clock().timeout(FAREWELL_TIMEOUT, last_words).await; // cut off if late
                reading.abort();
            }
        }
    }
}

/// The reason, shortened to fit into a chunk.
fn cut(reason: &str) -> &[u8] {
    &reason.as_bytes()[..reason.len().min(LENGTH_MAX)]
}

/// Writes the link's outgoing data until the link closes.
async fn write(link: Link, writer: Arc<Writer>) {
    let sending = Arc::new(Semaphore::new(BULKS_MAX as usize));
    let ordinary = async {
        let mut buffer = BytesMut::new();
        loop {
            match link.outgoing(Lane::Ordinary, &mut buffer, BATCH_MAX).await {
                Outgoing::Batch => {
                    if write_pieces(&writer, Kind::Ordinary, &mut buffer)
                        .await
                        .is_err()
                    {
                        break; // the reader finds the same end, and its reason
                    }
                }
                Outgoing::Bulk { token, bytes } => {
                    let Ok(permit) = sending.clone().acquire_owned().await else {
                        break;
                    };
                    let writer = writer.clone();
                    tokio::spawn(async move {
                        // the reader finds the same end
                        let _ = write_bulk(&writer, token, &bytes).await;
                        drop(permit);
                    });
                }
                Outgoing::Closed => break,
            }
        }
    };
    let ping = async {
        let mut buffer = BytesMut::new();
        while link.outgoing(Lane::Ping, &mut buffer, BATCH_MAX).await == Outgoing::Batch {
            if write_pieces(&writer, Kind::Ping, &mut buffer)
                .await
                .is_err()
            {
                break; // the reader finds the same end, and its reason
            }
        }
    };
    join(ordinary, ping).await;
    let _ = sending.acquire_many(BULKS_MAX).await; // never closed
}

async fn write_pieces(writer: &Writer, kind: Kind, buffer: &mut BytesMut) -> std::io::Result<()> {
    for piece in buffer.chunks(LENGTH_MAX) {
        writer.write(kind, &[], piece).await?;
    }
    let used = buffer.len();
    buffer.clear();
    shrink(buffer, used);
    Ok(())
}

async fn write_bulk(writer: &Writer, token: u64, bytes: &Bytes) -> std::io::Result<()> {
    let token = token.to_be_bytes();
    writer
        .write(Kind::BulkBegin, &token, &(bytes.len() as u64).to_be_bytes())
        .await?;
    for piece in bytes.chunks(LENGTH_MAX - TOKEN) {
        writer.write(Kind::BulkPiece, &token, piece).await?;
    }
    Ok(())
}

/// Delivers incoming data until the peer closes; returns the peer's reason.
async fn read(link: Link, mut chunks: Chunks) -> Result<String, StreamError> {
    let (mut ordinary, mut ping) = (BytesMut::new(), BytesMut::new());
    let (mut bulks, mut decoding) = (Bulks::default(), 0);
    while let Some((kind, body)) = chunks.next().await? {
        match kind {
            Kind::Ordinary => {
                deliver(&link, &mut ordinary, body)?;
                link.room(Lane::Ordinary).await; // makes the peer wait too
            }
            Kind::Ping => {
                deliver(&link, &mut ping, body)?;
                link.room(Lane::Ping).await;
            }
            Kind::BulkBegin => bulks.begin(body).map_err(StreamError::Garbled)?,
            Kind::BulkPiece => {
                if let Some((token, bytes)) = bulks.piece(body).map_err(StreamError::Garbled)? {
                    if link.decoded().now_or_never().is_some() {
                        decoding = 0;
                    }
                    decoding += bytes.len();
                    link.deliver_bulk(token, bytes)?;
                    if decoding > DECODING_MAX {
                        link.decoded().await; // makes the peer wait too
                    }
                }
            }
            Kind::Farewell => {
                return Ok(format!(
                    "closed by the peer: {}",
                    String::from_utf8_lossy(&body)
                ));
            }
            Kind::Hello => return Err(StreamError::Garbled("a second hello".into())),
        }
    }
    if ordinary.is_empty() && ping.is_empty() {
        return Ok("closed by the peer".into());
    }
    Err(StreamError::Garbled("a frame was cut off".into()))
}

fn deliver(link: &Link, lane: &mut BytesMut, body: BytesMut) -> Result<(), StreamError> {
    if lane.is_empty() {
        *lane = body;
    } else {
        lane.extend_from_slice(&body);
    }
    link.deliver(lane)?;
    if lane.is_empty() {
        *lane = BytesMut::new(); // releases its share of the socket's buffer
    }
    Ok(())
}

/// The bulks that arrive in pieces.
#[derive(Default)]
pub struct Bulks {
    incoming: BTreeMap<u64, (usize, BytesMut)>,
}

impl Bulks {
    /// A bulk begins: its token and its length.
    pub fn begin(&mut self, mut body: BytesMut) -> Result<(), String> {
        if body.len() != TOKEN + 8 {
            return Err(format!(
                "beginning of a bulk has {} bytes, expected {}",
                body.len(),
                TOKEN + 8
            ));
        }
        let (token, length) = (body.get_u64(), body.get_u64());
        let announced: usize = self.incoming.values().map(|(length, _)| length).sum();
        let length = usize::try_from(length)
            .ok()
            .filter(|length| announced.saturating_add(*length) <= BULK_BYTES_MAX);
        let Some(length) = length.filter(|length| *length > 0) else {
            return Err(format!(
                "bulk {token} is empty, or one too many: {announced} bytes are to come already"
            ));
        };
        if self.incoming.len() >= BULKS_MAX as usize
            || self
                .incoming
                .insert(token, (length, BytesMut::new()))
                .is_some()
        {
            return Err(format!(
                "bulk {token} began twice, or is one of more than {BULKS_MAX} at once"
            ));
        }
        Ok(())
    }

    /// The bulk, if this is its last piece: a token and some of its bytes.
    pub fn piece(&mut self, mut body: BytesMut) -> Result<Option<(u64, Bytes)>, String> {
        if body.len() <= TOKEN {
            return Err(format!(
                "piece of a bulk has {} bytes, expected more than {TOKEN}",
                body.len()
            ));
        }
        let token = body.get_u64();
        let Some((length, bytes)) = self.incoming.get_mut(&token) else {
            return Err(format!("piece of bulk {token}, which has not begun"));
        };
        bytes.extend_from_slice(&body);
        if bytes.len() < *length {
            return Ok(None);
        }
        let (length, bytes) = self.incoming.remove(&token).unwrap_or_default();
        if bytes.len() > length {
            return Err(format!(
                "bulk {token} is longer than the {length} bytes announced"
            ));
        }
        Ok(Some((token, bytes.freeze())))
    }
}

impl From<ChunkError> for StreamError {
    fn from(error: ChunkError) -> Self {
        match error {
            ChunkError::Lost(_) => Self::Lost,
            ChunkError::Garbled(reason) => Self::Garbled(reason),
        }
    }
}
