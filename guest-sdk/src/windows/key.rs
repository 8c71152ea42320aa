//! The windows of the current key, taken out of its state while something happens to them: panes here and in the map as one
//! ordered row, and the timers that go with them.

use super::core::{Core, Now, merged};
use super::pane::{KeyWindows, Pane};
use super::shape::{Kind, Shape, Span, next_multiple};
use super::{Contents, EARLY, END, WINDOWS};
use crate::context::Context;
use crate::declare::TimeDomain;
use crate::error::Error;

/// What is known of them within one function of [`Core`], and given back with [`Self::store`].
pub(super) struct Key<'k, A: Contents> {
    core: &'k Core<A>,
    pub(super) shape: &'k Shape,
    pub(super) state: KeyWindows<A::Accumulator>,
    /// When the pending timer of the windows is due.
    pub(super) timer: Option<i64>,
    is_new: bool,
}

impl<'k, A: Contents> Key<'k, A> {
    /// Takes the state out of its cell.
    pub(super) fn take(core: &'k Core<A>, shape: &'k Shape, cx: &mut Context<'_>) -> Result<Self, Error> {
        let state = core.state.modify(cx, Option::take)?;
        let timer = state.as_ref().map(|state| state.timer);
        Ok(Self { core, shape, is_new: state.is_none(), state: state.unwrap_or_default(), timer })
    }

    /// Puts it back. With the last pane, all timers go.
    pub(super) fn store(mut self, cx: &mut Context<'_>) -> bool {
        let is_empty = self.state.is_empty();
        if is_empty {
            self.move_timer(cx, None);
            self.move_early(cx, None);
        }
        // Processing time ends with the input, which no timer of its own tells.
        if self.shape.clock == TimeDomain::ProcessingTime && is_empty != self.is_new {
            if is_empty {
                self.core.event.delete(cx, i64::MAX, END);
            } else {
                self.core.event.set(cx, i64::MAX, END);
            }
        }
        if is_empty {
            self.core.state.delete(cx);
        } else {
            // With a window there is a timer.
            self.state.timer = self.timer.unwrap_or(i64::MAX);
            self.state.compact();
            self.core.state.set(cx, self.state);
        }
        is_empty
    }

    /// Takes the pane out that ends at `last`.
    pub(super) fn take_pane(&mut self, cx: &mut Context<'_>, last: i64) -> Result<Option<Pane<A::Accumulator>>, Error> {
        if self.state.is_spilled(last) {
            return self.unspill(cx, last);
        }
        let index = self.state.position(|pane| pane.last() == last);
        Ok(index.and_then(|index| self.state.remove(index)))
    }

    fn unspill(&mut self, cx: &mut Context<'_>, last: i64) -> Result<Option<Pane<A::Accumulator>>, Error> {
        let pane = self.core.panes.get(cx, &last)?;
        if pane.is_some() {
            self.core.panes.remove(cx, &last)?;
            self.state.set_spilled(self.state.spilled().saturating_sub(1));
        }
        Ok(pane)
    }

    /// Puts a pane in where there is none that ends with it. If there are too many at hand, the oldest goes to the map.
    pub(super) fn put_pane(&mut self, cx: &mut Context<'_>, pane: Pane<A::Accumulator>) -> Result<(), Error> {
        if self.state.is_spilled(pane.span.last()) {
            return self.spill(cx, pane);
        }
        self.state.insert(pane);
        while self.state.len() > self.core.at_hand_max {
            let Some(oldest) = self.state.remove(0) else { break };
            self.spill(cx, oldest)?;
        }
        Ok(())
    }

    fn spill(&mut self, cx: &mut Context<'_>, pane: Pane<A::Accumulator>) -> Result<(), Error> {
        self.state.set_spilled(self.state.spilled() + 1);
        self.core.panes.put(cx, &pane.span.last(), pane)
    }

