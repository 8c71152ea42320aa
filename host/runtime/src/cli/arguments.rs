//! The command line as clap reads it.

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand, ValueEnum};

/// Runs dataflows of untrusted WebAssembly operators with exactly-once state and output.
#[derive(Debug, Parser)]
#[command(name = "cofferdam", version, propagate_version = true, arg_required_else_help = true)]
pub(crate) struct Arguments {
    #[command(flatten)]
    pub(crate) global: Global,
    #[command(subcommand)]
    pub(crate) verb: Verb,
}

#[derive(Debug, Args)]
pub(crate) struct Global {
    /// How to print: text for people, or JSON, one object a line.
    #[arg(long, global = true, value_enum, default_value_t)]
    pub(crate) output: OutputFormat,
    /// When to use colours.
    #[arg(long, global = true, value_enum, default_value_t)]
    pub(crate) color: Color,
    /// Log more: -v debug, -vv trace.
    #[arg(short, long, global = true, action = clap::ArgAction::Count)]
    pub(crate) verbose: u8,
    /// Print errors and results only.
    #[arg(short, long, global = true, conflicts_with = "verbose")]
    pub(crate) quiet: bool,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum OutputFormat {
    #[default]
    Text,
    Json,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum Color {
    /// On a terminal, unless NO_COLOR is set.
    #[default]
    Auto,
    Always,
    Never,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Verb {
    /// Make a new operator crate that compiles, passes its test and runs in a pipeline.
    New(NewArguments),
    /// Compile operator crates to components.
    Build(BuildArguments),
    /// Show what a component is: interface, imports, ports, state, digest.
    Inspect(InspectArguments),
    /// Check a pipeline file with its components and show the plan.
    Check(CheckArguments),
    /// Compare a pipeline and its components with the checkpoint that a run would go on from, without starting anything.
    Plan(PlanArguments),
    /// Run a pipeline until its input ends or Ctrl-C stops it; resume it if it ran before.
    Run(RunArguments),
    /// Say why a window or timer has not fired: watermarks, what holds them back, and pending timers.
    Explain(ExplainArguments),
    /// Take a savepoint of a running pipeline: a copy of its state to keep, move, and start from. The pipeline goes on.
    Savepoint(SavepointArguments),
    /// Stop a running pipeline with a last checkpoint, or with a savepoint; it can be resumed.
    Stop(StopArguments),
    /// Let a running pipeline end where its input is: windows close, operators finish, and nothing is left to resume.
    Drain(StopArguments),
    /// Look at stored checkpoints.
    #[command(subcommand)]
    Checkpoint(CheckpointVerb),
    /// Look inside stored state.
    #[command(subcommand)]
    State(StateVerb),
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum TemplateName {
    /// One record in, one out.
    #[default]
    Operator,
    /// State for each key.
    Keyed,
    /// A configuration; some records pass.
    Filter,
}

#[derive(Debug, Args)]
pub(crate) struct NewArguments {
    /// The crate's name: a-z, 0-9 and '-'.
    pub(crate) name: String,
    /// What the operator does to begin with.
    #[arg(long, value_enum, default_value_t)]
    pub(crate) template: TemplateName,
    /// The folder to make it in [default: the name].
    #[arg(long, value_name = "DIR")]
    pub(crate) path: Option<PathBuf>,
}

#[derive(Debug, Args)]
pub(crate) struct BuildArguments {
    /// Folders of operator crates, or pipeline files whose crates are built.
    #[arg(default_value = ".")]
    pub(crate) paths: Vec<PathBuf>,
    /// Build even what has not changed.
    #[arg(long)]
    pub(crate) force: bool,
}

#[derive(Debug, Args)]
pub(crate) struct InspectArguments {
    /// A component, or the folder of an operator crate that was built.
    pub(crate) component: PathBuf,
}

#[derive(Debug, Args)]
pub(crate) struct CheckArguments {
    /// The pipeline file.
    pub(crate) file: PathBuf,
    #[command(flatten)]
    pub(crate) prepare: PrepareArguments,
}

#[derive(Debug, Args)]
pub(crate) struct PlanArguments {
    /// The pipeline file.
    pub(crate) file: PathBuf,
    /// Compare with what `run --from` would start from: a number, `latest`, or the folder of a checkpoint, a savepoint or a
    /// job [default: what a plain run goes on from].
    #[arg(long, value_name = "PATH|ID|latest")]
    pub(crate) against: Option<String>,
    /// As if that state were left behind by `run --from ... --drop-state`. Repeatable.
    #[arg(long, value_name = "OPERATOR[/SLOT]", requires = "against")]
    pub(crate) drop_state: Vec<String>,
    #[command(flatten)]
    pub(crate) prepare: PrepareArguments,
}

#[derive(Debug, Args)]
pub(crate) struct RunArguments {
    /// The pipeline file.
    pub(crate) file: PathBuf,
    /// Forget the checkpoints of earlier runs and start from the beginning of the input. Published output stays.
    #[arg(long)]
    pub(crate) fresh: bool,
    /// If the newest checkpoint is damaged, go back to an older one: output may then be published twice.
    #[arg(long, conflicts_with = "fresh")]
    pub(crate) allow_rewind: bool,
    /// Start from a savepoint's folder, from a checkpoint's (`chk-<id>` in a job's directory), from this job's checkpoint or
    /// savepoint with that number, or from the `latest` of them.
    #[arg(long, value_name = "PATH|ID|latest", conflicts_with = "allow_rewind")]
    pub(crate) from: Option<String>,
    /// Take the savepoint over: it is deleted when it is not needed any more.
    #[arg(long, requires = "from")]
    pub(crate) claim: bool,
    /// Leave state behind: a slot of an operator, or all that an operator, source or sink has in it. Repeatable.
    #[arg(long, value_name = "OPERATOR[/SLOT]", requires = "from")]
    pub(crate) drop_state: Vec<String>,
    #[command(flatten)]
    pub(crate) prepare: PrepareArguments,
}

#[derive(Debug, Args)]
pub(crate) struct ExplainArguments {
    /// A pipeline file, or a job's directory. If nothing runs, its newest checkpoint is read.
    pub(crate) path: PathBuf,
    /// One operator or source [default: all].
    pub(crate) operator: Option<String>,
}

#[derive(Debug, Args)]
pub(crate) struct SavepointArguments {
    /// A pipeline file, or the folder that its checkpoints are in.
    pub(crate) path: PathBuf,
    /// The savepoint's folder, which must not exist or be empty [default: savepoints/savepoint-<id> beside the checkpoints].
    #[arg(long, value_name = "DIR")]
    pub(crate) to: Option<PathBuf>,
}

#[derive(Debug, Args)]
pub(crate) struct StopArguments {
    /// A pipeline file, or the folder that its checkpoints are in.
    pub(crate) path: PathBuf,
    /// With a savepoint, in this folder if one is given, which must not exist or be empty.
    #[arg(long, value_name = "DIR", num_args = 0..=1)]
    pub(crate) savepoint: Option<Option<PathBuf>>,
}

#[derive(Debug, Args)]
pub(crate) struct PrepareArguments {
    /// Do not build operator crates: refuse the pipeline if one has changed since it was built.
    #[arg(long)]
    pub(crate) no_build: bool,
    /// Subtasks of each node that sets no parallelism of its own, instead of the file's.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=32_768))]
    pub(crate) parallelism: Option<u32>,
}

#[derive(Debug, Subcommand)]
pub(crate) enum CheckpointVerb {
    /// List the checkpoints of a pipeline.
    List(ListArguments),
    /// Show one checkpoint and verify its files.
    Show(ShowArguments),
    /// Show what differs between two checkpoints: keys, bytes, positions.
    Diff(DiffArguments),
    /// Read everything a checkpoint is made of: every file, block and entry. Exits with 3 if anything is damaged.
    Verify(VerifyArguments),
    /// Delete what no checkpoint needs: files that a host which died left behind. The next run does so, too.
    Gc(GcArguments),
}

#[derive(Debug, Args)]
pub(crate) struct DiffArguments {
    /// A pipeline file, or the folder that its checkpoints are in.
    pub(crate) path: PathBuf,
    /// The older checkpoint's number.
    pub(crate) from: u64,
    /// The newer one's.
    pub(crate) to: u64,
    /// List keys that differ: so many of each slot, or 100.
    #[arg(long, value_name = "LIMIT", num_args = 0..=1, default_missing_value = "100")]
    pub(crate) keys: Option<u32>,
}

#[derive(Debug, Args)]
pub(crate) struct VerifyArguments {
    /// A pipeline file, or the folder that its checkpoints are in.
    pub(crate) path: PathBuf,
    /// The checkpoint's number [default: the newest].
    #[arg(conflicts_with = "all")]
    pub(crate) id: Option<u64>,
    /// Verify all checkpoints.
    #[arg(long)]
    pub(crate) all: bool,
}

#[derive(Debug, Args)]
pub(crate) struct GcArguments {
    /// A pipeline file, or the folder that its checkpoints are in.
    pub(crate) path: PathBuf,
    /// Show what would be deleted. Allowed while a host runs the job, and then lists only what older runs left.
    #[arg(long)]
    pub(crate) dry_run: bool,
}

#[derive(Debug, Subcommand)]
pub(crate) enum StateVerb {
    /// List the state of all operators: kind, codec, schema, keys, bytes.
    Ls(LsArguments),
    /// Show the value of one key. Reads only the part of the state that can have it.
    Get(GetArguments),
    /// Show keys and values of a slot, by key group and then by key.
    Scan(ScanArguments),
    /// Write all keys and values of a slot to a file of JSON lines.
    Export(ExportArguments),
}

#[derive(Debug, Args)]
pub(crate) struct SlotArguments {
    /// A pipeline file, or the folder that its checkpoints are in.
    pub(crate) path: PathBuf,
    /// The operator and its slot.
    #[arg(value_name = "OPERATOR/SLOT", value_parser = operator_and_slot)]
    pub(crate) slot: (String, String),
    /// The checkpoint's number [default: the newest].
    #[arg(long, value_name = "ID")]
    pub(crate) checkpoint: Option<u64>,
    /// Have the running pipeline take a checkpoint, wait for it, and read that one.
    #[arg(long, conflicts_with = "checkpoint")]
    pub(crate) now: bool,
}

#[derive(Debug, Args)]
pub(crate) struct LsArguments {
    /// A pipeline file, or the folder that its checkpoints are in.
    pub(crate) path: PathBuf,
    /// The checkpoint's number [default: the newest].
    pub(crate) id: Option<u64>,
    /// Have the running pipeline take a checkpoint, wait for it, and read that one.
    #[arg(long, conflicts_with = "id")]
    pub(crate) now: bool,
}

#[derive(Debug, Args)]
pub(crate) struct GetArguments {
    #[command(flatten)]
    pub(crate) slot: SlotArguments,
    /// The key: its text, or hex:00ff, u64:7, i64:-7 (8 bytes, the lowest first), json:VALUE, text:ANYTHING.
    pub(crate) key: String,
}

#[derive(Debug, Args)]
pub(crate) struct ScanArguments {
    #[command(flatten)]
    pub(crate) slot: SlotArguments,
    /// Only keys that begin so; written as the key of `get`.
    #[arg(long, value_name = "KEY")]
    pub(crate) prefix: Option<String>,
    /// At most so many.
    #[arg(long, value_name = "N")]
    pub(crate) limit: Option<u64>,
    /// Only this key group.
    #[arg(long, value_name = "N")]
    pub(crate) key_group: Option<u16>,
}

#[derive(Debug, Args)]
pub(crate) struct ExportArguments {
    #[command(flatten)]
    pub(crate) slot: SlotArguments,
    /// The file to write. It must not exist.
    #[arg(long, value_name = "FILE")]
    pub(crate) to: PathBuf,
}

fn operator_and_slot(text: &str) -> Result<(String, String), String> {
    match text.split_once('/') {
        Some((operator, slot)) if !operator.is_empty() && !slot.is_empty() => Ok((operator.to_owned(), slot.to_owned())),
        _ => Err("expected an operator and its slot, such as count/n".to_owned()),
    }
}

#[derive(Debug, Args)]
pub(crate) struct ListArguments {
    /// A pipeline file, or the folder that its checkpoints are in.
    pub(crate) path: PathBuf,
}

#[derive(Debug, Args)]
pub(crate) struct ShowArguments {
    /// A pipeline file, or the folder that its checkpoints are in.
    pub(crate) path: PathBuf,
    /// The checkpoint's number [default: the newest].
    pub(crate) id: Option<u64>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_is_consistent_and_contradictions_are_refused() {
        use clap::CommandFactory as _;
        Arguments::command().debug_assert();
        let parse = |line: &str| Arguments::try_parse_from(line.split(' '));
        assert!(parse("cofferdam run p.toml --fresh --parallelism 4 --output json -v").is_ok());
        assert!(parse("cofferdam plan p.toml --against 7 --no-build").is_ok());
        assert!(parse("cofferdam state scan p.toml count/n --prefix hex:00 --limit 3 --key-group 7 --checkpoint 4").is_ok());
        assert!(parse("cofferdam state ls p.toml --now").is_ok());
        assert!(parse("cofferdam checkpoint diff dir 1 2 --keys").is_ok());
        for right in [
            "cofferdam run p.toml --from s --claim --fresh --drop-state a --drop-state b/n",
            "cofferdam savepoint p.toml --to s",
            "cofferdam stop p.toml --savepoint",
            "cofferdam stop p.toml --savepoint s",
            "cofferdam drain p.toml",
        ] {
            assert!(parse(right).is_ok(), "{right}");
        }
        for wrong in [
            "cofferdam run",
            "cofferdam run p.toml --fresh --allow-rewind",
            "cofferdam run p.toml --claim",
            "cofferdam run p.toml --drop-state count",
            "cofferdam plan p.toml --drop-state count",
            "cofferdam run p.toml --from latest --allow-rewind",
            "cofferdam savepoint",
            "cofferdam plan",
            "cofferdam -q -v build",
            "cofferdam run p --parallelism 0",
            "cofferdam state get p count key",
            "cofferdam state get p count/n key --now --checkpoint 3",
            "cofferdam state ls p 3 --now",
            "cofferdam state export p count/n",
            "cofferdam checkpoint verify p 3 --all",
        ] {
            assert_eq!(parse(wrong).expect_err(wrong).exit_code(), 2);
        }
    }
}
