//! Which item is sent next.
