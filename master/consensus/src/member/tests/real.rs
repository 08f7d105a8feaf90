//! Real time, disks and threads.

use std::path::Path;

use futures_util::future::join_all;
use runtime::Placement;
use testkit::recorder::run_in_real_time;

use super::*;

const NAMES: [&str; 3] = ["a", "b", "c"];

fn begin(network: &Network, dir: &Path, placement: Placement) -> Vec<MemberHandle<Ledger>> {
    let accepts = [Role::Master];
    let member = |name| {
        let node = Node::builder(name).role(Role::Master).accepts(&accepts);
        let node = node.placement(placement.clone()).build();
        network.join(&node, name);
        let log = StoredLog::open(dir.join(name)).unwrap();
        let settings = Settings::new(name, &NAMES);
        start(&node, settings, Box::new(log), Ledger::default()).unwrap()
    };
    NAMES.map(member).into()
}

async fn leading(members: &[MemberHandle<Ledger>]) -> &MemberHandle<Ledger> {
    let clock = Clock::real();
    for _ in 0..600 {
        for member in members {
            let now = member
                .status()
                .await
                .ok()
                .and_then(|status| status.role_now());
            if now.is_some_and(|now| now.role == RaftRole::Leader)
                && member.read(|_| ()).await.is_ok()
            {
                return member;
            }
        }
        clock.sleep(Duration::from_millis(50)).await;
    }
    panic!("nobody leads");
}

#[test]
fn real_disks_share_syncs_and_keep_answers() {
    const EACH: u64 = 20;
    let dir = tempfile::tempdir().unwrap();
    run_in_real_time(async {
        let network = Network::new();
        let members = begin(&network, dir.path(), Placement::here());
        let leader = leading(&members).await;
        let before = leader.status().await.unwrap().counts;
        let clock = Clock::real();
        let started = clock.now();
        let proposer = |who: u64| async move {
            for nth in 0..EACH {
                let value = who * EACH + nth;
                leader.propose((value, vec![0; 256])).await.unwrap();
            }
        };
        join_all((0..64).map(proposer)).await;
        let took = clock.now() - started;
        let counts = leader.status().await.unwrap().counts;
        let (proposals, writes) = (
            counts.proposals - before.proposals,
            counts.writes - before.writes,
        );
        println!("{proposals} proposals of 64 proposers in {writes} writes and {took:?}");
        assert!(proposals >= 64 * EACH && writes < proposals);
        for member in &members {
            member.retire().await;
        }
    });
    run_in_real_time(async {
        let network = Network::new();
        let members = begin(&network, dir.path(), Placement::here());
        let leader = leading(&members).await;
        let mut values = leader.read(|ledger| ledger.values.clone()).await.unwrap();
        values.sort_unstable();
        assert_eq!(values, (0..64 * EACH).collect::<Vec<_>>());
    });
}

#[test]
fn member_runs_on_its_own_thread() {
    let dir = tempfile::tempdir().unwrap();
    run_in_real_time(async {
        let node = Node::builder("a").role(Role::Master);
        let node = node.placement(Placement::services()).build();
        let log = StoredLog::open(dir.path()).unwrap();
        let settings = Settings::new("a", &["a"]);
        let members = [start(&node, settings, Box::new(log), Ledger::default()).unwrap()];
        let leader = leading(&members).await;
        assert_eq!(leader.propose((1, Vec::new())).await, Ok(1));
        assert_eq!(node.processes()[0].thread, NAME);
        leader.retire().await;
    });
}
