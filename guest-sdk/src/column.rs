//! Columns: one buffer for the bytes of many items. The shape in which records, keys and state cross the boundary.

/// A borrowed column of byte strings. Item `i` is `data[ends[i-1] .. ends[i]]`, with `ends[-1]` = 0.
#[derive(Clone, Copy, Debug, Default)]
pub struct BytesView<'a> {
    data: &'a [u8],
    ends: &'a [u32],
}

impl<'a> BytesView<'a> {
    /// Wraps buffers of the host, which must not descend and must lie within the data: reading an item panics otherwise.
    pub fn new(data: &'a [u8], ends: &'a [u32]) -> Self {
        Self { data, ends }
    }

    /// Returns the number of items.
    pub fn len(&self) -> usize {
        self.ends.len()
    }

    /// Whether there is no item.
    pub fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }

    /// Returns item `index`.
    ///
    /// # Panics
    /// If there is no such item.
    #[inline]
    pub fn get(&self, index: usize) -> &'a [u8] {
        let start = if index == 0 { 0 } else { self.ends[index - 1] as usize };
        &self.data[start..self.ends[index] as usize]
    }

    /// Returns the bytes of all items together.
    pub fn bytes(&self) -> usize {
        self.data.len()
    }

    /// Returns the items in order.
    #[inline]
    pub fn iter(&self) -> impl Iterator<Item = &'a [u8]> + use<'a> {
        let data = self.data;
        let mut start = 0;
        self.ends.iter().map(move |end| {
            let item = &data[start..*end as usize];
            start = *end as usize;
            item
        })
    }
}

/// A column of byte strings under construction.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BytesColumn {
    /// The items' bytes, end to end.
    pub data: Vec<u8>,
    /// Where each item ends in `data`.
    pub ends: Vec<u32>,
}

impl BytesColumn {
    /// Returns an empty column with room for `items` items of `bytes` bytes in all.
    pub fn with_capacity(items: usize, bytes: usize) -> Self {
        Self { data: Vec::with_capacity(bytes), ends: Vec::with_capacity(items) }
    }

    /// Appends an item.
    ///
    /// # Panics
    /// If the column would exceed 4 GiB.
    pub fn push(&mut self, item: &[u8]) {
        append(&mut self.data, item);
        self.end_item();
    }

    /// Ends the item whose bytes were appended to `data`.
    #[inline]
    pub(crate) fn end_item(&mut self) {
        self.ends.push(u32::try_from(self.data.len()).expect("a column is bounded by the limits of a call"));
    }

    /// Returns the number of items.
    pub fn len(&self) -> usize {
        self.ends.len()
    }

    /// Whether there is no item.
    pub fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }

    /// Returns the whole column for reading.
    pub fn view(&self) -> BytesView<'_> {
        BytesView::new(&self.data, &self.ends)
    }
}

/// Appends bytes. In wasm a copy of unknown length is a call into the host, so short ones go word by word: two words of
/// a fixed length that may overlap.
#[inline]
pub(crate) fn append(out: &mut Vec<u8>, bytes: &[u8]) {
    if bytes.len() > 32 {
        out.extend_from_slice(bytes);
        return;
    }
    let fits = append_ends::<16>(out, bytes) || append_ends::<8>(out, bytes) || append_ends::<4>(out, bytes);
    if !fits {
        // Three bytes at most.
        for byte in bytes {
            out.push(*byte);
        }
    }
}

/// Appends the first and the last `N` bytes, which are all if there are `N` to `2 * N`. `false` if there are fewer.
#[inline]
fn append_ends<const N: usize>(out: &mut Vec<u8>, bytes: &[u8]) -> bool {
    let (Some(first), Some(last)) = (bytes.first_chunk::<N>(), bytes.last_chunk::<N>()) else { return false };
    let end = out.len() + bytes.len();
    out.extend_from_slice(first);
    out.truncate(end - N);
    out.extend_from_slice(last);
    true
}

/// Borrowed event times of a batch: both empty if no record has one.
#[derive(Clone, Copy, Debug, Default)]
pub struct TimesView<'a> {
    /// One item a record in milliseconds since the Unix epoch, or no item at all.
    pub times: &'a [i64],
    /// Bit `i % 8` of byte `i / 8` is set if record `i` has no time. Empty if every record has one, or none has.
    pub untimed: &'a [u8],
}

impl TimesView<'_> {
    /// Returns the time of record `index`, if it has one.
    #[inline]
    pub fn get(&self, index: usize) -> Option<i64> {
        let time = self.times.get(index).copied()?;
        let untimed = self.untimed.get(index / 8).is_some_and(|byte| byte >> (index % 8) & 1 != 0);
        (!untimed).then_some(time)
    }
}

/// Event times under construction; see [`TimesView`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TimeColumn {
    /// One item a record in milliseconds since the Unix epoch, or no item at all.
    pub times: Vec<i64>,
    /// Bit column of the records without a time.
    pub untimed: Vec<u8>,
}

impl TimeColumn {
    /// Appends the time of record `index`, which is the number of times pushed before.
    #[inline]
    pub fn push(&mut self, index: usize, time: Option<i64>) {
        match time {
            Some(time) => {
                if self.times.len() < index {
                    self.begin_timed(index);
                }
                self.times.push(time);
                if !self.untimed.is_empty() {
                    self.untimed.resize((index + 1).div_ceil(8), 0);
                }
            }
            None if self.times.is_empty() => {}
            None => {
                self.times.push(0);
                self.untimed.resize((index + 1).div_ceil(8), 0);
                self.untimed[index / 8] |= 1 << (index % 8);
            }
        }
    }

    /// The first time after `records` records without one: they get their bits.
    #[cold]
    fn begin_timed(&mut self, records: usize) {
        self.times.resize(records, 0);
        self.untimed.resize(records.div_ceil(8), 0xff);
        if !records.is_multiple_of(8) {
            self.untimed[records / 8] = (1 << (records % 8)) - 1;
        }
    }

    /// Returns the times for reading.
    pub fn view(&self) -> TimesView<'_> {
        TimesView { times: &self.times, untimed: &self.untimed }
    }
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::{any, prop_assert, prop_assert_eq, proptest};

    use super::*;

    proptest! {
        #[test]
        fn times_come_back_as_they_were_pushed(times in vec(any::<Option<i64>>(), 0..40)) {
            let mut column = TimeColumn::default();
            for (index, time) in times.iter().enumerate() {
                column.push(index, *time);
            }
            for (index, time) in times.iter().enumerate() {
                prop_assert_eq!(column.view().get(index), *time);
            }
            // The interface's rules: one item a record or none, and no bit beyond the last record.
            prop_assert!(column.times.is_empty() || column.times.len() == times.len());
            prop_assert!(column.untimed.is_empty() || column.untimed.len() == times.len().div_ceil(8));
            if times.len() % 8 != 0 {
                prop_assert_eq!(column.untimed.last().map_or(0, |last| last >> (times.len() % 8)), 0);
            }
        }

        #[test]
        fn items_come_back_as_they_were_pushed(items in vec(vec(any::<u8>(), 0..70), 0..20)) {
            let mut column = BytesColumn::default();
            for item in &items {
                column.push(item);
            }
            prop_assert!(column.view().iter().eq(items.iter()));
            for (index, item) in items.iter().enumerate() {
                prop_assert_eq!(column.view().get(index), item);
            }
        }
    }
}
