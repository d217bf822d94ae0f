//! Hosts that run the engines of the repository.
