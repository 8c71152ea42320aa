//! CSV records as JSON objects.
//!
//! RFC 4180 with a header, read leniently where that is unambiguous: quotes inside an unquoted field are content. A
//! quoted field may hold newlines, so a record may span lines.

use csv_core::{ReadRecordResult, Reader, ReaderBuilder, Terminator};

use super::pick::JsonPointer;

/// What the unread bytes begin with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Parsed {
    /// A record of so many bytes.
    Record(usize),
    /// The beginning of a record.
    Incomplete,
    /// A quoted field that the file's end leaves open.
    Unclosed,
}

/// Reads records.
pub(super) struct CsvRows {
    reader: Reader,
    /// Of each column: its name as JSON, and the colon.
    columns: Vec<String>,
    fields: Vec<u8>,
    ends: Vec<usize>,
    count: usize,
    value: Vec<u8>,
}

impl CsvRows {
    /// Returns a reader of records whose fields are separated by `delimiter`.
    pub(super) fn new(delimiter: u8) -> Self {
        let reader = ReaderBuilder::new().delimiter(delimiter).terminator(Terminator::Any(b'\n')).build();
        Self { reader, columns: Vec::new(), fields: vec![0; 4096], ends: vec![0; 64], count: 0, value: Vec::new() }
    }

    /// Takes the record parsed last as the header.
    ///
    /// # Errors
    /// What is wrong with it.
    pub(super) fn take_header(&mut self) -> Result<(), String> {
        let mut columns = Vec::with_capacity(self.count);
        for index in 0..self.count {
            let name = self.field(index).map_err(|_| format!("the header's column {} is not UTF-8", index + 1))?;
            let column = format!("{}:", serde_json::Value::from(name));
            if columns.contains(&column) {
                return Err(format!("the header has two columns {name:?}"));
            }
            columns.push(column);
        }
        self.columns = columns;
        Ok(())
    }

    /// Returns the index of a column.
    pub(super) fn column(&self, pointer: &JsonPointer) -> Option<usize> {
        let [name] = pointer.tokens() else { return None };
        let column = format!("{}:", serde_json::Value::from(name.as_str()));
        self.columns.iter().position(|other| *other == column)
    }

    /// Parses the record at the start of `input`, of which `ended` tells whether the file has more.
    pub(super) fn parse(&mut self, input: &[u8], ended: bool) -> Parsed {
        self.reader.reset();
        let (mut read, mut written, mut count) = (0, 0, 0);
        let mut closing = false;
        loop {
            let rest = if closing { &b"\n"[..] } else { &input[read..] };
            let (result, taken, out, ends) = self.reader.read_record(rest, &mut self.fields[written..], &mut self.ends[count..]);
            read += if closing { 0 } else { taken };
            written += out;
            count += ends;
            match result {
                ReadRecordResult::Record => break,
                ReadRecordResult::OutputFull => self.fields.resize(self.fields.len() * 2, 0),
                ReadRecordResult::OutputEndsFull => self.ends.resize(self.ends.len() * 2, 0),
                ReadRecordResult::InputEmpty | ReadRecordResult::End if closing => return Parsed::Unclosed,
                ReadRecordResult::InputEmpty | ReadRecordResult::End if ended => closing = true,
                ReadRecordResult::InputEmpty | ReadRecordResult::End => return Parsed::Incomplete,
            }
        }
        // The carriage return before the newline became part of the last field.
        let returned = if closing { input.ends_with(b"\r") } else { input[..read].ends_with(b"\r\n") };
        if returned && written > 0 && self.fields[written - 1] == b'\r' {
            self.ends[count - 1] -= 1;
        }
        self.count = count;
        Parsed::Record(read)
    }

    /// Whether the record parsed last has more or fewer fields than the header.
    pub(super) fn is_ragged(&self) -> bool {
        self.count != self.columns.len()
    }

    /// Returns a field of the record parsed last.
    pub(super) fn field(&self, index: usize) -> Result<&str, std::str::Utf8Error> {
        let start = if index == 0 { 0 } else { self.ends[index - 1] };
        std::str::from_utf8(&self.fields[start..self.ends[index]])
    }

