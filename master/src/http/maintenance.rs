//! Maintenance over HTTP: `/maintenance/schedule`, `/maintenance/status`, `/machine/down` and `/machine/up` (SPEC 3.6, 3.9), and the same
//! for `/api/v1`.
//!
//! Reads the body, asks the master that acts here, and says in HTTP what it answered: 200 done, 400 wrong in itself, 403 who asks may not,
//! 503 not just now. Who may not see the plans is shown empty ones, as in Mesos, and who does not see a framework
//! nothing of what it said. Decides nothing else.

use std::sync::Arc;

use ::http::api;
use authority::Action;
use axum::extract::DefaultBodyLimit;
use axum::http::header::CONTENT_TYPE;
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Extension, Router};
use protocol::MachineId;
use protocol::message::operator::{StartMaintenance, StopMaintenance, UpdateMaintenanceSchedule};
use v1::convert::maintenance::{machines, schedule, windows};
use v1::message::Message;
use v1::schema::maintenance::{ClusterStatus, Schedule};
use v1::schema::master::{
    CallType, Response as Answer, ResponseGetMaintenanceSchedule, ResponseGetMaintenanceStatus,
    ResponseType,
};
use v1::{Form, Limits};

use super::changes::{BODY_MAX, WholeBody, change, forbidden, not_now};
use super::source::{glance, late};
use crate::books::Books;
use crate::office::Front;
use crate::permission::Asker;

/// A schedule as a right body has it.
const SCHEDULE: &str = r#"{"windows":[{"machine_ids":[{"hostname":"host-1"}],"unavailability":{"start":{"nanoseconds":1735689600000000000},"duration":{"nanoseconds":3600000000000}}}]}"#;
/// Machines as a right body has them.
const MACHINES: &str = r#"[{"hostname":"host-1"},{"hostname":"host-2","ip":"10.0.0.2"}]"#;

/// The routes. Whoever adds them gives each request the [`Front`] of a master that acts here, and who asks.
pub(super) fn routes<S: Clone + Send + Sync + 'static>() -> Router<S> {
    Router::new()
        .route(
            "/maintenance/schedule",
            get(show_schedule).post(post_schedule),
        )
        .route("/maintenance/status", get(show_status))
        .route("/machine/down", post(post_down))
        .route("/machine/up", post(post_up))
        .layer(DefaultBodyLimit::max(BODY_MAX))
}

async fn show_schedule(
    Extension(front): Extension<Front>,
    Extension(asker): Extension<Asker>,
) -> Response {
    page(view_schedule(&front, &asker).await)
}

async fn show_status(
    Extension(front): Extension<Front>,
    Extension(asker): Extension<Asker>,
) -> Response {
    page(view_status(&front, &asker).await)
}

fn page<M: Message>(shown: Result<M, Response>) -> Response {
    match shown {
        Ok(shown) => {
            let json = [(CONTENT_TYPE, "application/json")];
            (json, v1::json::write(&shown)).into_response()
        }
        Err(response) => response,
    }
}

async fn post_schedule(
    Extension(front): Extension<Front>,
    Extension(asker): Extension<Asker>,
    body: WholeBody,
) -> Response {
    match body.read(planned).await {
        Ok((update, _heard)) => self::update(&front, &asker, update).await,
        Err(response) => response,
    }
}

async fn post_down(
    Extension(front): Extension<Front>,
    Extension(asker): Extension<Asker>,
    body: WholeBody,
) -> Response {
    match body.read(named).await {
        Ok((machines, _heard)) => start(&front, &asker, StartMaintenance { machines }).await,
        Err(response) => response,
    }
}

async fn post_up(
    Extension(front): Extension<Front>,
    Extension(asker): Extension<Asker>,
    body: WholeBody,
) -> Response {
    match body.read(named).await {
        Ok((machines, _heard)) => stop(&front, &asker, StopMaintenance { machines }).await,
        Err(response) => response,
    }
}

