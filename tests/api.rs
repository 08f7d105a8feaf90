//! A blocking client of the v1 HTTP APIs: calls, and event streams in RecordIO. Every wait has a
//! bound.
//!
//! It is generic over the call and event messages, and can send invalid bodies.

use std::collections::VecDeque;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::marker::PhantomData;
use std::net::TcpStream;

use v1::recordio::Decoder;
use v1::{Form, Limits, Message};

use crate::support::{Deadline, PATIENCE, header};

/// Maximum size of an event.
const EVENT_MAX: usize = 16 << 20;

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
        let mut connection = TcpStream::connect(("127.0.0.1", self.port))?;
        connection.set_read_timeout(Some(PATIENCE))?;
        let accept = self.form.media_type();
        let mut request = format!(
            "{method} {} HTTP/1.1\r\nHost: 127.0.0.1:{}\r\nContent-Type: {content_type}\r\nContent-Length: {}\r\n",
            self.path,
            self.port,
            body.len()
        );
        if !self.headers.iter().any(|(name, _)| name == "Accept") {
            request += &format!("Accept: {accept}\r\n");
        }
        for (name, value) in &self.headers {
            request += &format!("{name}: {value}\r\n");
        }
        connection.write_all(request.as_bytes())?;
        connection.write_all(b"\r\n")?;
        connection.write_all(body)?;
        let mut reader = BufReader::new(connection);
        let head = read_head(&mut reader)?;
        Ok((reader, head))
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

impl<E: Message + Default> Events<E> {
    /// The value of a header of the answer; `name` is in lower case.
    pub fn header(&self, name: &str) -> Option<String> {
        header(&self.head, name)
    }

    /// The next event; `None` when the stream has ended or broken. Panics after [`PATIENCE`].
    pub fn next(&mut self) -> Option<E> {
        self.next_before("the end of its use")
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
