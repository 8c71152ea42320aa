//! Translates where tasks are in event time into what people and programs read: by subtask, with the names of the graph.

use std::time::{SystemTime, UNIX_EPOCH};

use cofferdam::execution::JobDefinition;
use cofferdam::report::time::{InputTime, PipelineTime, SourceTime, SplitTime, SubtaskTime, TimersTime};
use cofferdam::stored::show_bytes;
use cofferdam_dataflow::ids::OperatorId;
use cofferdam_dataflow::subtask::{Activity, HeadTime, OperatorTime, SourceActivity, SourceReport, TaskTime};
use cofferdam_dataflow::time::Watermark;

/// What the tasks of a job are: the names behind their numbers.
pub(super) struct Places(Vec<Place>);

/// One task.
struct Place {
    subtask: u32,
    /// Its sources and operators, in the order of the flow.
    nodes: Vec<OperatorId>,
    /// The end of the chain that each channel comes from, and the port it feeds.
    inputs: Vec<(OperatorId, u32, u32)>,
}

impl Places {
    pub(super) fn of(definition: &JobDefinition) -> Self {
        let (spec, plan) = (&definition.spec, &definition.plan);
        let id = |node: &usize| spec.nodes[*node].id.clone();
        let input = |input: &cofferdam_dataflow::graph::plan::TaskInput| {
            let from = &plan.tasks[plan.channels[input.channel.0].from.0];
            let last = from.nodes.last().map(id)?;
            Some((last, from.subtask, input.port))
        };
        let place = |task: &cofferdam_dataflow::graph::plan::TaskPlan| Place {
            subtask: task.subtask,
            nodes: task.nodes.iter().map(id).collect(),
            inputs: task.inputs.iter().filter_map(input).collect(),
        };
        Self(plan.tasks.iter().map(place).collect())
    }

    /// Puts the names to what the tasks have answered.
    pub(super) fn time(&self, times: &[Option<TaskTime>]) -> PipelineTime {
        let subtasks = self.0.iter().zip(times).flat_map(|(place, time)| match time {
            Some(time) => place.subtasks(time),
            None => place.no_answer(),
        });
        PipelineTime { now_ms: now_ms(), checkpoint: None, subtasks: subtasks.collect() }
    }
}

impl Place {
    fn no_answer(&self) -> Vec<SubtaskTime> {
        let of = |operator: &OperatorId| {
            let (operator, subtask) = (operator.to_string(), self.subtask);
            SubtaskTime { operator, subtask, no_answer: true, ..SubtaskTime::default() }
        };
        self.nodes.iter().map(of).collect()
    }

    fn subtasks(&self, time: &TaskTime) -> Vec<SubtaskTime> {
        let mut subtasks: Vec<SubtaskTime> = Vec::new();
        let mut inputs = match &time.head {
            HeadTime::Source(report) => {
                subtasks.push(source(report));
                Vec::new()
            }
            HeadTime::Inputs(inputs) => {
                let inputs = inputs.iter().zip(&self.inputs).map(|(time, (from, subtask, port))| InputTime {
                    from: from.to_string(),
                    subtask: *subtask,
                    port: *port,
                    watermark_ms: ms(time.watermark),
                    activity: activity(time.activity).into(),
                    waits_for_barriers: time.waits_for_barriers,
                });
                inputs.collect()
            }
        };
        for operator in &time.operators {
            if let Some(before) = subtasks.last() {
                // The one before it in the chain is its only input.
                inputs = vec![chained(before)];
            }
            subtasks.push(self::operator(operator, std::mem::take(&mut inputs)));
        }
        subtasks
    }
}

fn chained(before: &SubtaskTime) -> InputTime {
    let activity = match &before.source {
        Some(source) if matches!(source.activity.as_str(), "idle" | "untimed") => "idle",
        _ if before.watermark_ms == Some(i64::MAX) => "ended",
        // A chain that has been told that all is idle is not active either, but what it has was not told by its head.
        _ if !before.inputs.is_empty() && before.inputs.iter().all(|input| input.activity == "idle") => "idle",
        _ => "active",
    };
    InputTime {
        from: before.operator.clone(),
        subtask: before.subtask,
        port: 0,
        watermark_ms: before.watermark_ms,
        activity: activity.into(),
        waits_for_barriers: false,
    }
}

fn operator(time: &OperatorTime, inputs: Vec<InputTime>) -> SubtaskTime {
    let timers = time.timers.iter().map(|timers| TimersTime {
        domain: timers.domain.name().into(),
        pending: timers.pending,
        next_ms: timers.next.as_ref().map(|(ms, _)| *ms),
        next_key: timers.next.as_ref().map(|(_, key)| show_bytes(key)),
    });
    SubtaskTime {
        operator: time.id.operator.to_string(),
        subtask: time.id.index,
        no_answer: false,
        watermark_ms: ms(time.watermark),
        finished: time.finished,
        source: None,
        inputs,
        timers: timers.collect(),
    }
}

fn source(report: &SourceReport) -> SubtaskTime {
    let (activity, group_ms, max_drift_ms) = match report.activity {
        SourceActivity::Active => ("active", None, None),
        SourceActivity::Untimed => ("untimed", None, None),
        SourceActivity::Idle => ("idle", None, None),
        SourceActivity::Ahead { group, max_drift_ms } => ("ahead", Some(group.0), Some(max_drift_ms)),
        SourceActivity::Held => ("held", None, None),
        SourceActivity::Ended => ("ended", None, None),
    };
    let splits = report.splits.iter().map(|split| SplitTime {
        split: split.split.clone(),
        position: split.position.clone(),
        latest_ms: split.latest.map(|time| time.0),
        idle: split.idle,
        at_end_ms: split.at_end_ms,
    });
    let source = SourceTime {
        activity: activity.into(),
        out_of_orderness_ms: report.out_of_orderness_ms,
        idle_timeout_ms: report.idle_timeout_ms,
        group_ms,
        max_drift_ms,
        unfinished_splits: report.unfinished,
        splits: splits.collect(),
    };
    SubtaskTime {
        operator: report.id.operator.to_string(),
        subtask: report.id.index,
        watermark_ms: ms(report.watermark),
        finished: activity == "ended",
        source: Some(source),
        ..SubtaskTime::default()
    }
}

fn activity(activity: Activity) -> &'static str {
    match activity {
        Activity::Active => "active",
        Activity::Idle => "idle",
        Activity::Ended => "ended",
    }
}

fn ms(watermark: Option<Watermark>) -> Option<i64> {
    watermark.map(|watermark| watermark.0.0)
}

/// Returns the host's clock in milliseconds since the Unix epoch.
pub(super) fn now_ms() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_millis()).unwrap_or(i64::MAX)
}
