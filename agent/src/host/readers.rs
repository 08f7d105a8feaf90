//! Readers that are attached to the output of a container, in its init or in the agent.

use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use nix::sys::socket::sockopt::SndBufForce;
use nix::sys::socket::{AddressFamily, SockFlag, SockType, setsockopt, socketpair};

use crate::host::sys;

/// Bytes of output in the socket of a reader. Without the right to it, the usual 200 KiB remain.
const SOCKET_BYTES: usize = 1024 * 1024;
/// Bytes of the newest output that are kept for a reader while its socket is full.
const NEWEST_BYTES: usize = 64 * 1024;

/// Copies output to sockets, and waits for none: a reader that is too slow misses output, but not
/// the newest.
#[derive(Debug, Default)]
pub struct Readers(Vec<Reader>);

#[derive(Debug)]
struct Reader {
    socket: OwnedFd,
    /// Output that its socket has not taken yet.
    newest: VecDeque<u8>,
}

impl Reader {
    /// Whether it is still there.
    fn flush(&mut self) -> bool {
        while !self.newest.is_empty() {
            match sys::send(&self.socket, self.newest.as_slices().0, &[]) {
                Ok(length) => drop(self.newest.drain(..length)),
                Err(error) => return error.kind() == io::ErrorKind::WouldBlock,
            }
        }
        true
    }

    fn write(&mut self, bytes: &[u8]) -> bool {
        self.newest.extend(bytes);
        let is_there = self.flush();
        let missed = self.newest.len().saturating_sub(NEWEST_BYTES);
        self.newest.drain(..missed);
        is_there
    }
}

impl Readers {
    /// The writer's and the reader's end of a new socket. Neither blocks.
    pub fn connect() -> io::Result<(OwnedFd, OwnedFd)> {
        let flags = SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK;
        let (writer, reader) = socketpair(AddressFamily::Unix, SockType::Stream, None, flags)?;
        let _ = setsockopt(&writer, SndBufForce, &SOCKET_BYTES);
        // If the other end is closed before this is read, the reader gets an error. By it the
        // reader knows that the last output is missing.
        sys::send(&reader, &[0], &[])?;
        Ok((writer, reader))
    }

    /// Adds the writer's end of a socket.
    pub fn add(&mut self, socket: OwnedFd) {
        let newest = VecDeque::new();
        self.0.push(Reader { socket, newest });
    }

    /// Copies output to all readers.
    pub fn write(&mut self, bytes: &[u8]) {
        self.0.retain_mut(|reader| reader.write(bytes));
    }

    /// Sends kept output.
    pub fn flush(&mut self) {
        self.0.retain_mut(Reader::flush);
    }

    /// The sockets of those for which output is kept.
    pub fn behind(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        let behind = self.0.iter().filter(|reader| !reader.newest.is_empty());
        behind.map(|reader| reader.socket.as_fd())
    }

    /// Leaves them to the process that this one was forked from.
    pub fn leave(&mut self) {
        self.0.clear();
    }
}

impl Drop for Readers {
    /// All output was written.
    fn drop(&mut self) {
        self.flush();
        for reader in self.0.iter().filter(|reader| reader.newest.is_empty()) {
            let _ = sys::receive(&reader.socket, &mut [0]);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Reads without waiting: the bytes, and the end or the error after them.
    fn read(reader: &OwnedFd) -> (Vec<u8>, io::Result<usize>) {
        let (mut read, mut buffer) = (Vec::new(), vec![0; 64 * 1024]);
        loop {
            match sys::receive(reader, &mut buffer).map(|(length, _)| length) {
                Ok(length @ 1..) => read.extend_from_slice(&buffer[..length]),
                end => return (read, end),
            }
        }
    }

    #[test]
    fn slow_reader_misses_output_but_not_the_newest() {
        let mut readers = Readers::default();
        let ((first, slow), (second, fast)) =
            (Readers::connect().unwrap(), Readers::connect().unwrap());
        let (third, gone) = Readers::connect().unwrap();
        for writer in [first, second, third] {
            readers.add(writer);
        }
        drop(gone);
        let mut length = 0;
        for number in 0..100 {
            readers.write(&[number; 64 * 1024]);
            let (more, end) = read(&fast);
            length += more.len();
            assert_eq!(end.unwrap_err().kind(), io::ErrorKind::WouldBlock);
        }
        assert_eq!((length, readers.0.len()), (100 * 64 * 1024, 2));
        assert_eq!(readers.behind().count(), 1);
        let mut slowly = read(&slow).0;
        readers.flush();
        assert_eq!(readers.behind().count(), 0);
        slowly.extend(read(&slow).0);
        assert!(slowly.len() < length && slowly.ends_with(&[99; 64 * 1024]));

        // The end is an error for the one that has not all of the rest.
        (0..100).for_each(|number| readers.write(&[number; 64 * 1024]));
        let rest = read(&fast).0;
        readers.flush();
        let rest = [rest, read(&fast).0].concat();
        assert!(rest.ends_with(&[99; 64 * 1024]));
        drop(readers);
        assert_eq!(read(&fast).1.unwrap(), 0);
        let cut = read(&slow).1.unwrap_err();
        assert_eq!(cut.kind(), io::ErrorKind::ConnectionReset);
    }
}
