//! The UDP ports on which multicast arrives.

/// Default port of data channels: of servers and of feeds.
pub(crate) const DATA_PORT: u16 = 7702;
/// Port of feeds' domain groups.
pub(crate) const DOMAIN_PORT: u16 = 7703;
/// Port of streams' layers.
pub(crate) const LAYER_PORT: u16 = 7704;
/// Port of streams' control groups.
pub(crate) const CONTROL_PORT: u16 = 7705;
