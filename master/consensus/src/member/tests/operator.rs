//! An operator's requests, from a node of its own.

use super::super::address_book::AddressChange;
use super::super::dumping::*;
use super::super::handle::ChangeAddress;
use super::super::operator::*;
use super::*;
use crate::dump::{Dump, Reach, fill, take};
use crate::log::{Entry, Identity, Snapshot};

struct Operator {
    node: Node,
}

const TIMEOUT: Duration = Duration::from_secs(5);

impl Operator {
    fn of(cluster: &Cluster) -> Self {
        let node = cluster
            .network
            .node("operator", Role::Operator, &[Role::Master]);
        Self { node }
    }

    async fn view(&self, name: &str) -> MasterStatus {
        let pid = self.node.find(name, NAME, TIMEOUT).await.unwrap();
        let shown = self.node.ask(&pid, ViewMaster, TIMEOUT).await;
        shown.unwrap().unwrap()
    }

    async fn change(
        &self,
        name: &str,
        change: ChangeMasters,
    ) -> Result<MastersChanged, ChangeRefused> {
        let pid = self.node.find(name, NAME, TIMEOUT).await.unwrap();
        self.node.ask(&pid, change, TIMEOUT).await.unwrap()
    }
}

#[test]
fn operator_sees_every_member_and_its_status() {
    simulate_three(|cluster, leader| async move {
        cluster.propose(&leader, 1).await.unwrap();
        cluster.wait(2_000).await;
        let operator = Operator::of(&cluster);
        let view = operator.view(&leader).await;
        let log = view.log.unwrap();
        assert_eq!((log.role, log.applied), (RaftRole::Leader, log.committed));
        assert_eq!(view.members.len(), 3);
        assert!(view.disk_bytes > 0);
        let lags = view.members.iter().filter_map(|member| member.peer);
        assert_eq!(lags.map(|peer| peer.lag).collect::<Vec<_>>(), [0, 0]);
        for member in &view.members {
            assert_eq!(member.vote, VoteRole::Voter);
            let address = member.address.as_deref().unwrap();
            let its = operator.view(address).await;
            assert_eq!(its.identity.unwrap().0, member.id);
            assert_eq!(its.log.unwrap().applied, log.applied);
        }
    });
}

#[test]
fn operator_adds_promotes_transfers_and_removes() {
    simulate_three(|mut cluster, leader| async move {
        cluster.propose(&leader, 1).await.unwrap();
        let operator = Operator::of(&cluster);
        cluster.start("d");
        cluster.wait(1_000).await;
        let waiting = operator.view("d").await;
        assert!(waiting.identity.is_none() && waiting.waiting.is_some());
        let address = "d".to_owned();
        let added = operator
            .change(&leader, ChangeMasters::Add { address })
            .await;
        let id = added.unwrap().id;
        cluster.wait(3_000).await;
        let member = |view: MasterStatus| {
            view.members
                .into_iter()
                .find(|member| member.id == id)
                .unwrap()
        };
        assert_eq!(member(operator.view("d").await).vote, VoteRole::Learner);
        let change = |change| operator.change(&leader, change);
        change(ChangeMasters::Promote { id }).await.unwrap();
        change(ChangeMasters::Transfer { id }).await.unwrap();
        cluster.wait(1_000).await;
        let old = cluster.status(&leader).await.identity.unwrap().id;
        let told = change(ChangeMasters::Remove { id: old }).await;
        let leader_at = Some("d".to_owned());
        assert_eq!(told, Err(ChangeRefused::NotLeader { leader: leader_at }));
        let removed = operator
            .change("d", ChangeMasters::Remove { id: old })
            .await;
        assert_eq!(removed, Ok(MastersChanged { id: old }));
        let members = operator.view("d").await.members;
        assert!(members.len() == 3 && members.iter().all(|member| member.id != old));
    });
}

#[test]
fn operator_replaces_a_dead_master() {
    simulate_three(|mut cluster, leader| async move {
        cluster.propose(&leader, 1).await.unwrap();
        let operator = Operator::of(&cluster);
        let dead = cluster.others(&leader).remove(0);
        let old = cluster.status(&dead).await.identity.unwrap().id;
        cluster.fall(&dead).await;
        cluster.start("d");
        cluster.wait(1_000).await;
        let address = "d".to_owned();
        let change = |change| operator.change(&leader, change);
        let new = change(ChangeMasters::Add { address }).await.unwrap().id;
        cluster.wait(3_000).await;
        let strange = change(ChangeMasters::Replace { old: 99, new }).await;
        assert_eq!(strange.unwrap_err().to_string(), "99 is not a member");
        let replaced = change(ChangeMasters::Replace { old, new }).await;
        assert_eq!(replaced, Ok(MastersChanged { id: new }));
        cluster.wait(2_000).await;
        let members = operator.view(&leader).await.members;
        let is_voter = |member: &MasterEntry| member.vote == VoteRole::Voter && member.id != old;
        assert!(
            members.len() == 3 && members.iter().all(is_voter),
            "{members:?}"
        );
        let again = change(ChangeMasters::Replace { old, new }).await;
        assert_eq!(
            again.unwrap_err().to_string(),
            format!("{new} is not a learner")
        );
    });
}

