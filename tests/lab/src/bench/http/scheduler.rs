//! A framework's scheduler over HTTP, like a client in another language: an event stream, and calls
//! on a second connection.

use protocol::{Filters, FrameworkInfo, OfferId, Operation};
use v1::Form;
use v1::schema::scheduler::{
    Call, CallAccept, CallAcknowledge, CallDecline, CallSubscribe, CallType, Event, EventType,
};
use v1::schema::{FrameworkID, TaskStatus};

use super::client::{Calls, Connection, Subscription};
use meros::output::error::{CliError, Outcome};

const PATH: &str = "/api/v1/scheduler";

/// A subscribed framework.
pub struct HttpScheduler {
    events: Subscription,
    calls: Calls,
    framework_id: FrameworkID,
}

impl HttpScheduler {
    /// Subscribes this framework with the master at `address`.
    pub async fn subscribe(address: &str, form: Form, info: &FrameworkInfo) -> Outcome<Self> {
        let call = Call {
            r#type: Some(CallType::Subscribe),
            subscribe: Some(Box::new(CallSubscribe {
                framework_info: info.into(),
                ..CallSubscribe::default()
            })),
            ..Call::default()
        };
        let connection = Connection::open(address).await?;
        let mut events = connection.subscribe(PATH, form, &call).await?;
        let first: Event = events.next().await?;
        let Some(subscribed) = first.subscribed else {
            let problem = format!(
                "a stream began with {:?}, not with SUBSCRIBED",
                first.r#type
            );
            return Err(CliError::new(problem));
        };
        let calls = Calls::open(address, PATH, form, &events.id).await?;
        Ok(Self {
            events,
            calls,
            framework_id: subscribed.framework_id,
        })
    }

    /// The next event that is not a heartbeat.
    pub async fn next(&mut self) -> Outcome<Event> {
        loop {
            let event: Event = self.events.next().await?;
            match event.r#type {
                Some(EventType::Heartbeat) => {}
                Some(EventType::Error) => {
                    let message = event.error.map(|error| error.message);
                    return Err(CliError::new(message.unwrap_or_default()));
                }
                _ => return Ok(event),
            }
        }
    }

    /// Accepts an offer.
    pub async fn accept(
        &mut self,
        offer: &OfferId,
        operation: &Operation,
        filters: &Filters,
    ) -> Outcome {
        let accept = CallAccept {
            offer_ids: vec![offer.into()],
            operations: vec![operation.into()],
            filters: Some(filters.into()),
        };
        self.say(Call {
            r#type: Some(CallType::Accept),
            accept: Some(Box::new(accept)),
            ..Call::default()
        })
        .await
    }

    /// Declines offers.
    pub async fn decline(
        &mut self,
        offers: Vec<v1::schema::OfferID>,
        filters: &Filters,
    ) -> Outcome {
        let decline = CallDecline {
            offer_ids: offers,
            filters: Some(filters.into()),
        };
        self.say(Call {
            r#type: Some(CallType::Decline),
            decline: Some(decline),
            ..Call::default()
        })
        .await
    }

    /// Acknowledges a status, if it requires that.
    pub async fn acknowledge(&mut self, status: &TaskStatus) -> Outcome {
        let (Some(uuid), Some(agent_id)) = (&status.uuid, &status.agent_id) else {
            return Ok(());
        };
        let acknowledge = CallAcknowledge {
            agent_id: agent_id.clone(),
            task_id: status.task_id.clone(),
            uuid: uuid.clone(),
        };
        self.say(Call {
            r#type: Some(CallType::Acknowledge),
            acknowledge: Some(Box::new(acknowledge)),
            ..Call::default()
        })
        .await
    }

    async fn say(&mut self, call: Call) -> Outcome {
        let call = Call {
            framework_id: Some(self.framework_id.clone()),
            ..call
        };
        self.calls.send(&call).await
    }
}
