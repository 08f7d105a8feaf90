//! The baseline of the benchmarks: a quinn stream that carries frames and nothing else.
//!
//! It has the same certificates, limits and batching as a link, but no lanes, codec or actors. A
//! frame is a length, an id and a payload. The server counts frames, echoes each one of an asking
//! stream, and at the end of a telling stream sends the count and the CPU time of its thread.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::{Buf, BufMut, Bytes, BytesMut};
use nix::sys::resource::{UsageWho, getrusage};
use nix::sys::time::TimeVal;
use quinn::{Connection, RecvStream, SendStream, TokioRuntime, VarInt};
use runtime::{Clock, Role};

use transport::{Identity, server_name};
use transport::{Options, config};

/// Maximum bytes of one write: the same as a link's.
pub const BATCH_MAX: usize = 256 << 10;

/// The first byte of a stream says how it is used.
const TELLING: u8 = 0;
const ASKING: u8 = 1;

type Failure = Box<dyn std::error::Error + Send + Sync>;

/// The receiving side. Dropping it ends its connections.
pub struct Server {
    endpoint: quinn::Endpoint,
}

impl Server {
    /// Serves on the calling thread's runtime; port 0 takes any free one.
    pub fn bind(identity: &Identity, address: SocketAddr, clock: &Clock) -> Result<Self, Failure> {
        let options = Options::default();
        let mut server = config::server(identity, &options, clock, &config::provider())?;
        if let Some(transport) = Arc::get_mut(&mut server.transport) {
            transport.max_concurrent_bidi_streams(VarInt::from_u32(16));
        }
        let socket = config::socket(address, options.socket_buffer)?;
        let setup = config::endpoint(identity, [0; 32])?;
        let endpoint = quinn::Endpoint::new(setup, Some(server), socket, Arc::new(TokioRuntime))?;
        let accepting = endpoint.clone();
        tokio::spawn(async move {
            while let Some(incoming) = accepting.accept().await {
                let Ok(connection) = incoming.await else {
                    continue;
                };
                tokio::spawn(async move {
                    while let Ok((send, receive)) = connection.accept_bi().await {
                        tokio::spawn(serve(send, receive));
                    }
                });
            }
        });
        Ok(Self { endpoint })
    }

    /// The bound address.
    pub fn address(&self) -> Result<SocketAddr, Failure> {
        Ok(self.endpoint.local_addr()?)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.endpoint.close(VarInt::from_u32(0), b"measured");
    }
}

async fn serve(mut send: SendStream, mut receive: RecvStream) -> Result<(), Failure> {
    let mut usage = [0];
    receive.read_exact(&mut usage).await?;
    let began = thread_time()?;
    let (mut buffer, mut count) = (BytesMut::new(), 0_u64);
    while let Some(chunk) = receive.read_chunk(BATCH_MAX, true).await? {
        buffer.extend_from_slice(&chunk.bytes);
        while let Some(frame) = take_frame(&mut buffer) {
            count += 1;
            if usage[0] == ASKING {
                send.write_all(&frame).await?;
            }
        }
    }
    if usage[0] == TELLING {
        let spent = (thread_time()? - began).as_nanos() as u64;
        send.write_all(&count.to_le_bytes()).await?;
        send.write_all(&spent.to_le_bytes()).await?;
    }
    send.finish()?;
    Ok(())
}

/// One frame with its length prefix, if it is complete.
fn take_frame(buffer: &mut BytesMut) -> Option<BytesMut> {
    let length = 4 + buffer.get(..4)?.get_u32() as usize;
    (buffer.len() >= length).then(|| buffer.split_to(length))
}

/// A frame with this payload: a length of four bytes, an id of four bytes, and the payload.
#[must_use]
pub fn frame(payload: &[u8]) -> Bytes {
    let mut frame = BytesMut::new();
    frame.put_u32(4 + payload.len() as u32);
    frame.put_u32(0x5a5a_5a5a);
    frame.extend_from_slice(payload);
    frame.freeze()
}

/// The CPU time of the calling thread since it began.
pub(crate) fn thread_time() -> Result<Duration, Failure> {
    let usage = getrusage(UsageWho::RUSAGE_THREAD)?;
    let spent = |time: TimeVal| {
        Duration::from_secs(time.tv_sec() as u64) + Duration::from_micros(time.tv_usec() as u64)
    };
    Ok(spent(usage.user_time()) + spent(usage.system_time()))
}

/// The sending side.
pub struct Client {
    connection: Connection,
    _endpoint: quinn::Endpoint,
}

impl Client {
    /// Connects to a [`Server`] whose identity has `role`.
    pub async fn connect(
        identity: &Identity,
        address: SocketAddr,
        role: Role,
        clock: &Clock,
    ) -> Result<Self, Failure> {
        let options = Options::default();
        let client = config::client(identity, &options, clock, &config::provider())?;
        let socket = config::socket((address.ip(), 0).into(), options.socket_buffer)?;
        let setup = config::endpoint(identity, [1; 32])?;
        let endpoint = quinn::Endpoint::new(setup, None, socket, Arc::new(TokioRuntime))?;
        let connection = endpoint
            .connect_with(client, address, &server_name(role))?
            .await?;
        Ok(Self {
            connection,
            _endpoint: endpoint,
        })
    }

    /// Sends `frame` `count` times in writes of up to [`BATCH_MAX`] bytes and waits until the
    /// server has counted all. Returns the CPU time of the server's thread.
    pub async fn tell(&self, frame: &[u8], count: u64) -> Result<Duration, Failure> {
        let (mut send, mut receive) = self.connection.open_bi().await?;
        send.write_all(&[TELLING]).await?;
        let mut buffer = BytesMut::new();
        let mut left = count;
        while left > 0 {
            buffer.reserve(BATCH_MAX);
            while left > 0 && buffer.len() + frame.len() <= BATCH_MAX {
                buffer.extend_from_slice(frame);
                left -= 1;
            }
            send.write_chunk(buffer.split().freeze()).await?;
        }
        send.finish()?;
        let (mut seen, mut spent) = ([0; 8], [0; 8]);
        receive.read_exact(&mut seen).await?;
        receive.read_exact(&mut spent).await?;
        match u64::from_le_bytes(seen) {
            seen if seen == count => Ok(Duration::from_nanos(u64::from_le_bytes(spent))),
            seen => Err(format!("the server saw {seen} frames, expected {count}").into()),
        }
    }

    /// Sends `frame` and waits for its echo, `count` times, one at a time.
    pub async fn ask(&self, frame: &[u8], count: u64) -> Result<(), Failure> {
        let (mut send, mut receive) = self.connection.open_bi().await?;
        send.write_all(&[ASKING]).await?;
        let mut echo = vec![0; frame.len()];
        for _ in 0..count {
            send.write_all(frame).await?;
            receive.read_exact(&mut echo).await?;
        }
        send.finish()?;
        Ok(())
    }
}
