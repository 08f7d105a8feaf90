//! Checkpoint records: their keys and encoding.
//!
//! Pure. Each record starts with [`FORM`], which must change with any change of layout: there is no
//! schema evolution, and unreadable records are listed. Records too large for one value of the
//! store are split.

use std::borrow::Cow;
use std::collections::BTreeMap;

use protocol::{
    AgentInfo, ContainerId, ExecutorInfo, FrameworkInfo, StatusUpdate, TaskId, TaskInfo, TaskState,
    Uuid,
};
use runtime::wire::codec::{self, Garbled};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

/// The first byte of each record: the format version.
pub const FORM: u8 = 7;
/// Digits of a piece number.
const PIECE_DIGITS: usize = 6;

/// The agent's description and the boot id at the time of writing.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct AgentRecord {
    /// Includes its id.
    pub info: AgentInfo,
    /// The machine's boot id.
    pub boot: String,
}

/// A container. Written before its executor is started.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ContainerRecord {
    /// Its framework, with id.
    pub framework: FrameworkInfo,
    /// Its executor.
    pub executor: ExecutorInfo,
    /// Whether it runs a command without an executor of the framework.
    pub is_command: bool,
    /// The secret with which its executor subscribes.
    pub token: String,
}

/// A task's state. Written with each update, before the update is sent.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct StateRecord {
    /// Its newest state.
    pub state: TaskState,
    /// UUIDs of the newest updates received, to detect repeated ones.
    pub given: Vec<Uuid>,
    /// Whether its newest update has the label of a throttled container.
    pub is_throttled: bool,
}

impl Default for StateRecord {
    fn default() -> Self {
        Self {
            state: TaskState::Staging,
            given: Vec::new(),
            is_throttled: false,
        }
    }
}

/// The key of a record.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Key {
    /// The agent.
    Agent,
    /// A container.
    Container(ContainerId),
    /// A task's description.
    Task(ContainerId, TaskId),
    /// A task's state.
    State(ContainerId, TaskId),
    /// An unacknowledged update, numbered in order of arrival.
    Update(u64),
}

impl Key {
    /// The key in the store, without a piece number. Ids contain no slash.
    pub fn text(&self) -> String {
        match self {
            Self::Agent => "agent".to_owned(),
            Self::Container(container) => format!("container/{container}"),
            Self::Task(container, task) => format!("task/{container}/{task}"),
            Self::State(container, task) => format!("state/{container}/{task}"),
            Self::Update(number) => format!("update/{number:020}"),
        }
    }

    fn read(text: &str) -> Option<Self> {
        let mut parts = text.split('/');
        let kind = parts.next()?;
        let mut container = || ContainerId::new(parts.next()?).ok();
        let key = match kind {
            "agent" => Self::Agent,
            "container" => Self::Container(container()?),
            "task" => Self::Task(container()?, TaskId::new(parts.next()?).ok()?),
            "state" => Self::State(container()?, TaskId::new(parts.next()?).ok()?),
            "update" => Self::Update(parts.next()?.parse().ok()?),
            _ => return None,
        };
        // Only the canonical spelling: a record under another one could not be removed.
        (key.text() == text).then_some(key)
    }
}

/// The store key of one piece of a record.
pub fn piece(key: &str, number: usize) -> Vec<u8> {
    format!("{key}#{number:0PIECE_DIGITS$}").into_bytes()
}

/// A change of the store.
#[derive(Clone, Debug, PartialEq)]
pub enum Entry {
    /// Inserts or replaces a record.
    Put(Key, Vec<u8>),
    /// Removes a record.
    Remove(Key),
}

impl Entry {
    fn put(key: Key, record: &impl Serialize) -> Result<Self, Garbled> {
        let mut bytes = vec![FORM];
        bytes.extend(codec::encode(record)?);
        Ok(Self::Put(key, bytes))
    }

    /// The agent's record.
    pub fn agent(record: &AgentRecord) -> Result<Self, Garbled> {
        Self::put(Key::Agent, record)
    }

