//! The few with the highest scores.

use std::time::Duration;

use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::context::Context;
use crate::declare::Declare;
use crate::error::Error;
use crate::state::Value;

/// The most that can be kept.
const N_MAX: usize = 1000;

/// The `n` ids of the current key with the highest scores so far, highest first; of equal scores, the lower id first.
///
/// The score of an id is the highest that it was ever given. So only the `n` themselves are kept: for counts and sums that
/// grow, the latest is the highest. State stays until [`Self::clear`], or for a time to live.
///
/// ```
/// # use cofferdam_guest::prelude::*;
/// # use cofferdam_guest::testing::{Harness, record};
/// # use cofferdam_guest::patterns::TopN;
/// /// The two products that a customer buys most often.
/// struct Favourites { times: Map<String, u64>, top: TopN<String, u64> }
///
/// impl Operator for Favourites {
///     type Config = NoConfig;
///     fn declare(declare: &mut Declare) -> Self {
///         Favourites { times: declare.map("times"), top: declare.top_n("top") }
///     }
///     fn configure(&mut self, _: NoConfig, _: &InstanceInfo) -> Result<(), Error> {
///         self.top.keep(2)
///     }
///     fn process(&mut self, record: Record<'_>, cx: &mut Context<'_>) -> Result<(), Error> {
///         let product = record.text()?;
///         let times = self.times.update(cx, product, |times| { *times += 1; *times })?;
///         if self.top.offer(cx, product.to_owned(), times)? {
///             let top: Vec<_> = self.top.read(cx)?.into_iter().map(|(product, times)| format!("{product} {times}")).collect();
///             cx.emit_bytes(top.join(", "))?;
///         }
///         Ok(())
///     }
/// }
///
/// let mut favourites = Harness::<Favourites>::new();
/// let out = favourites.process(["tea", "jam", "milk", "milk"].map(|product| record(product).key("ada"))).unwrap();
/// assert_eq!(out.texts(), ["tea 1", "jam 1, tea 1", "jam 1, milk 1", "milk 2, jam 1"]);
/// ```
pub struct TopN<K, S> {
    name: String,
    top: Value<Vec<(S, K)>>,
    n: Option<usize>,
}

impl Declare {
    /// Declares such a list; [`TopN::keep`] says how long. Its state is in the slot `name`.
    pub fn top_n<K, S>(&mut self, name: &str) -> TopN<K, S>
    where
        K: Ord + Clone + Serialize + DeserializeOwned + 'static,
        S: Ord + Clone + Serialize + DeserializeOwned + 'static,
    {
        TopN { name: name.into(), top: self.value(name), n: None }
    }
}

impl<K, S> TopN<K, S> {
    /// Lets the list of a key expire once it has not changed for `ttl`, by the host's clock.
    ///
    /// # Panics
    /// If it is less than a millisecond.
    #[must_use = "it is returned for the handle's sake"]
    pub fn ttl(self, ttl: Duration) -> Self {
        Self { top: self.top.ttl(ttl), ..self }
    }

    /// Sets how many are kept. Belongs into `configure`.
    ///
    /// # Errors
    /// A permanent error if it is not 1 to 1000.
    pub fn keep(&mut self, n: usize) -> Result<(), Error> {
        if !(1..=N_MAX).contains(&n) {
            return Err(Error::permanent(format!("the top {n} of {:?}: 1 to {N_MAX} can be kept", self.name)));
        }
        self.n = Some(n);
        Ok(())
    }

    fn n(&self) -> Result<usize, Error> {
        self.n.ok_or_else(|| Error::permanent(format!("the top of {:?} has no length: set it in `configure`", self.name)))
    }
}

impl<K, S> TopN<K, S>
where
    K: Ord + Clone + Serialize + DeserializeOwned + 'static,
    S: Ord + Clone + Serialize + DeserializeOwned + 'static,
{
    /// Gives an id a score. Returns whether that has changed the list.
    ///
    /// # Errors
    /// A permanent error if no length is set, or if stored state does not decode.
    pub fn offer(&self, cx: &mut Context<'_>, id: K, score: S) -> Result<bool, Error> {
        let n = self.n()?;
        if !self.top.with(cx, |top| is_wanted(top.map_or(&[], Vec::as_slice), n, &id, &score))? {
            return Ok(false);
        }
        self.top.update(cx, |top| {
            top.retain(|(_, other)| *other != id);
            let at = top.partition_point(|(other, other_id)| (other, &id) > (&score, other_id));
            top.insert(at, (score, id));
            top.truncate(n);
        })?;
        Ok(true)
    }

    /// Returns the list, highest first.
    ///
    /// # Errors
    /// As [`Self::offer`].
    pub fn read(&self, cx: &Context<'_>) -> Result<Vec<(K, S)>, Error> {
        let (n, top) = (self.n()?, self.top.get_or_default(cx)?);
        // An older version may have kept more.
        Ok(top.into_iter().take(n).map(|(score, id)| (id, score)).collect())
    }

    /// Forgets the list.
    pub fn clear(&self, cx: &mut Context<'_>) {
        self.top.delete(cx);
    }
}

/// Whether a score changes the list.
fn is_wanted<K: Ord, S: Ord>(top: &[(S, K)], n: usize, id: &K, score: &S) -> bool {
    match top.iter().find(|(_, other)| other == id) {
        Some((before, _)) => score > before,
        // Higher score first, then lower id.
        None => top.len() < n || top.get(n - 1).is_some_and(|(last, last_id)| (score, last_id) > (last, id)),
    }
}
