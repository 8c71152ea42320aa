//! Problems as people and as programs read them.

use std::fmt::Write as _;

use cofferdam::config::{Diagnostic, Place};
use serde_json::{Value, json};

use super::terminal::{Paint, Style};

/// Lines longer than this are cut around the place.
const LINE_MAX: usize = 120;

/// Returns a problem with the line it is in and a caret below:
///
/// ```text
/// error[unknown-key]: unknown key "intervall" in [checkpoint]
///   --> pipeline.toml:6:1
///    |
///  6 | intervall = "1s"
///    | ^^^^^^^^^
///    = did you mean "interval"?
/// ```
pub(super) fn text(problem: &Diagnostic, paint: Paint) -> String {
    let head = paint.paint(Style::Error, format_args!("error[{}]", problem.code));
    let mut text = format!("{head}: {}\n", paint.paint(Style::Strong, &problem.message));
    let margin = match &problem.place {
        Some(place) => add_snippet(&mut text, place, paint),
        None => String::new(),
    };
    if let Some(help) = &problem.help {
        let sign = paint.paint(Style::Place, "=");
        // Writing to a string cannot fail; so below.
        let _ = writeln!(text, "{margin} {sign} {help}");
    }
    text
}

/// Adds the line with its number; returns the margin's blanks.
fn add_snippet(text: &mut String, place: &Place, paint: Paint) -> String {
    let (line, column) = place.position();
    let number = line.to_string();
    let margin = " ".repeat(number.len() + 1);
    let bar = paint.paint(Style::Place, "|");
    let arrow = paint.paint(Style::Place, "-->");
    let path = place.source.path().display();
    let (shown, before, width) = cut(place.source.line(line), column - 1, spanned_chars(place));
    let carets = paint.paint(Style::Error, "^".repeat(width));
    let _ = writeln!(text, "{margin}{arrow} {path}:{line}:{column}");
    let _ = writeln!(text, "{margin} {bar}");
    let _ = writeln!(text, " {} {bar} {shown}", paint.paint(Style::Place, &number));
    let _ = writeln!(text, "{margin} {bar} {}{carets}", " ".repeat(before));
    margin
}

/// Returns how many characters of the place's first line it covers.
fn spanned_chars(place: &Place) -> usize {
    let covered = place.source.text().get(place.span.clone()).unwrap_or("");
    covered.lines().next().map_or(0, |first| first.chars().count())
}

/// Returns a line that is printable and not too long, the characters before the carets, and the carets.
fn cut(line: &str, start: usize, width: usize) -> (String, usize, usize) {
    let printable = |c: char| if c.is_control() { ' ' } else { c };
    let chars: Vec<char> = line.chars().map(printable).collect();
    if chars.len() <= LINE_MAX {
        let width = width.clamp(1, (chars.len() + 1).saturating_sub(start).max(1));
        return (chars.into_iter().collect(), start, width);
    }
    let from = start.saturating_sub(LINE_MAX / 3).min(chars.len() - LINE_MAX);
    let shown: String = chars[from..].iter().take(LINE_MAX).collect();
    let before = start - from;
    (format!("…{shown}…"), before + 1, width.clamp(1, LINE_MAX.saturating_sub(before).max(1)))
}

/// Returns a problem as JSON: `event` is `error`; `file`, `line`, `column` and `help` are null if there is none.
pub(super) fn json(problem: &Diagnostic) -> Value {
    let position = problem.place.as_ref().map(Place::position);
    json!({
        "event": "error",
        "code": problem.code,
        "message": problem.message,
        "file": problem.place.as_ref().map(|place| place.source.path().display().to_string()),
        "line": position.map(|(line, _)| line),
        "column": position.map(|(_, column)| column),
        "help": problem.help,
    })
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use cofferdam::config::{PipelineFile, SourceText};

    use super::*;

    fn problems(text: &str) -> Vec<Diagnostic> {
        PipelineFile::parse(SourceText::new("jobs/p.toml", text), Path::new("jobs")).unwrap_err()
    }

    const TEXT: &str = "[pipeline]\nname = \"p\"\n\n[checkpoint]\n\tintervall = \"1s\"\n";

    #[test]
    fn a_problem_is_shown_with_its_line_and_a_caret() {
        let expected = "\
error[unknown-key]: unknown key \"intervall\" in [checkpoint]
  --> jobs/p.toml:5:2
   |
 5 |  intervall = \"1s\"
   |  ^^^^^^^^^
   = did you mean \"interval\"?
";
        assert_eq!(text(&problems(TEXT)[0], Paint(false)), expected);
        assert!(text(&problems(TEXT)[0], Paint(true)).starts_with("\x1b[1;31merror[unknown-key]\x1b[0m: "));
    }

    #[test]
    fn a_problem_without_a_place_is_one_line() {
        let problem = Diagnostic::new("io", "cannot read x").with_help("look again");
        assert_eq!(text(&problem, Paint(false)), "error[io]: cannot read x\n = look again\n");
    }

    #[test]
    fn a_long_line_is_cut_around_the_place() {
        let padding = "x".repeat(300);
        let found = problems(&format!("[pipeline]\nname = \"{padding}\"\n"));
        let shown = text(&found[0], Paint(false));
        let longest = shown.lines().skip(1).map(|line| line.chars().count()).max().unwrap();
        assert!(longest <= LINE_MAX + 10, "{shown}");
        let (_, before, width) = cut(&padding, 299, 50);
        assert_eq!((before, width), (120, 1));
    }

    #[test]
    fn as_json_a_problem_has_named_fields() {
        let value = json(&problems(TEXT)[0]);
        let expected = json!({
            "event": "error", "code": "unknown-key", "message": "unknown key \"intervall\" in [checkpoint]",
            "file": "jobs/p.toml", "line": 5, "column": 2, "help": "did you mean \"interval\"?",
        });
        assert_eq!(value, expected);
    }
}
