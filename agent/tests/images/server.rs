//! A registry in this process, honest or hostile.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex};

use super::builder::*;

/// A request: method and path, and headers in lower case.
#[derive(Clone, Debug)]
pub struct Request {
    pub path: String,
    pub headers: Vec<String>,
}

impl Request {
    pub fn has(&self, header: &str) -> bool {
        self.headers.iter().any(|own| own == header)
    }

    pub fn range(&self) -> Option<usize> {
        let value = self
            .headers
            .iter()
            .find_map(|own| own.strip_prefix("range: bytes="))?;
        value.strip_suffix('-')?.parse().ok()
    }
}

/// An answer.
#[derive(Clone, Debug, Default)]
pub struct Answer {
    pub status: u16,
    pub headers: Vec<String>,
    pub body: Vec<u8>,
    pub then: Then,
}

/// How a body ends.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Then {
    #[default]
    Whole,
    /// The connection breaks after so many bytes.
    Break(usize),
    /// Nothing comes after so many bytes.
    Stall(usize),
    /// The body is repeated until the client has had enough.
    Repeat,
}

impl Answer {
    pub fn of(status: u16) -> Self {
        Self {
            status,
            ..Self::default()
        }
    }

    pub fn with(mut self, header: impl Into<String>) -> Self {
        self.headers.push(header.into());
        self
    }
}

/// Changes the honest answer to a request. Gets the number of the earlier requests of its path.
pub type Fault = Box<dyn Fn(&Request, usize, Answer) -> Answer + Send + Sync>;

/// A running registry.
pub struct Registry {
    /// `HOST:PORT`.
    pub host: String,
    state: Arc<State>,
}

struct State {
    files: Mutex<BTreeMap<String, Vec<u8>>>,
    fault: Fault,
    requests: Mutex<Vec<Request>>,
    tls: Option<Arc<rustls::ServerConfig>>,
}

impl Registry {
    /// Serves without faults.
    pub fn honest() -> Self {
        Self::with_fault(|_, _, answer| answer)
    }

    /// Serves with a fault.
    pub fn with_fault(
        fault: impl Fn(&Request, usize, Answer) -> Answer + Send + Sync + 'static,
    ) -> Self {
        Self::start(Box::new(fault), None)
    }

    /// Serves over TLS. Returns also its certificate, a PEM text.
    pub fn secure() -> (Self, String) {
        let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
        let key = rustls_pki_types::PrivatePkcs8KeyDer::from(made.signing_key.serialize_der());
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = rustls::ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(vec![made.cert.der().clone()], key.into())
            .unwrap();
        let registry = Self::start(Box::new(|_, _, answer| answer), Some(Arc::new(config)));
        (registry, made.cert.pem())
    }

    fn start(fault: Fault, tls: Option<Arc<rustls::ServerConfig>>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let host = format!("localhost:{}", listener.local_addr().unwrap().port());
        let state = Arc::new(State {
            files: Mutex::default(),
            fault,
            requests: Mutex::default(),
            tls,
        });
        let serving = state.clone();
        // Ends with the test's process.
        std::thread::spawn(move || {
            for connection in listener.incoming() {
                let (state, connection) = (serving.clone(), connection.unwrap());
                std::thread::spawn(move || state.serve(connection));
            }
        });
        Self { host, state }
    }

    /// Serves an image under a tag.
    pub fn add(&self, repository: &str, tag: &str, image: &BuiltImage) {
        let mut files = self.state.files.lock().unwrap();
        for (digest, blob) in &image.blobs {
            files.insert(format!("/v2/{repository}/blobs/{digest}"), blob.clone());
        }
        let manifest = image.blob(&image.manifest).to_vec();
        for name in [tag, &image.manifest.to_string()] {
            files.insert(
                format!("/v2/{repository}/manifests/{name}"),
                manifest.clone(),
            );
        }
    }

    /// Serves any file.
    pub fn add_file(&self, path: &str, content: Vec<u8>) {
        let mut files = self.state.files.lock().unwrap();
        files.insert(path.to_owned(), content);
    }

    /// The paths of all requests until now.
    pub fn paths(&self) -> Vec<String> {
        let requests = self.state.requests.lock().unwrap();
        requests
            .iter()
            .map(|request| request.path.clone())
            .collect()
    }

    /// How many requests had a path with this text.
    pub fn count(&self, text: &str) -> usize {
        self.paths()
            .iter()
            .filter(|path| path.contains(text))
            .count()
    }

    /// All requests until now.
    pub fn requests(&self) -> Vec<Request> {
        self.state.requests.lock().unwrap().clone()
    }
}

impl State {
    fn serve(&self, mut connection: TcpStream) {
        let Some(config) = self.tls.clone() else {
            let _ = self.answer(&mut connection);
            return;
        };
        let mut tls = rustls::ServerConnection::new(config).unwrap();
        // A client that does not trust it ends the connection here.
        let _ = self.answer(&mut rustls::Stream::new(&mut tls, &mut connection));
    }

    fn answer(&self, connection: &mut (impl Read + Write)) -> std::io::Result<()> {
        let mut lines = BufReader::new(&mut *connection).lines();
        let first = lines.next().transpose()?.unwrap_or_default();
        let path = first.split(' ').nth(1).unwrap_or_default().to_owned();
        let mut headers = Vec::new();
        while let Some(line) = lines.next().transpose()?.filter(|line| !line.is_empty()) {
            let (name, value) = line.split_once(':').unwrap_or((&line, ""));
            headers.push(format!("{}: {}", name.to_lowercase(), value.trim()));
        }
        drop(lines);
        let request = Request { path, headers };
        let earlier = {
            let mut requests = self.requests.lock().unwrap();
            requests.push(request.clone());
            requests
                .iter()
                .filter(|other| other.path == request.path)
                .count()
                - 1
        };
        let answer = (self.fault)(&request, earlier, self.honest(&request));
        let length = answer.body.len();
        let mut head = format!("HTTP/1.1 {} X\r\nConnection: close\r\n", answer.status);
        if answer.then != Then::Repeat {
            head.push_str(&format!("Content-Length: {length}\r\n"));
        }
        for header in &answer.headers {
            head.push_str(header);
            head.push_str("\r\n");
        }
        head.push_str("\r\n");
        connection.write_all(head.as_bytes())?;
        match answer.then {
            Then::Whole => connection.write_all(&answer.body)?,
            Then::Break(count) => connection.write_all(&answer.body[..count])?,
            Then::Stall(count) => {
                connection.write_all(&answer.body[..count])?;
                connection.flush()?;
                connection.read_exact(&mut [0])?;
            }
            // Terminates when the client closes the connection.
            Then::Repeat => loop {
                connection.write_all(&answer.body)?;
            },
        }
        connection.flush()
    }

    fn honest(&self, request: &Request) -> Answer {
        let files = self.files.lock().unwrap();
        let Some(content) = files.get(&request.path) else {
            return Answer::of(404);
        };
        match request.range() {
            Some(start) if start < content.len() => {
                let (last, total) = (content.len() - 1, content.len());
                Answer {
                    body: content[start..].to_vec(),
                    ..Answer::of(206).with(format!("Content-Range: bytes {start}-{last}/{total}"))
                }
            }
            _ => Answer {
                body: content.clone(),
                ..Answer::of(200).with(format!("Content-Type: {MANIFEST}"))
            },
        }
    }
}
