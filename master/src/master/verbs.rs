//! Operators' commands over a link, each in its turn by the rate limits.
//!
//! Uses the queue of HTTP calls, under the name in the certificate: a command waits, or is refused
//! if too many wait. Requests from this node come from pages, which have had their turn. The
//! commands are handled in [`operators`](super::operators),
//! [`draining`](crate::master::agents::draining) and
//! [`maintenance`](crate::master::agents::maintenance).

use authority::{RateDecision, TOO_MANY_COMMANDS};
use protocol::FrameworkId;
use protocol::maintenance::{MaintenanceStatus, Window};
use protocol::message::operator::{
    CancelDrain, DeactivateAgent, DrainAgent, ExplainError, ExplainOffers, KillByOperator,
    MarkAgentGone, Operate, OperationRefused, OperatorError, OverRateLimit, ReactivateAgent,
    StartMaintenance, StopMaintenance, UpdateMaintenanceSchedule, UpdateQuotas, UpdateRefused,
    UpdateWeights, ViewCluster, ViewMaintenanceSchedule, ViewMaintenanceStatus, ViewRoles,
};
use protocol::view::explain::OffersExplained;
use protocol::view::{ClusterView, RoleView};
use resources::Invalid;
use runtime::prelude::*;
use runtime::{Instant, answer_with};

use super::Master;

/// A request that has had its turn.
pub(super) struct InTurn<V>(pub V);

impl<V: Message> Message for InTurn<V> {
    type Result = V::Result;
}

/// A request of an operator's command.
pub(super) trait Verb: Message + Send + 'static {
    /// The answer if too many requests wait.
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
            RateDecision::Now(_) => self.carry_out(verb, promise, ctx),
            RateDecision::After(wait) => {
                ctx.after_as_sender(wait, move |master, ctx| {
                    // A caller that has gone wants no change.
                    if promise.is_awaited() {
                        master.carry_out(verb, promise, ctx);
                    }
                });
            }
            RateDecision::Rejected(_) => promise.answer(V::too_many(TOO_MANY_COMMANDS)),
        }
        reply
    }
}

impl Master {
    fn turn_of_command(&self, ctx: &Context<Self>) -> RateDecision {
        let Some(sender) = ctx.sender() else {
            return RateDecision::Now(1);
        };
        let now = ctx.clock().now() - Instant::default();
        let name = sender.peer.node.name();
        self.config.throttle.admit_command(name, now)
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
    ExplainOffers -> Result<OffersExplained, ExplainError>: |because| {
        Err(ExplainError::NoAnswer { reason: because.to_owned() })
    };
    Operate -> Result<(), OperationRefused>: |because| {
        let expected = format!("one whose turn it is: {because}");
        Err(OperationRefused::Invalid(Invalid::new("operation", "one too many", expected)))
    };
    KillByOperator -> Result<FrameworkId, OperatorError>: |because| {
        Err(OperatorError::Failed { what: "the kill".to_owned(), reason: because.to_owned() })
    };
}
