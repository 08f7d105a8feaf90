//! Offers and what frameworks want of them.

pub mod offer;
pub mod wants;
