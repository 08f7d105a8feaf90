//! Probes of the masters' group: harmless operations and reads through a member, leader or not, as
//! a client would send them. They are more frequent and more varied than those of masters.
//!
//! A probe changes only objects without users: a framework without a scheduler, an unknown agent,
//! roles without frameworks. The maintenance schedule is shared, so it is left alone. The probes of
//! all members change the same objects, often two at once, so that compare-and-sets are contended;
//! after [`TURN`] they choose others. Every request and reply is reported.

use std::collections::BTreeMap;
use std::time::Duration;

use ::master::registry::{Applied, RegistryError, RegistryMachine, RegistryOperation};
use consensus::member::{MemberHandle, ProposeError};
use futures_util::future::join_all;
use protocol::{AgentId, Drain, FrameworkId, FrameworkInfo, Quota};
use rand::Rng;
use rand::rngs::SmallRng;
use resources::{Name, Scalar};
use runtime::{Clock, NodeId, Pid, Timestamp};

use super::observer::Call;
use crate::event::RegistryCaller;
use crate::linear::{RegistryAnswer, RegistryRequest};
use crate::watch::Watch;

/// Milliseconds between two requests to a member.
const AFTER: std::ops::Range<u64> = 300..4000;
/// The framework and the agent are replaced after this time: some operations are possible only
/// once.
const TURN: Duration = Duration::from_secs(60);
/// The framework is removed this long after its turn, unless a scheduler subscribes, and none does.
const DEADLINE: Duration = Duration::from_secs(3600);
/// The framework's keys.
const KEYS: [&str; 2] = ["leader", "offset"];

/// Probes this member of the node until the member ends, or until that time of the run.
pub async fn probe(
    member: MemberHandle<RegistryMachine>,
    watch: Watch,
    node: String,
    clock: Clock,
    (rng, until): (SmallRng, Duration),
) {
    let mut wishes = Wishes::new(rng);
    while member.ended().is_none() && watch.now() < until {
        clock
            .sleep(Duration::from_millis(wishes.rng.random_range(AFTER)))
            .await;
        if wishes.rng.random_range(0..4) == 0 {
            let call = Call::begin(
                &watch,
                &node,
                RegistryCaller::Client,
                &RegistryRequest::Read,
            );
            match member.read(|machine| machine.state().clone()).await {
                Ok(state) => {
                    let kept = state.framework_states.iter();
                    let kept = kept.map(|(id, key, value)| (keeps(id, key), value.version));
                    wishes.versions = kept.collect();
                    call.content(state);
                }
                Err(_) => call.answered(None),
            }
            continue;
        }
        let turn = watch.now().as_secs() / TURN.as_secs();
        let asked = wishes.next(turn, clock.wall()).into_iter().map(|wish| {
            let call = Call::begin(&watch, &node, RegistryCaller::Client, &wish.clone().into());
            let answer = member.propose(wish.clone());
            async move {
                let answer = answer.await;
                match &answer {
                    Ok(Ok(applied)) => call.answered(Some(&RegistryAnswer::Applied(*applied))),
                    Ok(Err(error)) => call.failed(error),
                    Err(ProposeError::Unknown) => {}
                    // All other errors guarantee that nothing was done and nothing will be.
                    Err(_) => call.answered(None),
                }
                (wish, answer)
            }
        });
        for (wish, answer) in join_all(asked).await {
            if let Ok(answer) = answer {
                wishes.note(&wish, &answer);
            }
        }
    }
}

/// A key of a framework.
type Key = (FrameworkId, String);

fn keeps(id: &FrameworkId, key: &str) -> Key {
    (id.clone(), key.to_owned())
}

/// The requests of a seed.
struct Wishes {
    rng: SmallRng,
    /// The versions in the latest replies.
    versions: BTreeMap<Key, u64>,
}

impl Wishes {
    fn new(rng: SmallRng) -> Self {
        Self {
            rng,
            versions: BTreeMap::new(),
        }
    }

    /// The next one or two concurrent operations. Of two changes of a key that expect the same
    /// version only one can succeed.
    fn next(&mut self, turn: u64, now: Timestamp) -> Vec<RegistryOperation> {
        let first = self.any(turn, now);
        if self.rng.random_range(0..2) == 0 {
            return vec![first];
        }
        let second = match &first {
            RegistryOperation::ChangeFrameworkState { key, .. } => self.change(turn, key),
            _ => self.any(turn, now),
        };
        vec![first, second]
    }

    /// Handles a reply.
    fn note(&mut self, wish: &RegistryOperation, answer: &Result<Applied, RegistryError>) {
        let RegistryOperation::ChangeFrameworkState {
            framework_id,
            key,
            value,
            ..
        } = wish
        else {
            return;
        };
        let version = match answer {
            Ok(_) if value.is_none() => 0,
            Ok(Applied { version }) => *version,
            Err(RegistryError::Conflict { found }) => *found,
            Err(_) => return,
        };
        self.versions.insert(keeps(framework_id, key), version);
    }

