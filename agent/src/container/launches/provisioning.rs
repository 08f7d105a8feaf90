//! Root file systems: the containerizer's use of the provisioner, before isolation.
//!
//! A container waits for its image in the phase of preparation, so no deadline of its executor runs
//! yet. If it is no longer wanted, the pull is given up.

use std::collections::BTreeMap;

use protocol::ContainerId;
use runtime::prelude::*;
use tokio::sync::oneshot;

use crate::container::Containerizer;
use crate::container::launches::times::LaunchPhase;
use crate::container::machine::Phase;
use crate::images::containers::{Provisioned, Provisioner};

/// The containers with images.
#[derive(Default)]
pub(in crate::container) struct Provisioning {
    provisioner: Option<Provisioner>,
    containers: BTreeMap<ContainerId, State>,
    /// Root file systems that are being removed.
    releasing: usize,
}

enum State {
    /// Waits for its image. Dropping the sender gives up the pull.
    Waiting { _cancel: oneshot::Sender<()> },
    /// It was killed; a result of the pull is not used.
    GivenUp,
    /// Has its root file system.
    Ready(Box<Provisioned>),
    /// An earlier agent process made one, and its record is damaged.
    Damaged,
}

impl Provisioning {
    /// Whether no container has a root file system or waits for one.
    pub(in crate::container) fn is_unused(&self) -> bool {
        self.containers.is_empty() && self.releasing == 0
    }

    /// What a container has got.
    pub(in crate::container) fn of(&self, id: &ContainerId) -> Option<&Provisioned> {
        match self.containers.get(id)? {
            State::Ready(provisioned) => Some(provisioned),
            State::Waiting { .. } | State::GivenUp | State::Damaged => None,
        }
    }
}

impl Containerizer {
    /// Sets the provisioner, and the root file systems of containers of an earlier agent process.
    #[must_use]
    pub(crate) fn with_provisioner(
        mut self,
        provisioner: Option<Provisioner>,
        recovered: Vec<(ContainerId, Option<Provisioned>)>,
    ) -> Self {
        let ready = |one| State::Ready(Box::new(one));
        let ready = |(id, one): (_, Option<_>)| (id, one.map_or(State::Damaged, ready));
        self.provisioning = Provisioning {
            provisioner,
            containers: recovered.into_iter().map(ready).collect(),
            releasing: 0,
        };
        self
    }

    /// Provides the root file system of a container, then isolates it. Its sandbox exists.
    pub(in crate::container) fn provision(&mut self, id: &ContainerId, ctx: &mut Context<Self>) {
        self.enter(id, LaunchPhase::Image, ctx);
        let container = self.containers.get(id);
        let container = container.filter(|one| one.phase == Phase::Preparing);
        let executor = container.map(|one| &one.executor);
        let wanted = executor.and_then(|one| {
            let info = one
                .container
                .as_deref()
                .filter(|info| info.image.is_some())?;
            Some((one.command.clone(), info.clone()))
        });
        let Some(wanted) = wanted else {
            return self.isolate(id, ctx);
        };
        let Some(provisioner) = self.provisioning.provisioner.clone() else {
            let problem = "container.image is set: expected an agent with --image_providers=docker";
            return self.provisioned(id, Err(problem.to_owned()), ctx);
        };
        let (cancel, cancelled) = oneshot::channel();
        let waiting = State::Waiting { _cancel: cancel };
        self.provisioning.containers.insert(id.clone(), waiting);
        let node = ctx.node().clone();
        let id = id.clone();
        let provisioning = {
            let id = id.clone();
            async move { provisioner.provision(node, id, wanted, cancelled).await }
        };
        ctx.then(provisioning, move |this, result, ctx| {
            this.provisioned(&id, result, ctx);
        });
    }

    fn provisioned(
        &mut self,
        id: &ContainerId,
        result: Result<Provisioned, String>,
        ctx: &mut Context<Self>,
    ) {
        let is_wanted = self.containers.get(id);
        let is_wanted = is_wanted.is_some_and(|container| container.phase == Phase::Preparing);
        match result {
            Ok(provisioned) if is_wanted => {
                let ready = State::Ready(Box::new(provisioned));
                self.provisioning.containers.insert(id.clone(), ready);
                self.isolate(id, ctx);
            }
            Err(problem) if is_wanted => {
                self.counts.container_launch_errors += 1;
                tracing::warn!(container = %id, problem, "cannot provide the image");
                self.with(id, ctx, |container| container.prepared(Err(problem)));
            }
            // Killed meanwhile: it waited for this only, and its end releases the image.
            _ => self.with(id, ctx, |container| container.prepared(Ok(()))),
        }
    }

    /// Gives up the pull of a container that is no longer wanted.
    pub(in crate::container) fn cancel_pull(&mut self, id: &ContainerId) {
        let waits = self.containers.get(id);
        let waits = waits.is_some_and(|container| container.phase == Phase::Preparing);
        if let Some(state @ State::Waiting { .. }) = self.provisioning.containers.get_mut(id)
            && !waits
        {
            *state = State::GivenUp;
        }
    }

    /// A container has ended: releases its image and removes what it has written.
    pub(in crate::container) fn release_root(&mut self, id: &ContainerId, ctx: &mut Context<Self>) {
        let known = self.provisioning.containers.remove(id);
        let provisioner = self.provisioning.provisioner.as_ref();
        if let Some((_, provisioner)) = known.zip(provisioner) {
            let releasing = provisioner.release(ctx.node(), id);
            self.provisioning.releasing += 1;
            ctx.then(releasing, |this, removed, _| {
                this.provisioning.releasing -= 1;
                this.counts.remove_container_errors += u64::from(!removed);
            });
        }
    }
}
