//! Every odd reply that upstreams are known to give, each with what must be measured of it.
//!
//! `table` plays them in-process, under every cut of their bytes and with instants that are made up; `wire` plays over
//! real sockets what only sockets can do.

mod replay;
mod table;
mod wire;
