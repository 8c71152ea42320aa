//! What each operator has used in a run, over all attempts and subtasks.

use std::collections::BTreeMap;

use cofferdam::config::value::format_bytes;
use cofferdam::report::OperatorUsage;
use cofferdam_dataflow::ids::OperatorId;
use cofferdam_dataflow::subtask::TaskCounters;

use super::progress::short;

/// Adds up what operators have used.
pub(super) struct Usages {
    /// In the order of the pipeline.
    operators: Vec<OperatorId>,
    /// Of the attempts that have ended; what is held is what the last of them held.
    ended: BTreeMap<OperatorId, OperatorUsage>,
    /// Of the attempt that runs.
    current: BTreeMap<OperatorId, OperatorUsage>,
    faults: BTreeMap<OperatorId, u64>,
}

impl Usages {
    /// Begins with nothing used. Nodes that are not among `operators` are not counted.
    pub(super) fn new(operators: Vec<OperatorId>) -> Self {
        Self { operators, ended: BTreeMap::new(), current: BTreeMap::new(), faults: BTreeMap::new() }
    }

    /// Takes what the attempt that runs has used so far.
    pub(super) fn set_current(&mut self, tasks: &[TaskCounters]) {
        self.current.clear();
        for found in tasks.iter().flat_map(|task| &task.operators) {
            let usage = self.current.entry(found.operator.clone()).or_default();
            usage.records_in += found.records_in;
            usage.records_out += found.records_out;
            usage.calls += found.calls;
            usage.fuel = usage.fuel.saturating_add(found.fuel);
            usage.memory_peak_bytes = usage.memory_peak_bytes.max(found.memory_peak_bytes);
            usage.state_entries += found.state_entries;
            usage.state_bytes += found.state_bytes;
        }
    }

    /// Takes what an attempt that has ended used in all.
    pub(super) fn end_attempt(&mut self, tasks: &[TaskCounters]) {
        self.set_current(tasks);
        for (operator, last) in std::mem::take(&mut self.current) {
            let before = self.ended.remove(&operator).unwrap_or_default();
            self.ended.insert(operator, joined(&before, &last));
        }
    }

    /// Counts a failure of a subtask.
    pub(super) fn add_fault(&mut self, operator: &OperatorId) {
        *self.faults.entry(operator.clone()).or_default() += 1;
    }

    /// Returns what has been used so far.
    pub(super) fn all(&self) -> Vec<OperatorUsage> {
        let usage = |operator: &OperatorId| {
            let ended = self.ended.get(operator).cloned().unwrap_or_default();
            let usage = self.current.get(operator).map_or(ended.clone(), |current| joined(&ended, current));
            let faults = self.faults.get(operator).copied().unwrap_or(0);
            OperatorUsage { operator: operator.to_string(), faults, ..usage }
        };
        self.operators.iter().map(usage).collect()
    }
}

/// Joins what two attempts used, the second after the first.
fn joined(before: &OperatorUsage, after: &OperatorUsage) -> OperatorUsage {
    OperatorUsage {
        operator: String::new(),
        records_in: before.records_in + after.records_in,
        records_out: before.records_out + after.records_out,
        calls: before.calls + after.calls,
        fuel: before.fuel.saturating_add(after.fuel),
        memory_peak_bytes: before.memory_peak_bytes.max(after.memory_peak_bytes),
        state_entries: after.state_entries,
        state_bytes: after.state_bytes,
        faults: 0,
    }
}

/// Returns a table with a line for each operator, below a line of headings; nothing if there is no operator.
pub(super) fn table(operators: &[OperatorUsage]) -> String {
    if operators.is_empty() {
        return String::new();
    }
    let headings = ["operator", "in", "out", "calls", "fuel", "memory", "entries", "state", "faults"];
    let mut rows = vec![headings.map(str::to_owned)];
    rows.extend(operators.iter().map(|usage| {
        [
            usage.operator.clone(),
            short(usage.records_in),
            short(usage.records_out),
            short(usage.calls),
            short(usage.fuel),
            format_bytes(usage.memory_peak_bytes),
            short(usage.state_entries),
            format_bytes(usage.state_bytes),
            usage.faults.to_string(),
        ]
    }));
    let mut text = String::new();
    for row in &rows {
        text.push_str("\n ");
        for (column, cell) in row.iter().enumerate() {
            let width = rows.iter().map(|row| row[column].chars().count()).max().unwrap_or(0);
            text.push_str(&if column == 0 { format!(" {cell:width$}") } else { format!("  {cell:>width$}") });
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use cofferdam_dataflow::subtask::OperatorCounters;

    use super::*;

    fn id(name: &str) -> OperatorId {
        OperatorId::new(name).unwrap()
    }

    fn task(operators: &[(&str, u64)]) -> TaskCounters {
        let counters = |(name, n): &(&str, u64)| OperatorCounters {
            operator: id(name),
            records_in: *n,
            records_out: 2 * n,
            calls: 3 * n,
            fuel: 4 * n,
            memory_peak_bytes: 5 * n,
            state_entries: 6 * n,
            state_bytes: 7 * n,
        };
        TaskCounters { operators: operators.iter().map(counters).collect(), ..TaskCounters::default() }
    }

    #[test]
    fn attempts_and_subtasks_add_up_but_for_peaks_and_what_is_held() {
        let mut usages = Usages::new(vec![id("b"), id("a"), id("idle")]);
        usages.set_current(&[task(&[("a", 100)])]);
        usages.end_attempt(&[task(&[("a", 1000), ("b", 1)]), task(&[("a", 2000)])]);
        usages.add_fault(&id("a"));
        usages.set_current(&[task(&[("a", 1)]), task(&[("a", 2)])]);
        usages.set_current(&[task(&[("a", 10)]), task(&[("a", 20)])]);
        let all = usages.all();
        let a = OperatorUsage {
            operator: "a".into(),
            records_in: 3030,
            records_out: 6060,
            calls: 9090,
            fuel: 12_120,
            memory_peak_bytes: 10_000,
            state_entries: 180,
            state_bytes: 210,
            faults: 1,
        };
        assert_eq!(all[1], a);
        assert_eq!((all[0].operator.as_str(), all[0].records_in, all[0].state_bytes, all[0].faults), ("b", 1, 7, 0));
        assert_eq!(all[2], OperatorUsage { operator: "idle".into(), ..OperatorUsage::default() });
    }

    #[test]
    fn the_table_has_aligned_columns() {
        let usage = |operator: &str, n: u64| OperatorUsage {
            operator: operator.into(),
            records_in: n,
            records_out: n,
            calls: 7,
            fuel: n * 1000,
            memory_peak_bytes: 1 << 20,
            state_entries: 0,
            state_bytes: 0,
            faults: 2,
        };
        let expected = "
  operator     in    out  calls   fuel  memory  entries  state  faults
  split     1.23k  1.23k      7  1.23M   1 MiB        0    0 B       2
  b             5      5      7  5.00k   1 MiB        0    0 B       2";
        assert_eq!(table(&[usage("split", 1234), usage("b", 5)]), expected);
        assert_eq!(table(&[]), "");
    }
}
