//! What a subscriber costs: the memory of a master in a process of its own, before and after so many have come.
//!
//! First frameworks that read what they hear, then operators that read nothing while tasks come and go.

use std::time::Duration;

use protocol::FrameworkInfo;
use runtime::Clock;
use serde_json::json;
use transport::Authority;
use v1::Form;
use v1::schema::master::{Call, CallType};

use super::super::Figure;
use super::super::process::Process;
use super::HttpArgs;
use super::client::Connection;
use super::scheduler::HttpScheduler;
use crate::agent::own_program;
use crate::failure::{Failure, Outcome};
use crate::member::free_port;
use crate::member::raise_open_files;

/// How long a master may take to answer.
const STARTING: Duration = Duration::from_secs(30);
/// How long memory may settle.
const SETTLING: Duration = Duration::from_secs(2);
/// What one of them may cost, in KiB.
const WANTED: f64 = 64.0;

/// Both figures.
pub async fn measure(args: &HttpArgs) -> Outcome<Vec<Figure>> {
    raise_open_files()?;
    let count = args.subscribers;
    args.say(&format!(
        "{count} frameworks and {count} operators subscribe"
    ));
    let directory = tempfile::Builder::new().prefix("meros-bench-").tempdir();
    let directory =
        directory.map_err(|error| Failure::because("cannot make a temporary directory", &error))?;
    let certs = directory.path().join("certs");
    Authority::load_or_create(&certs)
        .map_err(|error| Failure::because("cannot make certificates", &error))?;
    let (port, program) = (free_port()?.to_string(), own_program()?);
    let work_dir = directory.path().join("master").display().to_string();
    let master = [
        "master",
        "--ip",
        "127.0.0.1",
        "--port",
        &port,
        "--work_dir",
        &work_dir,
    ];
    let master = Process::start(&program, &master, directory.path())?;
    let address = format!("127.0.0.1:{port}");
    wait_for(&address).await?;
    let clock = Clock::real();

    clock.sleep(SETTLING).await;
    let before = master.usage()?.resident;
    let mut frameworks = Vec::new();
    for number in 0..count {
        let info = FrameworkInfo::new("nobody", format!("framework-{number}"));
        frameworks.push(HttpScheduler::subscribe(&address, Form::Json, &info).await?);
    }
    clock.sleep(SETTLING).await;
    let with_frameworks = master.usage()?.resident;

    let ask = Call {
        r#type: Some(CallType::Subscribe),
        ..Call::default()
    };
    let mut operators = Vec::new();
    for _ in 0..count {
        let connection = Connection::open(&address).await?;
        operators.push(connection.subscribe("/api/v1", Form::Json, &ask).await?);
    }
    // All of them leave: that is what those operators do not read.
    drop(frameworks);
    clock.sleep(2 * SETTLING).await;
    let with_operators = master.usage()?.resident;
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

async fn wait_for(address: &str) -> Outcome {
    let clock = Clock::real();
    let begun = clock.now();
    loop {
        if let Ok(mut connection) = Connection::open(address).await
            && connection.get("/state").await.is_ok()
        {
            return Ok(());
        }
        if clock.now() - begun > STARTING {
            return Err(Failure::new(format!("no master answers at {address}")));
        }
        clock.sleep(Duration::from_millis(50)).await;
    }
}
