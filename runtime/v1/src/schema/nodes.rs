//! Agents, masters and resource providers.

use crate::message::{enums, messages};
use crate::schema::{
    Address, AgentID, Attribute, CommandInfo, ContainerInfo, DomainInfo, Resource,
    ResourceProviderID, ResourceReservationInfo,
};

messages! {
    /// An agent's description of itself.
    AgentInfo {
        1 hostname: String,
        /// All its resources.
        3 resources: Vec<Resource>,
        5 attributes: Vec<Attribute>,
        /// Absent until a master has registered it.
        6 id: Option<AgentID>,
        /// Whether it checkpoints: agents of recent Mesos always do.
        7 checkpoint: Option<bool> = Bool(false),
        8 port: Option<i32> = Signed(5051),
        10 domain: Option<DomainInfo>,
    }

    /// A feature that the agent supports.
    AgentInfoCapability {
        1 r#type: Option<AgentInfoCapabilityType>,
    }

    /// A master.
    MasterInfo {
        1 id: String,
        /// IPv4 in network byte order; use `address` instead.
        2 ip: u32,
        3 port: u32,
        /// As libprocess writes it, `master@IP:PORT`.
        4 pid: Option<String>,
        5 hostname: Option<String>,
        6 version: Option<String>,
        7 address: Option<Box<Address>>,
        8 domain: Option<DomainInfo>,
        9 capabilities: Vec<MasterInfoCapability>,
    }

    /// A feature that the master supports.
    MasterInfoCapability {
        1 r#type: Option<MasterInfoCapabilityType>,
    }

    /// A resource provider's description of itself.
    ResourceProviderInfo {
        1 id: Option<ResourceProviderID>,
        2 attributes: Vec<Attribute>,
        /// A name in reverse domain notation, as `org.apache.mesos.rp.local.storage`.
        3 r#type: String,
        4 name: String,
        5 default_reservations: Vec<ResourceReservationInfo>,
        6 storage: Option<Box<ResourceProviderInfoStorage>>,
    }

    /// A storage provider with a CSI plug-in.
    ResourceProviderInfoStorage {
        1 plugin: CSIPluginInfo,
        2 reconciliation_interval_seconds: Option<f64>,
    }

    /// A CSI plug-in.
    CSIPluginInfo {
        1 r#type: String,
        2 name: Option<String> = Text("default"),
        3 containers: Vec<CSIPluginContainerInfo>,
        4 endpoints: Vec<CSIPluginEndpoint>,
        5 target_path_root: Option<String>,
        6 target_path_exists: Option<bool>,
    }

    /// A container that runs a part of a CSI plug-in.
    CSIPluginContainerInfo {
        1 services: Vec<CSIPluginContainerInfoService>,
        2 command: Option<Box<CommandInfo>>,
        3 resources: Vec<Resource>,
        4 container: Option<Box<ContainerInfo>>,
    }

    /// The endpoint of a part of a CSI plug-in.
    CSIPluginEndpoint {
        1 csi_service: CSIPluginContainerInfoService,
        2 endpoint: String,
    }
}

enums! {
    /// A feature that an agent may support.
    AgentInfoCapabilityType {
        Unknown = 0 "UNKNOWN",
        MultiRole = 1 "MULTI_ROLE",
        HierarchicalRole = 2 "HIERARCHICAL_ROLE",
        ReservationRefinement = 3 "RESERVATION_REFINEMENT",
        ResourceProvider = 4 "RESOURCE_PROVIDER",
        ResizeVolume = 5 "RESIZE_VOLUME",
        AgentOperationFeedback = 6 "AGENT_OPERATION_FEEDBACK",
        AgentDraining = 7 "AGENT_DRAINING",
        TaskResourceLimits = 8 "TASK_RESOURCE_LIMITS",
    }

    /// A feature that a master may support.
    MasterInfoCapabilityType {
        Unknown = 0 "UNKNOWN",
        AgentUpdate = 1 "AGENT_UPDATE",
        AgentDraining = 2 "AGENT_DRAINING",
    }

    /// A part of a CSI plug-in.
    CSIPluginContainerInfoService {
        Unknown = 0 "UNKNOWN",
        ControllerService = 1 "CONTROLLER_SERVICE",
        NodeService = 2 "NODE_SERVICE",
    }
}
