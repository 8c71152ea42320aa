//! How often a sink's readers see each result, and why.

use std::fmt;

use cofferdam_dataflow::connector::{SinkGuarantee, SourceGuarantee};
use cofferdam_dataflow::graph::spec::{JobSpec, NodeKind};
use cofferdam_dataflow::ids::OperatorId;

/// How often a sink's readers see each result, failures included.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DeliveryLevel {
    /// Each result once.
    ExactlyOnce,
    /// Each result, some again after a restart.
    AtLeastOnce,
    /// After a restart results may be missing.
    AtMostOnce,
    /// No result.
    Nothing,
}

impl DeliveryLevel {
    /// Returns the name that users see.
    pub fn name(self) -> &'static str {
        match self {
            Self::ExactlyOnce => "exactly-once",
            Self::AtLeastOnce => "at-least-once",
            Self::AtMostOnce => "at-most-once",
            Self::Nothing => "nothing",
        }
    }
}

impl fmt::Display for DeliveryLevel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Returns the effective level of one sink with its reason. `sources` are those that the sink's records stem from;
/// operators never lower the level, since their state is restored with the positions. `periodic` says whether
/// checkpoints are taken on the way.
pub fn delivery_level(
    sources: &[(&OperatorId, SourceGuarantee)],
    sink: SinkGuarantee,
    periodic: bool,
) -> (DeliveryLevel, String) {
    if sink == SinkGuarantee::None {
        return (DeliveryLevel::Nothing, "the sink drops what it gets".to_owned());
    }
    if let Some((id, _)) = sources.iter().find(|(_, source)| !source.replayable) {
        return (DeliveryLevel::AtMostOnce, format!("the source \"{id}\" cannot be read again from a position"));
    }
    match sink {
        SinkGuarantee::Immediate => {
            let reason = "state is exactly-once, but the sink's output is visible at once and again after a restart";
            (DeliveryLevel::AtLeastOnce, reason.to_owned())
        }
        _ if !periodic => match sources.iter().find(|(_, source)| !source.bounded) {
            Some((id, _)) => {
                let reason = format!("output is published by checkpoints, which are off, and the source \"{id}\" never ends");
                (DeliveryLevel::Nothing, reason)
            }
            None => {
                let reason = "all output is published at the end; a restart begins anew, for checkpoints are off on the way";
                (DeliveryLevel::ExactlyOnce, reason.to_owned())
            }
        },
        _ => {
            let reason = "sources replay, state is restored, output is published together with a completed checkpoint";
            (DeliveryLevel::ExactlyOnce, reason.to_owned())
        }
    }
}

/// Returns the sources that a node's records stem from, in the order of the job.
pub fn sources_of<'a>(spec: &'a JobSpec, id: &OperatorId) -> Vec<&'a OperatorId> {
    let mut seen = vec![false; spec.nodes.len()];
    let index = |id: &OperatorId| spec.nodes.iter().position(|node| node.id == *id);
    let mut open: Vec<_> = index(id).into_iter().collect();
    while let Some(next) = open.pop() {
        if !std::mem::replace(&mut seen[next], true) {
            open.extend(spec.nodes[next].inputs.iter().filter_map(|input| index(&input.from)));
        }
    }
    let upstream = spec.nodes.iter().zip(seen);
    upstream.filter(|(node, seen)| *seen && node.kind == NodeKind::Source).map(|(node, _)| &node.id).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_weakest_part_decides_the_level_and_is_named() {
        let (file, socket) = (OperatorId::new("file").unwrap(), OperatorId::new("socket").unwrap());
        let replayable = SourceGuarantee { replayable: true, bounded: true };
        let endless = SourceGuarantee { replayable: true, bounded: false };
        let lossy = SourceGuarantee { replayable: false, bounded: false };
        let good = [(&file, replayable)];
        let cases = [
            (delivery_level(&good, SinkGuarantee::Transactional, true), DeliveryLevel::ExactlyOnce, "completed checkpoint"),
            (delivery_level(&good, SinkGuarantee::Immediate, true), DeliveryLevel::AtLeastOnce, "again after a restart"),
            (delivery_level(&good, SinkGuarantee::None, true), DeliveryLevel::Nothing, "drops"),
            (delivery_level(&good, SinkGuarantee::Transactional, false), DeliveryLevel::ExactlyOnce, "at the end"),
            (delivery_level(&[(&file, endless)], SinkGuarantee::Transactional, false), DeliveryLevel::Nothing, "never ends"),
            (
                delivery_level(&[(&file, replayable), (&socket, lossy)], SinkGuarantee::Transactional, true),
                DeliveryLevel::AtMostOnce,
                "\"socket\"",
            ),
        ];
        for ((level, reason), expected, word) in cases {
            assert_eq!(level, expected, "{reason}");
            assert!(reason.contains(word), "{reason}");
        }
    }
}
