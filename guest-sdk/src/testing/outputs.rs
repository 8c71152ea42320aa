//! What an operator emitted.

use std::ops::Deref;

use serde::Deserialize;

use crate::codec::{Decode, Postcard};

/// One emitted record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Emitted {
    pub(crate) port: String,
    pub(crate) key: Option<Vec<u8>>,
    pub(crate) time: Option<i64>,
    pub(crate) value: Vec<u8>,
}

impl Emitted {
    /// Returns the name of the output port.
    pub fn port(&self) -> &str {
        &self.port
    }

    /// Returns the key, if the record has one.
    pub fn key(&self) -> Option<&[u8]> {
        self.key.as_deref()
    }

    /// Returns the event time in milliseconds, if the record has one.
    pub fn time_ms(&self) -> Option<i64> {
        self.time
    }

    /// Returns the value.
    pub fn bytes(&self) -> &[u8] {
        &self.value
    }

    /// Returns the value as text.
    ///
    /// # Panics
    /// If it is not UTF-8.
    #[track_caller]
    pub fn text(&self) -> &str {
        std::str::from_utf8(&self.value).unwrap_or_else(|error| panic!("an emitted record is not text: {error}"))
    }

    /// Decodes the value as [`Postcard`], the form that `emit` writes.
    ///
    /// # Panics
    /// If it does not decode.
    #[track_caller]
    pub fn decode<'a, T: Deserialize<'a>>(&'a self) -> T {
        self.decode_as::<Postcard, T>()
    }

    /// Decodes the value with a codec of choice.
    ///
    /// # Panics
    /// If it does not decode.
    #[track_caller]
    pub fn decode_as<'a, C: Decode<'a, T>, T>(&'a self) -> T {
        C::decode(&self.value).unwrap_or_else(|error| panic!("an emitted record does not decode as {}: {error}", C::NAME))
    }
}

/// Emitted records, in order within each port.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Outputs(pub(crate) Vec<Emitted>);

impl Outputs {
    /// Returns the values as text.
    ///
    /// # Panics
    /// If one is not UTF-8.
    #[track_caller]
    pub fn texts(&self) -> Vec<&str> {
        self.0.iter().map(Emitted::text).collect()
    }

    /// Decodes the values as [`Postcard`].
    ///
    /// # Panics
    /// If one does not decode.
    #[track_caller]
    pub fn decode<'a, T: Deserialize<'a>>(&'a self) -> Vec<T> {
        self.0.iter().map(Emitted::decode).collect()
    }

    /// Returns the records of one port.
    #[must_use]
    pub fn of_port(&self, name: &str) -> Self {
        Self(self.0.iter().filter(|record| record.port == name).cloned().collect())
    }
}

impl Deref for Outputs {
    type Target = [Emitted];

    fn deref(&self) -> &[Emitted] {
        &self.0
    }
}
