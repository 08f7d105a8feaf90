//! Several nodes: order, asks, bulks, roles, links, lost connections.

use super::*;
use crate::ConnectError;
use crate::testing::memory::Network;
use crate::testing::simulate_network;

/// A master and an agent, linked; and a diarist on the agent, its diary and its pid.
async fn pair(network: &Network) -> (Node, Node, Diary, Pid) {
    let master = network.node("master", Role::Master, &[Role::Agent]);
    let agent = network.node(
        "agent",
        Role::Agent,
        &[Role::Master, Role::Agent, Role::Framework],
    );
    let diary = Diary::default();
    agent.spawn("diarist", Diarist::new(&diary)).unwrap();
    let pid = master.find("agent", "diarist", SECOND).await.unwrap();
    (master, agent, diary, pid)
}

fn spawn(node: &Node, name: &str) -> (Handle<Diarist>, Diary) {
    let diary = Diary::default();
    (node.spawn(name, Diarist::new(&diary)).unwrap(), diary)
}

#[test]
fn tells_and_asks_cross_a_link_in_order() {
    simulate_network(|network| async move {
        let (master, _agent, diary, pid) = pair(&network).await;
        let mut asked = Vec::new();
        for number in (1..=40).step_by(2) {
            master.tell(&pid, Note(number)).unwrap();
            asked.push(master.ask(&pid, Count(number + 1), SECOND));
        }
        for (index, reply) in asked.into_iter().enumerate() {
            assert_eq!(reply.await, Ok(2 * index + 2));
        }
        assert_eq!(
            read(&diary),
            (1..=40)
                .map(|number| number.to_string())
                .collect::<Vec<_>>()
        );
    });
}

#[test]
fn bulk_keeps_its_place_and_pings_overtake_it() {
    simulate_network(|network| async move {
        let (master, _agent, diary, pid) = pair(&network).await;
        master.tell(&pid, Note(1)).unwrap();
        let loaded = master.ask(&pid, Load(vec![9; 3 << 20]), SECOND);
        master.tell(&pid, Note(2)).unwrap();
        master.tell(&pid, Load(vec![9; 1 << 20])).unwrap();
        let last = master.ask(&pid, Count(3), SECOND);
        assert_eq!(master.ask(&pid, Ping, SECOND).await, Ok(1));
        assert_eq!((loaded.await, last.await), (Ok(3 << 20), Ok(5)));
        assert_eq!(
            read(&diary),
            ["1", "load 3145728", "2", "load 1048576", "3"]
        );
    });
}

#[test]
fn a_bulk_reply_comes_back() {
    simulate_network(|network| async move {
        let (master, _agent, _, pid) = pair(&network).await;
        let (small, large) = (
            master.ask(&pid, Echo(10), SECOND),
            master.ask(&pid, Echo(1 << 20), SECOND),
        );
        assert_eq!(
            (small.await, large.await),
            (Ok(vec![7; 10]), Ok(vec![7; 1 << 20]))
        );
    });
}

#[test]
fn receiver_sees_the_sending_actor_and_peer() {
    struct Asker(Pid);
    impl Actor for Asker {
        type Context = Context<Self>;
    }
    impl Process for Asker {}
    impl Handler<WhoAmI> for Asker {
        type Result = ResponseFuture<Option<Pid>>;
        fn handle(&mut self, _: WhoAmI, ctx: &mut Context<Self>) -> Self::Result {
            assert_eq!(ctx.sender(), None, "asked locally");
            let asked = ctx.node().ask(&self.0, WhoAmI, SECOND);
            let (node, whom) = (ctx.node().clone(), self.0.clone());
            Box::pin(async move {
                let in_the_handler = asked.await.unwrap();
                let later = node.ask(&whom, WhoAmI, SECOND).await.unwrap();
                assert_eq!(
                    later, in_the_handler,
                    "in the future that it returned as well"
                );
                later
            })
        }
    }
    simulate_network(|network| async move {
        let (master, agent, _, pid) = pair(&network).await;
        assert_eq!(
            master.ask(&pid, WhoAmI, SECOND).await,
            Ok(None),
            "no actor asked"
        );
        let caller = master.spawn("caller", Asker(pid.clone())).unwrap();
        assert_eq!(caller.ask(WhoAmI, SECOND).await, Ok(Some(caller.pid())));
        let local = agent.spawn("caller", Asker(pid)).unwrap();
        assert_eq!(local.ask(WhoAmI, SECOND).await, Ok(None), "not from a link");
    });
}

