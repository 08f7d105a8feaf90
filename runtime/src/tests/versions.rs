//! Nodes of two versions: changed messages are sent in the older version, by every kind of send.

use bytes::BytesMut;

use super::*;
use crate::delivery::{self, Bounds, DedupReceiver, Sequenced};
use crate::observe::tap::Probe;
use crate::testing::memory::Network;
use crate::testing::{self, run_simulated, simulate_network};
use crate::wire::elision::{READS_SHORT_ID, Reading};
use crate::{Dialled, Hello};

/// Records this; the first version.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct LineV1(u8);

/// The second version.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct LineV2(u32);

/// The current version.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct Line(String);

remote! {
    LineV1 = "test/line" v1 -> u32;
    LineV2 = "test/line" v2 older LineV1 -> u32;
    Line = "test/line" v3 older LineV2 -> u32
}

impl From<&LineV2> for LineV1 {
    fn from(LineV2(number): &LineV2) -> Self {
        LineV1(u8::try_from(*number).unwrap_or(u8::MAX))
    }
}

impl From<&Line> for LineV2 {
    fn from(Line(text): &Line) -> Self {
        LineV2(text.len() as u32)
    }
}

impl From<LineV2> for Line {
    fn from(LineV2(number): LineV2) -> Self {
        Line(format!("v2 {number}"))
    }
}

/// The same, without a reply.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct WordV1(u8);

/// The current version.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct Word(String);

remote! {
    WordV1 = "test/word" v1;
    Word = "test/word" v2 older WordV1
}

impl From<&Word> for WordV1 {
    fn from(Word(text): &Word) -> Self {
        WordV1(text.len() as u8)
    }
}

impl From<WordV1> for Word {
    fn from(WordV1(length): WordV1) -> Self {
        Word(format!("v1 {length}"))
    }
}

/// Handled messages.
type Book = Arc<Mutex<Vec<String>>>;

/// Accepts all versions but the oldest.
struct Clerk {
    book: Book,
    incoming: DedupReceiver,
}

impl Clerk {
    fn of(book: &Book) -> Self {
        Self {
            book: book.clone(),
            incoming: DedupReceiver::default(),
        }
    }

    fn write(&self, text: String) -> u32 {
        let mut book = self.book.lock().unwrap();
        book.push(text);
        book.len() as u32
    }
}

impl Actor for Clerk {
    type Context = Context<Self>;
}

impl Process for Clerk {
    fn accepts(handlers: &mut RemoteHandlers<Self>) {
        handlers.accept::<Sequenced>(&Role::ALL);
        handlers.accept::<Line>(&Role::ALL);
        handlers.accept_legacy::<LineV2, Line>(&Role::ALL);
        handlers.accept::<Word>(&Role::ALL);
        handlers.accept_legacy::<WordV1, Word>(&Role::ALL);
    }
}

impl Handler<Line> for Clerk {
    type Result = u32;
    fn handle(&mut self, Line(text): Line, _: &mut Context<Self>) -> u32 {
        self.write(text)
    }
}

impl Handler<Word> for Clerk {
    type Result = ();
    fn handle(&mut self, Word(text): Word, _: &mut Context<Self>) {
        self.write(text);
    }
}

impl Handler<Sequenced> for Clerk {
    type Result = MessageResult<Sequenced>;
    fn handle(&mut self, numbered: Sequenced, ctx: &mut Context<Self>) -> Self::Result {
        MessageResult(delivery::take(
            self,
            |clerk| &mut clerk.incoming,
            numbered,
            ctx,
        ))
    }
}

/// A node of this network, optionally of the previous version.
fn node(network: &Network, name: &str, previous: bool) -> Node {
    let builder = testing::node(name).role(Role::Master).accepts(&Role::ALL);
    let node = builder.speak_previous(previous).build();
    network.join(&node, name);
    node
}

/// Messages that a clerk of one version handles from a speaker of another: tells, asks and
/// sequenced messages.
fn hears(speaker: bool, clerk: bool, tapped: bool) -> Vec<String> {
    simulate_network(move |network| async move {
        let here = node(&network, "here", speaker);
        let there = node(&network, "there", clerk);
        let book = Book::default();
        there.spawn("clerk", Clerk::of(&book)).unwrap();
        let _probe = tapped.then(|| Probe::on(&here));
        let pid = here.find("there", "clerk", SECOND).await.unwrap();
        let courier = here.reliable_sender(Bounds::default()).unwrap();
        let receipt = courier.send(Word("one".to_owned())).unwrap();
        courier.retarget(&pid);
        assert_eq!(receipt.await, Ok(()));
        here.tell(&pid, Word("three".to_owned())).unwrap();
        let asked = here.ask(&pid, Line("a line".to_owned()), SECOND).await;
        assert_eq!(asked, Ok(3));
        book.lock().unwrap().clone()
    })
}

