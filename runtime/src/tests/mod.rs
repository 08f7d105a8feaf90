//! Tests of whole actors through the public interface.
//!
//! | module | contents |
//! |---|---|
//! | `answers` | replies, independent of each other on a link |
//! | `bulks` | bulks while they are being decoded |
//! | `contract` | the actor contract, rule by rule |
//! | `hostile` | a hostile peer: all that it sends is an error or refused |
//! | `lanes` | the lanes of a link |
//! | `lives` | exits, restarts and stops |
//! | `local` | order, bounds, patience, promises, timers, names |
//! | `places` | threads of actors |
//! | `remote` | messages between nodes |
//! | `room` | backpressure of a link whose receiver has no room |
//! | `runs` | many tells in one read |
//! | `seen` | the visible state of actors and links |
//! | `taps` | the tap: visible messages, and the fates of those held back |
//! | `versions` | older versions of messages |

use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::prelude::*;

mod answers;
mod bulks;
pub(crate) mod contract;
mod hostile;
mod lanes;
mod lives;
mod local;
mod places;
mod remote;
mod room;
mod runs;
mod seen;
mod taps;
mod versions;

const SECOND: Duration = Duration::from_secs(1);

/// Records this.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct Note(u32);

/// Records this, and returns the number of records.
#[derive(Debug, Serialize, Deserialize)]
struct Count(u32);

/// Records the number of bytes.
#[derive(Debug, Serialize, Deserialize)]
struct Load(Vec<u8>);

/// Returns this many bytes.
#[derive(Debug, Serialize, Deserialize)]
struct Echo(usize);

/// Panics.
#[derive(Debug, Serialize, Deserialize)]
struct Fall;

/// Is answered on request, or never.
#[derive(Debug, Serialize, Deserialize)]
struct Wait;

/// Recorded, but accepted only from masters.
#[derive(Debug, Serialize, Deserialize)]
struct MastersOnly;

/// A message in the ping lane.
#[derive(Debug, Serialize, Deserialize)]
struct Ping;

/// Returns the sender as the handler sees it.
#[derive(Debug, Serialize, Deserialize)]
struct WhoAmI;

/// Accepted by no actor.
#[derive(Debug, Serialize, Deserialize)]
struct NotAccepted;

/// Watches this pid.
#[derive(Debug, Serialize, Deserialize)]
struct Watch(Pid);

/// Stops watching this pid.
#[derive(Debug, Serialize, Deserialize)]
struct Unwatch(Pid);

/// Sends them a note with each of these numbers, and then acts.
#[derive(Debug, Serialize, Deserialize)]
struct TellThem(Pid, Vec<u32>);

/// Sends them a load of this many bytes between two notes.
#[derive(Debug, Serialize, Deserialize)]
struct LoadThem(Pid, usize);

remote! {
    Note = "test/note" v1;
    Count = "test/count" v1 -> usize;
    Load = "test/load" v1 -> usize;
    Echo = "test/echo" v1 -> Vec<u8>;
    Fall = "test/fall" v1;
    Wait = "test/wait" v1 -> u32;
    MastersOnly = "test/masters_only" v1 -> u32;
    Ping = "test/ping" v1 lane Ping -> u32;
    WhoAmI = "test/who_am_i" v1 -> Option<Pid>;
    NotAccepted = "test/unheard" v1;
    Watch = "test/watch" v1;
    Unwatch = "test/unwatch" v1;
    TellThem = "test/tell_them" v1;
    LoadThem = "test/load_them" v1;
}

/// The events of an actor, shared with the test.
type Diary = Arc<Mutex<Vec<String>>>;

fn read(diary: &Diary) -> Vec<String> {
    crate::lock(diary).clone()
}

/// Records all its events.
#[derive(Default)]
struct Diarist {
    diary: Diary,
    waiting: Vec<Promise<u32>>,
}

impl Diarist {
    fn new(diary: &Diary) -> Self {
        Self {
            diary: diary.clone(),
            waiting: Vec::new(),
        }
    }

    fn write(&self, line: impl Into<String>) -> usize {
        let mut diary = crate::lock(&self.diary);
        diary.push(line.into());
        diary.len()
    }
}

impl Actor for Diarist {
    type Context = Context<Self>;

    fn started(&mut self, _: &mut Context<Self>) {
        self.waiting.clear();
    }
}

impl Process for Diarist {
    const MAILBOX: u32 = 100;

    fn accepts(handlers: &mut RemoteHandlers<Self>) {
        handlers.accept::<Note>(&Role::ALL);
        handlers.accept::<Count>(&Role::ALL);
        handlers.accept::<Load>(&Role::ALL);
        handlers.accept::<Echo>(&Role::ALL);
        handlers.accept::<Fall>(&Role::ALL);
        handlers.accept::<Wait>(&Role::ALL);
        handlers.accept::<MastersOnly>(&[Role::Master]);
        handlers.accept::<Ping>(&Role::ALL);
        handlers.accept::<WhoAmI>(&Role::ALL);
        handlers.accept_local::<Watch>();
        handlers.accept_local::<Unwatch>();
        handlers.accept::<TellThem>(&Role::ALL);
        handlers.accept::<LoadThem>(&Role::ALL);
    }
}

macro_rules! handle {
    ($($message:ty => $result:ty, |$this:ident, $it:pat_param, $ctx:pat_param| $body:expr;)*) => {$(
        impl Handler<$message> for Diarist {
            type Result = $result;
            fn handle(&mut self, $it: $message, $ctx: &mut Context<Self>) -> $result {
                let $this = self;
                $body
            }
        }
    )*};
}

handle! {
    Note => (), |this, Note(number), _| { this.write(number.to_string()); };
    Count => usize, |this, Count(number), _| this.write(number.to_string());
    Load => usize, |this, Load(bytes), _| { this.write(format!("load {}", bytes.len())); bytes.len() };
    Echo => Vec<u8>, |_this, Echo(length), _| vec![7; length];
    Fall => (), |_this, Fall, _| panic!("told to fall");
    MastersOnly => u32, |_this, MastersOnly, _| 1;
    Ping => u32, |_this, Ping, _| 1;
    WhoAmI => Option<Pid>, |_this, WhoAmI, ctx| ctx.sender().and_then(|sender| sender.pid.clone());
    Watch => (), |_this, Watch(pid), ctx| ctx.link(&pid);
    Unwatch => (), |_this, Unwatch(pid), ctx| ctx.unlink(&pid);
    Exited => (), |this, Exited { pid, reason }, _| { this.write(format!("{} {reason}", pid.name())); };
    Wait => Reply<u32>, |this, Wait, _| {
        let (promise, reply) = promise();
        this.waiting.push(promise);
        reply
    };
    TellThem => (), |_this, TellThem(pid, numbers), ctx| {
        numbers.into_iter().for_each(|number| ctx.node().tell(&pid, Note(number)).unwrap());
    };
    LoadThem => (), |_this, LoadThem(pid, length), ctx| {
        ctx.node().tell(&pid, Note(1)).unwrap();
        ctx.node().tell(&pid, Load(vec![1; length])).unwrap();
        ctx.node().tell(&pid, Note(2)).unwrap();
    };
}
