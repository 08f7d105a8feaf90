//! A machine without processes: the launcher of a real agent, whose commands are simulated in this
//! process.
//!
//! Handles the orders of the agent's containerizer, and reports each start to the [`Record`]. Tasks
//! only wait (`run 500ms`). Touches no files.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use ::agent::launcher::{ContainerEnd, ContainerProgram, Events, LaunchError, LaunchRequest};
use ::agent::sandbox::ReadError;
use ::agent::{Launcher, LauncherEvent, Sandboxes};
use executor_driver::environment::TASK_ID;
use futures_util::future::{Either, select};
use protocol::message::operator::FileChunk;
use protocol::{ContainerId, Termination};
use runtime::Clock;
use simulator::load::command::Command;
use simulator::world::command::{self, KILLED};
use tokio::sync::{mpsc, oneshot};

/// Capacity of the order queue. If it is full, a launch fails.
const ORDERS_MAX: usize = 4096;

/// Number of starts of each task on any agent. Clones share the record.
#[derive(Clone, Debug, Default)]
pub struct Record(Arc<Mutex<BTreeMap<String, u32>>>);

impl Record {
    fn started(&self, task: &str) {
        let mut starts = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        *starts.entry(task.to_owned()).or_default() += 1;
    }

    /// All counts.
    pub fn starts(&self) -> BTreeMap<String, u32> {
        self.0
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }
}

enum Order {
    Launch(Box<LaunchRequest>),
    Kill(ContainerId),
}

/// The agent's handle of its machine.
pub struct Machine {
    orders: mpsc::Sender<Order>,
    attached: Option<oneshot::Sender<Events>>,
}

impl Machine {
    /// A machine without containers. Must be called in a `LocalSet`.
    pub fn start(record: Record) -> Self {
        let (orders, queue) = mpsc::channel(ORDERS_MAX);
        let (attached, events) = oneshot::channel();
        tokio::task::spawn_local(serve(record, queue, events));
        Self {
            orders,
            attached: Some(attached),
        }
    }
}

impl Launcher for Machine {
    fn attach(&mut self, events: Events) {
        if let Some(attached) = self.attached.take() {
            let _ = attached.send(events); // The thread may be ending.
        }
    }

    fn launch(&mut self, request: LaunchRequest) -> Result<(), LaunchError> {
        let order = Order::Launch(Box::new(request));
        self.orders.try_send(order).map_err(|error| LaunchError {
            reason: format!("the machine takes no order: {error}"),
        })
    }

    fn terminate(&mut self, container: &ContainerId, _: Duration) {
        self.kill(container);
    }

    fn kill(&mut self, container: &ContainerId) {
        let _ = self.orders.try_send(Order::Kill(container.clone())); // As above.
    }
}

async fn serve(
    record: Record,
    mut orders: mpsc::Receiver<Order>,
    events: oneshot::Receiver<Events>,
) {
    let Ok(events) = events.await else { return };
    let clock = Clock::real();
    let mut running = BTreeMap::<ContainerId, oneshot::Sender<()>>::new();
    let mut number = 0;
    while let Some(order) = orders.recv().await {
        running.retain(|_, kill| !kill.is_closed());
        match order {
            Order::Launch(request) => {
                let (kill, killed) = oneshot::channel();
                number += 1;
                running.insert(request.container_id.clone(), kill);
                let (record, clock) = (record.clone(), clock.clone());
                let life = live(*request, number, record, clock, events.clone(), killed);
                tokio::task::spawn_local(life);
            }
            Order::Kill(container) => {
                if let Some(kill) = running.remove(&container) {
                    let _ = kill.send(()); // It may have ended already.
                }
            }
        }
    }
}

/// One container from its start to its end.
async fn live(
    request: LaunchRequest,
    pid: i32,
    record: Record,
    clock: Clock,
    events: Events,
    killed: oneshot::Receiver<()>,
) {
    let container_id = request.container_id;
    let command = match &request.program {
        ContainerProgram::Command(command) => Command::parse(&command.value),
        ContainerProgram::Executor(executor) => Command::parse(&executor.value),
    };
    let command = match command {
        Ok(command) => command,
        Err(error) => {
            let reason = error.to_string();
            return events(LauncherEvent::Failed {
                container_id,
                reason,
            });
        }
    };
    if let Some(task) = request.environment.get(TASK_ID) {
        record.started(task);
    }
    events(LauncherEvent::Started {
        container_id: container_id.clone(),
        pid,
    });
    let (_stop, mut stops) = mpsc::unbounded_channel();
    let life = std::pin::pin!(command::run(command, &clock, &mut stops));
    let end = match select(life, killed).await {
        Either::Left((end, _)) => end,
        Either::Right(_) => ContainerEnd::Command {
            termination: Termination::Signaled(KILLED),
            kill_wanted: true,
        },
    };
    events(LauncherEvent::Exited { container_id, end });
}

/// Sandboxes without files: the tasks write nothing.
#[derive(Clone, Copy, Debug)]
pub struct NoSandboxes;

impl Sandboxes for NoSandboxes {
    fn create(&self, _: &Path, _: &ContainerId, _: Option<&str>) -> Result<(), String> {
        Ok(())
    }

    fn read(&self, _: &Path, _: &str, _: u64, _: u32) -> Result<FileChunk, ReadError> {
        Err(ReadError::NotFound)
    }
}
