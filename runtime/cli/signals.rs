//! Signals: SIGINT, SIGTERM and SIGUSR1 turned into a future, and SIGHUP for those who have something to read again.
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
    /// Takes SIGINT and SIGTERM from now on. A second one ends the process at once. SIGHUP is taken too where `hangups` says so, and SIGUSR1,
    /// which stops the process as SIGTERM does but lets it leave for good; elsewhere the two go on to end the process.
    pub fn take(hangups: bool) -> Outcome<Self> {
        let mut set = SigSet::empty();
        set.add(Signal::SIGINT);
        set.add(Signal::SIGTERM);
        if hangups {
            set.add(Signal::SIGHUP);
            set.add(Signal::SIGUSR1);
        }
        set.thread_block()
            .map_err(|error| Failure::because("cannot take signals", &error))?;
        let (sender, stop) = watch::channel(None);
        let (hangup, hangups) = watch::channel(0);
        let wait = move || {
            while let Ok(signal) = set.wait() {
                if signal == Signal::SIGHUP {
                    hangup.send_modify(|count| *count += 1);
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
