//! Constants of congestion control.

use std::time::Duration;

use super::api::{PaceTo, Share};
use crate::units::Rate;

/// Configuration of a controller.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct CongestionConfig {
    /// Upper bound of the rate: the operator's, or the speed of the interface.
    pub most: Rate,
    /// Lower bound of the rate, also without any feedback.
    pub least: Rate,
    /// Share of a queue that others use too.
    pub share: Share,
    /// Whose paths set the pace.
    pub pace_to: PaceTo,
    /// Rate below which the pace never falls for a receiver's sake: who carries less leaves.
    pub min_rate: Option<Rate>,
    /// Length of a full packet in bytes, with its headers.
    pub packet_len: u32,
    /// Round trip that is assumed while none is known.
    pub initial_rtt: Duration,
    /// Packets of the first round trip, as in a new TCP connection [RFC 6928].
    pub initial_packets: u32,
    /// Factor by which the rate grows in a round trip while no limit is known.
    pub growth: f64,
    /// The same while only [a few](CongestionConfig::few_packets) packets are under way, or where
    /// packets that left together have shown once that there is room (SUSS).
    pub brisk_growth: f64,
    /// The same where they have shown it again and again.
    pub fast_growth: f64,
    /// Packets of a round trip that are few, where a round trip is longer than `long_rtt`.
    pub few_packets: f64,
    /// See above.
    pub long_rtt: Duration,
    /// Factor on the rate of a probe for more (BBR).
    pub probe: f64,
    /// Longest and shortest time that a probe lasts, if that is enough packets.
    pub probe_most: Duration,
    /// Factor on the rate while a queue drains.
    pub drain: f64,
    /// Round trips between two probes, at first and at most, and the longest such time.
    pub probe_every: f64,
    /// See above.
    pub probe_every_most: f64,
    /// See above.
    pub probe_wait_most: Duration,
    /// Queueing delay that is tolerated: a quarter of the round trip, within these bounds.
    pub queue_least: Duration,
    /// See above.
    pub queue_most: Duration,
    /// The lower of these bounds where it is looked whether others are there.
    pub queue_own: Duration,
}

impl CongestionConfig {
    /// Creates a configuration with the default constants.
    pub fn new(most: Rate, packet_len: u32) -> CongestionConfig {
        CongestionConfig {
            most,
            least: LEAST_RATE.min(most),
            share: Share::default(),
            pace_to: PaceTo::default(),
            min_rate: None,
            packet_len,
            initial_rtt: Duration::from_millis(100),
            initial_packets: 10,
            growth: 2.0,
            brisk_growth: 4.0,
            fast_growth: 8.0,
            few_packets: 100.0,
            long_rtt: Duration::from_millis(50),
            probe: 1.25,
            probe_most: Duration::from_millis(50),
            drain: 0.75,
            probe_every: 8.0,
            probe_every_most: 32.0,
            probe_wait_most: Duration::from_secs(1),
            queue_least: Duration::from_millis(4),
            queue_own: Duration::from_micros(500),
            queue_most: Duration::from_millis(20),
        }
    }
}

/// Lowest rate: a packet in 0.7 s [RFC 8085 §3.1.1 asks for one in 3 s where no round trip is known].
const LEAST_RATE: Rate = Rate::from_bits_per_s(16_000).unwrap();

/// Time between the two batches of the first window: a quarter of the round trip, within these
/// bounds.
pub(super) const FIRST_LEAST: Duration = Duration::from_millis(1);
/// See above.
pub(super) const FIRST_MOST: Duration = Duration::from_millis(25);

/// Seconds, beside two round trips, without reports after which the rate falls. A machine may be busy
/// with something else for so long.
pub(super) const PATIENCE: f64 = 0.1;

/// Time, beside two round trips, for which rates are remembered that were allowed.
pub(super) const ALLOWED_LASTS: Duration = Duration::from_millis(50);

/// Time in seconds after which a probe that a bucket takes becomes faster, and how fast at most.
pub(super) const PROBE_STEP: f64 = 0.05;
/// See above.
pub(super) const MOST_PROBE: f64 = 3.0;

/// Smallest batch that short queues lead to, in packets and in seconds at the rate: smaller ones cost
/// the sender too much.
pub(super) const LEAST_BATCH: u32 = 4;
/// See above.
pub(super) const LEAST_BATCH_TIME: f64 = 5e-5;

