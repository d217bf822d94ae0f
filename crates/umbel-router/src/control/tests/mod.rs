//! Scripts against single control planes, and worlds of several.

mod hostile;
mod membership;
mod pim;
mod script;
mod seeds;
mod world;
