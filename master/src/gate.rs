//! Gate: what an agent is told waits behind an operation until the registry has that (SPEC 3.5).
//!
//! Plain data: for each agent that has something to wait for, a line. What comes while there is a line stands at its end, so that a task
//! never reaches its agent before the volume that it uses. Who has no line passes, and costs one look at an empty map. Bounded by agent; of
//! one that is full its agent is told nothing more, and must register again. It decides neither what may go nor when.

use std::collections::{BTreeMap, VecDeque};

use protocol::AgentId;
use protocol::message::operation::ApplyOperation;
use runtime::Pid;

use crate::effects::ToAgent;

/// How many messages may wait for one agent.
pub(crate) const LINE_MAX: usize = 10_000;

/// What becomes of an operation that is first in its line.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Release {
    /// The registry has it not yet.
    Wait,
    /// Its agent is told this.
    Send(Box<ApplyOperation>),
    /// Its agent does not hear of it: it is over, or will be said again.
    Skip,
}

#[derive(Clone, Debug)]
enum Waiting {
    Operation(AgentId, u64),
    Message(Box<ToAgent>),
}

/// Too many wait for this agent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Full;

/// All lines.
#[derive(Clone, Debug, Default)]
pub(crate) struct Gate {
    lines: BTreeMap<Pid, VecDeque<Waiting>>,
}

impl Gate {
    /// An operation of that serial is for this agent, once the registry has it.
    pub fn close(&mut self, pid: &Pid, agent: AgentId, serial: u64) -> Result<(), Full> {
        let line = self.lines.entry(pid.clone()).or_default();
        stand(line, Waiting::Operation(agent, serial))
    }

    /// Gives the message back if nothing waits for its agent; else it waits as well.
    pub fn pass(&mut self, pid: &Pid, message: ToAgent) -> Result<Option<ToAgent>, Full> {
        if self.lines.is_empty() {
            return Ok(Some(message));
        }
        match self.lines.get_mut(pid) {
            None => Ok(Some(message)),
            Some(line) => stand(line, Waiting::Message(Box::new(message))).map(|()| None),
        }
    }

    /// Takes from the front of a line what need not wait any more, in order.
    pub fn release(
        &mut self,
        pid: &Pid,
        mut decide: impl FnMut(&AgentId, u64) -> Release,
    ) -> Vec<ToAgent> {
        let mut released = Vec::new();
        let Some(line) = self.lines.get_mut(pid) else {
            return released;
        };
        while let Some(first) = line.pop_front() {
            match first {
                Waiting::Message(message) => released.push(*message),
                Waiting::Operation(agent, serial) => match decide(&agent, serial) {
                    Release::Send(apply) => released.push(ToAgent::Apply(agent, apply)),
                    Release::Skip => {}
                    Release::Wait => {
                        line.push_front(Waiting::Operation(agent, serial));
                        return released;
                    }
                },
            }
        }
        self.lines.remove(pid);
        released
    }

    /// What waits for this agent is void; gives the messages among it.
    pub fn clear(&mut self, pid: &Pid) -> Vec<ToAgent> {
        let line = self.lines.remove(pid).unwrap_or_default();
        let message = |waiting| match waiting {
            Waiting::Message(message) => Some(*message),
            Waiting::Operation(..) => None,
        };
        line.into_iter().filter_map(message).collect()
    }
}

fn stand(line: &mut VecDeque<Waiting>, waiting: Waiting) -> Result<(), Full> {
    if line.len() >= LINE_MAX {
        return Err(Full);
    }
    line.push_back(waiting);
    Ok(())
}

#[cfg(test)]
mod tests {
    use resources::{Conversion, Resources};
    use runtime::NodeId;

    use super::*;

    fn pid(name: &str) -> Pid {
        Pid::new("agent", NodeId::new(name, 1), 1)
    }

    fn agent() -> AgentId {
        AgentId::new("a").unwrap()
    }

    fn apply(serial: u64) -> Box<ApplyOperation> {
        Box::new(ApplyOperation {
            feedback: None,
            conversion: Conversion::Reserve {
                resources: Resources::new(),
            },
            version: protocol::Uuid([1; 16]),
            serial: Some(serial),
        })
    }

    #[test]
    fn who_has_no_line_passes_and_nobody_overtakes_in_one() {
        let (mut gate, one, other) = (Gate::default(), pid("one"), pid("other"));
        let message = || ToAgent::RegisterAgain;
        assert_eq!(gate.pass(&one, message()), Ok(Some(message())));
        gate.close(&one, agent(), 1).unwrap();
        assert_eq!(gate.pass(&one, message()), Ok(None));
        assert_eq!(gate.pass(&other, message()), Ok(Some(message())));
        gate.close(&one, agent(), 2).unwrap();
        gate.close(&one, agent(), 3).unwrap();
        gate.pass(&one, message()).unwrap();
        assert_eq!(gate.release(&one, |_, _| Release::Wait), []);
        let first = gate.release(&one, |_, serial| match serial {
            1 => Release::Send(apply(1)),
            _ => Release::Wait,
        });
        assert_eq!(first, [ToAgent::Apply(agent(), apply(1)), message()]);
        let rest = gate.release(&one, |_, serial| match serial {
            2 => Release::Skip,
            _ => Release::Send(apply(serial)),
        });
        assert_eq!(rest, [ToAgent::Apply(agent(), apply(3)), message()]);
        assert_eq!(gate.pass(&one, message()), Ok(Some(message())), "no line");
    }

    #[test]
    fn a_line_is_bounded_and_void_as_a_whole() {
        let (mut gate, one) = (Gate::default(), pid("one"));
        gate.close(&one, agent(), 1).unwrap();
        for _ in 1..LINE_MAX {
            gate.pass(&one, ToAgent::RegisterAgain).unwrap();
        }
        assert_eq!(gate.pass(&one, ToAgent::RegisterAgain), Err(Full));
        assert_eq!(gate.close(&one, agent(), 2), Err(Full));
        assert_eq!(gate.clear(&one).len(), LINE_MAX - 1);
        let passed = gate.pass(&one, ToAgent::RegisterAgain);
        assert_eq!(passed, Ok(Some(ToAgent::RegisterAgain)));
    }
}
