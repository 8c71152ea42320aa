//! Finds the files that a path, a folder or a glob names.

use std::path::{Component, Path, PathBuf};

use cofferdam_dataflow::connector::{ConnectorError, Split};
use glob::{MatchOptions, Pattern};

use crate::connector::failure::{option_refused, read_failed};

/// Returns the files in order of their names, each as a path relative to `base` if `given` is relative. A folder or a
/// glob without a file is an error unless `allow_empty`; a path that is not there always is.
pub(super) fn discover(base: &Path, given: &str, allow_empty: bool) -> Result<Vec<Split>, ConnectorError> {
    let given = normal(given);
    let place = base.join(&given);
    let mut is_folder = false;
    let found = match std::fs::metadata(&place) {
        Ok(metadata) if metadata.is_file() => vec![place],
        Ok(metadata) if metadata.is_dir() => {
            is_folder = true;
            in_folder(&place)?
        }
        Ok(_) => {
            let message = format!("\"{}\" is neither a file nor a folder", given.display());
            return Err(ConnectorError::permanent("input-missing", message));
        }
        Err(_) if given.to_string_lossy().contains(['*', '?', '[']) => matching(base, &given)?,
        Err(error) => return Err(read_failed(&given, error)),
    };
    let mut splits = Vec::with_capacity(found.len());
    for path in found {
        let name = if given.is_absolute() { &path } else { path.strip_prefix(base).unwrap_or(&path) };
        let Some(id) = name.to_str() else {
            let message = format!("the name of \"{}\" is not UTF-8", name.display());
            return Err(ConnectorError::permanent("input-name", message));
        };
        splits.push(Split { id: id.to_owned() });
    }
    if splits.is_empty() && !allow_empty {
        return Err(nothing_found(base, &given, is_folder));
    }
    splits.sort();
    splits.dedup();
    Ok(splits)
}

/// Says where was looked for what, and what was passed over.
fn nothing_found(base: &Path, given: &Path, is_folder: bool) -> ConnectorError {
    let shown = given.display();
    let mut message = if is_folder {
        format!("the folder path = \"{shown}\" has no file to read; folders in it and names that begin with a dot are left out")
    } else {
        format!("no file matches path = \"{shown}\"; names that begin with a dot are left out")
    };
    if given.is_relative() && !base.as_os_str().is_empty() {
        message += &format!("; it is relative to \"{}\"", base.display());
    }
    message += " (allow-empty = true makes it an input that ends at once)";
    ConnectorError::permanent("input-missing", message)
}

/// Leaves out `.` and double slashes, so that one file has one name.
fn normal(given: &str) -> PathBuf {
    let path: PathBuf = Path::new(given).components().filter(|component| *component != Component::CurDir).collect();
    if path.as_os_str().is_empty() { PathBuf::from(".") } else { path }
}

fn in_folder(folder: &Path) -> Result<Vec<PathBuf>, ConnectorError> {
    let failed = |error| read_failed(folder, error);
    let mut files = Vec::new();
    for entry in std::fs::read_dir(folder).map_err(failed)? {
        let entry = entry.map_err(failed)?;
        if !entry.file_name().as_encoded_bytes().starts_with(b".") && entry.path().is_file() {
            files.push(entry.path());
        }
    }
    Ok(files)
}

