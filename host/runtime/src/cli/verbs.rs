//! `new` and `build`.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use cofferdam::build::{self, BuildOptions, Built, Template};
use cofferdam::config::PipelineFile;
use cofferdam::config::value::format_bytes;
use serde_json::json;

use super::Exit;
use super::arguments::{BuildArguments, NewArguments, TemplateName};
use super::failure::Failure;
use super::run;
use super::terminal::{Paint, Style, Terminal};

/// Makes a new operator crate.
pub(super) fn new(arguments: &NewArguments, terminal: &Terminal) -> Result<Exit, Failure> {
    let template = match arguments.template {
        TemplateName::Operator => Template::Operator,
        TemplateName::Keyed => Template::Keyed,
        TemplateName::Filter => Template::Filter,
    };
    let dir = arguments.path.clone().unwrap_or_else(|| PathBuf::from(&arguments.name));
    let made = build::scaffold(&arguments.name, &dir, template)?;
    let value = json!({ "event": "created", "dir": made.dir, "files": made.files });
    terminal.result(&value, |paint| {
        let shown = made.dir.display();
        let head = paint.paint(Style::Good, "created");
        let mut text = format!("{head} {shown}\n");
        for file in &made.files {
            // Writing to a string cannot fail.
            let _ = writeln!(text, "  {}", file.display());
        }
        text + &format!("next: cd {shown} && cargo test && cofferdam run pipeline.toml\n")
    })?;
    Ok(Exit::Done)
}

/// Builds operator crates, or those of pipeline files.
pub(super) fn build(arguments: &BuildArguments, terminal: &Terminal) -> Result<Exit, Failure> {
    let options = BuildOptions { force: arguments.force, quiet: terminal.quiet };
    let mut failed: Option<Failure> = None;
    for path in &arguments.paths {
        for result in build_path(path, options)? {
            match result {
                Ok(built) => terminal.result(&built_json(&built), |paint| built_text(&built, paint))?,
                Err(error) => {
                    let new = Failure::from(error);
                    match &mut failed {
                        Some(failed) => failed.problems.extend(new.problems),
                        None => failed = Some(new),
                    }
                }
            }
        }
    }
    failed.map_or(Ok(Exit::Done), Err)
}

fn build_path(path: &Path, options: BuildOptions) -> Result<Vec<Result<Built, build::BuildError>>, Failure> {
    if path.is_file() && path.file_name().is_none_or(|name| name != "Cargo.toml") {
        let file = PipelineFile::load(path)?;
        return Ok(run::build_crates(&file, options));
    }
    // The manifest stands for its folder.
    let dir =
        if path.is_file() { path.parent().filter(|dir| !dir.as_os_str().is_empty()).unwrap_or(Path::new(".")) } else { path };
    Ok(vec![build::build(dir, options)])
}

/// Describes a component that was built.
pub(super) fn built_text(built: &Built, paint: Paint) -> String {
    let seconds = built.took.as_secs_f64();
    let head = match built.unchanged {
        true => paint.paint(Style::Faint, "unchanged"),
        false => paint.paint(Style::Good, "built"),
    };
    let imports = if built.imports.is_empty() { "nothing".to_owned() } else { built.imports.join(", ") };
    format!(
        "{head} {}: {}, {} in {seconds:.1}s\n  imports {imports}\n",
        built.name,
        built.component.display(),
        format_bytes(built.bytes)
    )
}

fn built_json(built: &Built) -> serde_json::Value {
    json!({
        "event": "built",
        "name": built.name,
        "component": built.component,
        "bytes": built.bytes,
        "imports": built.imports,
        "unchanged": built.unchanged,
        "took_ms": u64::try_from(built.took.as_millis()).unwrap_or(u64::MAX),
    })
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_build_tells_size_imports_and_time() {
        let built = Built {
            name: "count".into(),
            component: "target/cofferdam/count.wasm".into(),
            bytes: 65_536,
            imports: vec!["cofferdam:operator/logging@0.1.0".into()],
            unchanged: false,
            took: Duration::from_millis(2340),
        };
        let expected = "built count: target/cofferdam/count.wasm, 64 KiB in 2.3s\n  imports cofferdam:operator/logging@0.1.0\n";
        assert_eq!(built_text(&built, Paint(false)), expected);
        let unchanged = Built { unchanged: true, imports: vec![], ..built };
        assert!(built_text(&unchanged, Paint(false)).starts_with("unchanged count"));
        assert_eq!(built_json(&unchanged)["took_ms"], 2340);
    }
}
