//! Members: a master or an agent on a thread of its own, with its own node, socket and certificate.
//!
//! A member is started, runs until it is stopped or falls, and says how. What it does meanwhile is not known here.

use std::future::Future;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::thread::JoinHandle;
use std::time::Duration;

use futures_util::future::LocalBoxFuture;
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use runtime::Node;
use tokio::net::TcpListener;
use tokio::sync::oneshot;
use transport::{Endpoint, Identity, Options, Renewal};

use crate::failure::{Failure, Outcome, chain};
use crate::on_this_thread;

/// How often a pair of free ports is looked for.
const PORT_TRIES: u32 = 32;
/// How long a start waits for the address of its host's name.
const LOOK_UP_PATIENCE: Duration = Duration::from_secs(2);

/// A service that has started on the present thread.
pub struct Running {
    /// Completes, with the reason, when the service has ended by itself.
    pub ended: LocalBoxFuture<'static, String>,
    /// Ends it in good order.
    pub stop: LocalBoxFuture<'static, ()>,
    /// Changes the certificate it shows, if it has one.
    pub renewal: Option<Renewal>,
}

impl Running {
    /// Runs until it ends by itself (a failure, with the reason) or `stop` completes (then it is ended in good order).
    pub async fn until(self, stop: impl Future) -> Outcome {
        let stop = std::pin::pin!(stop);
        let outcome = match futures_util::future::select(self.ended, stop).await {
            futures_util::future::Either::Left((reason, _)) => Err(Failure::new(reason)),
            futures_util::future::Either::Right(_) => Ok(()),
        };
        self.stop.await;
        outcome
    }
}

/// A service on a thread of its own. Dropping it stops it and waits for its end.
pub struct Member {
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<Outcome>>,
}

/// A member that has not said yet that it runs.
pub struct Starting<T> {
    member: Member,
    started: oneshot::Receiver<Outcome<T>>,
}

impl Member {
    /// Begins to start a service on a new thread; `start` gives what others need to know of it.
    pub fn begin<T, F>(
        name: &str,
        start: impl FnOnce() -> F + Send + 'static,
    ) -> Outcome<Starting<T>>
    where
        T: Send + 'static,
        F: Future<Output = Outcome<(T, Running)>>,
    {
        let (stop, stopped) = oneshot::channel::<()>();
        let (say, started) = oneshot::channel();
        let run = async move || match start().await {
            Ok((known, running)) => {
                let _ = say.send(Ok(known)); // Whoever started it may have given up: then `stopped` completes too.
                running.until(stopped).await
            }
            Err(failure) => {
                let _ = say.send(Err(failure)); // As above.
                Ok(())
            }
        };
        let body = move || on_this_thread(run()).and_then(|outcome| outcome);
        let thread = std::thread::Builder::new()
            .name(name.to_owned())
            .spawn(body);
        let thread = thread.map_err(|error| Failure::because("cannot start a thread", &error))?;
        Ok(Starting {
            member: Self {
                stop: Some(stop),
                thread: Some(thread),
            },
            started,
        })
    }

    /// Whether it has ended by itself.
    pub fn has_ended(&self) -> bool {
        self.thread.as_ref().is_none_or(JoinHandle::is_finished)
    }

    /// Asks it to stop in good order. It may take a while, so that others are asked meanwhile.
    pub fn begin_stop(&mut self) {
        drop(self.stop.take());
    }

    /// Stops it in good order and waits for its end; tells if it had fallen before.
    pub fn stop(mut self) -> Outcome {
        self.finish()
    }

    fn finish(&mut self) -> Outcome {
        drop(self.stop.take());
        match self.thread.take().map(JoinHandle::join) {
            None => Ok(()),
            Some(Ok(outcome)) => outcome,
            Some(Err(_)) => Err(Failure::new(
                "a thread of the cluster fell; its log line says why",
            )),
        }
    }
}

