//! Numbers that guests report about themselves.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

/// Names for each operator; others are ignored and counted.
const NAMES_MAX: usize = 64;

/// The value of a metric.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum MetricValue {
    /// A sum over all subtasks that only grows, at most to `u64::MAX`.
    Counter(u64),
    /// What a subtask set last.
    Gauge(f64),
}

/// The metrics of one operator. Shared by its subtasks.
#[derive(Debug, Default)]
pub struct OperatorMetrics {
    inner: Mutex<Inner>,
}

#[derive(Debug, Default)]
struct Inner {
    values: BTreeMap<String, MetricValue>,
    ignored: u64,
}

impl OperatorMetrics {
    /// Adds to the counter `name`.
    pub(super) fn add(&self, name: &str, delta: u64) {
        self.change(name, MetricValue::Counter(0), |value| match value {
            MetricValue::Counter(sum) => {
                *sum = sum.saturating_add(delta);
                true
            }
            MetricValue::Gauge(_) => false,
        });
    }

    /// Sets the gauge `name`.
    pub(super) fn set(&self, name: &str, to: f64) {
        self.change(name, MetricValue::Gauge(0.0), |value| match value {
            MetricValue::Gauge(now) => {
                *now = to;
                true
            }
            MetricValue::Counter(_) => false,
        });
    }

    /// Returns all metrics, in the order of their names.
    pub fn snapshot(&self) -> Vec<(String, MetricValue)> {
        let inner = self.inner.lock().unwrap_or_else(PoisonError::into_inner);
        inner.values.iter().map(|(name, value)| (name.clone(), *value)).collect()
    }

    /// Returns how many changes were ignored: of a name that is not 1 to 64 of `[a-z0-9_]`, of one name too many, or of
    /// a counter as a gauge.
    pub fn ignored(&self) -> u64 {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner).ignored
    }

    fn change(&self, name: &str, initial: MetricValue, apply: impl FnOnce(&mut MetricValue) -> bool) {
        let mut inner = self.inner.lock().unwrap_or_else(PoisonError::into_inner);
        if !inner.values.contains_key(name) && is_name(name) && inner.values.len() < NAMES_MAX {
            inner.values.insert(name.to_owned(), initial);
        }
        let applied = inner.values.get_mut(name).is_some_and(apply);
        if !applied {
            inner.ignored += 1;
        }
    }
}

fn is_name(name: &str) -> bool {
    (1..=64).contains(&name.len()) && name.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'_')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_a_metric_is_ignored_and_counted() {
        let metrics = OperatorMetrics::default();
        metrics.add("lines", 2);
        metrics.add("lines", u64::MAX);
        metrics.set("depth", 1.5);
        metrics.set("lines", 1.0);
        metrics.add("Lines", 1);
        metrics.add("", 1);
        metrics.add(&"a".repeat(65), 1);
        let want = [("depth".to_owned(), MetricValue::Gauge(1.5)), ("lines".to_owned(), MetricValue::Counter(u64::MAX))];
        assert_eq!(metrics.snapshot(), want);
        assert_eq!(metrics.ignored(), 4);
        (0..100).for_each(|i| metrics.add(&format!("n{i}"), 1));
        assert_eq!((metrics.snapshot().len(), metrics.ignored()), (64, 42));
    }
}
