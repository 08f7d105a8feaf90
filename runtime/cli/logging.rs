//! Logging: `tracing` to standard error, filtered by `--log`, or for a while as an operator says; and a panic's one line.
//!
//! Control characters in messages and fields are escaped, so that an event is one line. Standard output belongs to what a verb was asked for. Nothing here is remembered.

use std::fmt;
use std::io::{IsTerminal, stderr};

use tracing::field::Field;
use tracing_subscriber::EnvFilter;
use tracing_subscriber::field::MakeExt;
use tracing_subscriber::fmt::format::{Writer, debug_fn};

use crate::failure::{Failure, Outcome};
use crate::print::escaped;

/// Sends logs of at least the level in `filter` to standard error.
pub fn start(filter: &str) -> Outcome {
    let parsed = EnvFilter::try_new(filter).map_err(|error| {
        Failure::usage(format!(
            "--log=`{filter}`: {error}; expected a level such as `info` or `warn,master=debug`"
        ))
    })?;
    let subscriber = tracing_subscriber::fmt()
        .with_env_filter(parsed)
        .fmt_fields(debug_fn(write_field).delimited(" "))
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

/// Writes a field, which may repeat a text that a stranger has chosen, in one line and without characters that control a terminal.
fn write_field(writer: &mut Writer<'_>, field: &Field, value: &dyn fmt::Debug) -> fmt::Result {
    let value = format!("{value:?}");
    match field.name() {
        "message" => write!(writer, "{}", escaped(&value)),
        name => write!(
            writer,
            "{}={}",
            name.trim_start_matches("r#"),
            escaped(&value)
        ),
    }
}

/// What a panic says, where it says anything.
fn words(payload: &(dyn std::any::Any + Send)) -> &str {
    let text = payload.downcast_ref::<String>().map(String::as_str);
    text.or_else(|| payload.downcast_ref::<&str>().copied())
        .unwrap_or("no words")
}

#[cfg(test)]
mod tests {
    use std::io::{self, Write};
    use std::sync::{Arc, Mutex};

    use super::*;

    #[derive(Clone, Default)]
    struct Written(Arc<Mutex<Vec<u8>>>);

    impl Write for Written {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().unwrap().write(bytes)
        }
        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn an_event_with_a_strangers_name_is_one_line() {
        let written = Written::default();
        let sink = written.clone();
        let subscriber = tracing_subscriber::fmt()
            .fmt_fields(debug_fn(write_field).delimited(" "))
            .with_ansi(false)
            .without_time()
            .with_writer(move || sink.clone())
            .finish();
        tracing::subscriber::with_default(subscriber, || {
            let name = "a\n\x1b[31mb\u{202e}";
            let span = tracing::info_span!("call", framework = %name);
            span.in_scope(|| tracing::info!(%name, role = name, "framework {name} came"));
        });
        let text = String::from_utf8(written.0.lock().unwrap().clone()).unwrap();
        assert_eq!(text.lines().count(), 1, "{text}");
        assert!(
            !text
                .trim_end()
                .contains(|c: char| c.is_control() || c == '\u{202e}'),
            "{text}"
        );
        let shown = r"a\n\u{1b}[31mb\u{202e}";
        assert!(
            text.contains(&format!("framework {shown} came name={shown}")),
            "{text}"
        );
    }
}
