//! Fetching: the containerizer's use of the fetcher, between isolation and launch.
//!
//! A container waits for its files in the phase of preparation, so no deadline of its executor runs
//! yet. If it is no longer wanted, its fetcher is killed first.

use std::collections::BTreeMap;

use protocol::ContainerId;
use runtime::prelude::*;
use tokio::sync::oneshot;

use crate::container::Containerizer;
use crate::container::executor_spec::ExecutorSpec;
use crate::container::launches::times::LaunchPhase;
use crate::container::machine::Phase;
use crate::fetcher::{FetchRequest, plan};

/// The containers that wait for their files. Dropping a sender kills the fetcher.
pub(in crate::container) type Fetches = BTreeMap<ContainerId, oneshot::Sender<()>>;

impl Containerizer {
    /// Fetches the files of a container, then launches it.
    pub(in crate::container) fn fetch(&mut self, id: &ContainerId, ctx: &mut Context<Self>) {
        self.enter(id, LaunchPhase::Fetch, ctx);
        let request = match self.fetch_request(id) {
            Ok(Some(request)) => request,
            Ok(None) => return self.with(id, ctx, |container| container.prepared(Ok(()))),
            Err(problem) => return self.fetched(id, Err(problem), ctx),
        };
        let Some(fetcher) = self.launcher.fetcher() else {
            let problem = "this agent has no fetcher".to_owned();
            return self.fetched(id, Err(problem), ctx);
        };
        let (cancel, cancelled) = oneshot::channel();
        self.fetches.insert(id.clone(), cancel);
        let (node, id) = (ctx.node().clone(), id.clone());
        let fetching = fetcher.fetch(node, request, cancelled);
        ctx.then(fetching, move |this, result, ctx| {
            this.fetches.remove(&id);
            this.fetched(&id, result, ctx);
        });
    }

    /// Kills the fetcher of a container that is no longer wanted.
    pub(in crate::container) fn cancel_fetch(&mut self, id: &ContainerId) {
        let waits = self.containers.get(id);
        let waits = waits.is_some_and(|container| container.phase == Phase::Preparing);
        if !waits {
            self.fetches.remove(id);
        }
    }

    /// `None` if there is nothing to fetch.
    fn fetch_request(&self, id: &ContainerId) -> Result<Option<FetchRequest>, String> {
        let Some((framework_id, container)) = self.containers.entry(id) else {
            return Ok(None);
        };
        let first = container.tasks().next();
        let uris = &container.executor.command.uris;
        let Some(first) = first.filter(|_| container.phase == Phase::Preparing && !uris.is_empty())
        else {
            return Ok(None);
        };
        let settings = &self.config.settings;
        let user = ExecutorSpec::of(&first.info, &container.framework)?.user;
        Ok(Some(FetchRequest {
            sandbox: self.sandbox(framework_id, container),
            user: user.filter(|_| settings.switch_user),
            stall_timeout: settings.fetcher_stall_timeout,
            authorities: settings.fetcher_ca.clone(),
            items: plan::plan(uris)?,
        }))
    }

    fn fetched(&mut self, id: &ContainerId, result: Result<(), String>, ctx: &mut Context<Self>) {
        let is_wanted = self.containers.get(id);
        let is_wanted = is_wanted.is_some_and(|container| container.phase == Phase::Preparing);
        let result = match result {
            Err(problem) if is_wanted => {
                self.counts.task_fetches_failed += 1;
                self.counts.container_launch_errors += 1;
                tracing::warn!(container = %id, problem, "cannot fetch files");
                let which = format!("Failed to fetch all URIs for container '{id}'");
                Err(format!("{which}: {problem}"))
            }
            // Killed meanwhile.
            Err(_) => Ok(()),
            Ok(()) => {
                self.counts.task_fetches_succeeded += 1;
                Ok(())
            }
        };
        self.with(id, ctx, |container| container.prepared(result));
    }
}
