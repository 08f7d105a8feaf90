//! The only file of this crate with unsafe code: a fork for single-threaded processes, a spawn that
//! does not copy its caller, and a handle to a process.
//!
//! Used by the zygote and by container inits, which have one thread each. Only [`ProcessHandle`]
//! is for the agent: code between fork and exec must not need locks of other threads.

use std::ffi::{CStr, CString};
use std::io;
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use nix::fcntl::{FcntlArg, FdFlag, OFlag, fcntl};
use nix::libc;
use nix::pty::{OpenptyResult, openpty};
use nix::sched::CloneFlags;
use nix::sys::socket::{ControlMessage, ControlMessageOwned, MsgFlags, recvmsg, sendmsg};
use nix::unistd::Pid;
use protocol::Termination;
use serde::{Deserialize, Serialize};
use tokio::io::unix::AsyncFd;

/// Which side of a fork this is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Forked {
    /// The new process.
    Child,
    /// The old process, with the child's id.
    Parent(Pid),
}

/// Forks this process, which must have a single thread.
pub fn fork() -> io::Result<Forked> {
    // SAFETY: the zygote never starts a thread (tests/processes counts them), so no lock can be
    // held by a thread that is missing in the child, which may continue as an ordinary process.
    #[allow(unsafe_code)]
    let forked = unsafe { nix::unistd::fork() };
    match forked? {
        nix::unistd::ForkResult::Child => Ok(Forked::Child),
        nix::unistd::ForkResult::Parent { child } => Ok(Forked::Parent(child)),
    }
}

