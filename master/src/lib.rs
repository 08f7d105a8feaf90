//! The master: frameworks, agents, offers and tasks.
