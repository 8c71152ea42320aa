//! Panics when it is asked what it is.

use cofferdam_guest::prelude::*;

/// The operator.
pub struct Undeclared;

impl Operator for Undeclared {
    type Config = NoConfig;

    fn declare(_: &mut Declare) -> Self {
        panic!("nobody knows what it is")
    }

    fn process(&mut self, _: Record<'_>, _: &mut Context<'_>) -> Result<(), Error> {
        Ok(())
    }
}

export!(Undeclared);