    /// A container's record, without secrets: only its launch needs them.
    pub fn container(id: &ContainerId, record: &ContainerRecord) -> Result<Self, Garbled> {
        let key = Key::Container(id.clone());
        match record.executor.without_secrets() {
            Cow::Borrowed(_) => Self::put(key, record),
            Cow::Owned(executor) => Self::put(
                key,
                &ContainerRecord {
                    executor,
                    ..record.clone()
                },
            ),
        }
    }

    /// A task's description, without secrets.
    pub fn task(container: &ContainerId, info: &TaskInfo) -> Result<Self, Garbled> {
        let key = Key::Task(container.clone(), info.task_id.clone());
        Self::put(key, &*info.without_secrets())
    }

    /// A task's state.
    pub fn state(
        container: &ContainerId,
        task: &TaskId,
        record: &StateRecord,
    ) -> Result<Self, Garbled> {
        Self::put(Key::State(container.clone(), task.clone()), record)
    }

    /// An unacknowledged update.
    pub fn update(number: u64, update: &StatusUpdate) -> Result<Self, Garbled> {
        Self::put(Key::Update(number), update)
    }
}

/// A container read from the store.
#[derive(Clone, Debug, PartialEq)]
pub struct StoredContainer {
    /// Its record.
    pub record: ContainerRecord,
    /// Its tasks, ordered by id.
    pub tasks: Vec<(TaskInfo, StateRecord)>,
}

/// All checkpoints of an earlier agent process.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct StoredRecords {
    /// The agent's record; `None` if there is none.
    pub agent: Option<AgentRecord>,
    /// The containers.
    pub containers: BTreeMap<ContainerId, StoredContainer>,
    /// Unacknowledged updates, in order of arrival.
    pub updates: BTreeMap<u64, StatusUpdate>,
    /// Keys of tasks and states without a container.
    pub orphaned: Vec<Key>,
    /// Unreadable records: key and reason.
    pub unreadable: Vec<(String, String)>,
}

impl StoredRecords {
    /// Assembles records from the store's pieces, which are in order of their keys.
    pub fn read(pieces: impl IntoIterator<Item = (Vec<u8>, Vec<u8>)>) -> Self {
        let mut whole: BTreeMap<String, Vec<u8>> = BTreeMap::new();
        for (key, value) in pieces {
            let text = String::from_utf8_lossy(&key);
            let name = text.rsplit_once('#').map_or(&*text, |(name, _)| name);
            whole.entry(name.to_owned()).or_default().extend(value);
        }
        let mut found = Self::default();
        let (mut tasks, mut states) = (BTreeMap::new(), BTreeMap::new());
        for (name, bytes) in whole {
            let sorted = match Key::read(&name) {
                None => Err("unknown key".to_owned()),
                Some(Key::Agent) => decode(&bytes).map(|agent| found.agent = Some(agent)),
                Some(Key::Container(id)) => decode(&bytes).map(|record| {
                    let tasks = Vec::new();
                    let container = StoredContainer { record, tasks };
                    found.containers.insert(id, container);
                }),
                Some(Key::Task(container, task)) => {
                    decode::<TaskInfo>(&bytes).and_then(|info| match info.task_id == task {
                        true => {
                            tasks.insert((container, task), info);
                            Ok(())
                        }
                        false => Err(format!(
                            "task_id is `{}`, expected `{task}`, as in its key",
                            info.task_id
                        )),
                    })
                }
                Some(Key::State(container, task)) => decode::<StateRecord>(&bytes).map(|state| {
                    states.insert((container, task), state);
                }),
                Some(Key::Update(number)) => decode(&bytes).map(|update| {
                    found.updates.insert(number, update);
                }),
            };
            if let Err(problem) = sorted {
                found.unreadable.push((name, problem));
            }
        }
        for ((id, task), info) in tasks {
            let state = states.remove(&(id.clone(), task.clone()));
            match found.containers.get_mut(&id) {
                Some(container) => container.tasks.push((info, state.unwrap_or_default())),
                None => {
                    let states = state.map(|_| Key::State(id.clone(), task.clone()));
                    found.orphaned.extend(states);
                    found.orphaned.push(Key::Task(id, task));
                }
            }
        }
        let states = states.into_keys();
        found
            .orphaned
            .extend(states.map(|(id, task)| Key::State(id, task)));
        found
    }
}

