//! Nodes of two versions: changed messages are sent in the older version, by every kind of send.

use super::*;
use crate::delivery::{self, Bounds, DedupReceiver, Sequenced};
use crate::observe::tap::Probe;
use crate::testing::memory::Network;
use crate::testing::{self, simulate_network};

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

/// A clerk of the previous release: it does not know the newest versions.
struct OldClerk(Clerk);

impl Actor for OldClerk {
    type Context = Context<Self>;
}

impl Process for OldClerk {
    fn accepts(handlers: &mut RemoteHandlers<Self>) {
        handlers.accept::<Sequenced>(&Role::ALL);
        handlers.accept::<LineV2>(&Role::ALL);
        handlers.accept::<WordV1>(&Role::ALL);
    }
}

impl Handler<LineV2> for OldClerk {
    type Result = u32;
    fn handle(&mut self, LineV2(number): LineV2, _: &mut Context<Self>) -> u32 {
        self.0.write(format!("v2 {number}"))
    }
}

impl Handler<WordV1> for OldClerk {
    type Result = ();
    fn handle(&mut self, WordV1(length): WordV1, _: &mut Context<Self>) {
        self.0.write(format!("v1 {length}"));
    }
}

impl Handler<Sequenced> for OldClerk {
    type Result = MessageResult<Sequenced>;
    fn handle(&mut self, numbered: Sequenced, ctx: &mut Context<Self>) -> Self::Result {
        MessageResult(delivery::take(
            self,
            |clerk| &mut clerk.0.incoming,
            numbered,
            ctx,
        ))
    }
}

/// A node of this network.
fn node(network: &Network, name: &str) -> Node {
    let node = testing::node(name)
        .role(Role::Master)
        .accepts(&Role::ALL)
        .build();
    network.join(&node, name);
    node
}

/// Sends these messages as a sequenced message, a tell and an ask.
async fn send<W, L>(node: &Node, to: &Pid, words: [W; 2], line: L)
where
    W: Remote<Result = ()>,
    L: Remote<Result = u32>,
{
    let [first, second] = words;
    let sender = node.reliable_sender(Bounds::default()).unwrap();
    let receipt = sender.send(first).unwrap();
    sender.retarget(to);
    assert_eq!(receipt.await, Ok(()));
    node.tell(to, second).unwrap();
    assert_eq!(node.ask(to, line, SECOND).await, Ok(3));
}

/// The messages that a clerk, of the previous release or of this one, handles from such a sender.
fn handled(old_sender: bool, old_clerk: bool, tapped: bool) -> Vec<String> {
    simulate_network(move |network| async move {
        let (here, there) = (node(&network, "here"), node(&network, "there"));
        let book = Book::default();
        match old_clerk {
            true => drop(there.spawn("clerk", OldClerk(Clerk::of(&book))).unwrap()),
            false => drop(there.spawn("clerk", Clerk::of(&book)).unwrap()),
        }
        let _probe = tapped.then(|| Probe::on(&here));
        let pid = here.find("there", "clerk", SECOND).await.unwrap();
        match old_sender {
            true => send(&here, &pid, [WordV1(3), WordV1(5)], LineV2(6)).await,
            false => {
                let words = ["one", "three"].map(|word| Word(word.to_owned()));
                send(&here, &pid, words, Line("a line".to_owned())).await;
            }
        }
        book.lock().unwrap().clone()
    })
}

#[test]
fn older_receivers_get_the_older_version() {
    let newest = ["one", "three", "a line"];
    let older = ["v1 3", "v1 5", "v2 6"];
    for tapped in [false, true] {
        assert_eq!(handled(false, false, tapped), newest);
        assert_eq!(handled(false, true, tapped), older);
        assert_eq!(handled(true, false, tapped), older);
        assert_eq!(handled(true, true, tapped), older);
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
        let here = node(&network, "here");
        let there = node(&network, "there");
        there.will_accept::<Elder>();
        here.connect("there").await.unwrap();
        assert_eq!(here.peer_accepts(there.id(), Line::ID), Some(1));
        there.spawn("elder", Elder).unwrap();
        let elder = here.find("there", "elder", SECOND).await.unwrap();
        let asked = here.ask(&elder, Line("12345".to_owned()), SECOND).await;
        assert_eq!(asked, Ok(5));
    });
}
