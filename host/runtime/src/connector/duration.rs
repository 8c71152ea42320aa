//! Durations in pipeline files: `"5s"`, `"1h 30m"`.

use std::time::Duration;

use serde::de::{Deserialize, Deserializer, Error};

/// A duration; in a pipeline file a string with units, such as `"250ms"`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct HumanDuration(pub Duration);

impl<'de> Deserialize<'de> for HumanDuration {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        humantime::parse_duration(&text)
            .map(Self)
            .map_err(|error| D::Error::custom(format_args!("{text:?} is not a duration such as \"5s\" or \"250ms\": {error}")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_duration_has_a_unit() {
        #[derive(serde::Deserialize)]
        struct Table {
            pause: HumanDuration,
        }
        let read = |text: &str| toml::from_str::<Table>(text).map(|table| table.pause.0);
        assert_eq!(read("pause = \"1m 5s\"").unwrap(), Duration::from_secs(65));
        assert!(read("pause = \"5\"").unwrap_err().to_string().contains("\"5\" is not a duration"));
    }
}
