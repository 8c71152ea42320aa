//! One value for each key that new ones are folded into.

use std::time::Duration;

use super::value::Value;
use crate::codec::{Postcard, StateCodec};
use crate::context::Context;
use crate::error::Error;

/// The fold of all values that were added for a key, such as the largest. The first one added is the fold of itself.
pub struct Reducing<T, C = Postcard> {
    value: Value<T, C>,
    fold: fn(T, T) -> T,
}

impl<T, C> Reducing<T, C> {
    pub(super) fn new(value: Value<T, C>, fold: fn(T, T) -> T) -> Self {
        Self { value, fold }
    }

    /// As [`Value::ttl`].
    ///
    /// # Panics
    /// As [`Value::ttl`].
    #[must_use = "a slot is declared for the handle's sake"]
    pub fn ttl(self, ttl: Duration) -> Self {
        Self { value: self.value.ttl(ttl), ..self }
    }

    /// As [`Value::ttl_renewed_by_reads`].
    #[must_use = "a slot is declared for the handle's sake"]
    pub fn ttl_renewed_by_reads(self) -> Self {
        Self { value: self.value.ttl_renewed_by_reads(), ..self }
    }
}

impl<T: 'static, C: StateCodec<T>> Reducing<T, C> {
    /// Folds a value in and returns a copy of the result.
    ///
    /// # Errors
    /// A permanent error that names the slot, if the stored bytes do not decode. So for all functions here.
    pub fn add(&self, cx: &mut Context<'_>, value: T) -> Result<T, Error>
    where
        T: Clone,
    {
        self.value.modify(cx, |stored| {
            let folded = match stored.take() {
                Some(before) => (self.fold)(before, value),
                None => value,
            };
            stored.insert(folded).clone()
        })
    }

    /// Returns a copy of the fold, or `None` if nothing was added.
    ///
    /// # Errors
    /// As [`Self::add`].
    pub fn get(&self, cx: &Context<'_>) -> Result<Option<T>, Error>
    where
        T: Clone,
    {
        self.value.get(cx)
    }

    /// Forgets what was added.
    pub fn clear(&self, cx: &mut Context<'_>) {
        self.value.delete(cx);
    }
}
