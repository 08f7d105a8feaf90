//! What the log on a disk promises.
