//! A peer has seen a leader of a later term: a majority is asked, and a deposed master ends.

use super::*;
use crate::registry::RegistryError;

async fn ended(world: &World) -> bool {
    world.settle().await;
    world.master.ask(TakeSnapshot, PATIENCE).await.is_err()
}

/// An agent may be wrong, and a framework may lie.
#[test]
fn later_term_is_ignored_if_a_majority_confirms() {
    simulate_network(|network| async move {
        let world = World::of_term(network, 5).await;
        let (agent, _) = world.agent("agent-1").await;
        let (scheduler, _) = world.framework("web", |_| ()).await;
        agent.tell(TermSeen { term: 6 });
        scheduler.tell(TermSeen { term: u64::MAX });
        scheduler.tell(TermSeen { term: 5 });
        assert!(!ended(&world).await);
        let state = world.state().await;
        assert_eq!(state.counters.get("master/messages_term_seen"), 2);
        assert_eq!(state.master.term, 5);
    });
}

#[test]
fn deposed_leader_ends_and_is_ignored() {
    simulate_network(|network| async move {
        let world = World::of_term(network, 5).await;
        let (agent, a) = world.agent("agent-1").await;
        let (scheduler, f) = world.framework("web", |_| ()).await;
        let offer = world.offer(&scheduler, &f, &a, "cpus:1").await;
        world.faults.delay(Duration::from_secs(1));
        // The group is busy, at the second request.
        world.faults.refuse(RegistryError::NotNow {
            reason: "busy".to_owned(),
        });
        world.faults.refuse(RegistryError::LostLeadership);
        agent.tell(TermSeen { term: 6 });
        world.pass(2).await;
        assert!(!ended(&world).await);
        world.pass(1).await;
        assert!(ended(&world).await);
        agent.received();
        let late = accept(&f, &[&offer], vec![task("t", &a, "cpus:1")]);
        let _ = scheduler.node.tell(&scheduler.master, late);
        world.settle().await;
        agent.receives("");
    });
}

/// A known agent is admitted without a write: only here a deposed leader could admit one.
#[test]
fn agent_with_a_later_term_waits_for_a_majority() {
    simulate_network(|network| async move {
        let world = World::of_term(network, 5).await;
        let (agent, a) = world.agent("agent-1").await;
        let known = |term_seen| RegisterAgent {
            term_seen,
            ..registration(&agent, Some(a.clone()), vec![])
        };
        let ask = |message| agent.node.ask(&agent.master, message, PATIENCE);
        let written = world.faults.asked().len();
        let confirmed = ask(known(6)).await.unwrap().unwrap();
        assert_eq!(
            (confirmed.agent_id.clone(), confirmed.master.term),
            (a.clone(), 5),
            "its group was begun anew"
        );
        assert_eq!(world.faults.asked().len(), written);
        world.faults.refuse(RegistryError::NotNow {
            reason: "busy".to_owned(),
        });
        let busy = ask(known(6)).await.unwrap();
        assert!(matches!(busy, Err(RegistrationRefused::NotNow { .. })));
        world.faults.refuse(RegistryError::LostLeadership);
        let deposed = ask(known(6)).await;
        assert!(!matches!(deposed, Ok(Ok(_))), "{deposed:?}");
        assert!(ended(&world).await);
    });
}
