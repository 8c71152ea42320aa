//! Records on their way out, one buffer for each port.

use std::{fmt, io};

use crate::call::{Limits, Output};
use crate::column::{BytesColumn, TimeColumn, append};
use crate::error::{Error, Limit};

/// The output of the current call.
#[derive(Debug)]
pub(crate) struct Outputs {
    ports: Vec<Port>,
    limits: Limits,
    records: u32,
    bytes: usize,
}

#[derive(Debug, Default)]
struct Port {
    name: String,
    /// Whether the port's records have keys, once there has been one.
    keyed: Option<bool>,
    keys: BytesColumn,
    timestamps: TimeColumn,
    values: BytesColumn,
    /// What the last call needed: the best guess for the next.
    records_last: usize,
    key_bytes_last: usize,
    value_bytes_last: usize,
}

impl Outputs {
    pub(crate) fn new(names: Vec<String>, limits: Limits) -> Self {
        let ports = names.into_iter().map(|name| Port { name, ..Port::default() }).collect();
        Self { ports, limits, records: 0, bytes: 0 }
    }

    pub(crate) fn limits(&self) -> &Limits {
        &self.limits
    }

    /// Appends one record whose value `write` appends to the buffer. On an error, nothing is appended.
    #[inline]
    pub(crate) fn push(
        &mut self,
        port: u32,
        key: Option<&[u8]>,
        time: Option<i64>,
        write: impl FnOnce(&mut Vec<u8>) -> Result<(), Error>,
    ) -> Result<(), Error> {
        let Some(port) = self.ports.get_mut(port as usize) else {
            return Err(no_port(port, self.ports.len()));
        };
        let key_bytes = key.map_or(0, <[u8]>::len);
        if key_bytes > self.limits.key_bytes as usize {
            return Err(port.too_large("a key", key_bytes, self.limits.key_bytes));
        }
        if *port.keyed.get_or_insert(key.is_some()) != key.is_some() {
            return Err(Error::permanent(format!("output {:?} gets records with and without a key", port.name)));
        }
        if port.values.is_empty() {
            port.reserve();
        }
        let start = port.values.data.len();
        let written = write(&mut port.values.data);
        let value_bytes = port.values.data.len() - start;
        let bytes = self.bytes + key_bytes + value_bytes;
        let fits = value_bytes <= self.limits.record_bytes as usize
            && bytes <= self.limits.output_bytes as usize
            && self.records < self.limits.output_records;
        if written.is_err() || !fits {
            port.values.data.truncate(start);
            written?;
            return Err(port.over_limit(value_bytes, &self.limits, self.records));
        }
        self.bytes = bytes;
        self.records += 1;
        port.timestamps.push(port.values.len(), time);
        port.values.end_item();
        if let Some(key) = key {
            port.keys.push(key);
        }
        Ok(())
    }

    /// Forgets what a failed call left behind.
    pub(crate) fn begin(&mut self) {
        self.records = 0;
        self.bytes = 0;
        for port in &mut self.ports {
            port.keys = BytesColumn::default();
            port.timestamps = TimeColumn::default();
            port.values = BytesColumn::default();
        }
    }

    /// Hands out the records of all ports that have any.
    pub(crate) fn take(&mut self) -> Vec<Output> {
        self.records = 0;
        self.bytes = 0;
        let mut outputs = Vec::with_capacity(self.ports.len());
        for (index, port) in (0..).zip(&mut self.ports) {
            if !port.values.is_empty() {
                outputs.push(port.take(index));
            }
        }
        outputs
    }
}

impl Port {
    /// Makes room for as much as the last call had, so that a steady stream grows no buffer.
    fn reserve(&mut self) {
        self.values.data.reserve(self.value_bytes_last);
        self.values.ends.reserve(self.records_last);
        self.timestamps.times.reserve(self.records_last);
        if self.keyed == Some(true) {
            self.keys.data.reserve(self.key_bytes_last);
            self.keys.ends.reserve(self.records_last);
        }
    }

    fn take(&mut self, port: u32) -> Output {
        self.records_last = self.values.len();
        self.key_bytes_last = self.keys.data.len();
        self.value_bytes_last = self.values.data.len();
        Output {
            port,
            keys: std::mem::take(&mut self.keys),
            timestamps: std::mem::take(&mut self.timestamps),
            values: std::mem::take(&mut self.values),
        }
    }

    #[cold]
    fn too_large(&self, what: &str, bytes: usize, bytes_max: u32) -> Error {
        Error::over(Limit::Output, format!("{what} for output {:?} has {bytes} bytes, over {bytes_max}", self.name))
    }

    #[cold]
    fn over_limit(&self, value_bytes: usize, limits: &Limits, records: u32) -> Error {
        if value_bytes > limits.record_bytes as usize {
            return self.too_large("a record", value_bytes, limits.record_bytes);
        }
        let (what, max) = if records >= limits.output_records {
            ("records", limits.output_records)
        } else {
            ("bytes of keys and values", limits.output_bytes)
        };
        Error::over(Limit::Output, format!("one call emits over {max} {what}; a smaller `max_batch` may help"))
    }
}

#[cold]
fn no_port(port: u32, ports: usize) -> Error {
    Error::permanent(format!("the operator has {ports} outputs, so none with index {port}"))
}

/// Writes the value of one record: text through [`fmt::Write`], bytes through [`io::Write`]. It never fails by itself.
#[derive(Debug)]
pub struct RecordWriter<'a>(pub(crate) &'a mut Vec<u8>);

impl RecordWriter<'_> {
    /// Appends bytes.
    #[inline]
    pub fn push(&mut self, bytes: impl AsRef<[u8]>) {
        append(self.0, bytes.as_ref());
    }
}

impl fmt::Write for RecordWriter<'_> {
    #[inline]
    fn write_str(&mut self, text: &str) -> fmt::Result {
        append(self.0, text.as_bytes());
        Ok(())
    }
}

impl io::Write for RecordWriter<'_> {
    #[inline]
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        append(self.0, bytes);
        Ok(bytes.len())
    }

    #[inline]
    fn write_all(&mut self, bytes: &[u8]) -> io::Result<()> {
        append(self.0, bytes);
        Ok(())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
