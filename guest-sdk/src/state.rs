//! Typed handles to state, and what the runner does with the slots behind them.
//!
//! A handle shares its slot's cells with the runner. Within a call, cells hold what was read and what was written, so that
//! reads see the call's own writes; at its end, what was written is encoded. Cells live as long as the call: the next
//! call's state comes from the host again.

mod aggregating;
mod broadcast;
mod declare;
mod elements;
mod entries;
mod list;
mod map;
mod map_key;
mod operator_list;
mod reducing;
mod scan;
mod value;

use std::cell::Cell;
use std::time::Duration;

pub use self::aggregating::{Aggregate, Aggregating};
pub use self::broadcast::Broadcast;
pub use self::list::List;
pub use self::map::Map;
pub use self::map_key::{KeyBytes, MapKey};
pub use self::operator_list::OperatorList;
pub use self::reducing::Reducing;
pub(crate) use self::value::Cells;
pub use self::value::Value;
use crate::call::{Effects, Limits};
use crate::column::BytesColumn;
use crate::error::{Error, Limit};

/// No index: the end of a chain, or the row of what was dropped.
const NONE: u32 = u32::MAX;

/// What the runner does with a slot, whatever its kind and type.
pub(crate) trait SlotCells {
    /// What was asked for beside the type.
    fn options(&self) -> Options;

    /// Learns which column of the frame has the slot's values; `None` if it has none.
    fn open(&self, column: Option<usize>) {
        let _ = column;
    }

    /// Forgets the last call and makes room for `rows` rows.
    fn begin(&self, rows: usize);

    /// Encodes what was written.
    ///
    /// # Errors
    /// A permanent error that names the slot, if a value has no encoding or exceeds a limit.
    fn flush(&self, slot: u32, limits: &Limits, effects: &mut Effects) -> Result<(), Error>;
}

/// What a declaration asks for beside kind and type.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Options {
    /// 0 is for ever.
    pub(crate) ttl_ms: u64,
    pub(crate) ttl_on_read: bool,
    pub(crate) on_demand: bool,
}

impl Options {
    fn set_ttl(cell: &Cell<Self>, ttl: Duration) {
        let ttl_ms = u64::try_from(ttl.as_millis()).unwrap_or(u64::MAX);
        assert!(ttl_ms > 0, "a time to live has at least one millisecond");
        cell.set(Self { ttl_ms, ..cell.get() });
    }

    fn renew_by_reads(cell: &Cell<Self>) {
        cell.set(Self { ttl_on_read: true, ..cell.get() });
    }
}

/// Ends the item of a column whose bytes, from `start` on, were just appended.
#[inline]
fn end_value(column: &mut BytesColumn, start: usize, name: &str, bytes_max: u32) -> Result<(), Error> {
    let bytes = column.data.len() - start;
    if bytes > bytes_max as usize {
        return Err(Error::over(Limit::Write, format!("a value of slot {name:?} has {bytes} bytes, over {bytes_max}")));
    }
    if u32::try_from(column.data.len()).is_err() {
        return Err(over_4_gib(name));
    }
    column.end_item();
    Ok(())
}

#[cold]
fn over_4_gib(name: &str) -> Error {
    Error::over(Limit::Write, format!("one call writes over 4 GiB to slot {name:?}"))
}

#[cold]
fn undecodable(name: &str, codec: &str, error: Error) -> Error {
    error.context(format_args!("the stored value of slot {name:?} does not decode as {codec}"))
}

#[cold]
fn no_encoding(name: &str, error: Error) -> Error {
    error.context(format_args!("a value of slot {name:?}"))
}

#[cfg(test)]
mod tests;
