//! Tells of a small payment that is followed at once by a large one of the same account, within a minute of event time:
//! somebody may be trying out a stolen card.

use cofferdam_guest::patterns::{Found, Sequence, Steps};
use cofferdam_guest::prelude::*;
use serde::{Deserialize, Serialize};

/// The configuration, with its defaults. Amounts are in cents.
#[derive(Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Config {
    below: u64,
    above: u64,
    within_ms: i64,
}

impl Default for Config {
    fn default() -> Self {
        Self { below: 100, above: 50_000, within_ms: 60_000 }
    }
}

/// An input line, beside its account and its time.
#[derive(Clone, Serialize, Deserialize)]
struct Payment {
    amount: u64,
}

/// An output line.
#[derive(Serialize)]
struct Alert<'a> {
    account: &'a str,
    small: u64,
    small_at: i64,
    large: u64,
    large_at: i64,
}

/// The operator.
pub struct Detect {
    small_then_large: Sequence<Payment>,
    late: OutputPort,
}

impl Operator for Detect {
    type Config = Config;

    fn declare(declare: &mut Declare) -> Self {
        declare.output("alerts");
        let late = declare.output("late");
        Detect { small_then_large: declare.sequence("small-then-large"), late }
    }

    fn configure(&mut self, config: Config, _: &InstanceInfo) -> Result<(), Error> {
        let small = Steps::begin(move |payment: &Payment| payment.amount < config.below);
        self.small_then_large.of(small.next(move |payment, _| payment.amount > config.above).within_ms(config.within_ms))
    }

    fn process(&mut self, record: Record<'_>, cx: &mut Context<'_>) -> Result<(), Error> {
        match self.small_then_large.add(cx, record.json()?)? {
            Some(_) => cx.out_to(self.late).keep_key().send_bytes(record.bytes()),
            None => Ok(()),
        }
    }

    fn on_timer(&mut self, timer: Timer, cx: &mut Context<'_>) -> Result<(), Error> {
        self.small_then_large.on_timer(timer, cx, |found, cx| match found {
            Found::Complete([small, large]) => {
                let alert = Alert {
                    account: cx.key_text()?,
                    small: small.value.amount,
                    small_at: small.time_ms,
                    large: large.value.amount,
                    large_at: large.time_ms,
                };
                cx.out().keep_key().send_json(&alert)
            }
            // A small payment that no large one has followed in time is no news.
            Found::Complete(_) | Found::TimedOut(_) => Ok(()),
        })?;
        Ok(())
    }
}

export!(Detect);

#[cfg(test)]
mod tests {
    use cofferdam_guest::testing::{Harness, TestRecord, record};

    use super::*;

    fn payment(account: &str, at: i64, amount: u64) -> TestRecord {
        record(format!(r#"{{"amount": {amount}}}"#)).key(account).time_ms(at)
    }

    #[test]
    fn a_large_payment_right_after_a_small_one_is_told_of() {
        let mut detect = Harness::<Detect>::new();
        let payments = [
            payment("ada", 0, 99),
            payment("bob", 5_000, 60_000),
            payment("ada", 60_000, 50_001),
            payment("ada", 61_000, 70_000),
        ];
        assert!(detect.process(payments).unwrap().is_empty(), "it is not certain yet that nothing came between");
        let out = detect.advance_watermark(60_000).unwrap();
        assert_eq!(out.texts(), [r#"{"account":"ada","small":99,"small_at":0,"large":50001,"large_at":60000}"#]);
        assert_eq!(out[0].time_ms(), Some(60_000));
        assert!(detect.finish().unwrap().is_empty());
        detect.assert_nothing_left();
    }

    #[test]
    fn a_minute_is_the_limit_and_a_payment_between_ends_it() {
        let mut detect = Harness::<Detect>::new();
        detect.process([payment("ada", 0, 5), payment("ada", 60_001, 90_000)]).unwrap();
        detect.process([payment("bob", 0, 5), payment("bob", 20, 90_000), payment("bob", 10, 700)]).unwrap();
        assert!(detect.finish().unwrap().is_empty());
        detect.assert_nothing_left();
    }

    #[test]
    fn what_comes_too_late_goes_elsewhere() {
        let mut detect = Harness::<Detect>::new();
        detect.advance_watermark(1_000).unwrap();
        let out = detect.process([payment("ada", 1_000, 5), payment("ada", 1_001, 90_000)]).unwrap();
        assert_eq!(out.of_port("late").len(), 1);
        assert!(detect.finish().unwrap().is_empty());
    }

    #[test]
    fn results_do_not_depend_on_batches() {
        let records = (0..60_u32)
            .map(|i| payment(["ada", "bob"][i as usize % 2], i64::from(i * 7919 % 100_000), [5, 90_000, 700][i as usize % 3]));
        Harness::<Detect>::new().assert_batch_independent(records);
    }
}
