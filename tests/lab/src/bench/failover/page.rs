//! Requests a page of a master over HTTP.
//!
//! Does not follow redirects, since a redirect identifies a follower.

use std::time::Duration;

use runtime::Clock;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

/// Timeout of a reply.
const PATIENCE: Duration = Duration::from_secs(1);
/// Largest accepted reply, in bytes.
const ANSWER_MAX: u64 = 1 << 20;

/// The status of this page at `address`; `None` if there is no reply.
pub async fn status(clock: &Clock, address: &str, path: &str) -> Option<u16> {
    let answer = clock.timeout(PATIENCE, ask(address, path)).await;
    status_in(&answer.ok()?.ok()?)
}

async fn ask(address: &str, path: &str) -> std::io::Result<Vec<u8>> {
    let mut stream = TcpStream::connect(address).await?;
    // Disables the cached copy, so that a follower redirects.
    let request = format!(
        "GET {path} HTTP/1.1\r\nHost: {address}\r\nCache-Control: no-cache\r\nConnection: close\r\n\r\n"
    );
    stream.write_all(request.as_bytes()).await?;
    let mut answer = Vec::new();
    stream.take(ANSWER_MAX).read_to_end(&mut answer).await?;
    Ok(answer)
}

fn status_in(answer: &[u8]) -> Option<u16> {
    let line = answer.split(|byte| *byte == b'\r').next()?;
    let mut words = std::str::from_utf8(line).ok()?.split(' ');
    words.next().filter(|word| word.starts_with("HTTP/1."))?;
    words.next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_status_is_the_second_word_of_an_answer() {
        assert_eq!(status_in(b"HTTP/1.1 200 OK\r\n\r\n{}"), Some(200));
        assert_eq!(status_in(b"HTTP/1.1 307 Temporary Redirect\r\n"), Some(307));
        for garbled in [&b""[..], b"HTTP/1.1", b"200 OK", b"HTTP/1.1 many\r\n"] {
            assert_eq!(status_in(garbled), None);
        }
    }
}
