//! Finds the files that a path, a folder or a glob names.

use std::path::{Component, Path, PathBuf};

use cofferdam_dataflow::connector::{ConnectorError, Split};
use glob::{MatchOptions, Pattern};

use crate::connector::failure::{option_refused, read_failed};

/// Returns the files in order of their names, each as a path relative to `base` if `given` is relative.
pub(super) fn discover(base: &Path, given: &str) -> Result<Vec<Split>, ConnectorError> {
    let given = normal(given);
    let place = base.join(&given);
    let found = match std::fs::metadata(&place) {
        Ok(metadata) if metadata.is_file() => vec![place],
        Ok(metadata) if metadata.is_dir() => in_folder(&place)?,
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
    if splits.is_empty() {
        return Err(ConnectorError::permanent("input-missing", format!("no file matches \"{}\"", given.display())));
    }
    splits.sort();
    splits.dedup();
    Ok(splits)
}

/// Leaves out `.` and double slashes, so that one file has one name.
fn normal(given: &str) -> PathBuf {
    Path::new(given).components().filter(|component| *component != Component::CurDir).collect()
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
    let given = given.to_str().expect("made from a str");
    let pattern = if Path::new(given).is_absolute() {
        given.to_owned()
    } else {
        let Some(base) = base.to_str() else {
            return Err(option_refused(format!("the folder \"{}\" is not UTF-8, which globs need", base.display())));
        };
        if base.is_empty() { given.to_owned() } else { format!("{}/{given}", Pattern::escape(base)) }
    };
    let options = MatchOptions { case_sensitive: true, require_literal_separator: true, require_literal_leading_dot: true };
    let paths = glob::glob_with(&pattern, options)
        .map_err(|error| option_refused(format!("path = \"{given}\" is not a glob: {}", error.msg)))?;
    let mut files = Vec::new();
    for path in paths {
        let path = path.map_err(|error| {
            let folder = error.path().to_owned();
            read_failed(&folder, error.into_error())
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
        discover(base, given).unwrap().into_iter().map(|split| split.id).collect()
    }

    #[test]
    fn a_folder_is_its_visible_files_in_order() {
        let folder = folder();
        assert_eq!(ids(folder.path(), "in"), ["in/a.txt", "in/b.txt", "in/x[1].txt"]);
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
            assert_eq!(discover(folder.path(), given).unwrap_err().code, "input-missing", "{given}");
        }
        assert_eq!(discover(folder.path(), "/dev/null").unwrap_err().code, "input-missing");
        assert_eq!(discover(folder.path(), "in/[*").unwrap_err().code, "option-refused");
    }
}
