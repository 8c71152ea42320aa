//! What is wrong with a pipeline file, and where. Presentation is the command line's business.

use std::fmt;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The text of a pipeline file, kept so that messages can show it.
#[derive(Debug, PartialEq, Eq)]
pub struct SourceText {
    path: PathBuf,
    text: String,
}

impl SourceText {
    /// Wraps a file's text. `path` is used in messages only.
    pub fn new(path: impl Into<PathBuf>, text: impl Into<String>) -> Arc<Self> {
        Arc::new(Self { path: path.into(), text: text.into() })
    }

    /// Returns the path as the user gave it.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the whole text.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// Returns the line and the column of a byte offset, both from 1; columns count characters.
    pub fn position(&self, offset: usize) -> (usize, usize) {
        let mut offset = offset.min(self.text.len());
        while !self.text.is_char_boundary(offset) {
            offset -= 1;
        }
        let before = &self.text[..offset];
        let line_start = before.rfind('\n').map_or(0, |newline| newline + 1);
        (before.matches('\n').count() + 1, before[line_start..].chars().count() + 1)
    }

    /// Returns a line (from 1) without its newline; empty if there is no such line.
    pub fn line(&self, line: usize) -> &str {
        self.text.lines().nth(line.saturating_sub(1)).unwrap_or("")
    }
}

/// A place in a pipeline file.
#[derive(Clone, PartialEq, Eq)]
pub struct Place {
    /// The file.
    pub source: Arc<SourceText>,
    /// Bytes of its text.
    pub span: Range<usize>,
}

impl Place {
    /// Returns the line and the column where it begins, both from 1.
    pub fn position(&self) -> (usize, usize) {
        self.source.position(self.span.start)
    }
}

impl fmt::Debug for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (line, column) = self.position();
        write!(f, "{}:{line}:{column}", self.source.path.display())
    }
}

/// One thing that is wrong, for the user to mend.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct Diagnostic {
    /// A stable name, such as `unknown-key`.
    pub code: &'static str,
    /// What is wrong; lowercase, one line.
    pub message: String,
    /// What to do, or what was expected.
    pub help: Option<String>,
    /// Where; `None` if it is no place of the file.
    pub place: Option<Place>,
}

impl Diagnostic {
    /// Returns a diagnostic without a place.
    pub fn new(code: &'static str, message: impl Into<String>) -> Self {
        Self { code, message: message.into(), help: None, place: None }
    }

    /// Returns a diagnostic for a place.
    pub fn at(place: Place, code: &'static str, message: impl Into<String>) -> Self {
        Self { place: Some(place), ..Self::new(code, message) }
    }

    /// Adds what to do.
    #[must_use]
    pub fn with_help(mut self, help: impl Into<String>) -> Self {
        self.help = Some(help.into());
        self
    }
}

/// Collects what is wrong with one file.
#[derive(Debug)]
pub(super) struct Problems {
    pub(super) source: Arc<SourceText>,
    found: Vec<Diagnostic>,
}

impl Problems {
    pub(super) fn new(source: Arc<SourceText>) -> Self {
        Self { source, found: Vec::new() }
    }

    pub(super) fn place(&self, span: Range<usize>) -> Place {
        Place { source: self.source.clone(), span }
    }

    pub(super) fn add(&mut self, span: Range<usize>, code: &'static str, message: impl Into<String>) {
        let place = self.place(span);
        self.push(Diagnostic::at(place, code, message));
    }

    pub(super) fn add_with_help(
        &mut self,
        span: Range<usize>,
        code: &'static str,
        message: impl Into<String>,
        help: impl Into<String>,
    ) {
        let place = self.place(span);
        self.push(Diagnostic::at(place, code, message).with_help(help));
    }

    /// Refuses by name what is planned but not built.
    pub(super) fn not_built(&mut self, span: Range<usize>, what: &str, instead: &str) {
        self.add_with_help(span, "not-built", format!("{what} is not built yet"), instead);
    }

    pub(super) fn push(&mut self, diagnostic: Diagnostic) {
        self.found.push(diagnostic);
    }

    pub(super) fn is_empty(&self) -> bool {
        self.found.is_empty()
    }

    /// Returns what was found in the order of the file.
    pub(super) fn into_found(self) -> Vec<Diagnostic> {
        let mut found = self.found;
        found.sort_by_key(|diagnostic| diagnostic.place.as_ref().map_or(usize::MAX, |place| place.span.start));
        found
    }
}

/// Returns the candidate that `word` was probably meant to be.
pub(super) fn nearest<'a>(word: &str, candidates: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let plain = |text: &str| text.to_lowercase().replace('_', "-");
    let word = plain(word);
    let scored = candidates.into_iter().map(|candidate| (edits(&word, &plain(candidate)), candidate));
    scored
        .min_by_key(|(distance, _)| *distance)
        .filter(|(distance, _)| *distance * 3 <= word.chars().count().max(3))
        .map(|(_, c)| c)
}

/// The number of insertions, deletions, substitutions and swaps of neighbours between two short words (optimal string
/// alignment).
fn edits(a: &str, b: &str) -> usize {
    let (a, b): (Vec<char>, Vec<char>) = (a.chars().take(64).collect(), b.chars().take(64).collect());
    let mut rows: Vec<Vec<usize>> = vec![(0..=b.len()).collect()];
    for i in 1..=a.len() {
        let mut row = vec![i];
        for j in 1..=b.len() {
            let substitution = rows[i - 1][j - 1] + usize::from(a[i - 1] != b[j - 1]);
            let mut best = substitution.min(rows[i - 1][j] + 1).min(row[j - 1] + 1);
            if i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] {
                best = best.min(rows[i - 2][j - 2] + 1);
            }
            row.push(best);
        }
        rows.push(row);
    }
    rows[a.len()][b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_misspelt_word_finds_its_neighbour_and_a_strange_one_none() {
        let keys = ["interval", "timeout", "min-pause", "storage"];
        for (word, expected) in
            [("intervall", "interval"), ("min_pause", "min-pause"), ("timoeut", "timeout"), ("Storage", "storage")]
        {
            assert_eq!(nearest(word, keys), Some(expected), "{word}");
        }
        assert_eq!(nearest("colour", keys), None);
        assert_eq!(edits("ab", "ba"), 1);
        assert_eq!(edits("kitten", "sitting"), 3);
    }

    #[test]
    fn positions_count_lines_and_characters_from_one() {
        let source = SourceText::new("p.toml", "a\nüb = 1\n");
        assert_eq!(source.position(0), (1, 1));
        assert_eq!(source.position(4), (2, 2));
        assert_eq!(source.position(usize::MAX), (3, 1));
        assert_eq!(source.position(3), (2, 1), "inside a character");
        assert_eq!((source.line(2), source.line(9)), ("üb = 1", ""));
    }
}
