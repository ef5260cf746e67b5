//! Which of several destinations takes a request: drawn by weight, or kept by a conversation's key.
//!
//! Pure: the chance and the key are arguments. Invariant: a destination of weight 0 is never the answer, and the same
//! key leads to the same backend on every thread and after every restart, as long as the configuration names it with the
//! same weights.

use crate::config::Destination;

/// The destination that `chance`, uniform over all 64-bit numbers, falls on: each one's part is its weight's.
///
/// Not every weight may be 0.
pub fn drawn(destinations: &[Destination], chance: u64) -> &Destination {
    let total: u64 = destinations.iter().map(|to| u64::from(to.weight)).sum();
    // Scaled down by a product, not a remainder: no weight is favoured by more than one part in 2^64.
    let mut at = u64::try_from((u128::from(chance) * u128::from(total)) >> 64).unwrap_or(u64::MAX);
    for to in destinations {
        match at.checked_sub(to.weight.into()) {
            Some(beyond) => at = beyond,
            None => return to,
        }
    }
    unreachable!("a scaled chance is below the sum of all weights, which is above 0")
}

/// The destination that keeps the conversation of `key`; `name_of` names a backend by its index.
///
/// Weighted rendezvous hashing: each destination gets a score from the key and its backend's name, −weight / ln(u) with
/// u uniform in (0, 1), and the highest wins (Schindelhauer and Schomaker, "Weighted distributed hash tables", 2005).
/// Raising one weight only draws conversations to that destination, lowering it only sends some of its own away; the
/// order of the file does not matter.
pub fn kept<'a>(destinations: &'a [Destination], key: Key, name_of: impl Fn(usize) -> &'a str) -> &'a Destination {
    let score = |to: &Destination| {
        // 52 bits and a half, which a float holds exactly: neither 0 nor 1 comes out.
        let uniform = ((key.with(name_of(to.backend)).0 >> 12) as f64 + 0.5) / (1_u64 << 52) as f64;
        -f64::from(to.weight) / uniform.ln()
    };
    let weighty = destinations.iter().filter(|to| to.weight > 0);
    let best = weighty.max_by(|a, b| score(a).total_cmp(&score(b)));
    best.unwrap_or_else(|| unreachable!("the configuration refuses a route without weight"))
}

/// What a conversation is known by: FNV-1a in 64 bits over its parts, each followed by the byte 0xFF, which UTF-8 does
/// not contain.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Key(u64);

impl Key {
    /// The key of nothing yet.
    pub const EMPTY: Self = Self(0xCBF2_9CE4_8422_2325);

    /// This key with one more part.
    #[must_use]
    pub fn and(self, part: &[u8]) -> Self {
        let fold = |hash: u64, byte: &u8| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01B3);
        Self(fold(part.iter().fold(self.0, fold), &0xFF))
    }

    /// This key at one backend. FNV-1a leaves its upper bits poorly mixed after few bytes, so the finaliser of `MurmurHash3`
    /// follows.
    fn with(self, backend: &str) -> Self {
        let mut hash = self.and(backend.as_bytes()).0;
        hash = (hash ^ (hash >> 33)).wrapping_mul(0xFF51_AFD7_ED55_8CCD);
        hash = (hash ^ (hash >> 33)).wrapping_mul(0xC4CE_B9FE_1A85_EC53);
        Self(hash ^ (hash >> 33))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NAMES: [&str; 3] = ["taotoken", "llama2", "b"];

    fn spread(weights: &[u32]) -> Vec<Destination> {
        let to = |(backend, weight): (usize, &u32)| Destination { backend, weight: *weight, upstream_model: None };
        weights.iter().enumerate().map(to).collect()
    }

    fn home(destinations: &[Destination], session: u32) -> usize {
        let key = Key::EMPTY.and(format!("session {session}").as_bytes());
        kept(destinations, key, |backend| NAMES[backend]).backend
    }

    /// Fails unless `count` of `all` is within five standard deviations of a share.
    fn assert_share(count: usize, all: usize, share: f64) {
        let (mean, deviation) = (all as f64 * share, (all as f64 * share * (1.0 - share)).sqrt());
        assert!((count as f64 - mean).abs() <= 5.0 * deviation, "{count} of {all}, expected {mean}");
    }

    #[test]
    fn each_part_of_all_chances_belongs_to_one_destination() {
        let destinations = spread(&[1, 0, 3]);
        let quarter = 1_u64 << 62;
        for (chance, backend) in [(0, 0), (quarter - 1, 0), (quarter, 2), (3 * quarter, 2), (u64::MAX, 2)] {
            assert_eq!(drawn(&destinations, chance).backend, backend, "{chance}");
        }
        assert_eq!(drawn(&spread(&[0, 5]), 0).backend, 1);
        assert_eq!(drawn(&spread(&[1_000_000; 3]), u64::MAX).backend, 2);
    }

    #[test]
    fn keys_are_spread_by_weight() {
        let destinations = spread(&[9, 0, 1]);
        let first = (0..20_000).filter(|session| home(&destinations, *session) == 0).count();
        assert_share(first, 20_000, 0.9);
        assert!((0..20_000).all(|session| home(&destinations, session) != 1), "weight 0 takes none");
    }

    #[test]
    fn a_changed_weight_moves_only_conversations_to_or_from_it() {
        let [before, after] = [spread(&[1, 1, 1]), spread(&[1, 1, 2])];
        let moved: Vec<_> = (0..20_000)
            .map(|session| (home(&before, session), home(&after, session)))
            .filter(|(before, after)| before != after)
            .collect();
        assert!(moved.iter().all(|(_, after)| *after == 2), "only towards what grew");
        // It goes from a third of all to a half.
        assert_share(moved.len(), 20_000, 1.0 / 6.0);
    }

    #[test]
    fn the_order_of_the_file_does_not_matter() {
        let destinations = spread(&[3, 2, 1]);
        let reversed: Vec<_> = destinations.iter().rev().cloned().collect();
        for session in 0..1_000 {
            assert_eq!(home(&destinations, session), home(&reversed, session));
        }
    }

    #[test]
    fn keys_stay_what_they_were() {
        // FNV-1a's own test vectors, the byte 0xFF appended; should one of these change, every conversation moves.
        assert_eq!(Key::EMPTY, Key(0xCBF2_9CE4_8422_2325));
        let foobar = 0x8594_4171_F739_67E8_u64;
        assert_eq!(Key::EMPTY.and(b"foobar"), Key((foobar ^ 0xFF).wrapping_mul(0x0100_0000_01B3)));
        assert_ne!(Key::EMPTY.and(b"a").and(b"b"), Key::EMPTY.and(b"ab").and(b""));
        let destinations = spread(&[1, 1, 1]);
        let homes: Vec<_> = (0..12).map(|session| home(&destinations, session)).collect();
        assert_eq!(homes, [1, 1, 2, 0, 2, 0, 2, 2, 2, 0, 1, 2]);
    }
}
