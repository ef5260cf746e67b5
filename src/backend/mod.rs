//! Where a request can go.

pub mod llama;
pub mod sim;
pub mod upstream;
