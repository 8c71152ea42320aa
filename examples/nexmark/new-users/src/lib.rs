//! q8: who has registered and offered an item in the same window of time.

use cofferdam_guest::patterns::{Joined, WindowJoin};
use cofferdam_guest::prelude::*;
use nexmark_model::{Offer, Registration};
use serde::{Deserialize, Serialize};

/// The configuration.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Config {
    /// How long windows are.
    size_ms: i64,
}

/// An output line: one for each person, however many items there are.
#[derive(Serialize)]
struct Row<'a> {
    id: u64,
    name: &'a str,
    start: i64,
}

/// The operator. The key is the person who sells.
pub struct NewUsers {
    persons: InputPort,
    /// Auctions on the left: there may be many.
    join: WindowJoin<(), Registration>,
}

impl Operator for NewUsers {
    type Config = Config;

    fn declare(declare: &mut Declare) -> Self {
        let persons = declare.input("persons");
        declare.input("auctions");
        NewUsers { persons, join: declare.window_join("join") }
    }

    fn configure(&mut self, config: Config, _: &InstanceInfo) -> Result<(), Error> {
        self.join.tumbling(config.size_ms)
    }

    fn process(&mut self, record: Record<'_>, cx: &mut Context<'_>) -> Result<(), Error> {
        let is_late = if cx.port() == self.persons {
            self.join.right(cx, record.decode()?)?.is_some()
        } else {
            let _: Offer = record.decode()?;
            self.join.left(cx, ())?.is_some()
        };
        if is_late {
            metrics::add("late", 1);
        }
        Ok(())
    }

    fn on_timer(&mut self, timer: Timer, cx: &mut Context<'_>) -> Result<(), Error> {
        let mut is_told = false;
        self.join.on_timer(timer, cx, |joined, window, cx| {
            let Joined::Both(_, person) = joined else { return Ok(()) };
            if std::mem::replace(&mut is_told, true) {
                return Ok(());
            }
            let Registration { id, name, .. } = &person.value;
            cx.out().send_json(&Row { id: *id, name, start: window.start_ms })
        })?;
        Ok(())
    }
}

export!(NewUsers);

#[cfg(test)]
mod tests {
    use cofferdam_guest::codec::{Encode, Postcard};
    use cofferdam_guest::testing::{Harness, TestRecord, record};
    use nexmark_model::key;

    use super::*;

    fn encoded<T>(value: &T) -> TestRecord
    where
        Postcard: Encode<T>,
    {
        let mut bytes = Vec::new();
        Postcard::encode(value, &mut bytes).unwrap();
        record(bytes)
    }

    fn person(id: u64, time: i64) -> TestRecord {
        let text = |text: &str| text.to_owned();
        let person = Registration { id, name: text("Ada"), city: text("Bend"), state: text("OR") };
        encoded(&person).key(key(id)).time_ms(time).port("persons")
    }

    fn auction(seller: u64, time: i64) -> TestRecord {
        let offer = Offer { id: 1, seller, category: 10, time, expires: time + 1 };
        encoded(&offer).key(key(seller)).time_ms(time).port("auctions")
    }

    #[test]
    fn a_new_user_is_told_of_once_for_a_window() {
        let mut users = Harness::<NewUsers>::new().config(r#"{"size_ms":10}"#);
        let records =
            [auction(7, 12), person(7, 15), auction(7, 18), person(8, 11), auction(8, 20), auction(9, 11), auction(7, 9)];
        users.process(records).unwrap();
        let out = users.finish().unwrap();
        assert_eq!(out.texts(), [r#"{"id":7,"name":"Ada","start":10}"#]);
        assert_eq!(out[0].time_ms(), Some(19));
        users.assert_nothing_left();
    }

    #[test]
    fn results_do_not_depend_on_batches() {
        let records = (0..40).map(|n| if n % 5 == 3 { person(n as u64 % 3, n) } else { auction(n as u64 % 3, n) });
        Harness::<NewUsers>::new().config(r#"{"size_ms":7}"#).assert_batch_independent(records);
    }
}
