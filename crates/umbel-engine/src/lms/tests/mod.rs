//! Engines driven by scripts.
