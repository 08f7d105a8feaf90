//! Explanations in several parts describe the moment of the request.

use super::*;

/// W26: an answer describes the moment of its request, whatever happens before it is complete.
// Covers W26.
#[test]
fn explanation_in_parts_describes_one_moment() {
    let mut scene = Scene::agents(&[("a1", "cpus:1;mem:64"), ("a2", "cpus:2;mem:64")]);
    scene.framework("f", "r,q", &[]);
    scene.framework("g", "r", &[]);
    scene.fair("f", "r", "a2");
    scene.decline("f", "r", "a2", "cpus:2;mem:64", 5);
    let question = Explain {
        framework_id: framework("f"),
        role: None,
        agent_id: None,
    };
    let begin = |scene: &Scene| Survey::begin(&scene.state, &question, PAUSE, scene.now).unwrap();
    let mut at_once = begin(&scene);
    assert!(at_once.advance(&mut scene.state.clone(), 100).unwrap());
    let before = at_once.finish();
    let mut survey = begin(&scene);
    // Two roles: one agent of each.
    assert!(!survey.advance(&mut scene.state, 2).unwrap());
    scene.now = scene.now + Duration::from_secs(60);
    scene.fair("g", "r", "a2");
    scene.quota("r", "", "cpus:0.001");
    scene
        .state
        .agent_added(added("a3", "cpus:4;mem:64", vec![]));
    scene.framework("f", "other", &[]);
    assert!(survey.advance(&mut scene.state, 2).unwrap());
    assert_eq!(survey.finish(), before);
    let mut after = begin(&scene);
    assert!(after.advance(&mut scene.state, 100).unwrap());
    assert_ne!(after.finish(), before);
}

/// The same through the mailbox: facts after the request are handled between its parts.
// Covers W26.
#[test]
fn explanation_includes_agents_removed_meanwhile() {
    simulate_cluster(|cluster| async move {
        let (agents, framework_id) = (3_500, framework("f"));
        cluster.framework("f", "r", &[]);
        let tell = Suppressed {
            framework_id: framework_id.clone(),
            roles: BTreeSet::new(),
        };
        cluster.allocator.tell(tell).unwrap();
        for n in 0..agents {
            cluster.agent(&format!("a{n}"), "cpus:1;mem:64");
        }
        cluster.wait(Duration::from_secs(2)).await;
        let question = Explain {
            framework_id,
            role: None,
            agent_id: None,
        };
        let asked = cluster.allocator.explain(question.clone());
        for n in 0..agents {
            let agent_id = agent(&format!("a{n}"));
            let gone = module_api::allocator::AgentRemoved { agent_id };
            cluster.allocator.tell(gone).unwrap();
        }
        for (answer, agents) in [
            (asked.await, agents),
            (cluster.allocator.explain(question).await, 0),
        ] {
            let told = &answer.unwrap().roles[0];
            let counted: u64 = told.reasons.iter().map(|tally| tally.agents).sum();
            assert_eq!((told.agents, counted), (agents, agents));
        }
    });
}
