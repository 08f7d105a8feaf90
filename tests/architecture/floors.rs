//! The floors: which crate of ours stands where, and which may import which.
//!
//! Pure functions over what `cargo metadata` says, dev- and build-dependencies included. A crate
//! stands in the table before its first import is judged.

use serde_json::Value;

/// Where a crate stands.
pub struct Place {
    /// The package's name.
    pub package: &'static str,
    /// Its folder, from the root; empty for the root package.
    pub folder: &'static str,
    /// It imports only from lower floors.
    pub floor: u8,
}

const fn place(floor: u8, package: &'static str, folder: &'static str) -> Place {
    Place {
        package,
        folder,
        floor,
    }
}

/// The whole table, from the ground up.
pub const HOUSE: &[Place] = &[
    // 0, ground
    place(0, "meros-runtime", "runtime"),
    place(0, "meros-resources", "runtime/resources"),
    // 1, words
    place(1, "meros-protocol", "runtime/protocol"),
    // 2, parts
    place(2, "meros-transport", "runtime/transport"),
    place(2, "meros-storage", "runtime/storage"),
    place(2, "meros-v1", "runtime/v1"),
    place(2, "meros-authority", "runtime/authority"),
    // 3, links
    place(3, "meros-testkit", "tests/testkit"),
    place(3, "meros-http", "runtime/http"),
    place(3, "meros-consensus", "master/consensus"),
    place(3, "meros-module-api", "modules/api"),
    place(3, "meros-scheduler-driver", "master/driver"),
    place(3, "meros-executor-driver", "agent/driver"),
    // 4, services
    place(4, "meros-master", "master"),
    place(4, "meros-agent", "agent"),
    place(4, "meros-modules", "modules"),
    // 5, simulation
    place(5, "meros-simulator", "tests/simulator"),
    // 6, roof
    place(6, "meros", ""),
    // 7, lab
    place(7, "meros-lab", "tests/lab"),
];

/// The tests of every crate may use it; cargo allows the circle.
const TESTKIT: &str = "meros-testkit";

/// Packages of others that only these packages of ours may depend on, and why it is more than one.
const FIXED: &[(&str, &[&str])] = &[
    // The testkit has sockets in memory; the lab measures a bare stream beside the transport.
    ("quinn", &["meros-transport", "meros-testkit", "meros-lab"]),
    ("sled", &["meros-storage"]),
    ("raft", &["meros-consensus"]),
    // Crates of one layer do not import each other: resources tests its wire form without runtime.
    ("bincode", &["meros-runtime", "meros-resources (dev)"]),
];

/// A package of the workspace.
#[derive(Debug, Default)]
pub struct Package {
    /// As in its manifest.
    pub name: String,
    /// From the root; empty for the root package.
    pub folder: String,
    /// All of them, whatever their kind.
    pub dependencies: Vec<Dependency>,
}

/// What a package depends on.
#[derive(Debug)]
pub struct Dependency {
    /// The package's real name, not the one that the code uses.
    pub name: String,
    /// `normal`, `dev` or `build`.
    pub kind: String,
}

/// The packages in the output of `cargo metadata --no-deps`.
pub fn packages(metadata: &Value) -> Vec<Package> {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let list = |value: &Value| value.as_array().cloned().unwrap_or_default();
    let root = text(&metadata["workspace_root"]);
    let dependency = |value: &Value| Dependency {
        name: text(&value["name"]),
        kind: value["kind"].as_str().unwrap_or("normal").to_owned(),
    };
    let package = |value: &Value| {
        let manifest = text(&value["manifest_path"]);
        let folder = manifest
            .trim_start_matches(&root)
            .trim_end_matches("Cargo.toml");
        Package {
            name: text(&value["name"]),
            folder: folder.trim_matches('/').to_owned(),
            dependencies: list(&value["dependencies"])
                .iter()
                .map(dependency)
                .collect(),
        }
    };
    list(&metadata["packages"]).iter().map(package).collect()
}

fn place_of(package: &str) -> Option<&'static Place> {
    HOUSE.iter().find(|place| place.package == package)
}

/// Every import that does not go down, as a sentence.
pub fn wrong_imports(packages: &[Package]) -> Vec<String> {
    let mut faults = Vec::new();
    for package in packages {
        let Some(from) = place_of(&package.name) else {
            continue;
        };
        for dependency in &package.dependencies {
            let Some(to) = place_of(&dependency.name) else {
                continue;
            };
            let in_tests = to.package == TESTKIT && dependency.kind == "dev";
            if to.floor >= from.floor && !in_tests {
                faults.push(format!(
                    "{} (floor {}) has {} (floor {}) as a {} dependency: {}",
                    from.package,
                    from.floor,
                    to.package,
                    to.floor,
                    dependency.kind,
                    match to.floor == from.floor {
                        true => "neighbours do not know each other",
                        false => "imports only go down",
                    },
                ));
            }
        }
    }
    faults
}

/// Every crate that is not in the table, not in its folder, or not in the workspace.
pub fn misplaced(packages: &[Package]) -> Vec<String> {
    let mut faults = Vec::new();
    for package in packages {
        match place_of(&package.name) {
            None => faults.push(format!(
                "{} has no floor: give it one in the table",
                package.name
            )),
            Some(place) if place.folder != package.folder => faults.push(format!(
                "{} is in `{}` and belongs in `{}`",
                package.name, package.folder, place.folder
            )),
            Some(_) => {}
        }
    }
    for place in HOUSE {
        if !packages.iter().any(|package| package.name == place.package) {
            faults.push(format!(
                "{} is not in the workspace's members",
                place.package
            ));
        }
    }
    faults
}

