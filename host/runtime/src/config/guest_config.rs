//! What a guest is told: its configuration as JSON, and secrets by name.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde_json::{Map, Number, Value};
use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::diagnostic::{Diagnostic, Problems};
use super::section::{At, Section};

pub(super) const SECRET_KEYS: &[&str] = &["env", "file"];

/// The most bytes of configuration that a guest is handed.
const CONFIG_BYTES_MAX: usize = 64 << 10;

/// Where a secret is found. The secret itself is never kept here, printed or checkpointed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SecretRef {
    /// An environment variable of the host.
    Env(String),
    /// A file, beside the pipeline file if relative. One final newline is dropped.
    File(PathBuf),
}

/// Reads `config` and `secrets` of an operator.
pub(super) fn read(section: &Section<'_, '_>, problems: &mut Problems) -> (Map<String, Value>, BTreeMap<String, SecretRef>) {
    let config = match section.table("config", "a table", problems) {
        Some((table, span)) => {
            let config = object(table, problems);
            if let Err(error) = encode(config.clone()) {
                problems.push(Diagnostic { place: Some(problems.place(span)), ..error });
            }
            config
        }
        None => Map::new(),
    };
    let mut secrets = BTreeMap::new();
    let expected = "a table such as { token = { env = \"TOKEN\" } }";
    if let Some((table, _)) = section.table("secrets", expected, problems) {
        for (name, found) in table.iter() {
            let at = At { value: name.get_ref().to_string(), span: name.span() };
            if config.contains_key(&at.value) {
                let message = format!("\"{}\" is both in config and in secrets", at.value.escape_debug());
                problems.add(at.span.clone(), "contradiction", message);
            }
            if let Some(secret) = read_secret(&at, found, problems) {
                secrets.insert(at.value, secret);
            }
        }
    }
    (config, secrets)
}

fn read_secret(name: &At<String>, found: &Spanned<DeValue<'_>>, problems: &mut Problems) -> Option<SecretRef> {
    // The value is not shown: someone may have written the secret itself.
    let expected = "expected { env = \"NAME\" } or { file = \"path\" }";
    let DeValue::Table(table) = found.get_ref() else {
        let message = format!("the secret \"{}\" is no table, {expected}", name.value.escape_debug());
        problems.add(found.span(), "wrong-type", message);
        return None;
    };
    let title = format!("the secret \"{}\"", name.value.escape_debug());
    let section = Section::open(title, table, name.span.clone(), SECRET_KEYS, problems);
    let (env, file) = (section.string("env", "a name", problems), section.string("file", "a path", problems));
    match (env, file) {
        (Some(env), None) if !env.value.is_empty() && !env.value.contains(['=', '\0']) => Some(SecretRef::Env(env.value)),
        (None, Some(file)) if !file.value.is_empty() && !file.value.contains('\0') => Some(SecretRef::File(file.value.into())),
        _ => {
            problems.add(name.span.clone(), "bad-value", format!("the secret \"{}\": {expected}", name.value.escape_debug()));
            None
        }
    }
}

/// Returns the bytes that the guest's `open` gets: the configuration, with the secrets as strings beside it.
///
/// # Errors
/// A [`Diagnostic`] that names the secret that is not there, or `config-too-large`. It never shows a secret.
pub(super) fn resolve(
    config: &Map<String, Value>,
    secrets: &BTreeMap<String, SecretRef>,
    base_dir: &Path,
    env: &dyn Fn(&str) -> Option<String>,
) -> Result<Vec<u8>, Diagnostic> {
    let mut object = config.clone();
    for (name, secret) in secrets {
        let lost = |why: String| Diagnostic::new("secret-missing", format!("the secret \"{}\" {why}", name.escape_debug()));
        let value = match secret {
            SecretRef::Env(variable) => {
                env(variable).ok_or_else(|| lost(format!("needs the environment variable {variable}")))?
            }
            SecretRef::File(path) => {
                let path = base_dir.join(path);
                let text = std::fs::read_to_string(&path);
                let text = text.map_err(|error| lost(format!("cannot be read from {}: {error}", path.display())))?;
                text.strip_suffix('\n').map_or(text.clone(), str::to_owned)
            }
        };
        object.insert(name.clone(), Value::String(value));
    }
    encode(object)
}

fn encode(config: Map<String, Value>) -> Result<Vec<u8>, Diagnostic> {
    let bytes = Value::Object(config).to_string().into_bytes();
    if bytes.len() > CONFIG_BYTES_MAX {
        let message = format!("the configuration is {} bytes of JSON, at most {CONFIG_BYTES_MAX} are allowed", bytes.len());
        return Err(Diagnostic::new("config-too-large", message));
    }
    Ok(bytes)
}

fn object(table: &DeTable<'_>, problems: &mut Problems) -> Map<String, Value> {
    table.iter().map(|(key, value)| (key.get_ref().to_string(), json(value, problems))).collect()
}

fn json(value: &Spanned<DeValue<'_>>, problems: &mut Problems) -> Value {
    match value.get_ref() {
        DeValue::String(text) => Value::String(text.to_string()),
        DeValue::Boolean(flag) => Value::Bool(*flag),
        // Dates become the text they are written as.
        DeValue::Datetime(date) => Value::String(date.to_string()),
        DeValue::Array(list) => Value::Array(list.iter().map(|item| json(item, problems)).collect()),
        DeValue::Table(table) => Value::Object(object(table, problems)),
        DeValue::Integer(number) => match i64::from_str_radix(number.as_str(), number.radix()) {
            Ok(number) => Value::Number(number.into()),
            Err(_) => no_number(value, problems),
        },
        DeValue::Float(number) => match number.as_str().parse().ok().and_then(Number::from_f64) {
            Some(number) => Value::Number(number),
            None => no_number(value, problems),
        },
    }
}

fn no_number(value: &Spanned<DeValue<'_>>, problems: &mut Problems) -> Value {
    let message = format!("{} cannot be written as JSON", super::section::described(value.get_ref()));
    problems.add_with_help(value.span(), "bad-value", message, "a configuration reaches the operator as JSON");
    Value::Null
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secrets_are_resolved_by_name_and_a_missing_one_is_named() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("token"), "abc\n").unwrap();
        let config = Map::from_iter([("limit".to_owned(), Value::from(3))]);
        let mut secrets = BTreeMap::from([("token".to_owned(), SecretRef::File("token".into()))]);
        let env = |name: &str| (name == "KEY").then(|| "k".to_owned());
        assert_eq!(resolve(&config, &secrets, dir.path(), &env).unwrap(), br#"{"limit":3,"token":"abc"}"#);
        secrets.insert("key".to_owned(), SecretRef::Env("KEY".into()));
        assert_eq!(resolve(&config, &secrets, dir.path(), &env).unwrap(), br#"{"key":"k","limit":3,"token":"abc"}"#);
        secrets.insert("other".to_owned(), SecretRef::Env("NONE".into()));
        let error = resolve(&config, &secrets, dir.path(), &env).unwrap_err();
        assert_eq!(
            (error.code, error.message.as_str()),
            ("secret-missing", "the secret \"other\" needs the environment variable NONE")
        );
    }
}
