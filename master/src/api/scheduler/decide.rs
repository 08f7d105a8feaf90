//! Decisions about calls: authorization, bounds and splitting.
//!
//! Plain functions: no mailbox, clock or I/O.

use ::http::api::Refusal;
use authority::Subject;
use protocol::message::scheduler::{
    AcceptInverseOffers, DeclineInverseOffers, DeclineOffers, ReconcileOperations, ReconcileTasks,
    SubscriptionRefused,
};
use protocol::{FrameworkId, FrameworkInfo, Operation};
use resources::{Invalid, excerpt};
use v1::convert::scheduler::{RejectedEntries, SchedulerCall, UNKNOWN_FRAMEWORK};
use v1::schema::scheduler::Call;

use super::subscriptions::{FrameworkStream, SUBSCRIBERS_MAX};
use crate::api::{NO_LEADER, RECOVERING};
use crate::master::NotUpdated;
use crate::state::MasterState;

/// Maximum ids per internal RECONCILE or DECLINE part. Larger calls are split, so that the master's
/// mailbox is never blocked for seconds. Metrics count each part as a call.
pub(super) const ASKED_MAX: usize = 10_000;
/// Maximum offers of one ACCEPT. It cannot be split: all offers must be of one agent.
const OFFERS_MAX: usize = 10_000;
/// Maximum tasks, and operations with an id, of one ACCEPT. If it is rejected each is answered, and
/// all answers of one turn must fit into the subscriber's mailbox of 65,536.
const TASKS_MAX: usize = 50_000;

/// Refuses calls that take too long and cannot be split.
pub(super) fn bounded(call: &SchedulerCall, rejected: &RejectedEntries) -> Result<(), Refusal> {
    let SchedulerCall::Accept(accepted) = call else {
        return Ok(());
    };
    let most = |field: &str, found: usize, most: usize| match found > most {
        true => {
            let expected = format!("at most {most} in one call");
            let found = format!("a list of {found}");
            Err(Refusal::bad(Invalid::new(field, found, expected)))
        }
        false => Ok(()),
    };
    let answers = |operation: &Operation| match operation {
        Operation::Convert { .. } => 1,
        launch => launch.tasks().len(),
    };
    let operations = &accepted.offers.operations;
    let refused = accepted.tasks.len() + accepted.operations.len() + rejected.answered.len();
    let asked = operations.iter().map(answers).sum::<usize>() + refused;
    most(
        "accept.offer_ids",
        accepted.offers.offer_ids.len(),
        OFFERS_MAX,
    )?;
    // Some may be empty.
    most("accept.operations", operations.len(), TASKS_MAX)?;
    most(
        "the tasks and operations of accept.operations",
        asked,
        TASKS_MAX,
    )
}

/// Splits a call about many tasks, operations or offers into parts.
pub(super) fn parts(call: SchedulerCall) -> Box<dyn Iterator<Item = SchedulerCall> + Send> {
    match call {
        SchedulerCall::Reconcile(ReconcileTasks {
            framework_id,
            tasks,
        }) if tasks.len() > ASKED_MAX => Box::new(chunks(tasks).map(move |tasks| {
            let framework_id = framework_id.clone();
            SchedulerCall::Reconcile(ReconcileTasks {
                framework_id,
                tasks,
            })
        })),
        SchedulerCall::ReconcileOperations(ReconcileOperations {
            framework_id,
            operations,
        }) if operations.len() > ASKED_MAX => Box::new(chunks(operations).map(move |operations| {
            let framework_id = framework_id.clone();
            SchedulerCall::ReconcileOperations(ReconcileOperations {
                framework_id,
                operations,
            })
        })),
        // Each offer is declined independently.
        SchedulerCall::Decline(DeclineOffers {
            framework_id,
            offer_ids,
            filters,
        }) if offer_ids.len() > ASKED_MAX => Box::new(chunks(offer_ids).map(move |offer_ids| {
            let framework_id = framework_id.clone();
            SchedulerCall::Decline(DeclineOffers {
                framework_id,
                offer_ids,
                filters,
            })
        })),
        SchedulerCall::AcceptInverse(AcceptInverseOffers {
            framework_id,
            inverse_offer_ids,
            filters,
        }) if inverse_offer_ids.len() > ASKED_MAX => {
            Box::new(chunks(inverse_offer_ids).map(move |inverse_offer_ids| {
                let framework_id = framework_id.clone();
                SchedulerCall::AcceptInverse(AcceptInverseOffers {
                    framework_id,
                    inverse_offer_ids,
                    filters,
                })
            }))
        }
        SchedulerCall::DeclineInverse(DeclineInverseOffers {
            framework_id,
            inverse_offer_ids,
            filters,
        }) if inverse_offer_ids.len() > ASKED_MAX => {
            Box::new(chunks(inverse_offer_ids).map(move |inverse_offer_ids| {
                let framework_id = framework_id.clone();
                SchedulerCall::DeclineInverse(DeclineInverseOffers {
                    framework_id,
                    inverse_offer_ids,
                    filters,
                })
            }))
        }
        call => Box::new(std::iter::once(call)),
    }
}

