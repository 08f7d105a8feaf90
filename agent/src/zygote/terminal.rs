//! The terminal of a container's program. The init keeps its master: it copies the output to the
//! file `stdout` and to attached readers, whether there is an agent or not.

use std::fs::File;
use std::io::{self, Write};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};

use nix::fcntl::{FcntlArg, OFlag, fcntl};
use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;

use crate::host::readers::Readers;
use crate::host::sys;

/// Bytes of one read.
const READ_MAX: usize = 64 * 1024;
/// Reads in a turn of the init.
const READS_A_TURN: usize = 16;
/// Reads of the rest after the end of all processes, far more than the kernel keeps.
const READS_AT_END: usize = 256;

/// A terminal.
#[derive(Debug)]
pub(super) struct Terminal {
    master: OwnedFd,
    /// For the program. While this is open, the program may close and open it.
    slave: OwnedFd,
    output: File,
    readers: Readers,
}

impl Terminal {
    /// Makes a terminal that of this process, which leads a session. Its output goes where that of
    /// this process goes.
    pub(super) fn open() -> Result<Self, String> {
        let opened = || -> io::Result<Self> {
            let pair = sys::open_terminal()?;
            fcntl(&pair.master, FcntlArg::F_SETFL(OFlag::O_NONBLOCK))?;
            sys::take_terminal(&pair.slave)?;
            let output = io::stdout().as_fd().try_clone_to_owned()?;
            Ok(Self {
                master: pair.master,
                slave: pair.slave,
                output: File::from(output),
                readers: Readers::default(),
            })
        };
        opened().map_err(|error| format!("open a terminal: {error}"))
    }

    /// The descriptor to poll for output.
    pub(super) fn poll_fd(&self) -> BorrowedFd<'_> {
        self.master.as_fd()
    }

    /// The end that a program of this user gets. The user may open it by its name too.
    pub(super) fn lend(&self, uid: Option<u32>) -> RawFd {
        let _ = nix::unistd::fchown(&self.slave, uid.map(Into::into), None);
        self.slave.as_raw_fd()
    }

    /// Puts a program into its foreground.
    pub(super) fn put_in_foreground(&self, program: i32) {
        put_in_foreground(&self.slave, program);
    }

    /// Gives a reader the master, and output from now on.
    pub(super) fn attach(&mut self, reader: OwnedFd) {
        let master = std::slice::from_ref(&self.master);
        if sys::send(&reader, &[0], master).is_ok() {
            self.readers.add(reader);
        }
    }

    /// The readers that wait for output which was kept for them.
    pub(super) fn behind(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        self.readers.behind()
    }

    /// Sends the output that was kept for them.
    pub(super) fn flush(&mut self) {
        self.readers.flush();
    }

    /// Copies the output that is there.
    pub(super) fn copy(&mut self) {
        let Self {
            master,
            output,
            readers,
            ..
        } = self;
        copy(master, output, readers, READS_A_TURN);
    }

    /// Copies the rest: no process of the container is left.
    pub(super) fn end(self) {
        let Self {
            master,
            slave,
            mut output,
            mut readers,
        } = self;
        // With the last one the kernel hands over all that it has.
        drop(slave);
        copy(&master, &mut output, &mut readers, READS_AT_END);
    }

    /// Closes it in a forked process.
    pub(super) fn leave(mut self) {
        self.readers.leave();
    }
}

fn copy(master: &OwnedFd, output: &mut File, readers: &mut Readers, reads: usize) {
    let mut buffer = vec![0; READ_MAX];
    for _ in 0..reads {
        let Ok(length @ 1..) = nix::unistd::read(master, &mut buffer) else {
            return;
        };
        // The disk may be full.
        let _ = output.write_all(&buffer[..length]);
        readers.write(&buffer[..length]);
    }
}

/// Puts a program into the foreground of its terminal. Whatever it has tried before, it goes on.
pub(super) fn put_in_foreground(terminal: &impl AsFd, program: i32) {
    let program = Pid::from_raw(program);
    let _ = nix::unistd::tcsetpgrp(terminal, program);
    let _ = killpg(program, Signal::SIGCONT);
}
