//! Reports of agents about themselves, as the fake master handles them.

use super::*;

impl Handler<AgentSuspended> for FakeMaster {
    type Result = ();
    fn handle(&mut self, suspended: AgentSuspended, _: &mut Context<Self>) {
        let mut heard = self.heard.lock().unwrap();
        heard.suspensions.push(Some(suspended.reason));
    }
}

impl Handler<AgentResumed> for FakeMaster {
    type Result = ();
    fn handle(&mut self, _: AgentResumed, _: &mut Context<Self>) {
        self.heard.lock().unwrap().suspensions.push(None);
    }
}

impl Handler<OversubscribedChanged> for FakeMaster {
    type Result = ();
    fn handle(&mut self, changed: OversubscribedChanged, _: &mut Context<Self>) {
        self.heard
            .lock()
            .unwrap()
            .oversubscribed
            .push(changed.total);
    }
}
