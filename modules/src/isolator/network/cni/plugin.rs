//! Execution of plugins.

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::fd::AsFd;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus};
use std::time::Duration;

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::{Signal, killpg};
use rustix::fs::{MemfdFlags, memfd_create};
use rustix::process::{PidfdFlags, pidfd_open};
use serde_json::Value;

use super::config::{Object, program};

/// The longest time that a plugin may take. With two plugins a launch stays within its patience.
pub(super) const LIMIT: Duration = Duration::from_secs(25);
/// Maximum bytes that are read of an output.
const OUTPUT_MAX: u64 = 1 << 20;
/// Where programs are looked up if the agent has no `PATH`.
const PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// The parameters of a call.
#[derive(Clone, Copy, Debug)]
pub(super) struct Call<'a> {
    /// `ADD` or `DEL`.
    pub(super) command: &'a str,
    /// The id of the container.
    pub(super) container: &'a str,
    /// The file of the network namespace, if there is one.
    pub(super) namespace: Option<&'a Path>,
    /// The name of the interface in it.
    pub(super) interface: &'a str,
}

/// How a plugin failed.
#[derive(Debug)]
pub(super) struct Failure {
    /// Its program.
    pub(super) program: PathBuf,
    /// Its output, or why it could not be run.
    pub(super) problem: String,
}

/// The program of a plugin in the operator's directories, which are separated by `:`.
pub(super) fn find(directories: &str, plugin: &Object) -> Result<PathBuf, String> {
    let name = program(plugin);
    let directories = directories.split(':').filter(|path| !path.is_empty());
    let mut paths = directories.map(|path| Path::new(path).join(name));
    let found = paths.find(|path| path.is_file());
    found.ok_or_else(|| format!("Unable to find the plugin {name} in --network_cni_plugins_dir"))
}

/// Blocking, for at most [`LIMIT`]. Runs a plugin, and returns the result that it prints. It holds
/// `log`, its standard error, as long as it runs.
pub(super) fn run(
    directories: &str,
    plugin: &Object,
    call: Call<'_>,
    log: &mut File,
) -> Result<Value, Failure> {
    let program = find(directories, plugin).map_err(|problem| Failure {
        program: program(plugin).into(),
        problem,
    })?;
    let failed = |problem: String| Failure {
        program: program.clone(),
        problem,
    };
    let cannot = |error: io::Error| failed(error.to_string());
    // Files in memory: no order of reads and writes can block.
    let file = |name: &str| {
        let created = memfd_create(name, MemfdFlags::CLOEXEC);
        created.map(File::from).map_err(io::Error::from)
    };
    let mut input = file("cni-config").map_err(cannot)?;
    let mut output = file("cni-result").map_err(cannot)?;
    let config = serde_json::to_vec(plugin).map_err(|error| failed(error.to_string()))?;
    let prepared = input.write_all(&config).and_then(|()| input.rewind());
    let emptied = prepared.and_then(|()| log.set_len(0).and_then(|()| log.rewind()));
    emptied.map_err(cannot)?;
    let mut command = Command::new(&program);
    command
        .env_clear()
        .env(
            "PATH",
            std::env::var_os("PATH").unwrap_or_else(|| PATH.into()),
        )
        .env("CNI_COMMAND", call.command)
        .env("CNI_CONTAINERID", call.container)
        .env("CNI_IFNAME", call.interface)
        .env("CNI_PATH", directories)
        .current_dir("/")
        .process_group(0);
    if let Some(namespace) = call.namespace {
        command.env("CNI_NETNS", namespace);
    }
    let ended = (|| {
        command.stdin(input).stdout(output.try_clone()?);
        let child = command.stderr(log.try_clone()?).spawn()?;
        // The command holds the files open.
        drop(command);
        wait(child)
    })();
    let ended = ended.map_err(cannot)?;
    let (result, errors) = (read(&mut output), read(log));
    match ended {
        None => {
            let limit = protocol::text::duration::format(LIMIT);
            Err(failed(format!("it took longer than {limit}")))
        }
        Some(status) if status.success() => match result.trim() {
            "" => Ok(Value::Null),
            text => serde_json::from_str(text)
                .map_err(|error| failed(format!("its result is not understood: {error}"))),
        },
        Some(_) => {
            let (result, errors) = (result.trim(), errors.trim());
            Err(failed(format!("stdout='{result}', stderr='{errors}'")))
        }
    }
}

/// `None` if it was killed after the time limit.
fn wait(mut child: Child) -> io::Result<Option<ExitStatus>> {
    let ends = pidfd_open(
        rustix::process::Pid::from_child(&child),
        PidfdFlags::empty(),
    )?;
    let limit = PollTimeout::try_from(LIMIT).unwrap_or(PollTimeout::MAX);
    // Terminates: signals are few, and the agent blocks them.
    let is_late = loop {
        match poll(&mut [PollFd::new(ends.as_fd(), PollFlags::POLLIN)], limit) {
            Err(Errno::EINTR) => {}
            Err(error) => return Err(error.into()),
            Ok(ready) => break ready == 0,
        }
    };
    if is_late {
        let group = nix::unistd::Pid::from_raw(child.id().cast_signed());
        let _ = killpg(group, Signal::SIGKILL); // It may have ended just now.
    }
    let status = child.wait()?;
    Ok((!is_late).then_some(status))
}

fn read(file: &mut File) -> String {
    let mut bytes = Vec::new();
    let read = file
        .seek(SeekFrom::Start(0))
        .and_then(|_| file.take(OUTPUT_MAX).read_to_end(&mut bytes));
    if let Err(error) = read {
        return error.to_string();
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::PermissionsExt;

    use serde_json::json;

    use super::*;

    fn run_script(script: &str) -> Result<Value, Failure> {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("plugin");
        fs::write(&path, format!("#!/bin/sh\n{script}\n")).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
        let plugin = json!({ "type": "plugin", "name": "n" });
        let call = Call {
            command: "ADD",
            container: "c",
            namespace: Some(Path::new("/ns")),
            interface: "eth0",
        };
        let mut log = tempfile::tempfile().unwrap();
        let directories = format!("/nowhere:{}", directory.path().display());
        run(&directories, plugin.as_object().unwrap(), call, &mut log)
    }

    #[test]
    fn plugin_gets_its_configuration_and_prints_a_result() {
        let script = r#"config=$(cat); echo "{\"config\": $config,
            \"call\": \"$CNI_COMMAND $CNI_CONTAINERID $CNI_NETNS $CNI_IFNAME\"}""#;
        let result = run_script(script).unwrap();
        assert_eq!(result["call"], "ADD c /ns eth0");
        assert_eq!(result["config"], json!({ "type": "plugin", "name": "n" }));
        assert_eq!(run_script("cat > /dev/null").unwrap(), Value::Null);
    }

    #[test]
    fn failure_says_what_the_plugin_wrote() {
        let failure = run_script(r#"echo '{"code": 7}'; echo trace >&2; exit 1"#).unwrap_err();
        let problem = failure.problem;
        assert_eq!(problem, r#"stdout='{"code": 7}', stderr='trace'"#);
        let failure = run_script("echo no").unwrap_err();
        assert!(failure.problem.contains("not understood"), "{failure:?}");
    }
}
