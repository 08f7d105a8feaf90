//! Nodes of two versions speak with each other: what has changed is said as the older one knows it, whichever way it is said.

use bytes::BytesMut;

use super::*;
use crate::again::{READS_SHORT_ID, Reading};
use crate::delivery::{self, Bounds, Incoming, Numbered};
use crate::memory::Network;
use crate::rehearsal::{self, rehearse_network, stage};
use crate::tap::Probe;
use crate::{Dialled, Hello};

/// Write this down, as it was said first.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct LineV1(u8);

/// As it was said next.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct LineV2(u32);

/// As it is said now.
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

/// The same, of which nobody awaits an answer.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct WordV1(u8);

/// As it is said now.
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

/// What was heard.
type Book = Arc<Mutex<Vec<String>>>;

/// Knows all but the oldest line.
struct Clerk {
    book: Book,
    incoming: Incoming,
}

impl Clerk {
    fn of(book: &Book) -> Self {
        Self {
            book: book.clone(),
            incoming: Incoming::default(),
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
    fn hears(ears: &mut Ears<Self>) {
        ears.hear::<Numbered>(&Role::ALL);
        ears.hear::<Line>(&Role::ALL);
        ears.hear_older::<LineV2, Line>(&Role::ALL);
        ears.hear::<Word>(&Role::ALL);
        ears.hear_older::<WordV1, Word>(&Role::ALL);
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

impl Handler<Numbered> for Clerk {
    type Result = MessageResult<Numbered>;
    fn handle(&mut self, numbered: Numbered, ctx: &mut Context<Self>) -> Self::Result {
        MessageResult(delivery::take(
            self,
            |clerk| &mut clerk.incoming,
            numbered,
            ctx,
        ))
    }
}

/// A node of this network that may be of the version before.
fn node(network: &Network, name: &str, previous: bool) -> Node {
    let builder = rehearsal::node(name).role(Role::Master).accepts(&Role::ALL);
    let node = builder.speak_previous(previous).build();
    network.join(&node, name);
    node
}

/// What a clerk of such a node hears from such a one: told, asked and delivered.
fn hears(speaker: bool, clerk: bool, tapped: bool) -> Vec<String> {
    rehearse_network(move |network| async move {
        let here = node(&network, "here", speaker);
        let there = node(&network, "there", clerk);
        let book = Book::default();
        there.spawn("clerk", Clerk::of(&book)).unwrap();
        let _probe = tapped.then(|| Probe::on(&here));
        let pid = here.find("there", "clerk", SECOND).await.unwrap();
        let courier = here.courier(Bounds::default()).unwrap();
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
fn who_hears_only_the_older_shape_is_told_asked_and_delivered_that() {
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
fn of_two_older_shapes_the_newest_that_is_heard_is_said() {
    let mut buffer = bytes::BytesMut::new();
    Line("four".to_owned()).encode_as(1, &mut buffer).unwrap();
    assert_eq!(crate::codec::decode(&buffer), Ok(LineV1(4)));
    assert_eq!((Line::OLDEST, LineV2::OLDEST, LineV1::OLDEST), (1, 1, 1));
    assert_eq!((Line::VERSION, LineV2::VERSION), (3, 2));
}

/// Knows only what was said first.
struct Elder;

impl Actor for Elder {
    type Context = Context<Self>;
}

impl Process for Elder {
    fn hears(ears: &mut Ears<Self>) {
        ears.hear::<LineV1>(&Role::ALL);
    }
}

impl Handler<LineV1> for Elder {
    type Result = u32;
    fn handle(&mut self, LineV1(number): LineV1, _: &mut Context<Self>) -> u32 {
        u32::from(number)
    }
}

/// An actor may come after the link: what it will hear is in the hello all the same.
#[test]
fn what_will_be_heard_is_said_before_anybody_is_there_to_hear_it() {
    rehearse_network(|network| async move {
        let here = node(&network, "here", false);
        let there = node(&network, "there", false);
        there.will_hear::<Elder>();
        here.connect("there").await.unwrap();
        assert_eq!(here.peer_hears(there.id(), Line::ID), Some(1));
        there.spawn("elder", Elder).unwrap();
        let elder = here.find("there", "elder", SECOND).await.unwrap();
        let asked = here.ask(&elder, Line("12345".to_owned()), SECOND).await;
        assert_eq!(asked, Ok(5));
    });
}

/// What is written to a peer for three words in a row, and whether a Meros that reads only long frames can read it.
fn written_for(reads_short: bool, previous: bool) -> bool {
    stage(async move {
        let builder = rehearsal::node("here").role(Role::Master);
        let here = builder
            .accepts(&[Role::Agent])
            .speak_previous(previous)
            .build();
        let peer = hostile::peer("there", 5);
        let mut hello = hostile::hello(&peer);
        if reads_short {
            hello.hears.insert(READS_SHORT_ID, 1);
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
fn short_frames_are_written_only_to_a_peer_whose_hello_says_that_it_reads_them() {
    for (reads_short, previous, readable) in [
        (false, false, true),
        (true, false, false),
        (true, true, true),
    ] {
        assert_eq!(written_for(reads_short, previous), readable);
    }
    let says = |previous| {
        stage(async move {
            let node = rehearsal::node("here").role(Role::Master);
            let hello = Hello::decode(&node.speak_previous(previous).build().hello());
            hello.unwrap().hears.get(&READS_SHORT_ID).copied()
        })
    };
    assert_eq!((says(false), says(true)), (Some(1), None));
}
