//! Machines in maintenance: the stored schedule, and its bound.
//!
//! Pure. Each machine is a record with its position in the schedule, so that no record grows with
//! the cluster. Only storage bounds are checked; the caller validates changes, in
//! [`crate::maintenance`].

use std::collections::BTreeMap;

use protocol::maintenance::Window;
use protocol::{MachineId, Unavailability};
use serde::{Deserialize, Serialize};

use super::RegistryError;

/// Maximum scheduled machines.
pub const MACHINES_MAX: usize = 10_000;

/// A scheduled machine.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Machine {
    /// Index of its window.
    pub window: u32,
    /// Its index in the window.
    pub place: u32,
    /// The planned time of its maintenance.
    pub unavailability: Unavailability,
    /// Whether it is down.
    pub down: bool,
}

/// All scheduled machines.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Machines(BTreeMap<MachineId, Machine>);

impl Machines {
    /// The machine with that id, if scheduled.
    pub fn get(&self, id: &MachineId) -> Option<&Machine> {
        self.0.get(id)
    }

    /// All scheduled machines.
    pub fn iter(&self) -> impl Iterator<Item = (&MachineId, &Machine)> {
        self.0.iter()
    }

    /// Number of scheduled machines.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether none is scheduled.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The scheduled machine of an agent with this host name and address. Of several, a down
    /// machine comes first, then the earliest maintenance.
    pub fn of(&self, hostname: &str, ip: Option<&str>) -> Option<(&MachineId, &Machine)> {
        if self.0.is_empty() {
            return None;
        }
        let from = |hostname: &str, ip: &str| MachineId::new(hostname, ip).ok();
        let by_name = from(hostname, "").into_iter().flat_map(|first| {
            let name = first.hostname().to_owned();
            let all = self.0.range(first..);
            all.take_while(move |(id, _)| id.hostname() == name)
        });
        let addresses = [from("", hostname), ip.and_then(|ip| from("", ip))];
        let addresses = addresses.into_iter().flatten();
        let by_address = addresses.filter_map(|id| self.0.get_key_value(&id));
        let all = by_name.chain(by_address);
        let of = all.filter(|(id, _)| id.names(hostname, ip));
        of.min_by_key(|(_, machine)| (!machine.down, machine.unavailability.start))
    }

    /// The schedule, in its original order.
    pub fn windows(&self) -> Vec<Window> {
        let mut all: Vec<_> = self.0.iter().collect();
        all.sort_by_key(|(_, machine)| (machine.window, machine.place));
        let mut windows: Vec<Window> = Vec::new();
        let mut last = None;
        for (id, machine) in all {
            match windows.last_mut() {
                Some(window) if last == Some(machine.window) => window.machines.push(id.clone()),
                _ => windows.push(Window {
                    machines: vec![id.clone()],
                    unavailability: machine.unavailability,
                }),
            }
            last = Some(machine.window);
        }
        windows
    }

    /// Restores a stored machine.
    pub(super) fn put(&mut self, id: MachineId, machine: Machine) {
        self.0.insert(id, machine);
    }

    /// Replaces the schedule; down machines stay down.
    pub fn schedule(&mut self, windows: &[Window]) -> Result<(), RegistryError> {
        let count: usize = windows.iter().map(|window| window.machines.len()).sum();
        if count > MACHINES_MAX {
            let reason = format!("schedule of {count} machines: expected at most {MACHINES_MAX}");
            return Err(RegistryError::Refused { reason });
        }
        let mut scheduled = BTreeMap::new();
        for (number, window) in (0..).zip(windows) {
            for (place, id) in (0..).zip(&window.machines) {
                let machine = Machine {
                    window: number,
                    place,
                    unavailability: window.unavailability,
                    down: self.0.get(id).is_some_and(|machine| machine.down),
                };
                scheduled.insert(id.clone(), machine);
            }
        }
        self.0 = scheduled;
        Ok(())
    }

    /// Marks scheduled machines as down.
    pub fn start(&mut self, machines: &[MachineId]) {
        for id in machines {
            if let Some(machine) = self.0.get_mut(id) {
                machine.down = true;
            }
        }
    }

    /// Removes machines that are up again.
    pub fn stop(&mut self, machines: &[MachineId]) {
        for id in machines {
            self.0.remove(id);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;
    use testkit::assert_contains;

    use runtime::Timestamp;

    use super::*;

    fn machine(hostname: &str) -> MachineId {
        MachineId::new(hostname, "").unwrap()
    }

    fn window(hostnames: &str, start: u64) -> Window {
        Window {
            machines: hostnames.split(' ').map(machine).collect(),
            unavailability: Unavailability {
                start: Timestamp::from_nanos(start),
                duration: Some(Duration::from_secs(60)),
            },
        }
    }

    /// SPEC 3.6.
    #[test]
    fn schedule_keeps_its_order_without_returned_machines() {
        let mut machines = Machines::default();
        let said = [window("b a", 5), window("c", 3)];
        machines.schedule(&said).unwrap();
        assert_eq!(machines.windows(), said);
        machines.start(&[machine("a"), machine("c"), machine("x")]);
        let said = [window("c", 9), window("d a", 9)];
        machines.schedule(&said).unwrap();
        assert_eq!(machines.windows(), said);
        let down: Vec<_> = machines.iter().filter(|(_, one)| one.down).collect();
        assert_eq!(down.len(), 2, "who is away stays so");
        machines.stop(&[machine("c"), machine("c")]);
        assert_eq!(machines.windows(), [window("d a", 9)]);
        machines.start(&[machine("c")]);
        assert_eq!(machines.windows(), [window("d a", 9)]);
    }

    #[test]
    fn agent_belongs_to_the_down_or_earliest_machine() {
        let mut machines = Machines::default();
        let both = MachineId::new("a", "10.0.0.1").unwrap();
        let address = MachineId::new("", "10.0.0.2").unwrap();
        let mut said = vec![window("a aa", 5), window("b", 1)];
        said.push(Window {
            machines: vec![both.clone(), address.clone()],
            ..window("c", 3)
        });
        machines.schedule(&said).unwrap();
        let found = |machines: &Machines, name: &str, ip: Option<&str>| {
            machines.of(name, ip).map(|(id, _)| id.clone())
        };
        assert_eq!(found(&machines, "A", Some("10.0.0.1")), Some(both));
        assert_eq!(found(&machines, "a", Some("10.0.0.9")), Some(machine("a")));
        assert_eq!(
            found(&machines, "x", Some("10.0.0.2")),
            Some(address.clone())
        );
        assert_eq!(found(&machines, "10.0.0.2", None), Some(address));
        assert_eq!(found(&machines, "x", Some("10.0.0.3")), None);
        machines.start(&[machine("a")]);
        assert_eq!(found(&machines, "a", Some("10.0.0.1")), Some(machine("a")));
    }

    #[test]
    fn too_many_machines_are_refused_as_a_whole() {
        let mut machines = Machines::default();
        machines.schedule(&[window("a", 1)]).unwrap();
        let before = machines.clone();
        let names: Vec<String> = (0..=MACHINES_MAX).map(|n| format!("m{n}")).collect();
        let refused = machines.schedule(&[window(&names.join(" "), 1)]);
        let refused = refused.unwrap_err().to_string();
        assert_contains!(refused, "10001 machines: expected at most 10000");
        assert_eq!(machines, before);
    }
}