/// Of the model of loss.
pub(super) mod loss {
    /// Packets by which loss is judged, if they are lost one by one.
    pub(in crate::congestion) const WINDOW: f64 = 50.0;
    /// Packets for which the loss at any rate is remembered, if they are lost one by one.
    pub(in crate::congestion) const FLOOR_PACKETS: f64 = 1_000.0;
    /// Seconds after which packets are forgotten, unless there were few since.
    pub(in crate::congestion) const FORGET_AFTER: f64 = 4.0;
    /// Factor between two rates both of which may be above a limit.
    pub(in crate::congestion) const SPAN: f64 = 1.2;
    /// Loss beyond that at any rate which is tolerated.
    pub(in crate::congestion) const TOLERATED: f64 = 0.03;
    /// Share of loss whose noise is assumed at least.
    pub(in crate::congestion) const LEAST_NOISE: f64 = 0.01;
    /// Standard deviations beyond which loss counts.
    pub(in crate::congestion) const DEVIATIONS: f64 = 3.5;
    /// The same that the packets under way must show, too, for loss to stay on trial.
    pub(in crate::congestion) const DISMISSED: f64 = 1.5;
    /// Share of loss at any rate below which each loss counts beside others in a queue.
    pub(in crate::congestion) const RARE: f64 = 0.002;
    /// Factor on that where a queue is known to show before anything is lost.
    pub(in crate::congestion) const PATIENCE: f64 = 2.0;
    /// The same for packets beyond a limit, where loss is no surprise.
    pub(in crate::congestion) const EXPECTED: f64 = 2.0;
    /// Logarithm of how much likelier one cause of loss must be: e^3 = 20.
    pub(in crate::congestion) const SURE: f64 = 3.0;
    /// Loss beyond that is never taken for random.
    pub(in crate::congestion) const HOPELESS: f64 = 0.7;
    /// Gaps, or packets lost at the end of batches, without which nothing is judged: of a few bursts,
    /// chance makes what it likes.
    pub(in crate::congestion) const LEAST_EVENTS: f64 = 4.0;
    /// Part of the loss beyond a hundredth by which a limit is corrected with each window.
    pub(in crate::congestion) const CREEP: f64 = 0.2;
    /// Rates that are told apart, and the factor by which they differ at least.
    pub(in crate::congestion) const BINS: usize = 8;
    /// See above.
    pub(in crate::congestion) const SAME_RATE: f64 = 1.12;
    /// A rate is carried without a limit if there is none at this part of it.
    pub(in crate::congestion) const PASSES: f64 = 0.6;
    /// The same for a rate above a limit.
    pub(in crate::congestion) const SURELY: f64 = 0.88;
    /// Longest time, in seconds, for which a bucket lets more through than its limit.
    pub(in crate::congestion) const MOST_BUCKET: f64 = 2.0;
    /// Greatest factor by which loss in bursts varies more than that of single packets.
    pub(in crate::congestion) const MOST_SPREAD: f64 = 100.0;
}

/// Of the model of a path.
pub(super) mod path {
    /// Seconds by which the time of packets varies without a queue, and the growth of a queue that
    /// is tolerated, as a share of the time.
    pub(in crate::congestion) const JITTER: f64 = 5e-4;
    /// See above.
    pub(in crate::congestion) const TOLERATED_GROWTH: f64 = 0.03;
    /// Greatest jitter that is taken for such, in seconds. More is a queue.
    pub(in crate::congestion) const MOST_JITTER: f64 = 0.01;
    /// Share of packets that a machine dropped from which on a stretch does not show that they are
    /// carried.
    pub(in crate::congestion) const CLEAN: f64 = 0.01;
    /// Factor on the rate that was allowed up to which a rate counts that was sent.
    pub(in crate::congestion) const MOST_AHEAD: f64 = 1.1;
    /// Part of the rate that was allowed below which the source had little to send.
    pub(in crate::congestion) const IDLE: f64 = 0.3;
    /// Seconds by which packets are later all at once, from which on a machine has stalled.
    pub(in crate::congestion) const STALL: f64 = 0.004;
    /// Share of marked packets that counts as a limit. A queue that is long for a moment marks a few.
    pub(in crate::congestion) const TOLERATED_MARKS: f64 = 0.02;
    /// Queueing delay in seconds from which on marks count.
    pub(in crate::congestion) const MARKED_QUEUE: f64 = 1e-4;
    /// The same for less than is known to be carried.
    pub(in crate::congestion) const SLOW_GROWTH: f64 = 0.25;
    /// Shortest stretch of packets that is judged, in seconds, and the one that is taken for what it
    /// shows: senders do not send evenly.
    pub(in crate::congestion) const STEADY: f64 = 4e-3;
    /// See above.
    pub(in crate::congestion) const LEAST_WINDOW: f64 = 5e-4;
    /// Packets and seconds over which they came, to be judged however shortly they left after each
    /// other; and the greatest part of that by which one of them may be later than the one before.
    pub(in crate::congestion) const STRETCHED_PACKETS: f64 = 8.0;
    pub(in crate::congestion) const STRETCHED: f64 = 0.05;
    pub(in crate::congestion) const EVEN: f64 = 0.3;
    /// Seconds by which packets arrive later than those before them, in one report, from which on the
    /// path is taken to have been interrupted.
    pub(in crate::congestion) const OUTAGE: f64 = 0.4;
    /// Round trips that are longer than this are those of old reports, in seconds.
    pub(in crate::congestion) const STALE_RTT: f64 = 8.0;
}

