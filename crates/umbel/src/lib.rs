//! Umbel: reliable multicast.
