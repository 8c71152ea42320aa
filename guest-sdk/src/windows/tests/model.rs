//! Windows by their definition: every window that there is, with all of its records, and every moment at which something
//! happens looked for among all of them. Written without a look at the code under test; it shares nothing but settings with it.

use super::probe::{Kind, Row, Settings};

/// A window, in whole numbers that do not overflow.
#[derive(Clone, Debug)]
struct Open {
    start: i128,
    last: i128,
    /// Time, and a number that tells which came first.
    values: Vec<(i64, u64, u32)>,
    counted: u64,
    fresh: bool,
}

/// The windows of one key.
#[derive(Clone, Debug)]
pub(super) struct Model {
    key: u8,
    settings: Settings,
    open: Vec<Open>,
    early: Option<i64>,
    arrivals: u64,
    pub(super) watermark: Option<i64>,
    pub(super) clock: i64,
    /// What should have been emitted, and with which event time: firings, and late records apart.
    pub(super) told: Vec<(Row, Option<i64>)>,
    pub(super) late: Vec<(Row, Option<i64>)>,
}

const EARLY: u8 = 0;
const ON_TIME: u8 = 1;
const LATE: u8 = 2;

/// No time is beyond 64 bits.
fn clamp(time: i128) -> i64 {
    i64::try_from(time.clamp(i64::MIN.into(), i64::MAX.into())).unwrap()
}

impl Model {
    pub(super) fn new(key: u8, settings: &Settings) -> Self {
        let (settings, told, late) = (settings.clone(), Vec::new(), Vec::new());
        Self { key, settings, open: Vec::new(), early: None, arrivals: 0, watermark: None, clock: 0, told, late }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.open.is_empty()
    }

    fn is_global(&self) -> bool {
        matches!(self.settings.kind, Kind::Global { .. })
    }

    fn is_sliding(&self) -> bool {
        matches!(self.settings.kind, Kind::Aligned { size, slide, .. } if size != slide)
    }

    /// The time up to which nothing more is expected.
    fn done(&self) -> Option<i64> {
        if self.settings.processing { Some(self.clock - 1) } else { self.watermark }
    }

    fn forgotten(&self, last: i128) -> i64 {
        clamp(i128::from(clamp(last)) + i128::from(self.settings.lateness))
    }

    fn fire(&mut self, index: usize, firing: u8, time: Option<i64>) {
        let window = &self.open[index];
        let mut values = window.values.clone();
        if self.settings.keeps_records {
            values.sort_by_key(|(time, arrival, _)| (*time, *arrival));
        } else {
            values.sort_by_key(|(.., value)| *value);
        }
        let ends_in_event_time = !self.settings.processing && !self.is_global();
        let time = if ends_in_event_time { Some(clamp(window.last)) } else { time.filter(|time| *time != i64::MAX) };
        let row = Row {
            key: self.key,
            window: (clamp(window.start), clamp(window.last)),
            firing,
            records: values.len() as u64,
            values: values.into_iter().map(|(.., value)| value).collect(),
        };
        self.told.push((row, time));
    }

    /// The windows that a time is in, by definition.
    fn around(&self, time: i64) -> Vec<(i128, i128)> {
        let time = i128::from(time);
        match self.settings.kind {
            Kind::Global { .. } => vec![(i64::MIN.into(), i64::MAX.into())],
            Kind::Session { gap } => vec![(time, clamp(time + i128::from(gap) - 1).into())],
            Kind::Aligned { size, slide, offset } => {
                let (size, slide, offset) = (i128::from(size), i128::from(slide), i128::from(offset));
                let nearest = (time - offset) / slide;
                let starts = (nearest - size - 2..nearest + 3).map(|index| offset + index * slide);
                starts.filter(|start| *start <= time && time < start + size).map(|start| (start, start + size - 1)).collect()
            }
        }
    }

    pub(super) fn record(&mut self, event_time: Option<i64>, value: u32) {
        let time = if self.settings.processing { self.clock } else { event_time.unwrap_or(i64::MIN) };
        let done = self.done();
        let mut windows = self.around(time);
        if let Kind::Session { .. } = self.settings.kind {
            let own = windows[0];
            for open in &self.open {
                if open.start <= own.1 && own.0 <= open.last {
                    windows[0] = (windows[0].0.min(open.start), windows[0].1.max(open.last));
                }
            }
        }
        windows.retain(|(_, last)| Some(self.forgotten(*last)) > done);
        if windows.is_empty() {
            let row = Row { key: self.key, window: (0, 0), firing: 3, records: 1, values: vec![value] };
            self.late.push((row, event_time));
            return;
        }
        self.arrivals += 1;
        let kept_time = if self.is_global() { 0 } else { time };
        for window in &windows {
            self.put(*window, (kept_time, self.arrivals, value));
        }
        self.arm(time, &windows);
        for window in windows {
            self.trigger(window, event_time);
        }
    }

    /// Puts a value into a window, which is opened, or made of those that lie in it.
    fn put(&mut self, (start, last): (i128, i128), value: (i64, u64, u32)) {
        let mut merged = Open { start, last, values: vec![], counted: 0, fresh: false };
        let is_session = matches!(self.settings.kind, Kind::Session { .. });
        self.open.retain(|open| {
            let is_part = if is_session { start <= open.start && open.last <= last } else { open.start == start };
            if is_part {
                merged.values.extend(&open.values);
                merged.counted += open.counted;
                merged.fresh |= open.fresh;
            }
            !is_part
        });
        merged.values.push(value);
        self.open.push(merged);
        self.open.sort_by_key(|open| open.start);
    }

