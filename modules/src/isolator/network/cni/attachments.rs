//! The networks of containers: namespaces, plugins' additions and deletions, and their records.
//! Every function blocks.
//!
//! A container with a network of its own has the directory `WORK_DIR/networks/ID`:
//!
//! | file | content |
//! |---|---|
//! | `ns` | the namespace, mounted |
//! | `networks.json` | the plugins' configurations, written before their calls, and their results, after a checksum |
//! | `hosts`, `hostname`, `resolv.conf` | files that the container sees in `/etc` |
//! | `lock` | locked while an agent works on it, or a plugin that outlives its agent |
//!
//! It is removed when all plugins have deleted their additions. Without it nothing is left.

use std::fmt::Display;
use std::fs::{self, File, OpenOptions, Permissions, TryLockError};
use std::io::{self, Write};
use std::net::IpAddr;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use module_api::isolator::{ContainerConfig, ContainerNetwork};
use nix::poll::{PollTimeout, poll};
use protocol::task::network::NetworkInfo;
use protocol::{ContainerId, Uuid};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use storage::record;

use super::config::{self, NetworkConfig, Object, keeps_result};
use super::plugin::{self, Call, LIMIT};
use super::{Options, namespace, requests, result};

const NAMESPACE: &str = "ns";
const RECORD: &str = "networks.json";
const HOSTS: &str = "hosts";
const HOSTNAME: &str = "hostname";
const RESOLV_CONF: &str = "resolv.conf";
const LOCK: &str = "lock";
/// Pause between two tries to lock, in milliseconds.
const LOCK_PAUSE: u16 = 50;

/// A network that a container joins.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct Attachment {
    network: NetworkInfo,
    /// The interface in the container.
    interface: String,
    /// The configurations of the plugins, in the order of their addition.
    plugins: Vec<Object>,
    /// The result of the last addition, when all are done.
    result: Option<Value>,
}

impl Attachment {
    fn addresses(&self) -> Vec<IpAddr> {
        self.result
            .as_ref()
            .map(result::addresses)
            .unwrap_or_default()
    }
}

/// The networks of all containers of an agent.
#[derive(Debug)]
pub(super) struct Networks {
    options: Options,
    /// Held while the directory of all containers comes or goes.
    root: Mutex<()>,
}

/// The directory of a container, locked.
struct Home {
    path: PathBuf,
    lock: File,
}

impl Home {
    fn file(&self, name: &str) -> PathBuf {
        self.path.join(name)
    }

    /// Waits for another user of the directory: one that takes longer than a plugin may hangs.
    fn lock(path: PathBuf) -> io::Result<Self> {
        let mut options = OpenOptions::new();
        options.read(true).write(true).create(true).truncate(false);
        let lock = options.open(path.join(LOCK))?;
        for _ in 0..LIMIT.as_millis() / u128::from(LOCK_PAUSE) {
            match lock.try_lock() {
                Err(TryLockError::WouldBlock) => {
                    let _ = poll(&mut [], PollTimeout::from(LOCK_PAUSE)); // Too early is fine.
                }
                Err(TryLockError::Error(error)) => return Err(error),
                Ok(()) => break,
            }
        }
        Ok(Self { path, lock })
    }

    fn write_record(&self, attachments: &[Attachment]) -> io::Result<()> {
        let (path, new) = (self.file(RECORD), self.file("networks.json.new"));
        let mut file = File::create(&new)?;
        let text = serde_json::to_vec(attachments)?;
        file.write_all(&record::seal(RECORD.as_bytes(), 0, &text))?;
        // After a reboot it tells which addresses are to be freed.
        file.sync_all()?;
        fs::rename(new, path)
    }
}

/// The networks that a container may have; none if its record was not written. Fails if the record
/// is damaged.
fn record_in(home: &Path) -> Result<Vec<Attachment>, String> {
    let path = home.join(RECORD);
    let damaged = |error: &dyn Display| format!("`{}`: {error}", path.display());
    let bytes = match fs::read(&path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        read => read.map_err(|error| damaged(&error))?,
    };
    let opened = record::open(RECORD.as_bytes(), &bytes).map_err(|error| damaged(&error))?;
    serde_json::from_slice(opened.value).map_err(|error| damaged(&error))
}

