//! Finds the rate at which the path begins to lose packets.

use std::time::{Duration, Instant};

use umbel_engine::units::Rate;

use super::burst::{Burst, Order};
use super::scout::{Scout, ScoutError};
use crate::doctor::Finding;

const CHECK: &str = "rate";

/// First rate.
pub(super) const FIRST_BITS_PER_S: u64 = 1_000_000;
pub(super) const FIRST: Rate = rate_of(FIRST_BITS_PER_S);
/// Last rate, unless the server's is lower.
const LAST_BITS_PER_S: u64 = 1_000_000_000;

/// Duration of a burst. `FEWEST` packets may take longer.
const BURST: Duration = Duration::from_millis(100);
const FEWEST: u32 = 40;
/// Factor by which a burst that follows up on a suspicion is longer.
const LONGER: u32 = 3;

/// Longest duration of the search.
const TIME: Duration = Duration::from_millis(3_500);

const fn rate_of(bits_per_s: u64) -> Rate {
    match Rate::from_bits_per_s(bits_per_s) {
        Some(rate) => rate,
        None => panic!("a rate is not 0"),
    }
}

/// Result of the search.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Found {
    /// The greatest rate without more loss than usual.
    clean: Option<Rate>,
    /// The burst at which loss starts, if it does.
    start: Option<LossStart>,
}

/// The first burst that lost packets because of its rate.
#[derive(Clone, Debug, PartialEq, Eq)]
struct LossStart {
    /// The rate that was sent.
    offered: Rate,
    /// The rate that arrived, if it could be measured.
    arrived: Option<Rate>,
    burst: Burst,
}

/// Doubles the rate until packets are lost, or up to the server's. `usual` is the share that is
/// lost at a low rate.
pub(super) fn search(
    scout: &mut Scout,
    packet_len: u16,
    limit: Option<Rate>,
    usual: f64,
) -> Result<Found, ScoutError> {
    let started = Instant::now();
    let last = limit.map_or(LAST_BITS_PER_S, Rate::bits_per_s).min(LAST_BITS_PER_S);
    let mut found = Found { clean: None, start: None };
    let mut bits_per_s = FIRST_BITS_PER_S.min(last);
    while let Some(offered) = Rate::from_bits_per_s(bits_per_s) {
        let mut order = burst_of(offered, packet_len);
        let mut burst = scout.burst(order)?;
        if !burst.loses_more_than(usual) && is_stretched(&burst, &order) {
            // A queue on the way may have held the excess.
            order.packets *= LONGER;
            burst = scout.burst(order)?;
        }
        if burst.loses_more_than(usual) {
            let arrived = burst.arrival_rate(packet_len).filter(|arrived| *arrived < offered);
            found.start = Some(LossStart { offered, arrived, burst });
            break;
        }
        found.clean = Some(offered);
        if bits_per_s >= last || started.elapsed() > TIME {
            break;
        }
        bits_per_s = (bits_per_s * 2).min(last);
    }
    Ok(found)
}

fn burst_of(rate: Rate, packet_len: u16) -> Order {
    let packets = rate.bytes_in(BURST) / u64::from(packet_len.max(1));
    let packets = u32::try_from(packets).unwrap_or(u32::MAX).clamp(FEWEST, 20_000);
    Order { packets, packet_len, rate }
}

/// Returns whether the burst took much longer to arrive than to send.
fn is_stretched(burst: &Burst, order: &Order) -> bool {
    burst.span > order.time().mul_f64(1.25) + Duration::from_millis(5)
}

