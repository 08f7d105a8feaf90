//! An HTTP client for measurements: pages, pipelined calls, event streams, and a framework's
//! scheduler as a client in another language has it.
//!
//! One connection at a time, each driven by its own task. Neither redirects nor retries.

use std::cell::Cell;
use std::collections::VecDeque;
use std::net::SocketAddr;
use std::rc::Rc;
use std::time::Duration;

use http_body_util::{BodyExt, Full};
use hyper::body::{Bytes, Incoming};
use hyper::client::conn::http1::{self, SendRequest};
use hyper::header::{ACCEPT, CACHE_CONTROL, CONTENT_TYPE, HOST};
use hyper::http::request::Builder;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use protocol::{Filters, FrameworkInfo, OfferId, Operation};
use runtime::Clock;
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpSocket, TcpStream};
use tokio::sync::watch;
use v1::form::STREAM_ID;
use v1::recordio::Decoder;
use v1::schema::scheduler::{
    Call, CallAccept, CallAcknowledge, CallDecline, CallSubscribe, CallType, Event, EventType,
};
use v1::schema::{FrameworkID, OfferID, TaskStatus};
use v1::{Form, Limits, Message};

use super::Result;

/// The path of schedulers' calls.
pub const SCHEDULER: &str = "/api/v1/scheduler";
/// Bytes of the largest event.
const EVENT_MAX: usize = 64 << 20;
/// Time for reading a stream that does not end, and for [`status`].
const PATIENCE: Duration = Duration::from_secs(5);

/// A connection to one address.
pub struct Connection {
    host: String,
    send: SendRequest<Full<Bytes>>,
}

impl Connection {
    /// Connects to `host:port`.
    pub async fn open(address: &str) -> Result<Self> {
        Self::over(TcpStream::connect(address).await?, address).await
    }

    /// The same with a receive buffer of this many bytes, which the kernel doubles.
    pub async fn with_buffer(address: &str, bytes: u32) -> Result<Self> {
        let socket = TcpSocket::new_v4()?;
        socket.set_recv_buffer_size(bytes)?;
        let to: SocketAddr = address.parse()?;
        Self::over(socket.connect(to).await?, address).await
    }

    async fn over(stream: TcpStream, address: &str) -> Result<Self> {
        stream.set_nodelay(true)?;
        let (send, connection) = http1::handshake(TokioIo::new(stream)).await?;
        tokio::task::spawn_local(async move {
            let _ = connection.await; // Requests get an error when it ends.
        });
        let host = address.to_owned();
        Ok(Self { host, send })
    }

    /// The whole body of a page, in JSON.
    pub async fn get(&mut self, path: &str) -> Result<Bytes> {
        let reply = self.ask(Method::GET, path, Form::Json, None).await?;
        Ok(reply.into_body().collect().await?.to_bytes())
    }

    /// The whole reply to a call.
    pub async fn call(&mut self, path: &str, form: Form, call: &dyn Message) -> Result<Bytes> {
        let reply = self.ask(Method::POST, path, form, Some(call)).await?;
        Ok(reply.into_body().collect().await?.to_bytes())
    }

    /// The event stream that answers a call.
    pub async fn subscribe(
        mut self,
        path: &str,
        form: Form,
        call: &dyn Message,
    ) -> Result<Subscription> {
        let reply = self.ask(Method::POST, path, form, Some(call)).await?;
        let id = reply.headers().get(STREAM_ID);
        Ok(Subscription {
            id: id.map_or(Ok(""), |id| id.to_str())?.to_owned(),
            form,
            body: reply.into_body(),
            decoder: Decoder::new(EVENT_MAX),
            records: VecDeque::new(),
            _connection: self,
        })
    }

    async fn send(&mut self, request: Builder, body: Vec<u8>) -> Result<Response<Incoming>> {
        let request = request.header(HOST, &self.host);
        self.send.ready().await?;
        let reply = self
            .send
            .send_request(request.body(Full::new(body.into()))?);
        Ok(reply.await?)
    }

    async fn ask(
        &mut self,
        method: Method,
        path: &str,
        form: Form,
        call: Option<&dyn Message>,
    ) -> Result<Response<Incoming>> {
        let mut request = Request::builder()
            .method(method)
            .uri(path)
            .header(ACCEPT, form.media_type());
        if call.is_some() {
            request = request.header(CONTENT_TYPE, form.media_type());
        }
        let body = call.map_or_else(Vec::new, |call| form.write(call));
        let reply = self.send(request, body).await?;
        match reply.status() {
            StatusCode::OK | StatusCode::ACCEPTED => Ok(reply),
            status => {
                let problem = reply.into_body().collect().await?.to_bytes();
                let problem = String::from_utf8_lossy(&problem);
                Err(format!("HTTP: {path}: {status}: {problem}").into())
            }
        }
    }
}

