//! The agent's oversubscription for operators: over a link for `meros oversubscription`, and within
//! this node for the page.

use std::time::Duration;

use authority::{RateDecision, Subject, TOO_MANY_COMMANDS};
use module_api::usage::CurrentUsage;
use protocol::message::operator::{OperatorError, ViewOversubscription};
use protocol::view::oversubscription::OversubscriptionView;
use runtime::prelude::*;

use super::Agent;
use crate::api::visibility;
use crate::container::events::TakeSurvey;
use crate::oversubscription::monitor::RecentUse;
use crate::oversubscription::view::{LoopState, view};

/// How long to wait for each of the agent's actors.
const PATIENCE: Duration = Duration::from_secs(5);

/// Likewise, within this node: the parts that this subject may see.
#[derive(Message, Clone, Debug)]
#[rtype(result = "Result<OversubscriptionView, String>")]
pub struct DescribeOversubscription(pub Subject);

impl Agent {
    /// The snapshot, of a new measurement.
    fn oversubscription(
        &self,
        subject: Subject,
    ) -> impl Future<Output = Result<OversubscriptionView, String>> + use<> {
        let state = LoopState {
            agent_id: self.info.id.clone(),
            estimate: self.estimate.clone(),
            max: self.config.settings.oversubscription_max.clone(),
        };
        let acls = self.config.settings.acls.current();
        let (monitor, containerizer) = (self.monitor.clone(), self.containerizer.clone());
        async move {
            let monitor = monitor.ok_or_else(|| "no usage is measured".to_owned())?;
            let usage = monitor.ask(CurrentUsage, PATIENCE).await;
            let usage = usage.map_err(|error| error.to_string())?;
            let usage = usage.map_err(|unavailable| unavailable.reason)?;
            let measured = monitor.ask(RecentUse, PATIENCE).await;
            let measured = measured.map_err(|error| error.to_string())?;
            let survey = containerizer.ask(TakeSurvey, PATIENCE).await;
            let survey = survey.map_err(|error| error.to_string())?;
            let mut view = view(state, &usage, measured, &survey.corrections);
            let corrections = &mut view.corrections;
            visibility::retain_visible_corrections(corrections, survey, &acls, &subject);
            Ok(view)
        }
    }
}

impl Handler<DescribeOversubscription> for Agent {
    type Result = ResponseFuture<Result<OversubscriptionView, String>>;

    fn handle(
        &mut self,
        DescribeOversubscription(subject): DescribeOversubscription,
        _: &mut Context<Self>,
    ) -> Self::Result {
        Box::pin(self.oversubscription(subject))
    }
}

impl Handler<ViewOversubscription> for Agent {
    type Result = ResponseFuture<Result<OversubscriptionView, OperatorError>>;

    fn handle(&mut self, _: ViewOversubscription, ctx: &mut Context<Self>) -> Self::Result {
        let subject = ctx.sender().map(|sender| sender.peer.node.name());
        let subject = subject.map(Subject::named).unwrap_or_default();
        let (turn, clock) = (self.turn(ctx), ctx.clock().clone());
        let asked = self.oversubscription(subject);
        Box::pin(async move {
            let failed = |reason: String| OperatorError::Failed {
                what: "oversubscription".to_owned(),
                reason,
            };
            match turn {
                RateDecision::Now(_) => {}
                RateDecision::After(wait) => clock.sleep(wait).await,
                RateDecision::Rejected(_) => return Err(failed(TOO_MANY_COMMANDS.to_string())),
            }
            asked.await.map_err(failed)
        })
    }
}
