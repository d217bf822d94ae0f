//! Erasure codes behind one interface, and the splitting of an object into source blocks.
