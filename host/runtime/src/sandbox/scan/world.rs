//! Whether a component is an operator of an interface version that is served, and imports nothing else.

use super::LoadError;
use super::frames::Outline;

/// The package of the operator interface.
const PACKAGE: &str = "cofferdam:operator/";

/// The interfaces that an operator may import.
const IMPORTS: [&str; 4] = ["types", "state-reads", "logging", "metrics"];

/// What this host serves.
const SERVED: &str = "0.1.x";

const WASI_HINT: &str = ": build it for wasm32-unknown-unknown, as `cofferdam build` does; this host offers no WASI";

/// A name of the operator package, taken apart.
struct OperatorName<'a> {
    interface: &'a str,
    version: &'a str,
}

impl<'a> OperatorName<'a> {
    fn parse(name: &'a str) -> Option<Self> {
        let rest = name.strip_prefix(PACKAGE)?;
        let (interface, version) = rest.split_once('@').unwrap_or((rest, ""));
        Some(Self { interface, version })
    }

    fn is_served(&self) -> bool {
        let mut parts = self.version.split('.');
        let numbers = [parts.next(), parts.next(), parts.next()];
        let patch_is_number = numbers[2].is_some_and(|patch| !patch.is_empty() && patch.bytes().all(|b| b.is_ascii_digit()));
        numbers[0] == Some("0") && numbers[1] == Some("1") && patch_is_number && parts.next().is_none()
    }
}

/// Returns the interface that the component was built for.
pub(super) fn check(outline: &Outline) -> Result<String, LoadError> {
    for name in outline.imports.iter().chain(&outline.exports) {
        if let Some(parsed) = OperatorName::parse(name)
            && !parsed.is_served()
        {
            return Err(other_version(parsed.version));
        }
    }
    let denied: Vec<String> = outline.imports.iter().filter(|name| !is_allowed(name)).cloned().collect();
    if !denied.is_empty() {
        let hint = if denied.iter().any(|name| name.starts_with("wasi:")) { WASI_HINT } else { "" };
        return Err(LoadError::ImportDenied { imports: denied, hint });
    }
    let guest = outline.exports.iter().filter_map(|name| OperatorName::parse(name)).find(|name| name.interface == "guest");
    match guest {
        Some(name) => Ok(format!("cofferdam:operator@{}", name.version)),
        None => Err(LoadError::WorldMismatch {
            reason: "the component does not export cofferdam:operator/guest, so it is no operator; build it against the world \
                     cofferdam:operator/operator"
                .to_owned(),
        }),
    }
}

fn is_allowed(name: &str) -> bool {
    OperatorName::parse(name).is_some_and(|name| IMPORTS.contains(&name.interface))
}

fn other_version(version: &str) -> LoadError {
    let built_for =
        if version.is_empty() { "no version of cofferdam:operator".to_owned() } else { format!("cofferdam:operator@{version}") };
    let reason =
        format!("the component was built for {built_for}, this host serves {SERVED}: rebuild it with the SDK of this host");
    LoadError::WorldMismatch { reason }
}
