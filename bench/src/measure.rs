//! One run of a job: its records, its time, its CPU time and its peak memory.

use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use cofferdam::execution::{ExecutionEvent, JobDefinition, RunOptions, execute};
use cofferdam::storage::LocalStorage;
use cofferdam_dataflow::checkpoint::storage::CheckpointStorage;
use cofferdam_dataflow::job::master::{JobEnd, JobReport};
use rustix::time::{ClockId, clock_gettime};

/// What a run came to.
#[derive(Clone, Debug, Default)]
pub(crate) struct Run {
    pub(crate) records: u64,
    pub(crate) wall: Duration,
    pub(crate) cpu: Duration,
    pub(crate) peak_bytes: u64,
    pub(crate) checkpoints: u32,
    /// Every snapshot's pause of a task, by the clock and in CPU time, each ascending.
    pub(crate) pauses: Pauses,
    /// Times of the slowest checkpoint from trigger to commit.
    pub(crate) checkpoint_ms_max: u64,
}

impl Run {
    pub(crate) fn per_cpu_second(&self) -> f64 {
        self.records as f64 / self.cpu.as_secs_f64()
    }

    pub(crate) fn per_second(&self) -> f64 {
        self.records as f64 / self.wall.as_secs_f64()
    }

    pub(crate) fn cpu_ns_per_record(&self) -> f64 {
        self.cpu.as_secs_f64() * 1e9 / self.records as f64
    }
}

/// Times of pauses.
#[derive(Clone, Debug, Default)]
pub(crate) struct Pauses {
    pub(crate) wall: Vec<Duration>,
    pub(crate) cpu: Vec<Duration>,
}

impl Pauses {
    pub(crate) fn push(&mut self, wall: Duration, cpu: Duration) {
        self.wall.push(wall);
        self.cpu.push(cpu);
    }

    pub(crate) fn sort(&mut self) {
        self.wall.sort_unstable();
        self.cpu.sort_unstable();
    }
}

/// Returns a percentile of ascending times in microseconds; 0 if there is none.
pub(crate) fn percentile_us(times: &[Duration], percent: usize) -> f64 {
    let at = (times.len() * percent).div_ceil(100).saturating_sub(1);
    times.get(at).map_or(0.0, |time| time.as_secs_f64() * 1e6)
}

/// Runs a job to its end, over checkpoints in a directory of its own.
pub(crate) fn run_once(definition: JobDefinition) -> Result<Run> {
    let dir = std::env::temp_dir().join(format!("cofferdam-bench-{}", std::process::id()));
    let storage = Arc::new(LocalStorage::open(&dir)?);
    let result = run(definition, storage);
    // Of no use any more, whatever came of the run.
    let _ = std::fs::remove_dir_all(&dir);
    result
}

fn run(definition: JobDefinition, storage: Arc<dyn CheckpointStorage>) -> Result<Run> {
    reset_peak();
    let mut run = Run::default();
    let (cpu, start) = (process_cpu(), Instant::now());
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let (_controls, receiver) = tokio::sync::mpsc::unbounded_channel();
    let mut observe = |event| match event {
        ExecutionEvent::AttemptEnded(counters) => {
            run.records = counters.iter().map(|task: &cofferdam_dataflow::subtask::TaskCounters| task.source_records).sum();
        }
        ExecutionEvent::SnapshotPause { pause, .. } => run.pauses.push(pause.wall, pause.cpu),
        ExecutionEvent::Report(JobReport::CheckpointCompleted { duration_ms, .. }) => {
            run.checkpoints += 1;
            run.checkpoint_ms_max = run.checkpoint_ms_max.max(duration_ms);
        }
        _ => {}
    };
    let end = runtime.block_on(execute(definition, storage, RunOptions::default(), receiver, &mut observe))?;
    (run.wall, run.cpu) = (start.elapsed(), process_cpu() - cpu);
    run.peak_bytes = peak()?;
    run.pauses.sort();
    match end {
        JobEnd::Finished { .. } => Ok(run),
        other => bail!("the job did not finish: {other:?}"),
    }
}

/// Returns the CPU time of all threads.
pub(crate) fn process_cpu() -> Duration {
    cpu(ClockId::ProcessCPUTime)
}

/// Returns the CPU time of this thread.
pub(crate) fn thread_cpu() -> Duration {
    cpu(ClockId::ThreadCPUTime)
}

fn cpu(clock: ClockId) -> Duration {
    Duration::try_from(clock_gettime(clock)).unwrap_or_default()
}

/// Begins a new peak of resident memory.
fn reset_peak() {
    // Not allowed everywhere: then the peak is that of the process.
    let _ = std::fs::write("/proc/self/clear_refs", "5");
}

fn peak() -> Result<u64> {
    let status = std::fs::read_to_string("/proc/self/status")?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).context("a peak of resident memory")?;
    Ok(line.trim().trim_end_matches(" kB").trim().parse::<u64>()? * 1024)
}
