//! A service on its own thread: a master or an agent with its own node, socket and certificate.
//!
//! Handles start, stop and failure of a service, independent of its kind.
//!
//! | module | contents |
//! |---|---|
//! | `agent` | the verb `meros agent` |
//! | `expiry` | warnings about certificates that expire soon |
//! | `local` | a whole cluster in this process |
//! | `master` | the verb `meros master` |
//! | `modules` | `--modules` and `--modules_dir` |
//! | `reload` | certificates and access control files, read again without a restart |
//! | `signals` | SIGINT, SIGTERM, SIGUSR1 and SIGHUP as futures |
//! | `whitelist` | a file of hosts, read at the start and at each SIGHUP |

pub mod agent;
pub mod expiry;
pub mod images;
pub mod isolation;
pub mod local;
pub mod master;
pub mod modules;
pub mod reload;
pub mod signals;
pub mod whitelist;

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

use crate::on_this_thread;
use crate::output::error::{CliError, Outcome, chain};

/// The number of attempts to find a port that is free for TCP and UDP.
const PORT_TRIES: u32 = 32;
/// The time limit for resolving the host's name at start.
const LOOKUP_TIMEOUT: Duration = Duration::from_secs(2);

/// A service that runs on the present thread.
pub struct RunningService {
    /// Completes with the reason if the service ends by itself.
    pub ended: LocalBoxFuture<'static, String>,
    /// Shuts the service down gracefully.
    pub stop: LocalBoxFuture<'static, ()>,
    /// Replaces its certificate, if it has one.
    pub renewal: Option<Renewal>,
}

impl RunningService {
    /// Runs until the service ends by itself (an error with the reason) or `stop` completes (then
    /// it is shut down gracefully).
    pub async fn until(self, stop: impl Future) -> Outcome {
        let stop = std::pin::pin!(stop);
        let outcome = match futures_util::future::select(self.ended, stop).await {
            futures_util::future::Either::Left((reason, _)) => Err(CliError::new(reason)),
            futures_util::future::Either::Right(_) => Ok(()),
        };
        self.stop.await;
        outcome
    }
}

/// A service on its own thread. Dropping it stops the service and waits for its end.
pub struct ServiceThread {
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<Outcome>>,
}

/// A service that is starting.
pub struct Starting<T> {
    member: ServiceThread,
    started: oneshot::Receiver<Outcome<T>>,
}

impl ServiceThread {
    /// Starts a service on a new thread. The first part of `start`'s output is passed to
    /// [`Starting::wait`].
    pub fn begin<T, F>(
        name: &str,
        start: impl FnOnce() -> F + Send + 'static,
    ) -> Outcome<Starting<T>>
    where
        T: Send + 'static,
        F: Future<Output = Outcome<(T, RunningService)>>,
    {
        let (stop, stopped) = oneshot::channel::<()>();
        let (report, started) = oneshot::channel();
        let run = async move || match start().await {
            Ok((known, running)) => {
                let _ = report.send(Ok(known)); // the caller may have given up
                running.until(stopped).await
            }
            Err(failure) => {
                let _ = report.send(Err(failure)); // as above
                Ok(())
            }
        };
        let body = move || on_this_thread(run()).and_then(|outcome| outcome);
        let thread = std::thread::Builder::new()
            .name(name.to_owned())
            .spawn(body);
        let thread = thread.map_err(|error| CliError::because("cannot start a thread", &error))?;
        Ok(Starting {
            member: Self {
                stop: Some(stop),
                thread: Some(thread),
            },
            started,
        })
    }

    /// Whether the service has ended by itself.
    pub fn has_ended(&self) -> bool {
        self.thread.as_ref().is_none_or(JoinHandle::is_finished)
    }

    /// Requests a graceful stop without waiting, so that several services can stop in parallel.
    pub fn request_stop(&mut self) {
        drop(self.stop.take());
    }

    /// Stops the service gracefully and waits for its end. Returns its error if it had failed
    /// before.
    pub fn stop(mut self) -> Outcome {
        self.finish()
    }

    fn finish(&mut self) -> Outcome {
        drop(self.stop.take());
        match self.thread.take().map(JoinHandle::join) {
            None => Ok(()),
            Some(Ok(outcome)) => outcome,
            Some(Err(_)) => Err(CliError::new(
                "a thread of the cluster panicked; see its log line",
            )),
        }
    }
}

impl Drop for ServiceThread {
    fn drop(&mut self) {
        let _ = self.finish(); // callers that need the result use `stop`
    }
}

