//! The in-tree allocator, sorter, resource estimators and QoS controllers.
