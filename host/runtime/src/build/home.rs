//! Where cofferdam keeps what it prepares once for all projects of a user.

use std::path::PathBuf;

use super::BuildError;

/// Returns `$COFFERDAM_HOME`, or `cofferdam` in the user's cache folder.
///
/// # Errors
/// [`BuildError::NoTarget`] if neither can be found out.
pub fn home() -> Result<PathBuf, BuildError> {
    let variable = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    variable("COFFERDAM_HOME")
        .or_else(|| variable("XDG_CACHE_HOME").map(|cache| cache.join("cofferdam")))
        .or_else(|| variable("HOME").map(|home| home.join(".cache/cofferdam")))
        .ok_or_else(|| BuildError::NoTarget("set COFFERDAM_HOME to a folder that may be written".to_owned()))
}
