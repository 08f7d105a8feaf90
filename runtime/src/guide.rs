//! A guided tour: the runtime in eight short programs, in the order in which a newcomer needs them.
//!
//! Every program here is complete and runs as a test of this crate. None of them sleeps or opens a
//! socket.
//!
//! 1. [A first actor](#1-a-first-actor)
//! 2. [Decide inside, act outside](#2-decide-inside-act-outside)
//! 3. [A test in paused time](#3-a-test-in-paused-time)
//! 4. [Between two nodes](#4-between-two-nodes)
//! 5. [A link, and how it ends](#5-a-link-and-how-it-ends)
//! 6. [An answer that takes time](#6-an-answer-that-takes-time)
//! 7. [After a panic](#7-after-a-panic)
//! 8. [Watching and disturbing messages](#8-watching-and-disturbing-messages)
//!
//! # 1. A first actor
//!
//! An actor owns its state and handles one message at a time. A message declares the type of its
//! reply (`rtype`), and a [`Handler`](crate::prelude::Handler) answers it.
//! [`Process`](crate::Process) makes an actix actor a runtime actor.
//!
//! ```
//! use std::time::Duration;
//! use runtime::prelude::*;
//! use runtime::testing::simulate;
//!
//! /// Adds to the total, and returns it.
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
//! simulate(|node| async move {
//!     let counter = node.spawn("counter", Counter { total: 0 }).unwrap();
//!     counter.tell(Add(2)).unwrap(); // no reply
//!     let total = counter.ask(Add(3), Duration::from_secs(1)).await; // waits at most one second
//!     assert_eq!(total, Ok(5));
//! });
//! ```
//!
//! Tells and asks of one sender are handled in the order in which they were sent. When the mailbox
//! is full, [`tell`](crate::Handle::tell) and [`ask`](crate::Handle::ask) return an error; neither
//! ever blocks. In a service the node comes from [`Node::builder`](crate::Node::builder); all else
//! is the same.
//!
//! # 2. Decide inside, act outside
//!
//! The decision of an actor is a plain function of its state; the actor around it stays simple. Its
//! users hold a handle with methods of its own, which hides messages and irrelevant errors.
//!
//! ```
//! use std::time::Duration;
//! use runtime::prelude::*;
//! use runtime::testing::simulate;
//!
//! /// The decision: is there room for one more? Tested without any runtime.
//! fn has_room(inside: usize, most: usize) -> bool {
//!     inside < most
//! }
//! assert!(has_room(0, 1) && !has_room(1, 1));
//!
//! /// Asks for admission.
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
//! /// The handle for other code.
//! struct DoorRef(Handle<Door>);
//! impl DoorRef {
//!     /// Whether there was room. False if the door is down or slow.
//!     async fn enter(&self) -> bool {
//!         self.0.ask(Enter, Duration::from_secs(1)).await.unwrap_or(false)
//!     }
//! }
//!
//! simulate(|node| async move {
//!     let door = DoorRef(node.spawn("door", Door { inside: 0, most: 1 }).unwrap());
//!     assert_eq!((door.enter().await, door.enter().await), (true, false));
//! });
//! ```
//!
//! # 3. A test in paused time
//!
//! In a simulation time stands still until the system is idle, and then jumps to the next timer. A
//! test of an hour takes no time, and its outcome does not depend on the machine. All time comes
//! from the node's [`Clock`](crate::Clock).
//!
//! ```
//! use std::time::Duration;
//! use runtime::prelude::*;
//! use runtime::testing::simulate;
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
//! simulate(|node| async move {
//!     let alarm = node.spawn("alarm", Alarm::default()).unwrap();
//!     node.clock().advance(Duration::from_secs(3600)).await;
//!     assert_eq!(alarm.ask(Rings, Duration::from_secs(1)).await, Ok(60));
//! });
//! ```
//!
//! [`Clock::settle`](crate::Clock::settle) waits until the system is idle without advancing time.
//!
//! # 4. Between two nodes
//!
//! A message that may cross a wire is a serde type with a stable name and a version
//! ([`remote!`](crate::remote)). An actor lists the messages that it accepts from other nodes, and
//! from which roles; all others stay private. A [`Pid`](crate::Pid) can be sent in a message, and
//! reaches the actor from this thread or from another machine.
//!
//! ```
//! use std::time::Duration;
//! use runtime::prelude::*;
//! use runtime::testing::simulate_network;
//!
//! /// Returns the text in upper case.
//! #[derive(serde::Serialize, serde::Deserialize)]
//! struct Shout(String);
//! remote! { Shout = "example/shout" v1 -> String }
//!
//! struct Crier;
//! impl Actor for Crier { type Context = Context<Self>; }
//! impl Process for Crier {
//!     fn accepts(handlers: &mut RemoteHandlers<Self>) {
//!         handlers.accept::<Shout>(&[Role::Agent]);
//!     }
//! }
//! impl Handler<Shout> for Crier {
//!     type Result = String;
//!     fn handle(&mut self, Shout(text): Shout, ctx: &mut Context<Self>) -> String {
//!         let from = ctx.sender().map(|sender| sender.peer.node.name().to_owned());
//!         format!("{}, {}!", text.to_uppercase(), from.unwrap_or_default())
//!     }
//! }
//!
//! simulate_network(|network| async move {
//!     // In memory, but with the real hellos and frames.
//!     // In a cluster each node has a certificate and a socket.
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
//! A tell is delivered at most once. Messages that must arrive although their receiver may fail go
//! through [reliable delivery](crate::delivery).
//!
//! # 5. A link, and how it ends
//!
//! An actor that links to another receives exactly one [`Exited`](crate::Exited) when that one
//! ends: because it stopped or panicked, or because its node or the connection is lost. It comes
//! after the last message that was received from it.
//!
//! ```
//! use runtime::prelude::*;
//! use runtime::testing::simulate_network;
//!
//! struct Worker;
//! impl Actor for Worker { type Context = Context<Self>; }
//! impl Process for Worker {}
//!
//! /// Records the exits of an actor, with their reasons.
//! struct Watcher { target: Pid, exits: Vec<String> }
//! impl Actor for Watcher {
//!     type Context = Context<Self>;
//!     fn started(&mut self, ctx: &mut Context<Self>) { ctx.link(&self.target); }
//! }
//! impl Process for Watcher {}
//! impl Handler<Exited> for Watcher {
//!     type Result = ();
//!     fn handle(&mut self, Exited { pid, reason }: Exited, _: &mut Context<Self>) {
//!         self.exits.push(format!("{}: {reason}", pid.name()));
//!     }
//! }
//!
//! #[derive(Message)]
//! #[rtype(result = "Vec<String>")]
//! struct Exits;
//! impl Handler<Exits> for Watcher {
//!     type Result = Vec<String>;
//!     fn handle(&mut self, _: Exits, _: &mut Context<Self>) -> Vec<String> { self.exits.clone() }
//! }
//!
//! simulate_network(|network| async move {
//!     let master = network.node("master", Role::Master, &[Role::Agent]);
//!     let agent = network.node("agent", Role::Agent, &[Role::Master]);
//!     let worker = agent.spawn("worker", Worker).unwrap();
//!     master.connect("agent").await.unwrap();
//!     let watcher = Watcher { target: worker.pid(), exits: Vec::new() };
//!     let watcher = master.spawn("watcher", watcher).unwrap();
//!     master.clock().settle().await;
//!
//!     network.leave("agent"); // the machine dies
//!     master.clock().settle().await;
//!     let exits = watcher.ask(Exits, Patience::WhileLinked).await.unwrap();
//!     assert_eq!(exits, ["worker: node lost: connection lost"]);
//! });
//! ```
//!
//! [`Patience::WhileLinked`](crate::Patience) uses the same mechanism: such an ask waits until its
//! reply or the end of the other actor.
//!
//! # 6. An answer that takes time
//!
//! A handler never waits. If the answer needs the reply to another ask first, send that ask with
//! [`Context::then`](crate::Context::then): the rest runs back in the actor when the reply is
//! there, and the mailbox stays open meanwhile. If the answer needs an event, keep the
//! [`Promise`](crate::Promise) of a [`Reply`](crate::Reply).
//!
//! ```
//! use std::time::Duration;
//! use runtime::prelude::*;
//! use runtime::testing::simulate;
//!
//! /// How many are in stock?
//! #[derive(Message)]
//! #[rtype(result = "u32")]
//! struct Stock;
//! /// Can this many be delivered?
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
//! simulate(|node| async move {
//!     let store = node.spawn("store", Store).unwrap();
//!     let shop = node.spawn("shop", Shop { store: store.clone() }).unwrap();
//!     assert_eq!(shop.ask(Order(5), Patience::WhileLinked).await, Ok(true));
//!     store.stop(); // A store that is down is an error that the shop handles, never a stall.
//!     assert_eq!(shop.ask(Order(5), Patience::WhileLinked).await, Ok(false));
//! });
//! ```
//!
//! A dropped promise ends the ask with `Gone`. Work that would block a thread goes through
//! [`Node::blocking`](crate::Node::blocking).
//!
//! # 7. After a panic
//!
//! A panic ends one actor and no other. Its [`Supervision`](crate::Supervision) decides the rest:
//! the actor stays gone (after `spawn`), it is restarted after a delay, or the process ends. A
//! restarted actor is another incarnation: it begins with the state that its constructor provides
//! and an empty mailbox. Handles follow it; pids do not.
//!
//! ```
//! use std::time::Duration;
//! use runtime::prelude::*;
//! use runtime::testing::simulate;
//!
//! /// Divides a hundred by this number.
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
//! simulate(|node| async move {
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
//! A test may observe every message of a node, and drop, delay, duplicate or swap some
//! ([`tap`](crate::observe::tap)). The actors cannot detect it.
//!
//! ```
//! use std::time::Duration;
//! use runtime::prelude::*;
//! use runtime::testing::simulate;
//! use runtime::observe::tap::Probe;
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
//! simulate(|node| async move {
//!     let door = node.spawn("door", Door).unwrap();
//!     let probe = Probe::on(&node);
//!     let knocks = probe.observe::<Knock>(|_| true);
//!     let lost = probe.drop_next::<Knock>(|_| true);
//!     let patience = Duration::from_secs(1);
//!     // The first is lost in transit, so the ask needs a limited patience.
//!     assert_eq!(door.ask(Knock, patience).await, Err(AskError::Late { after: patience }));
//!     assert_eq!(door.ask(Knock, patience).await, Ok(()));
//!     assert_eq!((knocks.count(), lost.count()), (2, 1));
//! });
//! ```
//!
//! # Further reading
//!
//! - A module (an allocator, an estimator, a QoS controller) is an actor that accepts the messages
//!   of its kind: see the crate `module-api`.
//! - A framework's scheduler and its executor have drivers, which are such actors:
//!   `scheduler-driver`, `executor-driver`.
//! - The bounds, and the treatment of messages beyond them:
//!   [`Process::MAILBOX`](crate::Process::MAILBOX), [`WhenFull`](crate::WhenFull),
//!   [`NodeBuilder::outgoing_max`](crate::NodeBuilder::outgoing_max).
//! - The threads of actors: [`Placement`](crate::Placement). Their state:
//!   [`Node::processes`](crate::Node::processes).