/// Of the choice whose path counts.
pub(super) mod pace {
    use std::time::Duration;

    /// Factor on what is delivered to all by which it must grow for a receiver to leave.
    pub(in crate::congestion) const GAIN: f64 = 1.25;
    /// Factor on what a path carries by which the rate is so much more that it may leave.
    pub(in crate::congestion) const BEHIND: f64 = 2.0;
    /// Time between two decisions, for each receiver: they look at all paths.
    pub(in crate::congestion) const DECIDE_EVERY: Duration = Duration::from_micros(20);
    /// Factor on the slowest path's rate from which on another one is known to carry more.
    pub(in crate::congestion) const MORE: f64 = 1.1;
    /// Factor on the rate above which what a path carries is not tested by it.
    pub(in crate::congestion) const UNTESTED: f64 = 1.5;
    /// Part of what a path has carried below which a limit may not last.
    pub(in crate::congestion) const FAR_BELOW: f64 = 0.4;
    /// First and longest wait until such a limit is forgotten.
    pub(in crate::congestion) const RETEST_FIRST: Duration = Duration::from_secs(1);
    /// See above.
    pub(in crate::congestion) const RETEST_MOST: Duration = Duration::from_mins(1);
}

/// Of what has to last before it counts.
pub(super) mod evidence {
    use std::time::Duration;

    /// Time for which trouble lasts before a receiver leaves for it, and the same in round trips.
    pub(in crate::congestion) const CERTAIN_TIME: Duration = Duration::from_secs(1);
    /// See above.
    pub(in crate::congestion) const CERTAIN_ROUNDS: f64 = 10.0;
    /// Reports that tell of it, and packets meanwhile.
    pub(in crate::congestion) const CERTAIN_REPORTS: u32 = 5;
    /// See above.
    pub(in crate::congestion) const CERTAIN_PACKETS: f64 = 50.0;
    /// Seconds for which packets are remembered that a machine dropped.
    pub(in crate::congestion) const SHORT: f64 = 0.2;
    /// See above.
    pub(in crate::congestion) const LONG: f64 = 1.0;
    /// Shares of packets dropped within these times that count as a limit.
    pub(in crate::congestion) const OVERRUN_SHORT: f64 = 0.25;
    /// See above.
    pub(in crate::congestion) const OVERRUN_LONG: f64 = 0.08;
}

/// Of the receivers' reports.
pub(super) mod feedback {
    use std::time::Duration;

