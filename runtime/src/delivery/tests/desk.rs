//! A receiver for stories: keeps a diary of what it hears, which outlives it.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::delivery::{Incoming, Numbered, take};
use crate::memory::Network;
use crate::prelude::*;

/// Remember this.
#[derive(Serialize, Deserialize)]
pub(super) struct Note(pub(super) u32);

/// Remember how many bytes these are.
#[derive(Serialize, Deserialize)]
pub(super) struct Load(pub(super) Vec<u8>);

/// Remember this, and lose the link before you can say so.
#[derive(Serialize, Deserialize)]
pub(super) struct Cut(pub(super) u32);

/// Fall, but the next of your lives shall remember this.
#[derive(Serialize, Deserialize)]
pub(super) struct FallOnce(pub(super) u32);

/// Hear nothing for eight seconds.
#[derive(Serialize, Deserialize)]
pub(super) struct Rest;

/// Who do you believe says this?
#[derive(Serialize, Deserialize)]
pub(super) struct WhoAmI;

/// Remembered, but only by masters.
#[derive(Serialize, Deserialize)]
pub(super) struct MastersOnly;

/// Nobody hears this.
#[derive(Serialize, Deserialize)]
pub(super) struct Unheard;

remote! {
    Note = "delivery_test/note" v1;
    Load = "delivery_test/load" v1;
    Cut = "delivery_test/cut" v1;
    FallOnce = "delivery_test/fall_once" v1;
    Rest = "delivery_test/rest" v1;
    WhoAmI = "delivery_test/who_am_i" v1;
    MastersOnly = "delivery_test/masters_only" v1;
    Unheard = "delivery_test/unheard" v1;
}

pub(super) type Diary = Arc<Mutex<Vec<String>>>;

pub(super) fn read(diary: &Diary) -> Vec<String> {
    crate::lock(diary).clone()
}

/// Keeps a diary of what it hears, which outlives it.
pub(super) struct Desk {
    incoming: Incoming,
    network: Network,
    diary: Diary,
}

impl Desk {
    pub(super) fn new(network: &Network, diary: &Diary) -> Self {
        Self {
            incoming: Incoming::default(),
            network: network.clone(),
            diary: diary.clone(),
        }
    }

    fn write(&self, line: impl ToString) {
        crate::lock(&self.diary).push(line.to_string());
    }
}

impl Actor for Desk {
    type Context = Context<Self>;
}

impl Process for Desk {
    const MAILBOX: u32 = 100;

    fn hears(ears: &mut Ears<Self>) {
        ears.hear::<Numbered>(&Role::ALL);
        ears.hear::<Note>(&Role::ALL);
        ears.hear::<Load>(&Role::ALL);
        ears.hear::<Cut>(&Role::ALL);
        ears.hear::<FallOnce>(&Role::ALL);
        ears.hear::<Rest>(&Role::ALL);
        ears.hear::<WhoAmI>(&Role::ALL);
        ears.hear::<MastersOnly>(&[Role::Master]);
    }
}

impl Handler<Numbered> for Desk {
    type Result = MessageResult<Numbered>;
    fn handle(&mut self, numbered: Numbered, ctx: &mut Context<Self>) -> Self::Result {
        MessageResult(take(self, |desk| &mut desk.incoming, numbered, ctx))
    }
}

macro_rules! handle {
    ($($message:ty => |$this:ident, $it:pat_param, $ctx:pat_param| $body:expr;)*) => {$(
        impl Handler<$message> for Desk {
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
