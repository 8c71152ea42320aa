//! Batches of records, column by column: what flows between subtasks.

use crate::column::BytesColumn;
use crate::time::EventTime;

/// Event times of records, some or all of which may have none.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TimeColumn {
    len: usize,
    /// Empty until the first record with a time; then one item a record.
    times: Vec<i64>,
    /// Bit column of the records without a time; empty if all have one, or none has.
    untimed: Vec<u8>,
}

impl TimeColumn {
    /// Checks and wraps buffers that come from outside, for `len` records. `None` if their lengths do not fit, or
    /// bits beyond `len` are set.
    pub fn from_parts(len: usize, times: Vec<i64>, untimed: Vec<u8>) -> Option<Self> {
        let lengths_fit = (times.is_empty() && untimed.is_empty())
            || (times.len() == len && (untimed.is_empty() || untimed.len() == len.div_ceil(8)));
        let tail = len % 8;
        let tail_is_clear = tail == 0 || untimed.last().is_none_or(|last| last >> tail == 0);
        (lengths_fit && tail_is_clear).then_some(Self { len, times, untimed })
    }

    /// Returns the number of records.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there is no record.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Returns the time of record `index`, if it has one.
    ///
    /// # Panics
    /// If there is no such record.
    pub fn get(&self, index: usize) -> Option<EventTime> {
        assert!(index < self.len, "record {index} of {}", self.len);
        if self.times.is_empty() || self.is_untimed(index) { None } else { Some(EventTime(self.times[index])) }
    }

    fn is_untimed(&self, index: usize) -> bool {
        self.untimed.get(index / 8).is_some_and(|byte| byte >> (index % 8) & 1 != 0)
    }

    /// Appends a record's time.
    pub fn push(&mut self, time: Option<EventTime>) {
        match time {
            Some(EventTime(ms)) => {
                if self.times.is_empty() && self.len > 0 {
                    // All before had none: they get their bits now.
                    self.times.resize(self.len, 0);
                    self.untimed = vec![0xff; self.len.div_ceil(8)];
                    if !self.len.is_multiple_of(8) {
                        *self.untimed.last_mut().expect("len is not 0") = (1 << (self.len % 8)) - 1;
                    }
                }
                self.times.push(ms);
                self.len += 1;
                if !self.untimed.is_empty() {
                    self.untimed.resize(self.len.div_ceil(8), 0);
                }
            }
            None if self.times.is_empty() => self.len += 1,
            None => {
                self.times.push(0);
                self.len += 1;
                self.untimed.resize(self.len.div_ceil(8), 0);
                self.untimed[(self.len - 1) / 8] |= 1 << ((self.len - 1) % 8);
            }
        }
    }

    /// Appends records `from .. to` of `other`.
    pub fn extend(&mut self, other: &Self, from: usize, to: usize) {
        if other.times.is_empty() && self.times.is_empty() {
            self.len += to - from;
        } else if other.untimed.is_empty()
            && self.untimed.is_empty()
            && (self.len == 0 || !self.times.is_empty())
            && !other.times.is_empty()
        {
            self.times.extend_from_slice(&other.times[from..to]);
            self.len += to - from;
        } else {
            for index in from..to {
                self.push(other.get(index));
            }
        }
    }

    /// Returns the buffers of records `from .. to` as the guest interface wants them: times, and the bit column in
    /// `scratch` if it has to be shifted.
    pub fn slice<'a>(&'a self, from: usize, to: usize, scratch: &'a mut Vec<u8>) -> (&'a [i64], &'a [u8]) {
        if self.times.is_empty() {
            return (&[], &[]);
        }
        let times = &self.times[from..to];
        if self.untimed.is_empty() {
            return (times, &[]);
        }
        scratch.clear();
        scratch.resize((to - from).div_ceil(8), 0);
        for (offset, index) in (from..to).enumerate() {
            if self.is_untimed(index) {
                scratch[offset / 8] |= 1 << (offset % 8);
            }
        }
        (times, scratch)
    }

    /// Returns the latest time, if any record has one.
    pub fn max(&self) -> Option<EventTime> {
        if self.untimed.is_empty() {
            return self.times.iter().max().map(|ms| EventTime(*ms));
        }
        (0..self.len).filter_map(|index| self.get(index)).max()
    }

    /// Removes all records and keeps the buffers.
    pub fn clear(&mut self) {
        self.len = 0;
        self.times.clear();
        self.untimed.clear();
    }
}