    /// Takes the panes out that overlap a span, oldest first. Panes do not overlap one another.
    pub(super) fn take_overlapping(&mut self, cx: &mut Context<'_>, span: Span) -> Result<Vec<Pane<A::Accumulator>>, Error> {
        let mut taken = Vec::new();
        if self.state.is_spilled(span.start) {
            let found =
                self.spilled(cx, span.start).take_while(|pane| pane.as_ref().map_or(true, |pane| pane.span.overlaps(span)));
            let lasts = found.map(|pane| pane.map(|pane| pane.span.last())).collect::<Result<Vec<_>, _>>()?;
            for last in lasts {
                taken.extend(self.unspill(cx, last)?);
            }
        }
        while let Some(index) = self.state.position(|pane| pane.overlaps(span)) {
            taken.extend(self.state.remove(index));
        }
        Ok(taken)
    }

    /// Takes the pane out that a record of a span goes to: a new one if there is none, and one made of all sessions that the
    /// record joins. `None`, and nothing changed, if even those are forgotten.
    pub(super) fn take_for(
        &mut self,
        cx: &mut Context<'_>,
        span: Span,
        done: Option<i64>,
    ) -> Result<Option<Pane<A::Accumulator>>, Error> {
        if !matches!(self.shape.kind, Kind::Session { .. }) {
            return Ok(Some(self.take_pane(cx, span.last())?.unwrap_or_else(|| Pane::new(span))));
        }
        let found = self.take_overlapping(cx, span)?;
        let joined = found.iter().fold(span, |joined, pane| joined.joined(pane.span));
        if !self.shape.is_forgotten(joined, done) {
            return Ok(Some(merged::<A>(joined, found)));
        }
        for pane in found {
            self.put_pane(cx, pane)?;
        }
        Ok(None)
    }

    /// Takes the oldest pane out, if `wanted` says so.
    pub(super) fn take_oldest(
        &mut self,
        cx: &mut Context<'_>,
        wanted: impl Fn(Span) -> bool,
    ) -> Result<Option<Pane<A::Accumulator>>, Error> {
        if self.state.spilled() > 0 {
            return match self.oldest(cx, i64::MIN)? {
                Some(oldest) if wanted(oldest) => self.unspill(cx, oldest.last()),
                _ => Ok(None),
            };
        }
        let is_wanted = self.state.iter().next().is_some_and(|oldest| wanted(oldest.span));
        Ok(if is_wanted { self.state.remove(0) } else { None })
    }

    /// The span of the oldest pane that ends at or after a time.
    pub(super) fn oldest(&self, cx: &Context<'_>, last: i64) -> Result<Option<Span>, Error> {
        if self.state.is_spilled(last)
            && let Some(pane) = self.spilled(cx, last).next()
        {
            return Ok(Some(pane?.span));
        }
        Ok(self.state.iter().map(|pane| pane.span).find(|span| last <= span.last()))
    }

    /// Copies of the panes that end in a span, oldest first.
    pub(super) fn within(&self, cx: &Context<'_>, span: Span) -> Result<Vec<Pane<A::Accumulator>>, Error> {
        let is_before_end = |pane: &Pane<A::Accumulator>| pane.span.last() <= span.last();
        let mut panes = Vec::new();
        if self.state.is_spilled(span.start) {
            for pane in self.spilled(cx, span.start) {
                let pane = pane?;
                if !is_before_end(&pane) {
                    return Ok(panes);
                }
                panes.push(pane);
            }
        }
        let here = self.state.iter().skip_while(|pane| pane.span.last() < span.start).take_while(|pane| is_before_end(pane));
        panes.extend(here.cloned());
        Ok(panes)
    }

