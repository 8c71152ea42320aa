//! Bindings to what an operator exports, generated from the interface's WIT.
//!
//! Parameters borrow, so that a call copies a column once: into the guest. Imports are linked by hand in
//! [`super::imports`], where they can charge fuel.

#![allow(clippy::allow_attributes, reason = "the generator changes what it needs from version to version")]
#![allow(unsafe_code, reason = "generated: it names the type of a function that it has checked beforehand")]
#![allow(missing_docs, unreachable_pub, unused_variables, unused_qualifications, dead_code, clippy::all, reason = "generated")]

wasmtime::component::bindgen!({
    path: "../../wit",
    world: "operator-exports",
    ownership: Borrowing { duplicate_if_necessary: true },
});
