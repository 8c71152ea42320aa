//! Entries of a key in the order of their times, and among those of one time in the order in which they came.

use std::collections::VecDeque;
use std::ops::{Bound, RangeInclusive};

use crate::codec::{Postcard, StateCodec};
use crate::context::Context;
use crate::error::Error;
use crate::state::{Map, MapKey};

/// A time, and a number that tells apart entries of that time.
pub(super) type Place = (i64, u64);

/// Entries that one timer, or one step of a scan, has in memory at most.
pub(super) const CHUNK: usize = 256;

pub(super) type Buffer<T> = Map<Place, T>;

/// The front of a buffer: what is due, in memory as far as it fits.
pub(super) struct Front<T> {
    entries: VecDeque<(Place, T)>,
    /// The time of the entry after these.
    next: Option<i64>,
}

impl<T> Front<T> {
    /// Reads the entries that are due by their times: those of a later time never are before those of an earlier one.
    pub(super) fn load(buffer: &Buffer<T>, cx: &Context<'_>, is_due: impl Fn(i64) -> bool) -> Result<Self, Error>
    where
        T: Clone + 'static,
        Postcard: StateCodec<T>,
    {
        let mut front = Self { entries: VecDeque::new(), next: None };
        for entry in buffer.iter(cx) {
            let (place, value) = entry?;
            if !is_due(place.0) || front.entries.len() == CHUNK {
                front.next = Some(place.0);
                break;
            }
            front.entries.push_back((place, value));
        }
        Ok(front)
    }

    /// Does the same, but reads nothing if there is none.
    pub(super) fn load_if(any: bool, buffer: &Buffer<T>, cx: &Context<'_>, is_due: impl Fn(i64) -> bool) -> Result<Self, Error>
    where
        T: Clone + 'static,
        Postcard: StateCodec<T>,
    {
        if any { Self::load(buffer, cx, is_due) } else { Ok(Self { entries: VecDeque::new(), next: None }) }
    }

    /// The time of the first entry.
    pub(super) fn time(&self) -> Option<i64> {
        self.entries.front().map(|((time, _), _)| *time).or(self.next)
    }

    /// Whether an entry is in memory.
    pub(super) fn has_some(&self) -> bool {
        !self.entries.is_empty()
    }

    /// Takes the first entry; `None` if it is not in memory.
    pub(super) fn pop(&mut self) -> Option<(Place, T)> {
        self.entries.pop_front()
    }
}

/// Passes the entries from one key to another to `each`, some at a time: it may use the context, and change the map.
pub(super) fn each_between<K, T>(
    map: &Map<K, T>,
    cx: &mut Context<'_>,
    range: RangeInclusive<K>,
    mut each: impl FnMut(K, T, &mut Context<'_>) -> Result<(), Error>,
) -> Result<(), Error>
where
    K: MapKey + Clone,
    T: Clone + 'static,
    Postcard: StateCodec<T>,
{
    let (first, last) = range.into_inner();
    let mut start = Bound::Included(first);
    loop {
        let rest = (start, Bound::Included(last.clone()));
        let chunk = map.scan(cx, rest).take(CHUNK).collect::<Result<Vec<_>, _>>()?;
        let next = chunk.last().filter(|_| chunk.len() == CHUNK).map(|(key, _)| key.clone());
        chunk.into_iter().try_for_each(|(key, value)| each(key, value, cx))?;
        let Some(next) = next else { return Ok(()) };
        start = Bound::Excluded(next);
    }
}
