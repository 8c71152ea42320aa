//! Time to live: when a value was last used, stored before it, and what that says of it at a call's processing time.
//!
//! A stamp is 8 bytes, little-endian: milliseconds since the Unix epoch. Part of the checkpoint format.

use super::list;
use crate::guest::StateSlot;
use crate::time::ProcessingTime;

/// Bytes of a stamp.
pub(super) const STAMP_BYTES: usize = 8;

/// The time to live of a slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Ttl {
    pub(super) ms: u64,
    /// Whether reading renews it.
    pub(super) on_read: bool,
}

impl Ttl {
    /// Returns the time to live of a slot that has one.
    pub(super) fn of(slot: &StateSlot) -> Option<Self> {
        (slot.ttl_ms != 0).then_some(Self { ms: slot.ttl_ms, on_read: slot.ttl_on_read })
    }

    /// Whether what was stamped then has expired by now.
    pub(super) fn is_over(self, stamp: i64, now: ProcessingTime) -> bool {
        i64::try_from(self.ms).is_ok_and(|ms| stamp.saturating_add(ms) <= now.0)
    }

    /// Returns the value behind a stamp that has not expired.
    pub(super) fn live(self, stamped: &[u8], now: ProcessingTime) -> Option<&[u8]> {
        // What carries no stamp was not written by this host: it has expired.
        let (stamp, value) = stamped.split_first_chunk::<STAMP_BYTES>()?;
        (!self.is_over(i64::from_le_bytes(*stamp), now)).then_some(value)
    }
}

/// How the values of a table expire.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Expiry {
    pub(super) ttl: Ttl,
    /// Whether a value is a chunk of elements, each with a stamp.
    pub(super) is_list: bool,
}

impl Expiry {
    /// Whether nothing of a stored value is left.
    pub(super) fn is_over(self, stored: &[u8], now: ProcessingTime) -> bool {
        match self.is_list {
            true => list::live(stored, Some(self.ttl), now).next().is_none(),
            false => self.ttl.live(stored, now).is_none(),
        }
    }

    /// Returns where the stamps are of what has not expired.
    pub(super) fn live_stamps(self, stored: &[u8], now: ProcessingTime) -> Vec<usize> {
        match self.is_list {
            true => list::live(stored, Some(self.ttl), now).map(|(stamp_at, _)| stamp_at).collect(),
            false => self.ttl.live(stored, now).map(|_| 0).into_iter().collect(),
        }
    }
}

/// Puts a stamped value into `out`, which is cleared.
pub(super) fn stamp(out: &mut Vec<u8>, now: ProcessingTime, value: &[u8]) {
    out.clear();
    out.extend_from_slice(&now.0.to_le_bytes());
    out.extend_from_slice(value);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_lives_until_its_time_has_passed_and_not_at_that_moment() {
        let ttl = Ttl { ms: 10, on_read: false };
        let mut stamped = Vec::new();
        stamp(&mut stamped, ProcessingTime(100), b"v");
        assert_eq!(ttl.live(&stamped, ProcessingTime(109)), Some(&b"v"[..]));
        assert_eq!(ttl.live(&stamped, ProcessingTime(110)), None);
        assert_eq!(ttl.live(&stamped, ProcessingTime(-5)), Some(&b"v"[..]), "a clock that was set back");
        assert_eq!(ttl.live(b"short", ProcessingTime(0)), None);
        let forever = Ttl { ms: u64::MAX, on_read: false };
        assert!(!forever.is_over(i64::MIN, ProcessingTime(i64::MAX)));
        assert!(!Ttl { ms: 1 << 62, on_read: false }.is_over(i64::MAX - 1, ProcessingTime(i64::MAX - 1)));
    }
}
