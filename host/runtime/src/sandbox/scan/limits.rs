//! How large and how intricate a component may be.

/// Limits on a component, checked before it is compiled.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ScanLimits {
    /// Bytes of the file.
    pub component_bytes: u64,
    /// Core modules defined anywhere in it.
    pub core_modules: u64,
    /// Core instances that instantiation makes.
    pub core_instances: u64,
    /// Component instances that instantiation makes.
    pub component_instances: u64,
    /// Lifted, lowered and built-in functions, counted once for each instance that has them.
    pub canonical_functions: u64,
    /// Components within components.
    pub nesting: u64,
    /// Functions of all core modules.
    pub functions: u64,
    /// Bytes of one function body.
    pub body_bytes: u64,
    /// Bytes of all function bodies.
    pub code_bytes: u64,
    /// Nested blocks of one function.
    pub control_nesting: u64,
    /// Branch table targets of one function.
    pub branch_targets: u64,
    /// Locals of one function.
    pub locals: u64,
    /// Globals of all core modules.
    pub globals: u64,
    /// Data and element segments of all core modules.
    pub segments: u64,
    /// Type definitions, in core modules and components.
    pub types: u64,
    /// Component and instance types within each other.
    pub type_nesting: u64,
    /// Imports, in core modules and components.
    pub imports: u64,
    /// Exports, in core modules and components.
    pub exports: u64,
    /// Aliases and instance definitions, in components.
    pub aliases: u64,
    /// Bytes of one imported or exported name.
    pub name_bytes: u64,
}

impl ScanLimits {
    /// Bytes of a component, whatever is configured.
    pub const CEILING_BYTES: u64 = 128 << 20;
}

impl Default for ScanLimits {
    fn default() -> Self {
        Self {
            component_bytes: 16 << 20,
            core_modules: 32,
            core_instances: 64,
            component_instances: 256,
            canonical_functions: 10_000,
            nesting: 8,
            functions: 50_000,
            body_bytes: 512 << 10,
            code_bytes: 12 << 20,
            control_nesting: 1_000,
            branch_targets: 100_000,
            locals: 50_000,
            globals: 1_000,
            segments: 10_000,
            types: 10_000,
            type_nesting: 32,
            imports: 500,
            exports: 1_000,
            aliases: 10_000,
            name_bytes: 256,
        }
    }
}
