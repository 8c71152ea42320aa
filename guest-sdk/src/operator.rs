//! What an operator author implements.

use serde::Deserialize;
use serde::de::DeserializeOwned;

use crate::call::InstanceInfo;
use crate::context::{BroadcastContext, Context, FinishContext, Record};
use crate::declare::Declare;
use crate::error::Error;
use crate::timers::Timer;

/// An operator: handles one record at a time, keeps what matters in declared state, and emits records.
///
/// The host calls an operator with batches of records; the SDK calls [`Self::process`] for each. Where a batch ends is
/// the host's choice and differs in a replay, and the instance may be replaced between any two batches. So fields of the
/// struct are a cache: what must survive belongs in declared state.
pub trait Operator: Sized + 'static {
    /// The operator's configuration, read from the pipeline file's `config` table; [`NoConfig`] if there is none.
    type Config: DeserializeOwned;

    /// Makes the operator and declares its ports and state. Also called only to learn what it declares: it can neither
    /// log nor see a configuration, and must declare the same each time.
    fn declare(declare: &mut Declare) -> Self;

    /// Takes the configuration, before any record.
    ///
    /// # Errors
    /// An error if the configuration makes no sense; the pipeline does not start.
    fn configure(&mut self, config: Self::Config, info: &InstanceInfo) -> Result<(), Error> {
        let _ = (config, info);
        Ok(())
    }

    /// Handles one record.
    ///
    /// # Errors
    /// An error fails the whole batch: none of its effects apply.
    fn process(&mut self, record: Record<'_>, cx: &mut Context<'_>) -> Result<(), Error>;

    /// Handles one record of an input that was declared with [`Declare::broadcast_input`]. All subtasks get all of these
    /// records, and must do the same with each: [`crate::Broadcast`] state is written here and nowhere else. There is no
    /// key here, and no keyed state.
    ///
    /// # Errors
    /// An error fails the whole batch. Unless it is implemented, every record is one.
    fn process_broadcast(&mut self, record: Record<'_>, cx: &mut BroadcastContext<'_>) -> Result<(), Error> {
        let _ = (record, cx);
        Err(Error::permanent("the operator declares a broadcast input but does not implement `process_broadcast`"))
    }

    /// Handles one timer that is due: the operator declared [`Declare::event_timers`] or [`Declare::processing_timers`]. The
    /// key, and with it the state, is that of the timer; there is no record. What is emitted has the timer's time if that is
    /// one of event time, and else none. The timer is gone, and may be set again.
    ///
    /// # Errors
    /// An error fails the whole batch of timers: none has fired. Unless it is implemented, every timer is one.
    fn on_timer(&mut self, timer: Timer, cx: &mut Context<'_>) -> Result<(), Error> {
        let _ = (timer, cx);
        Err(Error::permanent("the operator declares timers but does not implement `on_timer`"))
    }

    /// All inputs have ended: the last chance to emit, and to write an [`crate::OperatorList`]. There is no key here, and
    /// no state can be read. Not called at a restart.
    ///
    /// # Errors
    /// An error fails the call.
    fn finish(&mut self, cx: &mut FinishContext<'_>) -> Result<(), Error> {
        let _ = cx;
        Ok(())
    }
}

/// For an operator without configuration: any option that is given is refused by name.
#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NoConfig {}
