//! Downloads from servers of this test that are slow, break off, redirect or lie.

use std::io::{BufRead, BufReader, Read};
use std::net::{TcpListener, TcpStream as Connection};
use std::sync::mpsc;

use super::*;

/// What a server does with a connection after the request.
type Answer = Box<dyn FnOnce(&mut Connection) + Send>;

/// Serves one answer for each connection, then nothing. Sends each request's text.
fn server(answers: Vec<Answer>) -> (String, mpsc::Receiver<String>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let (requests, received) = mpsc::channel();
    std::thread::spawn(move || {
        for answer in answers {
            let (mut connection, _) = listener.accept().unwrap();
            let mut lines = BufReader::new(connection.try_clone().unwrap()).lines();
            let mut request = String::new();
            while let Some(Ok(line)) = lines
                .next()
                .filter(|line| line.as_ref().is_ok_and(|line| !line.is_empty()))
            {
                request.push_str(&line);
                request.push('\n');
            }
            let _ = requests.send(request);
            answer(&mut connection);
        }
    });
    (format!("http://{address}/d/f"), received)
}

fn sends(text: &'static str) -> Answer {
    Box::new(move |connection| connection.write_all(text.as_bytes()).unwrap())
}

/// Sends something, then keeps the connection until the client ends it.
fn stalls(text: &'static str) -> Answer {
    Box::new(move |connection| {
        connection.write_all(text.as_bytes()).unwrap();
        let _ = connection.read(&mut [0]);
    })
}

const MINUTE: Duration = Duration::from_secs(60);

fn download(uri: &str) -> Result<String, String> {
    with(MINUTE, None, uri)
}

fn with(
    stall_timeout: Duration,
    authorities: Option<PathBuf>,
    uri: &str,
) -> Result<String, String> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    let downloader = Downloader {
        stall_timeout,
        authorities,
        more_authorities: Vec::new(),
        clock: Clock::real(),
        log: |_| {},
        tls: OnceCell::new(),
    };
    let path = tempfile::NamedTempFile::new().unwrap();
    let mut file = path.reopen().unwrap();
    let wanted = WebFile {
        uri: WebUri::read(uri)?,
        accept: None,
        is_immutable: false,
    };
    let downloading = downloader.download(&wanted, &mut file);
    runtime
        .block_on(downloading)
        .map_err(|error| error.to_string())?;
    Ok(std::fs::read_to_string(path.path()).unwrap())
}

#[test]
fn file_is_downloaded_with_the_password_of_its_uri() {
    let (uri, requests) = server(vec![sends(
        "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello",
    )]);
    let uri = uri.replace("http://", "http://me:secret@");
    assert_eq!(download(&uri), Ok("hello".to_owned()));
    let request = requests.recv().unwrap();
    assert!(request.starts_with("GET /d/f HTTP/1.1"), "{request}");
    assert!(
        request.contains("authorization: Basic bWU6c2VjcmV0"),
        "{request}"
    );
    assert!(!request.contains("me:"), "{request}");
}

#[test]
fn error_status_fails() {
    let (uri, _requests) = server(vec![sends(
        "HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n",
    )]);
    assert_eq!(download(&uri), Err("status 404 Not Found".to_owned()));
    let (uri, _requests) = server(vec![sends("SSH-2.0-OpenSSH\r\n")]);
    assert!(download(&uri).is_err());
}

#[test]
fn redirects_are_followed_and_bounded() {
    let (uri, requests) = server(vec![
        sends("HTTP/1.1 302 Found\r\nLocation: ../x\r\nContent-Length: 0\r\n\r\n"),
        sends("HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\nx"),
    ]);
    assert_eq!(download(&uri), Ok("x".to_owned()));
    requests.recv().unwrap();
    assert!(requests.recv().unwrap().starts_with("GET /d/../x "));
    let again = || sends("HTTP/1.1 307 Again\r\nLocation: /f\r\nContent-Length: 0\r\n\r\n");
    let (uri, _requests) = server((0..=REDIRECTS_MAX).map(|_| again()).collect());
    assert_eq!(download(&uri), Err("more than 10 redirects".to_owned()));
}

#[test]
fn redirect_to_a_link_local_address_is_refused() {
    for target in ["http://169.254.169.254/latest/", "http://[fe80::1]/x"] {
        let answer =
            format!("HTTP/1.1 302 Found\r\nLocation: {target}\r\nContent-Length: 0\r\n\r\n");
        let (uri, _requests) = server(vec![sends(Box::leak(answer.into_boxed_str()))]);
        let refused = download(&uri).unwrap_err();
        assert!(refused.contains("link-local"), "{refused}");
    }
}

#[test]
fn silent_server_fails_the_download() {
    let moment = Duration::from_millis(100);
    for text in ["", "HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nx"] {
        let (uri, _requests) = server(vec![stalls(text)]);
        let stalled = with(moment, None, &uri).unwrap_err();
        assert_eq!(stalled, "the server sent nothing for 100ms");
    }
}

#[test]
fn broken_connection_is_resumed() {
    let (uri, requests) = server(vec![
        sends("HTTP/1.1 200 OK\r\nETag: \"1\"\r\nContent-Length: 6\r\n\r\nab"),
        sends(
            "HTTP/1.1 206 Partial\r\nETag: \"1\"\r\nContent-Range: bytes 2-5/6\r\nContent-Length: 4\r\n\r\ncd",
        ),
        sends(
            "HTTP/1.1 206 Partial\r\nETag: \"1\"\r\nContent-Range: bytes 4-5/6\r\nContent-Length: 2\r\n\r\nef",
        ),
    ]);
    assert_eq!(download(&uri), Ok("abcdef".to_owned()));
    assert!(!requests.recv().unwrap().contains("range"));
    for range in ["range: bytes=2-", "range: bytes=4-"] {
        let request = requests.recv().unwrap();
        assert!(
            request.contains(range) && request.contains("if-range: \"1\""),
            "{request}"
        );
    }
}

