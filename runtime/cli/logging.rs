//! Logging: `tracing` to standard error, filtered by `--log`, or for a while as an operator says; and a panic's one line.
//!
//! Standard output belongs to what a verb was asked for. Nothing here is remembered.

use std::io::{IsTerminal, stderr};

use tracing_subscriber::EnvFilter;

use crate::failure::{Failure, Outcome};

/// Sends logs of at least the level in `filter` to standard error.
pub fn start(filter: &str) -> Outcome {
    let parsed = EnvFilter::try_new(filter).map_err(|error| {
        Failure::usage(format!(
            "--log=`{filter}`: {error}; expected a level such as `info` or `warn,master=debug`"
        ))
    })?;
    let subscriber = tracing_subscriber::fmt()
        .with_env_filter(parsed)
        .with_ansi(stderr().is_terminal())
        .with_writer(stderr)
        .with_filter_reloading();
    let filters = subscriber.reload_handle();
    // A second start (in tests) keeps the first one's filter.
    if subscriber.try_init().is_ok() {
        let begun = filter.to_owned();
        ::http::logging::install(Box::new(move |level| {
            let filter = level.map_or_else(|| begun.clone(), |level| level.to_string());
            let filter = EnvFilter::try_new(filter).map_err(|error| error.to_string())?;
            filters.reload(filter).map_err(|error| error.to_string())
        }));
    }
    // A panic is contained by the runtime and told as `Exited`; people need its place, not its backtrace.
    std::panic::set_hook(Box::new(|panic| {
        let words = words(panic.payload());
        let place = panic
            .location()
            .map(ToString::to_string)
            .unwrap_or_default();
        tracing::error!(%place, "a part of this process failed, which is a defect worth reporting: {words}");
    }));
    Ok(())
}

/// What a panic says, where it says anything.
fn words(payload: &(dyn std::any::Any + Send)) -> &str {
    let text = payload.downcast_ref::<String>().map(String::as_str);
    text.or_else(|| payload.downcast_ref::<&str>().copied())
        .unwrap_or("no words")
}
