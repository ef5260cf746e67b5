//! What the metrics hear of mirroring itself; mirrored exchanges are counted as all others are.

use prometheus::IntCounter;

use super::Meter;

/// The metrics of the mirror whose exchanges bear one label.
pub struct MirrorMeter(IntCounter);

impl MirrorMeter {
    /// A request that was to be mirrored was not, as there was no room for it.
    pub fn dropped(&self) {
        self.0.inc();
    }
}

impl Meter {
    /// The metrics of the mirror behind `label`, its value of the label `backend`.
    pub fn mirror(&self, label: &str) -> MirrorMeter {
        MirrorMeter(self.families.mirror_dropped.with_label_values(&[label]))
    }
}