/// The status of this page at `address`; `None` if there is no reply within a second.
pub async fn status(clock: &Clock, address: &str, path: &str) -> Option<u16> {
    let ask = async {
        let mut connection = Connection::open(address).await?;
        // Without a cached copy, so that a follower redirects instead of showing its mirror.
        let request = Request::builder().uri(path);
        let request = request.header(CACHE_CONTROL, "no-cache");
        connection.send(request, Vec::new()).await
    };
    let reply = clock.timeout(Duration::from_secs(1), ask).await.ok()?;
    reply.ok().map(|reply| reply.status().as_u16())
}

/// Pipelined calls (HTTP/1.1), as Mesos' own library sends them.
pub struct Calls {
    head: String,
    form: Form,
    write: OwnedWriteHalf,
    sent: u64,
    replies: watch::Receiver<Replies>,
}

#[derive(Default)]
struct Replies {
    /// Number of replies with status 202.
    accepted: u64,
    /// The first other reply, or the reason why the connection ended.
    problem: Option<String>,
}

impl Calls {
    /// Connects to `path` at `host:port`, for this stream.
    pub async fn open(address: &str, path: &str, form: Form, stream: &str) -> Result<Self> {
        let connection = TcpStream::connect(address).await?;
        connection.set_nodelay(true)?;
        let (read, write) = connection.into_split();
        let (send, replies) = watch::channel(Replies::default());
        tokio::task::spawn_local(async move {
            let problem = answers(read, || send.send_modify(|replies| replies.accepted += 1)).await;
            send.send_modify(|replies| replies.problem = Some(problem));
        });
        let media = form.media_type();
        let head = format!(
            "POST {path} HTTP/1.1\r\nhost: {address}\r\ncontent-type: {media}\r\naccept: {media}\r\n{STREAM_ID}: {stream}\r\ncontent-length: "
        );
        Ok(Self {
            head,
            form,
            write,
            sent: 0,
            replies,
        })
    }

    /// Sends a call.
    pub async fn send(&mut self, call: &dyn Message) -> Result {
        self.unrefused()?;
        let body = self.form.write(call);
        let mut request = format!("{}{}\r\n\r\n", self.head, body.len()).into_bytes();
        request.extend(body);
        self.sent += 1;
        Ok(self.write.write_all(&request).await?)
    }

    /// Sends a call and waits until it and all earlier ones are accepted.
    pub async fn accepted(&mut self, call: &dyn Message) -> Result {
        self.send(call).await?;
        let sent = self.sent;
        let done = |replies: &Replies| replies.accepted >= sent || replies.problem.is_some();
        // The sender is dropped only after a problem.
        let _ = self.replies.wait_for(done).await;
        self.unrefused()
    }

    fn unrefused(&self) -> Result {
        match &self.replies.borrow().problem {
            Some(problem) => Err(format!("HTTP: {problem}").into()),
            None => Ok(()),
        }
    }
}

/// Reads replies while they are 202 without a body, and counts each. Returns the first other one,
/// or the reason why the connection ended.
async fn answers(read: OwnedReadHalf, mut accepted: impl FnMut()) -> String {
    let mut lines = BufReader::new(read).lines();
    let mut is_status = true;
    loop {
        match lines.next_line().await {
            Ok(Some(line)) if is_status && !line.contains(" 202 ") => return line,
            Ok(Some(line)) => {
                if is_status {
                    accepted();
                }
                is_status = line.is_empty();
            }
            Ok(None) => return "the connection of the calls has ended".to_owned(),
            Err(error) => return error.to_string(),
        }
    }
}

/// An event stream. It is read only on demand.
pub struct Subscription {
    /// Stream id for later calls; empty if streams have none.
    pub id: String,
    form: Form,
    body: Incoming,
    decoder: Decoder,
    records: VecDeque<Bytes>,
    _connection: Connection,
}

impl Subscription {
    /// The next event.
    pub async fn next<M: Message + Default>(&mut self) -> Result<M> {
        loop {
            if let Some(record) = self.records.pop_front() {
                return Ok(self.form.read(&record, Limits::default())?);
            }
            let piece = self.piece().await.ok_or("the stream has ended")?;
            let mut piece = &piece[..];
            while let Some(record) = self.decoder.next(&mut piece)? {
                self.records.push_back(record);
            }
        }
    }

