//! `umbel lab`.
