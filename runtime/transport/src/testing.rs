//! What the tests of this crate share: an actor that notes what it hears, and stories in real time with real sockets.

use std::future::Future;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use runtime::prelude::*;
use serde::{Deserialize, Serialize};

/// Everything here happens within milliseconds, unless it never does.
pub(crate) const PATIENCE: Duration = Duration::from_secs(30);

/// Plays on one thread in real time, for at most a minute.
pub(crate) fn play<F: Future>(story: F) -> F::Output {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    tokio::task::LocalSet::new().block_on(&runtime, async {
        Clock::real()
            .timeout(Duration::from_secs(60), story)
            .await
            .expect("the story comes to its end")
    })
}

/// Waits until this holds.
pub(crate) async fn eventually(clock: &Clock, what: &str, holds: impl Fn() -> bool) {
    let waiting = async {
        while !holds() {
            clock.sleep(Duration::from_millis(2)).await;
        }
    };
    clock
        .timeout(PATIENCE, waiting)
        .await
        .unwrap_or_else(|late| panic!("{what}: {late}"));
}

/// Something was said.
#[derive(Serialize, Deserialize)]
pub(crate) struct Said {
    pub(crate) number: u64,
    pub(crate) padding: Vec<u8>,
}

/// Something was said in the ping lane.
#[derive(Serialize, Deserialize)]
pub(crate) struct Pinged(pub(crate) u64);

/// What do you make of these bytes? The answer is the bytes, turned round.
#[derive(Serialize, Deserialize)]
pub(crate) struct Turn(pub(crate) Vec<u8>);

runtime::remote! {
    Said = "transport-test/said" v1;
    Pinged = "transport-test/pinged" v1 lane Ping;
    Turn = "transport-test/turn" v1 -> Vec<u8>
}

pub(crate) fn said(number: u64) -> Said {
    Said {
        number,
        padding: Vec::new(),
    }
}

pub(crate) fn large(number: u64, bytes: usize) -> Said {
    Said {
        number,
        padding: vec![number as u8; bytes],
    }
}

/// Notes what it hears, and watches whom it is told to.
#[derive(Clone, Default)]
pub(crate) struct Notes(Arc<Mutex<Vec<String>>>);

impl Notes {
    pub(crate) fn all(&self) -> Vec<String> {
        self.0.lock().unwrap().clone()
    }

    pub(crate) fn len(&self) -> usize {
        self.0.lock().unwrap().len()
    }

    fn note(&self, note: String) {
        self.0.lock().unwrap().push(note);
    }
}

pub(crate) struct Noter(pub(crate) Notes);

impl Actor for Noter {
    type Context = Context<Self>;
}

impl Process for Noter {
    fn hears(ears: &mut Ears<Self>) {
        ears.hear::<Said>(&Role::ALL);
        ears.hear::<Pinged>(&Role::ALL);
        ears.hear::<Turn>(&Role::ALL);
    }
}

impl Handler<Said> for Noter {
    type Result = ();
    fn handle(&mut self, Said { number, padding }: Said, _: &mut Context<Self>) {
        let whole = padding.iter().all(|byte| *byte == number as u8);
        self.0
            .note(format!("{number}{}", if whole { "" } else { " damaged" }));
    }
}

impl Handler<Pinged> for Noter {
    type Result = ();
    fn handle(&mut self, Pinged(number): Pinged, _: &mut Context<Self>) {
        self.0.note(format!("ping {number}"));
    }
}

impl Handler<Turn> for Noter {
    type Result = MessageResult<Turn>;
    fn handle(&mut self, Turn(mut bytes): Turn, _: &mut Context<Self>) -> Self::Result {
        bytes.reverse();
        MessageResult(bytes)
    }
}

/// Watch this one.
#[derive(Message)]
#[rtype(result = "()")]
pub(crate) struct Watch(pub(crate) Pid);

impl Handler<Watch> for Noter {
    type Result = ();
    fn handle(&mut self, Watch(pid): Watch, context: &mut Context<Self>) {
        context.link(&pid);
    }
}

impl Handler<Exited> for Noter {
    type Result = ();
    fn handle(&mut self, Exited { pid, reason }: Exited, _: &mut Context<Self>) {
        self.0.note(format!("exited {} {reason:?}", pid.name()));
    }
}
