//! Logging: `tracing` to standard error, filtered by `--log` or temporarily by an operator; panics
//! as one line.
//!
//! Control characters in messages and fields are escaped, so an event is one line. Lines from one
//! place in the source are one kind. Lines at `info` and above are rate limited by kind, so that a
//! repeated failure neither fills the disk nor hides other lines; the next line of the kind is
//! preceded by the number of omitted ones. Standard output is for a verb's results.

use std::collections::BTreeMap;
use std::fmt;
use std::io::{IsTerminal, stderr};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use runtime::{Clock, Instant};
use tracing::field::Field;
use tracing::{Event, Level, Metadata, Subscriber};
use tracing_subscriber::EnvFilter;
use tracing_subscriber::field::MakeExt;
use tracing_subscriber::fmt::format::{Format, Writer, debug_fn};
use tracing_subscriber::fmt::time::{FormatTime, SystemTime};
use tracing_subscriber::fmt::{FmtContext, FormatEvent, FormatFields};
use tracing_subscriber::registry::LookupSpan;

use crate::output::error::{CliError, Outcome};
use crate::output::print::escaped;

/// Sends log lines that pass `filter` to standard error.
pub fn start(filter: &str) -> Outcome {
    let parsed = EnvFilter::try_new(filter).map_err(|error| {
        CliError::usage(format!(
            "--log=`{filter}`: {error}; expected a level such as `info` or `warn,master=debug`"
        ))
    })?;
    let subscriber = tracing_subscriber::fmt()
        .with_env_filter(parsed)
        .fmt_fields(debug_fn(write_field).delimited(" "))
        .with_ansi(stderr().is_terminal())
        .with_writer(stderr)
        .event_format(RateLimited::new(Clock::real()))
        .with_filter_reloading();
    let filters = subscriber.reload_handle();
    // A second start (in tests) keeps the first filter.
    if subscriber.try_init().is_ok() {
        let begun = filter.to_owned();
        ::http::system::logging::install(Box::new(move |level| {
            let filter = level.map_or_else(|| begun.clone(), |level| level.to_string());
            let filter = EnvFilter::try_new(filter).map_err(|error| error.to_string())?;
            filters.reload(filter).map_err(|error| error.to_string())
        }));
    }
    // The runtime contains a panic and reports it as `Exited`; the log needs its place, not its
    // backtrace.
    std::panic::set_hook(Box::new(|panic| {
        let words = panic_text(panic.payload());
        let place = panic
            .location()
            .map(ToString::to_string)
            .unwrap_or_default();
        tracing::error!(%place, "a thread panicked, please report this bug: {words}");
    }));
    Ok(())
}

/// Writes a field, which may contain text of a client, in one line and without terminal control
/// characters.
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

/// The burst of lines of one kind.
const BURST: u32 = 100;
/// The interval after which one more line is allowed.
const REFILL: Duration = Duration::from_millis(500);

