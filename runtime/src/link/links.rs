//! The links of a node: sending to remote pids, connecting, finding actors and watching them.
//!
//! It keeps one link per peer, with its address. When two connections cross, both sides keep the
//! one dialled by the lower node id.

use std::collections::BTreeMap;
use std::future::Future;
use std::sync::Arc;

use futures_util::FutureExt;
use futures_util::future::{BoxFuture, Shared};
use rustc_hash::FxHashMap;

use crate::actor::ask::{AskError, Asking, Patience, TellError};
use crate::actor::exit::{Exit, Exited};
use crate::actor::watch::{Change, Notify, Watcher};
use crate::identity::{NodeId, Peer, Pid};
use crate::link::send_buffer::{self, Outcome};
use crate::link::{
    self, AttachError, ClosedLinks, ConnectError, Connection, Dialer, Dialled, Hello, Link,
};
use crate::node::Node;
use crate::wire::codec;
use crate::wire::frame::{Frame, Target};
use crate::wire::message::{Remote, WhenFull};
use crate::{read, write};

type Dialling = Shared<BoxFuture<'static, Result<Peer, ConnectError>>>;

/// The links of a node.
#[derive(Default)]
pub(crate) struct Links {
    by_node: FxHashMap<NodeId, Arc<Connection>>,
    by_address: BTreeMap<String, NodeId>,
    dialer: Option<Arc<dyn Dialer>>,
    /// Dials in progress, so that two callers for one peer share a connection.
    dialling: BTreeMap<String, Dialling>,
    /// The traffic of closed links.
    ended: ClosedLinks,
}

impl Node {
    /// Sends a message to the actor with this pid, here or on another node. At most once, in order.
    pub fn tell<M: Remote>(&self, to: &Pid, message: M) -> Result<(), TellError> {
        if to.node() == self.id() {
            let entry = self.registry().find_pid(to).ok_or(TellError::Gone)?;
            return entry.handlers.tell(&*entry.body, message);
        }
        if self.is_tapped() {
            return self.tell_tapped(to, message);
        }
        let mut error = TellError::Gone;
        let result = match self.0.links_version.tell(to, &message, &mut error) {
            Outcome::Sent => return Ok(()),
            Outcome::NoLink => self.tell_uncached(to, &message),
            Outcome::Failed => Err(error),
        };
        if M::WHEN_FULL == WhenFull::CloseLink
            && result == Err(TellError::Full)
            && let Some(connection) = self.connection(to.node())
        {
            connection.close(&format!("the peer is too slow for {}", M::NAME));
        }
        result
    }

    /// Tells over the current link, and may cache it for the thread's next tell.
    fn tell_uncached<M: Remote>(&self, to: &Pid, message: &M) -> Result<(), TellError> {
        send_buffer::flush();
        // Written under the lock, so that the link cannot be replaced before that.
        let links = read(&self.0.links);
        let connection = links.by_node.get(to.node()).ok_or(TellError::Gone)?;
        self.0.links_version.keep(connection);
        connection.tell(to, message)
    }

    /// Asks the actor with this pid, here or on another node. The message is sent now; dropping the
    /// returned future does not take it back.
    pub fn ask<M: Remote>(
        &self,
        to: &Pid,
        message: M,
        patience: impl Into<Patience>,
    ) -> Asking<M::Result> {
        let patience = patience.into();
        if to.node() == self.id() {
            let asked = match self.registry().find_pid(to) {
                Some(entry) => entry.handlers.ask(&*entry.body, message),
                None => Err(TellError::Gone),
            };
            return match asked {
                Ok(reply) => Asking::local(self.clock(), patience, reply),
                Err(error) => Asking::failed(error.into()),
            };
        }
        match self.connection(to.node()) {
            Some(connection) if self.is_tapped() => {
                self.ask_tapped(&connection, to, &message, patience)
            }
            Some(connection) => connection.ask(self, to, &message, patience),
            None => Asking::failed(AskError::Gone),
        }
    }

    /// Sets the transport for outgoing connections.
    pub fn set_dialer(&self, dialer: Arc<dyn Dialer>) {
        write(&self.0.links).dialer = Some(dialer);
    }

