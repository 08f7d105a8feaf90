//! Judges the results of health checks as Mesos does. Pure.

use std::time::Duration;

use protocol::HealthCheck;
use protocol::task::check::CheckKind;

use crate::container::machine::command::HealthChange;

/// Whether a result is that of a healthy task: exit code 0, a status from 200 to 399, or a
/// connection (1).
pub fn is_healthy(kind: &CheckKind, result: i32) -> bool {
    match kind {
        CheckKind::Command(_) => result == 0,
        CheckKind::Http(_) => (200..400).contains(&result),
        CheckKind::Tcp(_) => result == 1,
    }
}

/// The health of a task.
#[derive(Clone, Debug)]
pub struct Health {
    grace_period: Duration,
    failures_max: u32,
    has_succeeded: bool,
    failures: u32,
}

impl Health {
    /// Not checked yet.
    pub fn of(check: &HealthCheck) -> Self {
        Self {
            grace_period: check.grace_period,
            failures_max: check.consecutive_failures,
            has_succeeded: false,
            failures: 0,
        }
    }

    /// Judges one result of a task of this age. As in Mesos, each failure that counts is reported,
    /// and only the first success after the start or after failures.
    pub fn judge(&mut self, is_healthy: bool, age: Duration) -> Option<HealthChange> {
        if is_healthy {
            let is_news = !self.has_succeeded || self.failures > 0;
            (self.has_succeeded, self.failures) = (true, 0);
            return is_news.then_some(HealthChange {
                healthy: true,
                kill: false,
            });
        }
        let has_grace = !self.has_succeeded && !self.grace_period.is_zero();
        if has_grace && age <= self.grace_period {
            return None;
        }
        self.failures = self.failures.saturating_add(1);
        Some(HealthChange {
            healthy: false,
            kill: self.failures >= self.failures_max,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use protocol::CommandInfo;
    use protocol::task::check::{CheckTiming, HttpCheck, TcpCheck};

    /// The reports of these results, one each second: `+` a success, `-` a failure. A report is `h`
    /// healthy, `u` unhealthy, `k` to be killed, `.` none.
    fn reports(results: &str, grace_period: u64, consecutive_failures: u32) -> String {
        let mut health = Health::of(&HealthCheck {
            kind: CheckKind::Tcp(TcpCheck::default()),
            timing: CheckTiming::default(),
            grace_period: Duration::from_secs(grace_period),
            consecutive_failures,
        });
        let mut age = Duration::ZERO;
        let report = |result| {
            age += Duration::from_secs(1);
            match health.judge(result == '+', age) {
                None => '.',
                Some(HealthChange { kill: true, .. }) => 'k',
                Some(HealthChange { healthy: true, .. }) => 'h',
                Some(_) => 'u',
            }
        };
        results.chars().map(report).collect()
    }

    /// SPEC 5.4.
    // Covers 5.4 Health checks: failures, grace period, kill.
    #[test]
    fn failures_in_a_row_after_the_grace_period_kill() {
        assert_eq!(reports("---", 0, 3), "uuk");
        assert_eq!(reports("--+--+---", 0, 3), "uuhuuhuuk");
        assert_eq!(reports("-----", 3, 2), "...uk", "its last moment counts");
        assert_eq!(reports("+--", 10, 2), "huk", "no grace after a success");
        assert_eq!(reports("++++", 0, 3), "h...", "only news");
        assert_eq!(reports("-", 0, 0), "k");
    }

    #[test]
    fn each_kind_has_its_healthy_results() {
        let command = CheckKind::Command(CommandInfo::shell("true"));
        let http = CheckKind::Http(HttpCheck::default());
        let tcp = CheckKind::Tcp(TcpCheck::default());
        let healthy = |kind: &CheckKind, results: &[i32]| -> Vec<bool> {
            let results = results.iter();
            results.map(|&result| is_healthy(kind, result)).collect()
        };
        assert_eq!(healthy(&command, &[0, 1, 127]), [true, false, false]);
        let statuses = [100, 199, 200, 302, 399, 400, 503];
        let expected = [false, false, true, true, true, false, false];
        assert_eq!(healthy(&http, &statuses), expected);
        assert_eq!(healthy(&tcp, &[0, 1]), [false, true]);
    }
}
