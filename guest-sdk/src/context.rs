//! What an operator sees beside the record, and how it emits.

use std::fmt::{self, Write as _};
use std::marker::PhantomData;

use serde::Deserialize;

use crate::call::{FrameView, Limits};
use crate::codec::{Decode, Encode, Json, Postcard};
use crate::column::append;
use crate::declare::{InputPort, OutputPort};
use crate::error::Error;
use crate::output::{Outputs, RecordWriter};
use crate::reads::Reads;
use crate::text::Text;

/// The value of one input record. Its key and event time are in the [`Context`].
#[derive(Clone, Copy, Debug)]
pub struct Record<'a> {
    pub(crate) value: &'a [u8],
}

impl<'a> Record<'a> {
    /// Returns the value.
    pub fn bytes(&self) -> &'a [u8] {
        self.value
    }

    /// Returns the value as text.
    ///
    /// # Errors
    /// A permanent error if it is not UTF-8.
    pub fn text(&self) -> Result<&'a str, Error> {
        utf8(self.value, "the record")
    }

    /// Decodes the value, which another operator emitted with [`Context::emit`]. What it returns may borrow from it.
    ///
    /// # Errors
    /// A permanent error if it is not valid [`Postcard`].
    pub fn decode<T: Deserialize<'a>>(&self) -> Result<T, Error> {
        self.decode_as::<Postcard, T>()
    }

    /// Decodes the value as JSON. What it returns may borrow from it.
    ///
    /// # Errors
    /// A permanent error if it is not valid [`Json`].
    pub fn json<T: Deserialize<'a>>(&self) -> Result<T, Error> {
        self.decode_as::<Json, T>()
    }

    /// Decodes the value with a codec of choice: `record.decode_as::<Fixed, u64>()`.
    ///
    /// # Errors
    /// A permanent error if it is not valid.
    #[inline]
    pub fn decode_as<C: Decode<'a, T>, T>(&self) -> Result<T, Error> {
        C::decode(self.value).map_err(|error| Error::from(error).context("the record"))
    }
}

/// Marks the context of a record, in which there is a key and state.
#[derive(Clone, Copy, Debug)]
pub enum Processing {}

/// Marks the context of a record of a broadcast input, in which there is no key: the one place to write
/// [`crate::Broadcast`] state.
#[derive(Clone, Copy, Debug)]
pub enum Broadcasting {}

/// Marks the context of [`crate::Operator::finish`], in which there is neither record nor key, and no state can be read.
#[derive(Clone, Copy, Debug)]
pub enum Finishing {}

/// The context of [`crate::Operator::process_broadcast`].
pub type BroadcastContext<'a> = Context<'a, Broadcasting>;

/// The context of [`crate::Operator::finish`].
pub type FinishContext<'a> = Context<'a, Finishing>;

/// A context with a record, in which state that does not belong to keys can be read. Implemented for [`Processing`] and
/// [`Broadcasting`]; nothing else can be.
pub trait HasRecord: sealed::Sealed {}

impl HasRecord for Processing {}
impl HasRecord for Broadcasting {}

mod sealed {
    pub trait Sealed {}
    impl Sealed for super::Processing {}
    impl Sealed for super::Broadcasting {}
}

/// Where a record stands, and the way out for new records.
///
/// An emitted record has the event time of the record being processed, and **no key** unless one is given: only
/// `cx.out().key(..)` or `cx.out().keep_key()` give it one. All records of one port have a key, or none has.
pub struct Context<'a, P = Processing> {
    frame: FrameView<'a>,
    /// `None` where nothing can be read.
    reads: Option<&'a Reads<'a>>,
    at: At<'a>,
    clock: Clock,
    outputs: &'a mut Outputs,
    phase: PhantomData<P>,
}

/// The record being processed.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct At<'a> {
    pub(crate) port: u32,
    /// The frame row, 0 for an operator without keys.
    pub(crate) row: usize,
    /// `None` for an operator without keys.
    pub(crate) key: Option<&'a [u8]>,
    pub(crate) time: Option<i64>,
}

/// The two clocks of a call.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Clock {
    pub(crate) watermark: Option<i64>,
    pub(crate) processing_time: i64,
}

