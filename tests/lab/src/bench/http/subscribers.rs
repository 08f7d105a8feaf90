//! The memory of a subscriber: that of a master in a process of its own, before and after many have
//! subscribed.
//!
//! First frameworks that read their events, then operators that read nothing while tasks come and
//! go.

use std::time::Duration;

use protocol::FrameworkInfo;
use runtime::Clock;
use serde_json::json;
use v1::Form;
use v1::schema::master::{Call, CallType};

use super::super::Figure;
use super::HttpArgs;
use super::client::Connection;
use super::master_process::MasterProcess;
use super::scheduler::HttpScheduler;
use meros::output::error::Outcome;
use meros::service::raise_open_files;

/// Time for memory to settle.
const SETTLING: Duration = Duration::from_secs(2);
/// Limit for one subscriber, in KiB.
const WANTED: f64 = 64.0;

/// Both figures.
pub async fn measure(args: &HttpArgs) -> Outcome<Vec<Figure>> {
    raise_open_files()?;
    let count = args.subscribers;
    args.say(&format!(
        "{count} frameworks and {count} operators subscribe"
    ));
    let master = MasterProcess::start(&[]).await?;
    let clock = Clock::real();

    clock.sleep(SETTLING).await;
    let before = master.resident()?;
    let mut frameworks = Vec::new();
    for number in 0..count {
        let info = FrameworkInfo::new("nobody", format!("framework-{number}"));
        frameworks.push(HttpScheduler::subscribe(&master.address, Form::Json, &info).await?);
    }
    clock.sleep(SETTLING).await;
    let with_frameworks = master.resident()?;

    let ask = Call {
        r#type: Some(CallType::Subscribe),
        ..Call::default()
    };
    let mut operators = Vec::new();
    for _ in 0..count {
        let connection = Connection::open(&master.address).await?;
        operators.push(connection.subscribe("/api/v1", Form::Json, &ask).await?);
    }
    // All of them leave: the operators do not read these events.
    drop(frameworks);
    clock.sleep(2 * SETTLING).await;
    let with_operators = master.resident()?;
    drop(operators);
    let figure = |bench, more: f64, reads| Figure {
        bench,
        figure: more * 1024.0 / f64::from(count),
        unit: "KiB",
        limit: WANTED,
        limit_is: "the most it may be: a goal, nothing that was measured",
        parameters: json!({ "subscribers": count, "form": "json", "reads": reads }),
    };
    Ok(vec![
        figure("http_framework", with_frameworks - before, true),
        figure("http_operator", with_operators - with_frameworks, false),
    ])
}
