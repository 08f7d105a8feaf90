//! Detects the host's resources that the operator does not configure.
//!
//! The decision is pure; [`Host::of`] reads the host.

use std::path::Path;

use resources::{Name, Range, Ranges, Resource, Resources, Role, Scalar};
use runtime::observe::host::Memory;

use crate::host::procfs;

const MIB: u64 = 1 << 20;
const GIB: u64 = 1 << 30;

/// A host's capacity.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Host {
    /// Its name.
    pub name: String,
    /// Usable cores; 0 if unknown.
    pub cores: u32,
    /// Memory in bytes; 0 if unknown.
    pub memory: u64,
    /// Size of the work directory's file system in bytes; 0 if unknown.
    pub disk: u64,
}

impl Host {
    /// This host. The disk is that of `work_dir`, or of its nearest existing ancestor.
    pub fn of(work_dir: &Path) -> Self {
        let cores = std::thread::available_parallelism().map_or(0, |cores| cores.get());
        let existing = work_dir.ancestors().find(|path| path.exists());
        let name = nix::unistd::gethostname()
            .ok()
            .and_then(|name| name.into_string().ok());
        Self {
            name: name
                .filter(|name| !name.is_empty())
                .unwrap_or_else(|| "localhost".into()),
            cores: u32::try_from(cores).unwrap_or(u32::MAX),
            memory: Memory::now().total,
            disk: existing
                .and_then(|path| procfs::disk_size(path).ok())
                .unwrap_or(0),
        }
    }

    fn cpus(&self) -> u64 {
        u64::from(self.cores.max(1))
    }

    /// MiB for tasks: all but 1 GiB, or half on a small host.
    fn mem(&self) -> u64 {
        match self.memory {
            0 => GIB / MIB,
            total if total >= 2 * GIB => (total - GIB) / MIB,
            total => total / 2 / MIB,
        }
    }

    /// MiB for tasks: all but 5 GiB, or half on a small disk.
    fn disk_space(&self) -> u64 {
        match self.disk {
            0 => 10 * GIB / MIB,
            total if total >= 10 * GIB => (total - 5 * GIB) / MIB,
            total => total / 2 / MIB,
        }
    }
}

/// Adds detected resources of the kinds that `given` lacks. A kind given as zero stays zero.
pub fn complete(given: Resources, text: &str, host: &Host, role: &Role) -> Resources {
    let mut all = given;
    let named = |resources: &Resources, name: &Name| {
        // A kind given as zero is absent from `given`.
        resources.iter().any(|resource| resource.is(name)) || mentions(text, name.as_str())
    };
    for (name, units) in [
        (Name::Cpus, host.cpus()),
        (Name::Mem, host.mem()),
        (Name::Disk, host.disk_space()),
    ] {
        if !named(&all, &name) {
            let units = Scalar::whole(u32::try_from(units).unwrap_or(u32::MAX));
            add(&mut all, Resource::new(name, units), role);
        }
    }
    if !named(&all, &Name::Ports)
        && let Ok(range) = Range::new(31_000, 32_000)
    {
        add(
            &mut all,
            Resource::new(Name::Ports, Ranges::new([range])),
            role,
        );
    }
    all
}

fn add(all: &mut Resources, detected: Result<Resource, resources::Invalid>, role: &Role) {
    let Ok(resource) = detected else { return };
    let detected = Resources::from(resource);
    // Detected resources belong to the default role, like given ones that name none.
    let text = detected.to_string();
    *all += &Resources::parse_for(&text, role).unwrap_or(detected);
}

/// Whether the text names this kind, with any value.
fn mentions(text: &str, name: &str) -> bool {
    let names = text.split([';', ',', '{', '"']).map(|part| {
        part.trim()
            .split([':', '(', '"'])
            .next()
            .unwrap_or_default()
    });
    names.into_iter().any(|found| found.trim() == name)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn host(memory: u64, disk: u64) -> Host {
        Host {
            name: "h".into(),
            cores: 2,
            memory,
            disk,
        }
    }

    fn complete(text: &str, host: &Host) -> Resources {
        super::complete(Resources::parse(text).unwrap(), text, host, &Role::STAR)
    }

    /// SPEC 5.1.
    #[test]
    fn large_host_keeps_a_little_and_small_one_half() {
        let large = complete("", &host(16 * GIB, 100 * GIB));
        assert_eq!(
            large,
            Resources::parse("cpus:2;mem:15360;disk:97280;ports:[31000-32000]").unwrap()
        );
        let small = complete("", &host(GIB, 8 * GIB));
        assert_eq!(
            small,
            Resources::parse("cpus:2;mem:512;disk:4096;ports:[31000-32000]").unwrap()
        );
        let unknown = complete("", &host(0, 0));
        assert_eq!(
            unknown,
            Resources::parse("cpus:2;mem:1024;disk:10240;ports:[31000-32000]").unwrap()
        );
    }

    #[test]
    fn given_kinds_are_not_detected_even_if_zero() {
        let given = complete("cpus:0;mem(ads):64;disk:1", &host(16 * GIB, 100 * GIB));
        assert_eq!(
            given,
            Resources::parse("mem(ads):64;disk:1;ports:[31000-32000]").unwrap()
        );
    }

    #[test]
    fn detected_resources_belong_to_the_default_role() {
        let role = Role::new("ads").unwrap();
        let detected = super::complete(Resources::new(), "", &host(GIB, GIB), &role);
        assert!(
            detected.iter().all(|resource| *resource.role() == role),
            "{detected}"
        );
    }
}
