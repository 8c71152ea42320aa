//! An operator that does nothing but tell what its windows do, of the kind that its configuration says.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::prelude::*;
use crate::testing::{Harness, Outputs};

/// Windows as a test asks for them.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct Settings {
    pub(super) kind: Kind,
    pub(super) processing: bool,
    pub(super) lateness: u64,
    pub(super) early_records: Option<u64>,
    /// By processing time, and the interval.
    pub(super) early_time: Option<(bool, u64)>,
    pub(super) late_records: Option<u64>,
    /// Whether records are kept, instead of an aggregate.
    pub(super) keeps_records: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub(super) enum Kind {
    Aligned { size: u64, slide: u64, offset: i64 },
    Session { gap: u64 },
    Global { purging: bool },
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            kind: Kind::Aligned { size: 10, slide: 10, offset: 0 },
            processing: false,
            lateness: 0,
            early_records: None,
            early_time: None,
            late_records: None,
            keeps_records: false,
        }
    }
}

impl Settings {
    pub(super) fn windowing(&self) -> Windowing {
        let ms = Duration::from_millis;
        let mut windowing = match self.kind {
            Kind::Aligned { size, slide, offset } if size == slide => Windowing::tumbling(ms(size)).offset_ms(offset),
            Kind::Aligned { size, slide, offset } => Windowing::sliding(ms(size), ms(slide)).offset_ms(offset),
            Kind::Session { gap } => Windowing::session(ms(gap)),
            Kind::Global { purging: true } => Windowing::global().purging(),
            Kind::Global { purging: false } => Windowing::global(),
        };
        windowing = windowing.lateness(ms(self.lateness));
        if self.processing {
            windowing = windowing.processing_time();
        }
        if let Some(records) = self.early_records {
            windowing = windowing.early_every(records);
        }
        if let Some(records) = self.late_records {
            windowing = windowing.late_every(records);
        }
        match self.early_time {
            None => windowing,
            Some((true, interval)) => windowing.early_every_processing_time(ms(interval)),
            Some((false, interval)) => windowing.early_every_event_time(ms(interval)),
        }
    }

    pub(super) fn harness<const AT_HAND: usize>(&self) -> Harness<Probe<AT_HAND>> {
        Harness::new().config(&serde_json::to_string(self).unwrap())
    }
}

/// What a firing tells.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Row {
    pub(super) key: u8,
    pub(super) window: (i64, i64),
    /// 0 is early, 1 on time, 2 late, 3 a record that is in no window.
    pub(super) firing: u8,
    pub(super) records: u64,
    pub(super) values: Vec<u32>,
}

/// Collects all inputs, sorted: the order between panes is theirs.
pub(super) struct All;

impl Aggregate for All {
    type Input = u32;
    type Accumulator = Vec<u32>;
    type Output = Vec<u32>;

    fn add(all: &mut Vec<u32>, input: u32) {
        all.push(input);
    }

    fn result(all: &Vec<u32>) -> Vec<u32> {
        let mut sorted = all.clone();
        sorted.sort_unstable();
        sorted
    }

    fn merge(all: &mut Vec<u32>, other: Vec<u32>) {
        all.extend(other);
    }
}

/// `AT_HAND` panes of a key are stored together.
pub(super) struct Probe<const AT_HAND: usize> {
    pub(super) all: Windows<All>,
    pub(super) records: RecordWindows<u32>,
    keeps_records: bool,
    late: OutputPort,
}

fn row(cx: &Context<'_>, window: Window, firing: Firing, records: u64, values: Vec<u32>) -> Row {
    Row { key: cx.key()[0], window: (window.start_ms(), window.last_ms()), firing: firing as u8, records, values }
}

fn emit_all(fired: Fired<Vec<u32>>, cx: &mut Context<'_>) -> Result<(), Error> {
    cx.emit(&row(cx, fired.window, fired.firing, fired.records, fired.result))
}

fn emit_records(fired: &FiredRecords<'_, u32>, cx: &mut Context<'_>) -> Result<(), Error> {
    let values = fired.iter(cx).collect::<Result<Vec<_>, _>>()?;
    cx.emit(&row(cx, fired.window, fired.firing, fired.records, values))
}

impl<const AT_HAND: usize> Operator for Probe<AT_HAND> {
    type Config = Settings;

    fn declare(declare: &mut Declare) -> Self {
        declare.output("out");
        let late = declare.output("late");
        let (mut all, mut records) = (declare.windows("all"), declare.record_windows("kept"));
        all.core.at_hand_max = AT_HAND;
        records.core_mut().at_hand_max = AT_HAND;
        Self { all, records, keeps_records: false, late }
    }

    fn configure(&mut self, settings: Settings, _: &InstanceInfo) -> Result<(), Error> {
        self.keeps_records = settings.keeps_records;
        self.all.configure(&settings.windowing())?;
        self.records.configure(&settings.windowing())
    }

    fn process(&mut self, record: Record<'_>, cx: &mut Context<'_>) -> Result<(), Error> {
        let value = record.text()?.parse()?;
        let added = match self.keeps_records {
            true => self.records.add(cx, value, emit_records)?,
            false => self.all.add(cx, value, emit_all)?,
        };
        added.or_send(self.late, record, cx)
    }

    fn on_timer(&mut self, timer: Timer, cx: &mut Context<'_>) -> Result<(), Error> {
        let taken = (self.all.on_timer(timer, cx, emit_all)?, self.records.on_timer(timer, cx, emit_records)?);
        assert_eq!(taken, (!self.keeps_records, self.keeps_records), "each takes its own timers");
        Ok(())
    }
}

/// What was emitted for a key, each with its event time.
pub(super) fn rows_of(outputs: &Outputs, key: u8) -> Vec<(Row, Option<i64>)> {
    let of_key = |port: &str| {
        let row = |record: &crate::testing::Emitted| match port {
            "late" => {
                let value = record.text().parse().unwrap();
                Row { key: record.key().unwrap()[0], window: (0, 0), firing: 3, records: 1, values: vec![value] }
            }
            _ => record.decode::<Row>(),
        };
        let rows = outputs.of_port(port).iter().map(|record| (row(record), record.time_ms())).collect::<Vec<_>>();
        rows.into_iter().filter(|(row, _)| row.key == key).collect::<Vec<_>>()
    };
    let mut rows = of_key("out");
    rows.extend(of_key("late"));
    rows
}