impl Drop for Member {
    fn drop(&mut self) {
        let _ = self.finish(); // Who wants to know calls `stop`.
    }
}

impl<T> Starting<T> {
    /// Waits until the member runs, or has failed to.
    pub async fn wait(self) -> Outcome<(Member, T)> {
        match self.started.await {
            Ok(started) => started.map(|known| (self.member, known)),
            Err(_) => {
                self.member.stop()?;
                Err(Failure::new(
                    "a thread of the cluster ended before it had started",
                ))
            }
        }
    }
}

/// The sockets of a service: HTTP over TCP and QUIC over UDP on one port.
pub struct Sockets {
    /// For messages.
    pub endpoint: Endpoint,
    /// For HTTP.
    pub listener: TcpListener,
    /// Where both are.
    pub address: SocketAddr,
}

/// Opens both sockets of a service; port 0 takes any port that is free for both.
pub async fn open(
    node: &Node,
    identity: &Identity,
    listen: SocketAddr,
    keep_alive: Duration,
) -> Outcome<Sockets> {
    let (ip, port) = (listen.ip(), listen.port());
    let options = Options::default().with_keep_alive(keep_alive);
    let mut tries = if port == 0 { PORT_TRIES } else { 1 };
    loop {
        tries -= 1;
        let taken = |error: &dyn std::error::Error| {
            Failure::new(format!("cannot listen on {ip}:{port}: {}", chain(error)))
                .next("is another one running there? choose a port with --port")
        };
        let listener = TcpListener::bind((ip, port))
            .await
            .map_err(|error| taken(&error))?;
        let address = listener.local_addr().map_err(|error| taken(&error))?;
        match Endpoint::bind(node.clone(), identity, address, options.clone()) {
            Ok(endpoint) => {
                return Ok(Sockets {
                    endpoint,
                    listener,
                    address,
                });
            }
            Err(error) if tries == 0 => return Err(taken(&error)),
            Err(_) => {}
        }
    }
}

/// A port that was free a moment ago, for TCP and UDP.
pub fn free_port() -> Outcome<u16> {
    let taken = |error: std::io::Error| Failure::because("no free port", &error);
    let socket = std::net::UdpSocket::bind("127.0.0.1:0").map_err(taken)?;
    let port = socket.local_addr().map_err(taken)?.port();
    std::net::TcpListener::bind(("127.0.0.1", port)).map_err(taken)?;
    Ok(port)
}

/// A service's pages, while they are served.
pub struct Pages {
    stop: oneshot::Sender<()>,
    served: LocalBoxFuture<'static, ()>,
}

/// How long a page under way may take when the service stops.
const PAGES_PATIENCE: Duration = Duration::from_secs(2);

/// Serves pages and these streams, on the thread that the node's placement has for `http`.
pub fn serve(
    node: &Node,
    listener: TcpListener,
    routes: axum::Router,
    options: http::HttpOptions,
    streams: http::api::Streams,
) -> Outcome<Pages> {
    let cannot = |error: &dyn std::error::Error| Failure::because("cannot serve pages", error);
    let (stop, stopped) = oneshot::channel::<()>();
    // Another thread has another reactor, which must come to know the listener.
    let listener = listener.into_std().map_err(|error| cannot(&error))?;
    let serving_node = node.clone();
    let serving = move || async move {
        let until = async move {
            let _ = stopped.await; // Told to stop, or let go of.
            streams.end_all();
        };
        let served = match TcpListener::from_std(listener) {
            Ok(listener) => http::serve(&serving_node, listener, routes, options, until).await,
            Err(error) => Err(error),
        };
        if let Err(error) = served {
            tracing::error!(%error, "pages are no longer served");
        }
    };
    let served = node.run_at("http", serving);
    let served = served.map_err(|error| cannot(&error))?;
    Ok(Pages {
        stop,
        served: Box::pin(async move {
            if let Err(error) = served.await {
                tracing::error!(%error, "pages are no longer served");
            }
        }),
    })
}

