//! Verbs: what operators' commands ask over a link, each in its turn by the operator's rate limits (W29).
//!
//! The same line as that of calls over HTTP, in which a command stands by the name in its certificate: it is kept waiting, or refused where too
//! many wait. What comes from this node is a page's question, which has had its turn. Remembers nothing; what a verb means is said in
//! [`operators`](super::operators), [`draining`](super::draining) and [`maintenance`](super::maintenance).

use authority::{TOO_MANY_COMMANDS, Turn};
use protocol::FrameworkId;
use protocol::explain::OffersExplained;
use protocol::maintenance::{MaintenanceStatus, Window};
use protocol::message::operator::{
    CancelDrain, DeactivateAgent, DrainAgent, ExplainOffers, KillByOperator, MarkAgentGone,
    Operate, OperationRefused, OperatorError, OverRateLimit, ReactivateAgent, StartMaintenance,
    StopMaintenance, Unexplained, UpdateMaintenanceSchedule, UpdateQuotas, UpdateRefused,
    UpdateWeights, ViewCluster, ViewMaintenanceSchedule, ViewMaintenanceStatus, ViewRoles,
};
use protocol::view::{ClusterView, RoleView};
use resources::Invalid;
use runtime::prelude::*;
use runtime::{Instant, answer_with};

use super::Master;

/// What an operator asks, whose turn it is.
pub(super) struct InTurn<V>(pub V);

impl<V: Message> Message for InTurn<V> {
    type Result = V::Result;
}

/// What an operator's command asks.
pub(super) trait Verb: Message + Send + 'static {
    /// What it is answered where too many wait.
    fn too_many(because: &str) -> Self::Result;
}

impl<V: Verb> Handler<V> for Master
where
    Master: Handler<InTurn<V>>,
{
    type Result = Reply<V::Result>;

    fn handle(&mut self, verb: V, ctx: &mut Context<Self>) -> Self::Result {
        let (promise, reply) = promise();
        match self.turn_of_command(ctx) {
            Turn::Now(_) => self.carry_out(verb, promise, ctx),
            Turn::After(wait) => {
                ctx.after_as_sender(wait, move |master, ctx| {
                    // Whoever has gone meanwhile wants nothing changed.
                    if promise.is_awaited() {
                        master.carry_out(verb, promise, ctx);
                    }
                });
            }
            Turn::Over(_) => promise.answer(V::too_many(TOO_MANY_COMMANDS)),
        }
        reply
    }
}

impl Master {
    fn turn_of_command(&self, ctx: &Context<Self>) -> Turn {
        let Some(sender) = ctx.sender() else {
            return Turn::Now(1);
        };
        let now = ctx.clock().now() - Instant::default();
        let name = sender.peer.node.name();
        self.config.throttle.stand_in_line_as_command(name, now)
    }

    fn carry_out<V: Verb>(&mut self, verb: V, promise: Promise<V::Result>, ctx: &mut Context<Self>)
    where
        Self: Handler<InTurn<V>>,
    {
        let answer = <Self as Handler<InTurn<V>>>::handle(self, InTurn(verb), ctx);
        answer_with::<Self, InTurn<V>>(promise, answer, ctx);
    }
}

macro_rules! verbs {
    ($($($verb:ident),+ -> $answer:ty: $too_many:expr;)+) => {$($(
        impl Verb for $verb {
            fn too_many(because: &str) -> Self::Result {
                let too_many: fn(&str) -> $answer = $too_many;
                too_many(because)
            }
        }
    )+)+};
}

fn not_now<T>(because: &str) -> Result<T, UpdateRefused> {
    let reason = because.to_owned();
    Err(UpdateRefused::NotNow { reason })
}

fn over<T>(because: &str) -> Result<T, OverRateLimit> {
    let reason = because.to_owned();
    Err(OverRateLimit { reason })
}

verbs! {
    ViewCluster -> Result<ClusterView, OverRateLimit>: over;
    ViewRoles -> Result<Vec<RoleView>, OverRateLimit>: over;
    ViewMaintenanceSchedule -> Result<Vec<Window>, UpdateRefused>: not_now;
    ViewMaintenanceStatus -> Result<MaintenanceStatus, UpdateRefused>: not_now;
    UpdateQuotas, UpdateWeights, UpdateMaintenanceSchedule, StartMaintenance, StopMaintenance, DrainAgent, DeactivateAgent,
        ReactivateAgent, CancelDrain, MarkAgentGone -> Result<(), UpdateRefused>: not_now;
    ExplainOffers -> Result<OffersExplained, Unexplained>: |because| {
        Err(Unexplained::NoAnswer { reason: because.to_owned() })
    };
    Operate -> Result<(), OperationRefused>: |because| {
        let expected = format!("one whose turn it is: {because}");
        Err(OperationRefused::Invalid(Invalid::new("operation", "one too many", expected)))
    };
    KillByOperator -> Result<FrameworkId, OperatorError>: |because| {
        Err(OperatorError::Failed { what: "the kill".to_owned(), reason: because.to_owned() })
    };
}