// Covers 6.1 send, install, delegate.
#[test]
fn unaccepted_roles_are_refused_and_counted() {
    simulate_network(|network| async move {
        let (master, agent, _, pid) = pair(&network).await;
        let framework = network.node("framework", Role::Framework, &[Role::Agent]);
        framework.connect("agent").await.unwrap();
        assert_eq!(master.ask(&pid, MastersOnly, SECOND).await, Ok(1));
        let refusals = [
            framework.ask(&pid, MastersOnly, SECOND).await.unwrap_err(),
            framework
                .ask(&pid, NotAccepted, SECOND)
                .await
                .map(|()| 0)
                .unwrap_err(),
            framework
                .ask(&pid, Watch(pid.clone()), SECOND)
                .await
                .map(|()| 0)
                .unwrap_err(),
        ];
        assert!(
            refusals
                .iter()
                .all(|refusal| matches!(refusal, AskError::Refused { .. })),
            "{refusals:?}"
        );
        framework.tell(&pid, MastersOnly).unwrap(); // At most once: the sender gets no error.
        agent.clock().settle().await;
        let counters = agent.counters();
        assert_eq!(
            (
                counters["refused/wrong_role"],
                counters["refused/unknown_message"]
            ),
            (3.0, 1.0)
        );
    });
}

#[test]
fn asks_to_missing_actors_and_full_mailboxes_fail() {
    simulate_network(|network| async move {
        let (master, agent, _, pid) = pair(&network).await;
        let nobody = Pid::new("nobody", agent.id().clone(), 99);
        assert_eq!(
            master.ask(&nobody, Count(1), Patience::WhileLinked).await,
            Err(AskError::Gone)
        );
        assert_eq!(
            master.find("agent", "nobody", SECOND).await,
            Err(AskError::Gone)
        );
        let unlinked = Pid::new("x", crate::NodeId::new("unlinked", 1), 1);
        assert_eq!(master.tell(&unlinked, Note(1)), Err(TellError::Gone));
        (1..=100).for_each(|number| master.tell(&pid, Note(number)).unwrap());
        let one_too_many = master.ask(&pid, Count(101), SECOND);
        assert_eq!(one_too_many.await, Err(AskError::Full));
    });
}

#[test]
fn a_look_up_address_reaches_whoever_has_the_name() {
    simulate_network(|network| async move {
        let (master, agent, _, _) = pair(&network).await;
        let address = Pid::new("diarist", agent.id().clone(), 0);
        assert_eq!(master.ask(&address, Count(1), SECOND).await, Ok(1));
    });
}

#[test]
fn patience_counts_on_this_side_of_the_link() {
    simulate_network(|network| async move {
        let (master, _agent, _, pid) = pair(&network).await;
        let asked = master.clock().now();
        assert_eq!(
            master.ask(&pid, Wait, 5 * SECOND).await,
            Err(AskError::Late { after: 5 * SECOND })
        );
        assert_eq!(master.clock().now() - asked, 5 * SECOND);
    });
}

#[test]
fn ask_fails_when_its_actor_or_link_ends() {
    simulate_network(|network| async move {
        let (master, agent, _, pid) = pair(&network).await;
        spawn(&agent, "other");
        let other = master.find("agent", "other", SECOND).await.unwrap();
        let one = master.ask(&pid, Wait, Patience::WhileLinked);
        let two = master.ask(&other, Wait, Patience::WhileLinked);
        master.tell(&pid, Fall).unwrap();
        assert_eq!(one.await, Err(AskError::Gone));
        network.sever("master", "agent");
        assert_eq!(two.await, Err(AskError::Gone));
    });
}

