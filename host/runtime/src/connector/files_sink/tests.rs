//! The protocol against a model.