    /// Receivers that report promptly: no more than limit the rate, or are likely to next.
    pub(in crate::congestion) const PROMPT: usize = 8;
    /// Receivers that are drawn to stand for the others.
    pub(in crate::congestion) const DRAWN: usize = 16;
    /// So many receivers are few: all of them report promptly.
    pub(in crate::congestion) const FEW: usize = 8;
    /// Newcomers that report promptly at the same time, and reports until one is none any more.
    pub(in crate::congestion) const NEWCOMERS: usize = 4;
    /// See above.
    pub(in crate::congestion) const NEWCOMER_REPORTS: u32 = 8;
    /// Size of a report with its headers.
    pub(in crate::congestion) const REPORT_BITS: f64 = 800.0;
    /// Part of the rate that prompt reports take.
    pub(in crate::congestion) const PROMPT_SHARE: f64 = 0.005;
    /// Packets that a prompt report covers.
    pub(in crate::congestion) const PROMPT_PACKETS: u32 = 8;
    /// The same where there are many receivers, for each that reports promptly: 0.5 % of the rate.
    pub(in crate::congestion) const PROMPT_PACKETS_OF_MANY: u32 = 12;
    /// Longest time, beside four round trips, between two reports of a drawn receiver.
    pub(in crate::congestion) const SAMPLE_LATEST: Duration = Duration::from_secs(5);
    /// Packets that the report of a drawn receiver covers, for each of them: 0.3 % of the rate.
    pub(in crate::congestion) const SAMPLE_PACKETS: u32 = 24;
    /// Packets that another's report covers, for each receiver: 0.2 % of the rate.
    pub(in crate::congestion) const OTHERS_PACKETS: u32 = 35;
    /// Least time between two reports of the others, for each receiver, so that a thousand of them
    /// take little of a processor; and at least this, and at most.
    pub(in crate::congestion) const OTHERS_EVERY: Duration = Duration::from_millis(1);
    /// See above.
    pub(in crate::congestion) const OTHERS_LEAST: Duration = Duration::from_secs(1);
    /// See above.
    pub(in crate::congestion) const OTHERS_LATEST: Duration = Duration::from_millis(200);
    /// Part of the rate that urgent reports may take if all receivers are in trouble at once, and
    /// the longest time over which they are spread.
    pub(in crate::congestion) const SPREAD_SHARE: f64 = 0.1;
    /// See above.
    pub(in crate::congestion) const SPREAD_MOST: Duration = Duration::from_secs(2);
}

/// Of the receivers' choice when to report.
pub(super) mod reporter {
    /// Packets without which loss is not judged.
    pub(in crate::congestion) const LEAST_JUDGED: f64 = 50.0;
    /// Loss beyond that so far, share of packets dropped in the machine, and standing queue in
    /// seconds that are trouble.
    pub(in crate::congestion) const TROUBLE_LOSS: f64 = 0.05;
    /// See above.
    pub(in crate::congestion) const TROUBLE_OVERRUN: f64 = 0.02;
    /// See above.
    pub(in crate::congestion) const TROUBLE_QUEUE: f64 = 0.03;
}

/// Of the competition with TCP connections [RFC 9438 §4].
pub(super) mod compete {
    /// Factor on the window when packets are lost.
    pub(in crate::congestion) const BETA: f64 = 0.7;
    /// Coefficient of growth, in packets per cubic second.
    pub(in crate::congestion) const CUBIC: f64 = 0.4;
    /// Packets of growth in a round trip at least, so that Reno does not grow faster.
    pub(in crate::congestion) const FRIENDLY: f64 = 0.75;
    /// Round trips, with the time in queues, and seconds between two looks whether others are there
    /// still.
    pub(in crate::congestion) const LOOK_EVERY: f64 = 20.0;
    /// See above.
    pub(in crate::congestion) const LOOK_LEAST: f64 = 1.0;
    /// The same where the link is known to carry more than the channel's part.
    pub(in crate::congestion) const LOOK_SELDOM: f64 = 20.0;
    /// That part.
    pub(in crate::congestion) const ALONE: f64 = 0.8;
    /// Factor on what was delivered of late that the rate never exceeds.
    pub(in crate::congestion) const MOST_GAIN: f64 = 1.5;
    /// Part of a queue, and of a round trip, by which it must have been drained to be empty were it
    /// the channel's own.
    pub(in crate::congestion) const OWN_QUEUE: f64 = 1.2;
    /// See above.
    pub(in crate::congestion) const OWN_RTT: f64 = 0.5;
    /// The same in seconds at least.
    pub(in crate::congestion) const OWN_LEAST: f64 = 0.02;
    /// Part of its limit to which a channel is pushed aside before it competes.
    pub(in crate::congestion) const PUSHED: f64 = 0.75;
    /// Part of that limit which is remembered from one look at it to the next.
    pub(in crate::congestion) const PEAK_LASTS: f64 = 0.999;
    /// Pause of a channel in the background, in seconds, after others have shown up: at first and
    /// at most.
    pub(in crate::congestion) const YIELD: f64 = 1.0;
    /// See above.
    pub(in crate::congestion) const YIELD_MOST: f64 = 16.0;
}
