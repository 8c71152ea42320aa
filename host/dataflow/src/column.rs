//! Columns of byte strings: one buffer of bytes and one of ends, whatever the number of items.

/// An owned column. Item `i` is `data[ends[i-1] .. ends[i]]`, with `ends[-1]` = 0.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BytesColumn {
    data: Vec<u8>,
    ends: Vec<u32>,
}

/// A column whose ends descend, do not fit the data, or exceed 4 GiB.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ColumnError {
    /// An end lies before the one it follows.
    #[error("end {index} of the column descends")]
    Descending {
        /// The offending item.
        index: usize,
    },
    /// The last end is not the length of the data.
    #[error("the column's last end is {end}, but it has {len} bytes")]
    Length {
        /// The last end, 0 if there is none.
        end: u32,
        /// The data's length.
        len: usize,
    },
}

impl BytesColumn {
    /// Returns an empty column with room for `items` items of `bytes` bytes in all.
    pub fn with_capacity(items: usize, bytes: usize) -> Self {
        Self { data: Vec::with_capacity(bytes), ends: Vec::with_capacity(items) }
    }

    /// Checks and wraps buffers that come from outside.
    ///
    /// # Errors
    /// [`ColumnError`] if the ends descend or do not cover the data.
    pub fn from_parts(data: Vec<u8>, ends: Vec<u32>) -> Result<Self, ColumnError> {
        check(&data, &ends)?;
        Ok(Self { data, ends })
    }

    /// Appends an item.
    ///
    /// # Panics
    /// If the column would exceed 4 GiB; batches are bounded far below.
    #[inline]
    pub fn push(&mut self, item: &[u8]) {
        self.data.extend_from_slice(item);
        self.end_item();
    }

    /// Appends an item that `write` appends to the buffer it is given; it may only append.
    #[inline]
    pub fn push_with(&mut self, write: impl FnOnce(&mut Vec<u8>)) {
        write(&mut self.data);
        self.end_item();
    }

    #[inline]
    fn end_item(&mut self) {
        self.ends.push(u32::try_from(self.data.len()).expect("a column is bounded far below 4 GiB"));
    }

    /// Appends all items of `other`.
    pub fn extend(&mut self, other: BytesSlice<'_>) {
        let base = u32::try_from(self.data.len()).expect("a column is bounded far below 4 GiB");
        self.data.extend_from_slice(other.data);
        self.ends.extend(other.ends.iter().map(|end| base + (end - other.start)));
    }

    /// Removes all items and keeps the buffers.
    pub fn clear(&mut self) {
        self.data.clear();
        self.ends.clear();
    }

    /// Returns the number of items.
    pub fn len(&self) -> usize {
        self.ends.len()
    }

    /// Whether there is no item.
    pub fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }

    /// Returns the bytes of all items together.
    pub fn bytes(&self) -> usize {
        self.data.len()
    }

    /// Returns the buffers: data and ends.
    pub fn parts(&self) -> (&[u8], &[u32]) {
        (&self.data, &self.ends)
    }

    /// Returns the buffers: data and ends.
    pub fn into_parts(self) -> (Vec<u8>, Vec<u32>) {
        (self.data, self.ends)
    }

    /// Returns item `index`.
    ///
    /// # Panics
    /// If there is no such item.
    #[inline]
    pub fn get(&self, index: usize) -> &[u8] {
        let start = if index == 0 { 0 } else { self.ends[index - 1] as usize };
        &self.data[start..self.ends[index] as usize]
    }

    /// Returns the items in order.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = &[u8]> {
        (0..self.len()).map(|index| self.get(index))
    }

    /// Returns a view of the whole column.
    pub fn as_slice(&self) -> BytesSlice<'_> {
        BytesSlice { data: &self.data, ends: &self.ends, start: 0 }
    }

    /// Returns a view of items `from .. to`.
    ///
    /// # Panics
    /// If the range is not within the column.
    pub fn slice(&self, from: usize, to: usize) -> BytesSlice<'_> {
        let start = if from == 0 { 0 } else { self.ends[from - 1] };
        let end = if to == 0 { 0 } else { self.ends[to - 1] };
        BytesSlice { data: &self.data[start as usize..end as usize], ends: &self.ends[from..to], start }
    }
}