#[test]
fn unsafe_changes_are_refused_with_a_reason() {
    simulate_three(|mut cluster, leader| async move {
        cluster.wait(2_000).await;
        let operator = Operator::of(&cluster);
        let own = cluster.status(&leader).await.identity.unwrap().id;
        let refusal = operator
            .change(&leader, ChangeMasters::Remove { id: own })
            .await;
        assert_eq!(
            refusal.unwrap_err().to_string(),
            format!("{own} leads: transfer the leadership first")
        );
        let others = cluster.others(&leader);
        let id = cluster.status(&others[0]).await.identity.unwrap().id;
        cluster.fall(&others[1]).await;
        cluster.wait(900).await;
        let refusal = operator.change(&leader, ChangeMasters::Remove { id }).await;
        assert_eq!(
            refusal.unwrap_err().to_string(),
            "of 2 voters only 1 would be alive, and 2 are needed"
        );
        let address = String::new();
        let refusal = operator
            .change(&leader, ChangeMasters::Add { address })
            .await;
        assert!(matches!(refusal, Err(ChangeRefused::Refused { .. })));
    });
}

#[test]
fn reserved_number_can_be_removed() {
    simulate_three(|cluster, leader| async move {
        cluster.propose(&leader, 1).await.unwrap();
        let member = &cluster.members[&leader];
        let address = "d".to_owned();
        let member = member.ask(ChangeAddress(AddressChange::Reserve { address }));
        let id = member.await.unwrap();
        let operator = Operator::of(&cluster);
        let removed = operator.change(&leader, ChangeMasters::Remove { id }).await;
        assert_eq!(removed, Ok(MastersChanged { id }));
        assert_eq!(operator.view(&leader).await.members.len(), 3);
        let again = operator.change(&leader, ChangeMasters::Remove { id }).await;
        assert_eq!(
            again.unwrap_err().to_string(),
            format!("{id} is not a member")
        );
    });
}

/// SPEC 3.7.
#[test]
fn dump_needs_the_read_permission() {
    simulate_network(|network| async move {
        let mut cluster = Cluster::of(network, &["a"]);
        let refuses = |name: &str, request| match (name, request) {
            ("auditor", AdminRequest::ReadContent) => Ok(()),
            (name, _) => Err(format!("{name} may not")),
        };
        cluster.start_with(Settings {
            permits: Permits::new(refuses),
            ..cluster.settings("a")
        });
        cluster.leader().await;
        let stale = false;
        for (name, may) in [("operator", false), ("auditor", true)] {
            let node = cluster.network.node(name, Role::Operator, &[Role::Master]);
            let pid = node.find("a", NAME, TIMEOUT).await.unwrap();
            let taken = node.ask(&pid, TakeDump { stale }, TIMEOUT).await.unwrap();
            assert_eq!(taken.is_ok(), may, "{taken:?}");
            let number = taken.as_ref().map_or(0, |taken| taken.number);
            let read = ReadDump { number, offset: 0 };
            let piece = node.ask(&pid, read, TIMEOUT).await.unwrap();
            assert_eq!(piece.is_ok(), may);
            if let Err(refused) = taken {
                assert_eq!(refused.to_string(), "operator may not");
                assert_eq!(piece, Err(refused));
            }
        }
    });
}

