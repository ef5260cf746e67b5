//! Values by magnitude: a log-linear histogram whose percentiles are off by less than 1 %.
//!
//! Each power of two is cut into 64 equal parts, as `HdrHistogram` does (<http://hdrhistogram.org>).

/// Parts of each power of two, as a power of two.
const PARTS: u32 = 6;
/// Larger values count as this one.
const LARGEST: u64 = (1 << 31) - 1;
const BUCKETS: usize = (32 - PARTS as usize) << PARTS;

/// Counts of values from 0 to 2³¹ − 1 in a unit of the user's choice.
#[derive(Clone)]
pub(super) struct Histogram {
    counts: Box<[u32; BUCKETS]>,
    total: u64,
}

impl Histogram {
    pub(super) fn new() -> Self {
        Self { counts: Box::new([0; BUCKETS]), total: 0 }
    }

    /// Counts `value` so many `times`.
    pub(super) fn add(&mut self, value: u64, times: u32) {
        let count = &mut self.counts[bucket(value)];
        *count = count.saturating_add(times);
        self.total += u64::from(times);
    }

    /// Adds what another one has counted.
    pub(super) fn merge(&mut self, other: &Self) {
        for (count, more) in self.counts.iter_mut().zip(other.counts.iter()) {
            *count = count.saturating_add(*more);
        }
        self.total += other.total;
    }

    /// How many values were counted.
    pub(super) fn total(&self) -> u64 {
        self.total
    }

    /// The nearest-rank percentile. `None` where nothing was counted.
    pub(super) fn percentile(&self, share: f64) -> Option<f64> {
        let rank = (share * self.total as f64).ceil().max(1.0);
        let mut below = 0.0;
        self.counts.iter().enumerate().find_map(|(bucket, count)| {
            below += f64::from(*count);
            (*count > 0 && below >= rank).then(|| middle(bucket))
        })
    }
}

fn bucket(value: u64) -> usize {
    let value = value.min(LARGEST);
    let power = value.checked_ilog2().unwrap_or(0).saturating_sub(PARTS);
    // The part's number, 64 to 127 above the first 64 values, which have a bucket each.
    let part = usize::try_from(value >> power).unwrap_or(usize::MAX);
    ((power as usize) << PARTS) + part
}

/// The middle of a bucket.
fn middle(bucket: usize) -> f64 {
    let part = 1 << PARTS;
    if bucket < 2 * part {
        return bucket as f64;
    }
    let power = bucket / part - 1;
    let width = (1_u64 << power) as f64;
    ((bucket % part + part) as f64) * width + (width - 1.0) / 2.0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_value_is_found_again_within_one_per_cent() {
        let mut values: Vec<u64> = (0..=300).collect();
        values.extend((0..31).flat_map(|power| [(1 << power) - 1, 1 << power, (1 << power) + 1, 3 << power >> 1]));
        for value in values.into_iter().filter(|value| *value <= LARGEST) {
            let mut histogram = Histogram::new();
            histogram.add(value, 1);
            let found = histogram.percentile(0.5).unwrap();
            assert!((found - value as f64).abs() <= value as f64 * 0.008, "{value} became {found}");
        }
        assert_eq!(bucket(LARGEST), BUCKETS - 1);
        assert_eq!(bucket(u64::MAX), BUCKETS - 1);
    }

    #[test]
    fn percentiles_are_nearest_ranks_of_all_that_was_merged() {
        let (mut one, mut other) = (Histogram::new(), Histogram::new());
        assert_eq!(one.percentile(0.5), None);
        (1..=10).for_each(|value| one.add(value, 1));
        (11..=20).for_each(|value| other.add(value, 1));
        one.merge(&other);
        assert_eq!(one.total(), 20);
        assert_eq!(
            [0.0, 0.5, 0.95, 0.99, 1.0].map(|share| one.percentile(share)),
            [1.0, 10.0, 19.0, 20.0, 20.0].map(Some)
        );
        one.add(100, 180);
        assert_eq!(one.percentile(0.5), Some(100.0));
    }
}
