//! Whether a run would go on from a checkpoint, and the command that does: as `run` decides, but nothing is written.

use std::path::{Path, PathBuf};

use cofferdam::config::Diagnostic;
use cofferdam::execution::JobDefinition;
use cofferdam::storage::{LocalSnapshot, LocalStorage};
use cofferdam_dataflow::checkpoint::adopt::{AdoptError, AdoptOptions, StateName, is_in_the_way, reduce};
use cofferdam_dataflow::checkpoint::coordinator::JobDescription;
use cofferdam_dataflow::checkpoint::difference::{Difference, Obstacle};
use cofferdam_dataflow::checkpoint::manifest::CheckpointManifest;
use cofferdam_dataflow::checkpoint::restore::RestorePlan;
use cofferdam_dataflow::checkpoint::storage::{CheckpointStorage, SnapshotSource, StoredCheckpoint};
use cofferdam_dataflow::ids::CheckpointId;

use super::Exit;
use super::execute::storage_failure;
use super::failure::Failure;
use super::from::{Found, From};

/// What is compared with.
pub(super) struct Against {
    /// Where it is, for people.
    pub(super) path: String,
    /// Whether the job has finished, which is in that place.
    pub(super) finished: bool,
    pub(super) checkpoint: Option<Checkpoint>,
}

/// A checkpoint or savepoint.
pub(super) struct Checkpoint {
    pub(super) manifest: CheckpointManifest,
    is_committed: bool,
    /// What `run --from` takes for it; `None` if a plain run goes on from it.
    from: Option<String>,
}

/// How it ends.
pub(super) struct Decision {
    pub(super) difference: Difference,
    /// The command that goes on, if one does.
    pub(super) command: Option<String>,
}

impl Against {
    /// Finds what a plain run would go on from.
    pub(super) fn newest(own: &Path) -> Result<Self, Failure> {
        if !own.exists() {
            return Ok(Self { path: own.display().to_string(), finished: false, checkpoint: None });
        }
        job(own, None)
    }

    /// Finds what `run --from` would start from; the folder of a job stands for its newest checkpoint.
    pub(super) fn find(from: &From, text: &str, own: &Path) -> Result<Self, Failure> {
        let path = Path::new(text);
        if from.is_path() && path.is_dir() && !path.join("_manifest").exists() {
            return job(path, Some(path));
        }
        if !own.exists() && !from.is_path() {
            let message = format!("{} does not exist: the pipeline has not run yet", own.display());
            return Err(Failure::new(Exit::Storage, Diagnostic::new("no-checkpoint", message)));
        }
        // A path needs no directory of the job.
        let place = if own.exists() { own } else { path };
        let storage = LocalStorage::open_to_read(place).map_err(|error| storage_failure(&error))?;
        match from.find(&storage)? {
            Found::Own(id) => of_storage(&storage, id, Some(id.to_string())),
            Found::Folder(folder) => {
                let snapshot = LocalSnapshot::open(&folder).map_err(|error| super::from::missing(&folder, &error))?;
                let checkpoint = read(&snapshot, &folder.display().to_string(), Some(text.to_owned()))?;
                Ok(Self { path: folder.display().to_string(), finished: false, checkpoint: Some(checkpoint) })
            }
        }
    }
}

/// Reads the newest checkpoint of a directory. `from`: how it was named.
fn job(dir: &Path, from: Option<&Path>) -> Result<Against, Failure> {
    let storage = LocalStorage::open_to_read(dir).map_err(|error| storage_failure(&error))?;
    let ids = storage.manifests().map_err(|error| storage_failure(&error))?;
    let Some(id) = ids.last().copied() else {
        let finished = storage.finished().map_err(|error| storage_failure(&error))?.is_some();
        return Ok(Against { path: dir.display().to_string(), finished, checkpoint: None });
    };
    of_storage(&storage, id, from.map(|dir| dir.join(format!("chk-{id}")).display().to_string()))
}

fn of_storage(storage: &LocalStorage, id: CheckpointId, from: Option<String>) -> Result<Against, Failure> {
    let path = storage.dir().display().to_string();
    let finished = storage.finished().map_err(|error| storage_failure(&error))?.is_some();
    let checkpoint = read(&StoredCheckpoint(storage, id), &format!("checkpoint {id} in {path}"), from)?;
    Ok(Against { path, finished, checkpoint: Some(checkpoint) })
}

fn read(source: &dyn SnapshotSource, shown: &str, from: Option<String>) -> Result<Checkpoint, Failure> {
    let bytes = source.read_manifest().map_err(|error| storage_failure(&error))?;
    let is_committed = source.is_committed().map_err(|error| storage_failure(&error))?;
    let manifest = CheckpointManifest::decode(&bytes)
        .map_err(|error| Failure::new(Exit::Storage, Diagnostic::new("storage-damaged", format!("{shown}: {error}"))))?;
    Ok(Checkpoint { manifest, is_committed, from })
}

