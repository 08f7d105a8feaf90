//! Who an agent, a master and a resource provider are.

use crate::message::{enums, messages};
use crate::schema::{
    Address, AgentID, Attribute, CommandInfo, ContainerInfo, DomainInfo, Resource,
    ResourceProviderID, ResourceReservationInfo,
};

messages! {
    /// What an agent says of itself.
    AgentInfo {
        1 hostname: String,
        /// All that it has.
        3 resources: Vec<Resource>,
        5 attributes: Vec<Attribute>,
        /// Absent until a master has admitted it.
        6 id: Option<AgentID>,
        /// Whether it keeps what outlives it: agents of recent Mesos always do.
        7 checkpoint: Option<bool> = Bool(false),
        8 port: Option<i32> = Signed(5051),
        10 domain: Option<DomainInfo>,
    }

    /// Something that the agent understands beyond the basics.
    AgentInfoCapability {
        1 r#type: Option<AgentInfoCapabilityType>,
    }

    /// Who a master is.
    MasterInfo {
        1 id: String,
        /// IPv4, in network order; read `address` instead.
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

    /// Something that the master understands beyond the basics.
    MasterInfoCapability {
        1 r#type: Option<MasterInfoCapabilityType>,
    }

    /// What a resource provider says of itself.
    ResourceProviderInfo {
        1 id: Option<ResourceProviderID>,
        2 attributes: Vec<Attribute>,
        /// A name of the reversed form of a host, for example `org.apache.mesos.rp.local.storage`.
        3 r#type: String,
        4 name: String,
        5 default_reservations: Vec<ResourceReservationInfo>,
        6 storage: Option<Box<ResourceProviderInfoStorage>>,
    }

    /// A provider of storage, served by a CSI plug-in.
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

    /// Where a part of a CSI plug-in listens.
    CSIPluginEndpoint {
        1 csi_service: CSIPluginContainerInfoService,
        2 endpoint: String,
    }
}

enums! {
    /// What an agent may understand beyond the basics.
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

    /// What a master may understand beyond the basics.
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