/// Records in order. Either all have a key, or none has.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Batch {
    /// One key a record; `None` if the records are not keyed. The empty key is a key.
    pub keys: Option<BytesColumn>,
    /// The [`crate::key_group::key_hash`] of each key, where it has been computed already; else empty.
    pub hashes: Vec<u64>,
    /// The records' event times.
    pub timestamps: TimeColumn,
    /// The records' contents, opaque to the engine.
    pub values: BytesColumn,
}

impl Batch {
    /// Returns the number of records.
    pub fn len(&self) -> usize {
        self.values.len()
    }

    /// Whether there is no record.
    pub fn is_empty(&self) -> bool {
        self.values.is_empty()
    }

    /// Returns about how much memory the records take: what flow control counts.
    pub fn bytes(&self) -> usize {
        self.values.bytes() + self.keys.as_ref().map_or(0, BytesColumn::bytes) + 24 * self.len()
    }

    /// Appends one record.
    ///
    /// # Panics
    /// If the batch has records, and they have keys where this one has none, or the reverse.
    pub fn push(&mut self, key: Option<&[u8]>, time: Option<EventTime>, value: &[u8]) {
        assert!(self.is_empty() || self.keys.is_some() == key.is_some(), "a batch is keyed, or it is not");
        match key {
            Some(key) => self.keys.get_or_insert_default().push(key),
            None => self.keys = None,
        }
        self.hashes.clear();
        self.timestamps.push(time);
        self.values.push(value);
    }

    /// Appends one record with a key whose hash is known. The records before it must have keys and hashes, too.
    pub fn push_hashed(&mut self, key: &[u8], hash: u64, time: Option<EventTime>, value: &[u8]) {
        debug_assert_eq!(self.hashes.len(), self.len(), "all hashes are known, or none");
        self.keys.get_or_insert_default().push(key);
        self.hashes.push(hash);
        self.timestamps.push(time);
        self.values.push(value);
    }

    /// Appends records `from .. to` of `other`, which must be keyed if and only if `self` is (or is empty).
    pub fn extend(&mut self, other: &Self, from: usize, to: usize) {
        assert!(self.is_empty() || self.keys.is_some() == other.keys.is_some(), "a batch is keyed, or it is not");
        let hashes_fit = self.hashes.len() == self.len() && other.hashes.len() == other.len();
        match &other.keys {
            Some(keys) => self.keys.get_or_insert_default().extend(keys.slice(from, to)),
            None => self.keys = None,
        }
        if hashes_fit {
            self.hashes.extend_from_slice(&other.hashes[from..to]);
        } else {
            self.hashes.clear();
        }
        self.timestamps.extend(&other.timestamps, from, to);
        self.values.extend(other.values.slice(from, to));
    }

    /// Removes all records and keeps the buffers.
    pub fn clear(&mut self) {
        if let Some(keys) = &mut self.keys {
            keys.clear();
        }
        self.hashes.clear();
        self.timestamps.clear();
        self.values.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_that_come_and_go_are_kept_apart_from_zero() {
        let want = [None, None, Some(EventTime(0)), Some(EventTime(5)), None, Some(EventTime(-3))];
        let mut column = TimeColumn::default();
        want.iter().for_each(|time| column.push(*time));
        assert_eq!((0..6).map(|i| column.get(i)).collect::<Vec<_>>(), want);
        assert_eq!(column.max(), Some(EventTime(5)));
        let mut scratch = Vec::new();
        let (times, untimed) = column.slice(2, 6, &mut scratch);
        assert_eq!((times, untimed), (&[0, 5, 0, -3][..], &[0b0100][..]));
        let mut copy = TimeColumn::default();
        copy.extend(&column, 1, 5);
        assert_eq!((0..4).map(|i| copy.get(i)).collect::<Vec<_>>(), want[1..5]);
    }

    #[test]
    fn time_buffers_from_outside_must_fit() {
        assert!(TimeColumn::from_parts(2, vec![], vec![]).is_some());
        assert!(TimeColumn::from_parts(2, vec![1, 2], vec![0b01]).is_some());
        assert!(TimeColumn::from_parts(2, vec![1], vec![]).is_none());
        assert!(TimeColumn::from_parts(2, vec![1, 2], vec![0b100]).is_none());
        assert!(TimeColumn::from_parts(2, vec![], vec![0]).is_none());
    }
}
