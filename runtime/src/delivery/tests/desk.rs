//! A receiver for tests with a record that outlives it.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::delivery::{DedupReceiver, Sequenced, take};
use crate::prelude::*;
use crate::testing::memory::Network;

/// Records this.
#[derive(Serialize, Deserialize)]
pub(super) struct Note(pub(super) u32);

/// Records the number of bytes.
#[derive(Serialize, Deserialize)]
pub(super) struct Load(pub(super) Vec<u8>);

/// Records this, and loses the link before the acknowledgement.
#[derive(Serialize, Deserialize)]
pub(super) struct Cut(pub(super) u32);

/// Panics once; the next incarnation records it.
#[derive(Serialize, Deserialize)]
pub(super) struct FallOnce(pub(super) u32);

/// Handles nothing for eight seconds.
#[derive(Serialize, Deserialize)]
pub(super) struct Rest;

/// Records the sender as the handler sees it.
#[derive(Serialize, Deserialize)]
pub(super) struct WhoAmI;

/// Recorded, but accepted only from masters.
#[derive(Serialize, Deserialize)]
pub(super) struct MastersOnly;

/// Accepted by no actor.
#[derive(Serialize, Deserialize)]
pub(super) struct NotAccepted;

remote! {
    Note = "delivery_test/note" v1;
    Load = "delivery_test/load" v1;
    Cut = "delivery_test/cut" v1;
    FallOnce = "delivery_test/fall_once" v1;
    Rest = "delivery_test/rest" v1;
    WhoAmI = "delivery_test/who_am_i" v1;
    MastersOnly = "delivery_test/masters_only" v1;
    NotAccepted = "delivery_test/unheard" v1;
}

pub(super) type Diary = Arc<Mutex<Vec<String>>>;

pub(super) fn read(diary: &Diary) -> Vec<String> {
    crate::lock(diary).clone()
}

/// Records handled messages; the record outlives it.
pub(super) struct RecordingReceiver {
    incoming: DedupReceiver,
    network: Network,
    diary: Diary,
}

impl RecordingReceiver {
    pub(super) fn new(network: &Network, diary: &Diary) -> Self {
        Self {
            incoming: DedupReceiver::default(),
            network: network.clone(),
            diary: diary.clone(),
        }
    }

    fn write(&self, line: impl ToString) {
        crate::lock(&self.diary).push(line.to_string());
    }
}

impl Actor for RecordingReceiver {
    type Context = Context<Self>;
}

impl Process for RecordingReceiver {
    const MAILBOX: u32 = 100;

    fn accepts(handlers: &mut RemoteHandlers<Self>) {
        handlers.accept::<Sequenced>(&Role::ALL);
        handlers.accept::<Note>(&Role::ALL);
        handlers.accept::<Load>(&Role::ALL);
        handlers.accept::<Cut>(&Role::ALL);
        handlers.accept::<FallOnce>(&Role::ALL);
        handlers.accept::<Rest>(&Role::ALL);
        handlers.accept::<WhoAmI>(&Role::ALL);
        handlers.accept::<MastersOnly>(&[Role::Master]);
    }
}

impl Handler<Sequenced> for RecordingReceiver {
    type Result = MessageResult<Sequenced>;
    fn handle(&mut self, numbered: Sequenced, ctx: &mut Context<Self>) -> Self::Result {
        MessageResult(take(self, |desk| &mut desk.incoming, numbered, ctx))
    }
}

macro_rules! handle {
    ($($message:ty => |$this:ident, $it:pat_param, $ctx:pat_param| $body:expr;)*) => {$(
        impl Handler<$message> for RecordingReceiver {
            type Result = ();
            fn handle(&mut self, $it: $message, $ctx: &mut Context<Self>) {
                let $this = self;
                $body
            }
        }
    )*};
}

handle! {
    Note => |this, Note(number), _| this.write(number);
    Load => |this, Load(bytes), _| this.write(format!("load {}", bytes.len()));
    Cut => |this, Cut(number), _| {
        this.write(number);
        this.network.sever("framework", "master");
    };
    FallOnce => |this, FallOnce(number), _| match read(&this.diary).iter().any(|line| line == "falling") {
        true => this.write(number),
        false => {
            this.write("falling");
            panic!("told to fall");
        }
    };
    Rest => |this, Rest, ctx| {
        this.write("rest");
        let rested = ctx.clock().sleep(Duration::from_secs(8));
        ctx.wait(rested.into_actor(this).map(|(), this: &mut Self, _| this.write("rested")));
    };
    WhoAmI => |this, WhoAmI, ctx| this.write(match ctx.sender() {
        Some(sender) => format!("{:?} of {}", sender.pid.as_ref().map(Pid::name), sender.peer.role),
        None => "a neighbour".to_owned(),
    });
    MastersOnly => |this, MastersOnly, _| this.write("masters only");
}
