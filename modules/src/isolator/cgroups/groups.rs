//! The groups of this agent's containers, in all its trees. Every function blocks.
//!
//! A container has the directory `MOUNT/ROOT/ID` in each tree. In a unified tree that group has
//! the limits and the container init, and its child `processes` all other processes, so that
//! `cgroup.kill` ends them and leaves the init. The child has no controllers.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

use module_api::isolator::{ContainerConfig, ContainerResources, LaunchPlan, Limitation, Measured};
use nix::errno::Errno;
use nix::fcntl::{Flock, FlockArg};
use protocol::{ContainerId, ResourceStatistics, Uuid};
use runtime::Timestamp;

use super::bpf::DeviceProgram;
use super::controllers::mem::{self, MemoryFiles, MemoryNow};
use super::controllers::{Controller, Version, blkio, cpu, devices, pids, pressure, settings};
use super::files::{self, FileError, OpenFiles};
use super::hierarchy::{self, Hierarchy, Tree};
use super::oom::MemoryEvents;
use super::options::Options;

/// The child of a container's group with its processes.
const PROCESSES: &str = "processes";
/// The list of them.
const PROCESS_LIST: &str = "processes/cgroup.procs";

/// The hierarchies of this host at or below a folder.
pub fn hierarchies(below: &Path) -> io::Result<Vec<Hierarchy>> {
    let mountinfo = fs::read_to_string("/proc/self/mountinfo")?;
    let mut found = hierarchy::parse(&mountinfo, below);
    for hierarchy in &mut found {
        if hierarchy.version == Version::V2 {
            let names = files::read(&hierarchy.mount, "cgroup.controllers");
            hierarchy.controllers = names.split_whitespace().map(str::to_owned).collect();
            if DeviceProgram::load(&[]).is_ok() {
                let devices = Controller::Devices.name(Version::V2);
                hierarchy.controllers.push(devices.to_owned());
            }
            // Only the root of the whole tree has no type.
            hierarchy.is_occupied = hierarchy.mount.join("cgroup.type").exists()
                && !files::read(&hierarchy.mount, "cgroup.procs").is_empty();
        }
    }
    Ok(found)
}

/// The trees and the rules by which groups are made in them.
#[derive(Debug)]
pub struct Groups {
    trees: Vec<Tree>,
    options: Options,
    /// Bytes of memory of the host.
    host_memory: u64,
    measured: Mutex<OpenFiles>,
    /// The unified tree, if its groups have pressure files.
    pressure: Option<usize>,
    /// For the devices of containers in a unified tree.
    devices: Option<DeviceProgram>,
    /// Held as long as this agent uses its root.
    _lock: Flock<File>,
}

impl Groups {
    /// Makes the agent's root in each tree, marks it as one of Meros, and locks it. The error is
    /// for the operator.
    pub fn open(trees: Vec<Tree>, options: Options, host_memory: u64) -> Result<Self, String> {
        let roots = trees.iter().map(|tree| tree.mount.join(&options.root));
        if let Some(root) = roots.clone().find(|root| is_foreign(root)) {
            return Err(format!(
                "processes of another program, a Mesos agent perhaps, are below {}: give this \
                 agent a --cgroups_root of its own, or end them",
                root.display()
            ));
        }
        for (tree, root) in trees.iter().zip(roots) {
            make_root(tree, &options.root).map_err(|error| error.to_string())?;
            if let Err(error) = files::mark(&root) {
                let root = root.display();
                tracing::warn!(%root, %error, "cannot mark the control group of this agent, which \
                    will not start again while containers run");
            }
            if options.limit_swap && tree.controllers.contains(&Controller::Memory) {
                counts_swap(&tree.mount.join(&options.root))?;
            }
        }
        let first = trees
            .first()
            .ok_or("no hierarchy of control groups is used")?;
        let lock = lock(&first.mount.join(&options.root))?;
        let has_pressure =
            |tree: &Tree| tree.mount.join(&options.root).join("cpu.pressure").exists();
        let pressure = trees.iter().position(has_pressure);
        let is_wanted = trees.iter().any(limits_devices);
        let loaded = is_wanted.then(|| DeviceProgram::load(&options.allowed_devices));
        let devices = loaded.transpose();
        let devices = devices.map_err(|error| format!("cannot load a device program: {error}"))?;
        Ok(Self {
            trees,
            options,
            host_memory,
            measured: Mutex::new(OpenFiles::new()),
            pressure,
            devices,
            _lock: lock,
        })
    }

