//! Images: root file systems of containers.

mod blobs;
pub mod digest;
pub mod layers;
mod local;
pub mod manifest;
pub mod puller;
pub mod reference;
pub mod unpacker;
