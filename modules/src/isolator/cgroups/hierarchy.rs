//! Hierarchies: where the control groups of this host are mounted, and the one that each
//! controller is in.
//!
//! Pure: reads the text of `/proc/self/mountinfo`. A controller is used in its v1 hierarchy where
//! one is mounted, and else in the unified tree of v2. The unified tree of a host that has both
//! has no controllers; its groups are only for `cgroup.kill` and the pressure files.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};

use super::controllers::{Controller, Version};

/// A mounted hierarchy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hierarchy {
    /// Where it is mounted.
    pub mount: PathBuf,
    /// The version of its interface.
    pub version: Version,
    /// The kernel's names of its controllers. For v2 the reader adds those of
    /// `cgroup.controllers`, and `devices` if the kernel takes a device program.
    pub controllers: Vec<String>,
    /// Whether it cannot be written.
    pub read_only: bool,
    /// Whether this is a unified tree that is the root of a container, with processes in it: no
    /// controller can be enabled there. Set by the reader, too.
    pub is_occupied: bool,
}

/// A hierarchy that this agent uses, and for which controllers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tree {
    /// Where it is mounted.
    pub mount: PathBuf,
    /// The version of its interface.
    pub version: Version,
    /// Empty for the unified tree of a host with v1.
    pub controllers: Vec<Controller>,
}

/// The hierarchies mounted at or below this folder, from the text of `/proc/self/mountinfo`.
pub fn parse(mountinfo: &str, below: &Path) -> Vec<Hierarchy> {
    let mut found: Vec<Hierarchy> = Vec::new();
    for line in mountinfo.lines() {
        let Some((hierarchy, below)) = parse_line(line).map(|one| {
            let inside = one.mount.starts_with(below);
            (one, inside)
        }) else {
            continue;
        };
        // A later mount on the same directory hides the earlier one.
        found.retain(|other| other.mount != hierarchy.mount);
        if below {
            found.push(hierarchy);
        }
    }
    found
}

/// `id parent device root mount options [optional fields] - type source super-options`.
fn parse_line(line: &str) -> Option<Hierarchy> {
    let (left, right) = line.split_once(" - ")?;
    let mut left = left.split(' ').skip(4);
    let (mount, options) = (left.next()?, left.next()?);
    let mut right = right.split(' ');
    let (kind, super_options) = (right.next()?, right.nth(1)?);
    let version = match kind {
        "cgroup" => Version::V1,
        "cgroup2" => Version::V2,
        _ => return None,
    };
    let is_controller = |word: &&str| {
        let mut v1 = Controller::ALL.iter();
        v1.any(|controller| controller.name(Version::V1) == *word)
    };
    let controllers = match version {
        Version::V1 => super_options.split(',').filter(is_controller),
        Version::V2 => "".split(',').filter(is_controller),
    };
    Some(Hierarchy {
        mount: unescape(mount),
        version,
        controllers: controllers.map(str::to_owned).collect(),
        read_only: options.split(',').any(|option| option == "ro"),
        is_occupied: false,
    })
}

/// A path with its octal escapes replaced, such as `\040` for a blank.
fn unescape(text: &str) -> PathBuf {
    let mut bytes = Vec::new();
    let mut rest = text;
    while let Some((before, after)) = rest.split_once('\\') {
        bytes.extend_from_slice(before.as_bytes());
        let byte = after
            .get(..3)
            .and_then(|octal| u8::from_str_radix(octal, 8).ok());
        rest = match byte {
            Some(byte) => {
                bytes.push(byte);
                &after[3..]
            }
            None => {
                bytes.push(b'\\');
                after
            }
        };
    }
    bytes.extend_from_slice(rest.as_bytes());
    OsString::from_vec(bytes).into()
}

