//! Paths of files in sandboxes; no other files are served.
//!
//! Pure. A sandbox has three names: its directory as in `/state`, and
//! `/frameworks/F/executors/E/runs/C` with or without the prefix `/slave(1)`, where `C` is a
//! container or `latest`. No link out of a sandbox is followed. Files in volumes are resolved by
//! the volumes' container paths, not by the links in the sandbox, which tasks may change.

use std::collections::BTreeMap;
use std::path::{Component, Path, PathBuf};

use http::files::RootedPath;
use protocol::ContainerId;

use crate::container::events::ContainerView;
use crate::operations::volumes::Mount;

/// A path in a sandbox.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct SandboxPath {
    /// Framework id.
    pub framework: String,
    /// Executor id.
    pub executor: String,
    /// Container id, or `latest`.
    pub run: String,
    /// Its location.
    pub place: RootedPath,
}

impl SandboxPath {
    /// The same path in the sandbox of this run.
    pub fn of_run(mut self, run: &ContainerId) -> Self {
        self.run = run.to_string();
        self.place.root.set_file_name(run.as_str());
        self
    }

    /// The location: in the innermost volume whose container path is a prefix, otherwise in the
    /// sandbox.
    pub fn resolve(self, mounts: &[Mount]) -> RootedPath {
        let inside = plain(&self.place.inside);
        let below = |mount: &Mount| {
            let at = plain(Path::new(&mount.container_path))?;
            let rest = inside.as_ref()?.strip_prefix(&at).ok()?.to_owned();
            let is_somewhere = !at.as_os_str().is_empty();
            is_somewhere.then(|| (at, mount.volume.clone(), rest))
        };
        let innermost = mounts.iter().filter_map(below);
        let innermost = innermost.max_by_key(|(at, ..)| at.components().count());
        innermost.map_or(self.place, |(_, root, inside)| RootedPath { root, inside })
    }
}

/// The path without `.`; `None` if it contains anything but plain names.
fn plain(path: &Path) -> Option<PathBuf> {
    let parts = path.components();
    let parts = parts.filter(|part| *part != Component::CurDir);
    parts
        .map(|part| matches!(part, Component::Normal(_)).then_some(part))
        .collect()
}

/// Parses a path in a sandbox; `frameworks` is the agent's directory of frameworks.
pub(super) fn find(frameworks: &Path, path: &str) -> Option<SandboxPath> {
    let path = Path::new(path);
    let virtual_path = path.strip_prefix("/slave(1)").unwrap_or(path);
    let virtual_path = match path == virtual_path {
        true => path,
        false => &Path::new("/").join(virtual_path),
    };
    let rest = path
        .strip_prefix(frameworks)
        .or_else(|_| virtual_path.strip_prefix("/frameworks"))
        .ok()?;
    let parts: Vec<Component<'_>> = rest.components().collect();
    let named = |part: &Component<'_>| matches!(part, Component::Normal(_));
    let [framework, executors, executor, runs, run, inside @ ..] = &parts[..] else {
        return None;
    };
    let fixed = |part: &Component<'_>, name: &str| part.as_os_str() == name;
    if ![framework, executor, run].into_iter().all(named)
        || !fixed(executors, "executors")
        || !fixed(runs, "runs")
    {
        return None;
    }
    let root: PathBuf = [framework, executors, executor, runs, run]
        .iter()
        .fold(frameworks.to_owned(), |root, part| root.join(part));
    let text = |part: &Component<'_>| part.as_os_str().to_string_lossy().into_owned();
    Some(SandboxPath {
        framework: text(framework),
        executor: text(executor),
        run: text(run),
        place: RootedPath {
            root,
            inside: inside.iter().collect(),
        },
    })
}