    /// Links to the node at this address; resolves at once if it is linked already.
    pub fn connect(
        &self,
        address: &str,
    ) -> impl Future<Output = Result<Peer, ConnectError>> + Send + use<> {
        let (node, address) = (self.clone(), address.to_owned());
        async move {
            if node.is_shutting_down() {
                return Err(ConnectError::ShuttingDown);
            }
            let dialling = {
                let mut links = write(&node.0.links);
                if let Some(connection) = links.at(&address) {
                    return Ok(connection.peer.clone());
                }
                match (links.dialling.get(&address), &links.dialer) {
                    (Some(dialling), _) => dialling.clone(),
                    (None, None) => return Err(ConnectError::NoDialer { address }),
                    (None, Some(dialer)) => {
                        let dialling = dialer.dial(address.clone()).shared();
                        links.dialling.insert(address.clone(), dialling.clone());
                        dialling
                    }
                }
            };
            let dialled = dialling.clone().await;
            let mut links = write(&node.0.links);
            if links
                .dialling
                .get(&address)
                .is_some_and(|current| current.ptr_eq(&dialling))
            {
                links.dialling.remove(&address);
            }
            dialled
        }
    }

    /// The pid of the actor with this name on the node at this address.
    pub fn find<P: Into<Patience>>(
        &self,
        address: &str,
        name: &str,
        patience: P,
    ) -> impl Future<Output = Result<Pid, AskError>> + Send + use<P> {
        let (node, patience) = (self.clone(), patience.into());
        let (address, name): (_, Arc<str>) = (address.to_owned(), name.into());
        async move {
            let started = node.clock().now();
            let dialled = match patience {
                Patience::WhileLinked => node.connect(&address).await,
                Patience::For(after) => {
                    match node.clock().timeout(after, node.connect(&address)).await {
                        Ok(dialled) => dialled,
                        Err(_) => return Err(AskError::Late { after }),
                    }
                }
            };
            let peer = dialled.map_err(|error| match error {
                ConnectError::Refused { .. } => AskError::Refused {
                    reason: error.to_string(),
                },
                _ => AskError::Gone,
            })?;
            let left = match patience {
                Patience::For(after) => {
                    Patience::For(after.saturating_sub(node.clock().now() - started))
                }
                patience => patience,
            };
            let connection = node.connection(&peer.node).ok_or(AskError::Gone)?;
            match connection.find(&node, &name, left).await? {
                0 => Err(AskError::Gone),
                incarnation => Ok(Pid::new(name, peer.node, incarnation)),
            }
        }
    }

    /// The nodes that this node is linked to.
    pub fn peers(&self) -> Vec<Peer> {
        let mut peers: Vec<Peer> = read(&self.0.links)
            .by_node
            .values()
            .map(|connection| connection.peer.clone())
            .collect();
        peers.sort_by(|one, other| one.node.cmp(&other.node));
        peers
    }

    /// The highest version of this message that the peer's hello listed, if any.
    pub fn peer_accepts(&self, node: &NodeId, id: u32) -> Option<u16> {
        self.connection(node)?.hello.accepts.get(&id).copied()
    }

    /// The version in which a message is sent to a node, see [`Remote::OLDEST`].
    pub(crate) fn version_for(&self, node: &NodeId, id: u32, oldest: u16, newest: u16) -> u16 {
        self.connection(node).map_or(newest, |connection| {
            connection.version_between(id, oldest, newest)
        })
    }

    /// The hello that a transport sends before the first frame.
    pub fn hello(&self) -> Vec<u8> {
        let hello = Hello {
            frames: Hello::FRAMES,
            node: self.id().clone(),
            role: self.role(),
            accepts: self.registry().accepted_messages(),
        };
        codec::encode(&hello).unwrap_or_default() // Plain numbers and text always encode.
    }

    /// Makes a link of a connection. The peer is authenticated and has sent its hello.
    pub fn attach(&self, peer: Peer, hello: Hello, dialled: Dialled) -> Result<Link, AttachError> {
        self.check(&peer, &hello)?;
        let (outgoing_max, frame_max) = (self.0.settings.outgoing_max, self.0.settings.frame_max);
        let connection = Arc::new(Connection::new(
            self,
            peer.clone(),
            hello,
            dialled,
            outgoing_max,
            frame_max,
        ));
        let replaced = {
            let mut links = write(&self.0.links);
            if self.is_shutting_down() {
                return Err(AttachError::ShuttingDown);
            }
            let existing = links.by_node.get(&peer.node);
            if let Some(existing) = existing
                && existing.dialled != dialled
                && !wins(self.id(), &peer.node, dialled)
            {
                return Err(AttachError::Duplicate { node: peer.node });
            }
            self.0.links_version.change();
            let replaced = links.by_node.insert(peer.node.clone(), connection.clone());
            // Under the lock, so that nothing is written to the new one before it has the earlier
            // frames, nor to the old one after.
            let replaced = replaced.map(|old| {
                let handed_over = old.dialled != dialled && old.hand_over(&connection);
                old.seal();
                (old, handed_over)
            });
            if let Some((old, _)) = &replaced {
                links.ended.add(old);
            }
            if !peer.address.is_empty() {
                links
                    .by_address
                    .insert(peer.address.clone(), peer.node.clone());
            }
            replaced
        };
        if let Some((replaced, handed_over)) = replaced {
            self.replace(&replaced, &connection, handed_over);
        }
        tracing::debug!(peer = %peer.node, role = %peer.role, address = peer.address, "linked");
        Ok(Link::new(connection))
    }

