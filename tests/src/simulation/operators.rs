//! Operators of the simulated jobs.

use cofferdam_guest::prelude::{Context, Declare, Error, InstanceInfo, Json, NoConfig, Operator, Record, Value};

/// Adds the numbers of both of its inputs and emits the sum so far of the record's key.
pub struct Merge {
    total: Value<u64>,
}

impl Operator for Merge {
    type Config = NoConfig;

    fn declare(declare: &mut Declare) -> Self {
        declare.input("a");
        declare.input("b");
        Self { total: declare.value("total") }
    }

    fn process(&mut self, record: Record<'_>, cx: &mut Context<'_>) -> Result<(), Error> {
        let number: u64 = record.text()?.parse().map_err(|_| Error::permanent("not a number"))?;
        let total = self.total.update(cx, |total| {
            *total += number;
            *total
        })?;
        cx.out().keep_key().send_text(format!("{total}").as_str())
    }
}

/// Counts the records of each key up to three, forgets the key, and begins anew; emits the key, a tab and the count.
pub struct Cycle {
    n: Value<u64>,
}

impl Operator for Cycle {
    type Config = NoConfig;

    fn declare(declare: &mut Declare) -> Self {
        Self { n: declare.value("n") }
    }

    fn process(&mut self, _: Record<'_>, cx: &mut Context<'_>) -> Result<(), Error> {
        let n = self.n.get_or_default(cx)? + 1;
        if n == 3 {
            self.n.delete(cx);
        } else {
            self.n.set(cx, n);
        }
        let row = format!("{}\t{n}", cx.key_text()?);
        cx.out().keep_key().send_text(row.as_str())
    }
}

/// Counts the records of each key and emits, under the key, the key followed by the count.
pub struct Tally {
    n: Value<u64>,
}

impl Operator for Tally {
    type Config = NoConfig;

    fn declare(declare: &mut Declare) -> Self {
        Self { n: declare.value("n") }
    }

    fn process(&mut self, _: Record<'_>, cx: &mut Context<'_>) -> Result<(), Error> {
        let n = self.n.update(cx, |n| {
            *n += 1;
            *n
        })?;
        let row = format!("{}{n}", cx.key_text()?);
        cx.out().keep_key().send_text(row.as_str())
    }
}

/// Keeps the number that a record brings, and forgets the key at a record without content. Emits nothing.
pub struct Store {
    n: Value<u64>,
}

impl Operator for Store {
    type Config = NoConfig;

    fn declare(declare: &mut Declare) -> Self {
        Self { n: declare.value("n") }
    }

    fn process(&mut self, record: Record<'_>, cx: &mut Context<'_>) -> Result<(), Error> {
        match record.text()? {
            "" => self.n.delete(cx),
            number => self.n.set(cx, number.parse().map_err(|_| Error::permanent("not a number"))?),
        }
        Ok(())
    }
}

/// Counts as `Count` does, but keeps its counts in another encoding.
pub struct CountAsJson {
    n: Value<u64, Json>,
}

impl Operator for CountAsJson {
    type Config = NoConfig;

    fn declare(declare: &mut Declare) -> Self {
        Self { n: declare.value("n") }
    }

    fn process(&mut self, _: Record<'_>, cx: &mut Context<'_>) -> Result<(), Error> {
        let n = self.n.update(cx, |n| {
            *n += 1;
            *n
        })?;
        cx.emit_text((cx.key(), "\t", n))
    }
}

/// What a [`Step`] makes of a value. Values begin with a character that is their key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// Adds a character.
    Tag,
    /// Puts the last character first, which changes the key.
    Rotate,
    /// Drops the value, or not, depending on it.
    Odd,
    /// Makes two of it.
    Twice,
}

impl Change {
    /// All there are.
    pub const ALL: [Self; 4] = [Self::Tag, Self::Rotate, Self::Odd, Self::Twice];

    /// Returns what becomes of a value.
    pub fn apply(self, value: &str) -> Vec<String> {
        match self {
            Self::Tag => vec![format!("{value}t")],
            Self::Rotate => match value.char_indices().last() {
                Some((at, last)) => vec![format!("{last}{}", &value[..at])],
                None => vec![],
            },
            Self::Odd => {
                let odd = value.bytes().fold(0_u8, u8::wrapping_add) % 2 == 1;
                odd.then(|| value.to_owned()).into_iter().collect()
            }
            Self::Twice => vec![format!("{value}1"), format!("{value}2")],
        }
    }
}

/// Changes values; has no state and takes records as they come.
pub struct Step {
    change: Change,
}

impl Operator for Step {
    /// The index of the change.
    type Config = usize;

    fn declare(_: &mut Declare) -> Self {
        Self { change: Change::Tag }
    }

    fn configure(&mut self, config: usize, _: &InstanceInfo) -> Result<(), Error> {
        self.change = *Change::ALL.get(config).ok_or_else(|| Error::permanent("no such change"))?;
        Ok(())
    }

    fn process(&mut self, record: Record<'_>, cx: &mut Context<'_>) -> Result<(), Error> {
        for value in self.change.apply(record.text()?) {
            cx.out().key(key_of(&value)).send_text(value.as_str())?;
        }
        Ok(())
    }
}

/// Returns the key that a value begins with.
pub fn key_of(value: &str) -> &str {
    value.chars().next().map_or("", |first| &value[..first.len_utf8()])
}
