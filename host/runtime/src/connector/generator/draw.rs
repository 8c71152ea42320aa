//! Draws keys: a function of the seed and the record's number, in integers only.

use super::Distribution;
use crate::connector::random::{mix, scale};

/// Most keys of a Zipf distribution: its octaves are summed up once, at the start.
const ZIPF_KEYS_MAX: u64 = 1 << 24;

/// Draws one of so many keys.
pub(super) struct KeyDraw {
    keys: u64,
    seed: u64,
    by: By,
}

enum By {
    Uniform,
    Sequential,
    /// Of each octave `2^i ..= 2^(i+1) - 1` of ranks: the share of all ranks up to its end, of 2^64.
    Zipf(Vec<u64>),
}

impl KeyDraw {
    /// Returns a draw among `keys` keys.
    ///
    /// # Errors
    /// What is out of range.
    pub(super) fn new(keys: u64, distribution: Distribution, seed: u64) -> Result<Self, String> {
        if keys == 0 {
            return Err("keys is 0; it must be at least 1".to_owned());
        }
        let by = match distribution {
            Distribution::Uniform => By::Uniform,
            Distribution::Sequential => By::Sequential,
            Distribution::Zipf if keys > ZIPF_KEYS_MAX => {
                return Err(format!("keys is {keys}; distribution = \"zipf\" has at most {ZIPF_KEYS_MAX}"));
            }
            Distribution::Zipf => By::Zipf(octaves(keys)),
        };
        Ok(Self { keys, seed: mix(seed), by })
    }

    /// Returns the key of a record.
    pub(super) fn key(&self, sequence: u64) -> u64 {
        match &self.by {
            By::Sequential => sequence % self.keys,
            By::Uniform => scale(mix(sequence ^ self.seed), self.keys),
            By::Zipf(octaves) => {
                let mut random = mix(sequence ^ self.seed);
                let octave = octaves.partition_point(|end| *end < random).min(octaves.len() - 1);
                let first = 1_u64 << octave;
                let ranks = first.min(self.keys + 1 - first);
                // Within an octave ranks are at most twice as likely as others: draw, and reject in proportion.
                loop {
                    random = mix(random);
                    let rank = first + scale(random, ranks);
                    random = mix(random);
                    if scale(random, rank) < first {
                        return rank - 1;
                    }
                }
            }
        }
    }
}

/// Sums up `1 / rank` by octave and returns the shares up to each octave's end.
fn octaves(keys: u64) -> Vec<u64> {
    let mut sums = Vec::new();
    let mut total = 0.0;
    let mut first = 1;
    while first <= keys {
        #[expect(clippy::cast_precision_loss, reason = "ranks are below 2^25")]
        let octave: f64 = (first..(first * 2).min(keys + 1)).map(|rank| 1.0 / rank as f64).sum();
        total += octave;
        sums.push(total);
        first *= 2;
    }
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a share of 2^64; the whole saturates")]
    let share = |sum: f64| (sum / total * 18_446_744_073_709_551_616.0) as u64;
    sums.into_iter().map(share).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counts(keys: u64, distribution: Distribution, draws: u64) -> Vec<u64> {
        let draw = KeyDraw::new(keys, distribution, 7).unwrap();
        let mut counts = vec![0; usize::try_from(keys).unwrap()];
        (0..draws).for_each(|sequence| counts[usize::try_from(draw.key(sequence)).unwrap()] += 1);
        counts
    }

    #[test]
    fn sequential_keys_come_in_turn_and_uniform_ones_equally_often() {
        assert_eq!(counts(3, Distribution::Sequential, 7), [3, 2, 2]);
        assert!(counts(10, Distribution::Uniform, 100_000).iter().all(|count| (9_500..10_500).contains(count)));
    }

    #[test]
    fn zipf_keys_are_as_likely_as_their_rank_says() {
        // Harmonic number of 11: 3.0199.
        let drawn = counts(11, Distribution::Zipf, 302_000);
        for (key, count) in drawn.iter().enumerate() {
            let expected = 100_000 / (key as u64 + 1);
            assert!(count.abs_diff(expected) < expected / 20, "key {key}: {count}, expected {expected}");
        }
        assert_eq!(counts(1, Distribution::Zipf, 5), [5]);
    }

    #[test]
    fn draws_never_change() {
        let keys = |distribution| {
            let draw = KeyDraw::new(1000, distribution, 1).unwrap();
            [draw.key(0), draw.key(1), draw.key(u64::MAX)]
        };
        assert_eq!(keys(Distribution::Uniform), [368, 914, 646]);
        assert_eq!(keys(Distribution::Zipf), [7, 532, 79]);
    }

    #[test]
    fn impossible_numbers_of_keys_are_refused() {
        assert!(KeyDraw::new(0, Distribution::Uniform, 0).is_err());
        assert!(KeyDraw::new(ZIPF_KEYS_MAX + 1, Distribution::Zipf, 0).is_err());
    }
}
