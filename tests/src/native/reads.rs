//! Reads of a natively linked operator, answered by the engine.

use cofferdam_dataflow::column::BytesColumn;
use cofferdam_dataflow::guest::{self, ReadLimit};
use cofferdam_guest::Error;
use cofferdam_guest::column::BytesColumn as SdkColumn;
use cofferdam_guest::reads::{PAGE_BYTES, ReadColumn, ReadEntries, StateReads};

use super::column;

/// The engine's reads in the SDK's words.
pub(super) struct Bridge<'a>(pub(super) &'a dyn guest::StateReads);

impl Bridge<'_> {
    fn most(items: u32) -> ReadLimit {
        ReadLimit { items, bytes: PAGE_BYTES }
    }
}

impl StateReads for Bridge<'_> {
    fn get_many(&self, slot: u32, rows: &[u32]) -> Result<ReadColumn, Error> {
        Ok(read_column(self.0.get_many(slot, rows)?))
    }

    fn get_entries(&self, slot: u32, rows: &[u32], entry_keys: SdkColumn) -> Result<ReadColumn, Error> {
        Ok(read_column(self.0.get_entries(slot, rows, column(entry_keys).as_slice())?))
    }

    fn scan(&self, slot: u32, row: u32, start_after: Option<&[u8]>, limit: u32) -> Result<ReadEntries, Error> {
        Ok(read_entries(&self.0.scan(slot, row, start_after, Self::most(limit))?))
    }

    fn get_list(&self, slot: u32, row: u32, start: u32, limit: u32) -> Result<SdkColumn, Error> {
        Ok(sdk_column(&self.0.get_list(slot, row, start, Self::most(limit))?))
    }

    fn get_operator_list(&self, slot: u32, start: u32, limit: u32) -> Result<SdkColumn, Error> {
        Ok(sdk_column(&self.0.get_operator_list(slot, start, Self::most(limit))?))
    }

    fn get_broadcast(&self, slot: u32, entry_keys: SdkColumn) -> Result<ReadColumn, Error> {
        Ok(read_column(self.0.get_broadcast(slot, column(entry_keys).as_slice())?))
    }

    fn scan_broadcast(&self, slot: u32, start_after: Option<&[u8]>, limit: u32) -> Result<ReadEntries, Error> {
        Ok(read_entries(&self.0.scan_broadcast(slot, start_after, Self::most(limit))?))
    }
}

fn read_column(read: guest::ReadColumn) -> ReadColumn {
    ReadColumn { values: sdk_column(&read.values), present: read.present }
}

fn read_entries(read: &guest::ReadEntries) -> ReadEntries {
    ReadEntries { keys: sdk_column(&read.keys), values: sdk_column(&read.values) }
}

fn sdk_column(column: &BytesColumn) -> SdkColumn {
    let (data, ends) = column.parts();
    SdkColumn { data: data.to_vec(), ends: ends.to_vec() }
}