    /// An early firing by time is to come.
    fn arm(&mut self, time: i64, windows: &[(i128, i128)]) {
        let Some((by_clock, interval)) = self.settings.early_time else { return };
        let done = self.done();
        let unended: Vec<_> = windows.iter().filter(|(_, last)| Some(clamp(*last)) > done).collect();
        let Some(latest) = unended.iter().map(|(_, last)| clamp(*last)).max() else { return };
        for open in &mut self.open {
            open.fresh |= unended.iter().any(|(start, _)| *start == open.start);
        }
        let from = if by_clock { self.clock } else { done.map_or(time, |done| done.max(time)) };
        let interval = i128::from(interval);
        let due = clamp((i128::from(from).div_euclid(interval) + 1) * interval);
        if by_clock != self.settings.processing || due < latest {
            self.early = Some(self.early.map_or(due, |early| early.min(due)));
        }
    }

    /// A record has come to a window.
    fn trigger(&mut self, (start, last): (i128, i128), time: Option<i64>) {
        let has_ended = Some(clamp(last)) <= self.done();
        let every = if has_ended { Some(self.settings.late_records.unwrap_or(1)) } else { self.settings.early_records };
        let Some(every) = every else { return };
        let index = self.open.iter().position(|open| open.start == start).unwrap();
        let is_sliding = self.is_sliding();
        let open = &mut self.open[index];
        // A sliding window counts all of its records; the others those since they fired.
        open.counted = if is_sliding { open.values.len() as u64 } else { open.counted + 1 };
        let fires = if is_sliding { open.counted.is_multiple_of(every) } else { open.counted >= every };
        if fires {
            open.counted = 0;
            self.fire(index, if has_ended { LATE } else { EARLY }, time);
            if self.settings.kind == (Kind::Global { purging: true }) {
                self.open.remove(index);
                self.stop();
            }
        }
    }

    /// Nothing is left: nothing is to come.
    fn stop(&mut self) {
        if self.open.is_empty() {
            self.early = None;
        }
    }

    /// Event time passes.
    pub(super) fn advance_watermark(&mut self, to: i64) {
        let by_clock = self.settings.processing;
        while let Some(at) = self.next_moment(by_clock, to, self.watermark) {
            self.watermark = Some(at);
            if !by_clock {
                self.end_windows(at, Some(at));
            }
            if self.early == Some(at) && self.settings.early_time.is_some_and(|(by_clock, _)| !by_clock) {
                self.fire_early(Some(at), Some(at));
            }
        }
        self.watermark = Some(to);
    }

    /// The next moment of event time, after `from`, at which something happens.
    fn next_moment(&self, by_clock: bool, to: i64, from: Option<i64>) -> Option<i64> {
        let of_windows = self.open.iter().filter(|_| !by_clock);
        let of_windows = of_windows.flat_map(|open| [clamp(open.last), self.forgotten(open.last)]);
        let early = self.early.filter(|_| self.settings.early_time.is_some_and(|(by_clock, _)| !by_clock));
        of_windows.chain(early).filter(|at| Some(*at) > from && *at <= to).min()
    }

    /// The host's clock goes on.
    pub(super) fn advance_clock(&mut self, to: i64) {
        self.clock = to;
        let early_by_clock = self.settings.early_time.is_some_and(|(by_clock, _)| by_clock);
        loop {
            let ends = self.open.iter().map(|open| clamp(open.last + 1)).filter(|at| *at <= to && self.settings.processing).min();
            let early = self.early.filter(|at| *at <= to && early_by_clock);
            match (ends, early) {
                (Some(end), early) if early.is_none_or(|early| end <= early) => self.end_windows(end - 1, None),
                (_, Some(_)) => self.fire_early(self.done(), None),
                _ => return,
            }
        }
    }

    fn end_windows(&mut self, at: i64, time: Option<i64>) {
        for index in 0..self.open.len() {
            if clamp(self.open[index].last) == at {
                self.fire(index, ON_TIME, time);
                self.open[index].counted = 0;
            }
        }
        for index in 0..self.open.len() {
            let open = &self.open[index];
            let is_over = self.forgotten(open.last) <= at;
            if is_over && open.counted > 0 && !self.is_sliding() {
                self.fire(index, LATE, time);
            }
        }
        let forgotten: Vec<bool> = self.open.iter().map(|open| self.forgotten(open.last) <= at).collect();
        let mut forgotten = forgotten.iter();
        self.open.retain(|_| !forgotten.next().unwrap());
        self.stop();
    }

    fn fire_early(&mut self, done: Option<i64>, time: Option<i64>) {
        self.early = None;
        for index in 0..self.open.len() {
            if self.open[index].fresh && Some(clamp(self.open[index].last)) > done {
                self.fire(index, EARLY, time);
            }
        }
        self.open.iter_mut().for_each(|open| open.fresh = false);
    }

    /// The input ends.
    pub(super) fn finish(&mut self) {
        self.advance_watermark(i64::MAX);
        if self.settings.processing {
            for index in 0..self.open.len() {
                self.fire(index, ON_TIME, None);
            }
            self.open.clear();
        }
    }
}
