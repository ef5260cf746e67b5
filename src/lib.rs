//! streamgauge stands in front of language models and measures the streams that pass: an OpenAI-compatible
//! reverse proxy that timestamps every server-sent event (SSE) and turns the timestamps into TTFT, ITL, TPOT
//! and throughput.
//!
//! The modules are declared floor by floor. An import points down or sideways within a part, never up; and
//! `backend` and `measure` never import each other: they meet in `proxy`. `tests/floors.rs` reads this file
//! and the imports and fails on an arrow that runs up.

// ── floor 4: the commands
pub mod cli;

// ── floor 3: the story
pub mod admin;
pub mod proxy;

// ── floor 2: the parts
pub mod backend;
pub mod measure;
pub mod route;

// ── floor 1: knows nothing of ours
pub mod calendar;
pub mod clock;
pub mod config;
pub mod niceness;
pub mod server;
pub mod transport;
pub mod wire;