fn decode<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, String> {
    match bytes.split_first() {
        Some((&FORM, body)) => codec::decode(body).map_err(|garbled| garbled.to_string()),
        Some((form, _)) => Err(format!("it has form {form}, expected {FORM}")),
        None => Err("it is empty".to_owned()),
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use protocol::task::container::{ContainerInfo, SecretData, Volume, VolumeSource};
    use protocol::{AgentId, CommandInfo, ExecutorId, FrameworkId, Source, TaskStatus};
    use resources::Resources;
    use runtime::Timestamp;

    pub(crate) fn id(text: &str) -> ContainerId {
        ContainerId::new(text).unwrap()
    }

    pub(crate) fn agent(boot: &str) -> AgentRecord {
        let info = AgentInfo {
            id: Some(AgentId::new("s1").unwrap()),
            ..AgentInfo::new("h", Resources::parse("cpus:4;mem:512").unwrap())
        };
        let boot = boot.to_owned();
        AgentRecord { info, boot }
    }

    pub(crate) fn container() -> ContainerRecord {
        let framework = FrameworkInfo {
            id: Some(FrameworkId::new("f").unwrap()),
            checkpoint: true,
            ..FrameworkInfo::new("", "f")
        };
        let executor = ExecutorInfo::new(
            ExecutorId::new("e").unwrap(),
            CommandInfo::shell("executor"),
            Resources::parse("cpus:0.1").unwrap(),
        );
        ContainerRecord {
            framework,
            executor,
            is_command: false,
            token: "secret".into(),
        }
    }

    pub(crate) fn task(name: &str) -> TaskInfo {
        TaskInfo::new(
            TaskId::new(name).unwrap(),
            AgentId::new("s1").unwrap(),
            Resources::parse("cpus:1;mem:32").unwrap(),
        )
        .with_command(CommandInfo::shell("true"))
    }

    pub(crate) fn update(task: &str, state: TaskState, number: u8) -> StatusUpdate {
        let task = TaskId::new(task).unwrap();
        let mut status = TaskStatus::new(task, state, Source::Executor, Timestamp::default());
        status.uuid = Some(Uuid([number; 16]));
        StatusUpdate {
            framework_id: FrameworkId::new("f").unwrap(),
            status,
            latest_state: state,
        }
    }

    /// One entry of each kind.
    fn all() -> Vec<Entry> {
        let state = StateRecord {
            state: TaskState::Running,
            given: vec![Uuid([7; 16])],
            is_throttled: true,
        };
        let task_id = TaskId::new("t").unwrap();
        vec![
            Entry::agent(&agent("boot")).unwrap(),
            Entry::container(&id("c"), &container()).unwrap(),
            Entry::task(&id("c"), &task("t")).unwrap(),
            Entry::state(&id("c"), &task_id, &state).unwrap(),
            Entry::update(3, &update("t", TaskState::Running, 7)).unwrap(),
        ]
    }

    fn stored(entries: Vec<Entry>) -> Vec<(Vec<u8>, Vec<u8>)> {
        let put = |entry| match entry {
            Entry::Put(key, bytes) => Some((key, bytes)),
            Entry::Remove(_) => None,
        };
        let whole = entries.into_iter().filter_map(put);
        // In two pieces, as if each were too large for one.
        whole
            .flat_map(|(key, bytes)| {
                let (front, back) = bytes.split_at(bytes.len() / 2);
                let halves = [front.to_vec(), back.to_vec()];
                let name = key.text();
                halves
                    .into_iter()
                    .enumerate()
                    .map(move |(number, half)| (piece(&name, number), half))
            })
            .collect()
    }

    #[test]
    fn records_are_assembled_from_pieces() {
        let found = StoredRecords::read(stored(all()));
        assert_eq!(found.agent, Some(agent("boot")));
        let container = &found.containers[&id("c")];
        assert_eq!(container.record, super::tests::container());
        assert_eq!(container.tasks.len(), 1);
        assert_eq!(container.tasks[0].0, task("t"));
        assert_eq!(container.tasks[0].1.given, [Uuid([7; 16])]);
        assert_eq!(found.updates[&3], update("t", TaskState::Running, 7));
        assert_eq!((found.orphaned, found.unreadable), (vec![], vec![]));
    }

    #[test]
    fn orphaned_and_unreadable_records_are_listed() {
        let mut kept = stored(all());
        kept.retain(|(key, _)| !key.starts_with(b"container/"));
        kept.push((piece(&Key::Update(4).text(), 0), vec![FORM + 1, 1]));
        kept.push((piece(&Key::Update(5).text(), 0), vec![FORM, 255]));
        kept.push((piece("other/5", 0), vec![]));
        let found = StoredRecords::read(kept);
        let task = TaskId::new("t").unwrap();
        let orphaned = [Key::State(id("c"), task.clone()), Key::Task(id("c"), task)];
        assert_eq!(found.orphaned, orphaned);
        let named: Vec<&str> = found.unreadable.iter().map(|(key, _)| &**key).collect();
        let (fourth, fifth) = (Key::Update(4).text(), Key::Update(5).text());
        assert_eq!(named, ["other/5", &fourth, &fifth]);
        assert_eq!(
            found.unreadable[1].1,
            format!("it has form {}, expected {FORM}", FORM + 1)
        );
    }

    /// Otherwise its acknowledgement would remove the key of the task named in it, and it would be
    /// found again at each start.
    #[test]
    fn task_under_another_key_is_unreadable() {
        let mut kept = stored(all());
        for (key, _) in &mut kept {
            let text = String::from_utf8(std::mem::take(key)).unwrap();
            *key = text.replace("task/c/t#", "task/c/u#").into_bytes();
        }
        let found = StoredRecords::read(kept);
        assert_eq!(found.containers[&id("c")].tasks, []);
        let problem = "task_id is `t`, expected `u`, as in its key";
        let named = ("task/c/u".to_owned(), problem.to_owned());
        assert_eq!(found.unreadable, [named]);
    }

    #[test]
    fn keys_are_read_as_they_are_written() {
        let task = TaskId::new("a task").unwrap();
        for key in [
            Key::Agent,
            Key::Container(id("c")),
            Key::Task(id("c"), task.clone()),
            Key::State(id("c"), task),
            Key::Update(u64::MAX),
        ] {
            assert_eq!(Key::read(&key.text()), Some(key));
        }
        for wrong in [
            "",
            "agent/1",
            "container",
            "task/c",
            "task/c/t/x",
            "update/x",
            "update/4",
            "update/+0000000000000000004",
        ] {
            assert_eq!(Key::read(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn records_have_no_secrets() {
        let secret = "sixteen letters!";
        let container = Some(Box::new(ContainerInfo {
            volumes: vec![Volume {
                container_path: "key".into(),
                is_read_only: true,
                source: VolumeSource::Secret(SecretData(secret.into())),
            }],
            ..ContainerInfo::default()
        }));
        let mut record = super::tests::container();
        record.executor.container.clone_from(&container);
        let info = TaskInfo {
            container,
            executor: Some(record.executor.clone()),
            ..task("t")
        };
        let entries = [
            Entry::container(&id("c"), &record).unwrap(),
            Entry::task(&id("c"), &info).unwrap(),
        ];
        for entry in entries {
            let Entry::Put(_, bytes) = entry else {
                panic!("{entry:?}");
            };
            let mut windows = bytes.windows(secret.len());
            assert!(!windows.any(|window| window == secret.as_bytes()));
        }
    }

    /// A record of an earlier version must be decoded correctly or refused: a change of any
    /// `protocol` type used here requires a new `FORM` and new sums.
    #[test]
    fn record_layout_matches_form() {
        let sums: Vec<u32> = all()
            .iter()
            .map(|entry| match entry {
                Entry::Put(_, bytes) => crc(bytes),
                Entry::Remove(_) => 0,
            })
            .collect();
        let expected = [
            110_882_163,
            536_323_545,
            3_581_445_062,
            3_291_092_112,
            953_889_759,
        ];
        assert_eq!((FORM, sums.as_slice()), (7, expected.as_slice()));
    }

    /// A checksum of the bytes.
    fn crc(bytes: &[u8]) -> u32 {
        bytes.iter().fold(1, |sum, &byte| {
            sum.wrapping_mul(16_777_619) ^ u32::from(byte)
        })
    }
}