    /// The panes of the map that end at or after a time, oldest first.
    fn spilled<'c>(
        &'c self,
        cx: &'c Context<'_>,
        last: i64,
    ) -> impl Iterator<Item = Result<Pane<A::Accumulator>, Error>> + use<'c, 'k, A> {
        self.core.panes.scan_from(cx, &last).map(|entry| entry.map(|(_, pane)| pane))
    }

    /// A record has come to a pane: if it has windows that have not ended, they fire at the next multiple of the interval of
    /// early firings.
    pub(super) fn arm_early(&mut self, cx: &Context<'_>, pane: &mut Pane<A::Accumulator>, now: Now) {
        let Some((domain, interval)) = self.shape.early_time else { return };
        if self.shape.next_last(pane.span, now.done).is_none() {
            return;
        }
        pane.set_fresh(true);
        let from = match domain {
            TimeDomain::EventTime => now.done.map_or(now.time, |done| done.max(now.time)),
            TimeDomain::ProcessingTime => cx.processing_time_ms(),
        };
        let due = next_multiple(from, interval);
        // By their own clock, windows end before a multiple that comes after them.
        let comes = domain != self.shape.clock || due < self.shape.final_last(pane.span);
        if comes && self.state.early().is_none_or(|pending| due < pending) {
            self.move_early(cx, Some(due));
        }
    }

    /// Nothing of what is at hand has something new since windows fired early at an interval.
    pub(super) fn make_stale(&mut self, cx: &mut Context<'_>) -> Result<(), Error> {
        if self.state.spilled() > 0 {
            let fresh = self.spilled(cx, i64::MIN).filter(|pane| pane.as_ref().map_or(true, |pane| pane.is_fresh()));
            for mut pane in fresh.collect::<Result<Vec<_>, _>>()? {
                pane.set_fresh(false);
                self.core.panes.put(cx, &pane.span.last(), pane)?;
            }
        }
        self.state.iter_mut().for_each(|pane| pane.set_fresh(false));
        Ok(())
    }

    /// Sees to it that the windows' timer is due no later than when something happens at a time of their clock.
    pub(super) fn wake_by(&mut self, cx: &Context<'_>, event: i64) {
        let due = self.due(event);
        if self.timer.is_none_or(|pending| due < pending) {
            self.move_timer(cx, Some(due));
        }
    }

    /// Sets the windows' timer for when something happens next.
    pub(super) fn wake_at(&mut self, cx: &Context<'_>, event: i64) {
        let due = self.due(event);
        self.move_timer(cx, Some(due));
    }

    /// When the timer for a time of the windows' clock is due. The watermark is at a time when nothing more of it is expected;
    /// of the host's clock that is so once it has passed.
    fn due(&self, event: i64) -> i64 {
        match self.shape.clock {
            TimeDomain::EventTime => event,
            TimeDomain::ProcessingTime => event.saturating_add(1),
        }
    }

    /// The time of the windows' clock that a timer is for.
    pub(super) fn event_of(&self, due: i64) -> i64 {
        match self.shape.clock {
            TimeDomain::EventTime => due,
            TimeDomain::ProcessingTime => due.saturating_sub(1),
        }
    }

    fn move_timer(&mut self, cx: &Context<'_>, due: Option<i64>) {
        let timers = self.core.timers(self.shape.clock);
        let before = std::mem::replace(&mut self.timer, due);
        if before != due {
            before.into_iter().for_each(|before| timers.delete(cx, before, WINDOWS));
            due.into_iter().for_each(|due| timers.set(cx, due, WINDOWS));
        }
    }

    pub(super) fn move_early(&mut self, cx: &Context<'_>, due: Option<i64>) {
        let Some((domain, _)) = self.shape.early_time else {
            // What an earlier configuration set fires, and does nothing.
            self.state.set_early(None);
            return;
        };
        let timers = self.core.timers(domain);
        let before = self.state.set_early(due);
        if before != due {
            before.into_iter().for_each(|before| timers.delete(cx, before, EARLY));
            due.into_iter().for_each(|due| timers.set(cx, due, EARLY));
        }
    }
}