impl<'a, P> Context<'a, P> {
    pub(crate) fn new(frame: FrameView<'a>, reads: Option<&'a Reads<'a>>, clock: Clock, outputs: &'a mut Outputs) -> Self {
        Self { frame, reads, at: At::default(), clock, outputs, phase: PhantomData }
    }

    /// What one call may write and emit.
    pub(crate) fn limits(&self) -> &Limits {
        self.outputs.limits()
    }

    /// Returns the watermark in milliseconds: no record at or before it is expected any more. `None` before the first.
    pub fn watermark_ms(&self) -> Option<i64> {
        self.clock.watermark
    }

    /// Returns the host's clock in milliseconds since the Unix epoch, constant within a call. A replay sees another.
    pub fn processing_time_ms(&self) -> i64 {
        self.clock.processing_time
    }

    /// Emits a value on the first output port, encoded as [`Postcard`].
    ///
    /// # Errors
    /// A permanent error if the value has no encoding or a limit is exceeded; the record is then not emitted.
    /// So for all ways to emit.
    #[inline]
    pub fn emit<T>(&mut self, value: &T) -> Result<(), Error>
    where
        T: ?Sized,
        Postcard: Encode<T>,
    {
        self.out().send(value)
    }

    /// Emits bytes or text on the first output port, as they are.
    ///
    /// # Errors
    /// As [`Self::emit`].
    #[inline]
    pub fn emit_bytes(&mut self, bytes: impl AsRef<[u8]>) -> Result<(), Error> {
        self.out().send_bytes(bytes)
    }

    /// Emits text put together from pieces on the first output port: `cx.emit_text((cx.key(), "\t", n))`.
    ///
    /// # Errors
    /// As [`Self::emit`].
    #[inline]
    pub fn emit_text(&mut self, text: impl Text) -> Result<(), Error> {
        self.out().send_text(text)
    }

    /// Emits formatted text on the first output port: `cx.emit_fmt(format_args!("{word}\t{n}"))`, without an allocation.
    ///
    /// # Errors
    /// As [`Self::emit`].
    #[inline]
    pub fn emit_fmt(&mut self, text: fmt::Arguments<'_>) -> Result<(), Error> {
        self.out().send_fmt(text)
    }

    /// Begins a record for the first output port.
    #[inline]
    pub fn out(&mut self) -> Emit<'_> {
        self.out_to(OutputPort(0))
    }

    /// Begins a record for an output port.
    #[inline]
    pub fn out_to(&mut self, port: OutputPort) -> Emit<'_> {
        Emit { current_key: self.at.key, time: self.at.time, key: None, port: port.0, outputs: self.outputs }
    }
}

impl<'a, P: HasRecord> Context<'a, P> {
    #[inline]
    pub(crate) fn move_to(&mut self, at: At<'a>) {
        self.at = at;
    }

    /// What answers reads of state.
    pub(crate) fn reads(&self) -> &'a Reads<'a> {
        self.reads.expect("a call with records is given what answers reads")
    }

    /// Runs `act` with another event time for what is emitted.
    pub(crate) fn at_time<R>(&mut self, time: Option<i64>, act: impl FnOnce(&mut Self) -> R) -> R {
        let before = std::mem::replace(&mut self.at.time, time);
        let result = act(self);
        self.at.time = before;
        result
    }

    /// Returns the record's event time in milliseconds since the Unix epoch, if it has one.
    pub fn event_time_ms(&self) -> Option<i64> {
        self.at.time
    }

    /// Returns the input port that the record came from.
    pub fn port(&self) -> InputPort {
        InputPort(self.at.port)
    }
}

impl<'a> Context<'a> {
    #[inline]
    pub(crate) fn row(&self) -> usize {
        self.at.row
    }

    /// The row as the interface numbers it.
    #[inline]
    pub(crate) fn row_number(&self) -> u32 {
        u32::try_from(self.at.row).expect("rows are numbered in 32 bits")
    }

    /// The bytes that were handed in for the current row, in a column of the frame.
    #[inline]
    pub(crate) fn stored(&self, column: usize) -> Option<&'a [u8]> {
        self.frame.states[column].get(self.at.row)
    }

    /// How many rows the frame has.
    pub(crate) fn rows(&self) -> usize {
        self.frame.keys.len()
    }

    /// Returns the record's key. Empty for an operator that is not keyed; one that is gets no record without a key.
    #[inline]
    pub fn key(&self) -> &'a [u8] {
        self.at.key.unwrap_or_default()
    }

    /// Returns the record's key as text.
    ///
    /// # Errors
    /// A permanent error if it is not UTF-8.
    #[inline]
    pub fn key_text(&self) -> Result<&'a str, Error> {
        utf8(self.key(), "the key")
    }
}

