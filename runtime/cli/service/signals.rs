//! Signals: SIGINT, SIGTERM and SIGUSR1 as a future, and SIGHUP with a meaning that depends on the
//! verb.
//!
//! They are blocked in all threads and received by one that waits only for them, so no signal
//! handler runs. The agent resets the mask of its children. Must be set up before any other thread
//! starts.

use futures_util::future::Either;
use nix::sys::signal::{SigSet, Signal};
use tokio::sync::watch;

use crate::output::error::{CliError, Outcome};

/// The signals received so far.
#[derive(Clone, Debug)]
pub struct Signals {
    stop: watch::Receiver<Option<Signal>>,
    hangups: watch::Receiver<u64>,
}

/// The meaning of SIGHUP.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Hangup {
    /// Reread files.
    Rereads,
    /// Stop gracefully, as SIGTERM does.
    Stops,
    /// End at once, the default action.
    EndsProcess,
}

/// The file in which Linux lists the signals that this process ignores.
const STATUS: &str = "/proc/self/status";

/// Whether this process inherited the signal as ignored.
fn is_ignored(signal: Signal) -> bool {
    let status = std::fs::read_to_string(STATUS).unwrap_or_default();
    ignored_in(&status, signal)
}

fn ignored_in(status: &str, signal: Signal) -> bool {
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let mask = mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
    mask.is_some_and(|mask| mask & (1 << (signal as u32 - 1)) != 0)
}

/// Unprocessed SIGHUPs; several at once count as one.
#[derive(Debug)]
pub struct Hangups(watch::Receiver<u64>);

impl Hangups {
    /// Waits for the next one. False if none can follow.
    pub async fn next(&mut self) -> bool {
        self.0.changed().await.is_ok()
    }
}

impl Signals {
    /// Receives SIGINT and SIGTERM from now on; a second one ends the process at once. SIGHUP is
    /// handled by `hangup`. If it rereads files, SIGUSR1 is received too: it stops the process like
    /// SIGTERM, but an agent unregisters.
    pub fn take(hangup: Hangup) -> Outcome<Self> {
        let mut set = SigSet::empty();
        set.add(Signal::SIGINT);
        set.add(Signal::SIGTERM);
        match hangup {
            Hangup::Rereads => {
                set.add(Signal::SIGHUP);
                set.add(Signal::SIGUSR1);
            }
            // A blocked signal would be received although `nohup` ignores it.
            Hangup::Stops if !is_ignored(Signal::SIGHUP) => set.add(Signal::SIGHUP),
            Hangup::Stops | Hangup::EndsProcess => {}
        }
        let rereads = hangup == Hangup::Rereads;
        set.thread_block()
            .map_err(|error| CliError::because("cannot take signals", &error))?;
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
        thread.map_err(|error| CliError::because("cannot start a thread", &error))?;
        Ok(Self { stop, hangups })
    }

    /// The SIGHUPs from now on.
    pub fn hangups(&self) -> Hangups {
        Hangups(self.hangups.clone())
    }

    /// Completes at the first signal, with the exit code that a shell would report for it.
    pub async fn stop(&self) -> u8 {
        let mut stop = self.stop.clone();
        let signal = stop
            .wait_for(Option::is_some)
            .await
            .ok()
            .and_then(|signal| *signal);
        match signal {
            Some(signal) => {
                u8::try_from(128 + signal as i32).unwrap_or(crate::output::error::FAILED)
            }
            None => std::future::pending().await,
        }
    }

    /// Whether the signal was SIGUSR1, which means to stop and unregister.
    pub fn should_unregister(&self) -> bool {
        *self.stop.borrow() == Some(Signal::SIGUSR1)
    }

    /// The output of `work`, or the signal's code if a signal comes first; the work is then
    /// dropped.
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