impl<T> Starting<T> {
    /// Waits until the service runs, or has failed to start.
    pub async fn wait(self) -> Outcome<(ServiceThread, T)> {
        match self.started.await {
            Ok(started) => started.map(|known| (self.member, known)),
            Err(_) => {
                self.member.stop()?;
                Err(CliError::new(
                    "a thread of the cluster ended during its start",
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
    /// The address of both.
    pub address: SocketAddr,
}

/// Opens both sockets of a service. Port 0 means any port that is free for both.
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
            CliError::new(format!("cannot listen on {ip}:{port}: {}", chain(error)))
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

/// A port that was just free for TCP and UDP.
pub fn free_port() -> Outcome<u16> {
    let taken = |error: std::io::Error| CliError::because("no free port", &error);
    let socket = std::net::UdpSocket::bind("127.0.0.1:0").map_err(taken)?;
    let port = socket.local_addr().map_err(taken)?.port();
    std::net::TcpListener::bind(("127.0.0.1", port)).map_err(taken)?;
    Ok(port)
}

/// A service's HTTP server.
pub struct Pages {
    stop: oneshot::Sender<()>,
    served: LocalBoxFuture<'static, ()>,
}

/// The time limit for open requests when the service stops.
const PAGES_TIMEOUT: Duration = Duration::from_secs(2);

/// Serves pages and streams on the thread that the node's placement assigns to `http`.
pub fn serve(
    node: &Node,
    listener: TcpListener,
    routes: axum::Router,
    options: http::HttpOptions,
    streams: http::api::EventStreams,
) -> Outcome<Pages> {
    let cannot = |error: &dyn std::error::Error| CliError::because("cannot serve pages", error);
    let (stop, stopped) = oneshot::channel::<()>();
    // Another thread has another reactor, with which the listener must be registered.
    let listener = listener.into_std().map_err(|error| cannot(&error))?;
    let serving_node = node.clone();
    let serving = move || async move {
        let until = async move {
            let _ = stopped.await; // stopped explicitly or by drop
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
    /// Finishes open requests within a time limit.
    pub async fn stop(self, clock: &runtime::Clock) {
        drop(self.stop);
        let _ = clock.timeout(PAGES_TIMEOUT, self.served).await; // later ones are cut off
    }
}

/// Raises the soft limit of open files to the hard limit, because each HTTP connection needs one.
/// Not for processes that start other programs: they would inherit the limit.
pub fn raise_open_files() -> Outcome {
    let failed = |error: nix::Error| CliError::because("the limit of open files", &error);
    let (_, most) = getrlimit(Resource::RLIMIT_NOFILE).map_err(failed)?;
    setrlimit(Resource::RLIMIT_NOFILE, most, most).map_err(failed)
}

/// The host announced to others: the operator's choice, the listening address, or this machine's
/// name.
pub fn hostname(given: Option<&str>, ip: IpAddr) -> String {
    match given {
        Some(name) => name.to_owned(),
        None if !ip.is_unspecified() => ip.to_string(),
        None => machine_name(),
    }
}

/// The IPv4 address announced to others: the listening address, or the host's address, resolved
/// with a time limit.
pub async fn ipv4(node: &Node, ip: IpAddr, hostname: &str) -> Option<Ipv4Addr> {
    if let IpAddr::V4(ip) = ip
        && !ip.is_unspecified()
    {
        return Some(ip);
    }
    let found = tokio::net::lookup_host((hostname, 0));
    let found = node.clock().timeout(LOOKUP_TIMEOUT, found).await.ok()?;
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

/// A node name from parts. Characters that certificates do not allow become dashes.
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
    fn service_runs_until_stopped_or_failed() {
        fn never() -> LocalBoxFuture<'static, String> {
            Box::pin(std::future::pending())
        }
        let starting = ServiceThread::begin("m", || async {
            Ok((
                7,
                RunningService {
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
                RunningService {
                    ended: Box::pin(async { "no disk".to_owned() }),
                    stop: Box::pin(async {}),
                    renewal: None,
                },
            ))
        };
        let (member, ()) = on_this_thread(ServiceThread::begin("m", fell).unwrap().wait())
            .unwrap()
            .unwrap();
        assert_eq!(member.stop().unwrap_err().to_string(), "no disk");
    }

    #[test]
    fn failed_start_is_reported() {
        let starting =
            ServiceThread::begin::<(), _>("m", || async { Err(CliError::new("port taken")) })
                .unwrap();
        let failure = on_this_thread(starting.wait()).unwrap().err().unwrap();
        assert_eq!(failure.to_string(), "port taken");
    }

    #[test]
    fn node_names_have_only_certificate_characters() {
        assert_eq!(
            node_name(&["agent", "my host", "5051"]),
            "agent-my-host-5051"
        );
    }
}
