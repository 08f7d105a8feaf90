//! Permits for the bulks of one connection: bounds the bytes that are read or decoded at once.
//!
//! Bulks that wait for permits fill the connection's receive window like any unread
//! bytes. If they filled all of it, neither the bulk that they wait for nor a ping could
//! arrive. Therefore the window grows by the stream window of each waiting bulk. A bulk longer than
//! the bound is read alone.

use std::sync::{Mutex, PoisonError};

use quinn::{Connection, VarInt};
use tokio::sync::{Semaphore, SemaphorePermit};

use super::config::Options;

/// Bytes of one permit.
const UNIT: u32 = 1 << 10;

pub(super) struct BulkPermits {
    units: Semaphore,
    units_max: u32,
    waiting: Mutex<u32>,
    connection: Connection,
    receive_window: u32,
    stream_receive_window: u32,
}

impl BulkPermits {
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

    /// Waits for permits for `bytes`, held until the result is dropped. `None` cannot occur while a
    /// session lives.
    pub(super) async fn acquire(&self, bytes: usize) -> Option<SemaphorePermit<'_>> {
        let units = u32::try_from(bytes)
            .map_or(self.units_max, |bytes| bytes.div_ceil(UNIT))
            .min(self.units_max);
        if let Ok(taken) = self.units.try_acquire_many(units) {
            return Some(taken);
        }
        let _waiting = WaitingBulk::begin(self);
        self.units.acquire_many(units).await.ok()
    }

    /// Changes the number of waiting bulks, and the receive window with it.
    fn change_waiting(&self, change: impl FnOnce(u32) -> u32) {
        let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        *waiting = change(*waiting);
        let window = waiting
            .saturating_mul(self.stream_receive_window)
            .saturating_add(self.receive_window);
        // Under the lock, so that the latest value is set last.
        self.connection.set_receive_window(VarInt::from_u32(window));
    }
}

/// One bulk that waits for permits.
struct WaitingBulk<'a>(&'a BulkPermits);

impl<'a> WaitingBulk<'a> {
    fn begin(permits: &'a BulkPermits) -> Self {
        permits.change_waiting(|waiting| waiting.saturating_add(1));
        Self(permits)
    }
}

impl Drop for WaitingBulk<'_> {
    fn drop(&mut self) {
        self.0.change_waiting(|waiting| waiting.saturating_sub(1));
    }
}
