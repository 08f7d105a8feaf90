//! A guided tour: the runtime in eight short programs, in the order in which a newcomer needs them.
//!
//! Every program here is whole and runs as a test of this crate. None of them sleeps or opens a socket. For what is said only in
//! passing, follow the links.
//!
//! 1. [A first actor](#1-a-first-actor) 2. [Decide inside, act outside](#2-decide-inside-act-outside)
//! 3. [A test in paused time](#3-a-test-in-paused-time) 4. [Between two nodes](#4-between-two-nodes)
//! 5. [A link, and how it ends](#5-a-link-and-how-it-ends) 6. [An answer that takes time](#6-an-answer-that-takes-time)
//! 7. [After a panic](#7-after-a-panic) 8. [Watching and disturbing messages](#8-watching-and-disturbing-messages)
//!
//! # 1. A first actor
//!
//! An actor owns its state and hears one message at a time. A message says what it is answered with (`rtype`), a
//! [`Handler`](crate::prelude::Handler) answers it. [`Process`](crate::Process) makes it one of ours.
//!
//! ```
//! use std::time::Duration;
//! use runtime::prelude::*;
//! use runtime::rehearsal::rehearse;
//!
//! /// So many more have come.
//! #[derive(Message)]
//! #[rtype(result = "u64")]
//! struct Add(u64);
//!
//! struct Counter { total: u64 }
//! impl Actor for Counter { type Context = Context<Self>; }
//! impl Process for Counter {}
//! impl Handler<Add> for Counter {
//!     type Result = u64;
//!     fn handle(&mut self, Add(more): Add, _: &mut Context<Self>) -> u64 {
//!         self.total += more;
//!         self.total
//!     }
//! }
//!
//! rehearse(|node| async move {
//!     let counter = node.spawn("counter", Counter { total: 0 }).unwrap();
//!     counter.tell(Add(2)).unwrap(); // nothing comes back
//!     let total = counter.ask(Add(3), Duration::from_secs(1)).await; // with so much patience
//!     assert_eq!(total, Ok(5));
//! });
//! ```
//!
//! What was told and asked is heard in the order in which it was said. A full mailbox refuses: [`tell`](crate::Handle::tell) and
//! [`ask`](crate::Handle::ask) both give an error then, and neither ever blocks. In a service the node comes from
//! [`Node::builder`](crate::Node::builder); all else is the same.
//!
//! # 2. Decide inside, act outside
//!
//! What an actor decides is a plain function of what it knows; the actor around it stays dull. Others hold a handle with verbs of
//! its own, which hides messages and errors that mean nothing to them.
//!
//! ```
//! use std::time::Duration;
//! use runtime::prelude::*;
//! use runtime::rehearsal::rehearse;
//!
//! /// The decision: may one more be let in? Tested without any runtime.
//! fn has_room(inside: usize, most: usize) -> bool {
//!     inside < most
//! }
//! assert!(has_room(0, 1) && !has_room(1, 1));
//!
//! /// May I come in?
//! #[derive(Message)]
//! #[rtype(result = "bool")]
//! struct Enter;
//!
//! struct Door { inside: usize, most: usize }
//! impl Actor for Door { type Context = Context<Self>; }
//! impl Process for Door {}
//! impl Handler<Enter> for Door {
//!     type Result = bool;
//!     fn handle(&mut self, _: Enter, _: &mut Context<Self>) -> bool {
//!         let enters = has_room(self.inside, self.most);
//!         self.inside += usize::from(enters);
//!         enters
//!     }
//! }
//!
//! /// What others hold.
//! struct DoorRef(Handle<Door>);
//! impl DoorRef {
//!     /// Whether there was room. A door that is down or slow lets nobody in.
//!     async fn enter(&self) -> bool {
//!         self.0.ask(Enter, Duration::from_secs(1)).await.unwrap_or(false)
//!     }
//! }
//!
//! rehearse(|node| async move {
//!     let door = DoorRef(node.spawn("door", Door { inside: 0, most: 1 }).unwrap());
//!     assert_eq!((door.enter().await, door.enter().await), (true, false));
//! });
//! ```
//!
//! # 3. A test in paused time
//!
//! In a rehearsal time stands still until nothing is left to do, and then jumps to the next timer. A test of an hour takes
//! no time, and its outcome does not depend on the machine. All time comes from the node's [`Clock`](crate::Clock).
//!
//! ```
//! use std::time::Duration;
//! use runtime::prelude::*;
//! use runtime::rehearsal::rehearse;
//!
//! /// How often did it ring?
//! #[derive(Message)]
//! #[rtype(result = "u32")]
//! struct Rings;
//!
//! #[derive(Default)]
//! struct Alarm { rings: u32 }
//! impl Actor for Alarm {
//!     type Context = Context<Self>;
//!     fn started(&mut self, ctx: &mut Context<Self>) {
//!         ctx.every(Duration::from_secs(60), |alarm, _| alarm.rings += 1);
//!     }
//! }
//! impl Process for Alarm {}
//! impl Handler<Rings> for Alarm {
//!     type Result = u32;
//!     fn handle(&mut self, _: Rings, _: &mut Context<Self>) -> u32 { self.rings }
//! }
//!
//! rehearse(|node| async move {
//!     let alarm = node.spawn("alarm", Alarm::default()).unwrap();
//!     node.clock().advance(Duration::from_secs(3600)).await;
//!     assert_eq!(alarm.ask(Rings, Duration::from_secs(1)).await, Ok(60));
//! });
//! ```
//!
//! [`Clock::settle`](crate::Clock::settle) waits until everybody is idle without moving time on.
//!
//! # 4. Between two nodes
//!
//! A message that may cross a wire is a serde type with a stable name and a version ([`remote!`](crate::remote)). An actor lists what it
//! hears from outside, and from which roles; all else stays private. A [`Pid`](crate::Pid) can be sent in a message, and whoever has it
//! reaches the actor, be it in this thread or on another machine.
//!
//! ```
//! use std::time::Duration;
//! use runtime::prelude::*;
//! use runtime::rehearsal::rehearse_network;
//!
//! /// What do you make of this text?
//! #[derive(serde::Serialize, serde::Deserialize)]
//! struct Shout(String);
//! remote! { Shout = "example/shout" v1 -> String }
//!
//! struct Crier;
//! impl Actor for Crier { type Context = Context<Self>; }
//! impl Process for Crier {
//!     fn hears(ears: &mut Ears<Self>) { ears.hear::<Shout>(&[Role::Agent]); }
//! }
//! impl Handler<Shout> for Crier {
//!     type Result = String;
//!     fn handle(&mut self, Shout(text): Shout, ctx: &mut Context<Self>) -> String {
//!         let from = ctx.sender().map(|sender| sender.peer.node.name().to_owned());
//!         format!("{}, {}!", text.to_uppercase(), from.unwrap_or_default())
//!     }
//! }
//!
//! rehearse_network(|network| async move {
//!     // In memory, but with the real hellos and frames. In a cluster the two have certificates and a socket each.
//!     let master = network.node("master", Role::Master, &[Role::Agent]);
//!     let agent = network.node("agent", Role::Agent, &[Role::Master]);
//!     master.spawn("crier", Crier).unwrap();
//!
//!     let patience = Duration::from_secs(5);
//!     let crier: Pid = agent.find("master", "crier", patience).await.unwrap();
//!     let answer = agent.ask(&crier, Shout("hello".into()), patience).await;
//!     assert_eq!(answer, Ok("HELLO, agent!".to_owned()));
//! });
//! ```
//!
//! A tell is at most once. What must arrive although its receiver may fail goes through a [courier](crate::delivery).
//!
//! # 5. A link, and how it ends
//!
//! Who links to an actor hears exactly one [`Exited`](crate::Exited) when it ends: because it stopped, fell, or because its node or the
//! connection is lost. It comes after the last message that was received from it.
//!
//! ```
//! use runtime::prelude::*;
//! use runtime::rehearsal::rehearse_network;
//!
//! struct Worker;
//! impl Actor for Worker { type Context = Context<Self>; }
//! impl Process for Worker {}
//!
//! /// Writes down who has left, and why.
//! struct Watcher { whom: Pid, left: Vec<String> }
//! impl Actor for Watcher {
//!     type Context = Context<Self>;
//!     fn started(&mut self, ctx: &mut Context<Self>) { ctx.link(&self.whom); }
//! }
//! impl Process for Watcher {}
//! impl Handler<Exited> for Watcher {
//!     type Result = ();
//!     fn handle(&mut self, Exited { pid, reason }: Exited, _: &mut Context<Self>) {
//!         self.left.push(format!("{}: {reason}", pid.name()));
//!     }
//! }
//!
//! #[derive(Message)]
//! #[rtype(result = "Vec<String>")]
//! struct WhoLeft;
//! impl Handler<WhoLeft> for Watcher {
//!     type Result = Vec<String>;
//!     fn handle(&mut self, _: WhoLeft, _: &mut Context<Self>) -> Vec<String> { self.left.clone() }
//! }
//!
//! rehearse_network(|network| async move {
//!     let master = network.node("master", Role::Master, &[Role::Agent]);
//!     let agent = network.node("agent", Role::Agent, &[Role::Master]);
//!     let worker = agent.spawn("worker", Worker).unwrap();
//!     master.connect("agent").await.unwrap();
//!     let watcher = Watcher { whom: worker.pid(), left: Vec::new() };
//!     let watcher = master.spawn("watcher", watcher).unwrap();
//!     master.clock().settle().await;
//!
//!     network.leave("agent"); // the machine dies
//!     master.clock().settle().await;
//!     let left = watcher.ask(WhoLeft, Patience::WhileLinked).await.unwrap();
//!     assert_eq!(left, ["worker: node lost: connection lost"]);
//! });
//! ```
//!
//! [`Patience::WhileLinked`](crate::Patience) uses the same: such an ask waits as long as the asked one lives, and not longer.
//!
//! # 6. An answer that takes time
//!
//! A handler never waits. If the answer needs a question first, ask it with [`Context::then`](crate::Context::then): the rest runs back in
//! the actor when the answer is there, and the mailbox stays open meanwhile. If it needs an event, keep the
//! [`Promise`](crate::Promise) of a [`Reply`](crate::Reply).
//!
//! ```
//! use std::time::Duration;
//! use runtime::prelude::*;
//! use runtime::rehearsal::rehearse;
//!
//! /// How much is there?
//! #[derive(Message)]
//! #[rtype(result = "u32")]
//! struct Stock;
//! /// Can so much be had?
//! #[derive(Message)]
//! #[rtype(result = "bool")]
//! struct Order(u32);
//!
//! struct Store;
//! impl Actor for Store { type Context = Context<Self>; }
//! impl Process for Store {}
//! impl Handler<Stock> for Store {
//!     type Result = u32;
//!     fn handle(&mut self, _: Stock, _: &mut Context<Self>) -> u32 { 7 }
//! }
//!
//! struct Shop { store: Handle<Store> }
//! impl Actor for Shop { type Context = Context<Self>; }
//! impl Process for Shop {}
//! impl Handler<Order> for Shop {
//!     type Result = Reply<bool>;
//!     fn handle(&mut self, Order(wanted): Order, ctx: &mut Context<Self>) -> Reply<bool> {
//!         let (promise, reply) = promise();
//!         let stock = self.store.ask(Stock, Duration::from_secs(5));
//!         ctx.then(stock, move |_shop, stock, _| {
//!             promise.answer(stock.is_ok_and(|stock| stock >= wanted));
//!         });
//!         reply
//!     }
//! }
//!
//! rehearse(|node| async move {
//!     let store = node.spawn("store", Store).unwrap();
//!     let shop = node.spawn("shop", Shop { store: store.clone() }).unwrap();
//!     assert_eq!(shop.ask(Order(5), Patience::WhileLinked).await, Ok(true));
//!     store.stop(); // Down or late is an error the shop can act on, never a stall.
//!     assert_eq!(shop.ask(Order(5), Patience::WhileLinked).await, Ok(false));
//! });
//! ```
//!
//! A promise that is dropped ends the ask with `Gone`. Work that would block a thread goes through
//! [`Node::blocking`](crate::Node::blocking).
//!
//! # 7. After a panic
//!
//! A panic ends one actor and no other. What follows is its [`Supervision`](crate::Supervision): it stays gone (after `spawn`), it is made
//! anew after a pause, or the process ends. A new life is another incarnation: it begins with what its maker gives it and an
//! empty mailbox. Handles follow it; pids do not.
//!
//! ```
//! use std::time::Duration;
//! use runtime::prelude::*;
//! use runtime::rehearsal::rehearse;
//!
//! /// What is a hundred, shared among so many?
//! #[derive(Message)]
//! #[rtype(result = "u32")]
//! struct Share(u32);
//!
//! struct Divider;
//! impl Actor for Divider { type Context = Context<Self>; }
//! impl Process for Divider {}
//! impl Handler<Share> for Divider {
//!     type Result = u32;
//!     fn handle(&mut self, Share(among): Share, _: &mut Context<Self>) -> u32 { 100 / among }
//! }
//!
//! rehearse(|node| async move {
//!     let policy = Supervision::Restart {
//!         backoff: Duration::from_secs(1),
//!         backoff_max: Duration::from_secs(60),
//!         limit: 5,
//!     };
//!     let divider = node.supervise("divider", policy, || Divider).unwrap();
//!     let (first, patience) = (divider.pid(), Patience::WhileLinked);
//!     assert_eq!(divider.ask(Share(0), patience).await, Err(AskError::Gone));
//!     node.clock().advance(Duration::from_secs(1)).await;
//!     assert_eq!(divider.ask(Share(4), patience).await, Ok(25));
//!     assert_ne!(divider.pid(), first);
//! });
//! ```
//!
//! # 8. Watching and disturbing messages
//!
//! A test may look at every message of a node, and lose, delay, double or swap some ([`tap`](crate::tap)). The actors cannot tell.
//!
//! ```
//! use std::time::Duration;
//! use runtime::prelude::*;
//! use runtime::rehearsal::rehearse;
//! use runtime::tap::Probe;
//!
//! #[derive(Message)]
//! #[rtype(result = "()")]
//! struct Knock;
//!
//! struct Door;
//! impl Actor for Door { type Context = Context<Self>; }
//! impl Process for Door {}
//! impl Handler<Knock> for Door {
//!     type Result = ();
//!     fn handle(&mut self, _: Knock, _: &mut Context<Self>) {}
//! }
//!
//! rehearse(|node| async move {
//!     let door = node.spawn("door", Door).unwrap();
//!     let probe = Probe::on(&node);
//!     let knocks = probe.observe::<Knock>(|_| true);
//!     let lost = probe.drop_next::<Knock>(|_| true);
//!     let patience = Duration::from_secs(1);
//!     // The first is lost on its way: whoever asks needs patience that ends.
//!     assert_eq!(door.ask(Knock, patience).await, Err(AskError::Late { after: patience }));
//!     assert_eq!(door.ask(Knock, patience).await, Ok(()));
//!     assert_eq!((knocks.count(), lost.count()), (2, 1));
//! });
//! ```
//!
//! # And then
//!
//! - A module (an allocator, an estimator, a QoS controller) is an actor that hears the messages of its kind: see the crate `module-api`.
//! - A framework's scheduler and its executor have drivers, which are such actors: `scheduler-driver`, `executor-driver`.
//! - What is bounded, and what becomes of one message too many: [`Process::MAILBOX`](crate::Process::MAILBOX),
//!   [`WhenFull`](crate::WhenFull), [`NodeBuilder::outgoing_max`](crate::NodeBuilder::outgoing_max).
//! - Where actors run: [`Placement`](crate::Placement). What is seen from outside: [`Node::processes`](crate::Node::processes).
