//! Actors on actix with names, pids, links, a clock, supervision, a wire codec and metrics.