/// The hierarchy of a controller, or the reason why it cannot be used.
pub fn place(controller: Controller, hierarchies: &[Hierarchy]) -> Result<usize, String> {
    let in_version = |version: Version| {
        let name = controller.name(version);
        hierarchies.iter().position(|hierarchy| {
            hierarchy.version == version && hierarchy.controllers.iter().any(|own| own == name)
        })
    };
    let Some(at) = in_version(Version::V1).or_else(|| in_version(Version::V2)) else {
        return Err(not_found(controller, hierarchies));
    };
    let hierarchy = &hierarchies[at];
    if hierarchy.read_only {
        return Err(format!(
            "{} is mounted read-only: mount it writable",
            hierarchy.mount.display()
        ));
    }
    if hierarchy.is_occupied {
        return Err(format!(
            "processes are in the group {}, where controllers must be enabled: move them, the \
             agent perhaps, into a child group",
            hierarchy.mount.display()
        ));
    }
    Ok(at)
}

fn not_found(controller: Controller, hierarchies: &[Hierarchy]) -> String {
    let has_v2 = hierarchies.iter().any(|one| one.version == Version::V2);
    if controller == Controller::Devices && has_v2 {
        return "no devices controller is mounted, and the kernel refuses a device program: run \
                the agent as root on a kernel with CONFIG_CGROUP_BPF"
            .to_owned();
    }
    let version = if has_v2 { Version::V2 } else { Version::V1 };
    let name = controller.name(version);
    format!(
        "no mounted hierarchy has the controller `{name}`: mount it, or set --cgroups_hierarchy to \
         the folder of the mounts"
    )
}

/// The controllers of these names of `--isolation`. `cgroups/all` means those that this host has.
fn wanted(names: &[&str], hierarchies: &[Hierarchy]) -> Result<Vec<Controller>, String> {
    let mut wanted = BTreeSet::new();
    for name in names {
        wanted.extend(Controller::of_isolation(name));
    }
    if names.contains(&"cgroups/all") {
        let usable = |controller: &Controller| place(*controller, hierarchies).is_ok();
        wanted.extend(Controller::ALL.into_iter().filter(usable));
        if wanted.is_empty() {
            place(Controller::Memory, hierarchies)?;
        }
    }
    Ok(wanted.into_iter().collect())
}

/// The trees for these names of `--isolation`, or the reason why the host cannot have them.
pub fn trees(names: &[&str], hierarchies: &[Hierarchy]) -> Result<Vec<Tree>, String> {
    choose(&wanted(names, hierarchies)?, hierarchies)
}