    fn check(&self, peer: &Peer, hello: &Hello) -> Result<(), AttachError> {
        if peer.node != hello.node || peer.role != hello.role {
            return Err(AttachError::Mismatch {
                hello: format!("{} {}", hello.role, hello.node),
                proven: format!("{} {}", peer.role, peer.node),
            });
        }
        if peer.node == *self.id() {
            return Err(AttachError::Myself);
        }
        if !self.0.settings.accepts.contains(peer.role) {
            return Err(AttachError::WrongRole { role: peer.role });
        }
        Ok(())
    }

    /// A crossing dial silently replaces a connection that had sent nothing. Otherwise messages may
    /// have been lost, as when the same side dials again after it lost its first connection: then
    /// all watchers are notified.
    fn replace(&self, old: &Arc<Connection>, new: &Arc<Connection>, handed_over: bool) {
        if !handed_over {
            let again = old.dialled == new.dialled;
            old.close(match again {
                true => "the peer connected again",
                false => "another connection took over",
            });
            return;
        }
        old.end_superseded();
        for pid in self.watches().targets_on(&new.peer.node) {
            new.write_plain(&Frame::Link(Target::of(&pid)));
        }
    }

    /// Whether there is a link to the node at this address.
    pub(crate) fn is_linked_at(&self, address: &str) -> bool {
        read(&self.0.links).at(address).is_some()
    }

    pub(crate) fn connection(&self, node: &NodeId) -> Option<Arc<Connection>> {
        read(&self.0.links).by_node.get(node).cloned()
    }

    pub(crate) fn connections(&self) -> Vec<Arc<Connection>> {
        read(&self.0.links).by_node.values().cloned().collect()
    }

    /// Adds the links' metrics.
    pub(crate) fn put_link_sums(&self, flat: &mut BTreeMap<String, f64>) {
        let links = read(&self.0.links);
        let living = links.by_node.values().map(Arc::as_ref);
        link::put_sums(flat, &links.ended, living);
    }

    pub(crate) fn close_links(&self, reason: &str) {
        self.connections()
            .iter()
            .for_each(|connection| connection.close_after_sending(reason));
    }

    /// A link has closed. Watchers are notified if the peer can no longer be reached.
    pub(crate) fn unlinked(&self, connection: &Arc<Connection>, reason: &str, lost: bool) {
        let peer = &connection.peer;
        let current = {
            let mut links = write(&self.0.links);
            let current = links
                .by_node
                .get(&peer.node)
                .is_some_and(|known| Arc::ptr_eq(known, connection));
            if current {
                self.0.links_version.change();
                links.by_node.remove(&peer.node);
                links.ended.add(connection);
                if links.by_address.get(&peer.address) == Some(&peer.node) {
                    links.by_address.remove(&peer.address);
                }
            }
            current
        };
        if lost {
            self.watches().forget(&Watcher::Node(peer.node.clone()));
            self.watches().node_lost(&peer.node, reason);
        } else if current {
            tracing::warn!(peer = %peer.node, "a superseded link was still in use");
        }
    }

    /// Adds a watch of an actor of this node.
    pub(crate) fn watch(&self, pid: &Pid, watcher: u64, notify: Notify) {
        self.watch_as(pid, Watcher::Actor(watcher), notify);
    }

    pub(crate) fn watch_as(&self, pid: &Pid, watcher: Watcher, notify: Notify) {
        if pid.node() == self.id() {
            self.watch_here(pid, watcher, notify);
            return;
        }
        let Some(connection) = self.connection(pid.node()) else {
            notify(Exited {
                pid: pid.clone(),
                reason: Exit::NodeLost("not connected".into()),
            });
            return;
        };
        match self
            .watches()
            .add(watcher.clone(), pid.clone(), pid.clone(), notify)
        {
            Ok(Change::Edge) => connection.write_plain(&Frame::Link(Target::of(pid))),
            Ok(Change::None) => {}
            Err(notify) => return too_many(notify, pid),
        }
        // The link may have closed before the watch was added.
        let connected = self.connection(pid.node()).is_some();
        if !connected && let Some((_, _, notify)) = self.watches().remove(&watcher, pid) {
            notify(Exited {
                pid: pid.clone(),
                reason: Exit::NodeLost("not connected".into()),
            });
        }
    }

