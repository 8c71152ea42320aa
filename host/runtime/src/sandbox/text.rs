//! Guest text made harmless: bounded and printable, before it goes anywhere.

/// What marks a text that was cut. Its bytes are within the limit.
const CUT: &str = "...";

/// Returns `text` with control characters, line separators and everything that turns the direction of writing escaped as
/// `\u{..}`, cut to at most `bytes_max` bytes (at least 3). Costs no more than that, however long `text` is.
pub fn printable(text: &str, bytes_max: usize) -> String {
    let mut out = String::with_capacity(text.len().min(bytes_max));
    let room = bytes_max.saturating_sub(CUT.len());
    // Where to cut if the rest does not fit.
    let mut keep = 0;
    for c in text.chars() {
        if is_plain(c) {
            out.push(c);
        } else {
            out.extend(c.escape_unicode());
        }
        if out.len() > bytes_max {
            out.truncate(keep);
            out.push_str(CUT);
            return out;
        }
        if out.len() <= room {
            keep = out.len();
        }
    }
    out
}

/// Whether a character shows as itself, in a terminal and in a web page.
fn is_plain(c: char) -> bool {
    match c {
        // Soft hyphen, Arabic letter mark, zero-width and direction marks, separators, embeddings and overrides,
        // invisible operators and isolates, variation in the interlinear and tag blocks, byte order mark.
        '\u{ad}' | '\u{61c}' | '\u{180e}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' => false,
        '\u{feff}' | '\u{fff9}'..='\u{fffb}' | '\u{e0000}'..='\u{e007f}' => false,
        _ => !c.is_control(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn control_and_direction_characters_are_escaped() {
        assert_eq!(printable("plain grün 水", 64), "plain grün 水");
        assert_eq!(printable("a\x1b[31m\nb\r\0", 64), "a\\u{1b}[31m\\u{a}b\\u{d}\\u{0}");
        assert_eq!(printable("\u{202e}evil\u{2066}\u{9b}\u{feff}", 64), "\\u{202e}evil\\u{2066}\\u{9b}\\u{feff}");
    }

    #[test]
    fn long_text_is_cut_after_escaping_and_marked() {
        assert_eq!(printable("abcdefgh", 8), "abcdefgh");
        assert_eq!(printable("abcdefghi", 8), "abcde...");
        // An escape is never cut in the middle, nor is a character.
        assert_eq!(printable("abc\x1b\x1b", 8), "abc...");
        assert_eq!(printable("水水水", 8), "水...");
        for length in 3..40 {
            let cut = printable(&"\x1b水a".repeat(1000), length);
            assert!(cut.len() <= length && cut.ends_with(CUT), "{cut:?}");
        }
    }
}
