//! What happens to a key's windows as time passes: they fire on time and early, and are forgotten.

use super::Contents;
use super::core::{Event, fired, merged};
use super::fired::Firing;
use super::key::Key;
use super::pane::Pane;
use super::shape::{Aligned, Kind};
use crate::context::Context;
use crate::error::Error;

impl<A: Contents> Key<'_, A> {
    /// Lets everything happen that happens at `done`; what happened before has.
    pub(super) fn pass(
        &mut self,
        cx: &mut Context<'_>,
        done: Option<i64>,
        events: &mut Vec<Event<A::Output>>,
    ) -> Result<(), Error> {
        if let Some(done) = done {
            self.end_windows(cx, done, events)?;
            self.forget(cx, done, events)?;
        }
        if let Some(next) = self.next_event(cx, done)? {
            self.wake_at(cx, next);
        }
        Ok(())
    }

    /// Fires the windows that end at `done` and are kept.
    fn end_windows(&mut self, cx: &mut Context<'_>, done: i64, events: &mut Vec<Event<A::Output>>) -> Result<(), Error> {
        match self.shape.kind {
            Kind::Aligned(aligned) if aligned.slides() => {
                // Ends beyond all time fall together at the last moment: there may be several.
                for start in aligned.starts_ending_at(done, done) {
                    let window = aligned.window(start);
                    let panes = self.within(cx, window)?;
                    if !panes.is_empty() {
                        events.push(fired::<A>(&merged::<A>(window, panes), Firing::OnTime));
                    }
                }
            }
            _ if self.shape.lateness > 0 => {
                if let Some(mut pane) = self.take_pane(cx, done)? {
                    events.push(fired::<A>(&pane, Firing::OnTime));
                    // What counts from here on is late records.
                    pane.set_since(0);
                    self.put_pane(cx, pane)?;
                }
            }
            // They fire as they are forgotten, which happens at the same time.
            Kind::Aligned(_) | Kind::Session { .. } | Kind::Global { .. } => {}
        }
        Ok(())
    }

    /// Forgets what is of no use any more.
    fn forget(&mut self, cx: &mut Context<'_>, done: i64, events: &mut Vec<Event<A::Output>>) -> Result<(), Error> {
        let shape = self.shape;
        while let Some(pane) = self.take_oldest(cx, |span| shape.is_forgotten(span, Some(done)))? {
            if shape.slides() {
                // Each of its windows has fired.
            } else if shape.lateness == 0 {
                // One that had a lateness in an earlier configuration has fired.
                if pane.span.last() == done {
                    events.push(fired::<A>(&pane, Firing::OnTime));
                }
            } else if pane.since() > 0 {
                // Late records that were too few to fire.
                events.push(fired::<A>(&pane, Firing::Late));
            }
            events.push(Event::Forgets(pane.span));
        }
        Ok(())
    }

    /// The next time at which something happens, after `done`.
    fn next_event(&self, cx: &Context<'_>, done: Option<i64>) -> Result<Option<i64>, Error> {
        let Some(oldest) = self.oldest(cx, i64::MIN)? else { return Ok(None) };
        let forgotten = self.shape.forgotten_at(oldest);
        // The oldest pane whose windows have not all ended: older ones only wait to be forgotten.
        let unended = match (done, &self.shape.kind) {
            (None, _) => Some(oldest),
            (Some(done), Kind::Aligned(aligned)) if aligned.slides() => {
                let mut pane = self.oldest(cx, done.saturating_sub(aligned.size))?;
                while let Some(span) = pane.filter(|span| self.shape.next_last(*span, Some(done)).is_none()) {
                    pane = if span.last() == i64::MAX { None } else { self.oldest(cx, span.last() + 1)? };
                }
                pane
            }
            (Some(i64::MAX), _) => None,
            (Some(done), _) => self.oldest(cx, done + 1)?,
        };
        let ends = unended.and_then(|span| self.shape.next_last(span, done));
        Ok(Some(ends.map_or(forgotten, |ends| ends.min(forgotten))))
    }

    /// Lets everything happen that ever will.
    pub(super) fn pass_all(&mut self, cx: &mut Context<'_>, events: &mut Vec<Event<A::Output>>) -> Result<(), Error> {
        // What is before the next event has happened.
        let mut done = self.timer.map(|due| self.event_of(due).saturating_sub(1));
        while let Some(next) = self.next_event(cx, done)?.filter(|next| Some(*next) > done) {
            done = Some(next);
            self.end_windows(cx, next, events)?;
            self.forget(cx, next, events)?;
        }
        Ok(())
    }

    /// Fires the windows that have not ended and have something new.
    pub(super) fn fire_early(
        &mut self,
        cx: &mut Context<'_>,
        done: Option<i64>,
        events: &mut Vec<Event<A::Output>>,
    ) -> Result<(), Error> {
        let mut open = self.within(cx, super::shape::Span::ALL)?;
        open.retain(|pane| self.shape.next_last(pane.span, done).is_some());
        match self.shape.kind {
            Kind::Aligned(aligned) if aligned.slides() => self.fire_sliding_early(&aligned, &open, done, events),
            _ => events.extend(open.iter().filter(|pane| pane.is_fresh()).map(|pane| fired::<A>(pane, Firing::Early))),
        }
        self.make_stale(cx)
    }

    /// `open` has all panes of windows that have not ended, oldest first.
    fn fire_sliding_early(
        &self,
        aligned: &Aligned,
        open: &[Pane<A::Accumulator>],
        done: Option<i64>,
        events: &mut Vec<Event<A::Output>>,
    ) {
        let mut started = i128::MIN;
        for pane in open.iter().filter(|pane| pane.is_fresh()) {
            for start in aligned.starts_around(pane.span.start) {
                let window = aligned.window(start);
                if start <= started || Some(window.last()) <= done {
                    continue;
                }
                started = start;
                let first = open.partition_point(|other| other.span.last() < window.start);
                let end = open.partition_point(|other| other.span.last() <= window.last());
                events.push(fired::<A>(&merged::<A>(window, open[first..end].to_vec()), Firing::Early));
            }
        }
    }
}
