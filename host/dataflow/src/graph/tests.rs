//! Which edges an operator with a broadcast input may have.

use super::plan::ExecutionPlan;
use super::spec::{InputSpec, JobSpec, NodeKind, NodeSpec, Partition, SpecError};
use crate::guest::{Descriptor, InputPort};
use crate::ids::OperatorId;
use crate::key_group::MaxParallelism;

/// Two sources, one of them feeding the broadcast input of a keyed operator.
fn job(parallelism: u32, rules: Option<Partition>) -> JobSpec {
    let id = |name: &str| OperatorId::new(name).unwrap();
    let input = |from: &str, to_port, partition| InputSpec { from: id(from), from_port: 0, to_port, partition };
    let port = |name: &str, broadcast| InputPort { name: name.into(), broadcast };
    let descriptor = Descriptor {
        inputs: vec![port("records", false), port("rules", true)],
        outputs: vec!["out".into()],
        slots: vec![],
        timers: vec![],
        keyed: true,
        max_batch: 0,
    };
    let node = |name, parallelism, kind, inputs| NodeSpec { id: id(name), parallelism, kind, inputs };
    JobSpec {
        name: "rules".into(),
        max_parallelism: MaxParallelism::new(16).unwrap(),
        nodes: vec![
            node("records", 2, NodeKind::Source, vec![]),
            node("rules", parallelism, NodeKind::Source, vec![]),
            node("apply", parallelism, NodeKind::Operator(descriptor), vec![input("records", 0, None), input("rules", 1, rules)]),
            node("out", 1, NodeKind::Sink, vec![input("apply", 0, None)]),
        ],
    }
}

#[test]
fn a_broadcast_input_is_fed_by_a_channel_to_every_subtask() {
    let plan = ExecutionPlan::new(&job(3, None)).unwrap();
    let rules: Vec<_> = plan.tasks.iter().filter(|task| task.nodes == [1]).collect();
    assert_eq!(rules.len(), 3, "the source is not chained to it");
    for task in rules {
        assert_eq!((task.outputs[0].partition, task.outputs[0].channels.len()), (Partition::Broadcast, 3));
    }
    let records = plan.tasks.iter().find(|task| task.nodes == [0]).unwrap();
    assert_eq!(records.outputs[0].partition, Partition::Keyed);
}

#[test]
fn a_broadcast_input_is_fed_in_no_other_way() {
    assert!(job(3, Some(Partition::Broadcast)).check().is_ok());
    for parallelism in [1, 3] {
        for partition in [Partition::Keyed, Partition::Forward, Partition::Rebalance] {
            let error = job(parallelism, Some(partition)).check().unwrap_err();
            assert!(matches!(error, SpecError::NotBroadcast { .. }), "{error}");
            assert!(error.to_string().contains("input \"rules\" of \"apply\""), "{error}");
        }
    }
}
