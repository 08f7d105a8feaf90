//! Dumps of a group's state, for `meros registry dump | restore`.
//!
//! Accepted from operators only. A running member takes a copy ([`TakeDump`]) and holds it while it
//! is read in chunks ([`ReadDump`]): one copy at a time, with a time limit. For a stopped master,
//! [`replayed`] makes the same from its log. A dump contains the machine alone, not the addresses
//! and votes of its group; [`beginning`] adds those of a group of one.

use std::collections::BTreeMap;

use bytes::Bytes;
use rand::Rng;
use runtime::prelude::*;
use runtime::remote;
use runtime::wire::codec::Garbled;
use serde::{Deserialize, Serialize};

use super::address_book::AddressBook;
use super::handle::{MemberHandle, ProposeError};
use super::metadata::GroupMachine;
use super::settings::AdminRequest;
use super::{Member, Replicated};
use crate::dump::Replayed;
use crate::log::{Entry, Snapshot};
use crate::machine::{CannotRestore, StateMachine};
use crate::replica;

/// The largest chunk in bytes.
pub const PIECE_BYTES: usize = 1 << 20;
/// Ticks without a read after which a dump is discarded.
const RETENTION_TICKS: u64 = 1_000;

/// Takes a copy of the machine's present state.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TakeDump {
    /// Whether the local state is enough, which may lack committed operations. Otherwise the dump
    /// includes everything acknowledged before this request.
    pub stale: bool,
}

/// The dump that was taken.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DumpTaken {
    /// Its number for [`ReadDump`].
    pub number: u64,
    /// The group.
    pub group: u64,
    /// The last index that it contains.
    pub index: u64,
    /// The member's term.
    pub term: u64,
    /// The masters, in readable format.
    pub names: String,
    /// The content's length in bytes.
    pub bytes: u64,
}

/// Requests a chunk of a dump.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReadDump {
    /// The number from [`DumpTaken`].
    pub number: u64,
    /// The first byte.
    pub offset: u64,
}

/// A chunk of a dump.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DumpPiece {
    /// At most [`PIECE_BYTES`]; empty at the end.
    #[serde(with = "runtime::wire::codec::octets")]
    pub data: Vec<u8>,
}

/// Why there is no dump or no chunk. Ask another member, or this one again.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[error("{reason}")]
pub struct NoDump {
    /// In readable format.
    pub reason: String,
}

remote! {
    TakeDump = "consensus/take_dump" v1 -> Result<DumpTaken, NoDump>;
    ReadDump = "consensus/read_dump" v1 -> Result<DumpPiece, NoDump>
}

/// The copy that a member holds for reading.
pub(super) struct RetainedDump {
    number: u64,
    content: Bytes,
    /// The tick at which it is discarded.
    until: u64,
}

impl RetainedDump {
    pub fn is_stale(&self, ticks: u64) -> bool {
        ticks >= self.until
    }
}

/// The masters of an address book, in readable format.
fn names(address_book: &AddressBook) -> String {
    let entries = address_book.entries.iter();
    let names: Vec<String> = entries
        .map(|(id, member)| format!("{id}={}", member.address))
        .collect();
    names.join(" ")
}

/// Replays a stopped member's log on a machine in its initial state. For
/// [`dump::take`](crate::dump::take).
pub fn replayed<M: StateMachine>(
    machine: M,
    snapshot: &Snapshot,
    entries: &[Entry],
) -> Result<Replayed, String> {
    let group = GroupMachine::new(AddressBook::default(), machine);
    let group = replica::replay(group, snapshot, entries).map_err(|error| error.to_string())?;
    let content = group.machine.snapshot();
    Ok(Replayed {
        content: content.map_err(|garbled| garbled.to_string())?,
        names: names(&group.address_book).into(),
    })
}

/// The initial snapshot of the only member of a new group: this content and no address, because the
/// member registers its own as leader. The machine is in its initial state. For
/// [`dump::restore`](crate::dump::restore).
pub fn beginning<M: StateMachine>(
    mut machine: M,
    content: &[u8],
    id: u64,
) -> Result<Bytes, CannotRestore> {
    machine.restore(content)?;
    let address_book = AddressBook {
        highest: id,
        entries: BTreeMap::new(),
    };
    let content = replica::content(&GroupMachine::new(address_book, machine));
    content.map_err(|Garbled { reason }| CannotRestore { reason })
}

/// Takes the copy. The caller assigns its number.
async fn take<M: Replicated>(
    member: MemberHandle<M>,
    stale: bool,
) -> Result<(DumpTaken, Bytes), ProposeError> {
    if !stale {
        member.read(|_| ()).await?;
    }
    // The state after the read is at least as new as the read.
    let (index, content) = member.read_local(StateMachine::snapshot).await?;
    let content = content.map_err(|Garbled { reason }| ProposeError::Refused { reason })?;
    let status = member.status().await?;
    let taken = DumpTaken {
        number: 0,
        group: status.identity.map_or(0, |identity| identity.group),
        index,
        term: status.role_now().map_or(0, |now| now.term),
        names: names(&status.address_book),
        bytes: content.len() as u64,
    };
    Ok((taken, content))
}

impl<M: Replicated> Handler<TakeDump> for Member<M> {
    type Result = Reply<Result<DumpTaken, NoDump>>;

    fn handle(&mut self, TakeDump { stale }: TakeDump, ctx: &mut Context<Self>) -> Self::Result {
        let (promise, reply) = promise();
        if let Err(reason) = self.authorize(AdminRequest::ReadContent, ctx) {
            promise.answer(Err(NoDump { reason }));
            return reply;
        }
        let member = MemberHandle {
            member: ctx.handle(),
            ended: self.ended.clone(),
        };
        ctx.then(take(member, stale), |member, taken, _| {
            promise.answer(match taken {
                Ok((taken, content)) => Ok(member.keep(taken, content)),
                Err(error) => Err(NoDump {
                    reason: error.to_string(),
                }),
            });
        });
        reply
    }
}

impl<M: Replicated> Handler<ReadDump> for Member<M> {
    type Result = Result<DumpPiece, NoDump>;

    fn handle(&mut self, wanted: ReadDump, ctx: &mut Context<Self>) -> Self::Result {
        let authorized = self.authorize(AdminRequest::ReadContent, ctx);
        authorized.map_err(|reason| NoDump { reason })?;
        let until = self.ticks + RETENTION_TICKS;
        let kept = self.dump.as_mut();
        let Some(kept) = kept.filter(|kept| kept.number == wanted.number) else {
            let reason = "this dump is not kept any more: another one was taken, or it was not read for too long".to_owned();
            return Err(NoDump { reason });
        };
        kept.until = until;
        let length = kept.content.len();
        let from = usize::try_from(wanted.offset).map_or(length, |offset| offset.min(length));
        let to = length.min(from + PIECE_BYTES);
        let data = kept.content[from..to].to_vec();
        Ok(DumpPiece { data })
    }
}

impl<M: Replicated> Member<M> {
    fn keep(&mut self, taken: DumpTaken, content: Bytes) -> DumpTaken {
        let number = self.rng.random();
        let until = self.ticks + RETENTION_TICKS;
        self.dump = Some(RetainedDump {
            number,
            content,
            until,
        });
        DumpTaken { number, ..taken }
    }
}
