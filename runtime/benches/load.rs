//! The loads under which actors are measured, each twice: under raw actix and under the runtime, with the same actor and messages.
//!
//! Used by `cargo bench -p meros-runtime --bench local`; who calls takes the time. Nothing here is bounded by
//! a mailbox, because raw actix is not either: ours are made so large that they refuse nothing.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use runtime::{Node, Process};
use tokio::sync::Notify;

/// Messages that a sender tells before others get their turn.
const BURST: u64 = 100;

/// Waits until so many things have happened.
#[derive(Clone)]
pub struct Countdown(Arc<(AtomicU64, Notify)>);

impl Countdown {
    /// Of so many things.
    pub fn of(count: u64) -> Self {
        Self(Arc::new((AtomicU64::new(count), Notify::new())))
    }

    /// One more has happened.
    pub fn one(&self) {
        if self.0.0.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.0.1.notify_one();
        }
    }

    /// Ready when all have.
    pub async fn done(&self) {
        while self.0.0.load(Ordering::Acquire) > 0 {
            self.0.1.notified().await;
        }
    }
}

/// Bytes of this process that are in memory; 0 where there is no /proc.
pub fn resident() -> f64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kibibytes = line.and_then(|line| line.split_whitespace().next()?.parse::<f64>().ok());
    kibibytes.unwrap_or(0.0) * 1024.0
}

/// Bytes of memory for each of so many idle actors: ours, and raw actix'. Both crowds live at once, so that neither is given what the
/// other let go of.
pub async fn memory(home: &Node, count: u64) -> [f64; 2] {
    // What the first of a kind needs is not each one's own.
    let _first = (ours::spawn(home, 1).await, raw::spawn(&(), 1).await);
    let empty = resident();
    let ours = ours::spawn(home, count).await;
    let with_ours = resident();
    let raw = raw::spawn(&(), count).await;
    let with_both = resident();
    drop((ours, raw));
    [with_ours - empty, with_both - with_ours].map(|bytes| bytes / count as f64)
}

/// What raw actix offers.
mod actix_kit {
    use actix::prelude::{Actor, AsyncContext, Handler, Message};
    pub use actix::{Addr as Address, Context};

    /// Where actors start: on this thread.
    pub type Home = ();

    pub fn start<A: Actor<Context = Context<A>>>(_: &Home, actor: A) -> Address<A> {
        actor.start()
    }

    pub fn tell<A, M>(to: &Address<A>, message: M)
    where
        A: Actor<Context = Context<A>> + Handler<M>,
        M: Message<Result = ()> + Send + 'static,
    {
        to.do_send(message);
    }

    pub fn own<A: Actor<Context = Context<A>>>(ctx: &Context<A>) -> Address<A> {
        ctx.address()
    }
}

/// What the runtime offers.
mod runtime_kit {
    use actix::prelude::{Handler, Message};
    use runtime::Process;
    pub use runtime::{Context, Handle as Address, Node as Home};

    /// Starts it under a name of its own.
    ///
    /// # Panics
    /// If it cannot be started: then there is nothing to measure.
    #[allow(clippy::expect_used, reason = "there is nothing to measure without it")]
    pub fn start<A: Process + Send>(home: &Home, actor: A) -> Address<A> {
        home.spawn_unnamed("actor", actor)
            .expect("an actor of the load")
    }

    pub fn tell<A, M>(to: &Address<A>, message: M)
    where
        A: Process + Handler<M>,
        M: Message<Result = ()> + Send + 'static,
    {
        // One that is refused is never counted, and the load would not end: mailboxes are large enough.
        let _ = to.tell(message);
    }

    pub fn own<A: Process>(ctx: &Context<A>) -> Address<A> {
        ctx.handle()
    }
}