    /// Returns the record parsed last as a JSON object: column name to text.
    ///
    /// # Errors
    /// What is wrong with it.
    pub(super) fn to_json(&mut self) -> Result<&[u8], String> {
        if self.is_ragged() {
            return Err(format!("{} fields, but the header has {}", self.count, self.columns.len()));
        }
        let mut value = std::mem::take(&mut self.value);
        value.clear();
        for (index, column) in self.columns.iter().enumerate() {
            value.push(if index == 0 { b'{' } else { b',' });
            value.extend_from_slice(column.as_bytes());
            let field = self.field(index).map_err(|_| format!("field {} is not UTF-8", index + 1))?;
            serde_json::to_writer(&mut value, field).map_err(|error| error.to_string())?;
        }
        value.push(b'}');
        self.value = value;
        Ok(&self.value)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rows(input: &str) -> (Vec<String>, Parsed) {
        let mut rows = CsvRows::new(b',');
        let Parsed::Record(mut at) = rows.parse(input.as_bytes(), true) else { panic!("no header") };
        rows.take_header().unwrap();
        let mut out = Vec::new();
        while at < input.len() {
            match rows.parse(&input.as_bytes()[at..], true) {
                Parsed::Record(bytes) => at += bytes,
                other => return (out, other),
            }
            out.push(rows.to_json().map_or_else(|error| error, |json| String::from_utf8(json.to_vec()).unwrap()));
        }
        (out, Parsed::Record(0))
    }

    #[test]
    fn records_become_objects_of_texts() {
        let (out, _) = rows("a,\"b\"\"\"\r\n1,\"x,\ny\"\r\n,\"\"\r\nlast,\"é\r\n\"\r\n3,4\r");
        let want =
            [r#"{"a":"1","b\"":"x,\ny"}"#, r#"{"a":"","b\"":""}"#, r#"{"a":"last","b\"":"é\r\n"}"#, r#"{"a":"3","b\"":"4"}"#];
        assert_eq!(out, want);
    }

    #[test]
    fn a_record_with_more_or_fewer_fields_is_told() {
        let (out, _) = rows("a,b\n1\n1,2,3\n1,2");
        assert_eq!(out, ["1 fields, but the header has 2", "3 fields, but the header has 2", r#"{"a":"1","b":"2"}"#]);
    }

    #[test]
    fn a_quote_left_open_is_no_record() {
        let (out, end) = rows("a,b\n1,2\n3,\"4\n5,6\n");
        assert_eq!((out.len(), end), (1, Parsed::Unclosed));
        assert_eq!(CsvRows::new(b',').parse(b"1,\"2\n", false), Parsed::Incomplete);
        assert_eq!(CsvRows::new(b',').parse(b"1,2", false), Parsed::Incomplete);
    }

    #[test]
    fn fields_beyond_the_buffers_are_read() {
        let wide = vec!["x"; 1000].join(";") + ";" + &"y".repeat(100_000) + "\n";
        let mut rows = CsvRows::new(b';');
        assert_eq!(rows.parse(wide.as_bytes(), false), Parsed::Record(wide.len()));
        assert_eq!(rows.count, 1001);
        assert_eq!(rows.field(1000).unwrap().len(), 100_000);
    }

    #[test]
    fn the_header_names_each_column_once() {
        let mut rows = CsvRows::new(b',');
        rows.parse(b"\xef\xbb\xbfa,b/c,a\n", true);
        assert_eq!(rows.take_header(), Err("the header has two columns \"a\"".to_owned()));
        rows.parse(b"\xef\xbb\xbfa,b/c\n", true);
        rows.take_header().unwrap();
        assert_eq!(rows.column(&"/b~1c".parse().unwrap()), Some(1));
        assert_eq!(rows.column(&"/a".parse().unwrap()), Some(0));
        assert_eq!(rows.column(&"/a/b".parse().unwrap()), None);
    }
}
