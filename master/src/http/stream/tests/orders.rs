//! What streams tell of agents that operators order something about.

use protocol::AgentId;
use protocol::message::operator::{DeactivateAgent, DrainAgent, ReactivateAgent};

use super::*;

/// SPEC 2.6: there is no event for that, so the agent is told once more.
#[test]
fn an_agent_of_which_operators_order_something_is_told_again_as_it_is_then() {
    rehearse(|node| async move {
        let master = master(&node).await;
        let stream = open_for(&node, &master, 9);
        let mut reader = subscribe(&stream, Form::Json).await;
        let events = reader.read().unwrap();
        let state = events[0].subscribed.as_ref().unwrap().get_state.clone();
        let agent = state.unwrap().get_agents.unwrap().agents.remove(0);
        let agent_id = AgentId::new(&agent.agent_info.id.unwrap().value).unwrap();
        let mut told = async || {
            node.clock().advance(INTERVAL * 2).await;
            let events = reader.read().unwrap().into_iter();
            let agent = |event: Event| {
                let agent = event.agent_added.unwrap().agent;
                (agent.active, agent.deactivated, agent.drain_info.is_some())
            };
            events.map(agent).collect::<Vec<_>>()
        };
        let deactivate = DeactivateAgent {
            agent_id: agent_id.clone(),
        };
        master.ask(deactivate, PATIENCE).await.unwrap().unwrap();
        assert_eq!(told().await, [(false, Some(true), false)]);
        let reactivate = ReactivateAgent {
            agent_id: agent_id.clone(),
        };
        master.ask(reactivate, PATIENCE).await.unwrap().unwrap();
        assert_eq!(told().await, [(true, Some(false), false)]);
        let drain = DrainAgent {
            agent_id,
            max_grace_period: None,
            mark_gone: false,
        };
        master.ask(drain, PATIENCE).await.unwrap().unwrap();
        let drained = told().await;
        assert_eq!(drained.last(), Some(&(false, Some(true), true)));
    });
}
