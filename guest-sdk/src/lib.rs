//! The SDK for cofferdam operators.
//!
//! An operator is a struct that handles one record at a time. What it must remember, it keeps in declared state; what it
//! has to say, it emits. The SDK turns that into a WebAssembly component that the host calls with whole batches.
//!
//! ```
//! use cofferdam_guest::prelude::*;
//!
//! struct Count {
//!     n: Value<u64>,
//! }
//!
//! impl Operator for Count {
//!     type Config = NoConfig;
//!
//!     fn declare(declare: &mut Declare) -> Self {
//!         Count { n: declare.value("n") }
//!     }
//!
//!     fn process(&mut self, _: Record<'_>, cx: &mut Context<'_>) -> Result<(), Error> {
//!         let n = self.n.update(cx, |n| { *n += 1; *n })?;
//!         cx.emit_text((cx.key(), "\t", n))
//!     }
//! }
//!
//! export!(Count);
//!
//! // A test, in an ordinary `cargo test`:
//! use cofferdam_guest::testing::{Harness, record};
//!
//! let mut count = Harness::<Count>::new();
//! let out = count.process([record("").key("a"), record("").key("b"), record("").key("a")]).unwrap();
//! assert_eq!(out.texts(), ["a\t1", "b\t1", "a\t2"]);
//! assert_eq!(count.state::<u64>("n", "a"), Some(2));
//! ```
//!
//! What an operator may rely on, and what it may not:
//! - a call's effects apply wholly or, after an error or a trap, not at all;
//! - where a batch ends is the host's choice: results must not depend on it ([`testing::Harness::assert_batch_independent`]);
//! - the instance may be replaced between two calls: fields of the struct are a cache, state is not;
//! - there is no clock but [`Context::processing_time_ms`], no randomness, no file and no network.

// The exported bindings name this crate by its full path, here as in an operator's crate.
extern crate self as cofferdam_guest;

pub mod call;
pub mod codec;
pub mod column;
mod context;
mod declare;
mod error;
mod host;
pub mod log;
pub mod metrics;
mod operator;
mod output;
pub mod patterns;
pub mod reads;
mod runner;
mod schema;
mod state;
#[cfg(not(target_arch = "wasm32"))]
pub mod testing;
mod text;
mod timer_tags;
mod timers;
#[cfg(target_arch = "wasm32")]
#[doc(hidden)]
pub mod wasm;
mod windows;

pub use context::{BroadcastContext, Broadcasting, Context, Emit, FinishContext, Finishing, HasRecord, Processing, Record};
pub use declare::{Declare, Descriptor, Input, InputPort, OutputPort, StateKind, StateSlot, TimeDomain};
pub use error::{Error, ErrorKind, Limit};
pub use operator::{NoConfig, Operator};
pub use output::RecordWriter;
pub use runner::Runner;
pub use schema::schema_of;
pub use state::{Aggregate, Aggregating, Broadcast, KeyBytes, List, Map, MapKey, OperatorList, Reducing, Value};
pub use text::Text;
pub use timers::{Timer, Timers};
pub use windows::{Added, Contents, Fired, FiredRecords, Firing, RecordWindows, Window, Windowing, Windows};

/// What most operators need: `use cofferdam_guest::prelude::*`.
pub mod prelude {
    pub use crate::call::InstanceInfo;
    pub use crate::codec::{Fixed, Json, Postcard, Raw};
    pub use crate::{
        Added, Aggregate, Aggregating, Broadcast, BroadcastContext, Context, Declare, Error, FinishContext, Fired, FiredRecords,
        Firing, InputPort, List, Map, NoConfig, Operator, OperatorList, OutputPort, Record, RecordWindows, Reducing, Timer,
        Timers, Value, Window, Windowing, Windows, debug, error, export, info, metrics, trace, warn,
    };
}

/// Makes an operator the one that this component exports. Once in a crate; natively it does nothing.
#[macro_export]
macro_rules! export {
    ($operator:ty) => {
        #[cfg(target_arch = "wasm32")]
        const _: () = {
            struct Component;
            ::std::thread_local! {
                static INSTANCE: $crate::wasm::Cell<$operator> = const { $crate::wasm::Cell::new(None) };
            }
            impl $crate::wasm::Instance for Component {
                type Operator = $operator;
                fn cell() -> &'static ::std::thread::LocalKey<$crate::wasm::Cell<$operator>> {
                    &INSTANCE
                }
            }
    $crate::wasm::bindings::export!(Component with_types_in $crate::wasm::bindings);
        };
    };
}