/// What a body plans.
fn planned(body: &[u8]) -> Result<UpdateMaintenanceSchedule, String> {
    let said = v1::json::read::<Schedule>(body, Limits::default());
    let windows = said.and_then(|said| windows(&said));
    windows
        .map(|windows| UpdateMaintenanceSchedule { windows })
        .map_err(|problem| format!("{problem}\nA right one: {SCHEDULE}"))
}

/// The machines that a body lists.
fn named(body: &[u8]) -> Result<Vec<MachineId>, String> {
    let said = v1::json::read_list("machines", body, Limits::default());
    let named = said.and_then(|said| machines(&said));
    named.map_err(|problem| format!("{problem}\nA right one: {MACHINES}"))
}

/// Plans maintenance.
pub(super) async fn update(
    front: &Front,
    asker: &Asker,
    update: UpdateMaintenanceSchedule,
) -> Response {
    match asker.may(Action::UpdateMaintenanceSchedules, None) {
        Ok(()) => change(front, update).await,
        Err(problem) => forbidden(problem),
    }
}

/// Takes machines down.
pub(super) async fn start(front: &Front, asker: &Asker, start: StartMaintenance) -> Response {
    match asker.may(Action::StartMaintenances, None) {
        Ok(()) => change(front, start).await,
        Err(problem) => forbidden(problem),
    }
}

/// Brings machines up again.
pub(super) async fn stop(front: &Front, asker: &Asker, stop: StopMaintenance) -> Response {
    match asker.may(Action::StopMaintenances, None) {
        Ok(()) => change(front, stop).await,
        Err(problem) => forbidden(problem),
    }
}

async fn view_schedule(front: &Front, asker: &Asker) -> Result<Schedule, Response> {
    if asker.may(Action::GetMaintenanceSchedules, None).is_err() {
        return Ok(Schedule::default());
    }
    let books = looked_at(front).await?;
    Ok(schedule(&books.machines.windows()))
}

async fn view_status(front: &Front, asker: &Asker) -> Result<ClusterStatus, Response> {
    if asker.may(Action::GetMaintenanceStatuses, None).is_err() {
        return Ok(ClusterStatus::default());
    }
    let books = looked_at(front).await?;
    Ok((&books.maintenance_seen(&asker.sight())).into())
}

/// The books of the master that acts here, if it has read what is planned.
async fn looked_at(front: &Front) -> Result<Arc<Books>, Response> {
    let master = front.master().ok_or_else(late)?;
    let books = glance(&master).await.ok_or_else(late)?;
    match books.has_begun() {
        true => Ok(books),
        false => Err(not_now("the master is reading its registry")),
    }
}

