//! The actions and their objects: the table of the names in ACLs.

/// Defines the table as an enum.
macro_rules! actions {
    ($($action:ident $name:literal $object:literal)*) => {
        /// An action. Each has its own list of rules.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum Action {
            $(#[doc = concat!("`", $name, "`, of `", $object, "`.")] $action,)*
        }

        impl Action {
            /// All actions.
            pub const ALL: &[Self] = &[$(Self::$action,)*];

            /// The name of its list.
            pub fn name(self) -> &'static str {
                match self {
                    $(Self::$action => $name,)*
                }
            }

            /// The key of a rule's objects.
            pub fn object(self) -> &'static str {
                match self {
                    $(Self::$action => $object,)*
                }
            }
        }
    };
}

actions! {
    RegisterFrameworks "register_frameworks" "roles"
    RunTasks "run_tasks" "users"
    TeardownFrameworks "teardown_frameworks" "framework_principals"
    ReserveResources "reserve_resources" "roles"
    UnreserveResources "unreserve_resources" "reserver_principals"
    CreateVolumes "create_volumes" "roles"
    DestroyVolumes "destroy_volumes" "creator_principals"
    ResizeVolumes "resize_volumes" "roles"
    CreateBlockDisks "create_block_disks" "roles"
    DestroyBlockDisks "destroy_block_disks" "roles"
    CreateMountDisks "create_mount_disks" "roles"
    DestroyMountDisks "destroy_mount_disks" "roles"
    DestroyRawDisks "destroy_raw_disks" "roles"
    GetQuotas "get_quotas" "roles"
    UpdateQuotas "update_quotas" "roles"
    ViewRoles "view_roles" "roles"
    UpdateWeights "update_weights" "roles"
    GetEndpoints "get_endpoints" "paths"
    ViewFrameworks "view_frameworks" "users"
    ViewTasks "view_tasks" "users"
    ViewExecutors "view_executors" "users"
    AccessSandboxes "access_sandboxes" "users"
    AccessMesosLogs "access_mesos_logs" "logs"
    ViewFlags "view_flags" "flags"
    SetLogLevel "set_log_level" "level"
    RegisterAgents "register_agents" "agents"
    MarkAgentsGone "mark_agents_gone" "agents"
    DrainAgents "drain_agents" "agents"
    DeactivateAgents "deactivate_agents" "agents"
    ReactivateAgents "reactivate_agents" "agents"
    GetMaintenanceSchedules "get_maintenance_schedules" "machines"
    UpdateMaintenanceSchedules "update_maintenance_schedules" "machines"
    StartMaintenances "start_maintenances" "machines"
    StopMaintenances "stop_maintenances" "machines"
    GetMaintenanceStatuses "get_maintenance_statuses" "machines"
    LaunchNestedContainersAsUser "launch_nested_containers_as_user" "users"
    LaunchNestedContainersUnderParentWithUser "launch_nested_containers_under_parent_with_user" "users"
    LaunchNestedContainerSessionsAsUser "launch_nested_container_sessions_as_user" "users"
    LaunchNestedContainerSessionsUnderParentWithUser "launch_nested_container_sessions_under_parent_with_user" "users"
    KillNestedContainers "kill_nested_containers" "users"
    WaitNestedContainers "wait_nested_containers" "users"
    RemoveNestedContainers "remove_nested_containers" "users"
    AttachContainersInput "attach_containers_input" "users"
    AttachContainersOutput "attach_containers_output" "users"
    ViewContainers "view_containers" "users"
    LaunchStandaloneContainers "launch_standalone_containers" "users"
    KillStandaloneContainers "kill_standalone_containers" "users"
    WaitStandaloneContainers "wait_standalone_containers" "users"
    RemoveStandaloneContainers "remove_standalone_containers" "users"
    ViewStandaloneContainers "view_standalone_containers" "users"
    ModifyResourceProviderConfigs "modify_resource_provider_configs" "resource_providers"
    MarkResourceProvidersGone "mark_resource_providers_gone" "resource_providers"
    ViewResourceProviders "view_resource_providers" "resource_providers"
    PruneImages "prune_images" "images"
}

impl Action {
    /// The action with this name.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL
            .iter()
            .copied()
            .find(|action| action.name() == name)
    }

    /// Whether its objects are roles, so that `eng/%` is allowed.
    pub(super) fn has_roles(self) -> bool {
        self.object() == "roles"
    }

    /// Whether its objects have names, so that a rule may list some. All others are allowed or
    /// denied as a whole.
    pub fn has_names(self) -> bool {
        matches!(
            self.object(),
            "roles"
                | "users"
                | "paths"
                | "framework_principals"
                | "reserver_principals"
                | "creator_principals"
        )
    }
}