fn utf8<'a>(bytes: &'a [u8], what: &str) -> Result<&'a str, Error> {
    std::str::from_utf8(bytes).map_err(|error| Error::from(error).context(what))
}

/// A record that is about to be emitted.
#[derive(Debug)]
#[must_use = "nothing is emitted until one of the `send` functions is called"]
pub struct Emit<'c> {
    outputs: &'c mut Outputs,
    port: u32,
    current_key: Option<&'c [u8]>,
    key: Option<&'c [u8]>,
    time: Option<i64>,
}

impl<'c> Emit<'c> {
    /// Gives the record a key. The empty key is a key, too.
    #[inline]
    pub fn key<K: AsRef<[u8]> + ?Sized>(mut self, key: &'c K) -> Self {
        self.key = Some(key.as_ref());
        self
    }

    /// Gives the record the key of the record being processed; none, if the operator is not keyed.
    #[inline]
    pub fn keep_key(mut self) -> Self {
        self.key = self.current_key;
        self
    }

    /// Gives the record an event time in milliseconds since the Unix epoch, instead of that of the record being processed.
    #[inline]
    pub fn time_ms(mut self, time: i64) -> Self {
        self.time = Some(time);
        self
    }

    /// Gives the record no event time.
    pub fn untimed(mut self) -> Self {
        self.time = None;
        self
    }

    /// Emits a value, encoded as [`Postcard`].
    ///
    /// # Errors
    /// As [`Context::emit`].
    #[inline]
    pub fn send<T>(self, value: &T) -> Result<(), Error>
    where
        T: ?Sized,
        Postcard: Encode<T>,
    {
        self.send_as::<Postcard, T>(value)
    }

    /// Emits a value as JSON text.
    ///
    /// # Errors
    /// As [`Context::emit`].
    #[inline]
    pub fn send_json<T>(self, value: &T) -> Result<(), Error>
    where
        T: ?Sized,
        Json: Encode<T>,
    {
        self.send_as::<Json, T>(value)
    }

    /// Emits a value with a codec of choice: `cx.out().send_as::<Fixed, _>(&7u64)`.
    ///
    /// # Errors
    /// As [`Context::emit`].
    #[inline]
    pub fn send_as<C: Encode<T>, T: ?Sized>(self, value: &T) -> Result<(), Error> {
        self.outputs.push(self.port, self.key, self.time, |out| Ok(C::encode(value, out)?))
    }

    /// Emits bytes or text as they are.
    ///
    /// # Errors
    /// As [`Context::emit`].
    #[inline]
    pub fn send_bytes(self, bytes: impl AsRef<[u8]>) -> Result<(), Error> {
        let bytes = bytes.as_ref();
        self.outputs.push(self.port, self.key, self.time, |out| {
            append(out, bytes);
            Ok(())
        })
    }

    /// Emits text put together from pieces: `send_text((word, "\t", n))`.
    ///
    /// # Errors
    /// As [`Context::emit`].
    #[inline]
    pub fn send_text(self, text: impl Text) -> Result<(), Error> {
        self.outputs.push(self.port, self.key, self.time, |out| {
            text.write_to(&mut RecordWriter(out));
            Ok(())
        })
    }

    /// Emits formatted text without an allocation: `send_fmt(format_args!("{word}\t{n}"))`.
    ///
    /// # Errors
    /// As [`Context::emit`].
    #[inline]
    pub fn send_fmt(self, text: fmt::Arguments<'_>) -> Result<(), Error> {
        self.send_with(|out| out.write_fmt(text))
    }

    /// Emits what `write` writes.
    ///
    /// # Errors
    /// As [`Context::emit`], or the error of `write`.
    #[inline]
    pub fn send_with<E: Into<Error>>(self, write: impl FnOnce(&mut RecordWriter<'_>) -> Result<(), E>) -> Result<(), Error> {
        self.outputs.push(self.port, self.key, self.time, |out| write(&mut RecordWriter(out)).map_err(Into::into))
    }
}
