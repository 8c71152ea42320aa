//! A connector's own options: kept as text until the connector that knows them reads them.

use serde::de::DeserializeOwned;
use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::diagnostic::{Diagnostic, Place, nearest};

/// A source's or sink's table, for its connector to read.
#[derive(Clone, Debug)]
pub struct ConnectorTable {
    /// The connector's name, one of those this host has.
    pub connector: String,
    kind: &'static str,
    id: String,
    /// Keys of the table that are not the connector's.
    common: &'static [&'static str],
    place: Place,
}

impl ConnectorTable {
    pub(super) fn new(connector: String, kind: &'static str, id: &str, common: &'static [&'static str], place: Place) -> Self {
        Self { connector, kind, id: id.to_owned(), common, place }
    }

    /// Returns where the table begins, for errors of the connector.
    pub fn place(&self) -> &Place {
        &self.place
    }

    /// Reads the connector's options.
    ///
    /// # Errors
    /// A [`Diagnostic`] at the option that is unknown, missing or of a wrong type.
    pub fn options<T: DeserializeOwned>(&self) -> Result<T, Diagnostic> {
        self.read(|_, table| Some(T::deserialize(table)))
    }

    /// Hands the connector's name and options to a reader that knows connectors; it returns `None` for an unknown one.
    ///
    /// # Errors
    /// A [`Diagnostic`] at the option that is unknown, missing or of a wrong type, or for an unknown connector.
    pub fn read<T>(
        &self,
        read: impl FnOnce(&str, toml::Deserializer<'_>) -> Option<Result<T, toml::de::Error>>,
    ) -> Result<T, Diagnostic> {
        let (root, _) = DeTable::parse_recoverable(self.place.source.text());
        let table = lookup(root, self.kind, &self.id).map(|mut table| {
            for key in self.common {
                table.get_mut().remove(*key);
            }
            table
        });
        let table = table.unwrap_or_else(|| Spanned::new(self.place.span.clone(), DeTable::new()));
        match read(&self.connector, toml::Deserializer::from(table)) {
            Some(result) => result.map_err(|error| self.explain(&error)),
            None => {
                let message = format!("there is no {} connector \"{}\"", self.kind, self.connector);
                Err(Diagnostic::at(self.place.clone(), "unknown-connector", message))
            }
        }
    }

    /// Turns serde's wording into ours.
    fn explain(&self, error: &toml::de::Error) -> Diagnostic {
        let title = format!("[{}.{}]", self.kind, self.id);
        // Serde reports a missing field at the whole table, whose header is a better place.
        let span = error.span().filter(|span| !span.is_empty()).unwrap_or_else(|| self.place.span.clone());
        let place = Place { source: self.place.source.clone(), span };
        let message = error.message().trim();
        if let Some(rest) = message.strip_prefix("unknown field `") {
            let (field, expected) = rest.split_once('`').unwrap_or((rest, ""));
            let known: Vec<_> = expected.split('`').skip(1).step_by(2).collect();
            let all = self.common.iter().chain(&known).copied();
            let help = match nearest(field, all.clone()) {
                Some(meant) => format!("did you mean \"{meant}\"?"),
                None => format!("the keys here are {}", all.collect::<Vec<_>>().join(", ")),
            };
            let message = format!("unknown key \"{field}\" in {title} (connector \"{}\")", self.connector);
            return Diagnostic::at(place, "unknown-key", message).with_help(help);
        }
        if let Some(field) = message.strip_prefix("missing field `").and_then(|rest| rest.strip_suffix('`')) {
            let message = format!("{title} (connector \"{}\") lacks the key \"{field}\"", self.connector);
            return Diagnostic::at(self.place.clone(), "missing-key", message);
        }
        let code = if message.starts_with("invalid type") { "wrong-type" } else { "bad-value" };
        Diagnostic::at(place, code, message.replace('`', "\""))
    }
}

/// Returns the table `[kind.id]`.
fn lookup<'i>(root: Spanned<DeTable<'i>>, kind: &str, id: &str) -> Option<Spanned<DeTable<'i>>> {
    let mut value = root.into_inner().remove(kind)?;
    let DeValue::Table(tables) = value.get_mut() else { return None };
    let found = tables.remove(id)?;
    let span = found.span();
    match found.into_inner() {
        DeValue::Table(table) => Some(Spanned::new(span, table)),
        _ => None,
    }
}
