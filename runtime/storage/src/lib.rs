//! A synced, checksummed key-value store on sled, and its twin that forgets what was not synced.
