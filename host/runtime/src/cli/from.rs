//! `run --from`: which savepoint or checkpoint a run starts from, and taking it over.

use std::path::{Path, PathBuf};

use cofferdam::config::Diagnostic;
use cofferdam::execution::JobDefinition;
use cofferdam::storage::{LocalSnapshot, LocalStorage};
use cofferdam_dataflow::checkpoint::adopt::{AdoptError, AdoptOptions, StateName, adopt};
use cofferdam_dataflow::checkpoint::storage::{
    CheckpointStorage, SnapshotSource, StorageError, StorageErrorKind, StoredCheckpoint,
};
use cofferdam_dataflow::ids::CheckpointId;

use super::Exit;
use super::arguments::RunArguments;
use super::execute::storage_failure;
use super::failure::{Failure, chain};
use super::terminal::Terminal;

/// What to start from.
#[derive(Clone, Debug)]
pub(super) struct From {
    place: Place,
    claim: bool,
    drop: Vec<StateName>,
}

#[derive(Clone, Debug)]
enum Place {
    Latest,
    Id(CheckpointId),
    Path(PathBuf),
}

enum Found {
    Own(CheckpointId),
    Folder(PathBuf),
}

impl From {
    /// Reads what the command line says, if it says anything.
    pub(super) fn new(arguments: &RunArguments) -> Result<Option<Self>, Failure> {
        let Some(from) = &arguments.from else { return Ok(None) };
        let place = match from.parse() {
            _ if from == "latest" => Place::Latest,
            Ok(id) => Place::Id(CheckpointId(id)),
            Err(_) => Place::Path(PathBuf::from(from)),
        };
        let parse = |name: &String| {
            let bad = || Diagnostic::new("bad-value", format!("--drop-state {name:?} is neither OPERATOR nor OPERATOR/SLOT"));
            StateName::parse(name).ok_or_else(bad)
        };
        let drop = arguments.drop_state.iter().map(parse).collect::<Result<_, _>>()?;
        Ok(Some(Self { place, claim: arguments.claim, drop }))
    }

    /// Makes it the newest checkpoint of the job. Returns whether there was anything to do for it.
    pub(super) fn adopt(
        &self,
        storage: &LocalStorage,
        definition: &JobDefinition,
        fresh: bool,
        terminal: &Terminal,
    ) -> Result<bool, Failure> {
        let found = self.find(storage)?;
        let ids = storage.manifests().map_err(|error| storage_failure(&error))?;
        if let Found::Own(id) = found
            && ids.last() == Some(&id)
            && self.drop.is_empty()
            && !self.claim
            && !fresh
        {
            // A run starts from it anyway.
            return Ok(false);
        }
        let (shown, claim, source): (String, Option<String>, Box<dyn SnapshotSource + '_>) = match &found {
            Found::Own(id) => (format!("checkpoint {id}"), None, Box::new(StoredCheckpoint(storage, *id))),
            Found::Folder(path) => {
                let snapshot = LocalSnapshot::open(path).map_err(|error| missing(path, &error))?;
                let text = path.display().to_string();
                let claim = (self.claim && snapshot.is_savepoint()).then(|| text.clone());
                (text, claim, Box::new(snapshot))
            }
        };
        if self.claim && claim.is_none() {
            let message = format!("{shown} is a job's checkpoint and stays that job's: --claim is for savepoints");
            return Err(Diagnostic::new("contradiction", message).into());
        }
        let options = AdoptOptions {
            spec: &definition.spec,
            plan: &definition.plan,
            digests: &definition.digests,
            fresh,
            drop: &self.drop,
            claim: claim.as_deref(),
        };
        let id = adopt(storage, &*source, &options).map_err(|error| refused(&shown, &error))?;
        terminal.note(&format!("starting from {shown}, which is checkpoint {id} of this job now"));
        Ok(true)
    }

    fn find(&self, storage: &LocalStorage) -> Result<Found, Failure> {
        let savepoints = storage.dir().join("savepoints");
        let own = storage.manifests().map_err(|error| storage_failure(&error))?;
        match &self.place {
            Place::Path(path) => match path.canonicalize() {
                Ok(path) => Ok(Found::Folder(path)),
                Err(error) => Err(missing(path, &StorageError::io(format!("cannot open {}", path.display()), error))),
            },
            Place::Id(id) if own.contains(id) => Ok(Found::Own(*id)),
            Place::Id(id) => {
                let path = savepoints.join(format!("savepoint-{id}"));
                path.canonicalize().map(Found::Folder).map_err(|_| none(storage, &format!("no checkpoint and no savepoint {id}")))
            }
            Place::Latest => {
                let saved = saved(&savepoints).last().copied();
                match (own.last().copied(), saved) {
                    (own, Some(saved)) if own < Some(saved) => {
                        let path = savepoints.join(format!("savepoint-{saved}"));
                        path.canonicalize()
                            .map(Found::Folder)
                            .map_err(|error| missing(&path, &StorageError::io(format!("cannot open {}", path.display()), error)))
                    }
                    (Some(own), _) => Ok(Found::Own(own)),
                    (None, _) => Err(none(storage, "no checkpoint and no savepoint")),
                }
            }
        }
    }
}

/// Returns the numbers of the savepoints in a folder, ascending.
fn saved(folder: &Path) -> Vec<CheckpointId> {
    let names = std::fs::read_dir(folder).into_iter().flatten().filter_map(|entry| entry.ok()?.file_name().into_string().ok());
    let whole = names.filter(|name| folder.join(name).join("_manifest").is_file());
    let mut ids: Vec<_> = whole.filter_map(|name| name.strip_prefix("savepoint-")?.parse().ok()).map(CheckpointId).collect();
    ids.sort_unstable();
    ids
}

fn none(storage: &LocalStorage, what: &str) -> Failure {
    Failure::new(Exit::Storage, Diagnostic::new("no-checkpoint", format!("{} holds {what}", storage.dir().display())))
}

fn missing(path: &Path, error: &StorageError) -> Failure {
    let problem = match error.kind {
        StorageErrorKind::NotFound => {
            let message = format!("{} is no savepoint: it has no manifest", path.display());
            let help = "give the folder of a savepoint, or chk-<id> in a job's directory";
            Diagnostic::new("no-checkpoint", message).with_help(help)
        }
        _ => Diagnostic::new("storage-unusable", chain(error)),
    };
    Failure::new(Exit::Storage, problem)
}

fn refused(shown: &str, error: &AdoptError) -> Failure {
    let code = error.code();
    let text = chain(error);
    // The code stands before some messages already.
    let text = text.strip_prefix(&format!("{code}: ")).unwrap_or(&text);
    Failure::new(Exit::Storage, Diagnostic::new(code, format!("cannot start from {shown}: {text}")))
}
