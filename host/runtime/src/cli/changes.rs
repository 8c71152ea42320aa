//! `plan`: what would change if a pipeline went on from a checkpoint. Starts nothing and writes nothing.

use std::fmt::Write as _;
use std::path::Path;

use cofferdam::config::Diagnostic;
use cofferdam::storage::LocalStorage;
use cofferdam_dataflow::checkpoint::coordinator::JobDescription;
use cofferdam_dataflow::checkpoint::difference::{
    ComponentDifference, Difference, NodeDifference, Obstacle, SlotChange, SlotDifference,
};
use cofferdam_dataflow::checkpoint::manifest::CheckpointManifest;
use cofferdam_dataflow::checkpoint::restore::RestorePlan;
use cofferdam_dataflow::checkpoint::storage::CheckpointStorage;
use cofferdam_dataflow::ids::CheckpointId;
use serde::Serialize;

use super::Exit;
use super::arguments::PlanArguments;
use super::checkpoints::moment;
use super::execute::storage_failure;
use super::failure::Failure;
use super::run::{self, Prepared};
use super::terminal::{Paint, Style, Terminal};
use super::wiring;

/// Manifests are far smaller; what claims to be larger is none.
const MANIFEST_BYTES_MAX: u64 = 256 << 20;

/// What `plan` says.
#[derive(Debug, Serialize)]
struct Changes {
    event: &'static str,
    pipeline: String,
    /// Whether `run` would go on.
    go: bool,
    /// Whether the job has finished: there is nothing to go on with.
    finished: bool,
    /// What it was compared with; `None` if there is no checkpoint.
    against: Option<Against>,
    #[serde(flatten)]
    difference: Option<Difference>,
}

#[derive(Debug, Serialize)]
struct Against {
    /// Where the checkpoint is.
    path: String,
    attempt: u64,
    created_ms: i64,
    engine: String,
}

/// Compares a pipeline with the checkpoint it would go on from.
pub(super) fn plan(arguments: &PlanArguments, terminal: &Terminal) -> Result<Exit, Failure> {
    let prepared = run::prepare(&arguments.file, &arguments.prepare, terminal)?;
    let found = manifest(&prepared, arguments.against.as_deref())?;
    let changes = compare(&prepared, found)?;
    terminal.result(&changes, |paint| text(&changes, paint))?;
    Ok(if changes.go { Exit::Done } else { Exit::Storage })
}

struct Found {
    path: String,
    finished: bool,
    manifest: Option<CheckpointManifest>,
}

/// Reads the manifest to compare with: the newest of the job, one of its numbers, or what a folder holds.
fn manifest(prepared: &Prepared, against: Option<&str>) -> Result<Found, Failure> {
    let own = &prepared.file.checkpoint.storage;
    match against {
        None if !own.exists() => Ok(Found { path: own.display().to_string(), finished: false, manifest: None }),
        None => stored(own, None),
        Some(text) => match text.parse() {
            Ok(id) => stored(own, Some(id)),
            Err(_) => folder(Path::new(text)),
        },
    }
}

/// A folder with a manifest is a checkpoint or a savepoint; another one is that of a job.
fn folder(path: &Path) -> Result<Found, Failure> {
    let file = path.join("_manifest");
    if !file.exists() {
        return stored(path, None);
    }
    let unreadable =
        |what: String| Failure::new(Exit::Storage, Diagnostic::new("storage-damaged", format!("{}: {what}", file.display())));
    let length = std::fs::metadata(&file).map_err(|error| unreadable(error.to_string()))?.len();
    if length > MANIFEST_BYTES_MAX {
        return Err(unreadable(format!("{length} bytes are no manifest")));
    }
    let bytes = std::fs::read(&file).map_err(|error| unreadable(error.to_string()))?;
    let manifest = CheckpointManifest::decode(&bytes).map_err(|error| unreadable(error.to_string()))?;
    Ok(Found { path: path.display().to_string(), finished: false, manifest: Some(manifest) })
}

