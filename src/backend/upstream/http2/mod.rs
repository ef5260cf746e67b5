//! HTTP/2 to an upstream (RFC 9113): all streams of one thread share one connection.
//!
//! | file | what it is |
//! |---|---|
//! | `sessions.rs` | which connection a request takes: opened once, shared, replaced |
//! | `session.rs` | one connection, and a request's way over it to the reply's head |
//! | `body.rs` | a reply's body, with the read that brought each frame |
//! | `watch.rs` | the instants of each stream |
//! | `watched.rs` | the place where they are taken: the stream under hyper |
//! | `frames.rs` | bytes → frames, for that |

mod body;
mod frames;
mod session;
mod sessions;
mod watch;
mod watched;

pub(super) use body::StreamBody;
pub(super) use session::{Answered, Session};
pub(super) use sessions::{Sessions, Way};