pub(super) fn chunks<T>(all: Vec<T>) -> impl Iterator<Item = Vec<T>> {
    let mut rest = all.into_iter();
    std::iter::from_fn(move || {
        let chunk: Vec<T> = rest.by_ref().take(ASKED_MAX).collect();
        (!chunk.is_empty()).then_some(chunk)
    })
}

/// Without a leader.
pub(super) fn no_leader() -> Refusal {
    Refusal::not_now(NO_LEADER)
}

/// The answers would exceed the stream's buffer.
pub(super) fn too_slow() -> Refusal {
    Refusal::not_now(
        "only part of the request is answered: the framework's stream has unread answers; read them and try again",
    )
}

/// Too many subscribers.
pub(super) fn too_many_subscribers() -> Refusal {
    Refusal::not_now(format!(
        "too many subscribed schedulers (maximum {SUBSCRIBERS_MAX}); try again"
    ))
}

/// The framework's description for a subscription, under the caller's proved principal and no
/// other.
pub(super) fn with_principal(
    mut framework: FrameworkInfo,
    subject: &Subject,
) -> Result<FrameworkInfo, Refusal> {
    has_name(subject)?;
    if let Some(proved) = &subject.principal {
        let claimed = framework.principal.get_or_insert_with(|| proved.clone());
        same_name(claimed, proved).map_err(|problem| {
            Refusal::bad(format!("Failed to validate scheduler::Call: {problem}"))
        })?;
    }
    Ok(framework)
}

/// An updated description keeps the principal of the subscription, unless it names another.
pub(super) fn same_principal(
    mut framework: FrameworkInfo,
    principal: Option<String>,
) -> FrameworkInfo {
    framework.principal = framework.principal.or(principal);
    framework
}

/// The framework of a call.
pub(super) fn framework_of(call: &Call) -> Result<FrameworkId, Refusal> {
    let id = call.framework_id.as_ref().map_or("", |id| &id.value);
    FrameworkId::new(id).map_err(Refusal::bad)
}

/// Whether the caller may send calls for this framework on this stream. The messages are those of
/// Mesos, which clients compare.
pub(super) fn may_call(
    id: &FrameworkId,
    stream: &FrameworkStream,
    subject: &Subject,
    stream_id: Option<&str>,
) -> Result<(), Refusal> {
    let principal = stream.principal.as_deref();
    check_principal(principal, subject)?;
    match stream_id {
        None => Err(Refusal::bad(
            "All non-subscribe calls should include the 'Mesos-Stream-Id' header",
        )),
        Some(given) if given == stream.stream_id => Ok(()),
        Some(given) => {
            let given = excerpt(given);
            Err(Refusal::bad(format!(
                "The stream ID '{given}' included in this request didn't match the stream ID currently associated with framework ID {id}"
            )))
        }
    }
}

/// Checks that a SUBSCRIBE names no stream: its answer will.
pub(super) fn no_stream_yet(stream_id: Option<&str>) -> Result<(), Refusal> {
    match stream_id {
        None => Ok(()),
        Some(_) => Err(Refusal::bad(
            "Subscribe calls should not include the 'Mesos-Stream-Id' header",
        )),
    }
}

fn check_principal(principal: Option<&str>, subject: &Subject) -> Result<(), Refusal> {
    has_name(subject)?;
    match &subject.principal {
        Some(proved) => same_name(principal.unwrap_or(""), proved).map_err(Refusal::bad),
        None => Ok(()),
    }
}

fn same_name(claimed: &str, proved: &str) -> Result<(), String> {
    match claimed == proved {
        true => Ok(()),
        false => Err(format!(
            "Authenticated principal '{}' does not match principal '{}' set in `FrameworkInfo`",
            excerpt(proved),
            excerpt(claimed)
        )),
    }
}

/// Checks that a caller with a token has a name in it.
pub(super) fn has_name(subject: &Subject) -> Result<(), Refusal> {
    match subject.principal.is_none() && !subject.claims.is_empty() {
        true => Err(Refusal::forbidden(
            "The request's authenticated principal contains claims, but no value string. The master currently requires that principals have a value",
        )),
        false => Ok(()),
    }
}

