//! Room for the bulks of one connection: what may be read, or be decoded, at once.
//!
//! Remembers how much there is and how many bulks wait for it. What has come of those that wait fills the connection's receive window as any
//! unread bytes do, and if they filled all of it nothing else could come: neither the bulk that they wait for, nor a ping. So the window grows
//! by what each of them can fill while it waits. Never gives more room than there is: a bulk longer than that comes alone.

use std::sync::{Mutex, PoisonError};

use quinn::{Connection, VarInt};
use tokio::sync::{Semaphore, SemaphorePermit};

use super::config::Options;

/// Bytes in a unit of room.
const UNIT: u32 = 1 << 10;

pub(super) struct Room {
    units: Semaphore,
    units_max: u32,
    waiting: Mutex<u32>,
    connection: Connection,
    receive_window: u32,
    stream_receive_window: u32,
}

impl Room {
    pub(super) fn new(options: &Options, connection: Connection) -> Self {
        let units_max = options.bulk_room / UNIT;
        Self {
            units: Semaphore::new(units_max as usize),
            units_max,
            waiting: Mutex::default(),
            connection,
            receive_window: options.receive_window,
            stream_receive_window: options.stream_receive_window,
        }
    }

    /// Waits for room for so many bytes; it is taken until what is returned is dropped. `None` is never returned while a session lives.
    pub(super) async fn take(&self, bytes: usize) -> Option<SemaphorePermit<'_>> {
        let units = u32::try_from(bytes)
            .map_or(self.units_max, |bytes| bytes.div_ceil(UNIT))
            .min(self.units_max);
        if let Ok(taken) = self.units.try_acquire_many(units) {
            return Some(taken);
        }
        let _waiting = Waiting::begin(self);
        self.units.acquire_many(units).await.ok()
    }

    /// So many more wait, or so many fewer.
    fn wait(&self, change: impl FnOnce(u32) -> u32) {
        let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        *waiting = change(*waiting);
        let window = waiting
            .saturating_mul(self.stream_receive_window)
            .saturating_add(self.receive_window);
        // Under the lock, so that the newest is set last.
        self.connection.set_receive_window(VarInt::from_u32(window));
    }
}

/// A bulk waits for room.
struct Waiting<'a>(&'a Room);

impl<'a> Waiting<'a> {
    fn begin(room: &'a Room) -> Self {
        room.wait(|waiting| waiting.saturating_add(1));
        Self(room)
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.wait(|waiting| waiting.saturating_sub(1));
    }
}
