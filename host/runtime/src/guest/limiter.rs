//! Memory and tables of one store, counted together.
//!
//! wasmtime's own limiter holds each memory and each table to the limit; many small ones add up past it.

use wasmtime::ResourceLimiter;

use super::limits::GuestLimits;
use super::trap::HostTrap;

/// Running totals over all memories and tables of a store.
#[derive(Debug)]
pub(super) struct TotalsLimiter {
    memory: Total,
    table: Total,
    memories: u32,
    tables: u32,
    instances: u32,
    /// What was refused last: the reason of a failed instantiation.
    refused: Option<String>,
}

#[derive(Debug)]
struct Total {
    now: u64,
    max: u64,
}

impl Total {
    /// Grows by what `desired` is more than `current`, if that fits.
    fn grow(&mut self, current: usize, desired: usize) -> bool {
        let more = (desired as u64).saturating_sub(current as u64);
        let Some(sum) = self.now.checked_add(more).filter(|sum| *sum <= self.max) else { return false };
        self.now = sum;
        true
    }
}

impl TotalsLimiter {
    pub(super) fn new(limits: &GuestLimits) -> Self {
        Self {
            memory: Total { now: 0, max: limits.memory_bytes },
            table: Total { now: 0, max: limits.table_elements },
            memories: limits.memories,
            tables: limits.tables,
            instances: limits.instances,
            refused: None,
        }
    }

    /// Returns the bytes of all memories, which never shrink.
    pub(super) fn memory_bytes(&self) -> u64 {
        self.memory.now
    }

    /// Returns what was refused last.
    pub(super) fn refused(&self) -> Option<&str> {
        self.refused.as_deref()
    }
}

impl ResourceLimiter for TotalsLimiter {
    fn memory_growing(&mut self, current: usize, desired: usize, maximum: Option<usize>) -> wasmtime::Result<bool> {
        if maximum.is_some_and(|maximum| desired > maximum) {
            return Ok(false);
        }
        let granted = self.memory.grow(current, desired);
        if !granted {
            let Total { now, max } = self.memory;
            self.refused = Some(format!("a memory of {desired} bytes with {now} in use, the limit of all is {max}"));
        }
        Ok(granted)
    }

    /// The system has no memory where the limit grants it. The guest must not see that: a replay may go otherwise.
    fn memory_grow_failed(&mut self, error: wasmtime::Error) -> wasmtime::Result<()> {
        Err(HostTrap::HostMemory(error.to_string()).into())
    }

    fn table_growing(&mut self, current: usize, desired: usize, maximum: Option<usize>) -> wasmtime::Result<bool> {
        if maximum.is_some_and(|maximum| desired > maximum) {
            return Ok(false);
        }
        let granted = self.table.grow(current, desired);
        if !granted {
            let Total { now, max } = self.table;
            self.refused = Some(format!("a table of {desired} elements with {now} in use, the limit of all is {max}"));
        }
        Ok(granted)
    }

    fn table_grow_failed(&mut self, error: wasmtime::Error) -> wasmtime::Result<()> {
        Err(HostTrap::HostMemory(error.to_string()).into())
    }

    fn instances(&self) -> usize {
        self.instances as usize
    }

    fn tables(&self) -> usize {
        self.tables as usize
    }

    fn memories(&self) -> usize {
        self.memories as usize
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memories_and_tables_count_together() {
        let limits = GuestLimits { memory_bytes: 100, table_elements: 10, ..GuestLimits::default() };
        let mut limiter = TotalsLimiter::new(&limits);
        assert!(limiter.memory_growing(0, 60, None).unwrap());
        assert!(limiter.memory_growing(60, 70, None).unwrap());
        assert!(!limiter.memory_growing(0, 31, None).unwrap());
        assert_eq!(limiter.refused(), Some("a memory of 31 bytes with 70 in use, the limit of all is 100"));
        assert!(limiter.memory_growing(0, 30, None).unwrap());
        assert!(!limiter.memory_growing(30, usize::MAX, None).unwrap());
        assert_eq!(limiter.memory_bytes(), 100);
        assert!(!limiter.table_growing(0, 5, Some(4)).unwrap());
        assert!(limiter.table_growing(0, 10, None).unwrap());
        assert!(!limiter.table_growing(0, 1, None).unwrap());
    }
}