    fn watch_here(&self, requested: &Pid, watcher: Watcher, notify: Notify) {
        let Some(target) = self
            .registry()
            .find_pid(requested)
            .map(|entry| entry.pid.clone())
        else {
            notify(Exited {
                pid: requested.clone(),
                reason: Exit::NoProcess,
            });
            return;
        };
        let added = self
            .watches()
            .add(watcher.clone(), requested.clone(), target.clone(), notify);
        if let Err(notify) = added {
            return too_many(notify, requested);
        }
        // The target may have ended before the watch was added.
        let lives = self.registry().find_pid(&target).is_some();
        if !lives && let Some((_, _, notify)) = self.watches().remove(&watcher, requested) {
            notify(Exited {
                pid: requested.clone(),
                reason: Exit::NoProcess,
            });
        }
    }

    /// Adds a watch of another node.
    pub(crate) fn watch_for_peer(
        &self,
        connection: &Arc<Connection>,
        incarnation: u64,
        name: &str,
    ) {
        let requested = Pid::new(name, self.id().clone(), incarnation);
        let watcher = Watcher::Node(connection.peer.node.clone());
        if !self.watches().has_room(&watcher, &requested) {
            return connection.close("the peer watches too many actors");
        }
        // Over the current connection: the one of the request may have been replaced.
        let (node, peer) = (self.downgrade(), connection.peer.node.clone());
        let notify: Notify = Box::new(move |Exited { pid, reason }| {
            let connection = node.upgrade().and_then(|node| node.connection(&peer));
            if let Some(connection) = connection {
                connection.write_plain(&Frame::Exited {
                    of: Target::of(&pid),
                    reason,
                });
            }
        });
        self.watch_here(&requested, watcher, notify);
    }

    pub(crate) fn unwatch_for_peer(
        &self,
        connection: &Arc<Connection>,
        incarnation: u64,
        name: &str,
    ) {
        let requested = Pid::new(name, self.id().clone(), incarnation);
        self.watches()
            .remove(&Watcher::Node(connection.peer.node.clone()), &requested);
    }

    pub(crate) fn unwatch(&self, pid: &Pid, watcher: u64) {
        self.unwatch_as(pid, &Watcher::Actor(watcher));
    }

    pub(crate) fn unwatch_as(&self, pid: &Pid, watcher: &Watcher) {
        let removed = self.watches().remove(watcher, pid);
        if let Some((target, Change::Edge, _)) = removed {
            self.unwatch_there(&target);
        }
    }

    fn unwatch_there(&self, target: &Pid) {
        if target.node() != self.id()
            && let Some(connection) = self.connection(target.node())
        {
            connection.write_plain(&Frame::Unlink(Target::of(target)));
        }
    }

    /// An actor of this node has ended.
    pub(crate) fn publish_end(&self, pid: &Pid, reason: &Exit) {
        let unwatched = self.watches().forget(&Watcher::Actor(pid.incarnation()));
        unwatched
            .iter()
            .for_each(|target| self.unwatch_there(target));
        self.watches().ended(pid, reason);
    }

    /// An actor of a peer has ended.
    pub(crate) fn ended_elsewhere(&self, pid: &Pid, reason: &Exit) {
        self.watches().ended(pid, reason);
    }
}

impl Links {
    fn at(&self, address: &str) -> Option<&Arc<Connection>> {
        self.by_node.get(self.by_address.get(address)?)
    }
}

/// A watcher at its limit is notified at once that this watch failed.
#[cold]
fn too_many(notify: Notify, pid: &Pid) {
    notify(Exited {
        pid: pid.clone(),
        reason: Exit::NodeLost("the watcher has too many watches".into()),
    });
}

/// Whether both sides keep a connection dialled by that side.
fn wins(us: &NodeId, them: &NodeId, dialled: Dialled) -> bool {
    match dialled {
        Dialled::ByUs => us < them,
        Dialled::ByThem => them < us,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_sides_of_crossing_dials_keep_the_same_connection() {
        let (low, high) = (NodeId::new("a", 9), NodeId::new("b", 1));
        assert!(wins(&low, &high, Dialled::ByUs) && wins(&high, &low, Dialled::ByThem));
        assert!(!wins(&low, &high, Dialled::ByThem) && !wins(&high, &low, Dialled::ByUs));
    }
}