/// The network of a container as it was recorded.
fn network_in(home: &Path, attachments: &[Attachment]) -> ContainerNetwork {
    let files = [HOSTS, HOSTNAME, RESOLV_CONF].map(|name| home.join(name));
    let joined = attachments.iter().map(|one| NetworkInfo {
        addresses: one.addresses().iter().map(result::in_status).collect(),
        ..one.network.clone()
    });
    ContainerNetwork {
        namespace: home.join(NAMESPACE),
        files: files.into_iter().filter(|path| path.exists()).collect(),
        joined: joined.collect(),
    }
}

impl Networks {
    pub(super) fn new(options: Options) -> Self {
        Self {
            options,
            root: Mutex::default(),
        }
    }

    fn home(&self, id: &ContainerId) -> PathBuf {
        self.options.root.join(id.as_str())
    }

    /// The file on which the namespace of a container is mounted.
    pub(super) fn namespace(&self, id: &ContainerId) -> PathBuf {
        self.home(id).join(NAMESPACE)
    }

    /// Whether a container has a network, or the remains of one.
    pub(super) fn has(&self, id: &ContainerId) -> bool {
        self.home(id).exists()
    }

    /// Makes the directory of a container.
    fn enter(&self, id: &ContainerId) -> io::Result<Home> {
        let home = self.home(id);
        {
            let _guard = self.root.lock().unwrap_or_else(PoisonError::into_inner);
            fs::create_dir_all(&self.options.root)?;
            namespace::share_mounts(&self.options.root)?;
            fs::create_dir_all(&home)?;
        }
        Home::lock(home)
    }

    /// Removes the directory of a container, and that of all if it was the last.
    fn leave(&self, home: &Home) -> io::Result<()> {
        namespace::unmount(&home.file(NAMESPACE))?;
        let _guard = self.root.lock().unwrap_or_else(PoisonError::into_inner);
        fs::remove_dir_all(&home.path)?;
        self.unmount_if_empty()
    }

    fn unmount_if_empty(&self) -> io::Result<()> {
        let root = &self.options.root;
        if fs::read_dir(root).is_ok_and(|mut entries| entries.next().is_none()) {
            namespace::unmount(root)?;
            fs::remove_dir(root)?;
        }
        Ok(())
    }

    /// Makes the network of a container; `None` if it uses that of the host. Nothing is left after
    /// an error. `is_wanted` is asked when nobody else works on the container.
    pub(super) fn attach(
        &self,
        config: &ContainerConfig,
        is_wanted: impl FnOnce() -> bool,
    ) -> Result<Option<ContainerNetwork>, String> {
        let bridge = self.options.bridge.as_deref();
        let Some(networks) = requests::wanted(config.container.as_deref(), bridge)? else {
            return Ok(None);
        };
        requests::check_ports(&networks, &config.resources.requests.ports())?;
        let attachments = networks.into_iter().enumerate().map(|(index, network)| {
            let directory = self.options.config_dir.as_deref();
            let found = config::find(directory, &network.name)?;
            let plugins = found.for_container(&network)?;
            for plugin in &plugins {
                plugin::find(&self.options.plugins_dir, plugin)?;
            }
            Ok(Attachment {
                network,
                interface: format!("eth{index}"),
                plugins,
                result: None,
            })
        });
        let attachments = attachments.collect::<Result<Vec<_>, String>>()?;
        let id = &config.container_id;
        let cannot = |error: io::Error| format!("cannot make the network of a container: {error}");
        let mut home = self.enter(id).map_err(cannot)?;
        let made = match is_wanted() {
            true => self.make(&mut home, config, attachments),
            false => Err("the container has ended".to_owned()),
        };
        if made.is_err()
            && let Err(problem) = self.unmake(id, &mut home)
        {
            // The next start of the agent tries again.
            tracing::error!(container = %id, problem, "leaving a half-made network");
        }
        made.map(Some)
    }

