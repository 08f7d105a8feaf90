//! Maintenance over HTTP: `/maintenance/schedule`, `/maintenance/status`, `/machine/down` and
//! `/machine/up`, and the same for `/api/v1`.
//!
//! Parses the body, asks the local master, and translates its answer: 200 done, 400 invalid, 403
//! not authorized, 503 not now. A caller that may not see the plans gets empty ones, as in Mesos,
//! and no answers of frameworks that it may not see.

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

use crate::api::RECOVERING;
use crate::api::pages::changes::{BODY_MAX, WholeBody, change, forbidden, not_now};
use crate::api::pages::source::{late, snapshot};
use crate::leadership::LocalLeader;
use crate::permission::Caller;
use crate::state::MasterState;

/// An example of a valid schedule.
const SCHEDULE: &str = r#"{"windows":[{"machine_ids":[{"hostname":"host-1"}],"unavailability":{"start":{"nanoseconds":1735689600000000000},"duration":{"nanoseconds":3600000000000}}}]}"#;
/// An example of valid machines.
const MACHINES: &str = r#"[{"hostname":"host-1"},{"hostname":"host-2","ip":"10.0.0.2"}]"#;

/// The routes. They need the [`LocalLeader`] of a local master and the caller in each request.
pub(in crate::api) fn routes<S: Clone + Send + Sync + 'static>() -> Router<S> {
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
    Extension(local): Extension<LocalLeader>,
    Extension(caller): Extension<Caller>,
) -> Response {
    page(view_schedule(&local, &caller).await)
}

async fn show_status(
    Extension(local): Extension<LocalLeader>,
    Extension(caller): Extension<Caller>,
) -> Response {
    page(view_status(&local, &caller).await)
}

fn page<M: Message>(visible: Result<M, Response>) -> Response {
    match visible {
        Ok(visible) => {
            let json = [(CONTENT_TYPE, "application/json")];
            (json, v1::json::write(&visible)).into_response()
        }
        Err(response) => response,
    }
}

async fn post_schedule(
    Extension(local): Extension<LocalLeader>,
    Extension(caller): Extension<Caller>,
    body: WholeBody,
) -> Response {
    match body.read(parse_schedule).await {
        Ok((update, _permit)) => self::update(&local, &caller, update).await,
        Err(response) => response,
    }
}

async fn post_down(
    Extension(local): Extension<LocalLeader>,
    Extension(caller): Extension<Caller>,
    body: WholeBody,
) -> Response {
    match body.read(parse_machines).await {
        Ok((machines, _permit)) => start(&local, &caller, StartMaintenance { machines }).await,
        Err(response) => response,
    }
}

async fn post_up(
    Extension(local): Extension<LocalLeader>,
    Extension(caller): Extension<Caller>,
    body: WholeBody,
) -> Response {
    match body.read(parse_machines).await {
        Ok((machines, _permit)) => stop(&local, &caller, StopMaintenance { machines }).await,
        Err(response) => response,
    }
}

/// Parses a schedule.
fn parse_schedule(body: &[u8]) -> Result<UpdateMaintenanceSchedule, String> {
    let parsed = v1::json::read::<Schedule>(body, Limits::default());
    let windows = parsed.and_then(|parsed| windows(&parsed));
    windows
        .map(|windows| UpdateMaintenanceSchedule { windows })
        .map_err(|problem| format!("{problem}\nvalid example: {SCHEDULE}"))
}

/// Parses a list of machines.
fn parse_machines(body: &[u8]) -> Result<Vec<MachineId>, String> {
    let parsed = v1::json::read_list("machines", body, Limits::default());
    let machines = parsed.and_then(|parsed| machines(&parsed));
    machines.map_err(|problem| format!("{problem}\nvalid example: {MACHINES}"))
}

/// Sets the maintenance schedule.
pub(in crate::api) async fn update(
    local: &LocalLeader,
    caller: &Caller,
    update: UpdateMaintenanceSchedule,
) -> Response {
    match caller.authorize(Action::UpdateMaintenanceSchedules, None) {
        Ok(()) => change(local, update).await,
        Err(problem) => forbidden(problem),
    }
}

/// Takes machines down.
pub(in crate::api) async fn start(
    local: &LocalLeader,
    caller: &Caller,
    start: StartMaintenance,
) -> Response {
    match caller.authorize(Action::StartMaintenances, None) {
        Ok(()) => change(local, start).await,
        Err(problem) => forbidden(problem),
    }
}

/// Brings machines up again.
pub(in crate::api) async fn stop(
    local: &LocalLeader,
    caller: &Caller,
    stop: StopMaintenance,
) -> Response {
    match caller.authorize(Action::StopMaintenances, None) {
        Ok(()) => change(local, stop).await,
        Err(problem) => forbidden(problem),
    }
}

