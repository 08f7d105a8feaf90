//! Which call is taken from whom, and what else it is told (SPEC 2.1).
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
use v1::convert::scheduler::{Rejected, Said, UNKNOWN_FRAMEWORK};
use v1::schema::scheduler::Call;

use super::desk::{Line, SUBSCRIBERS_MAX};
use crate::books::Books;
use crate::master::NotUpdated;

/// So many tasks or operations are asked about at once, and so many offers declined: a master that looks for a million of them, and makes as many answers, hears nobody for
/// seconds. Metrics count each part as a call.
pub(super) const ASKED_MAX: usize = 10_000;
/// The most offers that one ACCEPT may name: they are of one agent, or it is void, so it cannot be parted.
const OFFERS_MAX: usize = 10_000;
/// The most tasks, and operations that have a name, in one ACCEPT: where it is void each is answered, and all answers of one turn must find room with their subscriber, which has
/// some for 65,536.
const TASKS_MAX: usize = 50_000;

/// Refuses what the master would be too long about, and nothing can be parted of.
pub(super) fn bounded(said: &Said, rejected: &Rejected) -> Result<(), Refusal> {
    let Said::Accept(accepted) = said else {
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

/// What is said, in parts where it asks about many, or declines many.
pub(super) fn parts(said: Said) -> Box<dyn Iterator<Item = Said> + Send> {
    match said {
        Said::Reconcile(ReconcileTasks {
            framework_id,
            tasks,
        }) if tasks.len() > ASKED_MAX => Box::new(chunks(tasks).map(move |tasks| {
            let framework_id = framework_id.clone();
            Said::Reconcile(ReconcileTasks {
                framework_id,
                tasks,
            })
        })),
        Said::ReconcileOperations(ReconcileOperations {
            framework_id,
            operations,
        }) if operations.len() > ASKED_MAX => Box::new(chunks(operations).map(move |operations| {
            let framework_id = framework_id.clone();
            Said::ReconcileOperations(ReconcileOperations {
                framework_id,
                operations,
            })
        })),
        // Each of them stands for itself.
        Said::Decline(DeclineOffers {
            framework_id,
            offer_ids,
            filters,
        }) if offer_ids.len() > ASKED_MAX => Box::new(chunks(offer_ids).map(move |offer_ids| {
            let framework_id = framework_id.clone();
            Said::Decline(DeclineOffers {
                framework_id,
                offer_ids,
                filters,
            })
        })),
        Said::AcceptInverse(AcceptInverseOffers {
            framework_id,
            inverse_offer_ids,
            filters,
        }) if inverse_offer_ids.len() > ASKED_MAX => {
            Box::new(chunks(inverse_offer_ids).map(move |inverse_offer_ids| {
                let framework_id = framework_id.clone();
                Said::AcceptInverse(AcceptInverseOffers {
                    framework_id,
                    inverse_offer_ids,
                    filters,
                })
            }))
        }
        Said::DeclineInverse(DeclineInverseOffers {
            framework_id,
            inverse_offer_ids,
            filters,
        }) if inverse_offer_ids.len() > ASKED_MAX => {
            Box::new(chunks(inverse_offer_ids).map(move |inverse_offer_ids| {
                let framework_id = framework_id.clone();
                Said::DeclineInverse(DeclineInverseOffers {
                    framework_id,
                    inverse_offer_ids,
                    filters,
                })
            }))
        }
        said => Box::new(std::iter::once(said)),
    }
}

pub(super) fn chunks<T>(all: Vec<T>) -> impl Iterator<Item = Vec<T>> {
    let mut rest = all.into_iter();
    std::iter::from_fn(move || {
        let chunk: Vec<T> = rest.by_ref().take(ASKED_MAX).collect();
        (!chunk.is_empty()).then_some(chunk)
    })
}

/// Nobody acts here any more.
pub(super) fn nobody_leads() -> Refusal {
    Refusal::not_now("no master leads just now; try again")
}

/// What it asked about would be too much to hold back.
pub(super) fn too_slow() -> Refusal {
    Refusal::not_now(
        "only some of what was asked about is answered, and the answers wait to be read in the framework's stream: read them, and try again",
    )
}

/// There are too many.
pub(super) fn crowded() -> Refusal {
    Refusal::not_now(format!(
        "{SUBSCRIBERS_MAX} schedulers are subscribed, which is all that are served; try again"
    ))
}

/// The framework as it may subscribe: under the principal that its asker has proved, and no other.
pub(super) fn framed(
    mut framework: FrameworkInfo,
    subject: &Subject,
) -> Result<FrameworkInfo, Refusal> {
    has_name(subject)?;
    if let Some(proved) = &subject.principal {
        let said = framework.principal.get_or_insert_with(|| proved.clone());
        same_name(said, proved).map_err(|problem| {
            Refusal::bad(format!("Failed to validate scheduler::Call: {problem}"))
        })?;
    }
    Ok(framework)
}

/// What a framework becomes keeps the principal that it subscribed with, unless it says another.
pub(super) fn same_principal(
    mut framework: FrameworkInfo,
    principal: Option<String>,
) -> FrameworkInfo {
    framework.principal = framework.principal.or(principal);
    framework
}

/// Whose call this is.
pub(super) fn framework_of(call: &Call) -> Result<FrameworkId, Refusal> {
    let id = call.framework_id.as_ref().map_or("", |id| &id.value);
    FrameworkId::new(id).map_err(Refusal::bad)
}

/// Whether the caller may speak for this framework on this stream. The problems are in the words of Mesos, which clients compare.
pub(super) fn may_call(
    id: &FrameworkId,
    line: &Line,
    subject: &Subject,
    stream_id: Option<&str>,
) -> Result<(), Refusal> {
    let principal = line.principal.as_deref();
    speaks(principal, subject)?;
    match stream_id {
        None => Err(Refusal::bad(
            "All non-subscribe calls should include the 'Mesos-Stream-Id' header",
        )),
        Some(given) if given == line.stream_id => Ok(()),
        Some(given) => {
            let given = excerpt(given);
            Err(Refusal::bad(format!(
                "The stream ID '{given}' included in this request didn't match the stream ID currently associated with framework ID {id}"
            )))
        }
    }
}

/// Whether a SUBSCRIBE names no stream: its answer will.
pub(super) fn no_stream_yet(stream_id: Option<&str>) -> Result<(), Refusal> {
    match stream_id {
        None => Ok(()),
        Some(_) => Err(Refusal::bad(
            "Subscribe calls should not include the 'Mesos-Stream-Id' header",
        )),
    }
}

fn speaks(principal: Option<&str>, subject: &Subject) -> Result<(), Refusal> {
    has_name(subject)?;
    match &subject.principal {
        Some(proved) => same_name(principal.unwrap_or(""), proved).map_err(Refusal::bad),
        None => Ok(()),
    }
}

fn same_name(said: &str, proved: &str) -> Result<(), String> {
    match said == proved {
        true => Ok(()),
        false => Err(format!(
            "Authenticated principal '{}' does not match principal '{}' set in `FrameworkInfo`",
            excerpt(proved),
            excerpt(said)
        )),
    }
}

/// Whether a caller that is proved by a token has a name in it.
pub(super) fn has_name(subject: &Subject) -> Result<(), Refusal> {
    match subject.principal.is_none() && !subject.claims.is_empty() {
        true => Err(Refusal::forbidden(
            "The request's authenticated principal contains claims, but no value string. The master currently requires that principals have a value",
        )),
        false => Ok(()),
    }
}

/// Why a framework that has no stream may make no call but SUBSCRIBE.
pub(super) fn stranger(books: &Books, id: &FrameworkId) -> Refusal {
    match books.frameworks.get(id) {
        _ if !books.has_begun() => Refusal::not_now("Master has not finished recovery"),
        Some(known) if known.is_connected() => {
            Refusal::forbidden("Framework is not connected via HTTP")
        }
        Some(_) => Refusal::forbidden("Framework is not subscribed"),
        None => Refusal::bad(UNKNOWN_FRAMEWORK),
    }
}

/// What a subscription that the master did not take comes to.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Turned {
    /// The answer is no stream.
    Away(Refusal),
    /// The stream says why, as its only event.
    Down(String),
}

/// What the master's refusal comes to.
pub(super) fn turned(refused: SubscriptionRefused) -> Turned {
    match refused {
        SubscriptionRefused::NotNow { reason } => Turned::Away(Refusal::not_now(reason)),
        SubscriptionRefused::Never { reason } => Turned::Down(reason),
    }
}

/// Why a framework stays what it was.
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
    use v1::convert::scheduler::{Accepted, Meaningless};

    use super::*;

    fn status(refused: Result<(), Refusal>) -> u16 {
        refused.map_or_else(|refusal| refusal.status.as_u16(), |()| 202)
    }

    /// SPEC 3.3, 3.7.
    #[test]
    fn a_framework_subscribes_under_the_principal_of_its_asker_and_no_other() {
        let framework = |principal: Option<&str>| FrameworkInfo {
            principal: principal.map(str::to_owned),
            ..FrameworkInfo::new("nobody", "web")
        };
        let taken = |said, proved: &Subject| {
            framed(framework(said), proved).map(|framework| framework.principal)
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
        let nameless = taken(None, &token).unwrap_err();
        assert_eq!(nameless.status.as_u16(), 403);
        assert_eq!(
            nameless.problem,
            "The request's authenticated principal contains claims, but no value string. The master currently requires that principals have a value"
        );
    }

    #[test]
    fn who_has_proved_a_principal_speaks_for_its_frameworks_only() {
        let (nobody, ops) = (Subject::default(), Subject::named("ops"));
        assert_eq!(status(speaks(Some("ops"), &ops)), 202);
        assert_eq!(status(speaks(Some("ops"), &nobody)), 202);
        assert_eq!(status(speaks(Some("dev"), &ops)), 400);
        assert_eq!(status(speaks(None, &ops)), 400);
    }

    #[test]
    fn who_asks_about_many_asks_in_parts_and_who_asks_about_all_asks_once() {
        let framework_id = FrameworkId::new("f").unwrap();
        let task = |number: usize| (format!("t{number}").parse().unwrap(), None);
        let all: Vec<_> = (0..2 * ASKED_MAX + 1).map(task).collect();
        for (many, expected) in [
            (0, vec![0]),
            (ASKED_MAX, vec![ASKED_MAX]),
            (2 * ASKED_MAX + 1, vec![ASKED_MAX, ASKED_MAX, 1]),
        ] {
            let said = Said::Reconcile(ReconcileTasks {
                framework_id: framework_id.clone(),
                tasks: all[..many].to_vec(),
            });
            let mut asked = Vec::new();
            let lengths = parts(said).map(|part| match part {
                Said::Reconcile(part) => {
                    asked.extend(part.tasks.clone());
                    part.tasks.len()
                }
                other => panic!("{other:?}"),
            });
            assert_eq!(lengths.collect::<Vec<_>>(), expected);
            assert_eq!(asked, all[..many]);
        }
        let operation = |number: usize| (format!("o{number}").parse().unwrap(), None);
        let said = Said::ReconcileOperations(ReconcileOperations {
            framework_id,
            operations: (0..=ASKED_MAX).map(operation).collect(),
        });
        assert_eq!(parts(said).count(), 2);
    }

    #[test]
    fn who_declines_many_declines_in_parts_and_who_takes_too_much_at_once_is_refused() {
        let framework_id = FrameworkId::new("f").unwrap();
        let filters = Filters::default();
        let ids = |many: usize| -> Vec<OfferId> {
            let id = |number: usize| OfferId::new(format!("o{number}")).unwrap();
            (0..many).map(id).collect()
        };
        let many = 2 * ASKED_MAX + 1;
        for said in [
            Said::Decline(DeclineOffers {
                framework_id: framework_id.clone(),
                offer_ids: ids(many),
                filters,
            }),
            Said::AcceptInverse(AcceptInverseOffers {
                framework_id: framework_id.clone(),
                inverse_offer_ids: ids(many),
                filters,
            }),
            Said::DeclineInverse(DeclineInverseOffers {
                framework_id: framework_id.clone(),
                inverse_offer_ids: ids(many),
                filters,
            }),
        ] {
            let mut all = Vec::new();
            let mut lengths = Vec::new();
            for part in parts(said) {
                let part = match part {
                    Said::Decline(part) => part.offer_ids,
                    Said::AcceptInverse(part) => part.inverse_offer_ids,
                    Said::DeclineInverse(part) => part.inverse_offer_ids,
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
            let said = Said::Accept(Accepted {
                offers: AcceptOffers {
                    framework_id: framework_id.clone(),
                    offer_ids: ids(offers),
                    operations: vec![destroy.clone(); operations],
                    filters,
                },
                tasks: vec![Meaningless {
                    task_id: "t".parse().unwrap(),
                    name: "t".to_owned(),
                    agent_id: None,
                    reason: protocol::Reason::TaskInvalid,
                    message: "no name".to_owned(),
                }],
                operations: Vec::new(),
                nameless: None,
                invalid_offer: None,
            });
            bounded(&said, &Rejected::default())
        };
        assert_eq!(accept(OFFERS_MAX, TASKS_MAX - 1), Ok(()));
        let refused = accept(OFFERS_MAX + 1, 0).unwrap_err();
        assert_eq!(refused.status.as_u16(), 400);
        assert_eq!(
            refused.problem,
            "accept.offer_ids is `a list of 10001`: expected at most 10000 in one call"
        );
        let refused = accept(1, TASKS_MAX).unwrap_err();
        assert!(
            refused.problem.contains("expected at most 50000"),
            "{refused}"
        );
    }

    /// SPEC 2.1: 503 for a while, an ERROR for ever.
    #[test]
    fn a_refusal_for_now_is_no_stream_and_one_for_ever_is_an_event() {
        let reason = || "why".to_owned();
        let away = turned(SubscriptionRefused::NotNow { reason: reason() });
        assert_eq!(away, Turned::Away(Refusal::not_now("why")));
        let down = turned(SubscriptionRefused::Never { reason: reason() });
        assert_eq!(down, Turned::Down(reason()));
    }

    /// SPEC 2.1, 2.2 UPDATE_FRAMEWORK.
    #[test]
    fn each_reason_not_to_change_a_framework_has_its_status() {
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
