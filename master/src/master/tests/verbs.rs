//! Which list of the ACLs decides each thing that an operator's command asks over a link (SPEC
//! 3.7). The same over HTTP stands in `api/tests/acls.rs`.

use authority::{Acls, Action};
use protocol::message::operator::*;
use resources::Conversion;

use super::*;
use crate::api::tests::acls::NOT_ASKED;

/// A caller: a command on a node of its own.
struct Command {
    node: Node,
    master: Pid,
}

impl Command {
    /// The answer as text.
    async fn ask<M>(&self, verb: M) -> String
    where
        M: Remote,
        M::Result: std::fmt::Debug,
    {
        let answer = self.node.ask(&self.master, verb, PATIENCE).await;
        format!("{:?}", answer.unwrap())
    }

    async fn operate(&self, conversion: Conversion) -> String {
        let agent_id = nobody();
        let operate = Operate {
            agent_id,
            conversion,
        };
        self.ask(operate).await
    }

    /// The answers to all commands of this action. The agent, role or framework does not exist;
    /// only authorized callers are told so.
    async fn all_of(&self, action: Action) -> Vec<String> {
        use Action::*;
        let agent_id = nobody();
        let machines = vec![MachineId::new("host", "").unwrap()];
        let part = |text: &str| {
            let entry = r#""reservations":[{"type":"DYNAMIC","role":"ops","principal":"ops"}]"#;
            let json = format!(r#"[{{"name":"disk","type":"SCALAR",{entry}{text}}}]"#);
            resources::json::parse_resources(&json).unwrap()
        };
        let plain = || part(r#","scalar":{"value":9}"#);
        let volume = || {
            part(
                r#","scalar":{"value":9},"disk":{"persistence":{"id":"v","principal":"ops"},"volume":{"container_path":"a","mode":"RW"}}"#,
            )
        };
        let one = |of: Resources| of.iter().next().unwrap().clone();
        match action {
            DrainAgents => {
                let drain = DrainAgent {
                    agent_id,
                    max_grace_period: None,
                    mark_gone: false,
                };
                vec![self.ask(drain).await]
            }
            DeactivateAgents => vec![self.ask(DeactivateAgent { agent_id }).await],
            ReactivateAgents => {
                let cancel = CancelDrain {
                    agent_id: agent_id.clone(),
                };
                vec![
                    self.ask(ReactivateAgent { agent_id }).await,
                    self.ask(cancel).await,
                ]
            }
            MarkAgentsGone => vec![self.ask(MarkAgentGone { agent_id }).await],
            GetMaintenanceSchedules => vec![self.ask(ViewMaintenanceSchedule).await],
            GetMaintenanceStatuses => vec![self.ask(ViewMaintenanceStatus).await],
            UpdateMaintenanceSchedules => {
                let windows = Vec::new();
                vec![self.ask(UpdateMaintenanceSchedule { windows }).await]
            }
            StartMaintenances => vec![self.ask(StartMaintenance { machines }).await],
            StopMaintenances => vec![self.ask(StopMaintenance { machines }).await],
            Action::UpdateQuotas => {
                let quotas = [("eng".to_owned(), Quota::default())].into();
                let force = false;
                let update = protocol::message::operator::UpdateQuotas { quotas, force };
                vec![self.ask(update).await]
            }
            Action::UpdateWeights => {
                let weights = [("eng".to_owned(), 2.0)].into();
                let update = protocol::message::operator::UpdateWeights { weights };
                vec![self.ask(update).await]
            }
            GetEndpoints => {
                let explain = ExplainOffers {
                    framework: "nobody".to_owned(),
                    role: None,
                    agent: None,
                };
                vec![self.ask(explain).await]
            }
            ReserveResources => {
                let resources = plain();
                vec![self.operate(Conversion::Reserve { resources }).await]
            }
            UnreserveResources => {
                let resources = plain();
                vec![self.operate(Conversion::Unreserve { resources }).await]
            }
            CreateVolumes => {
                let volumes = volume();
                vec![self.operate(Conversion::Create { volumes }).await]
            }
            DestroyVolumes => {
                let volumes = volume();
                vec![self.operate(Conversion::Destroy { volumes }).await]
            }
            ResizeVolumes => {
                let (volume, addition) = (one(volume()), one(plain()));
                let (shrunk, subtract) = (volume.clone(), addition.amount().unwrap());
                let grow = Conversion::GrowVolume { volume, addition };
                let volume = shrunk;
                let shrink = Conversion::ShrinkVolume { volume, subtract };
                vec![self.operate(grow).await, self.operate(shrink).await]
            }
            // Visibility and kills are tested with agents and frameworks, in `permissions.rs`.
            ViewFrameworks | ViewTasks | ViewExecutors | ViewRoles | GetQuotas
            | TeardownFrameworks => Vec::new(),
            // No command asks a master for any of this.
            RegisterFrameworks | RunTasks | RegisterAgents | ViewFlags | SetLogLevel => Vec::new(),
            other => {
                let is_not_asked = NOT_ASKED.split(' ').any(|name| name == other.name());
                assert!(is_not_asked, "add the commands of {} here", other.name());
                Vec::new()
            }
        }
    }
}

fn nobody() -> AgentId {
    AgentId::new("nobody").unwrap()
}

/// SPEC 3.7.
#[test]
fn each_command_is_authorized_by_its_own_acl() {
    for action in Action::ALL {
        let (name, key) = (action.name(), action.object());
        for (permissive, objects) in [(true, "NONE"), (false, "ANY")] {
            let acls = format!(
                r#"{{"permissive":{permissive},"{name}":[{{"principals":{{"type":"ANY"}},"{key}":{{"type":"{objects}"}}}}]}}"#
            );
            simulate_network(|network| async move {
                let config = Config {
                    acls: Acls::parse(&acls).unwrap().into(),
                    ..Config::default()
                };
                let world = World::new(network, config).await;
                let node = world.network.node("ops", Role::Operator, &[Role::Master]);
                let master = node.find("master", "master", PATIENCE).await.unwrap();
                let command = Command { node, master };
                for answer in command.all_of(*action).await {
                    let refused = answer.contains("one that may ");
                    let by_name = answer.contains(&format!("one that may {name}"));
                    let expected = (permissive, permissive);
                    assert_eq!((refused, by_name), expected, "{name}: {answer}");
                }
            });
        }
    }
}