/// The trees that these controllers need: theirs, and the unified one where there is one.
fn choose(wanted: &[Controller], hierarchies: &[Hierarchy]) -> Result<Vec<Tree>, String> {
    let tree = |hierarchy: &Hierarchy| Tree {
        mount: hierarchy.mount.clone(),
        version: hierarchy.version,
        controllers: Vec::new(),
    };
    let mut trees: Vec<Tree> = hierarchies.iter().map(tree).collect();
    for controller in wanted {
        trees[place(*controller, hierarchies)?]
            .controllers
            .push(*controller);
    }
    let is_needed = |(tree, hierarchy): &(Tree, &Hierarchy)| {
        let writable_v2 = tree.version == Version::V2 && !hierarchy.read_only;
        !tree.controllers.is_empty() || writable_v2
    };
    let needed = trees.into_iter().zip(hierarchies).filter(is_needed);
    Ok(needed.map(|(tree, _)| tree).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use Controller::{Cpu, Cpuacct, Devices, Memory, Pids};

    const V1: &str = "\
25 30 0:23 / /sys rw,nosuid - sysfs sysfs rw
31 25 0:27 / /sys/fs/cgroup ro,nosuid shared:9 - tmpfs tmpfs ro,mode=755
32 31 0:28 / /sys/fs/cgroup/systemd rw shared:10 - cgroup cgroup rw,xattr,name=systemd
34 31 0:30 / /sys/fs/cgroup/cpu,cpuacct rw shared:12 - cgroup cgroup rw,cpu,cpuacct
35 31 0:31 / /sys/fs/cgroup/memory rw shared:13 - cgroup cgroup rw,memory
36 31 0:32 / /sys/fs/cgroup/pids rw shared:14 - cgroup cgroup rw,pids
";
    const UNIFIED: &str =
        "33 31 0:29 / /sys/fs/cgroup/unified rw shared:11 - cgroup2 cgroup2 rw,nsdelegate\n";
    const V2: &str = "30 25 0:26 / /sys/fs/cgroup rw shared:4 - cgroup2 cgroup2 rw\n";

    fn below() -> &'static Path {
        Path::new("/sys/fs/cgroup")
    }

    fn with_controllers(mut found: Vec<Hierarchy>, names: &str) -> Vec<Hierarchy> {
        for hierarchy in &mut found {
            if hierarchy.version == Version::V2 {
                hierarchy.controllers = names.split(' ').map(str::to_owned).collect();
            }
        }
        found
    }

    /// The trees as `mount: controllers`.
    fn chosen(names: &[&str], hierarchies: &[Hierarchy]) -> Result<Vec<String>, String> {
        let trees = trees(names, hierarchies)?;
        let text = |tree: &Tree| format!("{} {:?}", tree.mount.display(), tree.controllers);
        Ok(trees.iter().map(text).collect())
    }

    #[test]
    fn v1_controllers_share_a_mount() {
        let found = parse(V1, below());
        assert_eq!(found.len(), 4, "systemd's too, which has no controller");
        assert_eq!(
            chosen(&["cgroups/cpu", "cgroups/mem"], &found).unwrap(),
            [
                "/sys/fs/cgroup/cpu,cpuacct [Cpu, Cpuacct]",
                "/sys/fs/cgroup/memory [Memory]"
            ]
        );
        assert_eq!(
            wanted(&["cgroups/all"], &found).unwrap(),
            [Cpu, Cpuacct, Memory, Pids]
        );
        let error = chosen(&["cgroups/cpuset"], &found).unwrap_err();
        assert!(error.contains("no mounted hierarchy has the controller `cpuset`"));
    }

    #[test]
    fn hybrid_hosts_use_the_unified_tree_without_controllers() {
        let found = parse(&format!("{V1}{UNIFIED}"), below());
        let found = with_controllers(found, "hugetlb");
        assert_eq!(
            chosen(&["cgroups/mem"], &found).unwrap(),
            [
                "/sys/fs/cgroup/memory [Memory]",
                "/sys/fs/cgroup/unified []"
            ]
        );
        // A controller that v1 does not have is used in v2.
        let found = with_controllers(found, "hugetlb io");
        let trees = chosen(&["cgroups/blkio"], &found).unwrap();
        assert_eq!(trees, ["/sys/fs/cgroup/unified [Blkio]"]);
    }

    #[test]
    fn v2_hosts_have_one_tree() {
        let found = with_controllers(parse(V2, below()), "cpuset cpu io memory pids");
        assert_eq!(
            chosen(&["cgroups/cpu", "cgroups/mem"], &found).unwrap(),
            ["/sys/fs/cgroup [Cpu, Cpuacct, Memory]"]
        );
        let all = wanted(&["cgroups/all"], &found).unwrap();
        assert!(!all.contains(&Devices) && all.contains(&Pids));
        let error = chosen(&["cgroups/devices"], &found).unwrap_err();
        assert!(error.contains("refuses a device program"), "{error}");
        let found = with_controllers(found, "memory devices");
        let trees = chosen(&["cgroups/devices"], &found).unwrap();
        assert_eq!(trees, ["/sys/fs/cgroup [Devices]"]);
    }

    #[test]
    fn mounts_elsewhere_hidden_or_read_only_are_not_used() {
        assert_eq!(parse(V2, Path::new("/cgroups")), []);
        let hidden =
            format!("{V1}40 36 0:40 / /sys/fs/cgroup/pids rw - cgroup cgroup rw,freezer\n");
        assert!(place(Pids, &parse(&hidden, below())).is_err());
        let locked = V1.replace("memory rw", "memory ro");
        let error = place(Memory, &parse(&locked, below())).unwrap_err();
        assert!(error.contains("mounted read-only"), "{error}");
        let odd = r"9 8 0:1 / /sys/fs/cgroup/a\040b rw - cgroup cgroup rw,memory";
        let found = parse(odd, below());
        assert_eq!(found[0].mount, Path::new("/sys/fs/cgroup/a b"));
        assert_eq!(parse("nonsense\n1 2 - cgroup\n", below()), []);
    }
}