/// Every manifest that names a fixed dependency and is not the one that may.
pub fn wrong_dependencies(packages: &[Package]) -> Vec<String> {
    let mut faults = Vec::new();
    for package in packages {
        for dependency in &package.dependencies {
            let Some((_, allowed)) = FIXED.iter().find(|(name, _)| *name == dependency.name) else {
                continue;
            };
            let in_tests = format!("{} (dev)", package.name);
            let may = allowed.contains(&package.name.as_str())
                || (dependency.kind == "dev" && allowed.contains(&in_tests.as_str()));
            if !may {
                faults.push(format!(
                    "{} has {} as a {} dependency: only {} may",
                    package.name,
                    dependency.name,
                    dependency.kind,
                    allowed.join(" and ")
                ));
            }
        }
    }
    faults
}

#[cfg(test)]
mod tests {
    use super::*;

    fn package(name: &str, folder: &str, dependencies: &[(&str, &str)]) -> Package {
        let dependency = |(name, kind): &(&str, &str)| Dependency {
            name: name.to_string(),
            kind: kind.to_string(),
        };
        Package {
            name: name.into(),
            folder: folder.into(),
            dependencies: dependencies.iter().map(dependency).collect(),
        }
    }

    fn faults(name: &str, dependency: &str, kind: &str) -> Vec<String> {
        wrong_imports(&[package(name, "", &[(dependency, kind)])])
    }

    #[test]
    fn an_import_upwards_is_found() {
        assert_eq!(
            faults("meros-protocol", "meros-master", "normal"),
            [
                "meros-protocol (floor 1) has meros-master (floor 4) as a normal dependency: \
              imports only go down"
            ]
        );
    }

    #[test]
    fn an_import_of_a_neighbour_is_found() {
        assert_eq!(
            faults("meros-master", "meros-modules", "normal"),
            [
                "meros-master (floor 4) has meros-modules (floor 4) as a normal dependency: \
              neighbours do not know each other"
            ]
        );
        assert_eq!(
            faults("meros-runtime", "meros-resources", "normal").len(),
            1
        );
    }

    #[test]
    fn dev_and_build_dependencies_count_as_well() {
        assert_eq!(faults("meros-storage", TESTKIT, "normal").len(), 1);
        assert!(faults("meros-storage", TESTKIT, "dev").is_empty());
        assert_eq!(faults("meros-agent", "meros-master", "dev").len(), 1);
        assert_eq!(faults("meros-agent", "meros-modules", "build").len(), 1);
    }

    #[test]
    fn planned_crate_has_a_floor() {
        assert_eq!(
            faults("meros-storage", "meros-consensus", "normal").len(),
            1
        );
        assert_eq!(faults("meros-master", "meros-simulator", "dev").len(), 1);
        assert_eq!(faults("meros-v1", "meros-http", "normal").len(), 1);
        assert!(faults("meros-master", "meros-consensus", "normal").is_empty());
    }

    #[test]
    fn downward_imports_are_allowed() {
        assert!(faults("meros", "meros-master", "dev").is_empty());
        assert!(faults("meros-master", "meros-protocol", "normal").is_empty());
        assert!(faults("meros-master", "serde", "normal").is_empty());
    }

    #[test]
    fn misplaced_or_missing_crate_is_found() {
        let found = misplaced(&[
            package("meros-zookeeper", "master/zookeeper", &[]),
            package("meros-agent", "master/agent", &[]),
        ]);
        assert!(
            found
                .iter()
                .any(|fault| fault.starts_with("meros-zookeeper has no floor")),
            "{found:?}"
        );
        let moved = "meros-agent is in `master/agent` and belongs in `agent`";
        assert!(found.iter().any(|fault| fault == moved), "{found:?}");
        let missing = "meros-master is not in the workspace's members";
        assert!(found.iter().any(|fault| fault == missing), "{found:?}");
    }

    #[test]
    fn a_fixed_dependency_in_another_crate_is_found() {
        for (name, dependency, kind, count) in [
            ("meros-master", "sled", "normal", 1),
            ("meros-agent", "quinn", "dev", 1),
            ("meros-protocol", "bincode", "normal", 1),
            ("meros-resources", "bincode", "normal", 1),
            ("meros-resources", "bincode", "dev", 0),
            ("meros-master", "raft", "normal", 1),
            ("meros-storage", "sled", "normal", 0),
            ("meros", "quinn", "normal", 1),
        ] {
            let found = wrong_dependencies(&[package(name, "", &[(dependency, kind)])]);
            assert_eq!(found.len(), count, "{name} {dependency} {kind}: {found:?}");
        }
    }

    #[test]
    fn the_output_of_cargo_metadata_is_understood() {
        let metadata = serde_json::json!({
            "workspace_root": "/src/meros",
            "packages": [{
                "name": "meros-storage",
                "manifest_path": "/src/meros/runtime/storage/Cargo.toml",
                "dependencies": [
                    { "name": "sled", "kind": null, "rename": null },
                    { "name": "meros-agent", "kind": "dev", "rename": "agent" },
                ],
            }, {
                "name": "meros", "manifest_path": "/src/meros/Cargo.toml", "dependencies": [],
            }],
        });
        let packages = packages(&metadata);
        assert_eq!(packages[0].folder, "runtime/storage");
        assert_eq!(packages[0].dependencies[0].kind, "normal");
        assert_eq!(packages[1].folder, "");
        assert_eq!(wrong_imports(&packages).len(), 1);
    }
}
