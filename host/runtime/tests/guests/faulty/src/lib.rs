//! Passes records on, until one has the value that its configuration names: then it breaks in the way that is asked for.

use std::hint::black_box;

use cofferdam_guest::prelude::*;

/// When to break, and how.
#[derive(serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Options {
    at: String,
    how: How,
}

#[derive(Clone, Copy, Default, serde::Deserialize)]
#[serde(rename_all = "kebab-case")]
enum How {
    /// A panic, which traps.
    #[default]
    Panic,
    /// A loop that never ends.
    Loop,
    /// An error that a replay may cure, each time again.
    Transient,
    /// An error that a replay cannot cure.
    Permanent,
    /// More memory than there is.
    Memory,
    /// A record that is too large.
    LargeRecord,
    /// A key that is too large.
    LargeKey,
    /// Too many records.
    ManyRecords,
    /// A recursion that never ends.
    Recursion,
}

/// The operator.
#[derive(Default)]
pub struct Faulty {
    at: String,
    how: How,
}

impl Operator for Faulty {
    type Config = Options;

    fn declare(_: &mut Declare) -> Self {
        Faulty::default()
    }

    fn configure(&mut self, config: Options, _: &InstanceInfo) -> Result<(), Error> {
        self.at = config.at;
        self.how = config.how;
        Ok(())
    }

    fn process(&mut self, record: Record<'_>, cx: &mut Context<'_>) -> Result<(), Error> {
        if record.bytes() == self.at.as_bytes() {
            break_down(self.how, cx)?;
        }
        cx.out().send_bytes(record.bytes())
    }
}

export!(Faulty);

fn break_down(how: How, cx: &mut Context<'_>) -> Result<(), Error> {
    match how {
        How::Panic => the_function_that_panics(),
        How::Loop => loop {
            black_box(());
        },
        How::Transient => Err(Error::transient("not today")),
        How::Permanent => Err(Error::permanent("not ever")),
        How::Memory => {
            let mut kept = Vec::new();
            loop {
                kept.push(black_box(vec![1_u8; 1 << 20]));
            }
        }
        How::LargeRecord => cx.out().send_bytes(&[b'x'; 64 << 10]),
        How::LargeKey => cx.out().key(&[b'k'; 8 << 10]).send_bytes(b""),
        How::ManyRecords => (0..2000).try_for_each(|_| cx.out().send_bytes(b"again")),
        How::Recursion => cx.out().send_bytes(deeper(black_box(1)).to_string().as_bytes()),
    }
}

#[inline(never)]
fn the_function_that_panics() -> Result<(), Error> {
    panic!("the record is poison")
}

#[inline(never)]
fn deeper(depth: u64) -> u64 {
    let here = black_box([depth; 16]);
    1 + deeper(here[3] + 1) + here[5]
}