fn stored(path: &Path, id: Option<u64>) -> Result<Found, Failure> {
    let storage = LocalStorage::open_to_read(path).map_err(|error| storage_failure(&error))?;
    let finished = storage.finished().map_err(|error| storage_failure(&error))?.is_some();
    let ids = storage.manifests().map_err(|error| storage_failure(&error))?;
    let wanted = id.map(CheckpointId).or_else(|| ids.last().copied());
    let Some(wanted) = wanted else {
        return Ok(Found { path: path.display().to_string(), finished, manifest: None });
    };
    if !ids.contains(&wanted) {
        let what = format!("{} holds no checkpoint {wanted}", path.display());
        return Err(Failure::new(Exit::Storage, Diagnostic::new("no-checkpoint", what)));
    }
    let bytes = storage.read_manifest(wanted).map_err(|error| storage_failure(&error))?;
    let manifest = CheckpointManifest::decode(&bytes).map_err(|error| {
        let what = format!("checkpoint {wanted} in {}: {error}", path.display());
        Failure::new(Exit::Storage, Diagnostic::new("storage-damaged", what))
    })?;
    Ok(Found { path: path.display().to_string(), finished, manifest: Some(manifest) })
}

fn compare(prepared: &Prepared, found: Found) -> Result<Changes, Failure> {
    let Found { path, finished, manifest } = found;
    let pipeline = prepared.spec.name.clone();
    let Some(manifest) = manifest else {
        return Ok(Changes { event: "changes", pipeline, go: true, finished, against: None, difference: None });
    };
    let definition = wiring::definition(prepared)?;
    let job = JobDescription::new(&definition.spec, &definition.engine, &definition.digests).with_imports(&definition.imports);
    let mut difference = Difference::new(&manifest, &job);
    // The restore has the last word: what it refuses is no go, whatever was found here.
    let restore = RestorePlan::new(&manifest, &definition.spec, &definition.plan, &definition.digests);
    if let (Err(error), true) = (restore, difference.obstacles.is_empty()) {
        difference.obstacles.push(Obstacle { what: error.what, remedy: "start with --fresh".into() });
    }
    let (attempt, created_ms) = (manifest.attempt.0, manifest.created.0);
    let against = Against { path, attempt, created_ms, engine: manifest.engine };
    let go = difference.obstacles.is_empty();
    Ok(Changes { event: "changes", pipeline, go, finished, against: Some(against), difference: Some(difference) })
}

fn text(changes: &Changes, paint: Paint) -> String {
    let (Some(against), Some(difference)) = (&changes.against, &changes.difference) else {
        return match changes.finished {
            true => format!("{} has finished: there is nothing to go on with; --fresh starts anew\n", changes.pipeline),
            false => format!("{} has no checkpoint: a run begins at the beginning\n", changes.pipeline),
        };
    };
    let head = format!("{} against checkpoint {}", changes.pipeline, difference.checkpoint);
    let mut text = format!("{}\n", paint.paint(Style::Strong, head));
    let taken = format!("taken {} by attempt {} ({})", moment(against.created_ms), against.attempt, one_line(&against.engine));
    // Writing to a string cannot fail; so below.
    let _ = writeln!(text, "  {}, in {}", paint.paint(Style::Faint, taken), against.path);
    let width = difference.nodes.iter().map(|node| node.id.to_string().len()).max().unwrap_or(0);
    for node in &difference.nodes {
        let _ = writeln!(text, "  {:width$}  {} {}", node.id.to_string(), node.kind, parallelism(node));
        for line in node_lines(node, paint) {
            let _ = writeln!(text, "  {:width$}    {line}", "");
        }
    }
    let (was, is) = difference.max_parallelism;
    let groups = if was == is { format!("{is}, as before") } else { format!("{was} -> {is}") };
    let _ = writeln!(text, "key groups: {groups}; keys are bytes and keep their group");
    match changes.go {
        true => {
            let verdict = paint.paint(Style::Good, "go");
            let _ = writeln!(text, "{verdict}: a run goes on from checkpoint {}", difference.checkpoint);
        }
        false => {
            let _ = writeln!(text, "{}:", paint.paint(Style::Error, "no go"));
            for obstacle in &difference.obstacles {
                let _ = writeln!(text, "  - {}\n    {}", one_line(&obstacle.what), obstacle.remedy);
            }
        }
    }
    text
}