    fn make(
        &self,
        home: &mut Home,
        config: &ContainerConfig,
        mut attachments: Vec<Attachment>,
    ) -> Result<ContainerNetwork, String> {
        let cannot = |what: &'static str| move |error: io::Error| format!("cannot {what}: {error}");
        namespace::make(&home.file(NAMESPACE)).map_err(cannot("make a network namespace"))?;
        let record = cannot("record the networks of a container");
        home.write_record(&attachments).map_err(record)?;
        for index in 0..attachments.len() {
            let attachment = &attachments[index];
            let result = self.add(&config.container_id, home, attachment)?;
            self.limit_egress(&home.file(NAMESPACE), &attachment.interface)?;
            attachments[index].result = Some(result);
            let record = cannot("record the networks of a container");
            home.write_record(&attachments).map_err(record)?;
        }
        let hostname = hostname(config);
        let addresses: Vec<IpAddr> = attachments.iter().flat_map(Attachment::addresses).collect();
        let results = attachments.iter().filter_map(|one| one.result.as_ref());
        let mut files = vec![
            (HOSTS, result::hosts(&hostname, &addresses)),
            (HOSTNAME, hostname),
        ];
        files.extend(result::resolv_conf(results).map(|text| (RESOLV_CONF, text)));
        for (name, text) in files {
            let path = home.file(name);
            let written = fs::write(&path, text);
            // For each user in the container, whatever the umask of the agent.
            let readable =
                written.and_then(|()| fs::set_permissions(&path, Permissions::from_mode(0o644)));
            readable.map_err(cannot("write a file of a container"))?;
        }
        Ok(network_in(&home.path, &attachments))
    }

    /// Also if a plugin has set a limit of its own.
    fn limit_egress(&self, namespace: &Path, interface: &str) -> Result<(), String> {
        let Some(rate) = self.options.egress_rate else {
            return Ok(());
        };
        let limited = namespace::limit_egress(namespace, interface, rate);
        limited.map_err(|error| {
            format!("cannot limit what `{interface}` sends (the kernel needs `sch_tbf`): {error}")
        })
    }

    /// Calls all plugins of a network. Returns the last result.
    fn add(
        &self,
        id: &ContainerId,
        home: &mut Home,
        attachment: &Attachment,
    ) -> Result<Value, String> {
        let namespace = home.file(NAMESPACE);
        let call = Call {
            command: "ADD",
            container: id.as_str(),
            namespace: Some(&namespace),
            interface: &attachment.interface,
        };
        let mut last = Value::Null;
        for plugin in &attachment.plugins {
            let mut plugin = plugin.clone();
            if !last.is_null() {
                plugin.insert("prevResult".to_owned(), last);
            }
            let done = plugin::run(&self.options.plugins_dir, &plugin, call, &mut home.lock);
            last = done.map_err(|failure| {
                let (program, problem) = (failure.program.display(), failure.problem);
                let name = &attachment.network.name;
                format!("The CNI plugin '{program}' failed to attach container {id} to CNI network '{name}': {problem}")
            })?;
        }
        Ok(last)
    }

    /// Removes the network of a container; fine if it has none.
    pub(super) fn detach(&self, id: &ContainerId) -> Result<(), String> {
        if !self.has(id) {
            return Ok(());
        }
        let home = Home::lock(self.home(id));
        let mut home = home.map_err(|error| format!("cannot lock its network: {error}"))?;
        self.unmake(id, &mut home)
    }