/// SPEC 3.7.
#[test]
fn status_and_changes_need_permission() {
    simulate_network(|network| async move {
        let mut cluster = Cluster::of(network, &["a"]);
        let refuses = |name: &str, request| match (name, request) {
            ("looker", AdminRequest::ViewStatus) | ("changer", AdminRequest::ChangeMembers) => {
                Ok(())
            }
            (name, _) => Err(format!("{name} may not")),
        };
        cluster.start_with(Settings {
            permits: Permits::new(refuses),
            ..cluster.settings("a")
        });
        cluster.leader().await;
        for (name, looks, changes) in [
            ("nobody", false, false),
            ("looker", true, false),
            ("changer", false, true),
        ] {
            let node = cluster.network.node(name, Role::Operator, &[Role::Master]);
            let pid = node.find("a", NAME, TIMEOUT).await.unwrap();
            let shown = node.ask(&pid, ViewMaster, TIMEOUT).await.unwrap();
            assert_eq!(shown.is_ok(), looks, "{name}");
            let reason = format!("{name} may not");
            if let Err(refused) = shown {
                assert_eq!(refused.to_string(), reason);
            }
            // Permission is checked before anything else, for each kind of change.
            for wanted in [
                ChangeMasters::Add {
                    address: String::new(),
                },
                ChangeMasters::Remove { id: 9 },
                ChangeMasters::Promote { id: 9 },
                ChangeMasters::Transfer { id: 9 },
                ChangeMasters::Replace { old: 8, new: 9 },
            ] {
                let changed = node.ask(&pid, wanted.clone(), TIMEOUT).await.unwrap();
                let refused = ChangeRefused::Refused {
                    reason: reason.clone(),
                };
                assert_eq!(changed == Err(refused), !changes, "{wanted:?}: {changed:?}");
            }
        }
    });
}

#[test]
fn dump_restores_a_group_of_one() {
    simulate_three(|mut cluster, leader| async move {
        for value in 1..=3 {
            cluster.propose(&leader, value).await.unwrap();
        }
        let follower = cluster.others(&leader)[0].clone();
        let operator = Operator::of(&cluster);
        let pid = operator.node.find(&follower, NAME, TIMEOUT).await.unwrap();
        let stale = false;
        let taken = operator.node.ask(&pid, TakeDump { stale }, TIMEOUT).await;
        let taken = taken.unwrap().unwrap();
        assert_eq!(taken.names, "1=a 2=b 3=c");
        let piece = async |number, offset| {
            let asked = operator
                .node
                .ask(&pid, ReadDump { number, offset }, TIMEOUT);
            asked.await.unwrap().map(|piece| piece.data)
        };
        let content = piece(taken.number, 0).await.unwrap();
        assert_eq!(content.len() as u64, taken.bytes);
        assert_eq!(piece(taken.number, 1).await.unwrap(), content[1..]);
        assert_eq!(piece(taken.number, u64::MAX).await, Ok(Vec::new()));
        assert!(piece(taken.number ^ 1, 0).await.is_err());
        cluster.wait(40_000).await;
        assert!(piece(taken.number, 0).await.is_err(), "it was let go");

        for name in ["a", "b", "c"] {
            cluster.fall(name).await;
        }
        let dump = Dump {
            group: taken.group,
            index: taken.index,
            term: taken.term,
            names: taken.names.into(),
            content: beginning(Ledger::default(), &content, 1).unwrap(),
        };
        let disk = cluster.disks.entry("x".to_owned()).or_default();
        let identity = Identity { id: 1, group: 77 };
        fill(&mut StoredLog::new(disk.open().unwrap()), &dump, identity).unwrap();
        cluster.start_with(Settings::new("x", &[]));
        assert_eq!(cluster.leader().await, "x");
        assert_eq!(cluster.values("x").await, [1, 2, 3]);
        let address = "a".to_owned();
        cluster.wipe("a");
        let added = operator.change("x", ChangeMasters::Add { address }).await;
        cluster.start_with(Settings::new("a", &["x"]));
        cluster.wait(3_000).await;
        let id = added.unwrap().id;
        assert_eq!(id, 2);
        let promoted = operator.change("x", ChangeMasters::Promote { id }).await;
        assert!(promoted.is_ok());
        assert_eq!(cluster.values("a").await, [1, 2, 3]);
    });
}

#[test]
fn dump_of_a_stopped_master_has_its_applied_state() {
    simulate_three(|mut cluster, leader| async move {
        for value in 1..=3 {
            cluster.propose(&leader, value).await.unwrap();
        }
        cluster.wait(1_000).await;
        let follower = cluster.others(&leader)[0].clone();
        cluster.fall(&follower).await;
        let mut log = StoredLog::new(cluster.disks[&follower].open().unwrap());
        let replay =
            |snapshot: &Snapshot, entries: &[Entry]| replayed(Ledger::default(), snapshot, entries);
        let dump = take(&mut log, Reach::Whole, replay).unwrap().dump;
        assert_eq!(dump.names, "1=a 2=b 3=c");
        let mut ledger = Ledger::default();
        ledger.restore(&dump.content).unwrap();
        assert_eq!(ledger.values, [1, 2, 3]);
    });
}