/// Forks this process, which must have a single thread. The child is the first process in the
/// namespaces of `flags`.
pub fn fork_into(flags: CloneFlags) -> io::Result<Forked> {
    if flags.is_empty() {
        return fork();
    }
    let none = 0_usize;
    // A negative value of the flags does not occur.
    let flags = flags.bits() as usize | libc::SIGCHLD as usize;
    // SAFETY: as for `fork`. Without a stack of its own the child runs on a copy of this one. The C
    // library does not know of it; this crate does not use the state that it would have adapted
    // (the thread's id, handlers of forks).
    #[allow(unsafe_code)]
    let pid = unsafe { libc::syscall(libc::SYS_clone, flags, none, none, none, none) };
    match i32::try_from(pid) {
        Ok(0) => Ok(Forked::Child),
        Ok(pid) if pid > 0 => Ok(Forked::Parent(Pid::from_raw(pid))),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Ends a forked process without the exit handlers inherited from its parent: they free the whole
/// heap.
pub fn exit_now(status: i32) -> ! {
    // SAFETY: it ends the process and touches no memory.
    #[allow(unsafe_code)]
    unsafe {
        libc::_exit(status)
    }
}

/// Reaps one ended child, if any. `ECHILD` if there are no children.
pub fn reap() -> io::Result<Option<(Pid, Termination)>> {
    let mut status = 0;
    // SAFETY: the pointer is valid for the call. nix's own function fails for a child that was
    // ended by a real-time signal, after it has reaped it.
    #[allow(unsafe_code)]
    let pid = unsafe { libc::waitpid(-1, &mut status, libc::WNOHANG) };
    match pid {
        0 => Ok(None),
        _ if pid < 0 => Err(io::Error::last_os_error()),
        _ if libc::WIFSIGNALED(status) => {
            let signal = Termination::Signaled(libc::WTERMSIG(status));
            Ok(Some((Pid::from_raw(pid), signal)))
        }
        _ => {
            let code = Termination::Exited(libc::WEXITSTATUS(status));
            Ok(Some((Pid::from_raw(pid), code)))
        }
    }
}

/// Most descriptors that come with one message.
const DESCRIPTORS_MAX: usize = 3;

/// Receives from a socket, with the descriptors that come along.
pub fn receive(socket: &impl AsFd, buffer: &mut [u8]) -> io::Result<(usize, Vec<OwnedFd>)> {
    let mut control = nix::cmsg_space!([RawFd; DESCRIPTORS_MAX]);
    let mut bytes = [io::IoSliceMut::new(buffer)];
    let socket = socket.as_fd().as_raw_fd();
    let flags = MsgFlags::MSG_CMSG_CLOEXEC;
    let received = recvmsg::<()>(socket, &mut bytes, Some(&mut control), flags)?;
    let mut descriptors = Vec::new();
    for message in received.cmsgs()? {
        if let ControlMessageOwned::ScmRights(raw) = message {
            // SAFETY: the kernel has just made these for this process, and nothing else owns them.
            #[allow(unsafe_code)]
            descriptors.extend(
                raw.into_iter()
                    .map(|raw| unsafe { OwnedFd::from_raw_fd(raw) }),
            );
        }
    }
    Ok((received.bytes, descriptors))
}

/// Sends to a socket, with copies of these descriptors. Returns how many bytes were sent.
pub fn send(socket: &impl AsFd, bytes: &[u8], descriptors: &[OwnedFd]) -> io::Result<usize> {
    let raw: Vec<RawFd> = descriptors.iter().map(AsRawFd::as_raw_fd).collect();
    let rights = [ControlMessage::ScmRights(&raw)];
    let rights: &[ControlMessage<'_>] = if raw.is_empty() { &[] } else { &rights };
    let bytes = [io::IoSlice::new(bytes)];
    let socket = socket.as_fd().as_raw_fd();
    Ok(sendmsg::<()>(
        socket,
        &bytes,
        rights,
        MsgFlags::MSG_NOSIGNAL,
        None,
    )?)
}

/// A new terminal. Programs inherit neither end.
pub fn open_terminal() -> io::Result<OpenptyResult> {
    let pair = openpty(None, None)?;
    for end in [&pair.master, &pair.slave] {
        fcntl(end, FcntlArg::F_SETFD(FdFlag::FD_CLOEXEC))?;
    }
    Ok(pair)
}

/// Makes a terminal that of the session which this process leads.
pub fn take_terminal(terminal: &impl AsFd) -> io::Result<()> {
    let terminal = terminal.as_fd().as_raw_fd();
    // SAFETY: this request takes a number and no pointer.
    #[allow(unsafe_code)]
    match unsafe { libc::ioctl(terminal, libc::TIOCSCTTY, 0) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// A descriptor that the agent reads or writes without waiting.
pub fn watch(descriptor: OwnedFd) -> io::Result<AsyncFd<OwnedFd>> {
    fcntl(&descriptor, FcntlArg::F_SETFL(OFlag::O_NONBLOCK))?;
    // SAFETY: it gives the same descriptor each time, and closes it only when it is dropped.
    #[allow(unsafe_code)]
    let watched = unsafe { AsyncFd::register(descriptor) };
    Ok(watched?)
}

/// Sets the size of a terminal's window.
pub fn set_window(terminal: &impl AsFd, rows: u16, columns: u16) -> io::Result<()> {
    let size = libc::winsize {
        ws_row: rows,
        ws_col: columns,
        ws_xpixel: 0,
        ws_ypixel: 0,
    };
    let terminal = terminal.as_fd().as_raw_fd();
    // SAFETY: the pointer is valid for the call, which only reads from it.
    #[allow(unsafe_code)]
    match unsafe { libc::ioctl(terminal, libc::TIOCSWINSZ, &size) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// The umask of started programs: files are readable by all users and writable by their owner.
const UMASK: libc::mode_t = 0o022;

/// The first descriptor that started programs do not inherit.
const FIRST_CLOSED: libc::c_uint = 3;

/// Closes all descriptors except standard input, output and error. Must be called before any other
/// is opened.
pub fn close_inherited() -> io::Result<()> {
    // SAFETY: it takes only numbers, and nothing in this process owns these descriptors.
    #[allow(unsafe_code)]
    let closed =
        unsafe { libc::syscall(libc::SYS_close_range, FIRST_CLOSED, libc::c_uint::MAX, 0) };
    match closed {
        0 => Ok(()),
        // Linux before 5.9 lacks the call, and seccomp profiles of that time return EPERM.
        _ => close_listed(),
    }
}

fn close_listed() -> io::Result<()> {
    let mut open: Vec<RawFd> = Vec::new();
    for entry in std::fs::read_dir("/proc/self/fd")? {
        open.extend(
            entry?
                .file_name()
                .to_str()
                .and_then(|name| name.parse::<RawFd>().ok()),
        );
    }
    for fd in open.into_iter().filter(|&fd| fd > 2) {
        let _ = nix::unistd::close(fd); // The directory's own descriptor is closed already.
    }
    Ok(())
}

/// Ignores SIGTERM, SIGINT and SIGHUP, which are often sent to a whole process group: the caller
/// runs until its work is done.
pub fn ignore_ends() -> io::Result<()> {
    use nix::sys::signal::{SigHandler, Signal, signal};
    for ends in [Signal::SIGTERM, Signal::SIGINT, Signal::SIGHUP] {
        // SAFETY: ignoring a signal runs no handler.
        #[allow(unsafe_code)]
        unsafe { signal(ends, SigHandler::SigIgn) }?;
    }
    Ok(())
}

/// The user and groups of a new process.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Credentials {
    /// User id.
    pub uid: u32,
    /// Main group id.
    pub gid: u32,
    /// All groups.
    pub groups: Vec<u32>,
}

/// A program to start: in its parent's directory, with its parent's input and output, as leader of
/// a process group.
#[derive(Clone, Debug)]
pub struct Program {
    /// The file to execute; a name without a slash is looked up in the environment's `PATH`.
    pub file: String,
    /// `argv`, starting with the program's name.
    pub arguments: Vec<String>,
    /// The whole environment, as `NAME=value`.
    pub environment: Vec<(String, String)>,
    /// `None` for the parent's user.
    pub credentials: Option<Credentials>,
    /// The opened `cgroup.procs` of a control group that it joins.
    pub cgroup: Option<RawFd>,
    /// What it may do.
    pub rights: Rights,
    /// Whether its standard output goes to its parent's standard error.
    pub output_to_error: bool,
    /// The terminal that is its standard input, output and error instead.
    pub terminal: Option<RawFd>,
}

/// What a program may do.
#[derive(Clone, Debug, Default)]
pub struct Rights {
    /// Kind (`RLIMIT_NOFILE` and so on), soft and hard value of its resource limits.
    pub rlimits: Vec<(libc::__rlimit_resource_t, libc::rlimit64)>,
    /// Its capabilities; `None` for those of its user.
    pub capabilities: Option<Capabilities>,
    /// Filters of its system calls; those of a profile that refuses the calls of this file's child
    /// fail the start.
    pub seccomp: Vec<Vec<libc::sock_filter>>,
}

/// Capabilities of a program: bit `n` is capability number `n`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Capabilities {
    /// Those it has; `None` for those of its user.
    pub effective: Option<u64>,
    /// Those it can gain.
    pub bounding: u64,
}

/// Why a program could not be started.
#[derive(Debug, thiserror::Error)]
#[error("{step} `{what}`: {source}")]
pub struct SpawnError {
    /// The step, for example `execute`.
    pub step: &'static str,
    /// Its object.
    pub what: String,
    /// The system error.
    pub source: io::Error,
}

impl SpawnError {
    fn new(step: &'static str, what: impl Into<String>, source: io::Error) -> Self {
        Self {
            step,
            what: what.into(),
            source,
        }
    }
}

/// The child's data, built before it exists: between clone and exec it must not allocate.
struct Plan {
    file: CString,
    arguments: Vec<*const libc::c_char>,
    environment: Vec<*const libc::c_char>,
    credentials: Option<Credentials>,
    cgroup: Option<RawFd>,
    rights: Rights,
    output_to_error: bool,
    terminal: Option<RawFd>,
    parent: libc::pid_t,
    failure: Option<(&'static str, i32)>,
}

/// Resolves a program name: unchanged if it has a slash, otherwise the first executable in `path`.
pub fn look_up(file: &str, path: &str) -> io::Result<PathBuf> {
    if file.is_empty() {
        return Err(io::Error::from_raw_os_error(libc::ENOENT));
    }
    if file.contains('/') {
        return Ok(PathBuf::from(file));
    }
    let mut denied = false;
    for directory in path.split(':').filter(|directory| !directory.is_empty()) {
        let candidate = Path::new(directory).join(file);
        match nix::unistd::access(&candidate, nix::unistd::AccessFlags::X_OK) {
            Ok(()) if candidate.is_file() => return Ok(candidate),
            Err(nix::errno::Errno::EACCES) => denied = true,
            _ => {}
        }
    }
    let code = if denied { libc::EACCES } else { libc::ENOENT };
    Err(io::Error::from_raw_os_error(code))
}

/// Starts a program without copying this process: the child shares its memory until it executes.
///
/// The child dies with this thread (`PR_SET_PDEATHSIG`), has default signal handlers and no blocked
/// signal.
pub fn spawn(program: &Program) -> Result<Pid, SpawnError> {
    let invalid = |what: &str| {
        let source = io::Error::new(io::ErrorKind::InvalidInput, "it contains a zero byte");
        SpawnError::new("pass", what, source)
    };
    let text = |text: &str| CString::new(text).map_err(|_| invalid(text));
    let path = program.environment.iter().find(|(name, _)| name == "PATH");
    let file = look_up(
        &program.file,
        path.map_or("/usr/bin:/bin", |(_, path)| path),
    )
    .map_err(|source| SpawnError::new("execute", &program.file, source))?;
    let file = CString::new(file.as_os_str().as_bytes()).map_err(|_| invalid(&program.file))?;
    let arguments = program
        .arguments
        .iter()
        .map(|argument| text(argument))
        .collect::<Result<Vec<_>, _>>()?;
    let environment = program
        .environment
        .iter()
        .map(|(name, value)| text(&format!("{name}={value}")))
        .collect::<Result<Vec<_>, _>>()?;
    let pointers = |texts: &[CString]| -> Vec<*const libc::c_char> {
        texts
            .iter()
            .map(|text| text.as_ptr())
            .chain([std::ptr::null()])
            .collect()
    };
    let mut plan = Plan {
        file,
        arguments: pointers(&arguments),
        environment: pointers(&environment),
        credentials: program.credentials.clone(),
        cgroup: program.cgroup,
        rights: program.rights.clone(),
        output_to_error: program.output_to_error,
        terminal: program.terminal,
        parent: nix::unistd::getpid().as_raw(),
        failure: None,
    };
    let child =
        run(&mut plan).map_err(|source| SpawnError::new("fork for", &program.file, source))?;
    let Some((step, code)) = plan.failure else {
        return Ok(child);
    };
    // The child has ended already; reap it here, so that no other code waits for it.
    let _ = nix::sys::wait::waitpid(child, None);
    let what = match step {
        "become user" => program
            .credentials
            .as_ref()
            .map_or(String::new(), |c| c.uid.to_string()),
        _ => program.file.clone(),
    };
    Err(SpawnError::new(
        step,
        what,
        io::Error::from_raw_os_error(code),
    ))
}

/// Stack for the child between clone and exec, which makes a dozen system calls.
const STACK: usize = 32 * 1024;

fn run(plan: &mut Plan) -> io::Result<Pid> {
    let mut stack: Vec<u64> = Vec::with_capacity(STACK / 8);
    let mut old = nix::sys::signal::SigSet::empty();
    let all = nix::sys::signal::SigSet::all();
    nix::sys::signal::pthread_sigmask(
        nix::sys::signal::SigmaskHow::SIG_SETMASK,
        Some(&all),
        Some(&mut old),
    )?;
    // SAFETY: CLONE_VFORK suspends this thread until the child has executed or ended, so the stack
    // and the plan outlive the child's use of them and are not accessed meanwhile. The stack is
    // 8-byte aligned memory of the stated length, and its top is rounded down to 16 bytes. Signals
    // are blocked, so no handler of this process runs in the child.
    #[allow(unsafe_code)]
    let child = unsafe {
        let top = stack.as_mut_ptr().cast::<u8>().add(STACK);
        let top = top.sub(top as usize % 16);
        let plan: *mut Plan = plan;
        libc::clone(
            child,
            top.cast(),
            libc::CLONE_VM | libc::CLONE_VFORK | libc::SIGCHLD,
            plan.cast(),
        )
    };
    let cloned = if child < 0 {
        Err(io::Error::last_os_error())
    } else {
        Ok(Pid::from_raw(child))
    };
    nix::sys::signal::pthread_sigmask(nix::sys::signal::SigmaskHow::SIG_SETMASK, Some(&old), None)?;
    cloned
}

/// The child: only system calls, no allocation, no lock, no return on success.
extern "C" fn child(argument: *mut libc::c_void) -> libc::c_int {
    // SAFETY: `run` passes a pointer to its plan, which stays valid and unused until this function
    // has ended.
    #[allow(unsafe_code)]
    let plan = unsafe { &mut *argument.cast::<Plan>() };
    // SAFETY: only async-signal-safe calls, on pointers and descriptors that the parent keeps
    // valid.
    #[allow(unsafe_code)]
    let failure = unsafe { become_program(plan) };
    plan.failure = Some(failure);
    // SAFETY: ends this process without running any code of the parent.
    #[allow(unsafe_code)]
    unsafe {
        libc::_exit(127)
    }
}

/// Executes the program, or returns the failed step and its error.
///
/// # Safety
/// Must run in a child made by `run`; every pointer in the plan must be valid.
#[allow(unsafe_code)]
unsafe fn become_program(plan: &Plan) -> (&'static str, i32) {
    // SAFETY: see the function's contract; each call gets valid pointers and checks its result.
    unsafe {
        // Default handlers: a program must not inherit ignored signals, such as SIGPIPE in Rust
        // programs.
        for signal in 1..=64 {
            if signal != libc::SIGKILL && signal != libc::SIGSTOP {
                libc::signal(signal, libc::SIG_DFL);
            }
        }
        if libc::setpgid(0, 0) < 0 {
            return ("lead a group for", errno());
        }
        if let Some(cgroup) = plan.cgroup
            && libc::write(cgroup, c"0".as_ptr().cast(), 1) < 0
        {
            return ("join the control group of", errno());
        }
        for (kind, limit) in &plan.rights.rlimits {
            if libc::prlimit64(0, *kind, limit, std::ptr::null_mut()) < 0 {
                return ("limit the resources of", errno());
            }
        }
        for filter in &plan.rights.seccomp {
            if let Err(code) = filter_calls(filter) {
                return ("filter the system calls of", code);
            }
        }
        if let Some(capabilities) = &plan.rights.capabilities
            && let Err(code) = bound_capabilities(capabilities)
        {
            return ("bound the capabilities of", code);
        }
        if plan.output_to_error && libc::dup2(libc::STDERR_FILENO, libc::STDOUT_FILENO) < 0 {
            return ("redirect the output of", errno());
        }
        if let Some(terminal) = plan.terminal
            && (0..FIRST_CLOSED as RawFd).any(|standard| libc::dup2(terminal, standard) < 0)
        {
            return ("connect the terminal of", errno());
        }
        if let Some(who) = &plan.credentials {
            // Raw calls: the C library's wrappers signal other threads, of which there are none
            // here.
            let groups = libc::syscall(libc::SYS_setgroups, who.groups.len(), who.groups.as_ptr());
            if groups < 0
                || libc::syscall(libc::SYS_setresgid, who.gid, who.gid, who.gid) < 0
                || libc::syscall(libc::SYS_setresuid, who.uid, who.uid, who.uid) < 0
            {
                return ("become user", errno());
            }
        }
        if let Some(effective) = plan.rights.capabilities.and_then(|sets| sets.effective)
            && let Err(code) = set_capabilities(effective)
        {
            return ("set the capabilities of", code);
        }
        libc::umask(UMASK);
        // Descriptors of libraries without close-on-exec. The parent's table is separate. Fails
        // before Linux 5.9, where only close-on-exec applies.
        libc::syscall(libc::SYS_close_range, FIRST_CLOSED, libc::c_uint::MAX, 0);
        // After the change of user, which would clear it.
        if libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) < 0 {
            return ("tie to its parent", errno());
        }
        if libc::getppid() != plan.parent {
            return ("keep the parent of", libc::ESRCH);
        }
        let mut none: libc::sigset_t = std::mem::zeroed();
        libc::sigemptyset(&mut none);
        libc::sigprocmask(libc::SIG_SETMASK, &none, std::ptr::null_mut());
        libc::execve(
            plan.file.as_ptr(),
            plan.arguments.as_ptr(),
            plan.environment.as_ptr(),
        );
    }
    ("execute", errno())
}

/// Installs a filter. Before the change of user: without `no_new_privs` it takes
/// rights of root. The calls that follow must pass it.
fn filter_calls(filter: &[libc::sock_filter]) -> Result<(), i32> {
    let program = libc::sock_fprog {
        len: u16::try_from(filter.len()).map_err(|_| libc::E2BIG)?,
        filter: filter.as_ptr().cast_mut(),
    };
    let mode = libc::SECCOMP_MODE_FILTER;
    // SAFETY: the kernel reads `len` instructions at the pointer, and changes nothing.
    #[allow(unsafe_code)]
    let set = unsafe { libc::prctl(libc::PR_SET_SECCOMP, mode, &raw const program) };
    check(set.into())
}

/// Gives up all other capabilities for good, and keeps those that are there through a change of
/// user.
fn bound_capabilities(capabilities: &Capabilities) -> Result<(), i32> {
    for number in (0..64_u64).filter(|number| capabilities.bounding & (1 << number) == 0) {
        // SAFETY: it takes only numbers.
        #[allow(unsafe_code)]
        let dropped = unsafe { libc::prctl(libc::PR_CAPBSET_DROP, number, 0, 0, 0) };
        match check(dropped.into()) {
            // This kernel has no more.
            Err(libc::EINVAL) => break,
            other => other?,
        }
    }
    let none: libc::c_ulong = 0;
    let clear = libc::PR_CAP_AMBIENT_CLEAR_ALL;
    // SAFETY: it takes only numbers.
    #[allow(unsafe_code)]
    let cleared = unsafe { libc::prctl(libc::PR_CAP_AMBIENT, clear, none, none, none) };
    check(cleared.into())?;
    let keep = libc::c_ulong::from(capabilities.effective.is_some());
    // SAFETY: it takes only numbers.
    #[allow(unsafe_code)]
    let kept = unsafe { libc::prctl(libc::PR_SET_KEEPCAPS, keep, 0, 0, 0) };
    check(kept.into())
}

/// `_LINUX_CAPABILITY_VERSION_3`.
const CAPABILITY_VERSION: u32 = 0x2008_0522;

/// Has exactly these capabilities; the programs that it executes have them, too, and those of root
/// all that are bounding.
fn set_capabilities(effective: u64) -> Result<(), i32> {
    let header = [CAPABILITY_VERSION, 0];
    // The lower 32 of each set, then the upper ones.
    let (low, high) = (effective as u32, (effective >> 32) as u32);
    let sets = [low, low, low, high, high, high];
    // SAFETY: the kernel reads two and six numbers, and changes nothing.
    #[allow(unsafe_code)]
    let set = unsafe { libc::syscall(libc::SYS_capset, header.as_ptr(), sets.as_ptr()) };
    check(set)?;
    for number in (0..64_u64).filter(|number| effective & (1 << number) != 0) {
        // SAFETY: it takes only numbers.
        #[allow(unsafe_code)]
        let raised = unsafe {
            libc::prctl(
                libc::PR_CAP_AMBIENT,
                libc::PR_CAP_AMBIENT_RAISE,
                number,
                0,
                0,
            )
        };
        check(raised.into())?;
    }
    Ok(())
}

fn check(result: libc::c_long) -> Result<(), i32> {
    match result < 0 {
        true => Err(errno()),
        false => Ok(()),
    }
}

/// Makes a mount that is not attached yet read-only, with the mounts below it.
pub fn make_read_only(tree: &OwnedFd) -> io::Result<()> {
    let change = libc::mount_attr {
        attr_set: libc::MOUNT_ATTR_RDONLY,
        attr_clr: 0,
        propagation: 0,
        userns_fd: 0,
    };
    let (here, flags) = (c"".as_ptr(), libc::AT_EMPTY_PATH | libc::AT_RECURSIVE);
    // SAFETY: the text ends with a zero byte, and the structure has the size that is passed.
    #[allow(unsafe_code)]
    let changed = unsafe {
        libc::syscall(
            libc::SYS_mount_setattr,
            tree.as_raw_fd(),
            here,
            flags,
            &raw const change,
            size_of::<libc::mount_attr>(),
        )
    };
    check(changed).map_err(io::Error::from_raw_os_error)
}

fn errno() -> i32 {
    nix::errno::Errno::last_raw()
}

/// A handle (pidfd) to a process that is not a child: signals cannot reach another process that
/// reuses its pid.
#[derive(Debug)]
pub struct ProcessHandle(OwnedFd);

impl ProcessHandle {
    /// Opens the process that has this pid now. The caller must verify its identity afterwards.
    pub fn of(pid: i32) -> io::Result<Self> {
        // SAFETY: it takes only numbers.
        #[allow(unsafe_code)]
        let made = unsafe { libc::syscall(libc::SYS_pidfd_open, pid, 0) };
        if made < 0 {
            return Err(io::Error::last_os_error());
        }
        let made = RawFd::try_from(made).map_err(io::Error::other)?;
        // SAFETY: the kernel has just created this descriptor, and it has no other owner.
        #[allow(unsafe_code)]
        let owned = unsafe { OwnedFd::from_raw_fd(made) };
        Ok(Self(owned))
    }

    /// Kills it, unless it has ended.
    pub fn kill(&self) -> io::Result<()> {
        let (held, none) = (self.0.as_raw_fd(), std::ptr::null::<libc::siginfo_t>());
        // SAFETY: the descriptor is open as long as `self` is, and a null `siginfo` is filled in by
        // the kernel.
        #[allow(unsafe_code)]
        let sent =
            unsafe { libc::syscall(libc::SYS_pidfd_send_signal, held, libc::SIGKILL, none, 0) };
        match sent {
            0 => Ok(()),
            _ => Err(io::Error::last_os_error()),
        }
    }
}

/// A user, of this host or of an image.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Account {
    /// Its name.
    pub name: String,
    /// Its home directory.
    pub home: PathBuf,
    /// Its ids.
    pub credentials: Credentials,
}

/// The user of this name, if it exists.
pub fn account(user: &str) -> io::Result<Option<Account>> {
    nix::unistd::User::from_name(user)?
        .map(describe)
        .transpose()
}

/// The user of this id, if it exists.
pub fn account_of(uid: u32) -> io::Result<Option<Account>> {
    let known = nix::unistd::User::from_uid(nix::unistd::Uid::from_raw(uid))?;
    known.map(describe).transpose()
}

fn describe(known: nix::unistd::User) -> io::Result<Account> {
    let name = CString::new(known.name.as_str());
    let name = name.map_err(|_| io::Error::from(io::ErrorKind::InvalidInput))?;
    Ok(Account {
        credentials: Credentials {
            uid: known.uid.as_raw(),
            gid: known.gid.as_raw(),
            groups: groups(&name, known.gid)?,
        },
        name: known.name,
        home: known.dir,
    })
}

fn groups(user: &CStr, main: nix::unistd::Gid) -> io::Result<Vec<u32>> {
    let groups = nix::unistd::getgrouplist(user, main)?;
    Ok(groups.into_iter().map(nix::unistd::Gid::as_raw).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use nix::sys::wait::{WaitStatus, waitpid};

    fn program(file: &str, arguments: &[&str]) -> Program {
        Program {
            file: file.into(),
            arguments: arguments
                .iter()
                .map(|&argument| argument.to_owned())
                .collect(),
            environment: vec![("PATH".into(), "/usr/bin:/bin".into())],
            credentials: None,
            cgroup: None,
            rights: Rights::default(),
            output_to_error: false,
            terminal: None,
        }
    }

    #[test]
    fn process_handle_kills_only_its_process() {
        let mut child = std::process::Command::new("sleep")
            .arg("98797")
            .spawn()
            .unwrap();
        let held = ProcessHandle::of(child.id() as i32).unwrap();
        held.kill().unwrap();
        assert!(!child.wait().unwrap().success());
        let gone = held.kill().unwrap_err();
        assert_eq!(gone.raw_os_error(), Some(libc::ESRCH));
        assert!(ProcessHandle::of(0).is_err(), "not our own group");
    }

    #[test]
    fn a_spawned_program_ends_with_its_own_status() {
        let child = spawn(&program("sh", &["sh", "-c", "exit 3"])).unwrap();
        assert_eq!(waitpid(child, None).unwrap(), WaitStatus::Exited(child, 3));
    }

    #[test]
    fn failed_spawn_names_step_program_and_error() {
        let error = spawn(&program("no-such-program", &["x"])).unwrap_err();
        assert_eq!(
            error.to_string(),
            "execute `no-such-program`: No such file or directory (os error 2)"
        );
        let error = spawn(&program("/etc/passwd", &["x"])).unwrap_err();
        assert_eq!(
            error.to_string(),
            "execute `/etc/passwd`: Permission denied (os error 13)"
        );
        let mut ungrouped = program("/bin/true", &["true"]);
        ungrouped.cgroup = Some(99_999);
        let error = spawn(&ungrouped).unwrap_err();
        assert_eq!(
            error.to_string(),
            "join the control group of `/bin/true`: Bad file descriptor (os error 9)"
        );
        assert!(spawn(&program("/bin/true", &["a\0b"])).is_err());
    }

    #[test]
    fn a_spawned_program_leads_its_own_group() {
        let script = "test \"$(cut -d' ' -f5 /proc/$$/stat)\" = $$";
        let child = spawn(&program("sh", &["sh", "-c", script])).unwrap();
        assert_eq!(waitpid(child, None).unwrap(), WaitStatus::Exited(child, 0));
    }
}
