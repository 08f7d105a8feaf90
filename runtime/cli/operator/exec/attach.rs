//! The verb `meros attach TASK`: the terminal of a running task.

use bytes::Bytes;
use clap::Args;
use futures_util::future::{Either, select};
use protocol::{FrameworkId, TaskId};
use tokio::sync::mpsc;

use super::screen::{self, RawMode};
use super::session::Session;
use super::{locate, read_stdin};
use crate::operator::{ClusterFlags, Operator};
use crate::output::error::{CliError, Outcome};
use crate::output::print;
use crate::service::signals::Signals;

/// Attach to the terminal of a running task
#[derive(Args, Debug)]
#[command(rename_all = "snake_case")]
pub struct AttachArgs {
    /// The task's id, as `meros tasks` shows it
    task: TaskId,
    /// Pass standard input to the task; on a terminal, ^P and ^Q detach
    #[arg(long, short)]
    interactive: bool,
    /// Its framework's id, if several frameworks have a task with this id
    #[arg(long, value_name = "ID")]
    framework: Option<FrameworkId>,
    #[command(flatten)]
    cluster: ClusterFlags,
}

/// Prints the output of the terminal until the task ends, or the user detaches.
pub async fn run(args: AttachArgs, signals: Signals) -> Outcome {
    let operator = Operator::connect(&args.cluster).await?;
    let located = locate(&operator, &args.task, args.framework.as_ref()).await;
    operator.close().await;
    let (agent, id) = located?;
    let session = Session {
        agent,
        id,
        command: None,
        has_terminal: args.interactive,
        window: screen::size,
    };
    // Until the end: it restores the terminal.
    let raw = match args.interactive {
        true => RawMode::enter()?,
        false => None,
    };
    let (sender, input) = mpsc::channel(1);
    let typing = async {
        if args.interactive {
            let (mut typed, mut keys) = (read_stdin()?, DetachKeys::default());
            while let Some(chunk) = typed.recv().await {
                let (chunk, is_detached) = match raw.is_some() {
                    true => keys.pass(&chunk),
                    false => (chunk, false),
                };
                if !chunk.is_empty() {
                    let _ = sender.send(chunk).await;
                }
                if is_detached {
                    return Ok(());
                }
            }
        }
        // Without input the output goes on.
        std::future::pending::<Outcome>().await
    };
    let running = session.run(
        args.interactive.then_some(input),
        print::bytes,
        print::bytes,
    );
    let attached = async {
        match select(Box::pin(running), Box::pin(typing)).await {
            Either::Left((ended, _)) => ended.map(drop),
            Either::Right((detached, _)) => detached,
        }
    };
    match signals.unless_stopped(attached).await {
        Ok(ended) => ended,
        Err(code) => Err(CliError::code(code)),
    }
}

/// Finds the keys that detach, ^P and then ^Q, in the input.
#[derive(Debug, Default)]
struct DetachKeys {
    /// Whether the last key was ^P, which is held back until the next.
    holds_first: bool,
}

impl DetachKeys {
    const FIRST: u8 = 0x10;
    const SECOND: u8 = 0x11;

    /// The input before these keys, and whether they came.
    fn pass(&mut self, chunk: &[u8]) -> (Bytes, bool) {
        let mut passed = Vec::with_capacity(chunk.len() + 1);
        for &key in chunk {
            if std::mem::take(&mut self.holds_first) {
                if key == Self::SECOND {
                    return (passed.into(), true);
                }
                passed.push(Self::FIRST);
            }
            match key {
                Self::FIRST => self.holds_first = true,
                _ => passed.push(key),
            }
        }
        (passed.into(), false)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn detach_keys_are_found_across_chunks() {
        for (chunks, passed, is_detached) in [
            (&["a\x10", "\x11b"][..], "a", true),
            (&["a\x10", "b\x11"], "a\x10b\x11", false),
            (&["\x10\x10", "\x11"], "\x10", true),
            (&["\x11\x10b"], "\x11\x10b", false),
        ] {
            let mut keys = DetachKeys::default();
            let (mut all, mut found) = (Vec::new(), false);
            for chunk in chunks {
                let (chunk, is_last) = keys.pass(chunk.as_bytes());
                all.extend_from_slice(&chunk);
                found |= is_last;
            }
            assert_eq!((all.as_slice(), found), (passed.as_bytes(), is_detached));
        }
    }
}
