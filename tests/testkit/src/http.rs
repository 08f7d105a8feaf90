//! A blocking HTTP client on plain sockets: pages, calls of the v1 APIs, and event streams in
//! RecordIO. Every wait has a bound.
//!
//! It is generic over the call and event messages, and can send invalid bodies. Tests that send
//! malformed requests use sockets of their own.

use std::collections::VecDeque;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::marker::PhantomData;
use std::net::TcpStream;

use v1::recordio::Decoder;
use v1::{Form, Limits, Message};

use crate::waits::{Deadline, PATIENCE};

/// Maximum size of an event.
const EVENT_MAX: usize = 16 << 20;

/// Fetches a page; returns status line and body.
pub fn get(port: u16, path: &str) -> (String, String) {
    of_status(get_with(port, path, "Accept: */*"))
}

/// The JSON of a page.
#[track_caller]
pub fn page(port: u16, path: &str) -> serde_json::Value {
    let (status, text) = get(port, path);
    assert!(status.contains(" 200 "), "{path}: {status} {text}");
    serde_json::from_str(&text).unwrap_or_else(|error| panic!("{path}: {error}: {text}"))
}

/// Fetches a page with one more header; returns head and body.
pub fn get_with(port: u16, path: &str, header: &str) -> (String, String) {
    let stream = TcpStream::connect(("127.0.0.1", port)).expect("the port answers");
    get_over(stream, path, header).expect("the answer is read")
}

/// Like [`get_with`], over this connection, which may break.
pub fn get_over(stream: TcpStream, path: &str, header: &str) -> io::Result<(String, String)> {
    exchange(stream, "GET", path, &format!("{header}\r\n"), "")
}

/// Sends a body as `curl -d` does; returns status line and body of the answer.
pub fn send(port: u16, method: &str, path: &str, body: &str) -> (String, String) {
    of_status(send_whole(port, method, path, body))
}

/// Like [`send`]; returns head and body of the answer.
pub fn send_whole(port: u16, method: &str, path: &str, body: &str) -> (String, String) {
    request(port, method, path, "", body)
}

/// Like [`send_whole`], with one more header unless it is empty.
pub fn request(port: u16, method: &str, path: &str, header: &str, body: &str) -> (String, String) {
    let stream = TcpStream::connect(("127.0.0.1", port)).expect("the port answers");
    let length = body.len();
    let mut headers =
        format!("Content-Type: application/x-www-form-urlencoded\r\nContent-Length: {length}\r\n");
    if !header.is_empty() {
        headers += &format!("{header}\r\n");
    }
    exchange(stream, method, path, &headers, body).expect("the answer is read")
}

/// The value of a header; `name` is in lower case.
pub fn header(head: &str, name: &str) -> Option<String> {
    let mut lines = head.lines().filter_map(|line| line.split_once(':'));
    let line = lines.find(|(key, _)| key.eq_ignore_ascii_case(name));
    line.map(|(_, value)| value.trim().to_owned())
}

fn of_status((head, body): (String, String)) -> (String, String) {
    (head.lines().next().unwrap_or_default().to_owned(), body)
}

fn exchange(
    stream: TcpStream,
    method: &str,
    path: &str,
    headers: &str,
    body: &str,
) -> io::Result<(String, String)> {
    let head = format!(
        "{method} {path} HTTP/1.1\r\nHost: 127.0.0.1\r\n{headers}Connection: close\r\n\r\n"
    );
    let (mut reader, head) = begin(stream, &head, body.as_bytes())?;
    let answer = Answer::read(&mut reader, head)?;
    Ok((answer.head.trim_end().to_owned(), answer.text()))
}

/// Sends a request and reads the head of the answer.
fn begin(mut stream: TcpStream, head: &str, body: &[u8]) -> io::Result<(Connection, String)> {
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.write_all(head.as_bytes())?;
    stream.write_all(body)?;
    let mut reader = BufReader::new(stream);
    let head = read_head(&mut reader)?;
    Ok((reader, head))
}

/// The address, format and headers of calls.
#[derive(Clone, Debug)]
pub struct Endpoint {
    port: u16,
    path: String,
    form: Form,
    headers: Vec<(String, String)>,
}

impl Endpoint {
    /// A path of the service at this port of this machine, in JSON.
    pub fn new(port: u16, path: &str) -> Self {
        Self {
            port,
            path: path.to_owned(),
            form: Form::Json,
            headers: Vec::new(),
        }
    }

    /// Sets the format of calls and answers.
    pub fn form(mut self, form: Form) -> Self {
        self.form = form;
        self
    }

    /// Adds a header.
    pub fn header(mut self, name: &str, value: &str) -> Self {
        self.headers.push((name.to_owned(), value.to_owned()));
        self
    }

    /// Sends a call and reads the whole answer.
    pub fn call(&self, call: &dyn Message) -> Answer {
        self.post(self.form.media_type(), &self.form.write(call))
    }

    /// Sends any body with this content type and reads the whole answer.
    pub fn post(&self, content_type: &str, body: &[u8]) -> Answer {
        self.answer("POST", content_type, body)
    }

    /// Sends a GET, which is never a call, and reads the whole answer.
    pub fn get(&self) -> Answer {
        self.answer("GET", self.form.media_type(), b"")
    }

    /// Sends a call whose answer is a stream; any other answer is the error.
    pub fn stream<E: Message + Default>(&self, call: &dyn Message) -> Result<Events<E>, Answer> {
        let begun = self.begin("POST", self.form.media_type(), &self.form.write(call));
        let (mut reader, head) = begun.expect("an answer");
        if status(&head) != 200 {
            return Err(Answer::read(&mut reader, head).expect("a whole answer"));
        }
        Ok(Events {
            chunked: is_chunked(&head),
            head,
            reader,
            form: self.form,
            decoder: Decoder::new(EVENT_MAX),
            ready: VecDeque::new(),
            deadline: Deadline::of_a_test(),
            of: PhantomData,
        })
    }

