//! Packs the guest SDK and the operator interface into the binary, so that `cofferdam new` works without a checkout.
//!
//! Outside of a checkout (a published package) there is nothing to pack: new crates then depend on the SDK by version.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::{env, fs, io};

fn main() -> io::Result<()> {
    let root = PathBuf::from(env::var_os("CARGO_MANIFEST_DIR").expect("cargo sets it")).join("../..");
    let mut files = Vec::new();
    if root.join("guest-sdk/Cargo.toml").is_file() && root.join("wit").is_dir() {
        for part in ["guest-sdk/Cargo.toml", "guest-sdk/README.md", "guest-sdk/src", "wit"] {
            println!("cargo::rerun-if-changed={}", root.join(part).display());
            collect(&root, Path::new(part), &mut files)?;
        }
    }
    files.sort();
    let mut list = String::from("&[\n");
    for file in &files {
        let path = root.join(file).canonicalize()?;
        writeln!(list, "    ({:?}, include_bytes!({path:?})),", file.to_str().expect("names in the SDK are plain"))
            .expect("a string grows");
    }
    list.push_str("]\n");
    fs::write(PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets it")).join("sdk_files.rs"), list)
}

/// Adds a file, or all files of a folder, by their paths below `root`.
fn collect(root: &Path, part: &Path, files: &mut Vec<PathBuf>) -> io::Result<()> {
    let path = root.join(part);
    if path.is_file() {
        files.push(part.to_owned());
    } else if path.is_dir() {
        for entry in fs::read_dir(path)? {
            collect(root, &part.join(entry?.file_name()), files)?;
        }
    }
    Ok(())
}
