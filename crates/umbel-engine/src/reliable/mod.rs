//! The common part of the engines of reliable streams: SRM, LMS, PGM and BASEP.
//!
//! In all of them a source numbers its data units from 0, and a receiver finds missing units by
//! their numbers. They differ in their choice of repairer and in the timing of requests.
//!
//! - [`ReceiveWindow`]: units received and missing of one source, and delivery in order.
//! - [`History`]: units kept for repairs.

mod history;
mod window;

pub use history::History;
pub use window::{ReceiveWindow, Refused, WindowLimits};
