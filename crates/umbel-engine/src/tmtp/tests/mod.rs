//! The engines against each other.

mod authentic;
mod blame;
mod catch_up;
mod content;
mod delivery;
mod failures;
mod hostile;
mod leaving;
mod pace;
mod survey;
mod unicast;
mod without_tree;
mod world;
