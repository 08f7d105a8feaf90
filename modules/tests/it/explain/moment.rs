//! Explanations that take several pieces: whatever happens between those, the answer is of the moment of the question.

use super::*;

/// W26: an answer is of the moment at which it was asked for, whatever happens before it is complete.
#[test]
fn an_answer_that_is_given_in_pieces_is_of_one_moment() {
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
    let begin = |scene: &Scene| Survey::begin(&scene.books, &question, PAUSE, scene.now).unwrap();
    let mut at_once = begin(&scene);
    assert!(at_once.go_on(&mut scene.books.clone(), 100).unwrap());
    let before = at_once.end();
    let mut survey = begin(&scene);
    // Two roles: one agent of each.
    assert!(!survey.go_on(&mut scene.books, 2).unwrap());
    scene.now = scene.now + Duration::from_secs(60);
    scene.fair("g", "r", "a2");
    scene.quota("r", "", "cpus:0.001");
    scene
        .books
        .agent_added(added("a3", "cpus:4;mem:64", vec![]));
    scene.framework("f", "other", &[]);
    assert!(survey.go_on(&mut scene.books, 2).unwrap());
    assert_eq!(survey.end(), before);
    let mut after = begin(&scene);
    assert!(after.go_on(&mut scene.books, 100).unwrap());
    assert_ne!(after.end(), before);
}

/// The same through the mailbox: what is told right after the question is heard between its pieces.
#[test]
fn agents_that_go_while_an_explanation_is_under_way_are_in_it() {
    rehearse(|node| async move {
        let cluster = Cluster::new(&node, &[]);
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
