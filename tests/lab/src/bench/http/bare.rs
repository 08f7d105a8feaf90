//! The lower bound of an answer, measured in the same run: hyper sends its bytes to the same
//! client, and serde_json writes its document.
//!
//! The server has its own thread, accepts one connection, and serves one page.

use std::convert::Infallible;
use std::net::{Ipv4Addr, TcpListener};

use http_body_util::Full;
use hyper::Response;
use hyper::body::Bytes;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use runtime::Clock;
use serde_json::Value;

use super::client::Connection;
use meros::on_this_thread;
use meros::output::error::{CliError, Outcome};

/// Number of times that a document is written.
const WRITTEN: usize = 5;

/// The median and the maximum, in milliseconds.
pub fn median_and_last(mut taken: Vec<f64>) -> (f64, f64) {
    taken.sort_by(f64::total_cmp);
    let last = taken.last().copied().unwrap_or_default();
    let middle = taken.get(taken.len() / 2).copied();
    (middle.unwrap_or_default(), last)
}

/// Median time in milliseconds until a client has received this page from plain hyper.
pub async fn copied(page: Bytes, times: usize) -> Outcome<f64> {
    let (length, clock) = (page.len(), Clock::real());
    let address = serve(page)?;
    let mut connection = Connection::open(&address).await?;
    let mut taken = Vec::new();
    for _ in 0..times {
        let begun = clock.now();
        let got = connection.get("/").await?.len();
        taken.push((clock.now() - begun).as_secs_f64() * 1000.0);
        if got != length {
            return Err(CliError::new(format!("{got} bytes of {length} have come")));
        }
    }
    Ok(median_and_last(taken).0)
}

/// Median time in milliseconds for serde_json to write this document, which is parsed first.
pub fn written(document: &[u8]) -> Outcome<f64> {
    let wrong = |error: serde_json::Error| CliError::because("a page", &error);
    let (value, clock): (Value, _) = (
        serde_json::from_slice(document).map_err(wrong)?,
        Clock::real(),
    );
    let mut taken = Vec::new();
    for _ in 0..WRITTEN {
        let begun = clock.now();
        let text = serde_json::to_vec(&value).map_err(wrong)?;
        taken.push((clock.now() - begun).as_secs_f64() * 1000.0);
        drop(std::hint::black_box(text));
    }
    Ok(median_and_last(taken).0)
}

/// Serves this page to one client for any request, until it disconnects. Returns the address.
fn serve(page: Bytes) -> Outcome<String> {
    let cannot = |error: std::io::Error| CliError::because("cannot listen", &error);
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).map_err(cannot)?;
    listener.set_nonblocking(true).map_err(cannot)?;
    let address = listener.local_addr().map_err(cannot)?.to_string();
    std::thread::spawn(move || {
        on_this_thread(async move {
            let listener = tokio::net::TcpListener::from_std(listener).map_err(cannot)?;
            let (connection, _) = listener.accept().await.map_err(cannot)?;
            connection.set_nodelay(true).map_err(cannot)?;
            let answer = service_fn(|_| {
                let page = page.clone();
                async move { Ok::<_, Infallible>(Response::new(Full::new(page))) }
            });
            // The client sees errors.
            let _ = http1::Builder::new()
                .serve_connection(TokioIo::new(connection), answer)
                .await;
            Outcome::Ok(())
        })
    });
    Ok(address)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_is_copied_and_a_document_written() {
        let page = Bytes::from_static(b"{\"a\":[1,2,3]}");
        let copied = on_this_thread(copied(page.clone(), 3)).unwrap().unwrap();
        assert!(copied > 0.0 && written(&page).unwrap() > 0.0);
        assert!(written(b"{").is_err());
        assert_eq!(median_and_last(vec![3.0, 1.0, 2.0]), (2.0, 3.0));
        assert_eq!(median_and_last(vec![]), (0.0, 0.0));
    }
}