fn parallelism(node: &NodeDifference) -> String {
    match (node.was, node.is) {
        (Some(was), Some(is)) if was == is => format!("x{is}"),
        (Some(was), Some(is)) => {
            let moves = match node.kind {
                "source" => "splits are dealt out anew",
                "operator" => "key groups move as a whole",
                _ => "new transactions go to other subtasks",
            };
            format!("x{was} -> x{is}: {moves}")
        }
        (None, Some(is)) => format!("x{is}: new, begins empty"),
        (Some(was), None) => format!("x{was}: gone"),
        (None, None) => String::new(),
    }
}

fn node_lines(node: &NodeDifference, paint: Paint) -> Vec<String> {
    let mut lines = node.component.as_ref().map(component_lines).unwrap_or_default();
    lines.extend(node.slots.iter().map(|slot| slot_line(slot, paint)));
    let (ended, open): (Vec<_>, Vec<_>) = node.positions.iter().partition(|position| position.finished);
    lines.extend(open.iter().map(|at| format!("goes on in {} at {}", one_line(&at.split), one_line(&at.position))));
    if !ended.is_empty() {
        lines.push(format!("{} read to the end", ended.len()));
    }
    if node.transactions > 0 {
        lines.push(format!("{} prepared transactions are published first, unless that has happened", node.transactions));
    }
    lines
}

fn component_lines(component: &ComponentDifference) -> Vec<String> {
    let short = |digest: &str| if digest.is_empty() { "none".to_owned() } else { digest.chars().take(12).collect() };
    let mut lines = vec![match component.was == component.is {
        true => format!("component {}, as before", short(&component.is)),
        false => format!("component {} -> {}", short(&component.was), short(&component.is)),
    }];
    if !component.imports_added.is_empty() {
        lines.push(format!("may use in addition: {}", component.imports_added.join(", ")));
    }
    if !component.imports_dropped.is_empty() {
        lines.push(format!("may not use any more: {}", component.imports_dropped.join(", ")));
    }
    lines
}

fn slot_line(slot: &SlotDifference, paint: Paint) -> String {
    let (style, what) = match &slot.change {
        SlotChange::Same => (Style::Good, "same".to_owned()),
        SlotChange::Unchecked => (Style::Warning, "not checked: there is no schema on one side".to_owned()),
        SlotChange::Compatible(changes) => (Style::Good, format!("compatible: {}", changes.join(", "))),
        SlotChange::Migrated(changes) => (Style::Good, format!("migrated: {}", changes.join(", "))),
        SlotChange::New => (Style::Good, "new, begins empty".to_owned()),
        SlotChange::Gone => (Style::Faint, "gone; it was empty".to_owned()),
        SlotChange::Orphaned => (Style::Error, "orphaned: it has state and is not declared".to_owned()),
        SlotChange::Incompatible(reasons) => (Style::Error, format!("incompatible: {}", reasons.join(", "))),
    };
    format!("state {}: {}", one_line(&slot.name), paint.paint(style, one_line(&what)))
}

/// What components and checkpoints say is untrusted: it must not draw on the terminal.
fn one_line(text: &str) -> String {
    let shown: String = text.chars().take(2000).map(|c| if c.is_control() { '\u{fffd}' } else { c }).collect();
    if text.chars().count() > 2000 { shown + "…" } else { shown }
}

#[cfg(test)]
mod tests {
    use cofferdam_dataflow::checkpoint::difference::SourcePosition;
    use cofferdam_dataflow::ids::OperatorId;