    fn dir(&self, tree: &Tree, container: &ContainerId) -> PathBuf {
        tree.mount.join(&self.options.root).join(container.as_str())
    }

    /// The version of the tree with this controller, and the container's group in it.
    fn find(&self, controller: Controller, container: &ContainerId) -> Option<(Version, PathBuf)> {
        let has_it = |tree: &&Tree| tree.controllers.contains(&controller);
        let tree = self.trees.iter().find(has_it)?;
        Some((tree.version, self.dir(tree, container)))
    }

    /// Makes the groups of a container, with its limits. None is left after an error.
    pub fn create(&self, config: &ContainerConfig) -> Result<LaunchPlan, FileError> {
        let made = self.try_create(config);
        if made.is_err()
            && let Err(error) = self.remove(&config.container_id)
        {
            let id = &config.container_id;
            tracing::warn!(container = %id, %error, "leaving a half-made control group");
        }
        made
    }

    fn try_create(&self, config: &ContainerConfig) -> Result<LaunchPlan, FileError> {
        let mut plan = LaunchPlan::default();
        for tree in &self.trees {
            let dir = self.dir(tree, &config.container_id);
            files::create(&dir)?;
            if needs_cpuset(tree) {
                files::inherit_cpuset(&dir)?;
            }
            // One that the operator does not allow is refused before it starts.
            if !config.wants_privileges() {
                self.limit_devices(tree, &dir)?;
            }
            self.apply(tree, &dir, &config.resources)?;
            if tree.version == Version::V2 {
                let processes = dir.join(PROCESSES);
                files::create(&processes)?;
                plan.process_cgroup = Some(processes);
            }
            plan.cgroups.push(dir);
        }
        // As in Mesos, where a custom executor keeps the score of the agent.
        if config.is_command && self.uses(Controller::Memory) {
            plan.oom_score_adj = mem::oom_score_adj(&config.resources, self.host_memory);
        }
        Ok(plan)
    }

    fn limit_devices(&self, tree: &Tree, dir: &Path) -> Result<(), FileError> {
        if !tree.controllers.contains(&Controller::Devices) {
            return Ok(());
        }
        match (tree.version, &self.devices) {
            (Version::V1, _) => {
                let settings = devices::whitelist(&self.options.allowed_devices);
                { settings.iter() }.try_for_each(|setting| files::write(dir, setting))
            }
            (Version::V2, Some(program)) => program.attach(dir),
            (Version::V2, None) => Ok(()),
        }
    }

    fn uses(&self, controller: Controller) -> bool {
        let mut trees = self.trees.iter();
        trees.any(|tree| tree.controllers.contains(&controller))
    }

    /// Writes all limits, also after one that cannot be written. Returns the first error.
    fn apply(
        &self,
        tree: &Tree,
        dir: &Path,
        resources: &ContainerResources,
    ) -> Result<(), FileError> {
        let memory = || {
            let (limit, used) = match tree.version {
                Version::V1 => ("memory.limit_in_bytes", "memory.usage_in_bytes"),
                Version::V2 => ("memory.max", "memory.current"),
            };
            MemoryNow::parse(&files::read(dir, limit), &files::read(dir, used))
        };
        let mut result = Ok(());
        for controller in &tree.controllers {
            let version = tree.version;
            for setting in settings(*controller, version, resources, &self.options, memory) {
                result = result.and(files::write(dir, &setting));
            }
        }
        result
    }

    /// Sets new limits. A container without groups, from before the operator chose this isolator,
    /// stays without limits.
    pub fn update(
        &self,
        container: &ContainerId,
        resources: &ContainerResources,
    ) -> Result<(), FileError> {
        let mut result = Ok(());
        for tree in &self.trees {
            let dir = self.dir(tree, container);
            if dir.is_dir() {
                result = result.and(self.apply(tree, &dir, resources));
            }
        }
        result
    }

    fn measured(&self) -> MutexGuard<'_, OpenFiles> {
        self.measured.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Measures containers. Those without groups are left out.
    pub fn measure(&self, containers: Vec<ContainerId>, now: Timestamp) -> Measured {
        let asked: BTreeSet<ContainerId> = containers.into_iter().collect();
        self.measured()
            .retain(|container| asked.contains(container));
        let measured = asked
            .into_iter()
            .filter_map(|container| Some((self.measure_one(&container, now)?, container)));
        measured
            .map(|(found, container)| (container, found))
            .collect()
    }