/// The place in the source that logs the line.
type LineKind = (&'static str, u32);

/// The budget of one kind.
#[derive(Clone, Copy, Debug)]
struct LineBudget {
    left: u32,
    refilled: Instant,
    left_out: u64,
}

/// Limits the rate of log lines by kind. Bounded by the number of log statements in the source.
#[derive(Debug, Default)]
struct LogLimiter {
    budgets: BTreeMap<LineKind, LineBudget>,
}

impl LogLimiter {
    /// Admits or omits a line. Returns the number of lines omitted before an admitted one.
    fn admit(&mut self, kind: LineKind, now: Instant) -> Option<u64> {
        let budget = self.budgets.entry(kind).or_insert(LineBudget {
            left: BURST,
            refilled: now,
            left_out: 0,
        });
        let due = (now - budget.refilled).as_millis() / REFILL.as_millis();
        let due = u32::try_from(due).unwrap_or(BURST).min(BURST);
        if due > 0 {
            budget.left = budget.left.saturating_add(due).min(BURST);
            budget.refilled = now;
        }
        match budget.left.checked_sub(1) {
            Some(left) => {
                budget.left = left;
                Some(std::mem::take(&mut budget.left_out))
            }
            None => {
                budget.left_out += 1;
                None
            }
        }
    }
}

/// Writes events in `tracing`'s format, within the budget of their kind.
struct RateLimited {
    format: Format,
    limiter: Mutex<LogLimiter>,
    clock: Clock,
}

impl RateLimited {
    fn new(clock: Clock) -> Self {
        Self {
            format: Format::default(),
            limiter: Mutex::default(),
            clock,
        }
    }

    /// The number of lines omitted before this one; `None` if it is omitted too.
    fn admit(&self, metadata: &Metadata<'static>) -> Option<u64> {
        if *metadata.level() > Level::INFO {
            return Some(0); // requested temporarily by an operator
        }
        let kind = (
            metadata.file().unwrap_or_else(|| metadata.target()),
            metadata.line().unwrap_or_default(),
        );
        let mut limiter = self.limiter.lock().unwrap_or_else(PoisonError::into_inner);
        limiter.admit(kind, self.clock.now())
    }
}

impl<S, N> FormatEvent<S, N> for RateLimited
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    N: for<'a> FormatFields<'a> + 'static,
{
    fn format_event(
        &self,
        ctx: &FmtContext<'_, S, N>,
        mut writer: Writer<'_>,
        event: &Event<'_>,
    ) -> fmt::Result {
        let Some(left_out) = self.admit(event.metadata()) else {
            return Ok(());
        };
        if left_out > 0 {
            SystemTime.format_time(&mut writer)?;
            writeln!(writer, "  WARN similar log lines left out count={left_out}")?;
        }
        self.format.format_event(ctx, writer, event)
    }
}

/// The text of a panic, if any.
fn panic_text(payload: &(dyn std::any::Any + Send)) -> &str {
    let text = payload.downcast_ref::<String>().map(String::as_str);
    text.or_else(|| payload.downcast_ref::<&str>().copied())
        .unwrap_or("no words")
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::sync::Arc;
    use testkit::assert_contains;

    use super::*;

    fn at(millis: u64) -> Instant {
        Instant::default() + Duration::from_millis(millis)
    }

    #[test]
    fn lines_of_one_kind_are_limited_and_counted() {
        let mut limiter = LogLimiter::default();
        let (flood, other) = (("a.rs", 1), ("a.rs", 2));
        let admitted = (0..1000).filter_map(|_| limiter.admit(flood, at(0)));
        assert_eq!(admitted.count(), 100);
        assert_eq!(
            limiter.admit(other, at(0)),
            Some(0),
            "each kind has its own"
        );
        assert_eq!(limiter.admit(flood, at(499)), None);
        assert_eq!(limiter.admit(flood, at(500)), Some(901));
        assert_eq!(limiter.admit(flood, at(501)), None);
        // A quiet period restores the full budget.
        let admitted = (0..1000).filter_map(|_| limiter.admit(flood, at(3_600_000)));
        assert_eq!(admitted.count(), 100);
    }

    #[derive(Clone, Default)]
    struct Lines(Arc<Mutex<Vec<u8>>>);

    impl Write for Lines {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            self.0.lock().unwrap().write(bytes)
        }

        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn event_with_control_characters_is_one_line() {
        let written = Lines::default();
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
        assert_contains!(text, format!("framework {shown} came name={shown}"));
    }

    #[test]
    fn a_flood_does_not_hide_other_lines() {
        let lines = Lines::default();
        runtime::testing::simulate(|node| async move { flood(&lines, node.clock().clone()) });
    }

    fn flood(lines: &Lines, clock: Clock) {
        let into = lines.clone();
        let subscriber = tracing_subscriber::fmt()
            .with_env_filter(EnvFilter::new("debug"))
            .with_ansi(false)
            .with_writer(move || into.clone())
            .event_format(RateLimited::new(clock));
        tracing::subscriber::with_default(subscriber.finish(), || {
            for number in 0..5_000 {
                tracing::warn!(number, "no sandbox");
                tracing::debug!("asked for");
            }
            tracing::info!(agent = 7, "registered");
        });
        let text = String::from_utf8(lines.0.lock().unwrap().clone()).unwrap();
        let count = |words: &str| text.lines().filter(|line| line.contains(words)).count();
        assert_eq!((count("no sandbox"), count("asked for")), (100, 5_000));
        assert_eq!(count("registered agent=7"), 1, "{text}");
    }
}
