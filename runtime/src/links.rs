//! What a node does with its links: speak to pids anywhere, connect, find, and watch.
//!
//! Remembers one link per peer and the address it can be dialled at. Of two connections that cross, both
//! sides keep the one dialled by the lower node id.

use std::collections::BTreeMap;
use std::future::Future;
use std::sync::Arc;

use futures_util::FutureExt;
use futures_util::future::{BoxFuture, Shared};
use rustc_hash::FxHashMap;

use crate::again::READS_SHORT_ID;
use crate::ask::{AskError, Asking, Patience, TellError};
use crate::codec;
use crate::desk::{self, Told};
use crate::exit::{Exit, Exited};
use crate::frame::{Frame, Target};
use crate::identity::{NodeId, Peer, Pid};
use crate::link::{
    self, AttachError, ConnectError, Connection, Dialer, Dialled, Ended, Hello, Link,
};
use crate::message::{Remote, WhenFull};
use crate::node::Node;
use crate::watch::{Change, Notify, Watcher};
use crate::{read, write};

type Dialling = Shared<BoxFuture<'static, Result<Peer, ConnectError>>>;

/// The links of a node.
#[derive(Default)]
pub(crate) struct Links {
    by_node: FxHashMap<NodeId, Arc<Connection>>,
    by_address: BTreeMap<String, NodeId>,
    dialer: Option<Arc<dyn Dialer>>,
    /// Dials under way, so that two who want the same peer make one connection.
    dialling: BTreeMap<String, Dialling>,
    /// What those that are over have carried.
    ended: Ended,
}

impl Node {
    /// Sends a message to whoever has this pid, here or elsewhere. At most once, in order.
    pub fn tell<M: Remote>(&self, to: &Pid, message: M) -> Result<(), TellError> {
        if to.node() == self.id() {
            let entry = self.registry().find_pid(to).ok_or(TellError::Gone)?;
            return entry.ears.tell(&*entry.body, message);
        }
        if self.is_tapped() {
            return self.tell_tapped(to, message);
        }
        let mut error = TellError::Gone;
        let told = match self.0.links_version.tell(to, &message, &mut error) {
            Told::Done => return Ok(()),
            Told::NoLink => self.tell_anew(to, &message),
            Told::Failed => Err(error),
        };
        if M::WHEN_FULL == WhenFull::CloseLink
            && told == Err(TellError::Full)
            && let Some(connection) = self.connection(to.node())
        {
            connection.close(&format!("it does not keep up with {}", M::NAME));
        }
        told
    }

    /// Tells over the link there is now, and may have it at hand for the next time.
    fn tell_anew<M: Remote>(&self, to: &Pid, message: &M) -> Result<(), TellError> {
        desk::hand_in();
        // Written under the lock, so that nobody's link changes before that.
        let links = read(&self.0.links);
        let connection = links.by_node.get(to.node()).ok_or(TellError::Gone)?;
        self.0.links_version.keep(connection);
        connection.tell(to, message)
    }