    fn answer(&self, method: &str, content_type: &str, body: &[u8]) -> Answer {
        let begun = self.begin(method, content_type, body);
        let (mut reader, head) = begun.expect("an answer");
        Answer::read(&mut reader, head).expect("a whole answer")
    }

    fn begin(
        &self,
        method: &str,
        content_type: &str,
        body: &[u8],
    ) -> io::Result<(Connection, String)> {
        let accept = self.form.media_type();
        let mut head = format!(
            "{method} {} HTTP/1.1\r\nHost: 127.0.0.1:{}\r\nContent-Type: {content_type}\r\nContent-Length: {}\r\n",
            self.path,
            self.port,
            body.len()
        );
        if !self.headers.iter().any(|(name, _)| name == "Accept") {
            head += &format!("Accept: {accept}\r\n");
        }
        for (name, value) in &self.headers {
            head += &format!("{name}: {value}\r\n");
        }
        let stream = TcpStream::connect(("127.0.0.1", self.port))?;
        begin(stream, &(head + "\r\n"), body)
    }
}

type Connection = BufReader<TcpStream>;

fn read_head(reader: &mut Connection) -> io::Result<String> {
    let mut head = String::new();
    while !head.ends_with("\r\n\r\n") {
        if reader.read_line(&mut head)? == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
    }
    Ok(head)
}

fn status(head: &str) -> u16 {
    let status = head.split(' ').nth(1);
    status.and_then(|status| status.parse().ok()).unwrap_or(0)
}

fn is_chunked(head: &str) -> bool {
    header(head, "transfer-encoding").is_some_and(|how| how.eq_ignore_ascii_case("chunked"))
}

/// The next chunk of a body; empty at its end.
fn read_piece(reader: &mut Connection, chunked: bool) -> io::Result<Vec<u8>> {
    if !chunked {
        let piece = reader.fill_buf()?.to_vec();
        reader.consume(piece.len());
        return Ok(piece);
    }
    let mut length = String::new();
    reader.read_line(&mut length)?;
    let length = usize::from_str_radix(length.trim(), 16).map_err(io::Error::other)?;
    let mut piece = vec![0; length + 2];
    reader.read_exact(&mut piece)?;
    piece.truncate(length);
    Ok(piece)
}

/// A whole answer.
#[derive(Clone, Debug)]
pub struct Answer {
    /// The status line and the headers.
    pub head: String,
    /// Its status.
    pub status: u16,
    /// The body.
    pub body: Vec<u8>,
}

impl Answer {
    fn read(reader: &mut Connection, head: String) -> io::Result<Self> {
        let mut body = Vec::new();
        if let Some(length) = header(&head, "content-length") {
            body = vec![0; length.parse().map_err(io::Error::other)?];
            reader.read_exact(&mut body)?;
        } else if is_chunked(&head) {
            loop {
                let piece = read_piece(reader, true)?;
                if piece.is_empty() {
                    break;
                }
                body.extend_from_slice(&piece);
            }
        }
        let status = status(&head);
        Ok(Self { head, status, body })
    }

    /// The body as text.
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    /// The message in the body.
    pub fn message<M: Message + Default>(&self, form: Form) -> M {
        let read = form.read(&self.body, Limits::default());
        read.unwrap_or_else(|bad| panic!("{bad}: {} {}", self.head, self.text()))
    }
}

/// A stream of events. Dropping it closes the connection.
pub struct Events<E> {
    /// The status line and the headers of the answer.
    pub head: String,
    reader: Connection,
    chunked: bool,
    form: Form,
    decoder: Decoder,
    ready: VecDeque<E>,
    /// Bounds the whole test, because heartbeats never stop.
    deadline: Deadline,
    of: PhantomData<E>,
}

/// Ends when the stream has ended or broken. Panics after [`PATIENCE`] without an event.
impl<E: Message + Default> Iterator for Events<E> {
    type Item = E;

    fn next(&mut self) -> Option<E> {
        self.next_before("the end of its use")
    }
}

impl<E: Message + Default> Events<E> {
    /// The value of a header of the answer; `name` is in lower case.
    pub fn header(&self, name: &str) -> Option<String> {
        header(&self.head, name)
    }

    fn next_before(&mut self, what: &str) -> Option<E> {
        loop {
            self.deadline.check(what);
            if let Some(event) = self.ready.pop_front() {
                return Some(event);
            }
            let piece = match read_piece(&mut self.reader, self.chunked) {
                Ok(piece) if piece.is_empty() => return None,
                Ok(piece) => piece,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    panic!("no event within {PATIENCE:?}")
                }
                Err(_) => return None,
            };
            let mut rest = &piece[..];
            while let Some(record) = self.decoder.next(&mut rest).expect("RecordIO") {
                let event = self.form.read(&record, Limits::default());
                self.ready.push_back(event.expect("an event"));
            }
        }
    }

    /// The first event that `wanted` accepts; skips earlier ones. Panics when the stream ends
    /// before.
    pub fn wait<T>(&mut self, what: &str, mut wanted: impl FnMut(&E) -> Option<T>) -> T {
        loop {
            let Some(event) = self.next_before(what) else {
                panic!("the stream ended before {what}");
            };
            if let Some(found) = wanted(&event) {
                return found;
            }
        }
    }
}
