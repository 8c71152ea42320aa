//! Combining watermarks: the minimum over the inputs that count.

use super::time_report::Activity;
use crate::time::Watermark;

/// Combines the watermarks of several inputs. Idle and ended inputs do not hold it back; it never goes back.
#[derive(Clone, Debug)]
pub struct WatermarkCombiner {
    inputs: Vec<Input>,
    /// What was last returned.
    combined: Option<Watermark>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Input {
    watermark: Option<Watermark>,
    idle: bool,
    ended: bool,
}

impl WatermarkCombiner {
    /// Returns a combiner of so many inputs that begins at a restored watermark.
    pub fn new(inputs: usize, restored: Option<Watermark>) -> Self {
        Self { inputs: vec![Input::default(); inputs], combined: restored }
    }

    /// Returns the combined watermark.
    pub fn current(&self) -> Option<Watermark> {
        self.combined
    }

    /// An input has advanced. Returns the combined watermark if that advanced, too.
    pub fn advance(&mut self, input: usize, watermark: Watermark) -> Option<Watermark> {
        if watermark == Watermark::MAX {
            // It says how far this input is and nothing of the others: one that is idle now may still have records.
            return self.end(input);
        }
        let input = &mut self.inputs[input];
        input.watermark = input.watermark.max(Some(watermark));
        input.idle = false;
        self.combine()
    }

    /// An input has nothing for now. Returns the combined watermark if that advanced.
    pub fn idle(&mut self, input: usize) -> Option<Watermark> {
        self.inputs[input].idle = true;
        self.combine()
    }

    /// An input counts again.
    pub fn active(&mut self, input: usize) {
        self.inputs[input].idle = false;
    }

    /// Returns where each input is: its watermark, and whether it is idle or has ended.
    pub(super) fn inputs(&self) -> impl Iterator<Item = (Option<Watermark>, Activity)> {
        self.inputs.iter().map(|input| {
            let activity = match input {
                Input { ended: true, .. } => Activity::Ended,
                Input { idle: true, .. } => Activity::Idle,
                Input { .. } => Activity::Active,
            };
            (input.watermark, activity)
        })
    }

    /// Whether all inputs that have not ended are idle, and there is one.
    pub fn all_idle(&self) -> bool {
        let mut live = self.inputs.iter().filter(|input| !input.ended).peekable();
        live.peek().is_some() && live.all(|input| input.idle)
    }

    /// An input has ended. Returns the combined watermark if that advanced.
    pub fn end(&mut self, input: usize) -> Option<Watermark> {
        self.inputs[input].ended = true;
        self.combine()
    }

    fn combine(&mut self) -> Option<Watermark> {
        let active = self.inputs.iter().filter(|input| !input.idle && !input.ended).map(|input| input.watermark).min();
        let combined = match active {
            // `None`, an input that has said nothing yet, is less than any.
            Some(least) => least,
            None if self.inputs.iter().all(|input| input.ended) => Some(Watermark::MAX),
            // Only idle ones are left: as far as any came, which is what there is whoever became idle or ended first.
            None => self.inputs.iter().filter_map(|input| input.watermark).max(),
        };
        if combined > self.combined {
            self.combined = combined;
            return combined;
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::time::EventTime;

    fn at(ms: i64) -> Watermark {
        Watermark(EventTime(ms))
    }

    #[test]
    fn the_slowest_input_that_counts_decides() {
        let mut combiner = WatermarkCombiner::new(3, None);
        assert_eq!(combiner.advance(0, at(5)), None);
        assert_eq!(combiner.advance(1, at(7)), None, "input 2 has said nothing");
        assert_eq!(combiner.idle(2), Some(at(5)));
        assert_eq!(combiner.advance(0, at(9)), Some(at(7)));
        assert_eq!(combiner.end(1), Some(at(9)));
        assert_eq!(combiner.advance(2, at(3)), None, "an input that wakes up does not pull it back");
        assert_eq!(combiner.current(), Some(at(9)));
        combiner.end(0);
        assert_eq!(combiner.end(2), Some(Watermark::MAX));
    }

    #[test]
    fn a_restored_watermark_is_where_it_goes_on() {
        let mut combiner = WatermarkCombiner::new(1, Some(at(10)));
        assert_eq!(combiner.advance(0, at(8)), None);
        assert_eq!(combiner.advance(0, at(11)), Some(at(11)));
    }

    #[test]
    fn an_input_that_ends_does_not_end_time_for_one_that_is_idle() {
        let mut combiner = WatermarkCombiner::new(2, None);
        combiner.advance(0, at(5));
        assert_eq!(combiner.advance(0, Watermark::MAX), None);
        assert_eq!(combiner.end(0), None);
        assert_eq!(combiner.idle(1), Some(at(5)), "as far as the other came");
        combiner.active(1);
        assert_eq!(combiner.advance(1, at(9)), Some(at(9)));
        assert_eq!(combiner.end(1), Some(Watermark::MAX));
    }

    #[test]
    fn when_all_are_idle_it_does_not_matter_who_was_first() {
        for order in [[0, 1], [1, 0]] {
            let mut combiner = WatermarkCombiner::new(2, None);
            combiner.advance(0, at(5));
            combiner.advance(1, at(9));
            let advanced = order.map(|input| combiner.idle(input));
            assert_eq!(advanced.into_iter().flatten().collect::<Vec<_>>(), [at(9)], "{order:?}");
        }
    }

    #[test]
    fn idle_is_passed_on_only_if_every_live_input_is() {
        let mut combiner = WatermarkCombiner::new(2, None);
        combiner.idle(0);
        assert!(!combiner.all_idle());
        combiner.end(1);
        assert!(combiner.all_idle());
        combiner.active(0);
        assert!(!combiner.all_idle());
    }
}
