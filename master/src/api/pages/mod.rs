//! The parts of large pages: writing, caching and sharing of rendered JSON.
//!
//! Pages of a large cluster take megabytes, so unchanged parts are cached, and one rendering serves
//! all requests that wait for it. The pages themselves are in [`v0`](super::v0).
//!
//! | module | contents |
//! |---|---|
//! | `batches` | requests that share one rendering of a page |
//! | `cache` | rendered parts of frequently requested pages |
//! | `changes` | forms that change quota and weights, and the teardown |
//! | `entries` | agents and frameworks in the state pages (keys as in Mesos) |
//! | `page` | the streams of JSON texts that make a page |
//! | `pieces` | JSON objects that several pages share |
//! | `rendered` | the largest answers without a request, for benchmarks only |
//! | `source` | the local master's state, or a mirror of the leader's |
//! | `visible` | the parts of the state that a viewer may see |

pub(crate) mod batches;
pub(crate) mod cache;
pub(crate) mod changes;
pub(crate) mod entries;
pub(crate) mod page;
pub(crate) mod pieces;
pub(crate) mod rendered;
pub mod source;
pub(crate) mod visible;