    fn measure_one(&self, container: &ContainerId, now: Timestamp) -> Option<ResourceStatistics> {
        let mut files = self.measured();
        let cpu_time = match self.find(Controller::Cpuacct, container) {
            Some((Version::V1, dir)) => files.read(container, &dir, "cpuacct.usage"),
            Some((Version::V2, dir)) => files.read(container, &dir, "cpu.stat"),
            None => String::new(),
        };
        if let Some(last) = files.unchanged(container, &cpu_time, now) {
            return Some(last);
        }
        let mut exists = !cpu_time.is_empty();
        let mut read = |dir: &Path, file| {
            let text = files.read(container, dir, file);
            exists |= !text.is_empty();
            text
        };
        let mut found = ResourceStatistics {
            timestamp: now,
            ..ResourceStatistics::default()
        };
        match self.find(Controller::Cpuacct, container) {
            Some((Version::V1, dir)) => {
                cpu::measure_time_v1(&cpu_time, &read(&dir, "cpuacct.stat"), &mut found);
            }
            Some((Version::V2, _)) => cpu::measure_time_v2(&cpu_time, &mut found),
            None => {}
        }
        if let Some((version, dir)) = self.find(Controller::Cpu, container) {
            // In v2 this file has the CPU time, too.
            let is_read = version == Version::V2 && !cpu_time.is_empty();
            let other = (!is_read).then(|| read(&dir, "cpu.stat"));
            cpu::measure_throttling(version, other.as_ref().unwrap_or(&cpu_time), &mut found);
        }
        if let Some((version, dir)) = self.find(Controller::Memory, container) {
            let (used, swap) = match version {
                Version::V1 => ("memory.usage_in_bytes", "memory.memsw.usage_in_bytes"),
                Version::V2 => ("memory.current", "memory.swap.current"),
            };
            let files = MemoryFiles {
                used: read(&dir, used),
                stat: read(&dir, "memory.stat"),
                swap: match self.options.limit_swap {
                    true => read(&dir, swap),
                    false => String::new(),
                },
            };
            mem::measure(version, &files, &mut found);
        }
        if let Some((version, dir)) = self.find(Controller::Pids, container) {
            let mut processes = vec![read(&dir, "cgroup.procs")];
            if version == Version::V2 {
                processes.push(read(&dir, PROCESS_LIST));
            }
            pids::measure(&processes, &read(&dir, "pids.current"), &mut found);
        }
        match self.find(Controller::Blkio, container) {
            Some((Version::V1, dir)) => {
                let bytes = read(&dir, "blkio.throttle.io_service_bytes");
                let requests = read(&dir, "blkio.throttle.io_serviced");
                blkio::measure_v1(&bytes, &requests, &mut found);
            }
            Some((Version::V2, dir)) => blkio::measure_v2(&read(&dir, "io.stat"), &mut found),
            None => {}
        }
        if let Some(tree) = self.pressure.and_then(|index| self.trees.get(index)) {
            let dir = self.dir(tree, container);
            [found.cpu_pressure, found.mem_pressure, found.io_pressure] =
                ["cpu.pressure", "memory.pressure", "io.pressure"]
                    .map(|file| pressure::parse(&read(&dir, file)));
            let is_counted = found.cpu_pressure.is_some();
            found.pressure_directory = is_counted.then(|| dir.to_string_lossy().into_owned());
        }
        if !exists {
            return None;
        }
        files.keep(container, cpu_time, &found);
        Some(found)
    }

    /// The limit of memory, if the container has exceeded it: if `event` was received, or by the
    /// kernel's counter. `None` also if its group is gone.
    pub fn limitation(&self, container: &ContainerId, event: bool) -> Option<Limitation> {
        let found = self.find(Controller::Memory, container);
        let (version, dir) = found.filter(|(_, dir)| dir.is_dir())?;
        let (events, limit, peak) = match version {
            Version::V1 => (
                "memory.oom_control",
                "memory.limit_in_bytes",
                "memory.max_usage_in_bytes",
            ),
            Version::V2 => ("memory.events", "memory.max", "memory.peak"),
        };
        let read = |file| files::read(&dir, file);
        let exceeded = match version {
            // The event precedes the kill that is counted.
            Version::V1 if event => true,
            _ => mem::was_killed(version, &read(events), &read("memory.failcnt")),
        };
        exceeded.then(|| mem::limitation(version, &read(limit), &read(peak), &read("memory.stat")))
    }

