//! Key -> key group -> subtask. Part of the checkpoint format: it never changes within a format version.
//!
//! A key's group is the low 32 bits of its xxh3-64 hash (seed 0) scaled to the job's max-parallelism; groups are dealt
//! to subtasks in contiguous ranges.

use std::ops::Range;

use serde::{Deserialize, Serialize};

/// The unit in which keyed state moves between subtasks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct KeyGroup(pub u16);

/// The number of key groups of a job: 1 to 32,768. Fixed for the life of its state.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MaxParallelism(u16);

impl MaxParallelism {
    /// Checks and wraps a number of key groups. `None` unless it is 1 to 32,768.
    pub fn new(groups: u32) -> Option<Self> {
        u16::try_from(groups).ok().filter(|groups| (1..=32_768).contains(groups)).map(Self)
    }

    /// Returns the number of key groups.
    pub fn get(self) -> u16 {
        self.0
    }

    /// Returns the group of a key with this hash: `(low 32 bits * groups) >> 32`.
    #[inline]
    pub fn group_of(self, hash: u64) -> KeyGroup {
        let scaled = ((hash & 0xffff_ffff) * u64::from(self.0)) >> 32;
        KeyGroup(u16::try_from(scaled).expect("less than the number of groups"))
    }

    /// Returns the subtask that owns `group` among `parallelism`: `floor(group * parallelism / groups)`.
    pub fn owner(self, group: KeyGroup, parallelism: u32) -> u32 {
        u32::try_from(u64::from(group.0) * u64::from(parallelism) / u64::from(self.0)).expect("less than the parallelism")
    }

    /// Returns the groups that subtask `index` of `parallelism` owns.
    pub fn range(self, index: u32, parallelism: u32) -> Range<u16> {
        let first = |index: u32| {
            let start = (u64::from(index) * u64::from(self.0)).div_ceil(u64::from(parallelism));
            u16::try_from(start).expect("at most the number of groups")
        };
        first(index)..first(index + 1)
    }
}

/// Returns the hash that a key is routed by: xxh3-64 with seed 0.
#[inline]
pub fn key_hash(key: &[u8]) -> u64 {
    xxhash_rust::xxh3::xxh3_64(key)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_and_owners_agree_and_follow_the_documented_formula() {
        let groups = MaxParallelism::new(17).unwrap();
        let ranges = |p| (0..p).map(|i| groups.range(i, p)).collect::<Vec<_>>();
        assert_eq!(ranges(2), [0..9, 9..17]);
        assert_eq!(ranges(5), [0..4, 4..7, 7..11, 11..14, 14..17]);
        assert_eq!(ranges(3), [0..6, 6..12, 12..17]);
        for max in [1, 2, 17, 128, 32_768] {
            let groups = MaxParallelism::new(max).unwrap();
            for p in (1..=max.min(40)).chain([max]) {
                for group in (0..groups.get()).step_by(7) {
                    assert!(groups.range(groups.owner(KeyGroup(group), p), p).contains(&group), "{max} {p} {group}");
                }
            }
        }
    }

    #[test]
    fn the_hash_and_the_groups_of_known_keys_never_change() {
        assert_eq!(key_hash(b""), 0x2d06_8005_38d3_94c2);
        assert_eq!(key_hash(b"the"), xxhash_rust::xxh3::xxh3_64_with_seed(b"the", 0));
        let groups = MaxParallelism::new(128).unwrap();
        assert_eq!(groups.group_of(0xffff_ffff_0000_0000), KeyGroup(0));
        assert_eq!(groups.group_of(0x0000_0000_ffff_ffff), KeyGroup(127));
    }
}