/// The refusal of calls other than SUBSCRIBE for a framework without a stream.
pub(super) fn no_stream(state: &MasterState, id: &FrameworkId) -> Refusal {
    match state.frameworks.get(id) {
        _ if !state.has_begun() => Refusal::not_now(RECOVERING),
        Some(known) if known.is_connected() => {
            Refusal::forbidden("Framework is not connected via HTTP")
        }
        Some(_) => Refusal::forbidden("Framework is not subscribed"),
        None => Refusal::bad(UNKNOWN_FRAMEWORK),
    }
}

/// The outcome of a subscription that the master refused.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum SubscribeRefused {
    /// An HTTP error.
    HttpError(Refusal),
    /// A stream with an ERROR event only.
    ErrorEvent(String),
}

/// Translates the master's refusal.
pub(super) fn refused_subscription(refused: SubscriptionRefused) -> SubscribeRefused {
    match refused {
        SubscriptionRefused::NotNow { reason } => {
            SubscribeRefused::HttpError(Refusal::not_now(reason))
        }
        SubscriptionRefused::Never { reason } => SubscribeRefused::ErrorEvent(reason),
    }
}

/// The refusal of a framework update.
pub(super) fn not_updated(refused: NotUpdated) -> Refusal {
    match refused {
        NotUpdated::Overtaken(_) => Refusal::conflict(refused),
        NotUpdated::Forbidden(_) => Refusal::forbidden(refused),
        NotUpdated::Never(_) => Refusal::bad(refused),
        NotUpdated::NotNow(_) => Refusal::not_now(refused),
    }
}

#[cfg(test)]
mod tests {
    use protocol::message::scheduler::AcceptOffers;
    use protocol::{Filters, OfferId};
    use testkit::assert_contains;
    use v1::convert::scheduler::{DecodedAccept, InvalidTask};

    use super::*;

    fn status(refused: Result<(), Refusal>) -> u16 {
        refused.map_or_else(|refusal| refusal.status.as_u16(), |()| 202)
    }

    /// SPEC 3.3, 3.7.
    // Covers 2.1 401, 403.
    #[test]
    fn framework_subscribes_only_under_its_callers_principal() {
        let framework = |principal: Option<&str>| FrameworkInfo {
            principal: principal.map(str::to_owned),
            ..FrameworkInfo::new("nobody", "web")
        };
        let taken = |claimed, proved: &Subject| {
            with_principal(framework(claimed), proved).map(|framework| framework.principal)
        };
        let (nobody, ops) = (Subject::default(), Subject::named("ops"));
        assert_eq!(taken(None, &nobody), Ok(None));
        assert_eq!(taken(Some("ops"), &nobody), Ok(Some("ops".to_owned())));
        assert_eq!(taken(Some("ops"), &ops), Ok(Some("ops".to_owned())));
        assert_eq!(taken(None, &ops), Ok(Some("ops".to_owned())));
        let other = taken(Some("dev"), &ops).unwrap_err();
        assert_eq!(other.status.as_u16(), 400);
        assert_eq!(
            other.problem,
            "Failed to validate scheduler::Call: Authenticated principal 'ops' does not match principal 'dev' set in `FrameworkInfo`"
        );
        let mut token = Subject::default();
        token.claims.insert("fid".to_owned(), "f".to_owned());
        let without_id = taken(None, &token).unwrap_err();
        assert_eq!(without_id.status.as_u16(), 403);
        assert_eq!(
            without_id.problem,
            "The request's authenticated principal contains claims, but no value string. The master currently requires that principals have a value"
        );
    }

    #[test]
    fn proved_principal_acts_only_for_its_frameworks() {
        let (nobody, ops) = (Subject::default(), Subject::named("ops"));
        assert_eq!(status(check_principal(Some("ops"), &ops)), 202);
        assert_eq!(status(check_principal(Some("ops"), &nobody)), 202);
        assert_eq!(status(check_principal(Some("dev"), &ops)), 400);
        assert_eq!(status(check_principal(None, &ops)), 400);
    }

    #[test]
    fn large_reconciliations_are_split() {
        let framework_id = FrameworkId::new("f").unwrap();
        let task = |number: usize| (format!("t{number}").parse().unwrap(), None);
        let all: Vec<_> = (0..2 * ASKED_MAX + 1).map(task).collect();
        for (many, expected) in [
            (0, vec![0]),
            (ASKED_MAX, vec![ASKED_MAX]),
            (2 * ASKED_MAX + 1, vec![ASKED_MAX, ASKED_MAX, 1]),
        ] {
            let call = SchedulerCall::Reconcile(ReconcileTasks {
                framework_id: framework_id.clone(),
                tasks: all[..many].to_vec(),
            });
            let mut asked = Vec::new();
            let lengths = parts(call).map(|part| match part {
                SchedulerCall::Reconcile(part) => {
                    asked.extend(part.tasks.clone());
                    part.tasks.len()
                }
                other => panic!("{other:?}"),
            });
            assert_eq!(lengths.collect::<Vec<_>>(), expected);
            assert_eq!(asked, all[..many]);
        }
        let operation = |number: usize| (format!("o{number}").parse().unwrap(), None);
        let call = SchedulerCall::ReconcileOperations(ReconcileOperations {
            framework_id,
            operations: (0..=ASKED_MAX).map(operation).collect(),
        });
        assert_eq!(parts(call).count(), 2);
    }

