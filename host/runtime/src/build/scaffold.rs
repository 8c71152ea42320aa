//! `cofferdam new`: a crate that compiles and passes its own test at once, with a pipeline that runs it.

use std::path::{Path, PathBuf};

use super::{BuildError, home, sdk, stamp};

/// What a new operator does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Template {
    /// One record in, one out.
    Operator,
    /// State for each key.
    Keyed,
    /// A configuration; some records pass.
    Filter,
}

/// A crate that was made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Scaffolded {
    /// Its folder.
    pub dir: PathBuf,
    /// The files in it, relative to it.
    pub files: Vec<PathBuf>,
}

impl Template {
    fn what(self) -> &'static str {
        match self {
            Self::Operator => "puts lines of text into upper case",
            Self::Keyed => "counts and sums what each user has bought",
            Self::Filter => "lets the lines pass that contain a word",
        }
    }

    fn dependencies(self) -> &'static str {
        match self {
            Self::Operator => "",
            Self::Keyed | Self::Filter => "serde = { version = \"1\", features = [\"derive\"] }\n",
        }
    }

    /// The files, before names are filled in.
    fn files(self) -> [(&'static str, &'static str); 6] {
        let (lib, pipeline, input_name, input) = match self {
            Self::Operator => (
                include_str!("templates/operator/lib.rs.in"),
                include_str!("templates/operator/pipeline.toml.in"),
                "input.txt",
                include_str!("templates/operator/input"),
            ),
            Self::Keyed => (
                include_str!("templates/keyed/lib.rs.in"),
                include_str!("templates/keyed/pipeline.toml.in"),
                "input.jsonl",
                include_str!("templates/keyed/input"),
            ),
            Self::Filter => (
                include_str!("templates/filter/lib.rs.in"),
                include_str!("templates/filter/pipeline.toml.in"),
                "input.txt",
                include_str!("templates/filter/input"),
            ),
        };
        [
            (".gitignore", include_str!("templates/gitignore")),
            ("Cargo.toml", include_str!("templates/Cargo.toml.in")),
            ("README.md", include_str!("templates/README.md.in")),
            (input_name, input),
            ("pipeline.toml", pipeline),
            ("src/lib.rs", lib),
        ]
    }
}

/// Makes a crate named `name` in `dir`, which must be empty or missing.
///
/// # Errors
/// [`BuildError::Name`], [`BuildError::Exists`], [`BuildError::Io`].
pub fn scaffold(name: &str, dir: &Path, template: Template) -> Result<Scaffolded, BuildError> {
    scaffold_with(name, dir, template, home)
}

fn scaffold_with(
    name: &str,
    dir: &Path,
    template: Template,
    home: fn() -> Result<PathBuf, BuildError>,
) -> Result<Scaffolded, BuildError> {
    if !is_crate_name(name) {
        return Err(BuildError::Name(name.to_owned()));
    }
    if std::fs::read_dir(dir).is_ok_and(|mut entries| entries.next().is_some()) || dir.is_file() {
        return Err(BuildError::Exists(dir.to_owned()));
    }
    std::fs::create_dir_all(dir).map_err(BuildError::io("cannot create", dir))?;
    let absolute = dir.canonicalize().map_err(BuildError::io("cannot find", dir))?;
    let sdk = sdk::dependency(&absolute, home)?;
    let what = template.what();
    let capitalised = format!("{}{}", what[..1].to_uppercase(), &what[1..]);
    let fill = |text: &str| {
        let named = text.replace("{{name}}", name).replace("{{sdk}}", &sdk).replace("{{dependencies}}", template.dependencies());
        named.replace("{{what}}", what).replace("{{What}}", &capitalised)
    };
    let mut files = Vec::new();
    for (path, text) in template.files() {
        stamp::replace(&dir.join(path), fill(text).as_bytes())?;
        files.push(PathBuf::from(path));
    }
    Ok(Scaffolded { dir: dir.to_owned(), files })
}

/// Whether cargo takes the name for a crate and the pipeline for its id.
fn is_crate_name(name: &str) -> bool {
    const KEYWORDS: &[&str] = &[
        "abstract",
        "as",
        "async",
        "await",
        "become",
        "box",
        "break",
        "const",
        "continue",
        "crate",
        "do",
        "dyn",
        "else",
        "enum",
        "extern",
        "false",
        "final",
        "fn",
        "for",
        "gen",
        "if",
        "impl",
        "in",
        "let",
        "loop",
        "macro",
        "match",
        "mod",
        "move",
        "mut",
        "override",
        "priv",
        "pub",
        "ref",
        "return",
        "self",
        "static",
        "struct",
        "super",
        "trait",
        "true",
        "try",
        "type",
        "typeof",
        "unsafe",
        "unsized",
        "use",
        "virtual",
        "where",
        "while",
        "yield",
        "alloc",
        "core",
        "proc-macro",
        "std",
        "test",
        "cofferdam-guest",
        "serde",
    ];
    let plain = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-';
    let first_is_letter = name.as_bytes().first().is_some_and(u8::is_ascii_lowercase);
    first_is_letter && name.len() <= 64 && name.bytes().all(plain) && !KEYWORDS.contains(&name)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A home of the tests' own.
    fn home() -> Result<PathBuf, BuildError> {
        Ok(Path::new(env!("OUT_DIR")).join("test-home"))
    }

    #[test]
    fn every_template_makes_a_whole_crate_without_a_gap_and_a_pipeline_that_is_read() {
        for template in [Template::Operator, Template::Keyed, Template::Filter] {
            let dir = tempfile::tempdir().unwrap();
            let made = scaffold_with("my-op", &dir.path().join("my-op"), template, home).unwrap();
            for file in &made.files {
                let text = std::fs::read_to_string(made.dir.join(file)).unwrap();
                assert!(!text.contains("{{") || file.ends_with("lib.rs"), "{}: {text}", file.display());
                assert!(!text.contains("{{name}}") && !text.contains("{{what") && !text.contains("{{W"), "{}", file.display());
            }
            let manifest: toml::Table = std::fs::read_to_string(made.dir.join("Cargo.toml")).unwrap().parse().unwrap();
            assert_eq!(manifest["package"]["name"].as_str(), Some("my-op"));
            let sdk = manifest["dependencies"]["cofferdam-guest"]["path"].as_str().unwrap();
            assert!(Path::new(sdk).join("Cargo.toml").is_file(), "{sdk}");
            let pipeline = crate::config::PipelineFile::load(&made.dir.join("pipeline.toml")).unwrap();
            assert_eq!(pipeline.name, "my-op");
            let (_, operator) = pipeline.operators().next().unwrap();
            assert!(pipeline.component_path(operator).join("src/lib.rs").is_file());
        }
    }

    #[test]
    fn nothing_is_overwritten_and_bad_names_are_refused() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("mine"), "x").unwrap();
        assert!(matches!(scaffold_with("a", dir.path(), Template::Operator, home), Err(BuildError::Exists(_))));
        for name in ["", "A", "1a", "a b", "../a", "fn", "std", "ä", "a_b"] {
            assert!(
                matches!(scaffold_with(name, &dir.path().join("new"), Template::Operator, home), Err(BuildError::Name(_))),
                "{name}"
            );
        }
    }
}
