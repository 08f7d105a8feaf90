//! Somebody knows of a leader of a later term: a majority is asked, and a deposed master ends.

use super::*;
use crate::registry::RegistryError;

async fn ended(world: &World) -> bool {
    world.settle().await;
    world.master.ask(TakeSnapshot, PATIENCE).await.is_err()
}

/// An agent may be wrong, and a framework may lie.
#[test]
fn a_leader_that_hears_of_a_later_term_goes_on_if_a_majority_says_so() {
    rehearse_network(|network| async move {
        let world = World::of_term(network, 5).await;
        let (agent, _) = world.agent("agent-1").await;
        let (scheduler, _) = world.framework("web", |_| ()).await;
        agent.tell(TermSeen { term: 6 });
        scheduler.tell(TermSeen { term: u64::MAX });
        scheduler.tell(TermSeen { term: 5 });
        assert!(!ended(&world).await);
        let books = world.books().await;
        assert_eq!(books.counters.get("master/messages_term_seen"), 2);
        assert_eq!(books.master.term, 5);
    });
}

#[test]
fn a_deposed_leader_that_hears_so_ends_and_is_heard_no_more() {
    rehearse_network(|network| async move {
        let world = World::of_term(network, 5).await;
        let (agent, a) = world.agent("agent-1").await;
        let (scheduler, f) = world.framework("web", |_| ()).await;
        let offer = world.offer(&scheduler, &f, &a, "cpus:1").await;
        world.whims.delay(Duration::from_secs(1));
        // The group is busy, and says so only when it is asked again.
        world.whims.refuse(RegistryError::NotNow {
            reason: "busy".to_owned(),
        });
        world.whims.refuse(RegistryError::LostLeadership);
        agent.tell(TermSeen { term: 6 });
        world.pass(2).await;
        assert!(!ended(&world).await);
        world.pass(1).await;
        assert!(ended(&world).await);
        agent.heard();
        let late = accept(&f, &[&offer], vec![task("t", &a, "cpus:1")]);
        let _ = scheduler.node.tell(&scheduler.master, late);
        world.settle().await;
        assert_eq!(agent.heard(), Vec::<String>::new());
    });
}

/// An agent whose id the registry knows is welcomed without a write: only here a deposed leader could take somebody in.
#[test]
fn an_agent_that_knows_a_later_term_is_let_in_only_when_a_majority_has_been_asked() {
    rehearse_network(|network| async move {
        let world = World::of_term(network, 5).await;
        let (agent, a) = world.agent("agent-1").await;
        let known = |term_seen| RegisterAgent {
            term_seen,
            ..registration(&agent, Some(a.clone()), vec![])
        };
        let ask = |message| agent.node.ask(&agent.master, message, PATIENCE);
        let written = world.whims.asked().len();
        let confirmed = ask(known(6)).await.unwrap().unwrap();
        assert_eq!(
            (confirmed.agent_id.clone(), confirmed.master.term),
            (a.clone(), 5),
            "its group was begun anew"
        );
        assert_eq!(world.whims.asked().len(), written);
        world.whims.refuse(RegistryError::NotNow {
            reason: "busy".to_owned(),
        });
        let busy = ask(known(6)).await.unwrap();
        assert!(matches!(busy, Err(RegistrationRefused::NotNow { .. })));
        world.whims.refuse(RegistryError::LostLeadership);
        let deposed = ask(known(6)).await;
        assert!(!matches!(deposed, Ok(Ok(_))), "{deposed:?}");
        assert!(ended(&world).await);
    });
}
