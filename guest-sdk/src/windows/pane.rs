//! What is stored of a key's windows.

use serde::{Deserialize, Serialize};

use super::shape::Span;

/// A piece of a key's state that is added to as one: a tumbling window, a session, the global window, or the part of sliding
/// windows in which they do not differ.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Pane<A> {
    pub(super) span: Span,
    /// How many records are in it.
    pub(super) records: u64,
    /// How many came since a trigger that counts fired last. Stays 0 where none counts.
    pub(super) since: u64,
    /// Whether something came since windows fired early at an interval. Stays `false` where they do not.
    pub(super) fresh: bool,
    pub(super) accumulator: A,
}

impl<A: Default> Pane<A> {
    pub(super) fn new(span: Span) -> Self {
        Self { span, records: 0, since: 0, fresh: false, accumulator: A::default() }
    }
}

/// The windows of one key. Panes are in the order of their ends. The newest are here, so that they are at hand with each
/// call; older ones, if there are many, are entries of a map, from which one is read when it is wanted.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct KeyWindows<A> {
    /// When the pending timer of the windows is due: no later than something happens to them.
    pub(super) timer: Option<i64>,
    /// When the pending timer of early firings is due.
    pub(super) early: Option<i64>,
    /// How many panes are in the map.
    pub(super) spilled: u64,
    /// The last one in time. Apart from the others, because most keys have no other: it needs no allocation.
    newest: Option<Pane<A>>,
    older: Vec<Pane<A>>,
}

impl<A> Default for KeyWindows<A> {
    fn default() -> Self {
        Self { timer: None, early: None, spilled: 0, newest: None, older: Vec::new() }
    }
}

impl<A> KeyWindows<A> {
    pub(super) fn is_empty(&self) -> bool {
        self.spilled == 0 && self.newest.is_none()
    }

    /// How many panes are here.
    pub(super) fn len(&self) -> usize {
        self.older.len() + usize::from(self.newest.is_some())
    }

    /// The panes that are here, oldest first.
    pub(super) fn iter(&self) -> impl Iterator<Item = &Pane<A>> {
        self.older.iter().chain(&self.newest)
    }

    /// The index of the oldest pane that is here and whose span is wanted.
    pub(super) fn position(&self, is_wanted: impl Fn(Span) -> bool) -> Option<usize> {
        self.iter().position(|pane| is_wanted(pane.span))
    }

    pub(super) fn iter_mut(&mut self) -> impl Iterator<Item = &mut Pane<A>> {
        self.older.iter_mut().chain(&mut self.newest)
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
            _ => self.older.iter_mut().rev().find(|pane| pane.span.last() == last),
        }
    }

    /// Whether a pane that ends at `last` is in the map, if it is anywhere, and goes there.
    pub(super) fn is_spilled(&self, last: i64) -> bool {
        self.spilled > 0 && self.iter().next().is_none_or(|oldest| last < oldest.span.last())
    }

    pub(super) fn insert(&mut self, pane: Pane<A>) {
        let pane = match &mut self.newest {
            Some(newest) if pane.span.last() < newest.span.last() => pane,
            newest => match newest.replace(pane) {
                Some(before) => before,
                None => return,
            },
        };
        let place = self.older.partition_point(|other| other.span.last() < pane.span.last());
        self.older.insert(place, pane);
    }

    /// Takes the pane at an index out, counted from the oldest that is here.
    pub(super) fn remove(&mut self, index: usize) -> Option<Pane<A>> {
        if index < self.older.len() {
            return Some(self.older.remove(index));
        }
        if index > self.older.len() {
            return None;
        }
        let last = self.older.pop();
        std::mem::replace(&mut self.newest, last)
    }
}
