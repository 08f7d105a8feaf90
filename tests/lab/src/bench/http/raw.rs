//! The raw connection of a subscriber: a socket with small buffers that is read only on demand.
//!
//! Reads the head of the reply and does not parse the rest.

use std::cell::Cell;
use std::net::SocketAddr;
use std::rc::Rc;
use std::time::Duration;

use runtime::Clock;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpSocket, TcpStream};
use v1::form::STREAM_ID;
use v1::{Form, Message};

use meros::output::error::{CliError, Outcome};

/// Receive buffer in bytes; the kernel doubles it.
const ROOM: u32 = 4096;
/// Largest head of a reply, in bytes.
const HEAD_MAX: usize = 16 << 10;
/// Time for reading a stream that does not end.
const PATIENCE: Duration = Duration::from_secs(5);
/// The end of a chunked body (RFC 9112).
const END: &[u8] = b"\r\n0\r\n\r\n";

fn failed(what: &str, error: &dyn std::error::Error) -> CliError {
    CliError::because(format!("HTTP: {what}"), error)
}

/// The connection.
pub struct Raw {
    connection: TcpStream,
    head: String,
}

impl Raw {
    /// Sends this call in JSON and reads the head of the reply.
    pub async fn subscribe(address: &str, path: &str, call: &dyn Message) -> Outcome<Self> {
        let to: SocketAddr = address.parse().map_err(|error| failed(address, &error))?;
        let connect = async {
            let socket = TcpSocket::new_v4()?;
            socket.set_recv_buffer_size(ROOM)?;
            let mut connection = socket.connect(to).await?;
            let body = Form::Json.write(call);
            let media = Form::Json.media_type();
            let mut request = format!(
                "POST {path} HTTP/1.1\r\nhost: {address}\r\ncontent-type: {media}\r\naccept: {media}\r\ncontent-length: {}\r\n\r\n",
                body.len()
            )
            .into_bytes();
            request.extend(body);
            connection.write_all(&request).await?;
            let mut head = Vec::new();
            while !head.ends_with(b"\r\n\r\n") && head.len() < HEAD_MAX {
                head.push(connection.read_u8().await?);
            }
            std::io::Result::Ok((connection, head))
        };
        let (connection, head) = connect.await.map_err(|error| failed(address, &error))?;
        let head = String::from_utf8_lossy(&head).into_owned();
        match head.starts_with("HTTP/1.1 200 ") {
            true => Ok(Self { connection, head }),
            false => Err(CliError::new(format!("HTTP: {path}: {head}"))),
        }
    }

    /// Stream id for later calls; empty if streams have none.
    pub fn stream_id(&self) -> String {
        stream_id(&self.head).unwrap_or_default().to_owned()
    }

    /// Reads everything from now on. Returns a counter of the bytes.
    pub fn follow(mut self) -> Rc<Cell<u64>> {
        let heard = Rc::new(Cell::new(0));
        let count = heard.clone();
        tokio::task::spawn_local(async move {
            let mut piece = vec![0; 64 << 10];
            while let Ok(bytes) = self.connection.read(&mut piece).await {
                if bytes == 0 {
                    return;
                }
                count.set(count.get() + bytes as u64);
            }
        });
        heard
    }

    /// Reads the rest, up to the end of the stream or for [`PATIENCE`].
    pub async fn rest(mut self) -> Vec<u8> {
        let mut rest = Vec::new();
        let read = async {
            // A broken connection ends it as well.
            while !rest.ends_with(END) && self.connection.read_buf(&mut rest).await.unwrap_or(0) > 0
            {
            }
        };
        let _ = Clock::real().timeout(PATIENCE, read).await; // The stream may continue.
        rest
    }
}

fn stream_id(head: &str) -> Option<&str> {
    head.lines().find_map(|line| {
        let (name, value) = line.split_once(':')?;
        name.eq_ignore_ascii_case(STREAM_ID).then_some(value.trim())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stream_id_is_found_in_any_case_of_the_name() {
        let head = "HTTP/1.1 200 OK\r\ncontent-type: x\r\nmesos-stream-id: abc\r\n\r\n";
        assert_eq!(stream_id(head), Some("abc"));
        assert_eq!(stream_id("HTTP/1.1 200 OK\r\n\r\n"), None);
    }
}