/// A pipeline, as far as this goes.
pub(super) struct Pipeline<'a> {
    /// The pipeline file, as the user named it.
    pub(super) file: &'a Path,
    pub(super) definition: &'a JobDefinition,
    /// The job's directory.
    pub(super) own: PathBuf,
}

impl Checkpoint {
    /// Decides. `drop`: state that is left behind.
    pub(super) fn decide(&self, pipeline: &Pipeline<'_>, drop: &[StateName]) -> Result<Decision, Failure> {
        let mut difference = self.compare(pipeline, drop)?;
        let is_go = difference.obstacles.is_empty();
        let mut names = drop.to_vec();
        if !is_go {
            let more = difference.obstacles.iter().filter_map(|obstacle| StateName::parse(obstacle.drop_state.as_deref()?));
            names.extend(more);
            names.sort();
            names.dedup();
        }
        // What is told as a way out has been tried.
        let helps = is_go || (names.len() > drop.len() && self.compare(pipeline, &names)?.obstacles.is_empty());
        let command = helps.then(|| self.command(pipeline.file, &names));
        if command.is_none() && difference.obstacles.iter().all(|obstacle| obstacle.remedy.is_empty()) {
            let fresh = format!("to begin anew: cofferdam run {} --fresh", quoted(&pipeline.file.display().to_string()));
            difference.obstacles.iter_mut().for_each(|obstacle| obstacle.remedy.clone_from(&fresh));
        }
        Ok(Decision { difference, command })
    }

    fn compare(&self, pipeline: &Pipeline<'_>, drop: &[StateName]) -> Result<Difference, Failure> {
        let JobDefinition { spec, plan, digests, .. } = pipeline.definition;
        let job = JobDescription::new(spec, &pipeline.definition.engine, digests).with_imports(&pipeline.definition.imports);
        if self.from.is_none() && drop.is_empty() {
            let mut difference = Difference::new(&self.manifest, &job);
            let restore = RestorePlan::new(&self.manifest, spec, plan, digests);
            add(&mut difference, restore.err().map(|error| error.what));
            return Ok(difference);
        }
        let reduced = match reduce(&self.manifest, self.is_committed, &spec.name, drop) {
            Ok(reduced) => reduced,
            Err(error @ AdoptError::UnknownState { .. }) => {
                return Err(Failure::new(Exit::Storage, Diagnostic::new(error.code(), error.to_string())));
            }
            Err(error) => {
                let mut difference =
                    Difference::new(&CheckpointManifest { job: spec.name.clone(), ..self.manifest.clone() }, &job);
                let drop_state = match &error {
                    AdoptError::Unpublished { sink, .. } => Some(sink.to_string()),
                    _ => None,
                };
                difference.obstacles.push(Obstacle { what: error.to_string(), remedy: String::new(), drop_state });
                return Ok(difference);
            }
        };
        let mut difference = Difference::new(&reduced, &job);
        add(&mut difference, RestorePlan::new(&reduced, spec, plan, digests).err().map(|error| error.what));
        if pipeline.own.exists() {
            let storage = LocalStorage::open_to_read(&pipeline.own).map_err(|error| storage_failure(&error))?;
            let options = AdoptOptions { spec, plan, digests, fresh: false, drop, claim: None };
            match is_in_the_way(&storage, (&self.manifest, &reduced), &options) {
                Ok(_) => {}
                Err(AdoptError::Storage(error)) => return Err(storage_failure(&error)),
                Err(error) => {
                    let command = format!("{} --fresh", self.command(pipeline.file, drop));
                    let remedy = format!("to give them up, and what was published since is published again: {command}");
                    difference.obstacles.push(Obstacle { what: error.to_string(), remedy, drop_state: None });
                }
            }
        }
        Ok(difference)
    }

    fn command(&self, file: &Path, drop: &[StateName]) -> String {
        let mut command = format!("cofferdam run {}", quoted(&file.display().to_string()));
        if self.from.is_some() || !drop.is_empty() {
            let own = self.manifest.checkpoint.to_string();
            command.push_str(&format!(" --from {}", quoted(self.from.as_deref().unwrap_or(&own))));
        }
        for name in drop {
            command.push_str(&format!(" --drop-state {}", quoted(&name.to_string())));
        }
        command
    }
}

/// The restore has the last word: what it refuses is no go, whatever was found before.
fn add(difference: &mut Difference, refused: Option<String>) {
    if let (Some(what), true) = (refused, difference.obstacles.is_empty()) {
        difference.obstacles.push(Obstacle { what, remedy: String::new(), drop_state: None });
    }
}

/// Returns a word as a shell takes it: names of state come from components.
fn quoted(word: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "_-./:".contains(c);
    if !word.is_empty() && word.chars().all(is_plain) {
        return word.to_owned();
    }
    format!("'{}'", word.replace('\'', "'\\''"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_of_a_command_are_quoted_where_a_shell_would_read_more_into_them() {
        let words = ["p.toml", "count/n", "a b", "", "it's", "$(reboot)"].map(quoted);
        assert_eq!(words, ["p.toml", "count/n", "'a b'", "''", "'it'\\''s'", "'$(reboot)'"]);
    }
}