#[test]
fn exited_crosses_once_per_watcher_after_all_messages() {
    simulate_network(|network| async move {
        let (master, _agent, _, pid) = pair(&network).await;
        let ((one, first), (two, second)) = (spawn(&master, "one"), spawn(&master, "two"));
        for watcher in [&one, &two, &one] {
            watcher.tell(Watch(pid.clone())).unwrap();
        }
        master.clock().settle().await;
        let bulk = 1 << 20;
        master.tell(&pid, LoadThem(one.pid(), bulk)).unwrap();
        master.tell(&pid, Fall).unwrap();
        master.clock().settle().await;
        let crashed = "diarist panicked: told to fall";
        assert_eq!(read(&first), ["1", "load 1048576", "2", crashed]);
        assert_eq!(read(&second), [crashed]);
    });
}

#[test]
fn lost_node_notifies_every_link_once() {
    simulate_network(|network| async move {
        let (master, agent, _, pid) = pair(&network).await;
        let (watcher, diary) = spawn(&master, "watcher");
        let nobody = Pid::new("nobody", agent.id().clone(), 99);
        watcher.tell(Watch(pid.clone())).unwrap();
        watcher.tell(Watch(nobody)).unwrap();
        master.clock().settle().await;
        network.sever("master", "agent");
        master.clock().settle().await;
        assert_eq!(
            read(&diary),
            ["nobody no such process", "diarist node lost: severed"]
        );
        assert_eq!((master.peers(), agent.peers()), (vec![], vec![]));
        assert_eq!(master.tell(&pid, Note(1)), Err(TellError::Gone));

        assert!(matches!(
            master.connect("agent").await,
            Err(ConnectError::Unreachable { .. })
        ));
        network.heal("master", "agent");
        master.connect("agent").await.unwrap();
        assert_eq!(
            master.ask(&pid, Count(1), SECOND).await,
            Ok(1),
            "the same actor, over a new link"
        );
        master.tell(&pid, Fall).unwrap();
        master.clock().settle().await;
        assert_eq!(read(&diary).len(), 2, "the old link had ended");
    });
}

#[test]
fn who_unlinks_across_a_link_hears_nothing() {
    simulate_network(|network| async move {
        let (master, _agent, _, pid) = pair(&network).await;
        let (watcher, diary) = spawn(&master, "watcher");
        watcher.tell(Watch(pid.clone())).unwrap();
        watcher.tell(Unwatch(pid.clone())).unwrap();
        watcher.tell(Fall).unwrap();
        master.tell(&pid, Fall).unwrap();
        master.clock().settle().await;
        assert_eq!(read(&diary), Vec::<String>::new());
    });
}

#[test]
fn shutdown_sends_written_frames_first() {
    simulate_network(|network| async move {
        let (master, agent, diary, pid) = pair(&network).await;
        let (watcher, watched) = spawn(&agent, "watcher");
        let (last, _) = spawn(&master, "last");
        watcher.tell(Watch(last.pid())).unwrap();
        master.clock().settle().await;
        master.tell(&pid, Note(1)).unwrap();
        master.shutdown().await;
        master.clock().settle().await;
        assert_eq!(
            (read(&diary), read(&watched)),
            (vec!["1".into()], vec!["last stopped".into()])
        );
        assert_eq!(agent.peers(), vec![]);
    });
}

#[test]
fn only_wanted_roles_get_a_link() {
    simulate_network(|network| async move {
        let master = network.node("master", Role::Master, &[Role::Agent]);
        let operator = network.node("operator", Role::Operator, &[Role::Master]);
        let refused = operator.connect("master").await;
        let reason = "role operator is not accepted here".to_owned();
        assert_eq!(
            refused,
            Err(ConnectError::Refused {
                address: "master".into(),
                reason
            })
        );
        assert_eq!((master.peers(), operator.peers()), (vec![], vec![]));
    });
}

#[test]
fn many_who_want_the_same_peer_make_one_link() {
    simulate_network(|network| async move {
        let (master, agent, _, _) = pair(&network).await;
        let dials = futures_util::future::join_all((0..9).map(|_| agent.connect("master"))).await;
        assert!(
            dials
                .iter()
                .all(|dial| dial.as_ref().is_ok_and(|peer| peer.node == *master.id()))
        );
        assert_eq!((master.peers().len(), agent.peers().len()), (1, 1));
    });
}
