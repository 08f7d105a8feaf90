//! Settings of Mesos on the command line and in the environment, and their complete list.

use clap::CommandFactory;
use testkit::assert_contains;

use super::*;
use crate::Cli;

/// The flags of a Mesos 1.11 master except `--version`.
const MASTER: &str = "hostname hostname_lookup root_submissions work_dir registry quorum zk_session_timeout registry_strict \
    registry_fetch_timeout registry_store_timeout log_auto_initialize agent_reregister_timeout recovery_agent_removal_limit \
    agent_removal_rate_limit webui_dir whitelist role_sorter framework_sorter allocation_interval cluster roles weights \
    authenticate_frameworks authenticate_agents authentication_v0_timeout authenticate_http_readwrite authenticate_http_readonly \
    authenticate_http_frameworks credentials acls firewall_rules rate_limits max_executors_per_agent offer_timeout modules \
    modules_dir authenticators allocator allocator_agent_recovery_factor allocator_recovery_timeout \
    fair_sharing_excluded_resource_names filter_gpu_resources min_allocatable_resources hooks agent_ping_timeout \
    max_agent_ping_timeouts authorizers http_authenticators http_framework_authenticators max_operator_event_stream_subscribers \
    max_completed_frameworks max_completed_tasks_per_framework max_unreachable_tasks_per_framework master_contender \
    master_detector registry_gc_interval registry_max_agent_age registry_max_agent_count ip port advertise_ip advertise_port \
    memory_profiling zk ip_discovery_command require_agent_domain publish_per_framework_metrics domain \
    offer_constraints_re2_max_mem offer_constraints_re2_max_program_size quiet logging_level log_dir logbufsecs \
    initialize_driver_logging external_log_file";

/// The flags of a Mesos 1.11 agent except `--version`.
const AGENT: &str = "hostname hostname_lookup resources resource_provider_config_dir csi_plugin_config_dir disk_profile_adaptor \
    isolation launcher launcher_dir image_providers image_provisioner_backend image_gc_config appc_simple_discovery_uri_prefix \
    appc_store_dir docker_registry docker_store_dir docker_volume_checkpoint_dir docker_volume_chown docker_ignore_runtime \
    default_role attributes fetcher_cache_size fetcher_cache_dir fetcher_stall_timeout work_dir runtime_dir hadoop_home switch_user \
    volume_gid_range http_heartbeat_interval frameworks_home registration_backoff_factor authentication_backoff_factor \
    authentication_timeout_min authentication_timeout_max executor_environment_variables executor_registration_timeout \
    executor_reregistration_timeout executor_reregistration_retry_interval executor_shutdown_grace_period jwt_secret_key gc_delay \
    gc_disk_headroom gc_non_executor_container_sandboxes disk_watch_interval container_logger recover recovery_timeout \
    reconfiguration_policy strict max_completed_executors_per_framework cgroups_destroy_timeout cgroups_hierarchy cgroups_root \
    cgroups_enable_cfs cgroups_limit_swap cgroups_cpu_enable_pids_and_tids_count cgroups_net_cls_primary_handle \
    cgroups_net_cls_secondary_handles allowed_devices agent_subsystems host_path_volume_force_creation nvidia_gpu_devices \
    perf_events perf_interval perf_duration revocable_cpu_low_priority systemd_enable_support systemd_runtime_directory \
    effective_capabilities bounding_capabilities default_container_shm_size disallow_sharing_agent_ipc_namespace \
    disallow_sharing_agent_pid_namespace agent_features firewall_rules credential acls containerizers docker docker_remove_delay \
    docker_kill_orphans docker_mesos_image docker_socket docker_config sandbox_directory domain_socket_location \
    default_container_dns default_container_info docker_stop_timeout ephemeral_ports_per_container eth0_name lo_name \
    egress_rate_limit_per_container egress_rate_per_cpu minimum_egress_rate_limit maximum_egress_rate_limit egress_ceil_limit \
    egress_burst egress_unique_flow_per_container egress_flow_classifier_parent ingress_rate_limit_per_container \
    ingress_rate_per_cpu minimum_ingress_rate_limit maximum_ingress_rate_limit ingress_ceil_limit ingress_burst \
    ingress_isolate_existing_containers network_link_speed network_enable_socket_statistics_summary \
    network_enable_socket_statistics_details network_enable_snmp_statistics network_enable_rate_statistics \
    network_rate_statistics_window network_rate_statistics_interval container_ports_watch_interval check_agent_port_range_only \
    enforce_container_ports container_ports_isolated_range network_cni_plugins_dir network_cni_config_dir \
    network_cni_root_dir_persist network_cni_metrics container_disk_watch_interval enforce_container_disk_quota modules \
    modules_dir authenticatee authorizer http_authenticators authenticate_http_readwrite authenticate_http_readonly \
    authenticate_http_executors http_executor_domain_sockets http_credentials hooks secret_resolver resource_estimator \
    qos_controller qos_correction_interval_min oversubscribed_resources_interval master_detector xfs_project_range \
    xfs_kill_containers xfs_quota_headroom seccomp_config_dir seccomp_profile_name http_command_executor ip ip6 port advertise_ip \
    advertise_port master zk_session_timeout ip_discovery_command ip6_discovery_command memory_profiling domain quiet \
    logging_level log_dir logbufsecs initialize_driver_logging external_log_file launcher_dir";

