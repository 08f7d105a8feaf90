//! The v1 scheduler API: `POST /api/v1/scheduler`.
//!
//! Each SUBSCRIBE starts an actor on this node, a [`subscriber`], which the master treats as the
//! framework's scheduler and which writes events into the answer. Other calls are checked here
//! ([`decide`]) and sent to the master in order; the [`subscriptions`] table has each framework's
//! stream. To the master's state an HTTP framework is like any other.

mod decide;
mod subscriber;
mod subscriptions;

use std::sync::atomic::Ordering;
use std::time::Duration;

use ::http::DeclaredPrincipal;
use ::http::api::{EventStreams, ReceivedCall, Refusal};
use axum::extract::{Request, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use axum::routing::any;
use axum::{Extension, Router};
use protocol::FrameworkId;
use protocol::message::scheduler::{ReconcileTasks, UpdateFramework};
use runtime::prelude::*;
use v1::convert::scheduler::{Decoded, RejectedEntries, SchedulerCall, to_protocol};
use v1::schema::scheduler::Call;

use self::subscriber::{
    BeginSubscription, DescriptionChanged, Flushed, StreamRoom, Subscriber, WriteAnswers,
    refused_stream,
};
use self::subscriptions::{FrameworkStream, SubscriptionTable};
use super::PATIENCE;
use crate::leadership::LocalLeader;
use crate::master::{HttpCall, HttpReconcile, HttpUpdate, Master, TakeSnapshot};

/// Time limit of a subscription: the master may have to wait for its registry.
const SUBSCRIBE_PATIENCE: Duration = Duration::from_secs(15);

/// How long a request waits until half of its framework's stream buffer is read.
const ROOM_PATIENCE: Duration = Duration::from_secs(15);

/// Shared state of the handler.
#[derive(Clone)]
struct SchedulerApi {
    node: Node,
    streams: EventStreams,
    subscriptions: SubscriptionTable,
}

/// The route. It needs the [`LocalLeader`] of a local master in each request.
pub(super) fn routes(node: &Node, streams: &EventStreams) -> Router {
    let api = SchedulerApi {
        node: node.clone(),
        streams: streams.clone(),
        subscriptions: SubscriptionTable::new(streams.principals()),
    };
    Router::new()
        .route("/api/v1/scheduler", any(page))
        .with_state(api)
}

async fn page(
    State(api): State<SchedulerApi>,
    Extension(local): Extension<LocalLeader>,
    mut request: Request,
) -> Result<Response, Refusal> {
    let declaring = request.extensions_mut().remove::<DeclaredPrincipal>();
    let asked = ReceivedCall::<Call>::read(&api.node, request).await?;
    let (
        asked,
        Decoded {
            call: parsed,
            rejected,
        },
    ) = asked.meaning(&api.node, to_protocol).await?;
    // It may have been deposed while the call was read.
    let master = local.master().ok_or_else(decide::no_leader)?;
    match parsed {
        SchedulerCall::Refused(reason) => {
            decide::no_stream_yet(asked.stream_id())?;
            let content = asked.accept_stream()?;
            decide::has_name(&asked.subject)?;
            tracing::info!(reason, "refusing a subscription");
            Ok(refused_stream(&api.node, &api.streams, content, reason))
        }
        SchedulerCall::Subscribe(framework, wants) => {
            decide::no_stream_yet(asked.stream_id())?;
            let content = asked.accept_stream()?;
            let framework = decide::with_principal(framework, &asked.subject)?;
            if let (Some(declaring), Some(principal)) = (declaring, &framework.principal) {
                declaring.wait_turn(principal).await?;
            }
            let begin = BeginSubscription {
                framework,
                wants,
                content,
            };
            api.subscribe(master, begin).await
        }
        parsed => {
            let id = decide::framework_of(&asked.call)?;
            let stream = api.stream(&master, &id).await?;
            decide::may_call(&id, &stream, &asked.subject, asked.stream_id())?;
            decide::bounded(&parsed, &rejected)?;
            let weighs = asked.is_large
                || matches!(
                    parsed,
                    SchedulerCall::Reconcile(_) | SchedulerCall::ReconcileOperations(_)
                );
            // The parsed call may be as large as its effects: keep the permit.
            let _permit = asked.into_permit();
            let subscriber = stream.subscriber.clone();
            let response = api.send(stream, id.clone(), parsed, weighs).await?;
            answer_rejected(&subscriber, &id, rejected).await?;
            Ok(response)
        }
    }
}

impl SchedulerApi {
    async fn subscribe(
        &self,
        master: Handle<Master>,
        begin: BeginSubscription,
    ) -> Result<Response, Refusal> {
        let slot = self
            .subscriptions
            .slot()
            .ok_or_else(decide::too_many_subscribers)?;
        let subscriber = Subscriber::new(
            master,
            self.streams.clone(),
            self.subscriptions.clone(),
            slot,
        );
        let subscriber = self
            .node
            .spawn_unnamed("http-scheduler", subscriber)
            .map_err(Refusal::not_now)?;
        // The actor ends with its reader after the answer, or with the master.
        let begun = subscriber.ask(begin, SUBSCRIBE_PATIENCE);
        begun.await.map_err(Refusal::not_now)?
    }

    /// The framework's subscription, or the reason why it has none.
    async fn stream(
        &self,
        master: &Handle<Master>,
        id: &FrameworkId,
    ) -> Result<FrameworkStream, Refusal> {
        if let Some(stream) = self.subscriptions.find(id) {
            return Ok(stream);
        }
        let state = master.ask(TakeSnapshot, PATIENCE).await;
        let state = state.map_err(Refusal::not_now)?;
        Err(decide::no_stream(&state, id))
    }

    /// Sends a call. `weighs`: large calls are answered when handled, others when sent.
    async fn send(
        &self,
        stream: FrameworkStream,
        id: FrameworkId,
        parsed: SchedulerCall,
        weighs: bool,
    ) -> Result<Response, Refusal> {
        let (scheduler, subscriber) = (stream.scheduler.clone(), stream.subscriber.clone());
        let master = stream.master.clone();
        match parsed {
            SchedulerCall::UpdateFramework(framework, wants) => {
                let update = UpdateFramework {
                    framework_id: id,
                    framework: decide::same_principal(framework, stream.principal),
                    wants,
                };
                let becomes = DescriptionChanged(update.framework.clone());
                let update = HttpUpdate {
                    scheduler,
                    update,
                    // A subscriber that has ended has nothing more to write.
                    on_updated: Box::new(move || subscriber.tell_always(becomes)),
                };
                let asked = master.ask(update, SUBSCRIBE_PATIENCE);
                let updated = asked.await.map_err(Refusal::not_now)?;
                updated.map_err(decide::not_updated)?;
                Ok(StatusCode::OK.into_response())
            }
            SchedulerCall::Reconcile(ReconcileTasks { tasks, .. }) if tasks.is_empty() => {
                let mut from = None;
                loop {
                    let part = HttpReconcile {
                        scheduler: scheduler.clone(),
                        framework_id: id.clone(),
                        from,
                        most: decide::ASKED_MAX,
                    };
                    from = handled(&master, &subscriber, part)
                        .await
                        .map_err(Refusal::not_now)?;
                    if from.is_none() {
                        return Ok(StatusCode::ACCEPTED.into_response());
                    }
                    has_room(&subscriber).await?;
                }
            }
            parsed => {
                // Set before the call is sent: the master then ends the stream with an error.
                let tears_down = matches!(parsed, SchedulerCall::TearDown(_));
                stream.is_over.fetch_or(tears_down, Ordering::Relaxed);
                let call = |parsed| HttpCall {
                    scheduler: scheduler.clone(),
                    framework_id: id.clone(),
                    call: parsed,
                };
                let sent = match weighs {
                    true => send_parts(&master, &subscriber, decide::parts(parsed).map(call)).await,
                    false => master.tell(call(parsed)).map_err(Refusal::not_now),
                };
                if sent.is_err() && tears_down {
                    stream.is_over.store(false, Ordering::Relaxed);
                }
                sent?;
                Ok(StatusCode::ACCEPTED.into_response())
            }
        }
    }
}

/// Sends these calls in order, each after the answers to the previous one are read.
async fn send_parts(
    master: &Handle<Master>,
    subscriber: &Handle<Subscriber>,
    parts: impl Iterator<Item = HttpCall>,
) -> Result<(), Refusal> {
    let mut parts = parts.peekable();
    while let Some(part) = parts.next() {
        match handled(master, subscriber, part).await {
            // It is sent, and will be handled.
            Err(AskError::Late { .. }) if parts.peek().is_none() => {}
            result => result.map_err(Refusal::not_now)?,
        }
        if parts.peek().is_some() {
            has_room(subscriber).await?;
        }
    }
    Ok(())
}

/// Writes the answers to entries with invalid ids, in parts like those of valid ones.
async fn answer_rejected(
    subscriber: &Handle<Subscriber>,
    id: &FrameworkId,
    rejected: RejectedEntries,
) -> Result<(), Refusal> {
    if let Some(first) = &rejected.first_dropped {
        let dropped = rejected.dropped;
        tracing::info!(framework = %id, dropped, %first, "dropping entries of a call with invalid ids");
    }
    let mut parts = decide::chunks(rejected.answered).peekable();
    while let Some(part) = parts.next() {
        // A stream that has ended gets no answers.
        let _ = subscriber.ask(WriteAnswers(part), PATIENCE).await;
        if parts.peek().is_some() {
            has_room(subscriber).await?;
        }
    }
    Ok(())
}

/// Sends a large call, or one with an answer for each task, and waits until it is handled and the
/// answers are in the stream. So it waits in its request, of which there are few, and not in a
/// mailbox with room for thousands.
async fn handled<M>(
    master: &Handle<Master>,
    subscriber: &Handle<Subscriber>,
    call: M,
) -> Result<M::Result, AskError>
where
    M: Message + Send + 'static,
    M::Result: Send,
    Master: Handler<M>,
{
    let result = master.ask(call, PATIENCE).await?;
    // A subscriber that has ended, or takes longer, does not delay the request.
    let _ = subscriber.ask(Flushed, PATIENCE).await;
    Ok(result)
}

/// Waits until the stream has room for more answers: the request is delayed instead of cutting off
/// the reader.
async fn has_room(subscriber: &Handle<Subscriber>) -> Result<(), Refusal> {
    match subscriber.ask(StreamRoom, ROOM_PATIENCE).await {
        Err(AskError::Late { .. }) => Err(decide::too_slow()),
        // The master sends nothing more to a subscriber that has ended.
        Ok(()) | Err(_) => Ok(()),
    }
}

#[cfg(test)]
mod tests;
