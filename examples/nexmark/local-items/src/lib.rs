//! q3: which items are offered by persons of some states. A join without end: an auction waits for its seller for ever, and a
//! seller for further auctions.

use cofferdam_guest::prelude::*;
use nexmark_model::{Offer, Registration};
use serde::Serialize;

/// An output line.
#[derive(Serialize)]
struct Row<'a> {
    name: &'a str,
    city: &'a str,
    state: &'a str,
    auction: u64,
}

/// The operator. The key is the seller.
pub struct LocalItems {
    persons: InputPort,
    seller: Value<Registration>,
    /// Auctions of a seller who has not come yet. Few wait, and looking at them costs nothing where none does.
    waiting: Value<Vec<u64>>,
}

impl Operator for LocalItems {
    type Config = NoConfig;

    fn declare(declare: &mut Declare) -> Self {
        let persons = declare.input("persons");
        declare.input("auctions");
        LocalItems { persons, seller: declare.value("seller"), waiting: declare.value("waiting") }
    }

    fn process(&mut self, record: Record<'_>, cx: &mut Context<'_>) -> Result<(), Error> {
        if cx.port() == self.persons {
            let seller: Registration = record.decode()?;
            for auction in self.waiting.get_or_default(cx)? {
                emit(&seller, auction, cx)?;
            }
            self.waiting.delete(cx);
            self.seller.set(cx, seller);
            return Ok(());
        }
        let offer: Offer = record.decode()?;
        match self.seller.get(cx)? {
            Some(seller) => emit(&seller, offer.id, cx),
            None => self.waiting.update(cx, |waiting| waiting.push(offer.id)),
        }
    }
}

fn emit(seller: &Registration, auction: u64, cx: &mut Context<'_>) -> Result<(), Error> {
    let Registration { name, city, state, .. } = seller;
    cx.out().send_json(&Row { name, city, state, auction })
}

export!(LocalItems);

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
        record(bytes).time_ms(0)
    }

    fn person(id: u64) -> TestRecord {
        let text = |text: &str| text.to_owned();
        encoded(&Registration { id, name: text("Ada"), city: text("Bend"), state: text("OR") }).key(key(id)).port("persons")
    }

    fn auction(id: u64, seller: u64) -> TestRecord {
        encoded(&Offer { id, seller, category: 10, time: 0, expires: 1 }).key(key(seller)).port("auctions")
    }

    #[test]
    fn auctions_before_and_after_their_seller_are_told_of_once() {
        let mut items = Harness::<LocalItems>::new();
        assert!(items.process([auction(1, 7), auction(2, 7), auction(3, 8)]).unwrap().is_empty());
        let out = items.process([person(7), auction(4, 7)]).unwrap();
        let row = |auction| format!(r#"{{"name":"Ada","city":"Bend","state":"OR","auction":{auction}}}"#);
        assert_eq!(out.texts(), [row(1), row(2), row(4)]);
        assert_eq!(items.keys("waiting"), [key(8)]);
    }

    #[test]
    fn results_do_not_depend_on_batches() {
        let records = (0..40).map(|n| if n % 9 == 5 { person(n % 4) } else { auction(n, n % 4) });
        Harness::<LocalItems>::new().assert_batch_independent(records);
    }
}