/// Judges the rate that the path carries, and whether the server sends more.
pub(super) fn judge(found: &Found, limit: Option<Rate>) -> Finding {
    let Some(start) = &found.start else {
        let Some(clean) = found.clean else {
            return Finding::unknown(CHECK, "the server has no rate");
        };
        let whole = limit.is_some_and(|limit| limit <= clean);
        let note = if whole { ", which is the server's" } else { "" };
        return Finding::ok(CHECK, format!("no loss up to {clean}{note}"));
    };
    let LossStart { offered, arrived, burst } = start;
    let percent = burst.loss() * 100.0;
    if burst.dropped_here * 2 > u64::from(burst.lost()) {
        let what = format!(
            "this host drops packets at {offered}: {} of {}, as it is too slow or its buffers too \
             small",
            burst.lost(),
            burst.sent
        );
        let bytes = umbel_net::buffers::bytes_for(Some(*offered)).max(16 << 20);
        return Finding::warning(CHECK, what).mend(format!("sysctl -w net.core.rmem_max={bytes}"));
    }
    // A burst that a busy host has stretched seems to arrive more slowly than one before it that
    // lost nothing.
    let carries = (*arrived).max(found.clean).unwrap_or(*offered);
    let what = format!(
        "loss starts at about {carries}: {percent:.0} % of what is sent at {offered}{}",
        limit.map_or_else(String::new, |limit| format!(", and the server sends at {limit}"))
    );
    let below = carries.bits_per_s() / 10 * 9;
    let rate = Rate::from_bits_per_s(below).unwrap_or(carries);
    let mend = format!("umbel serve --rate {} …, on the server", round(rate));
    let twice = limit.is_some_and(|limit| limit.bits_per_s() / 2 > carries.bits_per_s());
    let finding = if twice { Finding::problem(CHECK, what) } else { Finding::warning(CHECK, what) };
    finding.mend(mend)
}

/// Formats the rate as on the command line, with two digits.
fn round(rate: Rate) -> String {
    let mut bits = rate.bits_per_s();
    let mut unit = 1;
    while bits >= 100 {
        bits /= 10;
        unit *= 10;
    }
    let bits = bits * unit;
    if bits >= 1_000_000 && bits.is_multiple_of(100_000) {
        format!("{}M", bits as f64 / 1e6)
    } else {
        bits.to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::Verdict;

    fn mbit(n: u64) -> Rate {
        rate_of(n * 1_000_000)
    }

    fn loss_at(offered: u64, arrived: u64, dropped_here: u64) -> Found {
        let burst = Burst { sent: 200, received: 150, dropped_here, ..Burst::default() };
        let start = LossStart { offered: mbit(offered), arrived: Some(mbit(arrived)), burst };
        Found { clean: Some(mbit(offered / 2)), start: Some(start) }
    }

    #[test]
    fn the_server_should_send_less_than_the_path_carries() {
        let found = judge(&loss_at(16, 10, 0), Some(mbit(100)));
        assert_eq!(found.verdict, Verdict::Problem);
        assert!(found.what.starts_with("loss starts at about 10.0 Mbit/s: 25 %"), "{found:?}");
        assert_eq!(found.mend.unwrap(), "umbel serve --rate 9M …, on the server");
        assert_eq!(judge(&loss_at(16, 10, 0), Some(mbit(12))).verdict, Verdict::Warning);
        // Here 8 Mbit/s passed.
        let stretched = judge(&loss_at(16, 2, 0), Some(mbit(100)));
        assert_eq!(stretched.mend.unwrap(), "umbel serve --rate 7.2M …, on the server");
    }

    #[test]
    fn drops_on_this_host_are_told_from_those_on_the_path() {
        let found = judge(&loss_at(16, 10, 40), Some(mbit(100)));
        assert_eq!(found.verdict, Verdict::Warning);
        assert_eq!(found.mend.unwrap(), "sysctl -w net.core.rmem_max=16777216");
    }

    #[test]
    fn a_path_without_loss_is_well() {
        let found = judge(&Found { clean: Some(mbit(100)), start: None }, Some(mbit(100)));
        assert_eq!(found.what, "no loss up to 100.0 Mbit/s, which is the server's");
    }

    #[test]
    fn a_rate_is_given_as_it_is_read() {
        for (bits, text) in
            [(9_540_000, "9.5M"), (123_456_789, "120M"), (95_000, "95000"), (7, "7")]
        {
            assert_eq!(round(rate_of(bits)), text);
            assert!(text.parse::<Rate>().is_ok());
        }
    }
}
