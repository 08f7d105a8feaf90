//! What a framework links: an actor that finds the master, receives offers and launches tasks.
