//! The HTTP listener: health, version, metrics and process pages.