fn checked(line: &str, environment: &[(&str, &str)]) -> Result<(String, Vec<String>), String> {
    let arguments = line.split_whitespace().map(OsString::from).collect();
    let environment = { environment.iter() }.map(|(name, value)| (name.into(), value.into()));
    let checked = check(&Cli::command(), arguments, environment);
    let settings = checked.map_err(|error| error.to_string())?;
    let arguments = settings.arguments.iter().map(|one| one.to_str().unwrap());
    let line = arguments.collect::<Vec<_>>().join(" ");
    Ok((line, settings.warnings))
}

#[test]
fn every_mesos_flag_is_handled() {
    let command = Cli::command();
    for (verb, names) in [
        ("master", MASTER),
        ("agent", AGENT),
        ("local", MASTER),
        ("local", AGENT),
    ] {
        let service = Service::named(verb).unwrap();
        let parser = command.find_subcommand(verb).unwrap();
        for name in names.split_whitespace() {
            let flag = named(parser, name);
            let variable = format!("MESOS_{}", name.to_uppercase());
            let is_read = flag.is_some_and(|flag| flag.get_env() == Some(variable.as_ref()));
            let checked = checked(&format!("meros {verb}"), &[(&variable, "?")]);
            let is_silent = checked.is_ok_and(|(_, warnings)| warnings.is_empty());
            assert!(
                is_read || (flag.is_none() && !is_silent),
                "{service:?}: {name}"
            );
        }
    }
}

#[test]
fn no_row_names_a_flag_that_exists() {
    let command = Cli::command();
    for verb in ["master", "agent", "local"] {
        let service = Service::named(verb).unwrap();
        let parser = command.find_subcommand(verb).unwrap();
        for flag in parser.get_arguments().filter_map(Arg::get_long) {
            assert_eq!(table::rule(service, flag), None, "{verb} --{flag}");
        }
    }
}

#[test]
fn boolean_variables_are_obeyed_or_refused() {
    let parsed = |variable: &str, value: &str| {
        let line = "meros agent --master=a:1 --work_dir=/x";
        let (line, warnings) = checked(line, &[(variable, value)]).unwrap();
        assert!(warnings.is_empty(), "{warnings:?}");
        line.contains("--switch_user=false")
    };
    // The parser reads this one itself.
    assert!(!parsed("MESOS_SWITCH_USER", "false"));
    // The older spelling.
    assert!(parsed("MESOS_NO_SWITCH_USER", "true"));
    assert!(!parsed("MESOS_NO_SWITCH_USER", "false"));
    let wrong = checked("meros agent", &[("MESOS_NO_SWITCH_USER", "perhaps")]);
    assert!(wrong.unwrap_err().contains("MESOS_NO_SWITCH_USER"));
    let (line, _) = checked("meros master --no_root_submissions", &[]).unwrap();
    assert_eq!(line, "meros master --root_submissions=false");
}

#[test]
fn switches_take_boolean_values() {
    let parsed = |line: &str, value| {
        let set = [("MESOS_LEASE_READS", value)];
        let set = if line.contains("lease_reads") {
            &[][..]
        } else {
            &set
        };
        checked(line, set).map(|(line, _)| line)
    };
    let (bare, set) = ("meros master", "meros master --lease_reads");
    for (line, value, expected) in [
        (bare, "true", set),
        (bare, "0", bare),
        ("meros master --lease_reads=true", "", set),
        ("meros master --lease_reads=false", "", bare),
        (set, "", set),
    ] {
        assert_eq!(parsed(line, value).unwrap(), expected, "{line} {value}");
    }
    let wrong = parsed(bare, "perhaps").unwrap_err();
    assert!(wrong.contains("MESOS_LEASE_READS"), "{wrong}");
}

