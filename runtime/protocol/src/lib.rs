//! The words of the cluster: ids, infos, offers, task states and the messages between components.
