//! Lending: revocable resources stay apart from all others.
//!
//! Judged at each message. An agent reports nothing but revocable resources as oversubscribed, so
//! that a wrong estimate never reaches a master. No operation that a master sends to an agent
//! names revocable resources: they are neither reserved nor in persistent volumes.

use std::time::Duration;

use protocol::message::operation::ApplyOperation;
use protocol::message::oversubscription::OversubscribedChanged;
use protocol::message::registration::{RegisterAgent, ReregisterAgent};

use crate::checkers::broken;
use crate::checkers::checker::{Checker, Violation};
use crate::event::{Event, EventKind, SeenMessage};

const NAME: &str = "lending";

/// The checker.
#[derive(Default)]
pub struct Lending {
    judgements: u64,
}

impl Lending {
    fn judge(&mut self, observed: &SeenMessage<'_>, at: Duration) -> Result<(), Violation> {
        let (sender, wrong) = if let Some(changed) = observed.is::<OversubscribedChanged>() {
            (observed.from, changed.total.non_revocable())
        } else if let Some(register) = observed.is::<RegisterAgent>() {
            (observed.from, register.oversubscribed.non_revocable())
        } else if let Some(register) = observed.is::<ReregisterAgent>() {
            (observed.from, register.oversubscribed.non_revocable())
        } else if let Some(apply) = observed.is::<ApplyOperation>() {
            (observed.from, apply.conversion.named().revocable())
        } else {
            return Ok(());
        };
        self.judgements += 1;
        if wrong.is_empty() {
            return Ok(());
        }
        let wrong = wrong.brief();
        let what = match observed.is::<ApplyOperation>() {
            Some(_) => format!("{sender} has {} convert revocable {wrong}", observed.to),
            None => format!("{sender} lends {wrong}, which is not revocable"),
        };
        broken(NAME, at, what)
    }
}

impl Checker for Lending {
    fn name(&self) -> &'static str {
        NAME
    }

    fn see(&mut self, event: &Event<'_>) -> Result<(), Violation> {
        match event.kind {
            EventKind::Sent(observed) => self.judge(&observed, event.at),
            _ => Ok(()),
        }
    }

    fn judgements(&self) -> u64 {
        self.judgements
    }
}
