//! Real sockets: simulated or hand-driven upstream → proxy → a client that hides nothing.

mod backpressure;
mod ends;
mod hand;
mod net;
mod replies;
mod requests;