async fn view_schedule(local: &LocalLeader, caller: &Caller) -> Result<Schedule, Response> {
    if caller
        .authorize(Action::GetMaintenanceSchedules, None)
        .is_err()
    {
        return Ok(Schedule::default());
    }
    let state = recovered_state(local).await?;
    Ok(schedule(&state.machines.windows()))
}

async fn view_status(local: &LocalLeader, caller: &Caller) -> Result<ClusterStatus, Response> {
    if caller
        .authorize(Action::GetMaintenanceStatuses, None)
        .is_err()
    {
        return Ok(ClusterStatus::default());
    }
    let state = recovered_state(local).await?;
    Ok((&state.visible_maintenance(&caller.visibility())).into())
}

/// The local master's state, if it has read the registry.
async fn recovered_state(local: &LocalLeader) -> Result<Arc<MasterState>, Response> {
    let master = local.master().ok_or_else(late)?;
    let state = snapshot(&master).await.ok_or_else(late)?;
    match state.has_begun() {
        true => Ok(state),
        false => Err(not_now(RECOVERING)),
    }
}

/// The answer to a call of `/api/v1`: the status, or else the schedule.
pub(in crate::api) async fn answer(
    local: &LocalLeader,
    caller: &Caller,
    kind: CallType,
    form: Form,
) -> Response {
    let mut answer = Answer::default();
    let visible = match kind {
        CallType::GetMaintenanceStatus => {
            answer.r#type = Some(ResponseType::GetMaintenanceStatus);
            let status = view_status(local, caller).await;
            status.map(|status| {
                answer.get_maintenance_status = Some(ResponseGetMaintenanceStatus { status });
            })
        }
        _ => {
            answer.r#type = Some(ResponseType::GetMaintenanceSchedule);
            let schedule = view_schedule(local, caller).await;
            schedule.map(|schedule| {
                answer.get_maintenance_schedule = Some(ResponseGetMaintenanceSchedule { schedule });
            })
        }
    };
    match visible {
        Ok(()) => api::answer(form, &answer),
        Err(response) => response,
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use testkit::assert_contains;

    use authority::{Acls, Subject};
    use module_api::allocator::{InverseGrant, InverseGranted};
    use protocol::FrameworkInfo;
    use protocol::message::scheduler::{AcceptInverseOffers, InverseOffersMade, Subscribe};
    use runtime::prelude::*;
    use runtime::testing::simulate;

    use super::*;
    use crate::api::PATIENCE;
    use crate::api::tests::master;
    use crate::master::TakeSnapshot;

    /// A scheduler that gets an inverse offer.
    struct Leaving;

    impl Actor for Leaving {
        type Context = Context<Self>;
    }

    impl Process for Leaving {
        fn accepts(handlers: &mut RemoteHandlers<Self>) {
            handlers.accept_local::<InverseOffersMade>();
        }
    }

    impl Handler<InverseOffersMade> for Leaving {
        type Result = ();

        fn handle(&mut self, _: InverseOffersMade, _: &mut Context<Self>) {}
    }

    /// SPEC 3.6, 3.7.
    #[test]
    fn invisible_frameworks_maintenance_answers_are_hidden() {
        simulate(|node| async move {
            let master = master(&node).await;
            let parsed: Schedule = v1::json::read(SCHEDULE.as_bytes(), Limits::default()).unwrap();
            let windows = windows(&parsed).unwrap();
            let update = UpdateMaintenanceSchedule { windows };
            master.ask(update, PATIENCE).await.unwrap().unwrap();
            let state = master.ask(TakeSnapshot, PATIENCE).await.unwrap();
            let agent = state.agents.iter().next().unwrap();
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
            let state = master.ask(TakeSnapshot, PATIENCE).await.unwrap();
            let offers = state.inverse_offers.iter();
            let accept = AcceptInverseOffers {
                framework_id,
                inverse_offer_ids: offers.map(|offer| offer.id.clone()).collect(),
                filters: Default::default(),
            };
            master.ask(accept, PATIENCE).await.unwrap();

            let local = LocalLeader::of(&master);
            let told = async |acls: &str| {
                let acls = Arc::new(Acls::parse(acls).unwrap());
                let caller = Caller::new(&acls, Subject::default());
                let status = view_status(&local, &caller).await.unwrap();
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
    fn example_bodies_are_valid() {
        assert_eq!(parse_machines(MACHINES.as_bytes()).unwrap().len(), 2);
        let parsed: Schedule = v1::json::read(SCHEDULE.as_bytes(), Limits::default()).unwrap();
        assert_eq!(windows(&parsed).unwrap().len(), 1);
        for (body, words) in [
            ("", "Failed to parse body into JSON: "),
            ("[{}]", "machine_id"),
            (r#"[{"ip":"here"}]"#, "machines[0].ip is `here`"),
            (r#"["host-1"]"#, "expected"),
        ] {
            let problem = parse_machines(body.as_bytes()).unwrap_err();
            assert_contains!(problem, words, "valid example");
        }
    }
}
