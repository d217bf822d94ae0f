//! Finds the largest packet that the path carries.

use umbel_net::interface::{Family, Interface};

use super::burst::{Burst, Order};
use super::scout::{Scout, ScoutError};
use super::{SMALL, rate};
use crate::doctor::Finding;

const CHECK: &str = "path-mtu";

/// Common MTUs of links: jumbo frames, FDDI, Ethernet, PPPoE, tunnels, the minimums of IPv6 and of
/// IPv4 [RFC 1191 §7.1, RFC 8200 §5].
const COMMON: [usize; 12] =
    [65_535, 9_216, 9_000, 4_352, 1_500, 1_492, 1_472, 1_450, 1_428, 1_400, 1_280, 576];

/// Packets of each length, as some may be lost by chance. Each is its own burst, as routers on the
/// server's own host would judge a batch by its whole length.
const COPIES: usize = 3;

/// Returns the longest UDP payload that arrives, up to the limit of the interface.
pub(super) fn largest(
    scout: &mut Scout,
    interface: &Interface,
    family: Family,
) -> Result<Option<u16>, ScoutError> {
    let most = interface.mtu.min(usize::from(u16::MAX));
    let mut mtus: Vec<_> = COMMON.into_iter().filter(|mtu| *mtu < most).collect();
    mtus.insert(0, most);
    let lens: Vec<u16> = mtus
        .into_iter()
        .filter_map(|mtu| u16::try_from(mtu.checked_sub(family.header_bytes())?).ok())
        .filter(|len| *len > SMALL && *len <= umbel_wire::repository::limits::PROBE_PACKET_MAX)
        .collect();
    let passed = pass(scout, &lens)?;
    let Some(place) = passed.iter().position(|passed| *passed) else { return Ok(None) };
    let mut arrives = lens[place];
    let mut too_long = place.checked_sub(1).map(|before| lens[before]);
    // Tries seven lengths at a time. Mostly the first of them shows that the link has a common MTU.
    while let Some(long) = too_long
        && long - arrives > 1
    {
        let step = ((long - arrives) / 7).max(1);
        let between: Vec<u16> =
            (0..7).map(|n| arrives + 1 + n * step).take_while(|len| *len < long).collect();
        let passed = pass(scout, &between)?;
        let last = passed.iter().rposition(|passed| *passed);
        let next = last.map_or(0, |last| last + 1);
        too_long = Some(between.get(next).copied().unwrap_or(long));
        if let Some(last) = last {
            arrives = between[last];
        }
    }
    Ok(Some(arrives))
}

/// Returns which of the lengths arrive.
fn pass(scout: &mut Scout, lens: &[u16]) -> Result<Vec<bool>, ScoutError> {
    let orders: Vec<_> = lens
        .iter()
        .flat_map(|&packet_len| [Order { packets: 1, packet_len, rate: rate::FIRST }; COPIES])
        .collect();
    let bursts = scout.bursts(&orders)?;
    let passes = |copies: &[Burst]| copies.iter().any(|burst| burst.received > 0);
    Ok(bursts.chunks(COPIES).map(passes).collect())
}

/// Judges whether packets of `packet_len` bytes of UDP payload fit the path.
pub(super) fn judge(largest: Option<u16>, packet_len: u16, family: Family) -> Finding {
    let headers = family.header_bytes();
    let needed = usize::from(packet_len) + headers;
    let Some(largest) = largest else {
        let what = format!("no packet above {} bytes arrives", usize::from(SMALL) + headers);
        return Finding::problem(CHECK, what).mend("correct the MTU of the links on the way");
    };
    let mtu = usize::from(largest) + headers;
    if largest >= packet_len {
        return Finding::ok(
            CHECK,
            format!("the path carries {mtu} bytes, the server's packets have up to {needed}"),
        );
    }
    let what =
        format!("the path carries {mtu} bytes, but the server's packets have up to {needed}");
    Finding::problem(CHECK, what).mend(format!("umbel serve --mtu {mtu} …, on the server"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::Verdict;

    #[test]
    fn a_path_too_narrow_for_full_packets_is_a_problem() {
        let found = judge(Some(1252), 1400, Family::V4);
        assert_eq!(found.verdict, Verdict::Problem);
        assert!(found.what.contains("carries 1280 bytes"), "{found:?}");
        assert!(found.mend.unwrap().contains("--mtu 1280"));
        assert_eq!(judge(Some(1400), 1400, Family::V4).verdict, Verdict::Ok);
        assert_eq!(judge(None, 1400, Family::V6).verdict, Verdict::Problem);
    }
}
