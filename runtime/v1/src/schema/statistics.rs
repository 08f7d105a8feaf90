//! Resource usage of containers.
//!
//! Network counters are those of the kernel (`/proc/net/snmp`), with its names.

#![allow(non_snake_case, reason = "the fields are called as on the wire")]

use crate::message::messages;
use crate::schema::{
    CgroupInfoBlkioStatistics, ContainerID, ExecutorInfo, Labels, Resource,
    ResourceDiskInfoPersistence, ResourceDiskInfoSource, TaskID, ValueRange,
};

messages! {
    /// Usage of an agent's executors.
    ResourceUsage {
        1 executors: Vec<ResourceUsageExecutor>,
        /// All resources of the agent.
        2 total: Vec<Resource>,
    }

    /// An executor and its usage.
    ResourceUsageExecutor {
        1 executor_info: ExecutorInfo,
        2 allocated: Vec<Resource>,
        3 statistics: Option<Box<ResourceStatistics>>,
        4 container_id: ContainerID,
        5 tasks: Vec<ResourceUsageExecutorTask>,
        /// How it is throttled now. Specific to Meros: clients of Mesos skip it.
        1000 throttle: Option<ResourceUsageExecutorThrottle>,
        /// The measured objectives of its tasks. Specific to Meros, too.
        1001 objectives: Vec<ResourceUsageExecutorObjective>,
    }

    /// An objective of a task, and the newest value of it.
    ResourceUsageExecutorObjective {
        /// As in the label `meros.sla`.
        1 objective: String,
        /// In the unit of the objective.
        2 value: f64,
        /// In seconds since 1970-01-01 UTC.
        3 timestamp: f64,
    }

    /// What a throttled container may use, in thousandths. An absent field is not throttled.
    ResourceUsageExecutorThrottle {
        /// Of its requested CPUs.
        1 cpu: Option<u32>,
        /// Of its limit of memory.
        2 memory: Option<u32>,
        /// Of its weight for input and output.
        3 io: Option<u32>,
    }

    /// A task of the executor.
    ResourceUsageExecutorTask {
        1 name: String,
        2 id: TaskID,
        3 resources: Vec<Resource>,
        4 labels: Option<Labels>,
    }

    /// Usage of a container, counted since its start.
    ResourceStatistics {
        /// In seconds since 1970-01-01 UTC.
        1 timestamp: f64,
        2 cpus_user_time_secs: Option<f64>,
        3 cpus_system_time_secs: Option<f64>,
        /// Its CPU limit.
        4 cpus_limit: Option<f64>,
        5 mem_rss_bytes: Option<u64>,
        6 mem_limit_bytes: Option<u64>,
        /// Number of scheduler periods in which it was runnable.
        7 cpus_nr_periods: Option<u32>,
        /// Number of these in which it was throttled.
        8 cpus_nr_throttled: Option<u32>,
        9 cpus_throttled_time_secs: Option<f64>,
        10 mem_file_bytes: Option<u64>,
        11 mem_anon_bytes: Option<u64>,
        12 mem_mapped_file_bytes: Option<u64>,
        13 perf: Option<Box<PerfStatistics>>,
        14 net_rx_packets: Option<u64>,
        15 net_rx_bytes: Option<u64>,
        16 net_rx_errors: Option<u64>,
        17 net_rx_dropped: Option<u64>,
        18 net_tx_packets: Option<u64>,
        19 net_tx_bytes: Option<u64>,
        20 net_tx_errors: Option<u64>,
        21 net_tx_dropped: Option<u64>,
        22 net_tcp_rtt_microsecs_p50: Option<f64>,
        23 net_tcp_rtt_microsecs_p90: Option<f64>,
        24 net_tcp_rtt_microsecs_p95: Option<f64>,
        25 net_tcp_rtt_microsecs_p99: Option<f64>,
        26 disk_limit_bytes: Option<u64>,
        27 disk_used_bytes: Option<u64>,
        28 net_tcp_active_connections: Option<f64>,
        29 net_tcp_time_wait_connections: Option<f64>,
        30 processes: Option<u32>,
        31 threads: Option<u32>,
        /// Number of events of low memory pressure.
        32 mem_low_pressure_counter: Option<u64>,
        33 mem_medium_pressure_counter: Option<u64>,
        34 mem_critical_pressure_counter: Option<u64>,
        35 net_traffic_control_statistics: Vec<TrafficControlStatistics>,
        36 mem_total_bytes: Option<u64>,
        37 mem_total_memsw_bytes: Option<u64>,
        38 mem_soft_limit_bytes: Option<u64>,
        39 mem_cache_bytes: Option<u64>,
        40 mem_swap_bytes: Option<u64>,
        41 mem_unevictable_bytes: Option<u64>,
        42 net_snmp_statistics: Option<SNMPStatistics>,
        43 disk_statistics: Vec<DiskStatistics>,
        44 blkio_statistics: Option<Box<CgroupInfoBlkioStatistics>>,
        45 cpus_soft_limit: Option<f64>,
        46 net_tx_rate_limit: Option<u64>,
        47 net_tx_burst_rate_limit: Option<u64>,
        48 net_tx_burst_size: Option<u64>,
        49 net_rx_rate_limit: Option<u64>,
        50 net_rx_burst_rate_limit: Option<u64>,
        51 net_rx_burst_size: Option<u64>,
        52 mem_kmem_usage_bytes: Option<u64>,
        53 mem_kmem_tcp_usage_bytes: Option<u64>,
        54 net_rate_statistics: Option<Box<ResourceStatisticsRateStatistics>>,
        55 net_ephemeral_ports: Option<ValueRange>,
        /// Specific to Meros, as the next two: clients of Mesos skip them.
        1000 cpu_pressure: Option<PressureStatistics>,
        1001 mem_pressure: Option<PressureStatistics>,
        1002 io_pressure: Option<PressureStatistics>,
    }

    /// For how long processes have waited for a resource, specific to Meros.
    PressureStatistics {
        /// At least one of them.
        1 some_secs: Option<f64>,
        /// All that could have run.
        2 full_secs: Option<f64>,
    }

    /// Distribution of a rate.
    ResourceStatisticsRatePercentiles {
        1 min: Option<u64>,
        2 max: Option<u64>,
        3 p50: Option<u64>,
        4 p90: Option<u64>,
        5 p95: Option<u64>,
        6 p99: Option<u64>,
        7 p999: Option<u64>,
        8 p9999: Option<u64>,
        9 samples: Option<u64>,
    }

    /// Rates of receiving and sending.
    ResourceStatisticsRateStatistics {
        1 rx_rate: Option<Box<ResourceStatisticsRatePercentiles>>,
        2 rx_packet_rate: Option<Box<ResourceStatisticsRatePercentiles>>,
        3 rx_drop_rate: Option<Box<ResourceStatisticsRatePercentiles>>,
        4 rx_error_rate: Option<Box<ResourceStatisticsRatePercentiles>>,
        5 tx_rate: Option<Box<ResourceStatisticsRatePercentiles>>,
        6 tx_packet_rate: Option<Box<ResourceStatisticsRatePercentiles>>,
        7 tx_drop_rate: Option<Box<ResourceStatisticsRatePercentiles>>,
        8 tx_error_rate: Option<Box<ResourceStatisticsRatePercentiles>>,
        9 sampling_window_secs: Option<f64>,
        10 sampling_interval_secs: Option<f64>,
    }

    /// Usage of a disk.
    DiskStatistics {
        1 source: Option<Box<ResourceDiskInfoSource>>,
        2 persistence: Option<ResourceDiskInfoPersistence>,
        3 limit_bytes: Option<u64>,
        4 used_bytes: Option<u64>,
    }

    /// Counters of a network queue.
    TrafficControlStatistics {
        1 id: String,
        2 backlog: Option<u64>,
        3 bytes: Option<u64>,
        4 drops: Option<u64>,
        5 overlimits: Option<u64>,
        6 packets: Option<u64>,
        7 qlen: Option<u64>,
        8 ratebps: Option<u64>,
        9 ratepps: Option<u64>,
        10 requeues: Option<u64>,
    }

    /// Kernel counters of the network.
    SNMPStatistics {
        1 ip_stats: Option<Box<IpStatistics>>,
        2 icmp_stats: Option<Box<IcmpStatistics>>,
        3 tcp_stats: Option<Box<TcpStatistics>>,
        4 udp_stats: Option<Box<UdpStatistics>>,
    }

    /// Kernel counters of IP.
    IpStatistics {
        1 Forwarding: Option<i64>,
        2 DefaultTTL: Option<i64>,
        3 InReceives: Option<i64>,
        4 InHdrErrors: Option<i64>,
        5 InAddrErrors: Option<i64>,
        6 ForwDatagrams: Option<i64>,
        7 InUnknownProtos: Option<i64>,
        8 InDiscards: Option<i64>,
        9 InDelivers: Option<i64>,
        10 OutRequests: Option<i64>,
        11 OutDiscards: Option<i64>,
        12 OutNoRoutes: Option<i64>,
        13 ReasmTimeout: Option<i64>,
        14 ReasmReqds: Option<i64>,
        15 ReasmOKs: Option<i64>,
        16 ReasmFails: Option<i64>,
        17 FragOKs: Option<i64>,
        18 FragFails: Option<i64>,
        19 FragCreates: Option<i64>,
    }

    /// Kernel counters of ICMP.
    IcmpStatistics {
        1 InMsgs: Option<i64>,
        2 InErrors: Option<i64>,
        3 InCsumErrors: Option<i64>,
        4 InDestUnreachs: Option<i64>,
        5 InTimeExcds: Option<i64>,
        6 InParmProbs: Option<i64>,
        7 InSrcQuenchs: Option<i64>,
        8 InRedirects: Option<i64>,
        9 InEchos: Option<i64>,
        10 InEchoReps: Option<i64>,
        11 InTimestamps: Option<i64>,
        12 InTimestampReps: Option<i64>,
        13 InAddrMasks: Option<i64>,
        14 InAddrMaskReps: Option<i64>,
        15 OutMsgs: Option<i64>,
        16 OutErrors: Option<i64>,
        17 OutDestUnreachs: Option<i64>,
        18 OutTimeExcds: Option<i64>,
        19 OutParmProbs: Option<i64>,
        20 OutSrcQuenchs: Option<i64>,
        21 OutRedirects: Option<i64>,
        22 OutEchos: Option<i64>,
        23 OutEchoReps: Option<i64>,
        24 OutTimestamps: Option<i64>,
        25 OutTimestampReps: Option<i64>,
        26 OutAddrMasks: Option<i64>,
        27 OutAddrMaskReps: Option<i64>,
    }

    /// Kernel counters of TCP.
    TcpStatistics {
        1 RtoAlgorithm: Option<i64>,
        2 RtoMin: Option<i64>,
        3 RtoMax: Option<i64>,
        4 MaxConn: Option<i64>,
        5 ActiveOpens: Option<i64>,
        6 PassiveOpens: Option<i64>,
        7 AttemptFails: Option<i64>,
        8 EstabResets: Option<i64>,
        9 CurrEstab: Option<i64>,
        10 InSegs: Option<i64>,
        11 OutSegs: Option<i64>,
        12 RetransSegs: Option<i64>,
        13 InErrs: Option<i64>,
        14 OutRsts: Option<i64>,
        15 InCsumErrors: Option<i64>,
    }

    /// Kernel counters of UDP.
    UdpStatistics {
        1 InDatagrams: Option<i64>,
        2 NoPorts: Option<i64>,
        3 InErrors: Option<i64>,
        4 OutDatagrams: Option<i64>,
        5 RcvbufErrors: Option<i64>,
        6 SndbufErrors: Option<i64>,
        7 InCsumErrors: Option<i64>,
        8 IgnoredMulti: Option<i64>,
    }

    /// Counters of `perf`.
    PerfStatistics {
        /// Start of the sample, in seconds since 1970-01-01 UTC.
        1 timestamp: f64,
        /// Length of the sample, in seconds.
        2 duration: f64,
        3 cycles: Option<u64>,
        4 stalled_cycles_frontend: Option<u64>,
        5 stalled_cycles_backend: Option<u64>,
        6 instructions: Option<u64>,
        7 cache_references: Option<u64>,
        8 cache_misses: Option<u64>,
        9 branches: Option<u64>,
        10 branch_misses: Option<u64>,
        11 bus_cycles: Option<u64>,
        12 ref_cycles: Option<u64>,
        13 cpu_clock: Option<f64>,
        14 task_clock: Option<f64>,
        15 page_faults: Option<u64>,
        16 minor_faults: Option<u64>,
        17 major_faults: Option<u64>,
        18 context_switches: Option<u64>,
        19 cpu_migrations: Option<u64>,
        20 alignment_faults: Option<u64>,
        21 emulation_faults: Option<u64>,
        22 l1_dcache_loads: Option<u64>,
        23 l1_dcache_load_misses: Option<u64>,
        24 l1_dcache_stores: Option<u64>,
        25 l1_dcache_store_misses: Option<u64>,
        26 l1_dcache_prefetches: Option<u64>,
        27 l1_dcache_prefetch_misses: Option<u64>,
        28 l1_icache_loads: Option<u64>,
        29 l1_icache_load_misses: Option<u64>,
        30 l1_icache_prefetches: Option<u64>,
        31 l1_icache_prefetch_misses: Option<u64>,
        32 llc_loads: Option<u64>,
        33 llc_load_misses: Option<u64>,
        34 llc_stores: Option<u64>,
        35 llc_store_misses: Option<u64>,
        36 llc_prefetches: Option<u64>,
        37 llc_prefetch_misses: Option<u64>,
        38 dtlb_loads: Option<u64>,
        39 dtlb_load_misses: Option<u64>,
        40 dtlb_stores: Option<u64>,
        41 dtlb_store_misses: Option<u64>,
        42 dtlb_prefetches: Option<u64>,
        43 dtlb_prefetch_misses: Option<u64>,
        44 itlb_loads: Option<u64>,
        45 itlb_load_misses: Option<u64>,
        46 branch_loads: Option<u64>,
        47 branch_load_misses: Option<u64>,
        48 node_loads: Option<u64>,
        49 node_load_misses: Option<u64>,
        50 node_stores: Option<u64>,
        51 node_store_misses: Option<u64>,
        52 node_prefetches: Option<u64>,
        53 node_prefetch_misses: Option<u64>,
    }
}
