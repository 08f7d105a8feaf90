//! Throttling: a container with lent resources uses less, on a correction of the QoS controller.
//!
//! Pure. Only resources lent as throttleable allow it. The framework receives an update of
//! each running task, with a reason that Mesos knows and the degree as a label. The degree is not
//! checkpointed: after a restart of the agent a container is not throttled until the controller
//! advises it again, and its tasks get an update without the label.

use protocol::usage::Throttle;
use protocol::{Reason, Source, TaskId, TaskState};

use super::{Container, Effect, Task, TaskReport};

/// Whether an update with this state and reason tells of throttling.
pub fn is_throttle_update(state: TaskState, reason: Option<Reason>) -> bool {
    state == TaskState::Running && reason == Some(Reason::ContainerLimitation)
}

impl Container {
    /// The degree for isolators; `None` if it was never throttled. It ends with the last lent
    /// resources.
    pub fn throttle(&self) -> Option<Throttle> {
        let throttle = self.throttle?;
        Some(match self.is_throttleable() {
            true => throttle,
            false => Throttle::default(),
        })
    }

    fn is_throttleable(&self) -> bool {
        !self.allocated().throttleable().is_empty()
    }

    /// Sets the degree. Returns the earlier one if that changes it.
    pub fn set_throttle(&mut self, degree: Throttle) -> Option<Throttle> {
        let degree = degree.within_bounds();
        let before = self.throttle.unwrap_or_default();
        let is_allowed = self.takes_tasks() && (self.is_throttleable() || degree.is_none());
        if !is_allowed || before == degree {
            return None;
        }
        self.throttle = Some(degree);
        Some(before)
    }

    /// It runs since an earlier agent process, which may have throttled it.
    pub(super) fn forget_throttle(&mut self) {
        self.throttle = self.is_throttleable().then(Throttle::default);
    }

    /// Isolators have set this degree: reports it for each running task.
    pub fn report_throttle(&mut self, degree: Throttle) -> Vec<Effect> {
        let message = match degree.is_none() {
            true => "Container restored by QoS correction".to_owned(),
            false => format!("Container throttled by QoS correction: {degree}"),
        };
        self.report_running(&message, |_| true)
    }

    /// It is not throttled: reports it for each running task whose newest status has the label of
    /// an earlier agent process.
    pub fn report_no_throttle(&mut self) -> Vec<Effect> {
        self.report_running("Container not throttled by the restarted agent", |task| {
            task.is_throttled
        })
    }

    fn report_running(&self, message: &str, is_wanted: impl Fn(&Task) -> bool) -> Vec<Effect> {
        let running = self.tasks.values();
        let running = running.filter(|task| task.state == TaskState::Running && is_wanted(task));
        let running: Vec<TaskId> = running.map(|task| task.info.task_id.clone()).collect();
        let report = |task_id| TaskReport {
            task_id,
            state: TaskState::Running,
            source: Source::Agent,
            reason: Some(Reason::ContainerLimitation),
            message: message.to_owned(),
            termination: None,
            healthy: None,
            check_results: Vec::new(),
        };
        let reports = running.into_iter().map(report);
        reports.map(Effect::Report).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::task;
    use super::*;
    use resources::{Resources, Revocable};

    fn container_with(kind: Option<Revocable>) -> Container {
        let mut info = task("t");
        let lent = Resources::parse("cpus:2").unwrap();
        info.resources += &match kind {
            Some(kind) => lent.to_revocable(kind).unwrap(),
            None => lent,
        };
        let mut container = super::super::tests::container();
        container.add(info);
        container
    }

    fn half() -> Throttle {
        Throttle {
            cpu: Some(500),
            ..Throttle::default()
        }
    }

    #[test]
    fn only_throttleable_resources_allow_it() {
        for (kind, expected) in [
            (Some(Revocable::Throttleable), Some(half())),
            (Some(Revocable::NonThrottleable), None),
            (None, None),
        ] {
            let mut container = container_with(kind);
            container.set_throttle(half());
            assert_eq!(container.resources().throttle, expected, "{kind:?}");
        }
    }

    #[test]
    fn equal_degree_changes_nothing() {
        let mut container = container_with(Some(Revocable::Throttleable));
        assert_eq!(
            container.set_throttle(Throttle::default()),
            None,
            "it is not throttled"
        );
        assert_eq!(container.set_throttle(half()), Some(Throttle::default()));
        assert_eq!(container.set_throttle(half()), None);
        assert_eq!(container.set_throttle(Throttle::default()), Some(half()));
        assert_eq!(container.resources().throttle, Some(Throttle::default()));
    }

    #[test]
    fn running_tasks_are_reported_once_each() {
        let mut container = container_with(Some(Revocable::Throttleable));
        assert_eq!(container.report_throttle(half()), [], "it does not run yet");
        container
            .tasks
            .values_mut()
            .for_each(|task| task.state = TaskState::Running);
        let effects = container.report_throttle(half());
        let [Effect::Report(report)] = &effects[..] else {
            panic!("{effects:?}");
        };
        assert_eq!(
            report.message,
            "Container throttled by QoS correction: cpu 50%"
        );
        assert!(is_throttle_update(report.state, report.reason));
        container.processes_gone();
        assert_eq!(container.set_throttle(half()), None, "it has ended");
    }
}
