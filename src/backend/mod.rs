//! Where a request can go.

pub mod sim;