    #[test]
    fn large_declines_are_split_and_large_accepts_refused() {
        let framework_id = FrameworkId::new("f").unwrap();
        let filters = Filters::default();
        let ids = |many: usize| -> Vec<OfferId> {
            let id = |number: usize| OfferId::new(format!("o{number}")).unwrap();
            (0..many).map(id).collect()
        };
        let many = 2 * ASKED_MAX + 1;
        for call in [
            SchedulerCall::Decline(DeclineOffers {
                framework_id: framework_id.clone(),
                offer_ids: ids(many),
                filters,
            }),
            SchedulerCall::AcceptInverse(AcceptInverseOffers {
                framework_id: framework_id.clone(),
                inverse_offer_ids: ids(many),
                filters,
            }),
            SchedulerCall::DeclineInverse(DeclineInverseOffers {
                framework_id: framework_id.clone(),
                inverse_offer_ids: ids(many),
                filters,
            }),
        ] {
            let mut all = Vec::new();
            let mut lengths = Vec::new();
            for part in parts(call) {
                let part = match part {
                    SchedulerCall::Decline(part) => part.offer_ids,
                    SchedulerCall::AcceptInverse(part) => part.inverse_offer_ids,
                    SchedulerCall::DeclineInverse(part) => part.inverse_offer_ids,
                    other => panic!("{other:?}"),
                };
                lengths.push(part.len());
                all.extend(part);
            }
            assert_eq!(lengths, [ASKED_MAX, ASKED_MAX, 1]);
            assert_eq!(all, ids(many));
        }
        let destroy = Operation::Convert {
            id: None,
            conversion: resources::Conversion::Destroy {
                volumes: Default::default(),
            },
        };
        let accept = |offers: usize, operations: usize| {
            let call = SchedulerCall::Accept(DecodedAccept {
                offers: AcceptOffers {
                    framework_id: framework_id.clone(),
                    offer_ids: ids(offers),
                    operations: vec![destroy.clone(); operations],
                    filters,
                },
                tasks: vec![InvalidTask {
                    task_id: "t".parse().unwrap(),
                    name: "t".to_owned(),
                    agent_id: None,
                    reason: protocol::Reason::TaskInvalid,
                    message: "no name".to_owned(),
                }],
                operations: Vec::new(),
                without_id: None,
                invalid_offer: None,
            });
            bounded(&call, &RejectedEntries::default())
        };
        assert_eq!(accept(OFFERS_MAX, TASKS_MAX - 1), Ok(()));
        let refused = accept(OFFERS_MAX + 1, 0).unwrap_err();
        assert_eq!(refused.status.as_u16(), 400);
        assert_eq!(
            refused.problem,
            "accept.offer_ids is `a list of 10001`: expected at most 10000 in one call"
        );
        let refused = accept(1, TASKS_MAX).unwrap_err();
        assert_contains!(refused.problem, "expected at most 50000");
    }

    /// SPEC 2.1: temporary: 503; permanent: an ERROR event.
    // Covers 2.3 ERROR.
    #[test]
    fn temporary_refusal_is_503_and_permanent_an_error_event() {
        let reason = || "why".to_owned();
        let away = refused_subscription(SubscriptionRefused::NotNow { reason: reason() });
        assert_eq!(away, SubscribeRefused::HttpError(Refusal::not_now("why")));
        let down = refused_subscription(SubscriptionRefused::Never { reason: reason() });
        assert_eq!(down, SubscribeRefused::ErrorEvent(reason()));
    }

    /// SPEC 2.1, 2.2 UPDATE_FRAMEWORK.
    // Covers 2.2 UPDATE_FRAMEWORK.
    #[test]
    fn update_refusals_have_specific_status_codes() {
        for (refused, status) in [
            (NotUpdated::Forbidden("why".into()), 403),
            (NotUpdated::Overtaken("why".into()), 409),
            (NotUpdated::Never("why".into()), 400),
            (NotUpdated::NotNow("why".into()), 503),
        ] {
            assert_eq!(not_updated(refused).status.as_u16(), status);
        }
    }
}