#[test]
fn older_receivers_get_the_older_version() {
    let newest = ["one", "three", "a line"];
    let older = ["v1 3", "v1 5", "v2 6"];
    for tapped in [false, true] {
        assert_eq!(hears(false, false, tapped), newest);
        assert_eq!(hears(false, true, tapped), older, "the clerk is of before");
        assert_eq!(
            hears(true, false, tapped),
            older,
            "the speaker is of before"
        );
        assert_eq!(hears(true, true, tapped), older);
    }
}

#[test]
fn newest_accepted_version_is_sent() {
    let mut buffer = bytes::BytesMut::new();
    Line("four".to_owned()).encode_as(1, &mut buffer).unwrap();
    assert_eq!(crate::wire::codec::decode(&buffer), Ok(LineV1(4)));
    assert_eq!((Line::OLDEST, LineV2::OLDEST, LineV1::OLDEST), (1, 1, 1));
    assert_eq!((Line::VERSION, LineV2::VERSION), (3, 2));
}

/// Accepts only the first version.
struct Elder;

impl Actor for Elder {
    type Context = Context<Self>;
}

impl Process for Elder {
    fn accepts(handlers: &mut RemoteHandlers<Self>) {
        handlers.accept::<LineV1>(&Role::ALL);
    }
}

impl Handler<LineV1> for Elder {
    type Result = u32;
    fn handle(&mut self, LineV1(number): LineV1, _: &mut Context<Self>) -> u32 {
        u32::from(number)
    }
}

/// An actor may start after the link was made: its messages are in the hello all the same.
#[test]
fn announced_messages_are_in_the_hello() {
    simulate_network(|network| async move {
        let here = node(&network, "here", false);
        let there = node(&network, "there", false);
        there.will_accept::<Elder>();
        here.connect("there").await.unwrap();
        assert_eq!(here.peer_accepts(there.id(), Line::ID), Some(1));
        there.spawn("elder", Elder).unwrap();
        let elder = here.find("there", "elder", SECOND).await.unwrap();
        let asked = here.ask(&elder, Line("12345".to_owned()), SECOND).await;
        assert_eq!(asked, Ok(5));
    });
}

/// Three equal-header tells written to a peer, and whether a Meros that reads only long frames can
/// read them.
fn written_for(reads_short: bool, previous: bool) -> bool {
    run_simulated(async move {
        let builder = testing::node("here").role(Role::Master);
        let here = builder
            .accepts(&[Role::Agent])
            .speak_previous(previous)
            .build();
        let peer = hostile::peer("there", 5);
        let mut hello = hostile::hello(&peer);
        if reads_short {
            hello.accepts.insert(READS_SHORT_ID, 1);
        }
        let link = here.attach(peer.clone(), hello, Dialled::ByUs).unwrap();
        let there = Pid::new("clerk", peer.node, 1);
        for text in ["a", "b", "c"] {
            here.tell(&there, Word(text.into())).unwrap();
        }
        let mut bytes = BytesMut::new();
        link.outgoing(Lane::Ordinary, &mut bytes, 1 << 20).await;
        let reading = Reading {
            frame_max: 1 << 20,
            short: false,
        };
        let mut rest = &bytes[..];
        while let Ok(Some((_, behind))) = reading.front(rest) {
            rest = behind;
        }
        rest.is_empty()
    })
}

#[test]
fn short_frames_are_sent_only_if_announced() {
    for (reads_short, previous, readable) in [
        (false, false, true),
        (true, false, false),
        (true, true, true),
    ] {
        assert_eq!(written_for(reads_short, previous), readable);
    }
    let says = |previous| {
        run_simulated(async move {
            let node = testing::node("here").role(Role::Master);
            let hello = Hello::decode(&node.speak_previous(previous).build().hello());
            hello.unwrap().accepts.get(&READS_SHORT_ID).copied()
        })
    };
    assert_eq!((says(false), says(true)), (Some(1), None));
}
