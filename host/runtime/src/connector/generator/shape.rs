//! Makes the value of a record.

use super::{Settings, Shape};
use crate::connector::random::mix;

/// Writes values into one buffer, of which as much as possible stays from record to record.
pub(super) struct Values {
    shape: Shape,
    value: Vec<u8>,
    filler: Vec<u8>,
    seed: u64,
}

/// What a value may tell of its record.
pub(super) struct Facts {
    pub(super) sequence: u64,
    pub(super) key: Option<u64>,
    pub(super) time_ms: i64,
}

impl Values {
    /// Returns a writer of values.
    pub(super) fn new(settings: &Settings) -> Self {
        let letter = |index: u64| b'a' + (mix(settings.seed ^ index) % 26) as u8;
        let filler: Vec<u8> = (0..settings.payload_bytes as u64).map(letter).collect();
        Self { shape: settings.shape, value: filler.clone(), filler, seed: mix(settings.seed) }
    }

    /// Returns a record's value.
    pub(super) fn write(&mut self, facts: &Facts) -> &[u8] {
        match self.shape {
            // The filler after the number is there already.
            Shape::Binary => self.value[..8].copy_from_slice(&facts.sequence.to_le_bytes()),
            Shape::Text => {
                self.value.clear();
                decimal(facts.sequence, &mut self.value);
                self.value.push(b' ');
                self.fill(0);
            }
            Shape::Json => {
                self.value.clear();
                self.json(facts);
            }
        }
        &self.value
    }

    fn json(&mut self, facts: &Facts) {
        let value = &mut self.value;
        value.extend_from_slice(b"{\"sequence\":");
        decimal(facts.sequence, value);
        if let Some(key) = facts.key {
            value.extend_from_slice(b",\"key\":\"");
            decimal(key, value);
            value.push(b'"');
        }
        value.extend_from_slice(b",\"amount\":");
        decimal(mix(facts.sequence.wrapping_mul(3) ^ self.seed) % 1000, value);
        value.extend_from_slice(b",\"time\":");
        if facts.time_ms < 0 {
            value.push(b'-');
        }
        decimal(facts.time_ms.unsigned_abs(), value);
        value.extend_from_slice(b",\"filler\":\"");
        self.fill(2);
        self.value.extend_from_slice(b"\"}");
    }

    /// Fills up to the length that is asked for, less `reserved` bytes.
    fn fill(&mut self, reserved: usize) {
        let missing = self.filler.len().saturating_sub(self.value.len() + reserved);
        self.value.extend_from_slice(&self.filler[..missing]);
    }
}

/// Appends a number's decimal digits.
pub(super) fn decimal(mut number: u64, out: &mut Vec<u8>) {
    let mut digits = [0; 20];
    let mut start = digits.len();
    loop {
        start -= 1;
        digits[start] = b'0' + (number % 10) as u8;
        number /= 10;
        if number == 0 {
            break;
        }
    }
    out.extend_from_slice(&digits[start..]);
}
