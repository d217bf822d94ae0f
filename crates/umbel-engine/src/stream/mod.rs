//! What the engines of reliable streams share: SRM, LMS and PGM.
//!
//! In all three a source numbers its data units from 0, and a receiver finds by the numbers what
//! it lacks. They differ in whom they ask and when.
//!
//! - [`ReceiveWindow`]: what came of one source, what is missing, and delivery in order.
//! - [`History`]: units kept for those who lost them.

mod history;
mod window;

pub use history::History;
pub use window::{ReceiveWindow, Refused, WindowLimits};
