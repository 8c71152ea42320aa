//! The sink `blackhole`: counts records and drops them.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use cofferdam_dataflow::batch::Batch;
use cofferdam_dataflow::connector::{
    ConnectorContext, ConnectorError, Prepared, Sink, SinkCommitter, SinkFactory, SinkGuarantee,
};
use cofferdam_dataflow::ids::CheckpointId;
use serde::Deserialize;

/// Options of the sink `blackhole`: none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct BlackholeOptions {}

/// Counts what its writers drop.
#[derive(Debug, Default)]
pub struct Blackhole {
    counts: Arc<Counts>,
}

#[derive(Debug, Default)]
struct Counts {
    records: AtomicU64,
    bytes: AtomicU64,
}

/// Returns the sink `blackhole`.
pub fn blackhole_sink() -> Arc<Blackhole> {
    Arc::default()
}

impl Blackhole {
    /// Returns how many records were written, repetitions after restarts included.
    pub fn records(&self) -> u64 {
        self.counts.records.load(Ordering::Relaxed)
    }

    /// Returns how many bytes of values were written, repetitions after restarts included.
    pub fn bytes(&self) -> u64 {
        self.counts.bytes.load(Ordering::Relaxed)
    }
}

impl SinkFactory for Blackhole {
    fn guarantee(&self) -> SinkGuarantee {
        SinkGuarantee::None
    }

    fn open(&self, _: &ConnectorContext) -> Result<Box<dyn Sink>, ConnectorError> {
        Ok(Box::new(Hole(Arc::clone(&self.counts))))
    }

    fn committer(&self) -> Result<Option<Box<dyn SinkCommitter>>, ConnectorError> {
        Ok(None)
    }
}

struct Hole(Arc<Counts>);

impl Sink for Hole {
    fn write(&mut self, batch: &Batch) -> Result<(), ConnectorError> {
        self.0.records.fetch_add(batch.len() as u64, Ordering::Relaxed);
        self.0.bytes.fetch_add(batch.values.bytes() as u64, Ordering::Relaxed);
        Ok(())
    }

    fn prepare(&mut self, _: CheckpointId) -> Result<Option<Prepared>, ConnectorError> {
        Ok(None)
    }
}

#[cfg(test)]
mod tests {
    use cofferdam_dataflow::ids::OperatorId;

    use super::*;

    #[test]
    fn all_writers_count_together() {
        let factory = blackhole_sink();
        let context = ConnectorContext { id: OperatorId::new("drop").unwrap(), subtask: 0, parallelism: 2 };
        let mut batch = Batch::default();
        batch.push(None, None, b"four");
        batch.push(None, None, b"");
        for _ in 0..2 {
            let mut sink = factory.open(&context).unwrap();
            sink.write(&batch).unwrap();
            assert!(sink.prepare(CheckpointId(1)).unwrap().is_none());
        }
        assert_eq!((factory.records(), factory.bytes()), (4, 8));
        assert!(factory.committer().unwrap().is_none());
    }
}