/// Found by a reviewer: a part was taken for the rest, and parts of two files for one.
#[test]
fn part_of_the_rest_is_not_the_whole() {
    let first = "HTTP/1.1 200 OK\r\nETag: \"1\"\r\nContent-Length: 6\r\n\r\nab";
    let (uri, _requests) = server(vec![
        sends(first),
        sends(
            "HTTP/1.1 206 Partial\r\nETag: \"1\"\r\nContent-Range: bytes 2-3/6\r\nContent-Length: 2\r\n\r\ncd",
        ),
        sends(
            "HTTP/1.1 206 Partial\r\nETag: \"1\"\r\nContent-Range: bytes 4-5/6\r\nContent-Length: 2\r\n\r\nef",
        ),
    ]);
    assert_eq!(download(&uri), Ok("abcdef".to_owned()));
    let (uri, _requests) = server(vec![
        sends(first),
        sends(
            "HTTP/1.1 206 Partial\r\nETag: \"2\"\r\nContent-Range: bytes 2-5/6\r\nContent-Length: 4\r\n\r\nwxyz",
        ),
    ]);
    let changed = download(&uri).unwrap_err();
    assert_eq!(changed, "the file has changed during its download");
}

#[test]
fn changed_file_is_downloaded_again_from_its_start() {
    let (uri, _requests) = server(vec![
        sends("HTTP/1.1 200 OK\r\nETag: \"1\"\r\nContent-Length: 6\r\n\r\nabcd"),
        sends("HTTP/1.1 200 OK\r\nETag: \"2\"\r\nContent-Length: 3\r\n\r\nxyz"),
    ]);
    assert_eq!(download(&uri), Ok("xyz".to_owned()));
}

#[test]
fn file_shorter_than_announced_fails() {
    let (uri, _requests) = server(vec![sends(
        "HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nab",
    )]);
    let broken = download(&uri).unwrap_err();
    assert!(broken.starts_with("the connection broke"), "{broken}");
    let (uri, _requests) = server(vec![
        sends("HTTP/1.1 200 OK\r\nETag: \"1\"\r\nContent-Length: 6\r\n\r\nab"),
        sends(
            "HTTP/1.1 206 Partial\r\nContent-Range: bytes 1-5/6\r\nContent-Length: 5\r\n\r\nbcdef",
        ),
    ]);
    let wrong = download(&uri).unwrap_err();
    assert_eq!(wrong, "the server sent another range than requested");
    let partial =
        "HTTP/1.1 206 Partial\r\nContent-Range: bytes 0-1/6\r\nContent-Length: 2\r\n\r\nab";
    let (uri, _requests) = server(vec![sends(partial)]);
    assert_eq!(download(&uri), Err("status 206 Partial Content".to_owned()));
}

/// Serves one answer over TLS. Returns its URI and its certificate, a PEM file.
fn secure_server(answer: &'static str) -> (String, tempfile::NamedTempFile) {
    let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    let mut pem = tempfile::NamedTempFile::new().unwrap();
    pem.write_all(made.cert.pem().as_bytes()).unwrap();
    let key = rustls_pki_types::PrivatePkcs8KeyDer::from(made.signing_key.serialize_der());
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = rustls::ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![made.cert.der().clone()], key.into())
        .unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let uri = format!(
        "https://localhost:{}/f",
        listener.local_addr().unwrap().port()
    );
    std::thread::spawn(move || {
        let (mut connection, _) = listener.accept().unwrap();
        let mut tls = rustls::ServerConnection::new(Arc::new(config)).unwrap();
        let mut stream = rustls::Stream::new(&mut tls, &mut connection);
        // A client that does not trust it ends the connection here.
        if stream.read(&mut [0; 4096]).is_ok() {
            stream.write_all(answer.as_bytes()).unwrap();
        }
    });
    (uri, pem)
}

#[test]
fn https_needs_a_certificate_of_a_known_authority() {
    let answer = "HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\nx";
    let (uri, pem) = secure_server(answer);
    let known = Some(pem.path().to_owned());
    assert_eq!(with(MINUTE, known, &uri), Ok("x".to_owned()));
    let (uri, _) = secure_server(answer);
    let refused = with(MINUTE, Some(pem.path().to_owned()), &uri).unwrap_err();
    assert!(refused.starts_with("TLS: "), "{refused}");
    let (uri, pem) = secure_server("HTTP/1.1 302 Found\r\nLocation: http://localhost/\r\n\r\n");
    let refused = with(MINUTE, Some(pem.path().to_owned()), &uri).unwrap_err();
    assert_eq!(refused, "a redirect from https to http is refused");
}

#[test]
fn resumptions_are_bounded() {
    let none = || sends("HTTP/1.1 200 OK\r\nETag: \"1\"\r\nContent-Length: 6\r\n\r\n");
    let (uri, _requests) = server((0..=RESUMPTIONS_MAX).map(|_| none()).collect());
    assert_eq!(
        download(&uri),
        Err("the connection broke 6 times".to_owned())
    );
}
