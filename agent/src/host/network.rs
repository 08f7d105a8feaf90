//! Sockets in network namespaces of containers.

use std::fs::File;
use std::io;
use std::net::{SocketAddr, TcpStream as StdStream};
use std::path::Path;

use nix::sched::{CloneFlags, setns};
use nix::sys::socket::{AddressFamily, SockFlag, SockType, socket};
use tokio::net::{TcpSocket, TcpStream};
use tokio::sync::oneshot;

/// Connects to an address as processes in this namespace would; that of the agent if `None`.
pub async fn connect(namespace: Option<&Path>, address: SocketAddr) -> io::Result<TcpStream> {
    let Some(path) = namespace else {
        return TcpStream::connect(address).await;
    };
    let (made, socket) = oneshot::channel();
    let namespace = File::open(path)?;
    // A socket stays in the namespace in which it is made, and so would a thread of a pool.
    std::thread::Builder::new()
        .name("network".to_owned())
        .spawn(move || made.send(socket_in(&namespace, address)))?;
    let socket = socket.await.map_err(io::Error::other)?;
    TcpSocket::from_std_stream(socket?).connect(address).await
}

/// Moves this thread into the namespace.
fn socket_in(namespace: &File, address: SocketAddr) -> io::Result<StdStream> {
    setns(namespace, CloneFlags::CLONE_NEWNET)?;
    let family = match address {
        SocketAddr::V4(_) => AddressFamily::Inet,
        SocketAddr::V6(_) => AddressFamily::Inet6,
    };
    let flags = SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK;
    let socket = socket(family, SockType::Stream, flags, None)?;
    Ok(socket.into())
}
