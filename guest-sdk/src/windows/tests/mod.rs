mod model;
mod probe;
mod random;
mod rules;
