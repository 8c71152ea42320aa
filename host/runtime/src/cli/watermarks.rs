//! What a source's key `watermark` means for its connector.

use cofferdam::config::{Diagnostic, WatermarkOptions};
use cofferdam_dataflow::connector::SourceFactory;
use cofferdam_dataflow::subtask::{Alignment, Progress, WatermarkStrategy};

/// Returns how a source's watermarks follow from its records; `None` if none do, and it holds nobody back.
///
/// # Errors
/// `option-refused` if the connector cannot do what is asked for.
pub(super) fn strategy(options: &WatermarkOptions, factory: &dyn SourceFactory) -> Result<Option<WatermarkStrategy>, Diagnostic> {
    let (out_of_orderness_ms, idle_timeout_ms, alignment) = match options {
        WatermarkOptions::None => return Ok(None),
        WatermarkOptions::Default if !factory.has_event_time() => return Ok(None),
        WatermarkOptions::Default => (None, None, None),
        WatermarkOptions::Given { place, out_of_orderness_ms, idle_timeout_ms, alignment } => {
            let refuse = |why: &str| Err(Diagnostic::at(place.clone(), "option-refused", why));
            if !factory.has_event_time() {
                return refuse("watermark needs records with an event time: give the source one, such as event-time = \"/at\"");
            }
            if out_of_orderness_ms.is_some() && factory.declares_watermarks() {
                return refuse("out-of-orderness does not go with watermark-field: the field says how far the records are");
            }
            if idle_timeout_ms.is_some() && !factory.declares_idleness() {
                return refuse("idle-timeout is for sources that wait for records, such as files with follow = true");
            }
            (*out_of_orderness_ms, *idle_timeout_ms, alignment.clone())
        }
    };
    let progress = match factory.declares_watermarks() {
        true => Progress::Declared,
        false => Progress::OutOfOrderness { ms: out_of_orderness_ms.unwrap_or(0) },
    };
    let alignment = alignment.map(|(group, max_drift_ms)| Alignment { group, max_drift_ms });
    Ok(Some(WatermarkStrategy { progress, idle_timeout_ms, alignment }))
}