impl Pages {
    /// Finishes what is under way, for a while.
    pub async fn stop(self, clock: &runtime::Clock) {
        drop(self.stop);
        let _ = clock.timeout(PAGES_PATIENCE, self.served).await; // What is later is cut off.
    }
}

/// Lets this process open as many files and sockets as it may: each connection over HTTP is one. Not for what starts programs of others, which
/// inherit it and may not expect so many.
pub fn raise_open_files() -> Outcome {
    let failed = |error: nix::Error| Failure::because("the limit of open files", &error);
    let (_, most) = getrlimit(Resource::RLIMIT_NOFILE).map_err(failed)?;
    setrlimit(Resource::RLIMIT_NOFILE, most, most).map_err(failed)
}

/// The host that others are told: what the operator said, the address listened on, or this machine's name.
pub fn hostname(given: Option<&str>, ip: IpAddr) -> String {
    match given {
        Some(name) => name.to_owned(),
        None if !ip.is_unspecified() => ip.to_string(),
        None => machine_name(),
    }
}

/// The address that belongs to what others are told: the one listened on, or else the host's, looked up for a short while.
pub async fn ipv4(node: &Node, ip: IpAddr, hostname: &str) -> Option<Ipv4Addr> {
    if let IpAddr::V4(ip) = ip
        && !ip.is_unspecified()
    {
        return Some(ip);
    }
    let found = tokio::net::lookup_host((hostname, 0));
    let found = node.clock().timeout(LOOK_UP_PATIENCE, found).await.ok()?;
    found.ok()?.find_map(|address| match address.ip() {
        IpAddr::V4(ip) => Some(ip),
        IpAddr::V6(_) => None,
    })
}

/// This machine's name, or `localhost`.
pub fn machine_name() -> String {
    let name = nix::unistd::gethostname()
        .ok()
        .and_then(|name| name.into_string().ok());
    name.filter(|name| !name.is_empty())
        .unwrap_or_else(|| "localhost".to_owned())
}

/// A node name from parts: characters that certificates do not carry become dashes.
pub fn node_name(parts: &[&str]) -> String {
    let name = parts.join("-");
    let plain = |c: char| {
        if c.is_ascii_alphanumeric() || matches!(c, '.' | '_') {
            c
        } else {
            '-'
        }
    };
    name.chars().map(plain).take(128).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_member_runs_until_it_is_stopped_and_tells_when_it_fell() {
        fn never() -> LocalBoxFuture<'static, String> {
            Box::pin(std::future::pending())
        }
        let starting = Member::begin("m", || async {
            Ok((
                7,
                Running {
                    ended: never(),
                    stop: Box::pin(async {}),
                    renewal: None,
                },
            ))
        })
        .unwrap();
        let (member, known) = on_this_thread(starting.wait()).unwrap().unwrap();
        assert_eq!(known, 7);
        assert!(!member.has_ended());
        member.stop().unwrap();

        let fell = || async {
            Ok((
                (),
                Running {
                    ended: Box::pin(async { "no disk".to_owned() }),
                    stop: Box::pin(async {}),
                    renewal: None,
                },
            ))
        };
        let (member, ()) = on_this_thread(Member::begin("m", fell).unwrap().wait())
            .unwrap()
            .unwrap();
        assert_eq!(member.stop().unwrap_err().to_string(), "no disk");
    }

    #[test]
    fn a_member_that_cannot_start_says_why() {
        let starting =
            Member::begin::<(), _>("m", || async { Err(Failure::new("port taken")) }).unwrap();
        let failure = on_this_thread(starting.wait()).unwrap().err().unwrap();
        assert_eq!(failure.to_string(), "port taken");
    }

    #[test]
    fn names_of_nodes_have_only_what_certificates_carry() {
        assert_eq!(
            node_name(&["agent", "my host", "5051"]),
            "agent-my-host-5051"
        );
    }
}