    fn unmake(&self, id: &ContainerId, home: &mut Home) -> Result<(), String> {
        // Removed while this waited for the lock.
        if !home.path.exists() {
            return Ok(());
        }
        let namespace = Some(home.file(NAMESPACE)).filter(|path| namespace::is_mounted(path));
        let mut problems = Vec::new();
        let (attachments, is_known) = match record_in(&home.path) {
            Ok(recorded) => (recorded, true),
            Err(problem) => {
                tracing::error!(container = %id, problem, "damaged record of its networks: \
                    deleting it from all networks of --network_cni_config_dir");
                (self.possible_attachments(), false)
            }
        };
        for attachment in attachments.iter().rev() {
            let call = Call {
                command: "DEL",
                container: id.as_str(),
                namespace: namespace.as_deref(),
                interface: &attachment.interface,
            };
            for plugin in attachment.plugins.iter().rev() {
                let mut plugin = plugin.clone();
                let result = attachment.result.as_ref();
                if let Some(result) = result.filter(|_| keeps_result(&plugin)) {
                    plugin.insert("prevResult".to_owned(), result.clone());
                }
                let done = plugin::run(&self.options.plugins_dir, &plugin, call, &mut home.lock);
                if let Err(failure) = done {
                    let (program, problem) = (failure.program.display(), failure.problem);
                    let name = &attachment.network.name;
                    problems.push(format!("The CNI plugin '{program}' failed to detach container {id} from CNI network '{name}': {problem}"));
                }
            }
        }
        match problems.is_empty() {
            true => {}
            false if is_known => return Err(problems.join("\n")),
            // It may never have been in that network.
            false => tracing::warn!(container = %id, ?problems, "not deleted from all networks"),
        }
        let left = self.leave(home);
        left.map_err(|error| format!("cannot remove the network of a container: {error}"))
    }

    /// All networks with all interfaces that a container may have in them.
    fn possible_attachments(&self) -> Vec<Attachment> {
        let directory = self.options.config_dir.as_deref();
        let all = directory.map_or_else(|| Ok(Vec::new()), config::all);
        let all = all.unwrap_or_else(|problem| {
            tracing::error!(problem, "the networks of a container are not known");
            Vec::new()
        });
        let interfaces = 0..all.len();
        let of = |config: &NetworkConfig| {
            let network = NetworkInfo {
                name: config.name.clone(),
                ..NetworkInfo::default()
            };
            let plugins = config.for_container(&network).ok()?;
            Some(interfaces.clone().map(move |index| Attachment {
                network: network.clone(),
                interface: format!("eth{index}"),
                plugins: plugins.clone(),
                result: None,
            }))
        };
        all.iter().filter_map(of).flatten().collect()
    }

    /// The containers that have a directory, with their networks. Those whose network was not made
    /// to its end have none.
    pub(super) fn list(&self) -> Vec<(ContainerId, Option<ContainerNetwork>)> {
        let entries = fs::read_dir(&self.options.root).into_iter().flatten();
        let names = entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
        // Those of nested containers have dots between them.
        let is_id = |name: &String| name.split('.').all(|part| Uuid::parse(part).is_some());
        let ids = names
            .filter(is_id)
            .filter_map(|name| ContainerId::new(name).ok());
        let network = |id: ContainerId| {
            let home = self.home(&id);
            let record = record_in(&home).inspect_err(|problem| {
                tracing::error!(container = %id, problem, "damaged record of its networks: its \
                    addresses are not known");
            });
            let record = record.ok().filter(|_| home.join(RECORD).exists());
            let record = record.filter(|all| all.iter().all(|one| one.result.is_some()));
            let record = record.filter(|_| namespace::is_mounted(&home.join(NAMESPACE)));
            (id, record.map(|record| network_in(&home, &record)))
        };
        let found = ids.map(network).collect();
        // Left by an agent that was killed at the right moment.
        let _guard = self.root.lock().unwrap_or_else(PoisonError::into_inner);
        if self.options.root.exists()
            && let Err(error) = self.unmount_if_empty()
        {
            tracing::warn!(%error, "cannot remove the directory of networks");
        }
        found
    }
}

/// The host name of a container with a network of its own.
pub(super) fn hostname(config: &ContainerConfig) -> String {
    let chosen = config.container.as_ref();
    let chosen = chosen.and_then(|container| container.hostname.clone());
    // Of a nested container's id only its own part: the kernel takes 64 bytes.
    let own = config.container_id.as_str();
    let own = Path::new(own)
        .extension()
        .and_then(|part| part.to_str())
        .unwrap_or(own);
    chosen.unwrap_or_else(|| own.to_owned())
}