    /// Asks whoever has this pid, here or elsewhere. The question is sent now; dropping the returned
    /// future does not take it back.
    pub fn ask<M: Remote>(
        &self,
        to: &Pid,
        message: M,
        patience: impl Into<Patience>,
    ) -> Asking<M::Result> {
        let patience = patience.into();
        if to.node() == self.id() {
            let asked = match self.registry().find_pid(to) {
                Some(entry) => entry.ears.ask(&*entry.body, message),
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

    /// Gives the node the transport to dial with.
    pub fn set_dialer(&self, dialer: Arc<dyn Dialer>) {
        write(&self.0.links).dialer = Some(dialer);
    }

    /// Links to the node at this address; at once if it is linked already.
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

    /// The pid of whoever has this name on the node at this address.
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

    /// Everybody this node is linked to now.
    pub fn peers(&self) -> Vec<Peer> {
        let mut peers: Vec<Peer> = read(&self.0.links)
            .by_node
            .values()
            .map(|connection| connection.peer.clone())
            .collect();
        peers.sort_by(|one, other| one.node.cmp(&other.node));
        peers
    }

    /// The version of this message that the peer heard when its hello was written, if it named any.
    pub fn peer_hears(&self, node: &NodeId, id: u32) -> Option<u16> {
        self.connection(node)?.hello.hears.get(&id).copied()
    }

    /// The shape in which a message is said to a node that has several, see [`Remote::OLDEST`].
    pub(crate) fn version_for(&self, node: &NodeId, id: u32, oldest: u16, newest: u16) -> u16 {
        self.connection(node).map_or(newest, |connection| {
            connection.version_between(id, oldest, newest)
        })
    }

    /// What a transport sends before the first frame.
    pub fn hello(&self) -> Vec<u8> {
        let mut hears = self.registry().spoken();
        if !self.speaks_previous() {
            hears.insert(READS_SHORT_ID, 1);
        }
        let hello = Hello {
            frames: Hello::FRAMES,
            node: self.id().clone(),
            role: self.role(),
            hears,
        };
        codec::encode(&hello).unwrap_or_default() // Plain numbers and text always encode.
    }

    /// Makes a link of a connection whose peer has been proven and has said hello.
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
            // Under the lock, so that nothing is written to the new one before it has what came earlier, nor to the old one after.
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

    /// A crossing dial takes over quietly from a connection that had sent nothing. From another one something may be lost on the
    /// way, as when the same side dials again because its first connection was lost: then all who watch are told.
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

    /// Puts in what metrics say of links.
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

    /// A link has closed. Watchers are told if the peer can no longer be heard.
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

    /// Watches for an actor of this node.
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
        // The link may have closed before the watch was there to be told.
        let connected = self.connection(pid.node()).is_some();
        if !connected && let Some((_, _, notify)) = self.watches().remove(&watcher, pid) {
            notify(Exited {
                pid: pid.clone(),
                reason: Exit::NodeLost("not connected".into()),
            });
        }
    }

    fn watch_here(&self, wished: &Pid, watcher: Watcher, notify: Notify) {
        let Some(target) = self
            .registry()
            .find_pid(wished)
            .map(|entry| entry.pid.clone())
        else {
            notify(Exited {
                pid: wished.clone(),
                reason: Exit::NoProcess,
            });
            return;
        };
        let added = self
            .watches()
            .add(watcher.clone(), wished.clone(), target.clone(), notify);
        if let Err(notify) = added {
            return too_many(notify, wished);
        }
        // It may have ended before the watch was there to be told.
        let lives = self.registry().find_pid(&target).is_some();
        if !lives && let Some((_, _, notify)) = self.watches().remove(&watcher, wished) {
            notify(Exited {
                pid: wished.clone(),
                reason: Exit::NoProcess,
            });
        }
    }

    /// Watches for another node's watchers.
    pub(crate) fn watch_for_peer(
        &self,
        connection: &Arc<Connection>,
        incarnation: u64,
        name: &str,
    ) {
        let wished = Pid::new(name, self.id().clone(), incarnation);
        let watcher = Watcher::Node(connection.peer.node.clone());
        if !self.watches().has_room(&watcher, &wished) {
            return connection.close("it watches more actors than it may");
        }
        // By whichever connection there is then: a crossing one may have taken over from the one it was asked over.
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
        self.watch_here(&wished, watcher, notify);
    }

    pub(crate) fn unwatch_for_peer(
        &self,
        connection: &Arc<Connection>,
        incarnation: u64,
        name: &str,
    ) {
        let wished = Pid::new(name, self.id().clone(), incarnation);
        self.watches()
            .remove(&Watcher::Node(connection.peer.node.clone()), &wished);
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

/// Whoever watches as many as it may hears at once that it will not hear of this one.
#[cold]
fn too_many(notify: Notify, pid: &Pid) {
    notify(Exited {
        pid: pid.clone(),
        reason: Exit::NodeLost("its watcher watches as many as it may".into()),
    });
}

/// Whether a connection dialled by that side is the one both sides keep.
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