/// The answer to the question of `/api/v1` that this is: for the status, or else for the schedule.
pub(super) async fn answer(front: &Front, asker: &Asker, kind: CallType, form: Form) -> Response {
    let mut answer = Answer::default();
    let shown = match kind {
        CallType::GetMaintenanceStatus => {
            answer.r#type = Some(ResponseType::GetMaintenanceStatus);
            let status = view_status(front, asker).await;
            status.map(|status| {
                answer.get_maintenance_status = Some(ResponseGetMaintenanceStatus { status });
            })
        }
        _ => {
            answer.r#type = Some(ResponseType::GetMaintenanceSchedule);
            let schedule = view_schedule(front, asker).await;
            schedule.map(|schedule| {
                answer.get_maintenance_schedule = Some(ResponseGetMaintenanceSchedule { schedule });
            })
        }
    };
    match shown {
        Ok(()) => api::answer(form, &answer),
        Err(response) => response,
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use authority::{Acls, Subject};
    use module_api::allocator::{InverseGrant, InverseGranted};
    use protocol::FrameworkInfo;
    use protocol::message::scheduler::{AcceptInverseOffers, InverseOffersMade, Subscribe};
    use runtime::prelude::*;
    use runtime::rehearsal::rehearse;

    use super::super::PATIENCE;
    use super::super::tests::master;
    use super::*;
    use crate::master::TakeSnapshot;

    /// A scheduler that is asked to leave.
    struct Leaving;

    impl Actor for Leaving {
        type Context = Context<Self>;
    }

    impl Process for Leaving {
        fn hears(ears: &mut Ears<Self>) {
            ears.hear_local::<InverseOffersMade>();
        }
    }

    impl Handler<InverseOffersMade> for Leaving {
        type Result = ();

        fn handle(&mut self, _: InverseOffersMade, _: &mut Context<Self>) {}
    }

    /// SPEC 3.6, 3.7.
    #[test]
    fn who_does_not_see_a_framework_is_not_told_what_it_said() {
        rehearse(|node| async move {
            let master = master(&node).await;
            let said: Schedule = v1::json::read(SCHEDULE.as_bytes(), Limits::default()).unwrap();
            let windows = windows(&said).unwrap();
            let update = UpdateMaintenanceSchedule { windows };
            master.ask(update, PATIENCE).await.unwrap().unwrap();
            let books = master.ask(TakeSnapshot, PATIENCE).await.unwrap();
            let agent = books.agents.iter().next().unwrap();
            let scheduler = node.spawn("leaving", Leaving).unwrap();
            let subscribe = Subscribe {
                framework: FrameworkInfo::new("nobody", "leaving"),
                scheduler: scheduler.pid(),
                wants: Default::default(),
            };
            let subscribed = master.ask(subscribe, PATIENCE).await.unwrap().unwrap();
            let framework_id = subscribed.framework_id;
            let grant = InverseGrant {
                framework_id: framework_id.clone(),
                agent_id: agent.id.clone(),
                unavailability: agent.unavailability.unwrap(),
            };
            let granted = InverseGranted {
                grants: vec![grant],
            };
            master.ask(granted, PATIENCE).await.unwrap();
            let books = master.ask(TakeSnapshot, PATIENCE).await.unwrap();
            let offers = books.inverse_offers.iter();
            let accept = AcceptInverseOffers {
                framework_id,
                inverse_offer_ids: offers.map(|offer| offer.id.clone()).collect(),
                filters: Default::default(),
            };
            master.ask(accept, PATIENCE).await.unwrap();

            let front = Front::of(&master);
            let told = async |acls: &str| {
                let acls = Arc::new(Acls::parse(acls).unwrap());
                let asker = Asker::new(&acls, Subject::default());
                let status = view_status(&front, &asker).await.unwrap();
                status.draining_machines[0].statuses.len()
            };
            assert_eq!(told("{}").await, 1);
            for (user, count) in [("nobody", 1), ("bob", 0)] {
                let sees = r#"{"principals":{"type":"ANY"},"users":{"values":["USER"]}}"#;
                let others = r#"{"principals":{"type":"ANY"},"users":{"type":"NONE"}}"#;
                let acls = format!(r#"{{"view_frameworks":[{sees},{others}]}}"#);
                assert_eq!(told(&acls.replace("USER", user)).await, count, "{user}");
            }
        });
    }

    #[test]
    fn the_right_bodies_that_are_shown_are_right_and_others_are_told_so() {
        assert_eq!(named(MACHINES.as_bytes()).unwrap().len(), 2);
        let said: Schedule = v1::json::read(SCHEDULE.as_bytes(), Limits::default()).unwrap();
        assert_eq!(windows(&said).unwrap().len(), 1);
        for (body, words) in [
            ("", "expected"),
            ("[{}]", "machine_id"),
            (r#"[{"ip":"here"}]"#, "machines[0].ip is `here`"),
            (r#"["host-1"]"#, "expected"),
        ] {
            let problem = named(body.as_bytes()).unwrap_err();
            assert!(
                problem.contains(words) && problem.contains("A right one"),
                "{problem}"
            );
        }
    }
}
