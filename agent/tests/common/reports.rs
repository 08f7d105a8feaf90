//! The fake master's handling of agents' reports.

use super::*;

impl Handler<AgentSuspended> for FakeMaster {
    type Result = ();
    fn handle(&mut self, suspended: AgentSuspended, _: &mut Context<Self>) {
        let mut received = self.received.lock().unwrap();
        received.suspensions.push(Some(suspended.reason));
    }
}

impl Handler<AgentResumed> for FakeMaster {
    type Result = ();
    fn handle(&mut self, _: AgentResumed, _: &mut Context<Self>) {
        self.received.lock().unwrap().suspensions.push(None);
    }
}

impl Handler<OversubscribedChanged> for FakeMaster {
    type Result = ();
    fn handle(&mut self, changed: OversubscribedChanged, _: &mut Context<Self>) {
        self.received
            .lock()
            .unwrap()
            .oversubscribed
            .push(changed.total);
    }
}