    use super::*;

    fn node(id: &str, kind: &'static str, was: Option<u32>, is: Option<u32>) -> NodeDifference {
        let id = OperatorId::new(id).unwrap();
        NodeDifference { id, kind, was, is, component: None, slots: vec![], positions: vec![], transactions: 0 }
    }

    fn slot(name: &str, change: SlotChange) -> SlotDifference {
        SlotDifference { name: name.into(), has_state: true, change }
    }

    fn changes(obstacles: Vec<Obstacle>) -> Changes {
        let position = |split: &str, finished| SourcePosition { split: split.into(), position: "line 12".into(), finished };
        let component = ComponentDifference {
            was: "a".repeat(64),
            is: "b".repeat(64),
            imports_added: vec!["cofferdam:operator/logging@0.1.0".into()],
            imports_dropped: vec![],
        };
        let slots = vec![
            slot("n", SlotChange::Migrated(vec!["T.new added with the default 0".into()])),
            slot("old", SlotChange::Orphaned),
        ];
        let difference = Difference {
            checkpoint: CheckpointId(7),
            max_parallelism: (128, 128),
            nodes: vec![
                NodeDifference {
                    positions: vec![position("a.txt", false), position("b\u{1b}.txt", true)],
                    ..node("lines", "source", Some(1), Some(1))
                },
                NodeDifference { component: Some(component), slots, ..node("count", "operator", Some(2), Some(4)) },
                NodeDifference { transactions: 2, ..node("out", "sink", Some(1), Some(1)) },
                node("more", "sink", None, Some(1)),
                node("less", "sink", Some(3), None),
            ],
            obstacles,
        };
        let against =
            Against { path: "/state".into(), attempt: 3, created_ms: 1_700_000_000_123, engine: "cofferdam 0.1.0".into() };
        Changes {
            event: "changes",
            pipeline: "words".into(),
            go: difference.obstacles.is_empty(),
            finished: false,
            against: Some(against),
            difference: Some(difference),
        }
    }

    #[test]
    fn all_that_would_change_is_told() {
        let expected = "\
words against checkpoint 7
  taken 2023-11-14 22:13:20 UTC by attempt 3 (cofferdam 0.1.0), in /state
  lines  source x1
           goes on in a.txt at line 12
           1 read to the end
  count  operator x2 -> x4: key groups move as a whole
           component aaaaaaaaaaaa -> bbbbbbbbbbbb
           may use in addition: cofferdam:operator/logging@0.1.0
           state n: migrated: T.new added with the default 0
           state old: orphaned: it has state and is not declared
  out    sink x1
           2 prepared transactions are published first, unless that has happened
  more   sink x1: new, begins empty
  less   sink x3: gone
key groups: 128, as before; keys are bytes and keep their group
";
        let go = text(&changes(vec![]), Paint(false));
        assert_eq!(go, format!("{expected}go: a run goes on from checkpoint 7\n"));
        let obstacle = Obstacle { what: "a\nslot".into(), remedy: "declare it".into() };
        let no_go = text(&changes(vec![obstacle]), Paint(false));
        assert_eq!(no_go, format!("{expected}no go:\n  - a\u{fffd}slot\n    declare it\n"));
    }

    #[test]
    fn as_json_it_is_one_object() {
        let value = serde_json::to_value(changes(vec![])).unwrap();
        assert_eq!((&value["event"], &value["go"], &value["checkpoint"]), (&"changes".into(), &true.into(), &7.into()));
        assert_eq!(value["nodes"][1]["slots"][0]["verdict"], "migrated");
        assert_eq!(value["nodes"][1]["slots"][1]["verdict"], "orphaned");
        let nothing = Changes { against: None, difference: None, ..changes(vec![]) };
        assert!(text(&nothing, Paint(false)).contains("begins at the beginning"));
        assert!(serde_json::to_value(nothing).unwrap().get("nodes").is_none());
    }
}
