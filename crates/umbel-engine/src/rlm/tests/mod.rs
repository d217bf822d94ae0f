//! Engines against each other, over links that lose and delay as a script says.

mod adapting;
mod delivery;
mod hostile;
mod signed;
mod world;
