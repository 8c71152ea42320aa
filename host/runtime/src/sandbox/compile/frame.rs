//! What the compiler process answers: a magic number, a kind, a length, and that many bytes. Nothing may follow.

use std::io::{self, Write};

const MAGIC: [u8; 8] = *b"cfdmart\x01";
const HEADER_BYTES: usize = 17;

/// The kind of an answer that is an artefact.
pub(super) const ARTEFACT: u8 = 0;
/// The kind of an answer that says why there is none.
pub(super) const REFUSED: u8 = 1;

/// Writes an answer.
pub(super) fn write(kind: u8, body: &[u8], out: &mut impl Write) -> io::Result<()> {
    out.write_all(&MAGIC)?;
    out.write_all(&[kind])?;
    out.write_all(&(body.len() as u64).to_le_bytes())?;
    out.write_all(body)?;
    out.flush()
}

/// Takes an answer apart: its kind and body. `None` if it is incomplete or no answer at all.
pub(super) fn read(mut bytes: Vec<u8>) -> Option<(u8, Vec<u8>)> {
    let header = bytes.get(..HEADER_BYTES)?;
    let length = u64::from_le_bytes(*header[9..].first_chunk()?);
    let kind = header[8];
    if header[..8] != MAGIC || kind > REFUSED || length != (bytes.len() - HEADER_BYTES) as u64 {
        return None;
    }
    bytes.drain(..HEADER_BYTES);
    Some((kind, bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_whole_answer_is_read() {
        let mut bytes = Vec::new();
        write(ARTEFACT, b"code", &mut bytes).unwrap();
        assert_eq!(read(bytes.clone()), Some((ARTEFACT, b"code".to_vec())));
        for length in 0..bytes.len() {
            assert_eq!(read(bytes[..length].to_vec()), None);
        }
        bytes.push(0);
        assert_eq!(read(bytes.clone()), None);
        bytes.pop();
        bytes[8] = 7;
        assert_eq!(read(bytes), None);
    }
}
