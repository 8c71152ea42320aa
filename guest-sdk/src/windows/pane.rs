//! What is stored of a key's windows.

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::shape::Span;

/// A piece of a key's state that is added to as one: a tumbling window, a session, the global window, or the part of sliding
/// windows in which they do not differ.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Pane<A> {
    pub(super) span: Span,
    /// How many records are in it.
    pub(super) records: u64,
    /// Twice how many came since a trigger that counts fired last, and 1 more if something came since windows fired early at
    /// an interval. 0 where there are no such triggers: one number, because it is read and written with each record.
    marks: u64,
    pub(super) accumulator: A,
}

impl<A: Default> Pane<A> {
    pub(super) fn new(span: Span) -> Self {
        Self { span, records: 0, marks: 0, accumulator: A::default() }
    }
}

impl<A> Pane<A> {
    /// How many records came since a trigger that counts fired last.
    pub(super) fn since(&self) -> u64 {
        self.marks / 2
    }

    pub(super) fn set_since(&mut self, since: u64) {
        self.marks = since.saturating_mul(2) | self.marks & 1;
    }

    /// Whether something came since windows fired early at an interval.
    pub(super) fn is_fresh(&self) -> bool {
        self.marks & 1 != 0
    }

    pub(super) fn set_fresh(&mut self, is_fresh: bool) {
        self.marks = self.marks & !1 | u64::from(is_fresh);
    }
}

/// The windows of one key. Panes are in the order of their ends. The newest are here, so that they are at hand with each
/// call; older ones, if there are many, are entries of a map, from which one is read when it is wanted.
///
/// It is decoded and encoded with each batch, so what most keys do not have costs them one byte.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct KeyWindows<A> {
    /// The last one in time.
    newest: Option<Pane<A>>,
    /// When the pending timer of the windows is due: no later than something happens to them.
    pub(super) timer: i64,
    more: Option<Box<More<A>>>,
}

/// What most keys do not have.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct More<A> {
    /// When the pending timer of early firings is due.
    early: Option<i64>,
    /// How many panes are in the map.
    spilled: u64,
    /// Panes before the newest.
    older: Vec<Pane<A>>,
}

impl<A> Default for More<A> {
    fn default() -> Self {
        Self { early: None, spilled: 0, older: Vec::new() }
    }
}

/// [`KeyWindows`] as they are stored.
#[derive(Serialize)]
struct Stored<'k, A> {
    newest: &'k Option<Pane<A>>,
    /// The timer's time from the newest pane's start on: a short number.
    wakes_after: i64,
    more: &'k Option<Box<More<A>>>,
}

#[derive(Deserialize)]
struct Read<A> {
    newest: Option<Pane<A>>,
    wakes_after: i64,
    more: Option<Box<More<A>>>,
}

impl<A: Serialize> Serialize for KeyWindows<A> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let start = self.newest.as_ref().map_or(0, |pane| pane.span.start);
        Stored { newest: &self.newest, wakes_after: self.timer.wrapping_sub(start), more: &self.more }.serialize(serializer)
    }
}

impl<'de, A: Deserialize<'de>> Deserialize<'de> for KeyWindows<A> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let Read { newest, wakes_after, more } = Read::deserialize(deserializer)?;
        let start = newest.as_ref().map_or(0, |pane| pane.span.start);
        Ok(Self { newest, timer: wakes_after.wrapping_add(start), more })
    }
}

impl<A> Default for KeyWindows<A> {
    fn default() -> Self {
        Self { newest: None, timer: i64::MAX, more: None }
    }
}

impl<A> KeyWindows<A> {
    pub(super) fn is_empty(&self) -> bool {
        self.newest.is_none() && self.spilled() == 0
    }

    pub(super) fn early(&self) -> Option<i64> {
        self.more.as_ref().and_then(|more| more.early)
    }

    /// Sets when the pending timer of early firings is due; returns when it was.
    pub(super) fn set_early(&mut self, due: Option<i64>) -> Option<i64> {
        if self.early() == due {
            return due;
        }
        std::mem::replace(&mut self.more.get_or_insert_default().early, due)
    }

    pub(super) fn spilled(&self) -> u64 {
        self.more.as_ref().map_or(0, |more| more.spilled)
    }

    pub(super) fn set_spilled(&mut self, spilled: u64) {
        self.more.get_or_insert_default().spilled = spilled;
    }

    /// Makes it what is stored: equal windows have equal bytes.
    pub(super) fn compact(&mut self) {
        if self.more.as_ref().is_some_and(|more| more.early.is_none() && more.spilled == 0 && more.older.is_empty()) {
            self.more = None;
        }
    }

    fn older(&self) -> &[Pane<A>] {
        self.more.as_ref().map_or(&[], |more| &more.older)
    }

    /// How many panes are here.
    pub(super) fn len(&self) -> usize {
        self.older().len() + usize::from(self.newest.is_some())
    }

    /// The panes that are here, oldest first.
    pub(super) fn iter(&self) -> impl Iterator<Item = &Pane<A>> {
        self.older().iter().chain(&self.newest)
    }

    /// The index of the oldest pane that is here and whose span is wanted.
    pub(super) fn position(&self, is_wanted: impl Fn(Span) -> bool) -> Option<usize> {
        self.iter().position(|pane| is_wanted(pane.span))
    }

    pub(super) fn iter_mut(&mut self) -> impl Iterator<Item = &mut Pane<A>> {
        self.more.iter_mut().flat_map(|more| &mut more.older).chain(&mut self.newest)
    }

    /// The pane that is here, ends no earlier than all others and contains a time.
    #[inline]
    pub(super) fn newest_with(&mut self, time: i64) -> Option<&mut Pane<A>> {
        self.newest.as_mut().filter(|pane| pane.span.contains(time))
    }

    /// The pane that is here and ends at `last`.
    #[inline]
    pub(super) fn ending_at(&mut self, last: i64) -> Option<&mut Pane<A>> {
        match &mut self.newest {
            Some(newest) if newest.span.last() == last => Some(newest),
            _ => self.more.as_mut()?.older.iter_mut().rev().find(|pane| pane.span.last() == last),
        }
    }

    /// Whether a pane that ends at `last` is in the map, if it is anywhere, and goes there.
    pub(super) fn is_spilled(&self, last: i64) -> bool {
        self.spilled() > 0 && self.iter().next().is_none_or(|oldest| last < oldest.span.last())
    }

    pub(super) fn insert(&mut self, pane: Pane<A>) {
        let pane = match &mut self.newest {
            Some(newest) if pane.span.last() < newest.span.last() => pane,
            newest => match newest.replace(pane) {
                Some(before) => before,
                None => return,
            },
        };
        let older = &mut self.more.get_or_insert_default().older;
        let place = older.partition_point(|other| other.span.last() < pane.span.last());
        older.insert(place, pane);
    }

    /// Takes the pane at an index out, counted from the oldest that is here.
    pub(super) fn remove(&mut self, index: usize) -> Option<Pane<A>> {
        let older = self.more.as_mut().map(|more| &mut more.older);
        match older {
            Some(older) if index < older.len() => Some(older.remove(index)),
            Some(older) if index == older.len() => std::mem::replace(&mut self.newest, older.pop()),
            None if index == 0 => self.newest.take(),
            _ => None,
        }
    }
}