impl<'a> FromIterator<&'a [u8]> for BytesColumn {
    fn from_iter<I: IntoIterator<Item = &'a [u8]>>(items: I) -> Self {
        let mut column = Self::default();
        for item in items {
            column.push(item);
        }
        column
    }
}

fn check(data: &[u8], ends: &[u32]) -> Result<(), ColumnError> {
    if let Some(index) = ends.windows(2).position(|pair| pair[0] > pair[1]) {
        return Err(ColumnError::Descending { index: index + 1 });
    }
    let end = ends.last().copied().unwrap_or(0);
    if end as usize == data.len() { Ok(()) } else { Err(ColumnError::Length { end, len: data.len() }) }
}

/// A view of consecutive items of a [`BytesColumn`].
#[derive(Clone, Copy, Debug)]
pub struct BytesSlice<'a> {
    data: &'a [u8],
    ends: &'a [u32],
    /// What the ends count from: the end of the item before the view.
    start: u32,
}

impl<'a> BytesSlice<'a> {
    /// A view of no items.
    pub const EMPTY: BytesSlice<'static> = BytesSlice { data: &[], ends: &[], start: 0 };

    /// Returns the number of items.
    pub fn len(&self) -> usize {
        self.ends.len()
    }

    /// Whether there is no item.
    pub fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }

    /// Returns the items' bytes, end to end.
    pub fn data(&self) -> &'a [u8] {
        self.data
    }

    /// Returns data and ends, if the view begins with its column's first item.
    pub fn whole(&self) -> Option<(&'a [u8], &'a [u32])> {
        (self.start == 0).then_some((self.data, self.ends))
    }

    /// Returns the items' ends in [`Self::data`]. Borrowed when the view begins with the column's first item; else
    /// shifted into `scratch`, so that a caller on the hot path allocates nothing.
    pub fn ends<'b>(&self, scratch: &'b mut Vec<u32>) -> &'b [u32]
    where
        'a: 'b,
    {
        if self.start == 0 {
            return self.ends;
        }
        scratch.clear();
        scratch.extend(self.ends.iter().map(|end| end - self.start));
        scratch
    }

    /// Returns item `index`.
    ///
    /// # Panics
    /// If there is no such item.
    #[inline]
    pub fn get(&self, index: usize) -> &'a [u8] {
        let from = if index == 0 { 0 } else { self.ends[index - 1] - self.start };
        &self.data[from as usize..(self.ends[index] - self.start) as usize]
    }

    /// Returns the items in order.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = &'a [u8]> + use<'a> {
        let this = *self;
        (0..this.len()).map(move |index| this.get(index))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slice_in_the_middle_has_ends_of_its_own() {
        let column: BytesColumn = [&b"a"[..], b"", b"ccc", b"dd"].into_iter().collect();
        let slice = column.slice(2, 4);
        let mut scratch = Vec::new();
        assert_eq!(slice.data(), b"cccdd");
        assert_eq!(slice.ends(&mut scratch), [3, 5]);
        assert_eq!(slice.iter().collect::<Vec<_>>(), [&b"ccc"[..], b"dd"]);
        let mut copy: BytesColumn = [&b"x"[..]].into_iter().collect();
        copy.extend(slice);
        assert_eq!(copy.iter().collect::<Vec<_>>(), [&b"x"[..], b"ccc", b"dd"]);
    }

    #[test]
    fn ends_from_outside_must_ascend_and_cover_the_data() {
        assert!(BytesColumn::from_parts(vec![1, 2], vec![1, 2]).is_ok());
        assert!(BytesColumn::from_parts(vec![], vec![]).is_ok());
        assert_eq!(BytesColumn::from_parts(vec![1, 2], vec![2, 1, 2]), Err(ColumnError::Descending { index: 1 }));
        assert_eq!(BytesColumn::from_parts(vec![1, 2], vec![1]), Err(ColumnError::Length { end: 1, len: 2 }));
        assert_eq!(BytesColumn::from_parts(vec![1], vec![]), Err(ColumnError::Length { end: 0, len: 1 }));
        assert_eq!(BytesColumn::from_parts(vec![1], vec![u32::MAX]), Err(ColumnError::Length { end: u32::MAX, len: 1 }));
    }
}