    /// Registers for the memory events of a container; `None` if it has no group.
    pub fn memory_events(
        &self,
        container: &ContainerId,
    ) -> Option<Result<MemoryEvents, FileError>> {
        let found = self.find(Controller::Memory, container);
        let (version, dir) = found.filter(|(_, dir)| dir.is_dir())?;
        Some(MemoryEvents::open(&dir, version))
    }

    /// The containers with a group in any tree. Their names are UUIDs, with dots between them if
    /// they are nested; other groups may be the roots of other agents.
    pub fn list(&self) -> BTreeSet<ContainerId> {
        let (mut found, mut others) = (BTreeSet::new(), BTreeSet::new());
        for tree in &self.trees {
            for dir in files::children(&tree.mount.join(&self.options.root)) {
                let name = dir.file_name().and_then(|name| name.to_str());
                let is_id = |name: &&str| name.split('.').all(|part| Uuid::parse(part).is_some());
                let id = name
                    .filter(is_id)
                    .and_then(|name| ContainerId::new(name).ok());
                match id {
                    Some(id) => _ = found.insert(id),
                    None => _ = others.insert(dir),
                }
            }
        }
        if !others.is_empty() {
            tracing::warn!(?others, "control groups of no container are left alone");
        }
        found
    }

    /// Kills all processes of a container.
    pub fn kill(&self, container: &ContainerId) {
        for tree in &self.trees {
            files::kill_all(&self.dir(tree, container));
        }
    }

    /// Removes the groups of a container; fine if they are gone.
    pub fn remove(&self, container: &ContainerId) -> Result<(), FileError> {
        self.measured().retain(|other| other != container);
        let trees = self.trees.iter();
        let removed = trees.map(|tree| files::remove(&self.dir(tree, container)));
        removed.fold(Ok(()), Result::and)
    }

    /// The operator's flags.
    pub fn options(&self) -> &Options {
        &self.options
    }
}

fn needs_cpuset(tree: &Tree) -> bool {
    tree.version == Version::V1 && tree.controllers.contains(&Controller::Cpuset)
}

/// Whether a program of ours limits the devices.
fn limits_devices(tree: &Tree) -> bool {
    tree.version == Version::V2 && tree.controllers.contains(&Controller::Devices)
}

/// Whether this is a group of another program, with processes below it. One without processes may
/// be taken over.
fn is_foreign(root: &Path) -> bool {
    let groups = files::children(root);
    !files::is_marked(root) && groups.iter().any(|dir| files::is_populated(dir))
}

/// Makes the agent's root in a tree, with the controllers of its children enabled.
fn make_root(tree: &Tree, root: &Path) -> Result<(), FileError> {
    let names: BTreeSet<&str> = match tree.version {
        Version::V1 => BTreeSet::new(),
        Version::V2 => {
            let mut controllers = tree.controllers.clone();
            controllers.retain(|controller| *controller != Controller::Devices);
            let names = controllers.into_iter();
            names
                .map(|controller| controller.name(Version::V2))
                .collect()
        }
    };
    let names: Vec<&str> = names.into_iter().collect();
    let mut dir = tree.mount.clone();
    files::enable(&dir, &names)?;
    for part in root {
        dir.push(part);
        files::create(&dir)?;
        files::enable(&dir, &names)?;
        if needs_cpuset(tree) {
            files::inherit_cpuset(&dir)?;
        }
    }
    Ok(())
}

/// Checks that the kernel can limit swap.
fn counts_swap(root: &Path) -> Result<(), String> {
    let mut files = ["memory.memsw.limit_in_bytes", "memory.swap.max"].iter();
    match files.any(|file| root.join(file).exists()) {
        true => Ok(()),
        false => Err(
            "the kernel does not count swap: boot it with `swapaccount=1`, or remove \
             --cgroups_limit_swap"
                .to_owned(),
        ),
    }
}

/// Locks the root of an agent against a second one.
fn lock(dir: &Path) -> Result<Flock<File>, String> {
    let file =
        File::open(dir).map_err(|error| format!("cannot open {}: {error}", dir.display()))?;
    Flock::lock(file, FlockArg::LockExclusiveNonblock).map_err(|(_, error)| match error {
        Errno::EWOULDBLOCK => format!(
            "another agent uses {}: give each agent of this host a --cgroups_root of its own",
            dir.display()
        ),
        _ => format!("cannot lock {}: {error}", dir.display()),
    })
}
