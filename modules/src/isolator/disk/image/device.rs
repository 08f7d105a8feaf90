//! Loop devices, and the size of an ext4 file system.
//!
//! Blocking. Needs Linux 5.8 (`LOOP_CONFIGURE`), `/dev/loop-control` and CAP_SYS_ADMIN.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::{AsFd, AsRawFd};
use std::path::{Path, PathBuf};

use nix::errno::Errno;
use nix::libc;
use rustix::ioctl::{Opcode, Setter, ioctl, opcode};

/// Makes and names loop devices.
pub(super) const CONTROL: &str = "/dev/loop-control";
/// Attempts to take a free device: other processes take them, too.
const ATTEMPTS: usize = 64;

const GET_FREE: libc::Ioctl = 0x4C82;
const SET_CAPACITY: libc::Ioctl = 0x4C07;
const CONFIGURE: Opcode = 0x4C0A;
const RESIZE: Opcode = opcode::write::<u64>(b'f', 16);
/// The device is free again after its last use.
const AUTOCLEAR: u32 = 4;

/// `struct loop_config` of `linux/loop.h`.
#[repr(C)]
#[derive(Clone, Copy)]
struct Config {
    file: u32,
    block_size: u32,
    info: Info,
    reserved: [u64; 8],
}

/// `struct loop_info64`.
#[repr(C)]
#[derive(Clone, Copy)]
struct Info {
    ids: [u64; 3],
    offset: u64,
    size_limit: u64,
    number: u32,
    encryption: [u32; 2],
    flags: u32,
    names: [[u8; 64]; 2],
    key: [u8; 32],
    init: [u64; 2],
}

/// A device with a file as its content. Free again when neither this nor a mount uses it.
#[derive(Debug)]
pub(super) struct Device {
    /// Its path.
    pub path: PathBuf,
    _file: File,
}

/// Attaches a file to a free device.
pub(super) fn attach(image: &File) -> io::Result<Device> {
    let control = open(Path::new(CONTROL))?;
    for _ in 0..ATTEMPTS {
        // SAFETY: LOOP_CTL_GET_FREE has no argument.
        #[allow(unsafe_code)]
        let number = unsafe { libc::ioctl(control.as_raw_fd(), GET_FREE) };
        let path = PathBuf::from(format!("/dev/loop{}", Errno::result(number)?));
        let device = open(&path)?;
        match configure(&device, image) {
            Err(error) if error.raw_os_error() == Some(libc::EBUSY) => {}
            Err(error) => return Err(error),
            Ok(()) => {
                let _file = device;
                return Ok(Device { path, _file });
            }
        }
    }
    Err(io::ErrorKind::ResourceBusy.into())
}

fn configure(device: &File, image: &File) -> io::Result<()> {
    let file = image.as_raw_fd().try_into().map_err(io::Error::other)?;
    let info = Info {
        ids: [0; 3],
        offset: 0,
        size_limit: 0,
        number: 0,
        encryption: [0; 2],
        flags: AUTOCLEAR,
        names: [[0; 64]; 2],
        key: [0; 32],
        init: [0; 2],
    };
    let config = Config {
        file,
        block_size: 0,
        info,
        reserved: [0; 8],
    };
    // SAFETY: LOOP_CONFIGURE reads this configuration.
    #[allow(unsafe_code)]
    let done = unsafe { ioctl(device, Setter::<CONFIGURE, Config>::new(config)) };
    Ok(done?)
}

/// The mounted device at this path takes the present size of its file.
pub(super) fn take_size(device: &Path) -> io::Result<()> {
    let device = open(device)?;
    // SAFETY: LOOP_SET_CAPACITY has no argument.
    #[allow(unsafe_code)]
    let done = unsafe { libc::ioctl(device.as_raw_fd(), SET_CAPACITY) };
    Errno::result(done)?;
    Ok(())
}

/// Grows the mounted ext4 file system of this directory to so many blocks.
pub(super) fn grow(directory: impl AsFd, blocks: u64) -> io::Result<()> {
    // SAFETY: EXT4_IOC_RESIZE_FS reads a number.
    #[allow(unsafe_code)]
    let done = unsafe { ioctl(directory, Setter::<RESIZE, u64>::new(blocks)) };
    Ok(done?)
}

fn open(path: &Path) -> io::Result<File> {
    OpenOptions::new().read(true).write(true).open(path)
}