fn matching(base: &Path, given: &Path) -> Result<Vec<PathBuf>, ConnectorError> {
    let utf8 = |path: &Path| match path.to_str() {
        Some(path) => Ok(path.to_owned()),
        None => Err(option_refused(format!("the folder \"{}\" is not UTF-8, which globs need", path.display()))),
    };
    let given = utf8(given)?;
    let pattern = if Path::new(&given).is_absolute() {
        given.clone()
    } else {
        let base = utf8(base)?;
        if base.is_empty() { given.clone() } else { format!("{}/{given}", Pattern::escape(&base)) }
    };
    let options = MatchOptions { case_sensitive: true, require_literal_separator: true, require_literal_leading_dot: true };
    let paths = glob::glob_with(&pattern, options)
        .map_err(|error| option_refused(format!("path = \"{given}\" is not a glob: {}", error.msg)))?;
    let mut files = Vec::new();
    for path in paths {
        let path = path.map_err(|error| {
            let folder = error.path().to_owned();
            read_failed(&folder, error.into())
        })?;
        if path.is_file() {
            files.push(path);
        }
    }
    Ok(files)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn folder() -> tempfile::TempDir {
        let folder = tempfile::Builder::new().prefix("in[put]").tempdir().unwrap();
        std::fs::create_dir_all(folder.path().join("in/sub")).unwrap();
        std::fs::create_dir_all(folder.path().join("in/.cofferdam")).unwrap();
        for name in ["in/b.txt", "in/a.txt", "in/.hidden.txt", "in/sub/c.txt", "in/.cofferdam/d.txt", "in/x[1].txt"] {
            std::fs::write(folder.path().join(name), name).unwrap();
        }
        folder
    }

    fn ids(base: &Path, given: &str) -> Vec<String> {
        discover(base, given, false).unwrap().into_iter().map(|split| split.id).collect()
    }

    #[test]
    fn a_folder_is_its_visible_files_in_order() {
        let folder = folder();
        assert_eq!(ids(folder.path(), "in"), ["in/a.txt", "in/b.txt", "in/x[1].txt"]);
        assert_eq!(ids(&folder.path().join("in"), "./"), ["a.txt", "b.txt", "x[1].txt"]);
        assert_eq!(ids(folder.path(), "./in//"), ["in/a.txt", "in/b.txt", "in/x[1].txt"]);
    }

    #[test]
    fn a_glob_matches_no_hidden_names_and_a_file_is_itself() {
        let folder = folder();
        assert_eq!(ids(folder.path(), "in/?.txt"), ["in/a.txt", "in/b.txt"]);
        assert_eq!(ids(folder.path(), "./in/**/*.txt"), ["in/a.txt", "in/b.txt", "in/sub/c.txt", "in/x[1].txt"]);
        assert_eq!(ids(folder.path(), "in/x[1].txt"), ["in/x[1].txt"]);
        let absolute = folder.path().join("in/a.txt").to_str().unwrap().to_owned();
        assert_eq!(ids(Path::new("/"), &absolute), [absolute.as_str()]);
    }

    #[test]
    fn an_input_that_is_not_there_is_told() {
        let folder = folder();
        std::fs::create_dir(folder.path().join("empty")).unwrap();
        for given in ["nothing.txt", "nothing/*.txt", "in/*.csv", "empty"] {
            assert_eq!(discover(folder.path(), given, false).unwrap_err().code, "input-missing", "{given}");
        }
        assert_eq!(discover(folder.path(), "/dev/null", true).unwrap_err().code, "input-missing");
        assert_eq!(discover(folder.path(), "in/[*", true).unwrap_err().code, "option-refused");
    }

    #[test]
    fn a_folder_or_glob_without_a_file_says_what_was_looked_for_and_may_be_allowed() {
        let folder = folder();
        std::fs::create_dir(folder.path().join("empty")).unwrap();
        std::fs::write(folder.path().join("empty/.hidden"), "").unwrap();
        let told = |given: &str| discover(folder.path(), given, false).unwrap_err().message;
        let base = folder.path().display();
        let allow = "(allow-empty = true makes it an input that ends at once)";
        let want = format!(
            "the folder path = \"empty\" has no file to read; folders in it and names that begin with a dot are left out; \
             it is relative to \"{base}\" {allow}"
        );
        assert_eq!(told("empty"), want);
        let want = format!(
            "no file matches path = \"in/*.csv\"; names that begin with a dot are left out; it is relative to \"{base}\" {allow}"
        );
        assert_eq!(told("in/*.csv"), want);
        for given in ["empty", "in/*.csv", "nothing/*.txt"] {
            assert_eq!(discover(folder.path(), given, true).unwrap(), [], "{given}");
        }
        // A misspelt file is not an empty input.
        assert_eq!(discover(folder.path(), "nothing.txt", true).unwrap_err().code, "input-missing");
    }
}
