//! One accumulator for each key that inputs go into and a result comes out of.

use std::time::Duration;

use super::value::Value;
use crate::codec::{Postcard, StateCodec};
use crate::context::Context;
use crate::error::Error;

/// How inputs become a result, by way of an accumulator: a mean, by way of sum and count.
pub trait Aggregate: 'static {
    /// What is added.
    type Input;
    /// What is stored.
    type Accumulator: Default + 'static;
    /// What comes out.
    type Output;

    /// Adds an input.
    fn add(accumulator: &mut Self::Accumulator, input: Self::Input);

    /// Returns the result so far.
    fn result(accumulator: &Self::Accumulator) -> Self::Output;

    /// Adds all that went into another accumulator, after what went into this one.
    fn merge(accumulator: &mut Self::Accumulator, other: Self::Accumulator);
}

/// What was added for a key, aggregated by `A`.
///
/// ```
/// # use cofferdam_guest::prelude::*;
/// # use cofferdam_guest::testing::{Harness, record};
/// struct Mean;
///
/// impl Aggregate for Mean {
///     type Input = u64;
///     type Accumulator = (u64, u64);
///     type Output = u64;
///     fn add(sum: &mut (u64, u64), input: u64) { sum.0 += input; sum.1 += 1; }
///     fn result(sum: &(u64, u64)) -> u64 { sum.0 / sum.1 }
///     fn merge(sum: &mut (u64, u64), other: (u64, u64)) { sum.0 += other.0; sum.1 += other.1; }
/// }
///
/// struct Stats { mean: Aggregating<Mean>, largest: Reducing<u64> }
///
/// impl Operator for Stats {
///     type Config = NoConfig;
///     fn declare(declare: &mut Declare) -> Self {
///         Stats { mean: declare.aggregating("mean"), largest: declare.reducing("largest", u64::max) }
///     }
///     fn process(&mut self, record: Record<'_>, cx: &mut Context<'_>) -> Result<(), Error> {
///         let amount = record.text()?.parse()?;
///         let (mean, largest) = (self.mean.add(cx, amount)?, self.largest.add(cx, amount)?);
///         cx.emit_text((mean, " ", largest))
///     }
/// }
///
/// let out = Harness::<Stats>::new().process(["4", "8", "6"].map(|n| record(n).key("k"))).unwrap();
/// assert_eq!(out.texts(), ["4 4", "6 8", "6 8"]);
/// ```
pub struct Aggregating<A: Aggregate, C = Postcard> {
    value: Value<A::Accumulator, C>,
}

impl<A: Aggregate, C> Aggregating<A, C> {
    pub(super) fn new(value: Value<A::Accumulator, C>) -> Self {
        Self { value }
    }

    /// As [`Value::ttl`].
    ///
    /// # Panics
    /// As [`Value::ttl`].
    #[must_use = "a slot is declared for the handle's sake"]
    pub fn ttl(self, ttl: Duration) -> Self {
        Self { value: self.value.ttl(ttl) }
    }

    /// As [`Value::ttl_renewed_by_reads`].
    #[must_use = "a slot is declared for the handle's sake"]
    pub fn ttl_renewed_by_reads(self) -> Self {
        Self { value: self.value.ttl_renewed_by_reads() }
    }
}

impl<A: Aggregate, C: StateCodec<A::Accumulator>> Aggregating<A, C> {
    /// Adds an input and returns the result so far.
    ///
    /// # Errors
    /// A permanent error that names the slot, if the stored bytes do not decode. So for all functions here.
    pub fn add(&self, cx: &mut Context<'_>, input: A::Input) -> Result<A::Output, Error> {
        self.value.update(cx, |accumulator| {
            A::add(accumulator, input);
            A::result(accumulator)
        })
    }

    /// Returns the result, or `None` if nothing was added.
    ///
    /// # Errors
    /// As [`Self::add`].
    pub fn result(&self, cx: &mut Context<'_>) -> Result<Option<A::Output>, Error> {
        self.value.with(cx, |accumulator| accumulator.map(A::result))
    }

    /// Adds all that went into another accumulator.
    ///
    /// # Errors
    /// As [`Self::add`].
    pub fn merge(&self, cx: &mut Context<'_>, other: A::Accumulator) -> Result<(), Error> {
        self.value.update(cx, |accumulator| A::merge(accumulator, other))
    }

    /// Takes the accumulator out, leaving nothing: to merge it elsewhere.
    ///
    /// # Errors
    /// As [`Self::add`].
    pub fn take(&self, cx: &mut Context<'_>) -> Result<Option<A::Accumulator>, Error> {
        self.value.modify(cx, Option::take)
    }

    /// Forgets what was added.
    pub fn clear(&self, cx: &mut Context<'_>) {
        self.value.delete(cx);
    }
}
