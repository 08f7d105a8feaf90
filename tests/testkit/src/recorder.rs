//! An actor that records its messages, for tests of transports; and tests in real time.

use std::future::Future;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use runtime::prelude::*;
use serde::{Deserialize, Serialize};

/// Upper bound of a wait; tests normally need milliseconds.
pub const PATIENCE: Duration = Duration::from_secs(30);

/// Runs a test on one thread in real time, for at most two minutes.
pub fn run_in_real_time<F: Future>(test: F) -> F::Output {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    tokio::task::LocalSet::new().block_on(&runtime, async {
        Clock::real()
            .timeout(Duration::from_secs(120), test)
            .await
            .expect("the test ends in time")
    })
}

/// Waits until `holds` is true.
pub async fn eventually(clock: &Clock, what: &str, holds: impl Fn() -> bool) {
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

/// A message with a number and padding.
#[derive(Serialize, Deserialize)]
pub struct Numbered {
    /// Its number.
    pub number: u64,
    /// Bytes that are all the lowest byte of the number.
    pub padding: Vec<u8>,
}

/// A message in the ping lane.
#[derive(Serialize, Deserialize)]
pub struct Pinged(pub u64);

/// Returns the bytes in reverse order.
#[derive(Serialize, Deserialize)]
pub struct ReverseBytes(pub Vec<u8>);

runtime::remote! {
    Numbered = "transport-test/said" v1;
    Pinged = "transport-test/pinged" v1 lane Ping;
    ReverseBytes = "transport-test/turn" v1 -> Vec<u8>
}

/// A message without padding.
pub fn numbered(number: u64) -> Numbered {
    Numbered {
        number,
        padding: Vec::new(),
    }
}

/// A message with so many bytes of padding.
pub fn large(number: u64, bytes: usize) -> Numbered {
    Numbered {
        number,
        padding: vec![number as u8; bytes],
    }
}

/// The records of a [`Noter`].
#[derive(Clone, Default)]
pub struct Notes(Arc<Mutex<Vec<String>>>);

impl Notes {
    /// All notes so far, in order.
    pub fn all(&self) -> Vec<String> {
        self.0.lock().unwrap().clone()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The number of notes.
    #[allow(clippy::len_without_is_empty)] // No test asks.
    pub fn len(&self) -> usize {
        self.0.lock().unwrap().len()
    }

    fn note(&self, note: String) {
        self.0.lock().unwrap().push(note);
    }
}

/// Notes each message that it handles, and the end of each actor that it watches.
pub struct Noter(pub Notes);

impl Actor for Noter {
    type Context = Context<Self>;
}

impl Process for Noter {
    fn accepts(handlers: &mut RemoteHandlers<Self>) {
        handlers.accept::<Numbered>(&Role::ALL);
        handlers.accept::<Pinged>(&Role::ALL);
        handlers.accept::<ReverseBytes>(&Role::ALL);
    }
}

impl Handler<Numbered> for Noter {
    type Result = ();
    fn handle(&mut self, Numbered { number, padding }: Numbered, _: &mut Context<Self>) {
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

impl Handler<ReverseBytes> for Noter {
    type Result = MessageResult<ReverseBytes>;
    fn handle(
        &mut self,
        ReverseBytes(mut bytes): ReverseBytes,
        _: &mut Context<Self>,
    ) -> Self::Result {
        bytes.reverse();
        MessageResult(bytes)
    }
}

/// Makes the noter watch this actor.
#[derive(Message)]
#[rtype(result = "()")]
pub struct Watch(pub Pid);

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
