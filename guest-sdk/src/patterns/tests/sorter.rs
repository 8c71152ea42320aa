//! Events come out sorted, as soon as it is certain that none comes before them.

use proptest::prelude::*;

use super::{Group, Told, on_time, reached, run_in_all_ways, streams};
use crate::patterns::Sorter;
use crate::prelude::*;
use crate::testing::{Harness, record};

struct Sort(Sorter<u16>);

impl Operator for Sort {
    type Config = NoConfig;

    fn declare(declare: &mut Declare) -> Self {
        Self(declare.sorter("events"))
    }

    fn process(&mut self, record: Record<'_>, cx: &mut Context<'_>) -> Result<(), Error> {
        match self.0.add(cx, record.text()?.parse()?)? {
            Some(late) => cx.out().keep_key().send_text(("late ", late)),
            None => Ok(()),
        }
    }

    fn on_timer(&mut self, timer: Timer, cx: &mut Context<'_>) -> Result<(), Error> {
        assert!(self.0.on_timer(timer, cx, |event, cx| cx.out().keep_key().send_text(event))?);
        Ok(())
    }
}

fn model(groups: &[Group<u16>]) -> Vec<Told> {
    let mut told = vec![Told::default(); groups.len() + 1];
    let mut watermark = None;
    for (group, told) in groups.iter().zip(&mut told) {
        let late = group.events.iter().filter(|event| Some(event.1) <= watermark);
        told[0].extend(late.map(|(key, time, event)| (*key, *time, format!("late {event}"))));
        told[0].sort_by_key(|told| told.0);
        watermark = Some(group.watermark);
    }
    for (_, (key, time, event)) in on_time(groups) {
        told[reached(groups, time)][1].push((key, time, event.to_string()));
    }
    // Stable: those of one time stay in the order in which they came.
    told.iter_mut().for_each(|told| told[1].sort_by_key(|(key, time, _)| (*key, *time)));
    told
}

proptest! {
    #[test]
    fn events_come_out_in_order_and_none_is_lost(groups in streams(any::<u16>())) {
        let expected = model(&groups);
        let found = run_in_all_ways::<Sort, _>("{}", &groups, |(key, time, event)| record(event.to_string()).key([*key]).time_ms(*time), |index, harness| {
            let watermark = groups[index].watermark;
            let held: usize = (0..3).map(|key| harness.state_map::<(i64, u64), u16>("events", [key]).len()).sum();
            let wanted = on_time(&groups).iter().filter(|(group, event)| *group <= index && event.1 > watermark).count();
            assert_eq!(held, wanted, "held after group {index}");
        });
        prop_assert_eq!(found, expected);
    }
}

#[test]
fn more_than_fits_one_timer_comes_out_in_several() {
    let mut sort = Harness::<Sort>::new();
    sort.process((0..2000_i64).map(|n| record(n.to_string()).key("k").time_ms(n * 7 % 2000))).unwrap();
    assert_eq!(sort.timers(crate::TimeDomain::EventTime, "k").len(), 1);
    let out = sort.advance_watermark(1999).unwrap();
    let times: Vec<_> = out.iter().map(|out| out.time_ms().unwrap()).collect();
    assert!(times.iter().copied().eq(0..2000), "{times:?}");
    sort.assert_nothing_left();
}
