//! The progress of `meros run` on standard error: a bar on a terminal, a few lines otherwise.
//!
//! Prints nothing for a single successful task without a terminal.

use std::io::{IsTerminal, stderr};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use crate::output::print;

/// The counts, and the bar.
pub struct Progress {
    bar: Option<ProgressBar>,
    total: u32,
    running: u32,
    finished: u32,
    failed: u32,
}

impl Progress {
    /// Progress of `total` instances.
    pub fn new(total: u32) -> Self {
        let bar = stderr().is_terminal().then(|| {
            let bar =
                ProgressBar::with_draw_target(Some(u64::from(total)), ProgressDrawTarget::stderr());
            let style = ProgressStyle::with_template("{spinner} [{bar:30}] {pos}/{len} {msg}");
            bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
            bar
        });
        Self {
            bar,
            total,
            running: 0,
            finished: 0,
            failed: 0,
        }
    }

    /// The number of instances.
    pub fn total(&self) -> u32 {
        self.total
    }

    /// Prints output of a task or a message without disturbing the bar.
    pub fn print(&self, print: impl FnOnce()) {
        match &self.bar {
            Some(bar) => bar.suspend(print),
            None => print(),
        }
    }

    /// Prints a message.
    pub fn message(&self, text: &str) {
        self.print(|| print::error_line(format_args!("meros: {text}")));
    }

    /// The present stage before anything runs; only on a terminal.
    pub fn stage(&self, text: &str) {
        if let Some(bar) = &self.bar {
            bar.set_message(print::escaped(text).into_owned());
            bar.tick();
        }
    }

    /// Counts a running instance.
    pub fn running(&mut self) {
        self.running += 1;
        self.show();
    }

    /// Counts an ended instance.
    pub fn ended(&mut self, had_run: bool, well: bool) {
        self.running = self.running.saturating_sub(u32::from(had_run));
        *(if well {
            &mut self.finished
        } else {
            &mut self.failed
        }) += 1;
        self.show();
    }

    fn show(&self) {
        if let Some(bar) = &self.bar {
            bar.set_position(u64::from(self.finished + self.failed));
            bar.set_message(format!("{} running, {} failed", self.running, self.failed));
        }
    }

    /// Prints the totals if there were several tasks or a failure.
    pub fn close(self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
        if self.total > 1 || self.finished < self.total {
            let rest = self.total - (self.finished + self.failed).min(self.total);
            let rest = if rest > 0 {
                format!(", {rest} not ended")
            } else {
                String::new()
            };
            print::error_line(format_args!(
                "meros: {} finished, {} failed{rest}",
                self.finished, self.failed
            ));
        }
    }
}
