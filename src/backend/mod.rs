//! Where a request can go.

pub mod sim;
pub mod upstream;