    /// The next bytes; `None` after the end.
    async fn piece(&mut self) -> Option<Bytes> {
        let frame = self.body.frame().await?.ok()?;
        Some(frame.into_data().unwrap_or_default())
    }

    /// Reads everything from now on. Returns a counter of the bytes.
    pub fn follow(mut self) -> Rc<Cell<u64>> {
        let received = Rc::new(Cell::new(0));
        let count = received.clone();
        tokio::task::spawn_local(async move {
            while let Some(piece) = self.piece().await {
                count.set(count.get() + piece.len() as u64);
            }
        });
        received
    }

    /// Reads the rest, up to the end of the stream or for [`PATIENCE`].
    pub async fn rest(mut self) -> Vec<u8> {
        let mut rest = Vec::new();
        let read = async {
            while let Some(piece) = self.piece().await {
                rest.extend_from_slice(&piece);
            }
        };
        let _ = Clock::real().timeout(PATIENCE, read).await; // The stream may continue.
        rest
    }
}

/// The call with which a framework subscribes.
pub fn subscribe(info: &FrameworkInfo) -> Call {
    Call {
        r#type: Some(CallType::Subscribe),
        framework_id: info.id.as_ref().map(FrameworkID::from),
        subscribe: Some(Box::new(CallSubscribe {
            framework_info: info.into(),
            ..CallSubscribe::default()
        })),
        ..Call::default()
    }
}

/// A subscribed framework: an event stream, and calls on a second connection.
pub struct HttpScheduler {
    events: Subscription,
    calls: Calls,
    framework_id: FrameworkID,
}

impl HttpScheduler {
    /// Subscribes this framework with the master at `address`.
    pub async fn subscribe(address: &str, form: Form, info: &FrameworkInfo) -> Result<Self> {
        let connection = Connection::open(address).await?;
        let mut events = connection
            .subscribe(SCHEDULER, form, &subscribe(info))
            .await?;
        let first: Event = events.next().await?;
        let subscribed = first.subscribed.ok_or("no SUBSCRIBED begins the stream")?;
        let calls = Calls::open(address, SCHEDULER, form, &events.id).await?;
        Ok(Self {
            events,
            calls,
            framework_id: subscribed.framework_id,
        })
    }

    /// The next event that is not a heartbeat.
    pub async fn next(&mut self) -> Result<Event> {
        loop {
            let event: Event = self.events.next().await?;
            match event.r#type {
                Some(EventType::Heartbeat) => {}
                Some(EventType::Error) => {
                    let message = event.error.map(|error| error.message);
                    return Err(message.unwrap_or_default().into());
                }
                _ => return Ok(event),
            }
        }
    }

    /// Accepts an offer.
    pub async fn accept(
        &mut self,
        offer: &OfferId,
        operation: &Operation,
        filters: &Filters,
    ) -> Result {
        let accept = CallAccept {
            offer_ids: vec![offer.into()],
            operations: vec![operation.into()],
            filters: Some(filters.into()),
        };
        let accept = Some(Box::new(accept));
        self.send(CallType::Accept, |call| call.accept = accept)
            .await
    }

    /// Declines offers.
    pub async fn decline(&mut self, offers: Vec<OfferID>, filters: &Filters) -> Result {
        let decline = Some(CallDecline {
            offer_ids: offers,
            filters: Some(filters.into()),
        });
        self.send(CallType::Decline, |call| call.decline = decline)
            .await
    }

    /// Acknowledges a status, if it requires that.
    pub async fn acknowledge(&mut self, status: &TaskStatus) -> Result {
        let (Some(uuid), Some(agent_id)) = (&status.uuid, &status.agent_id) else {
            return Ok(());
        };
        let acknowledge = Some(Box::new(CallAcknowledge {
            agent_id: agent_id.clone(),
            task_id: status.task_id.clone(),
            uuid: uuid.clone(),
        }));
        self.send(CallType::Acknowledge, |call| call.acknowledge = acknowledge)
            .await
    }

    async fn send(&mut self, call_type: CallType, fill: impl FnOnce(&mut Call)) -> Result {
        let mut call = Call {
            r#type: Some(call_type),
            framework_id: Some(self.framework_id.clone()),
            ..Call::default()
        };
        fill(&mut call);
        self.calls.send(&call).await
    }
}
