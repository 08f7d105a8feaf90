//! The standard input of `meros run`: tasks have none, so waiting input is refused instead of lost.
//!
//! A terminal, `/dev/null`, a closed descriptor and an empty pipe are no input. Reads nothing, so a
//! shell that runs a script from its standard input can continue.

use std::io::stdin;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::socket::{MsgFlags, recv};
use nix::sys::stat::{SFlag, fstat};
use nix::unistd::{Whence, lseek};

use crate::output::error::{CliError, Outcome};

/// Fails if standard input has unread bytes.
pub fn refuse() -> Outcome {
    match is_waiting(stdin().as_fd()) {
        false => Ok(()),
        true => Err(CliError::usage(
            "standard input has data, and is not passed on to tasks: let the command read a file on its agent, \
             or add `< /dev/null` to run it without input",
        )),
    }
}

/// Whether there are unread bytes.
pub fn is_waiting(input: BorrowedFd<'_>) -> bool {
    let Ok(file) = fstat(input) else {
        return false;
    };
    match SFlag::from_bits_truncate(file.st_mode) & SFlag::S_IFMT {
        SFlag::S_IFREG => lseek(input, 0, Whence::SeekCur).is_ok_and(|read| read < file.st_size),
        SFlag::S_IFIFO | SFlag::S_IFSOCK => {
            let mut polled = [PollFd::new(input, PollFlags::POLLIN)];
            let ready = poll(&mut polled, PollTimeout::ZERO).is_ok_and(|ready| ready > 0);
            let events = polled[0].revents().unwrap_or(PollFlags::empty());
            // A pipe at its end reports only that; a socket at its end is also readable.
            let is_socket = file.st_mode & SFlag::S_IFMT.bits() == SFlag::S_IFSOCK.bits();
            let peeked = || {
                recv(
                    input.as_raw_fd(),
                    &mut [0],
                    MsgFlags::MSG_PEEK | MsgFlags::MSG_DONTWAIT,
                )
            };
            ready
                && events.contains(PollFlags::POLLIN)
                && (!is_socket || peeked().is_ok_and(|bytes| bytes > 0))
        }
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Seek, SeekFrom, Write};
    use std::os::unix::net::UnixStream;

    use super::*;

    #[test]
    fn only_unread_bytes_are_input() {
        let mut file = tempfile::tempfile().unwrap();
        assert!(!is_waiting(file.as_fd()), "an empty file");
        file.write_all(b"a\n").unwrap();
        assert!(!is_waiting(file.as_fd()), "a file that has been read");
        file.seek(SeekFrom::Start(0)).unwrap();
        assert!(is_waiting(file.as_fd()));
        let null = std::fs::File::open("/dev/null").unwrap();
        assert!(!is_waiting(null.as_fd()));
        let (mut ours, mut theirs) = UnixStream::pair().unwrap();
        assert!(!is_waiting(ours.as_fd()), "a silent socket");
        theirs.write_all(b"a").unwrap();
        assert!(is_waiting(ours.as_fd()));
        ours.read_exact(&mut [0]).unwrap();
        drop(theirs);
        assert!(!is_waiting(ours.as_fd()), "a socket at its end");
        let (reader, mut writer) = std::io::pipe().unwrap();
        assert!(!is_waiting(reader.as_fd()), "a silent pipe");
        writer.write_all(b"a").unwrap();
        drop(writer);
        assert!(is_waiting(reader.as_fd()));
    }
}
