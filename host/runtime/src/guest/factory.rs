//! Makes instances of one operator.

use std::sync::Arc;

use cofferdam_dataflow::guest::{Descriptor, FaultPhase, Guest, GuestFactory, GuestFault, InstanceInfo};

use super::instance::{Surroundings, WasmGuest};
use super::limits::GuestLimits;
use super::loader::LoadedComponent;
use super::log::{GuestLog, SilentLog};
use super::metrics::OperatorMetrics;

/// How an operator runs.
#[derive(Clone)]
pub struct GuestOptions {
    /// The operator's configuration: an object in JSON.
    pub config: Vec<u8>,
    /// Limits of each instance.
    pub limits: GuestLimits,
    /// Where log lines go.
    pub log: Arc<dyn GuestLog>,
}

/// Makes instances of one operator from a loaded component. Instances share its code and nothing else.
pub struct WasmGuestFactory {
    component: LoadedComponent,
    options: GuestOptions,
    metrics: Arc<OperatorMetrics>,
}

impl WasmGuestFactory {
    pub(super) fn new(component: LoadedComponent, options: GuestOptions) -> Self {
        Self { component, options, metrics: Arc::default() }
    }

    /// Returns the metrics that all instances report to.
    pub fn metrics(&self) -> &Arc<OperatorMetrics> {
        &self.metrics
    }

    /// Returns the component.
    pub fn component(&self) -> &LoadedComponent {
        &self.component
    }
}

impl GuestFactory for WasmGuestFactory {
    fn descriptor(&self) -> &Descriptor {
        self.component.descriptor()
    }

    fn open(&self, info: &InstanceInfo) -> Result<Box<dyn Guest>, GuestFault> {
        self.open_with(info, Arc::clone(&self.options.log), Arc::clone(&self.metrics))
    }

    fn open_probe(&self, info: &InstanceInfo) -> Result<Box<dyn Guest>, GuestFault> {
        self.open_with(info, Arc::new(SilentLog), Arc::default())
    }
}

impl WasmGuestFactory {
    fn open_with(
        &self,
        info: &InstanceInfo,
        log: Arc<dyn GuestLog>,
        metrics: Arc<OperatorMetrics>,
    ) -> Result<Box<dyn Guest>, GuestFault> {
        let surroundings =
            Surroundings { limits: &self.options.limits, operator: info.operator.clone(), subtask: info.subtask, log, metrics };
        let mut guest = WasmGuest::instantiate(self.component.pre(), surroundings, FaultPhase::Instantiate)?;
        guest.open(&self.options.config, info)?;
        Ok(Box::new(guest))
    }
}
