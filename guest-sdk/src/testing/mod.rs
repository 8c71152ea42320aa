//! A test harness: drives an operator natively, as the host would drive the component.
//!
//! The harness keeps state, forms batches, applies effects only when a call succeeds, and can replace the instance at any
//! time. It needs no wasm toolchain. Misuse of the harness itself, such as a slot that does not exist, panics.
//!
//! ```
//! # use cofferdam_guest::prelude::*;
//! # struct Count { n: Value<u64> }
//! # impl Operator for Count {
//! #     type Config = NoConfig;
//! #     fn declare(d: &mut Declare) -> Self { Count { n: d.value("n") } }
//! #     fn process(&mut self, _: Record<'_>, cx: &mut Context<'_>) -> Result<(), Error> {
//! #         let n = self.n.update(cx, |n| { *n += 1; *n })?;
//! #         cx.emit(&n)
//! #     }
//! # }
//! use cofferdam_guest::testing::{Harness, record};
//!
//! let mut count = Harness::<Count>::new();
//! count.seed::<u64>("n", "a", &41);
//! let out = count.process([record("x").key("a").time_ms(7)]).unwrap();
//! assert_eq!(out[0].decode::<u64>(), 42);
//! assert_eq!(out[0].time_ms(), Some(7));
//!
//! count.restart(); // State stays, the instance does not.
//! assert_eq!(count.process([record("y").key("a")]).unwrap()[0].decode::<u64>(), 43);
//!
//! Harness::<Count>::new().assert_batch_independent(["a", "b", "a", "a"].map(|key| record("").key(key)));
//! ```

mod harness;
mod inspect;
mod outputs;
mod reads;
mod store;

pub use harness::Harness;
pub use outputs::{Emitted, Outputs};

/// A record on its way in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TestRecord {
    pub(crate) port: String,
    pub(crate) key: Option<Vec<u8>>,
    pub(crate) time: Option<i64>,
    pub(crate) value: Vec<u8>,
}

/// Returns a record with a value, and with neither key nor event time, for the operator's first input.
pub fn record(value: impl AsRef<[u8]>) -> TestRecord {
    TestRecord { port: String::new(), key: None, time: None, value: value.as_ref().to_vec() }
}

impl TestRecord {
    /// Gives the record a key.
    #[must_use]
    pub fn key(mut self, key: impl AsRef<[u8]>) -> Self {
        self.key = Some(key.as_ref().to_vec());
        self
    }

    /// Gives the record an event time in milliseconds since the Unix epoch.
    #[must_use]
    pub fn time_ms(mut self, time: i64) -> Self {
        self.time = Some(time);
        self
    }

    /// Sends the record to the input port of that name.
    #[must_use]
    pub fn port(mut self, name: &str) -> Self {
        self.port = name.into();
        self
    }
}
