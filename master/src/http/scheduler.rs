//! The v1 scheduler API: `POST /api/v1/scheduler` (SPEC 2.1-2.3, 3.3).
//!
//! Each SUBSCRIBE begins an actor on this node, a [`subscriber`], which the master knows as the framework's scheduler and which writes what it
//! hears into the answer. All other calls are checked here ([`decide`]) and told the master in the order in which they were read; which stream a
//! framework has is written down at the [`desk`]. Decides nothing that the books decide: to them a framework is a framework.

mod decide;
mod desk;
mod subscriber;

use std::sync::atomic::Ordering;
use std::time::Duration;

use ::http::Declaring;
use ::http::api::{Asked, Refusal, Streams};
use axum::extract::{Request, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use axum::routing::any;
use axum::{Extension, Router};
use protocol::FrameworkId;
use protocol::message::scheduler::{ReconcileTasks, UpdateFramework};
use runtime::prelude::*;
use v1::convert::scheduler::{Decoded, Rejected, Said, said};
use v1::schema::scheduler::Call;

use self::desk::{Desk, Line};
use self::subscriber::{Answer, Become, Begin, Room, Subscriber, Written, refused_stream};
use super::PATIENCE;
use crate::master::{HttpCall, HttpReconcile, HttpUpdate, Master, TakeSnapshot};
use crate::office::Front;

/// How long a subscription may take: the master may have to reach its registry first.
const SUBSCRIBE_PATIENCE: Duration = Duration::from_secs(15);

/// How long a request waits until half of what its framework's stream may hold back is read.
const ROOM_PATIENCE: Duration = Duration::from_secs(15);

/// What the page works with.
#[derive(Clone)]
struct Hall {
    node: Node,
    streams: Streams,
    desk: Desk,
}

/// The route. Whoever adds it gives each request the [`Front`] of a master that acts here.
pub(super) fn routes(node: &Node, streams: &Streams) -> Router {
    let hall = Hall {
        node: node.clone(),
        streams: streams.clone(),
        desk: Desk::new(streams.declared()),
    };
    Router::new()
        .route("/api/v1/scheduler", any(page))
        .with_state(hall)
}

async fn page(
    State(hall): State<Hall>,
    Extension(front): Extension<Front>,
    mut request: Request,
) -> Result<Response, Refusal> {
    let declaring = request.extensions_mut().remove::<Declaring>();
    let asked = Asked::<Call>::read(&hall.node, request).await?;
    let (asked, Decoded { said, rejected }) = asked.meaning(&hall.node, said).await?;
    // It may have been deposed while the call was read.
    let master = front.master().ok_or_else(decide::nobody_leads)?;
    match said {
        Said::Refused(reason) => {
            decide::no_stream_yet(asked.stream_id())?;
            let content = asked.accept_stream()?;
            decide::has_name(&asked.subject)?;
            tracing::info!(reason, "refusing a subscription");
            Ok(refused_stream(&hall.node, &hall.streams, content, reason))
        }
        Said::Subscribe(framework, wants) => {
            decide::no_stream_yet(asked.stream_id())?;
            let content = asked.accept_stream()?;
            let framework = decide::framed(framework, &asked.subject)?;
            if let (Some(declaring), Some(principal)) = (declaring, &framework.principal) {
                declaring.turn(principal).await?;
            }
            let begin = Begin {
                framework,
                wants,
                content,
            };
            hall.subscribe(master, begin).await
        }
        said => {
            let id = decide::framework_of(&asked.call)?;
            let line = hall.line(&master, &id).await?;
            decide::may_call(&id, &line, &asked.subject, asked.stream_id())?;
            decide::bounded(&said, &rejected)?;
            let weighs =
                asked.is_large || matches!(said, Said::Reconcile(_) | Said::ReconcileOperations(_));
            // Its words may weigh as much as what is made of them.
            let _heard = asked.heard();
            let subscriber = line.subscriber.clone();
            let response = hall.say(line, id.clone(), said, weighs).await?;
            answer_rejected(&subscriber, &id, rejected).await?;
            Ok(response)
        }
    }
}

impl Hall {
    async fn subscribe(&self, master: Handle<Master>, begin: Begin) -> Result<Response, Refusal> {
        let place = self.desk.place().ok_or_else(decide::crowded)?;
        let subscriber = Subscriber::new(master, self.streams.clone(), self.desk.clone(), place);
        let subscriber = self
            .node
            .spawn_unnamed("http-scheduler", subscriber)
            .map_err(Refusal::not_now)?;
        // It ends when the master has answered and nobody reads, or with the master.
        let begun = subscriber.ask(begin, SUBSCRIBE_PATIENCE);
        begun.await.map_err(Refusal::not_now)?
    }

    /// The framework's line, or why it has none.
    async fn line(&self, master: &Handle<Master>, id: &FrameworkId) -> Result<Line, Refusal> {
        if let Some(line) = self.desk.find(id) {
            return Ok(line);
        }
        let books = master.ask(TakeSnapshot, PATIENCE).await;
        let books = books.map_err(Refusal::not_now)?;
        Err(decide::stranger(&books, id))
    }

    /// What `weighs` is answered when it is dealt with, and not when it is told.
    async fn say(
        &self,
        line: Line,
        id: FrameworkId,
        said: Said,
        weighs: bool,
    ) -> Result<Response, Refusal> {
        let (scheduler, subscriber) = (line.scheduler.clone(), line.subscriber.clone());
        let master = line.master.clone();
        match said {
            Said::UpdateFramework(framework, wants) => {
                let update = UpdateFramework {
                    framework_id: id,
                    framework: decide::same_principal(framework, line.principal),
                    wants,
                };
                let becomes = Become(update.framework.clone());
                let update = HttpUpdate {
                    scheduler,
                    update,
                    // One that has ended since has nothing more to write.
                    became: Box::new(move || subscriber.tell_always(becomes)),
                };
                let asked = master.ask(update, SUBSCRIBE_PATIENCE);
                let updated = asked.await.map_err(Refusal::not_now)?;
                updated.map_err(decide::not_updated)?;
                Ok(StatusCode::OK.into_response())
            }
            Said::Reconcile(ReconcileTasks { tasks, .. }) if tasks.is_empty() => {
                let mut from = None;
                loop {
                    let part = HttpReconcile {
                        scheduler: scheduler.clone(),
                        framework_id: id.clone(),
                        from,
                        most: decide::ASKED_MAX,
                    };
                    from = dealt_with(&master, &subscriber, part)
                        .await
                        .map_err(Refusal::not_now)?;
                    if from.is_none() {
                        return Ok(StatusCode::ACCEPTED.into_response());
                    }
                    has_room(&subscriber).await?;
                }
            }
            said => {
                // Before the master is told, which ends the stream with an error else.
                let tears_down = matches!(said, Said::TearDown(_));
                line.is_over.fetch_or(tears_down, Ordering::Relaxed);
                let call = |said| HttpCall {
                    scheduler: scheduler.clone(),
                    framework_id: id.clone(),
                    said,
                };
                let told = match weighs {
                    true => tell_parts(&master, &subscriber, decide::parts(said).map(call)).await,
                    false => master.tell(call(said)).map_err(Refusal::not_now),
                };
                if told.is_err() && tears_down {
                    line.is_over.store(false, Ordering::Relaxed);
                }
                told?;
                Ok(StatusCode::ACCEPTED.into_response())
            }
        }
    }
}

/// Says these one after the other, each once the answers to the one before are read.
async fn tell_parts(
    master: &Handle<Master>,
    subscriber: &Handle<Subscriber>,
    parts: impl Iterator<Item = HttpCall>,
) -> Result<(), Refusal> {
    let mut parts = parts.peekable();
    while let Some(part) = parts.next() {
        match dealt_with(master, subscriber, part).await {
            // It is told, and will be dealt with.
            Err(AskError::Late { .. }) if parts.peek().is_none() => {}
            dealt => dealt.map_err(Refusal::not_now)?,
        }
        if parts.peek().is_some() {
            has_room(subscriber).await?;
        }
    }
    Ok(())
}

/// Writes the answers to the entries of a call that have invalid ids, a part at a time as those of valid ones.
async fn answer_rejected(
    subscriber: &Handle<Subscriber>,
    id: &FrameworkId,
    rejected: Rejected,
) -> Result<(), Refusal> {
    if let Some(first) = &rejected.first_dropped {
        let dropped = rejected.dropped;
        tracing::info!(framework = %id, dropped, %first, "dropping entries of a call with invalid ids");
    }
    let mut parts = decide::chunks(rejected.answered).peekable();
    while let Some(part) = parts.next() {
        // A stream that has ended gets no answers.
        let _ = subscriber.ask(Answer(part), PATIENCE).await;
        if parts.peek().is_some() {
            has_room(subscriber).await?;
        }
    }
    Ok(())
}

/// Says what is large, or has an answer for each task, and waits until it is dealt with and the answers stand in the stream: so it waits in its request, of which
/// there are few, and not in mailboxes that would have room for thousands.
async fn dealt_with<M>(
    master: &Handle<Master>,
    subscriber: &Handle<Subscriber>,
    call: M,
) -> Result<M::Result, AskError>
where
    M: Message + Send + 'static,
    M::Result: Send,
    Master: Handler<M>,
{
    let dealt = master.ask(call, PATIENCE).await?;
    // One that has ended, or writes for longer, keeps nobody.
    let _ = subscriber.ask(Written, PATIENCE).await;
    Ok(dealt)
}

/// Waits until the stream has room for more answers: the request waits, and the reader is not cut off for what it has asked for.
async fn has_room(subscriber: &Handle<Subscriber>) -> Result<(), Refusal> {
    match subscriber.ask(Room, ROOM_PATIENCE).await {
        Err(AskError::Late { .. }) => Err(decide::too_slow()),
        // To one that has ended the master tells nothing more.
        Ok(()) | Err(_) => Ok(()),
    }
}

#[cfg(test)]
mod tests;
