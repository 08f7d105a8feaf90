//! Metrics of the registry: Mesos' `registrar/*`, and the group status of this master, `raft/*`.
//!
//! Every master reports its own, leading or not. Measurements of operations exist at the leader
//! only.

use std::collections::BTreeMap;
use std::future::Future;
use std::time::Duration;

use consensus::core::{Role, Status};
use consensus::member::{Counts, MemberStatus, ProposeError};
use runtime::Node;

use crate::registry::RegistryMeter;

/// Time limit for the member's status: a slow disk must not delay other metrics.
const PATIENCE: Duration = Duration::from_secs(1);

/// All metrics, with the status of this node's member. Empty if it is late or has ended.
pub(crate) async fn look(
    meter: &RegistryMeter,
    node: &Node,
    status: impl Future<Output = Result<MemberStatus, ProposeError>>,
) -> BTreeMap<String, f64> {
    match node.clock().timeout(PATIENCE, status).await {
        Ok(Ok(status)) => metrics(meter, &status),
        _ => BTreeMap::new(),
    }
}

fn metrics(meter: &RegistryMeter, status: &MemberStatus) -> BTreeMap<String, f64> {
    let mut all = meter.metrics();
    let seat = status.log.as_ref();
    if let Some(seat) = seat {
        all.extend(member_metrics(seat, status));
    }
    counts(&status.counts, &mut all);
    // It has caught up with its known commits, and knows a leader.
    let recovered = |seat: &Status| seat.now.leader.is_some() && seat.applied >= seat.committed;
    let recovered = seat.is_some_and(recovered);
    let voters = seat.map_or(0, |seat| seat.members.voters.len());
    for (name, value) in [
        ("registry_size_bytes", status.disk_bytes as f64),
        ("log/recovered", f64::from(recovered)),
        ("log/ensemble_size", voters as f64),
    ] {
        all.insert(format!("registrar/{name}"), value);
    }
    all
}

/// Status of a member that has joined. Only the leader knows the progress of the others.
fn member_metrics(seat: &Status, status: &MemberStatus) -> BTreeMap<String, f64> {
    let mut all = BTreeMap::new();
    let role = match seat.now.role {
        Role::Follower => 0.0,
        Role::Candidate => 1.0,
        Role::Leader => 2.0,
    };
    let is_voter = seat.members.voters.contains(&seat.id);
    for (name, value) in [
        ("term", seat.now.term as f64),
        ("role", role),
        ("voter", f64::from(is_voter)),
        ("committed", seat.committed as f64),
        ("applied", seat.applied as f64),
        ("last", seat.last as f64),
        ("snapshot", seat.snapshot as f64),
        ("lag", seat.committed.saturating_sub(seat.applied) as f64),
        ("log_bytes", seat.log_bytes as f64),
        ("disk_silent_ticks", seat.disk_silent as f64),
    ] {
        all.insert(format!("raft/{name}"), value);
    }
    for (id, peer) in &seat.peers {
        let name = status.address_book.address(*id);
        let name = name.map_or_else(|| id.to_string(), str::to_owned);
        all.insert(format!("raft/peers/{name}/lag"), peer.lag as f64);
    }
    all
}

/// Counters since the member's start.
fn counts(counts: &Counts, all: &mut BTreeMap<String, f64>) {
    for (name, count) in [
        ("proposals", counts.proposals),
        ("proposals_refused", counts.refused),
        ("writes", counts.writes),
        ("snapshots", counts.snapshots),
        ("packets_sent", counts.sent),
        ("packets_dropped", counts.dropped),
        ("packets_unbelieved", counts.rejected_packets),
    ] {
        all.insert(format!("raft/{name}"), count as f64);
    }
}
