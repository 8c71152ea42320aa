//! Windows against a model of them by definition, and by their rules.

mod model;
mod probe;
mod random;
mod rules;
