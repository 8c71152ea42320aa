//! Brings values from one schema to another.

use super::number::Number;
use super::wire::{Codec, Reader, ValueError, put_number, put_varint};

/// Bytes that a value may grow to.
const VALUE_BYTES_MAX: usize = 64 << 20;

/// An index into a plan's steps.
pub(super) type StepId = usize;

/// How to bring values from one schema to another that is compatible with it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan {
    pub(super) steps: Vec<Step>,
    pub(super) root: StepId,
    pub(super) codec: Codec,
    pub(super) changes: Vec<String>,
    pub(super) keeps_bytes: bool,
}

/// How to read one type of the old schema and write its successor.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Step {
    Number {
        from: Number,
        to: Number,
    },
    Bool,
    Char,
    Str,
    Bytes,
    Option(StepId),
    /// What was there always has become optional.
    Some(StepId),
    Seq(StepId),
    Map(StepId, StepId),
    Parts(Parts),
    /// By the old index: the new one and the content.
    Enum(Vec<(u32, Parts)>),
    /// Stands where a step is being made.
    Pending,
}

/// What a struct, a tuple or a variant becomes.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub(super) struct Parts {
    pub(super) parts: Vec<Part>,
    /// The written parts in their new order, unless it is the order of `parts`.
    pub(super) order: Option<Vec<usize>>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Part {
    /// So many items are read and written.
    Keep(u32, StepId),
    /// One is read and not written.
    Drop(StepId),
    /// These bytes are written.
    Add(Vec<u8>),
}

impl Plan {
    /// Returns what differs, for people; one entry a change.
    pub fn changes(&self) -> &[String] {
        &self.changes
    }

    /// Whether every value's bytes stay as they are, though what they may say has changed.
    pub fn keeps_bytes(&self) -> bool {
        self.keeps_bytes
    }

    /// Appends the new form of a value to `out`. After an error, `out` may have a part of it.
    ///
    /// # Errors
    /// [`ValueError`] if `bytes` is no value of the old schema, or its new form exceeds 64 MiB.
    pub fn transcode(&self, bytes: &[u8], out: &mut Vec<u8>) -> Result<(), ValueError> {
        let end = out.len() + VALUE_BYTES_MAX;
        let mut transcoder = Transcoder { plan: self, reader: Reader::new(bytes, self.codec), out, end };
        transcoder.step(self.root)?;
        transcoder.reader.end()
    }
}

struct Transcoder<'a> {
    plan: &'a Plan,
    reader: Reader<'a>,
    out: &'a mut Vec<u8>,
    /// The length that `out` may reach.
    end: usize,
}

impl Transcoder<'_> {
    fn step(&mut self, id: StepId) -> Result<(), ValueError> {
        self.reader.enter()?;
        let plan = self.plan;
        match &plan.steps[id] {
            Step::Number { from, to } => {
                let value = self.reader.number(*from)?;
                put_number(self.out, plan.codec, value, *to)?;
            }
            Step::Bool => {
                let flag = self.reader.flag()?;
                self.out.push(flag.into());
            }
            Step::Char => {
                let mut buffer = [0; 4];
                let text = self.reader.char()?.encode_utf8(&mut buffer);
                self.put_bytes(text.as_bytes())?;
            }
            Step::Str => {
                let text = self.reader.text()?;
                self.put_bytes(text.as_bytes())?;
            }
            Step::Bytes => {
                let bytes = self.reader.bytes()?;
                self.put_bytes(bytes)?;
            }
            Step::Option(inner) => {
                let is_some = self.reader.flag()?;
                self.out.push(is_some.into());
                if is_some {
                    self.step(*inner)?;
                }
            }
            Step::Some(inner) => {
                self.out.push(1);
                self.step(*inner)?;
            }
            Step::Seq(inner) => {
                let length = self.reader.length()?;
                put_varint(self.out, length.into());
                for _ in 0..length {
                    self.step(*inner)?;
                }
            }
            Step::Map(key, value) => {
                let length = self.reader.length()?;
                put_varint(self.out, length.into());
                for _ in 0..length {
                    self.step(*key)?;
                    self.step(*value)?;
                }
            }
            Step::Parts(parts) => self.parts(parts)?,
            Step::Enum(variants) => {
                let index = self.reader.index()?;
                let (new, parts) = variants.get(index as usize).ok_or(ValueError::Invalid("there is no such variant"))?;
                put_varint(self.out, (*new).into());
                self.parts(parts)?;
            }
            Step::Pending => return Err(ValueError::Opaque),
        }
        self.reader.leave();
        Ok(())
    }

    fn put_bytes(&mut self, bytes: &[u8]) -> Result<(), ValueError> {
        self.room(bytes.len())?;
        if self.plan.codec != Codec::Raw {
            put_varint(self.out, bytes.len() as u128);
        }
        self.out.extend_from_slice(bytes);
        Ok(())
    }

    fn room(&self, more: usize) -> Result<(), ValueError> {
        if self.out.len() + more > self.end { Err(ValueError::Bound("too large in its new form")) } else { Ok(()) }
    }

    fn parts(&mut self, parts: &Parts) -> Result<(), ValueError> {
        let start = self.out.len();
        let mut written = Vec::new();
        for part in &parts.parts {
            let from = self.out.len();
            match part {
                Part::Keep(count, step) => {
                    for _ in 0..*count {
                        self.step(*step)?;
                    }
                }
                Part::Drop(step) => {
                    self.step(*step)?;
                    self.out.truncate(from);
                    continue;
                }
                Part::Add(default) => {
                    self.room(default.len())?;
                    self.out.extend_from_slice(default);
                }
            }
            if parts.order.is_some() {
                written.push(from - start..self.out.len() - start);
            }
        }
        if let Some(order) = &parts.order {
            let block = self.out.split_off(start);
            for index in order {
                self.out.extend_from_slice(&block[written[*index].clone()]);
            }
        }
        Ok(())
    }
}
