//! Which event has which number: the model of the benchmark's published generator, as a function of the seed and the number.
//!
//! Of 50 events one is a person, then come three auctions and 46 bids. Persons and auctions are numbered as they come, so that
//! ids need no memory. Half of all bids go to one hot auction, three quarters come from one hot bidder, and three quarters of
//! the auctions are one hot seller's; each of these is another one after a hundred. All others are drawn among recent ones, and a
//! few that are yet to come.

use super::event::{Auction, Bid, Event, Person};
use crate::connector::random::{mix, scale};

/// Events of which the first is a person and the next ones are auctions.
const ROUND: u64 = 50;
const AUCTIONS_IN_ROUND: u64 = 3;

const FIRST_ID: u64 = 1000;
/// Ids that are drawn may be so far ahead of those that there are.
const ID_LEAD: u64 = 10;
const ACTIVE_PERSONS: u64 = 1000;
const OPEN_AUCTIONS: u64 = 100;
/// After so many persons or auctions another one is hot.
const HOT_FOR: u64 = 100;
/// Of so many bids all but one go to the hot auction, and so on.
const HOT_AUCTION: u64 = 2;
const HOT_BIDDER: u64 = 4;
const HOT_SELLER: u64 = 4;

const FIRST_CATEGORY: u64 = 10;
const CATEGORIES: u64 = 5;

/// Average sizes of events, as the published generator counts them: texts, and 8 bytes a number.
const PERSON_BYTES: usize = 200;
const AUCTION_BYTES: usize = 500;
const BID_BYTES: usize = 100;
const TEXT_BYTES_MIN: u64 = 3;
const FILLER_BYTES: usize = 4096;

const STATES: [&str; 6] = ["AZ", "CA", "ID", "OR", "WA", "WY"];
const CITIES: [&str; 10] =
    ["Phoenix", "Los Angeles", "San Francisco", "Boise", "Portland", "Bend", "Redmond", "Seattle", "Kent", "Cheyenne"];
const FIRST_NAMES: [&str; 12] =
    ["Ada", "Alan", "Barbara", "Donald", "Edsger", "Frances", "Grace", "Jim", "John", "Leslie", "Nancy", "Tony"];
const LAST_NAMES: [&str; 10] = ["Allen", "Gray", "Hoare", "Hopper", "Knuth", "Liskov", "Lynch", "McCarthy", "Milner", "Turing"];

/// Makes events.
pub(super) struct Model {
    seed: u64,
    start_ms: i64,
    events_per_second: u64,
    out_of_order_ms: u64,
    filler: String,
}

/// The random numbers of one event.
struct Draws(u64);

impl Draws {
    fn next(&mut self) -> u64 {
        self.0 = mix(self.0);
        self.0
    }

    /// Draws one of `0 .. limit`.
    fn below(&mut self, limit: u64) -> u64 {
        scale(self.next(), limit)
    }

    fn of<'a>(&mut self, words: &[&'a str]) -> &'a str {
        // An index below the number of words.
        words[usize::try_from(self.below(words.len() as u64)).unwrap_or(0)]
    }

    fn is_hot(&mut self, of: u64) -> bool {
        self.below(of) > 0
    }

    /// Draws a price of 1 to 1,000,000 in cents, each decade and each part of one as likely as its logarithm is long. In integers,
    /// so that it is the same on every machine.
    fn price(&mut self) -> u64 {
        let least = [100, 1000, 10_000, 100_000, 1_000_000, 10_000_000][usize::try_from(self.below(6)).unwrap_or(0)];
        loop {
            let price = least + self.below(9 * least);
            if self.below(price) < least {
                return price;
            }
        }
    }
}

/// Returns how many persons there are once event `number` has come.
fn persons(number: u64) -> u64 {
    number / ROUND + 1
}

/// Returns how many auctions there are once event `number` has come.
fn auctions(number: u64) -> u64 {
    number / ROUND * AUCTIONS_IN_ROUND + (number % ROUND).min(AUCTIONS_IN_ROUND)
}

impl Model {
    /// Returns the model of a seed: event 0 is at `start_ms`, the others follow at an even pace, at least one a second; each is up
    /// to `out_of_order_ms` earlier than its turn.
    pub(super) fn new(seed: u64, start_ms: i64, events_per_second: u64, out_of_order_ms: u64) -> Self {
        let seed = mix(seed);
        let mut draws = Draws(seed);
        let filler = (0..FILLER_BYTES).map(|_| char::from(b'a' + (draws.below(26) % 26) as u8)).collect();
        Self { seed, start_ms, events_per_second, out_of_order_ms, filler }
    }

