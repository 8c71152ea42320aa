//! What a call into a guest costs: nanoseconds a call and a record, without the rest of a pipeline.

use std::rc::Rc;
use std::time::Instant;

use anyhow::Result;
use cofferdam_dataflow::column::BytesColumn;
use cofferdam_dataflow::guest::{EffectLimits, InputBatch, InstanceInfo, NoState, StateReads};
use cofferdam_dataflow::ids::OperatorId;
use cofferdam_dataflow::key_group::MaxParallelism;
use cofferdam_dataflow::state::{StateOwner, SubtaskState};
use cofferdam_dataflow::time::ProcessingTime;

use crate::operators::{How, Operators};

const BATCH: usize = 1000;
const CALLS: usize = 2000;
const RUNS: usize = 7;

pub(crate) fn print(operators: &Operators) -> Result<()> {
    println!("\nboundary: one call of the keyed count, 100-byte records, 1000 distinct keys present; best of {RUNS} passes");
    println!("operator | records a call | ns a call | ns a record");
    for how in [How::Native, How::Wasm] {
        let few = call_ns(operators, how, 1)?;
        let many = call_ns(operators, how, BATCH)?;
        println!("{} | 1 | {few:.0} | {few:.0}", how.name());
        println!("{} | {BATCH} | {many:.0} | {:.1}", how.name(), many / BATCH as f64);
        println!("{} | fixed part | {few:.0} | {:.1}", how.name(), (many - few) / (BATCH - 1) as f64);
    }
    Ok(())
}

/// Measures `process_batch` alone: the frame is filled before, and its effects are dropped.
fn call_ns(operators: &Operators, how: How, records: usize) -> Result<f64> {
    let factory = operators.keyed_count(how, false);
    let info = InstanceInfo { operator: OperatorId::new("count")?, subtask: 0, parallelism: 1, limits: EffectLimits::default() };
    let mut guest = factory.open(&info)?;
    let keys: Vec<[u8; 8]> = (0..records as u64).map(u64::to_le_bytes).collect();
    let keys: BytesColumn = keys.iter().map(|key| &key[..]).collect();
    let values: BytesColumn = (0..records).map(|_| &[7_u8; 100][..]).collect();
    let max_parallelism = MaxParallelism::new(128).expect("in range");
    let owner = StateOwner { max_parallelism, groups: 0..128, subtask: 0 };
    let mut state = SubtaskState::new(owner, &factory.descriptor().tables(), 42, 1 << 30);
    let reads: Rc<dyn StateReads> = Rc::new(NoState);
    let mut best = f64::MAX;
    let calls = if records == 1 { 50 * CALLS } else { CALLS };
    for run in 0..=RUNS {
        state.fill_frame(keys.as_slice(), &[], ProcessingTime(0))?;
        let mut effects = None;
        let start = Instant::now();
        for _ in 0..calls {
            let input = InputBatch {
                port: 0,
                watermark: None,
                processing_time: ProcessingTime(0),
                rows: state.frame().rows(),
                times: &[],
                untimed: &[],
                values: values.as_slice(),
            };
            effects = Some(state.frame().with_view(|frame| guest.process_batch(&input, frame, &reads))?);
        }
        let ns = start.elapsed().as_secs_f64() * 1e9 / calls as f64;
        if run == 0 {
            // The first pass fills the state, so that the others find every key.
            state.apply(&effects.take().expect("there was a call"));
        } else {
            best = best.min(ns);
        }
    }
    Ok(best)
}
