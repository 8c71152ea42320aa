//! Why the host itself ended a call. Found in an error's chain, so that host and guest are never blamed for each other.

/// An error of a host function or of the limiter.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum HostTrap {
    /// The price of host work exceeds the fuel that is left.
    #[error("the call used up its fuel in the host")]
    Fuel,
    /// The arguments of an import exceed the limit.
    #[error("{what} has {bytes} bytes, the limit of one call to the host is {limit}")]
    ImportBytes { what: &'static str, bytes: usize, limit: u64 },
    /// A rule of the interface was broken.
    #[error("{0}")]
    Abi(String),
    /// The system has no memory for what the limits grant.
    #[error("the system cannot give the memory that the limits grant: {0}")]
    HostMemory(String),
}