    fn any(&mut self, turn: u64, now: Timestamp) -> RegistryOperation {
        let framework_id = framework_of(turn);
        let agent_id = agent_of(turn);
        match self.rng.random_range(0..60) {
            0..26 => {
                let key = KEYS[self.rng.random_range(0..KEYS.len())];
                self.change(turn, key)
            }
            26..32 => RegistryOperation::AppointScheduler {
                info: info_of(framework_id),
                scheduler: Pid::new("scheduler", NodeId::new("probe", turn), 1),
            },
            32..34 => RegistryOperation::AdmitFramework {
                info: info_of(framework_id),
                deadline: Some(now + DEADLINE),
            },
            34 => RegistryOperation::RemoveFramework { framework_id },
            35..38 => {
                // Only a limit: a guarantee would be kept free.
                let mut quota = Quota::default();
                let cpus = self.rng.random_range(0..4);
                if cpus > 0 {
                    quota.limits.set(Name::Cpus, Scalar::whole(cpus));
                }
                let quotas = BTreeMap::from([("probe".to_owned(), quota)]);
                RegistryOperation::UpdateQuotas { quotas }
            }
            38..46 => {
                let weight = f64::from(self.rng.random_range(1..40)) / 10.0;
                let weight = self.rng.random_bool(0.8).then_some(weight);
                let weights = BTreeMap::from([("probe".to_owned(), weight)]);
                RegistryOperation::UpdateWeights { weights }
            }
            46..49 => RegistryOperation::MarkAgentUnreachable {
                agent_id,
                since: now,
            },
            49..52 => RegistryOperation::DrainAgent {
                agent_id,
                drain: Drain {
                    max_grace_period: None,
                    mark_gone: false,
                    since: now,
                    drained: false,
                },
            },
            52 => RegistryOperation::MarkAgentDrained { agent_id },
            53 => RegistryOperation::DeactivateAgent { agent_id },
            54 => RegistryOperation::ReactivateAgent { agent_id },
            55..58 => RegistryOperation::CancelDrain { agent_id },
            58 => RegistryOperation::MarkAgentGone {
                agent_id,
                since: now,
            },
            _ => RegistryOperation::RemoveAgent { agent_id },
        }
    }

    fn change(&mut self, turn: u64, key: &str) -> RegistryOperation {
        let framework_id = framework_of(turn);
        let known = self.versions.get(&keeps(&framework_id, key)).copied();
        RegistryOperation::ChangeFrameworkState {
            framework_id,
            key: key.to_owned(),
            expected: match self.rng.random_range(0..8) {
                0 => None,
                1 => Some(0),
                _ => Some(known.unwrap_or(0)),
            },
            value: match self.rng.random_range(0..6) {
                0 => None,
                _ => Some(self.rng.random::<u32>().to_le_bytes().to_vec()),
            },
        }
    }
}

#[allow(clippy::expect_used, reason = "letters and figures are an id")]
fn framework_of(turn: u64) -> FrameworkId {
    FrameworkId::new(format!("probe-{turn}")).expect("an id")
}

/// An agent that never existed, and so is unreachable from its first operation on.
#[allow(clippy::expect_used, reason = "letters and figures are an id")]
fn agent_of(turn: u64) -> AgentId {
    AgentId::new(format!("probe-{turn}")).expect("an id")
}

fn info_of(id: FrameworkId) -> FrameworkInfo {
    FrameworkInfo {
        id: Some(id),
        ..FrameworkInfo::new("nobody", "probe")
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use master::registry::RegistryState;
    use rand::SeedableRng;

    use super::*;

    fn kind_of(operation: &RegistryOperation) -> String {
        let text = format!("{operation:?}");
        let end = text.find(|c: char| !c.is_alphanumeric());
        text[..end.unwrap_or(text.len())].to_owned()
    }

    #[test]
    fn probes_cover_many_kinds_and_contend() {
        let mut wishes = Wishes::new(SmallRng::seed_from_u64(7));
        let mut state = RegistryState::default();
        let (mut taken, mut conflicts) = (BTreeSet::new(), 0);
        for nth in 0..4_000 {
            let now = Timestamp::from_nanos(nth);
            let together = wishes.next(nth / 20, now);
            let answers = together.iter().map(|wish| state.change(wish));
            let answers: Vec<_> = answers.collect();
            for (wish, answer) in together.iter().zip(answers) {
                wishes.note(wish, &answer);
                match answer {
                    Ok(_) => drop(taken.insert(kind_of(wish))),
                    Err(RegistryError::Conflict { .. }) => conflicts += 1,
                    Err(_) => {}
                }
            }
        }
        // Masters send the other kinds.
        assert_eq!(taken.len(), 14, "{taken:?}");
        for theirs in ["AdmitAgent", "MarkAgentReachable"] {
            assert!(!taken.contains(theirs), "{theirs}");
        }
        assert!(conflicts > 400, "{conflicts}");
        assert!(state.agents.is_empty() && state.quotas.len() <= 1);
    }
}
