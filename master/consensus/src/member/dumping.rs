//! What a group's machine holds, for an operator who keeps it in a file: `meros registry dump | restore`.
//!
//! Heard from operators only. A member that runs keeps what it held when it was asked ([`TakeDump`]) for as long as that is read piece by
//! piece ([`ReadDump`]); one at a time, and not for long. Of a master that is stopped, [`replayed`] makes the same of its log. A dump
//! holds the machine alone, not the seats and votes of the group it was taken from: [`beginning`] adds those of a group of one.

use std::collections::BTreeMap;

use bytes::Bytes;
use rand::Rng;
use runtime::codec::Garbled;
use runtime::prelude::*;
use runtime::remote;
use serde::{Deserialize, Serialize};

use super::charter::Chartered;
use super::handle::{MemberHandle, ProposeError};
use super::roster::Roster;
use super::settings::Wish;
use super::{Member, Replicated};
use crate::dump::Replayed;
use crate::log::{Entry, Snapshot};
use crate::machine::{CannotRestore, StateMachine};
use crate::replica;

/// Bytes in one piece at most.
pub const PIECE_BYTES: usize = 1 << 20;
/// A dump that nobody has read for so many ticks is let go.
const KEEP_TICKS: u64 = 1_000;

/// Keep what you hold now, so that it can be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TakeDump {
    /// As it is at this member, which may lack what the others have decided. Otherwise nothing is missing that anybody was told of before.
    pub stale: bool,
}

/// What is kept.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DumpTaken {
    /// What it is asked for by.
    pub number: u64,
    /// The group.
    pub group: u64,
    /// The last index that is in it.
    pub index: u64,
    /// The member's term.
    pub term: u64,
    /// The masters, for people to read.
    pub names: String,
    /// The content's length.
    pub bytes: u64,
}

/// A piece of the dump, please.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReadDump {
    /// Which: see [`DumpTaken`].
    pub number: u64,
    /// From which byte on.
    pub offset: u64,
}

/// A piece of the dump.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DumpPiece {
    /// At most [`PIECE_BYTES`]; none behind the end.
    #[serde(with = "runtime::codec::octets")]
    pub data: Vec<u8>,
}

/// Why there is no dump, or no piece of it. Ask another member, or this one again.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[error("{reason}")]
pub struct NoDump {
    /// For people to read.
    pub reason: String,
}

remote! {
    TakeDump = "consensus/take_dump" v1 -> Result<DumpTaken, NoDump>;
    ReadDump = "consensus/read_dump" v1 -> Result<DumpPiece, NoDump>
}

/// What a member keeps to be read.
pub(super) struct Kept {
    number: u64,
    content: Bytes,
    /// The tick at which it is let go.
    until: u64,
}

impl Kept {
    pub fn is_stale(&self, ticks: u64) -> bool {
        ticks >= self.until
    }
}

/// The masters of a roster, as a dump names them.
fn names(roster: &Roster) -> String {
    let seats = roster.seats.iter();
    let names: Vec<String> = seats
        .map(|(id, seat)| format!("{id}={}", seat.address))
        .collect();
    names.join(" ")
}

/// What a member's log holds; the machine is as it begins. For [`dump::take`](crate::dump::take).
pub fn replayed<M: StateMachine>(
    machine: M,
    snapshot: &Snapshot,
    entries: &[Entry],
) -> Result<Replayed, String> {
    let chartered = Chartered::new(Roster::default(), machine);
    let chartered =
        replica::replay(chartered, snapshot, entries).map_err(|error| error.to_string())?;
    let content = chartered.machine.snapshot();
    Ok(Replayed {
        content: content.map_err(|garbled| garbled.to_string())?,
        names: names(&chartered.roster).into(),
    })
}

/// What the only member of a new group begins with: this content, and no seat yet, for the member takes its own when it leads. The
/// machine is as it begins. For [`dump::restore`](crate::dump::restore).
pub fn beginning<M: StateMachine>(
    mut machine: M,
    content: &[u8],
    id: u64,
) -> Result<Bytes, CannotRestore> {
    machine.restore(content)?;
    let roster = Roster {
        highest: id,
        seats: BTreeMap::new(),
    };
    let content = replica::content(&Chartered::new(roster, machine));
    content.map_err(|Garbled { reason }| CannotRestore { reason })
}

/// The content, and what is said of it; its number is drawn later.
async fn take<M: Replicated>(
    member: MemberHandle<M>,
    stale: bool,
) -> Result<(DumpTaken, Bytes), ProposeError> {
    if !stale {
        member.read(|_| ()).await?;
    }
    // What is looked at after the read is as new or newer.
    let (index, content) = member.peek(StateMachine::snapshot).await?;
    let content = content.map_err(|Garbled { reason }| ProposeError::Refused { reason })?;
    let status = member.status().await?;
    let taken = DumpTaken {
        number: 0,
        group: status.identity.map_or(0, |identity| identity.group),
        index,
        term: status.now().map_or(0, |now| now.term),
        names: names(&status.roster),
        bytes: content.len() as u64,
    };
    Ok((taken, content))
}

impl<M: Replicated> Handler<TakeDump> for Member<M> {
    type Result = Reply<Result<DumpTaken, NoDump>>;

    fn handle(&mut self, TakeDump { stale }: TakeDump, ctx: &mut Context<Self>) -> Self::Result {
        let (promise, reply) = promise();
        if let Err(reason) = self.may(Wish::Read, ctx) {
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
        let may = self.may(Wish::Read, ctx);
        may.map_err(|reason| NoDump { reason })?;
        let until = self.ticks + KEEP_TICKS;
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
        let until = self.ticks + KEEP_TICKS;
        self.dump = Some(Kept {
            number,
            content,
            until,
        });
        DumpTaken { number, ..taken }
    }
}