    /// Returns an event.
    pub(super) fn event(&self, number: u64) -> Event<'_> {
        let mut draws = Draws(number ^ self.seed);
        let early_ms = draws.below(self.out_of_order_ms.saturating_add(1));
        let time = self.turn_ms(number).saturating_sub_unsigned(early_ms);
        match number % ROUND {
            0 => Event::Person(self.person(number, time, &mut draws)),
            1..=AUCTIONS_IN_ROUND => Event::Auction(self.auction(number, time, &mut draws)),
            _ => Event::Bid(self.bid(number, time, &mut draws)),
        }
    }

    /// Returns when an event's turn is.
    fn turn_ms(&self, number: u64) -> i64 {
        let elapsed_ms = u128::from(number) * 1000 / u128::from(self.events_per_second);
        self.start_ms.saturating_add(i64::try_from(elapsed_ms).unwrap_or(i64::MAX))
    }

    fn person(&self, number: u64, time: i64, draws: &mut Draws) -> Person<'_> {
        let name = format!("{} {}", draws.of(&FIRST_NAMES), draws.of(&LAST_NAMES));
        let email = format!("{}@{}.com", self.text(7, draws), self.text(5, draws));
        let card = draws.next();
        let group = |index: u32| (card >> (16 * index)) % 10_000;
        let credit_card = format!("{:04} {:04} {:04} {:04}", group(0), group(1), group(2), group(3));
        let (city, state) = (draws.of(&CITIES), draws.of(&STATES));
        let bytes = 8 + name.len() + email.len() + credit_card.len() + city.len() + state.len();
        let extra = self.extra(bytes, PERSON_BYTES, draws);
        Person { id: FIRST_ID + persons(number) - 1, name, email, credit_card, city, state, time, extra }
    }

    fn auction(&self, number: u64, time: i64, draws: &mut Draws) -> Auction<'_> {
        let (item, description) = (self.text(20, draws), self.text(100, draws));
        let initial_bid = draws.price();
        let reserve = initial_bid + draws.price();
        // So long that about as many are open at any time.
        let horizon = self.turn_ms(number.saturating_add(OPEN_AUCTIONS * ROUND / AUCTIONS_IN_ROUND)) - self.turn_ms(number);
        let lasts_ms = 1 + draws.below((horizon.unsigned_abs() * 2).max(1));
        let seller = if draws.is_hot(HOT_SELLER) { hot(persons(number)) } else { any_person(number, draws) };
        Auction {
            id: FIRST_ID + auctions(number) - 1,
            item,
            description,
            initial_bid,
            reserve,
            time,
            expires: time.saturating_add_unsigned(lasts_ms),
            seller: FIRST_ID + seller,
            category: FIRST_CATEGORY + draws.below(CATEGORIES),
            extra: self.extra(6 * 8 + item.len() + description.len(), AUCTION_BYTES, draws),
        }
    }

    fn bid(&self, number: u64, time: i64, draws: &mut Draws) -> Bid<'_> {
        let auction = if draws.is_hot(HOT_AUCTION) {
            hot(auctions(number))
        } else {
            let last = auctions(number) - 1;
            let first = last.saturating_sub(OPEN_AUCTIONS);
            first + draws.below(last - first + 1 + ID_LEAD)
        };
        // One beside the hot seller.
        let bidder = if draws.is_hot(HOT_BIDDER) { hot(persons(number)) + 1 } else { any_person(number, draws) };
        let (price, extra) = (draws.price(), self.extra(4 * 8, BID_BYTES, draws));
        Bid { auction: FIRST_ID + auction, bidder: FIRST_ID + bidder, price, time, extra }
    }

    /// Draws a text of up to `bytes_max` letters.
    fn text(&self, bytes_max: u64, draws: &mut Draws) -> &str {
        let bytes = TEXT_BYTES_MIN + draws.below(bytes_max - TEXT_BYTES_MIN);
        self.letters(usize::try_from(bytes).unwrap_or(0), draws)
    }

    /// Draws what makes an event of `bytes` as large as is wanted on average, give or take a fifth of it.
    fn extra(&self, bytes: usize, wanted: usize, draws: &mut Draws) -> &str {
        let missing = wanted.saturating_sub(bytes);
        let spread = (missing + 2) / 5;
        let more = draws.below(2 * spread as u64);
        self.letters(missing - spread + usize::try_from(more).unwrap_or(0), draws)
    }

    fn letters(&self, bytes: usize, draws: &mut Draws) -> &str {
        let bytes = bytes.min(FILLER_BYTES);
        let start = usize::try_from(draws.below((FILLER_BYTES - bytes + 1) as u64)).unwrap_or(0);
        &self.filler[start..start + bytes]
    }
}

/// Returns which of `count` is the hot one: the first of the last hundred, or of the part of it that there is.
fn hot(count: u64) -> u64 {
    (count - 1) / HOT_FOR * HOT_FOR
}

/// Draws one of the persons who registered last, or will next.
fn any_person(number: u64, draws: &mut Draws) -> u64 {
    let all = persons(number);
    let active = all.min(ACTIVE_PERSONS);
    all - active + draws.below(active + ID_LEAD)
}
