//! Events for agents with new operators' orders.

use protocol::AgentId;
use protocol::message::operator::{DeactivateAgent, DrainAgent, ReactivateAgent};

use super::*;

/// SPEC 2.6: there is no event for that, so the agent is sent again.
#[test]
fn agent_with_new_orders_is_sent_again() {
    simulate(|node| async move {
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