macro_rules! side {
    ($(#[$doc:meta])* $side:ident, $kit:ident) => {
        $(#[$doc])*
        pub mod $side {
            use actix::prelude::{Actor, Handler, Message};

            use super::$kit::{Address, Context, Home, own, start, tell};
            use super::{BURST, Countdown};

            /// One more has come.
            #[derive(Message)]
            #[rtype(result = "()")]
            struct One;

            /// Tell the sink so many.
            #[derive(Message)]
            #[rtype(result = "()")]
            struct Go(u64);

            /// This one is next to you.
            #[derive(Message)]
            #[rtype(result = "()")]
            struct Next(Address<Link>);

            /// Pass this on so often.
            #[derive(Message)]
            #[rtype(result = "()")]
            struct Token(u64);

            /// Does nothing, once it has begun.
            pub struct Idle(Countdown);

            /// Counts what it hears.
            pub struct Sink(Countdown);

            /// Tells the sink.
            pub struct Source(Address<Sink>);

            /// A link of a ring.
            pub struct Link {
                next: Option<Address<Self>>,
                ended: Countdown,
            }

            impl Actor for Idle {
                type Context = Context<Self>;
                fn started(&mut self, _: &mut Context<Self>) {
                    self.0.one();
                }
            }

            impl Actor for Sink {
                type Context = Context<Self>;
            }

            impl Actor for Source {
                type Context = Context<Self>;
            }

            impl Actor for Link {
                type Context = Context<Self>;
            }

            impl Handler<One> for Sink {
                type Result = ();
                fn handle(&mut self, _: One, _: &mut Context<Self>) {
                    self.0.one();
                }
            }

            impl Handler<Go> for Source {
                type Result = ();
                fn handle(&mut self, Go(count): Go, ctx: &mut Context<Self>) {
                    (0..count.min(BURST)).for_each(|_| tell(&self.0, One));
                    if count > BURST {
                        tell(&own(ctx), Go(count - BURST));
                    }
                }
            }

            impl Handler<Next> for Link {
                type Result = ();
                fn handle(&mut self, Next(next): Next, _: &mut Context<Self>) {
                    self.next = Some(next);
                }
            }

            impl Handler<Token> for Link {
                type Result = ();
                fn handle(&mut self, Token(left): Token, _: &mut Context<Self>) {
                    match &self.next {
                        Some(next) if left > 0 => tell(next, Token(left - 1)),
                        _ => self.ended.one(),
                    }
                }
            }

            /// Starts so many actors that have nothing to do, and gives them when all have begun.
            pub async fn spawn(home: &Home, count: u64) -> Vec<Address<Idle>> {
                let begun = Countdown::of(count);
                let all = (0..count).map(|_| start(home, Idle(begun.clone()))).collect();
                begun.done().await;
                all
            }

            /// So many actors tell one, each so many messages.
            pub async fn fan_in(home: &Home, actors: u64, each: u64) {
                let heard = Countdown::of(actors * each);
                let sink = start(home, Sink(heard.clone()));
                let sources: Vec<_> = (0..actors)
                    .map(|_| start(home, Source(sink.clone())))
                    .collect();
                sources.iter().for_each(|source| tell(source, Go(each)));
                heard.done().await;
            }

            /// So many threads tell one actor, each so many messages.
            pub async fn fan_in_threads(home: &Home, threads: u64, each: u64) {
                let heard = Countdown::of(threads * each);
                let sink = start(home, Sink(heard.clone()));
                let teller = |_| {
                    let sink = sink.clone();
                    std::thread::spawn(move || (0..each).for_each(|_| tell(&sink, One)))
                };
                let tellers: Vec<_> = (0..threads).map(teller).collect();
                heard.done().await;
                tellers.into_iter().for_each(|teller| drop(teller.join()));
            }

            /// A ring of actors, each of which tells the next.
            pub struct Ring {
                links: Vec<Address<Link>>,
                ended: Countdown,
                tokens: u64,
            }

            impl Ring {
                /// Starts so many actors, for so many tokens.
                pub fn start(home: &Home, actors: u64, tokens: u64) -> Self {
                    let ended = Countdown::of(tokens);
                    let link = |_| {
                        let ended = ended.clone();
                        start(home, Link { next: None, ended })
                    };
                    let links: Vec<_> = (0..actors).map(link).collect();
                    for (at, link) in links.iter().enumerate() {
                        tell(link, Next(links[(at + 1) % links.len()].clone()));
                    }
                    Self {
                        links,
                        ended,
                        tokens,
                    }
                }

                /// Sends the tokens round, spread over the ring; each is passed on so often.
                pub async fn turn(self, hops: u64) {
                    for token in 0..self.tokens {
                        let at = token * self.links.len() as u64 / self.tokens;
                        tell(&self.links[at as usize], Token(hops));
                    }
                    self.ended.done().await;
                }
            }
        }
    };
}

side!(
    /// Under raw actix.
    raw,
    actix_kit
);
side!(
    /// Under the runtime.
    ours,
    runtime_kit
);

impl Process for ours::Idle {}
impl Process for ours::Source {}
impl Process for ours::Link {}
impl Process for ours::Sink {
    const MAILBOX: u32 = u32::MAX;
}
