//! Signals: SIGINT, SIGTERM and SIGUSR1 turned into a future, and SIGHUP as the verb wants it.
//!
//! They are blocked in every thread and taken by one that waits for nothing else, so that no handler ever runs. Children get a clean
//! mask from the agent. Must begin before any other thread.

use futures_util::future::Either;
use nix::sys::signal::{SigSet, Signal};
use tokio::sync::watch;

use crate::failure::{Failure, Outcome};

/// The process's wish to stop, as signals have told it.
#[derive(Clone, Debug)]
pub struct Signals {
    stop: watch::Receiver<Option<Signal>>,
    hangups: watch::Receiver<u64>,
}

/// The meaning of SIGHUP.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Hangup {
    /// Files are read again.
    Rereads,
    /// It stops the process in good order, as SIGTERM does.
    Stops,
    /// It ends the process at once, by its default action.
    EndsProcess,
}

/// Where Linux lists the signals that this process ignores.
const STATUS: &str = "/proc/self/status";

/// Whether whoever started this process has it ignore a signal.
fn is_ignored(signal: Signal) -> bool {
    let status = std::fs::read_to_string(STATUS).unwrap_or_default();
    ignored_in(&status, signal)
}

fn ignored_in(status: &str, signal: Signal) -> bool {
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let mask = mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
    mask.is_some_and(|mask| mask & (1 << (signal as u32 - 1)) != 0)
}

/// SIGHUPs that have not been heard yet; several at once count as one.
#[derive(Debug)]
pub struct Hangups(watch::Receiver<u64>);

impl Hangups {
    /// Waits for the next one; false if none can come any more.
    pub async fn next(&mut self) -> bool {
        self.0.changed().await.is_ok()
    }
}

impl Signals {
    /// Takes SIGINT and SIGTERM from now on. A second one ends the process at once. SIGHUP is taken as `hangup` says. Where it makes the
    /// process reread files SIGUSR1 is taken too, which stops the process as SIGTERM does but lets it leave for good.
    pub fn take(hangup: Hangup) -> Outcome<Self> {
        let mut set = SigSet::empty();
        set.add(Signal::SIGINT);
        set.add(Signal::SIGTERM);
        match hangup {
            Hangup::Rereads => {
                set.add(Signal::SIGHUP);
                set.add(Signal::SIGUSR1);
            }
            // A blocked signal would arrive although `nohup` has it ignored.
            Hangup::Stops if !is_ignored(Signal::SIGHUP) => set.add(Signal::SIGHUP),
            Hangup::Stops | Hangup::EndsProcess => {}
        }
        let rereads = hangup == Hangup::Rereads;
        set.thread_block()
            .map_err(|error| Failure::because("cannot take signals", &error))?;
        let (sender, stop) = watch::channel(None);
        let (reread, hangups) = watch::channel(0);
        let wait = move || {
            while let Ok(signal) = set.wait() {
                if rereads && signal == Signal::SIGHUP {
                    reread.send_modify(|count| *count += 1);
                    continue;
                }
                if sender.borrow().is_some() {
                    std::process::exit(128 + signal as i32);
                }
                sender.send_replace(Some(signal));
            }
        };
        let thread = std::thread::Builder::new()
            .name("signals".to_owned())
            .spawn(wait);
        thread.map_err(|error| Failure::because("cannot start a thread", &error))?;
        Ok(Self { stop, hangups })
    }

    /// The SIGHUPs that come from now on.
    pub fn hangups(&self) -> Hangups {
        Hangups(self.hangups.clone())
    }

    /// Completes at the first signal, with the code that a shell would report for it.
    pub async fn stop(&self) -> u8 {
        let mut told = self.stop.clone();
        let signal = told
            .wait_for(Option::is_some)
            .await
            .ok()
            .and_then(|signal| *signal);
        match signal {
            Some(signal) => u8::try_from(128 + signal as i32).unwrap_or(crate::failure::FAILED),
            None => std::future::pending().await,
        }
    }

    /// Whether the signal was the one that means: stop, and do not come back.
    pub fn is_told_to_leave(&self) -> bool {
        *self.stop.borrow() == Some(Signal::SIGUSR1)
    }

    /// What `work` gives, or the signal's code if a signal comes first; then the work is dropped.
    pub async fn unless_stopped<F: Future>(&self, work: F) -> Result<F::Output, u8> {
        let (work, stop) = (std::pin::pin!(work), std::pin::pin!(self.stop()));
        match futures_util::future::select(work, stop).await {
            Either::Left((output, _)) => Ok(output),
            Either::Right((code, _)) => Err(code),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ignored_signals_are_read_from_the_mask() {
        let status = "Name:\tmeros\nSigBlk:\tffffffffffffffff\nSigIgn:\t0000000000001001\n";
        let ignored = |signal| ignored_in(status, signal);
        assert!(ignored(Signal::SIGHUP) && ignored(Signal::SIGPIPE));
        assert!(!ignored(Signal::SIGTERM) && !ignored_in("", Signal::SIGHUP));
    }
}
