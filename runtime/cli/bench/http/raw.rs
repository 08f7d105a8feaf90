//! A subscriber's connection as it is: a socket with little room, of which nothing is read unless somebody says so.
//!
//! It reads the head of the answer and knows nothing of what comes after it.

use std::cell::Cell;
use std::net::SocketAddr;
use std::rc::Rc;
use std::time::Duration;

use runtime::Clock;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpSocket, TcpStream};
use v1::media::STREAM_ID;
use v1::{Form, Message};

use crate::failure::{Failure, Outcome};

/// What the kernel may hold of what is not read, in bytes; it takes twice that.
const ROOM: u32 = 4096;
/// The longest head of an answer.
const HEAD_MAX: usize = 16 << 10;
/// How long a stream that has not ended is read.
const PATIENCE: Duration = Duration::from_secs(5);
/// How a body of pieces ends (RFC 9112).
const END: &[u8] = b"\r\n0\r\n\r\n";

fn failed(what: &str, error: &dyn std::error::Error) -> Failure {
    Failure::because(format!("HTTP: {what}"), error)
}

/// The connection.
pub struct Raw {
    connection: TcpStream,
    head: String,
}

impl Raw {
    /// Says this call, in JSON, and reads the head of its answer.
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
            false => Err(Failure::new(format!("HTTP: {path}: {head}"))),
        }
    }

    /// What later calls name the stream by; empty where streams have no names.
    pub fn stream_id(&self) -> String {
        stream_id(&self.head).unwrap_or_default().to_owned()
    }

    /// Reads everything from now on, for as long as it comes; gives how many bytes that has been.
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

    /// What is still there to be read, up to the end of the stream, or for as long as it goes on.
    pub async fn rest(mut self) -> Vec<u8> {
        let mut rest = Vec::new();
        let read = async {
            // Of one that breaks off there is no more.
            while !rest.ends_with(END) && self.connection.read_buf(&mut rest).await.unwrap_or(0) > 0
            {
            }
        };
        let _ = Clock::real().timeout(PATIENCE, read).await; // It goes on.
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
    fn the_id_of_a_stream_is_found_however_its_name_is_written() {
        let head = "HTTP/1.1 200 OK\r\ncontent-type: x\r\nmesos-stream-id: abc\r\n\r\n";
        assert_eq!(stream_id(head), Some("abc"));
        assert_eq!(stream_id("HTTP/1.1 200 OK\r\n\r\n"), None);
    }
}