/// The sandboxes' names and locations, for `/files/debug`.
pub(super) fn names(runs: &[&ContainerView]) -> BTreeMap<String, String> {
    let mut names = BTreeMap::new();
    for run in runs {
        let (framework, executor) = (&run.framework_id, &run.executor.executor_id);
        let latest = format!("/frameworks/{framework}/executors/{executor}/runs/latest");
        let beside = run.directory.rsplit_once('/');
        let beside = beside.map(|(runs, _)| format!("{runs}/latest"));
        for name in [latest, run.directory.clone()].into_iter().chain(beside) {
            // The newest run comes last.
            names.insert(name, run.directory.clone());
        }
    }
    names
}

#[cfg(test)]
mod tests {
    use super::*;

    /// SPEC 3.9.
    // Covers 3.9 `/files/*` of agents.
    #[test]
    fn volume_files_resolve_by_container_path() {
        let mount = |container_path: &str, volume: &str| Mount {
            volume: volume.into(),
            container_path: container_path.to_owned(),
            shared: false,
        };
        let mounts = [
            mount("data", "/v/1"),
            mount("./deep/er/", "/v/2"),
            mount("deep/er/est", "/v/3"),
            mount(".", "/v/4"),
            mount("../out", "/v/5"),
        ];
        for (path, root, inside) in [
            ("", "", ""),
            ("stdout", "", "stdout"),
            ("data", "/v/1", ""),
            ("./data/./a", "/v/1", "a"),
            ("database", "", "database"),
            ("deep", "", "deep"),
            ("deep/er/a/b", "/v/2", "a/b"),
            ("deep/er/est/c", "/v/3", "c"),
            ("data/../stdout", "", "data/../stdout"),
            ("../out/a", "", "../out/a"),
        ] {
            let sandbox = "/frameworks/f/executors/e/runs/c";
            let found = find(Path::new("/w"), &format!("{sandbox}/{path}")).unwrap();
            let own = found.place.root.clone();
            let place = found.resolve(&mounts);
            let root = if root.is_empty() { own } else { root.into() };
            assert_eq!((place.root, place.inside), (root, inside.into()), "{path}");
        }
    }

    // Covers 3.9 `/files/*` of agents.
    #[test]
    fn sandbox_has_three_names_and_no_others() {
        let frameworks = Path::new("/w/slaves/s/frameworks");
        let sandbox = |run: &str, inside: &str| {
            Some(SandboxPath {
                framework: "f".into(),
                executor: "e".into(),
                run: run.into(),
                place: RootedPath {
                    root: frameworks.join("f/executors/e/runs").join(run),
                    inside: inside.into(),
                },
            })
        };
        for name in [
            "/w/slaves/s/frameworks/f/executors/e/runs/c",
            "/frameworks/f/executors/e/runs/c",
            "/slave(1)/frameworks/f/executors/e/runs/c",
        ] {
            assert_eq!(find(frameworks, name), sandbox("c", ""), "{name}");
            let inside = format!("{name}/a/../stdout");
            assert_eq!(find(frameworks, &inside), sandbox("c", "a/../stdout"));
        }
        let latest = "/frameworks/f/executors/e/runs/latest/stderr";
        assert_eq!(find(frameworks, latest), sandbox("latest", "stderr"));
        let run = ContainerId::new("c").unwrap();
        let resolved = find(frameworks, latest).map(|found| found.of_run(&run));
        assert_eq!(resolved, sandbox("c", "stderr"));
        for path in [
            "",
            "/",
            "/etc/passwd",
            "/slave(1)",
            "/w/slaves/s/frameworks",
            "/w/slaves/other/frameworks/f/executors/e/runs/c",
            "/w/slaves/s/frameworks/f/executors/e/runs",
            "/w/slaves/s/frameworks/f/executors/e/runs/..",
            "/w/slaves/s/frameworks/../executors/e/runs/c",
            "/frameworks/f/executors/../runs/c",
            "/frameworks/f/volumes/e/runs/c",
            "frameworks/f/executors/e/runs/c",
        ] {
            assert_eq!(find(frameworks, path), None, "{path}");
        }
    }
}
