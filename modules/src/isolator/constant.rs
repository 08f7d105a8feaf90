//! Isolators whose plan is the same for every container.

use module_api::isolator::{
    CleanUpContainer, LaunchPlan, Limitation, MeasureContainers, Measured, Namespaces,
    PrepareContainer, RecoverContainers, UpdateContainer,
};
use module_api::{Fault, IsolatorRef, ModuleError, ModuleKind};
use runtime::prelude::*;

/// Their names in `--isolation`.
pub const NAMES: [&str; 6] = [
    "namespaces/pid",
    "namespaces/ipc",
    "linux/nnp",
    "posix/cpu",
    "posix/mem",
    "filesystem/posix",
];

/// The plan of one name. `posix/cpu` and `posix/mem` change nothing: the agent measures every
/// container by `/proc`. Nor does `filesystem/posix`, which is how containers are without a root
/// file system of their own.
pub fn plan(name: &str) -> LaunchPlan {
    let mut plan = LaunchPlan::default();
    match name {
        "namespaces/pid" => {
            plan.namespaces = Namespaces {
                pid: true,
                mount: true,
                ..Namespaces::default()
            }
        }
        "namespaces/ipc" => plan.namespaces.ipc = true,
        "linux/nnp" => plan.no_new_privileges = true,
        _ => {}
    }
    plan
}

/// Starts one isolator for all of these names.
pub fn start(node: &Node, names: &[&str]) -> Result<IsolatorRef, ModuleError> {
    let mut merged = LaunchPlan::default();
    names.iter().for_each(|name| merged.merge(plan(name)));
    let make = move || Constant(merged.clone());
    let actor = crate::supervise(node, ModuleKind::Isolator, "constant_isolator", make)?;
    Ok(IsolatorRef::new(actor))
}

/// The actor.
struct Constant(LaunchPlan);

impl Actor for Constant {
    type Context = Context<Self>;
}

impl Process for Constant {
    fn accepts(handlers: &mut RemoteHandlers<Self>) {
        handlers.accept::<RecoverContainers>(&[Role::Agent]);
        handlers.accept::<PrepareContainer>(&[Role::Agent]);
        handlers.accept::<UpdateContainer>(&[Role::Agent]);
        handlers.accept::<MeasureContainers>(&[Role::Agent]);
        handlers.accept::<CleanUpContainer>(&[Role::Agent]);
    }
}

impl Handler<RecoverContainers> for Constant {
    type Result = Result<(), Fault>;
    fn handle(&mut self, _: RecoverContainers, _: &mut Context<Self>) -> Self::Result {
        Ok(())
    }
}

impl Handler<PrepareContainer> for Constant {
    type Result = Result<LaunchPlan, Fault>;
    fn handle(&mut self, _: PrepareContainer, _: &mut Context<Self>) -> Self::Result {
        Ok(self.0.clone())
    }
}

impl Handler<UpdateContainer> for Constant {
    type Result = Result<(), Fault>;
    fn handle(&mut self, _: UpdateContainer, _: &mut Context<Self>) -> Self::Result {
        Ok(())
    }
}

impl Handler<MeasureContainers> for Constant {
    type Result = Result<Measured, Fault>;
    fn handle(&mut self, _: MeasureContainers, _: &mut Context<Self>) -> Self::Result {
        Ok(Measured::new())
    }
}

impl Handler<CleanUpContainer> for Constant {
    type Result = Result<Option<Limitation>, Fault>;
    fn handle(&mut self, _: CleanUpContainer, _: &mut Context<Self>) -> Self::Result {
        Ok(None)
    }
}

#[cfg(test)]
mod tests {
    use module_api::Parameters;
    use module_api::isolator::{ContainerConfig, ContainerResources};
    use protocol::ContainerId;
    use runtime::testing::simulate;

    #[test]
    fn plans_of_several_names_are_merged() {
        simulate(|node| async move {
            let names = ["namespaces/pid", "linux/nnp", "posix/cpu"];
            let registry = crate::registry();
            let none = Parameters::none("isolators");
            let started = registry.isolators(&node, &names, &none).unwrap();
            assert_eq!(started.len(), 1, "one actor");
            let config = ContainerConfig {
                container_id: ContainerId::new("c").unwrap(),
                sandbox: "/s".into(),
                user: None,
                is_command: true,
                resources: ContainerResources::default(),
            };
            let plan = started[0].prepare(config).await.unwrap();
            assert!(plan.namespaces.pid && !plan.namespaces.ipc && plan.no_new_privileges);
            let id = ContainerId::new("c").unwrap();
            assert_eq!(started[0].clean_up(id).await, Ok(None));
            let error = registry.isolators(&node, &["network/host"], &none);
            let error = error.unwrap_err().to_string();
            assert!(error.contains("there is no isolator called"), "{error}");
        });
    }
}
