//! Clients' connections: how many are open, and who was turned away.

use prometheus::Registry;

use super::families::ConnectionFamilies;
use crate::server::Refused;

/// The metrics of clients' connections.
pub struct ConnectionMeter(ConnectionFamilies);

impl ConnectionMeter {
    pub(super) fn new(registry: &Registry) -> Self {
        Self(ConnectionFamilies::new(registry))
    }

    /// A connection was accepted.
    pub fn opened(&self) {
        self.0.open.inc();
    }

    /// One that was accepted is over.
    pub fn closed(&self) {
        self.0.open.dec();
    }

    /// A client was turned away.
    pub fn refused(&self, why: Refused) {
        self.0.refused.with_label_values(&[why.label()]).inc();
    }
}
