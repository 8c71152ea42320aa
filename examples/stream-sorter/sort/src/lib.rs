//! Puts the readings of each sensor into the order of their times.

use cofferdam_guest::patterns::Sorter;
use cofferdam_guest::prelude::*;

/// The operator.
pub struct Sort {
    readings: Sorter<String>,
    late: OutputPort,
}

impl Operator for Sort {
    type Config = NoConfig;

    fn declare(declare: &mut Declare) -> Self {
        declare.output("sorted");
        let late = declare.output("late");
        Sort { readings: declare.sorter("readings"), late }
    }

    fn process(&mut self, record: Record<'_>, cx: &mut Context<'_>) -> Result<(), Error> {
        match self.readings.add(cx, record.text()?.to_owned())? {
            Some(late) => cx.out_to(self.late).keep_key().send_bytes(late),
            None => Ok(()),
        }
    }

    fn on_timer(&mut self, timer: Timer, cx: &mut Context<'_>) -> Result<(), Error> {
        self.readings.on_timer(timer, cx, |reading, cx| cx.out().keep_key().send_bytes(reading))?;
        Ok(())
    }
}

export!(Sort);

#[cfg(test)]
mod tests {
    use cofferdam_guest::testing::{Harness, TestRecord, record};

    use super::*;

    fn reading(sensor: &str, at: i64, value: &str) -> TestRecord {
        record(value).key(sensor).time_ms(at)
    }

    #[test]
    fn readings_wait_until_none_can_come_before_them() {
        let mut sort = Harness::<Sort>::new();
        let readings = [reading("s1", 30, "c"), reading("s1", 10, "a"), reading("s2", 25, "x"), reading("s1", 20, "b")];
        assert!(sort.process(readings).unwrap().is_empty());
        assert_eq!(sort.advance_watermark(25).unwrap().texts(), ["a", "b", "x"]);
        let out = sort.process([reading("s1", 25, "late"), reading("s1", 26, "in time")]).unwrap();
        assert_eq!(out.of_port("late").texts(), ["late"]);
        let out = sort.finish().unwrap();
        assert_eq!(out.texts(), ["in time", "c"]);
        assert_eq!(out[0].time_ms(), Some(26));
        sort.assert_nothing_left();
    }

    #[test]
    fn results_do_not_depend_on_batches() {
        let readings = (0..60_i64).map(|i| reading(["s1", "s2", "s3"][i as usize % 3], i * 7919 % 100, &i.to_string()));
        Harness::<Sort>::new().assert_batch_independent(readings);
    }
}