#[test]
fn older_names_stand_for_the_newer_ones() {
    let slave = [("MESOS_SLAVE_PING_TIMEOUT", "3secs")];
    let (line, _) = checked("meros master --authenticate_http=true", &slave).unwrap();
    let expected = "meros master --agent_ping_timeout=3secs --authenticate_http_readwrite=true";
    assert_eq!(line, expected);
    for precedent in ["--agent_ping_timeout=1secs", "--slave_ping_timeout=1secs"] {
        let (line, _) = checked(&format!("meros master {precedent}"), &slave).unwrap();
        assert_eq!(line, "meros master --agent_ping_timeout=1secs");
    }
}

#[test]
fn only_default_values_are_accepted() {
    let containerizers = |value| checked("meros agent", &[("MESOS_CONTAINERIZERS", value)]);
    let accepted = Ok(("meros agent".to_owned(), Vec::new()));
    assert_eq!(containerizers("mesos"), accepted);
    let refused = containerizers("docker").unwrap_err();
    let expected = "MESOS_CONTAINERIZERS (--containerizers)=`docker`: expected `mesos` or `docker,mesos` or `mesos,docker`";
    assert!(refused.contains(expected), "{refused}");
    for line in [
        "--hostname_lookup",
        "--hostname_lookup=1",
        "--hostname_lookup true",
    ] {
        let checked = checked(&format!("meros agent {line}"), &[]);
        assert_eq!(checked, accepted, "{line}");
    }
    let shown = checked("meros master", &[("MESOS_LOG_AUTO_INITIALIZE", "true")]);
    assert_eq!(shown, Ok(("meros master".to_owned(), Vec::new())));
    let refused = checked("meros master --no_hostname_lookup", &[]).unwrap_err();
    assert!(refused.contains("--hostname"), "{refused}");
}

#[test]
fn ineffective_settings_are_warned_of() {
    let environment = [
        ("MESOS_LOGBUFSECS", "0"),
        ("LIBPROCESS_IP", "10.0.0.1"),
        ("MESOS_SWICH_USER", "false"),
    ];
    let (line, warnings) = checked("meros agent --docker=docker --strict", &environment).unwrap();
    assert_eq!(line, "meros agent --strict");
    for (warning, name) in
        warnings
            .iter()
            .zip(["--docker", "LIBPROCESS_IP", "LOGBUFSECS", "SWICH_USER"])
    {
        assert!(warning.contains(name), "{warning}");
    }
    assert_eq!(warnings.len(), 4);
}

#[test]
fn foreign_variables_are_ignored() {
    let environment = [
        ("MESOS_SANDBOX", "/x"),
        ("MESOS_SLAVE_PID", "slave(1)@a:5051"),
        ("MESOS_HTTP_COMMAND_EXECUTOR", "0"),
        ("MESOS_QUORUM", "2"),
        ("MESOS_ZK", "zk://a/mesos"),
        ("MEROS_LOG", "info"),
    ];
    let expected = Ok(("meros agent".to_owned(), Vec::new()));
    assert_eq!(checked("meros agent", &environment), expected);
    let other = Ok(("meros --log info tasks --quorum".to_owned(), Vec::new()));
    assert_eq!(
        checked("meros --log info tasks --quorum", &environment),
        other
    );
    assert!(checked("meros --log info master", &environment).is_err());
}

#[test]
fn local_cluster_handles_its_services_settings() {
    let local = |name, value| checked("meros local", &[(name, value)]);
    assert_eq!(
        local("MESOS_NUM_SLAVES", "2").unwrap().0,
        "meros local --agents=2"
    );
    assert_contains!(local("MESOS_IP", "10.0.0.1").unwrap_err(), "this machine");
    assert_contains!(local("MESOS_CLUSTER", "x").unwrap_err(), "`meros master`");
    assert!(local("MESOS_STRICT", "true").unwrap().1.is_empty());
    assert_eq!(local("MESOS_MASTER", "a:1").unwrap().1.len(), 1);
}
