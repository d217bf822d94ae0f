//! Reliability of the data channel: forward error correction, retransmission and notification.
//!
//! They are set by hand in the paper's notation [Repository §3], or all left to the server. A
//! policy is read and written as `auto`, or as `FEC(0.1)+R(10)`, `FEC(0.01R)+R(0)+notify`,
//! `FEC(1loss+0.05)+R(inf)`, `R(∞)` or `R(0)+no-ecc`. The order of the parts is free. Without `FEC`
//! nothing is added; without `R` every NAK is answered by a retransmission.

use std::fmt;
use std::str::FromStr;

use super::scheduler::SchedulerKind;

/// The greatest factor that a term of an expansion can have.
const MAX_FACTOR: f64 = 1000.0;

/// Packets sent beyond the data: the sum of four terms, each 0 to 1000 [Repository §3.1].
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Expansion {
    /// f of `FEC(f)`.
    pub fixed: f64,
    /// f of `FEC(fR)`: grows with the number of clients that want the item.
    pub times_requests: f64,
    /// f of `FEC(f/R)`: shrinks with the number of clients that want the item.
    pub over_requests: f64,
    /// f of `FEC(f loss)`: follows the greatest loss among the clients that want the item.
    pub times_loss: f64,
}

impl Expansion {
    /// `FEC(0)`.
    pub const NONE: Expansion =
        Expansion { fixed: 0.0, times_requests: 0.0, over_requests: 0.0, times_loss: 0.0 };

    /// Returns the expansion factor for an item that `requests` clients want. `max_loss`, 0 to 1,
    /// is the greatest loss share among these clients.
    pub fn factor(&self, requests: u32, max_loss: f64) -> f64 {
        let requests = f64::from(requests.max(1));
        let loss = if max_loss.is_finite() { max_loss.clamp(0.0, 1.0) } else { 0.0 };
        self.fixed
            + self.times_requests * requests
            + self.over_requests / requests
            + self.times_loss * loss
    }
}

/// NAKs that are answered at once. The others return the request to the scheduler.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Retransmit {
    /// `R(0)`: none; everything is rescheduled [Repository §3.3].
    Never,
    /// `R(p)`: NAKs of at most this number of packets [Repository §3.2.4].
    UpTo(u64),
    /// `R(∞)`: every one.
    #[default]
    Always,
}

/// The reliability policy of the data channel.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub enum Policy {
    /// `auto`: each transmission has the number of symbols that brings the most clients nearest to
    /// their end for each packet. It follows from the losses that their NAKs report; see
    /// `docs/papers/repository.md`. Late clients are told of running transmissions.
    #[default]
    Auto,
    /// One of the paper's schemes.
    HandSet(HandSet),
}

impl Policy {
    /// Returns whether late clients are told of running transmissions.
    pub fn notifies(&self) -> bool {
        match self {
            Policy::Auto => true,
            Policy::HandSet(scheme) => scheme.notify,
        }
    }

    /// Returns the scheduler used unless another is asked for: the gain rule with `auto`, R/Q with
    /// the paper's schemes.
    pub fn usual_scheduler(&self) -> SchedulerKind {
        match self {
            Policy::Auto => SchedulerKind::Gain,
            Policy::HandSet(_) => SchedulerKind::Rq,
        }
    }

    /// Returns whether lost packets are sent again instead of error-correcting ones.
    pub fn is_exact(&self) -> bool {
        matches!(self, Policy::HandSet(HandSet { exact: true, .. }))
    }
}

/// A scheme of the paper with its parameters [Repository §3]. The default is `FEC(0)+R(inf)`.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct HandSet {
    /// Forward error correction, `FEC(…)`.
    pub fec: Expansion,
    /// Retransmission, `R(…)`.
    pub retransmit: Retransmit,
    /// `notify`: late clients are told of running transmissions [Repository §5.3].
    pub notify: bool,
    /// `no-ecc`: lost packets are sent again instead of error-correcting ones, for comparison
    /// [Repository §6.4].
    pub exact: bool,
}

/// A policy that could not be parsed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PolicyError {
    /// An unknown part.
    #[error(
        "`{0}` is no part of a policy: write auto alone, or FEC(0.1), R(10), R(inf), notify or \
         no-ecc, joined by +"
    )]
    Part(String),
    /// An unknown term of `FEC`.
    #[error("`{0}` is no expansion: write 0.1, 0.01R, 0.5/R or 1loss, joined by +")]
    Term(String),
    /// A factor that is not a number from 0 to 1000.
    #[error("`{0}` is no expansion factor: it is a number from 0 to 1000")]
    Factor(String),
    /// A bound of retransmission that is neither a whole number nor infinite.
    #[error("R({0}): write a whole number of packets, or inf")]
    Packets(String),
    /// A part that occurs twice.
    #[error("{0} stands twice in the policy")]
    Twice(&'static str),
    /// Error-correcting packets both asked for and excluded.
    #[error("no-ecc excludes error correction: leave out FEC, or write FEC(0)")]
    ExactFec,
}

impl HandSet {
    /// Returns the expansion factor for an item that `requests` clients want. `max_loss`, 0 to 1,
    /// is the greatest loss share among these clients.
    pub fn expansion(&self, requests: u32, max_loss: f64) -> f64 {
        self.fec.factor(requests, max_loss)
    }

    /// Returns the number of packets sent for `d` data packets [Repository §3.1]. It is ⌈(1 + f)·d⌉
    /// with f the [`expansion`](HandSet::expansion). Floating-point errors up to 10⁻⁹ add no
    /// packet. It is never below `d`; the caller caps it at the number of symbols that the code can
    /// make.
    pub fn packets(&self, d: u32, requests: u32, max_loss: f64) -> u32 {
        let extra = self.expansion(requests, max_loss) * f64::from(d);
        let nearest = extra.round();
        let close = (extra - nearest).abs() <= 1e-9 * extra.max(1.0);
        let extra = if close { nearest } else { extra.ceil() };
        // The conversion saturates. NaN adds nothing.
        d.saturating_add(extra as u32)
    }

    /// Returns whether a NAK of this number of packets is answered by a retransmission [Repository
    /// §3.2.4].
    pub fn accepts(&self, nak_packets: u64) -> bool {
        match self.retransmit {
            Retransmit::Never => false,
            Retransmit::UpTo(most) => nak_packets <= most,
            Retransmit::Always => true,
        }
    }
}

impl fmt::Display for Expansion {
    /// Writes the inside of `FEC(…)`, as in `0.05+0.01R`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let terms = [
            (self.fixed, ""),
            (self.times_requests, "R"),
            (self.over_requests, "/R"),
            (self.times_loss, "loss"),
        ];
        let mut plus = "";
        for (factor, unit) in terms.into_iter().filter(|&(factor, _)| factor != 0.0) {
            write!(f, "{plus}{factor}{unit}")?;
            plus = "+";
        }
        if plus.is_empty() { f.write_str("0") } else { Ok(()) }
    }
}

impl FromStr for Expansion {
    type Err = PolicyError;

    /// Parses the inside of `FEC(…)`. A term without a number has the factor 1, and `maxloss` is
    /// `loss`.
    fn from_str(text: &str) -> Result<Expansion, PolicyError> {
        let mut sum = Expansion::NONE;
        for term in text.split('+') {
            let compact: String =
                term.chars().filter(|c| !c.is_whitespace()).collect::<String>().to_lowercase();
            let (factor, slot) = if let Some(factor) = compact.strip_suffix("/r") {
                (factor, &mut sum.over_requests)
            } else if let Some(factor) = compact.strip_suffix('r') {
                (factor, &mut sum.times_requests)
            } else if let Some(factor) = compact.strip_suffix("loss") {
                (factor.strip_suffix("max").unwrap_or(factor), &mut sum.times_loss)
            } else if compact.starts_with(|c: char| c.is_ascii_digit() || "-.".contains(c)) {
                (compact.as_str(), &mut sum.fixed)
            } else {
                return Err(PolicyError::Term(term.trim().to_owned()));
            };
            *slot += read_factor(factor.trim_end_matches(['·', '*']))?;
        }
        Ok(sum)
    }
}

fn read_factor(text: &str) -> Result<f64, PolicyError> {
    if text.is_empty() {
        return Ok(1.0);
    }
    text.parse()
        .ok()
        .filter(|factor| (0.0..=MAX_FACTOR).contains(factor))
        .ok_or_else(|| PolicyError::Factor(text.to_owned()))
}

impl fmt::Display for Retransmit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Retransmit::Never => f.write_str("R(0)"),
            Retransmit::UpTo(packets) => write!(f, "R({packets})"),
            Retransmit::Always => f.write_str("R(inf)"),
        }
    }
}

/// Parses the inside of `R(…)`.
fn read_retransmit(text: &str) -> Result<Retransmit, PolicyError> {
    match text.trim() {
        "∞" | "inf" | "infinity" => Ok(Retransmit::Always),
        number => match number.parse() {
            Ok(0) => Ok(Retransmit::Never),
            Ok(packets) => Ok(Retransmit::UpTo(packets)),
            Err(_) => Err(PolicyError::Packets(number.to_owned())),
        },
    }
}

impl fmt::Display for Policy {
    /// Writes the form that [`Policy::from_str`] parses.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Policy::Auto => f.write_str("auto"),
            Policy::HandSet(scheme) => scheme.fmt(f),
        }
    }
}

impl FromStr for Policy {
    type Err = PolicyError;

    /// Parses `auto` or the paper's notation, upper or lower case.
    ///
    /// # Errors
    ///
    /// The same as [`HandSet::from_str`].
    fn from_str(text: &str) -> Result<Policy, PolicyError> {
        if text.trim().eq_ignore_ascii_case("auto") {
            return Ok(Policy::Auto);
        }
        text.parse().map(Policy::HandSet)
    }
}

impl fmt::Display for HandSet {
    /// Writes the form that [`HandSet::from_str`] parses, with FEC and R always present.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "FEC({})+{}", self.fec, self.retransmit)?;
        if self.notify {
            f.write_str("+notify")?;
        }
        if self.exact {
            f.write_str("+no-ecc")?;
        }
        Ok(())
    }
}

impl FromStr for HandSet {
    type Err = PolicyError;

    /// Parses the paper's notation, in any order, upper or lower case.
    ///
    /// # Errors
    ///
    /// Returns an error for the first invalid or repeated part, or if error correction is combined
    /// with `no-ecc`.
    fn from_str(text: &str) -> Result<HandSet, PolicyError> {
        let (mut fec, mut retransmit) = (None, None);
        let mut policy = HandSet::default();
        for part in split_parts(text) {
            let lower = part.to_lowercase();
            if let Some(inside) = argument(&lower, "fec") {
                put_once(&mut fec, inside.parse()?, "FEC")?;
            } else if let Some(inside) = argument(&lower, "r") {
                put_once(&mut retransmit, read_retransmit(inside)?, "R")?;
            } else if lower == "notify" {
                policy.notify = true;
            } else if ["no-ecc", "no ecc"].contains(&lower.as_str()) {
                policy.exact = true;
            } else {
                return Err(PolicyError::Part(part.to_owned()));
            }
        }
        policy.fec = fec.unwrap_or_default();
        policy.retransmit = retransmit.unwrap_or_default();
        if policy.exact && policy.fec != Expansion::NONE {
            return Err(PolicyError::ExactFec);
        }
        Ok(policy)
    }
}

/// Splits at each `+` outside parentheses.
fn split_parts(text: &str) -> impl Iterator<Item = &str> {
    let mut depth = 0i32;
    text.split(move |c| {
        depth += i32::from(c == '(') - i32::from(c == ')');
        c == '+' && depth == 0
    })
    .map(str::trim)
}

/// Returns the inside of `name(inside)`.
fn argument<'a>(part: &'a str, name: &str) -> Option<&'a str> {
    part.strip_prefix(name)?.trim_start().strip_prefix('(')?.strip_suffix(')')
}

fn put_once<T>(slot: &mut Option<T>, value: T, name: &'static str) -> Result<(), PolicyError> {
    match slot.replace(value) {
        None => Ok(()),
        Some(_) => Err(PolicyError::Twice(name)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn policy(text: &str) -> HandSet {
        text.parse().unwrap_or_else(|error| panic!("{text}: {error}"))
    }

    #[test]
    fn auto_stands_alone() {
        for text in ["auto", "AUTO", " Auto "] {
            assert_eq!(text.parse(), Ok(Policy::Auto));
        }
        assert_eq!(Policy::default().to_string(), "auto");
        assert_eq!("R(0)".parse(), Ok(Policy::HandSet(policy("R(0)"))));
        let part = PolicyError::Part("auto".to_owned());
        assert_eq!("auto+R(0)".parse::<Policy>(), Err(part));
    }

    #[test]
    fn the_papers_notation_is_read_in_any_order() {
        let fixed = |fixed| Expansion { fixed, ..Expansion::NONE };
        assert_eq!(policy("FEC(0.1)+R(10)").fec, fixed(0.1));
        assert_eq!(policy("FEC(0.1)+R(10)").retransmit, Retransmit::UpTo(10));
        assert_eq!(policy("R(10) + FEC(0.1)"), policy("FEC(0.1)+R(10)"));
        let notify = policy("FEC(0.01R)+R(0)+notify");
        assert_eq!(notify.fec, Expansion { times_requests: 0.01, ..Expansion::NONE });
        assert!(notify.notify);
        assert_eq!(notify.retransmit, Retransmit::Never);
        let over = policy("FEC(0.05/R)+R(inf)");
        assert_eq!(over.fec, Expansion { over_requests: 0.05, ..Expansion::NONE });
        let loss = Expansion { times_loss: 1.0, ..Expansion::NONE };
        assert_eq!(policy("FEC(1loss)+R(inf)").fec, loss);
        let both = Expansion { times_loss: 1.0, fixed: 0.05, ..Expansion::NONE };
        assert_eq!(policy("FEC(1.0loss+0.05)").fec, both);
        assert_eq!(policy("FEC(maxloss+0.05)").fec, both);
        assert_eq!(policy("R(∞)"), HandSet::default());
        assert!(policy("no-ecc").exact && policy("R(0)+no ECC").exact);
    }

    #[test]
    fn what_is_written_reads_back() {
        for text in [
            "FEC(0)+R(inf)",
            "FEC(0.1)+R(10)",
            "FEC(0.01R)+R(0)+notify",
            "FEC(0.05+0.01R)+R(3)",
            "FEC(0.05/R)+R(inf)",
            "FEC(0.05+1loss)+R(inf)",
            "FEC(0)+R(0)+no-ecc",
        ] {
            assert_eq!(policy(text).to_string(), text);
            assert_eq!(Policy::HandSet(policy(text)).to_string(), text);
        }
    }

    #[test]
    fn what_cannot_be_read_is_one_clear_line() {
        for (text, error) in [
            ("", PolicyError::Part(String::new())),
            ("FEC", PolicyError::Part("FEC".to_owned())),
            ("R(1)+", PolicyError::Part(String::new())),
            ("FEC(0.1)R(1)", PolicyError::Factor("0.1)r(1".to_owned())),
            ("FEC()", PolicyError::Term(String::new())),
            ("FEC(0.1Q)", PolicyError::Factor("0.1q".to_owned())),
            ("FEC(much)", PolicyError::Term("much".to_owned())),
            ("FEC(-0.1)", PolicyError::Factor("-0.1".to_owned())),
            ("FEC(nanR)", PolicyError::Factor("nan".to_owned())),
            ("FEC(1e9)", PolicyError::Factor("1e9".to_owned())),
            ("R(-1)", PolicyError::Packets("-1".to_owned())),
            ("R(1.5)", PolicyError::Packets("1.5".to_owned())),
            ("R(1)+R(2)", PolicyError::Twice("R")),
            ("FEC(0)+FEC(0)", PolicyError::Twice("FEC")),
            ("FEC(0.1)+no-ecc", PolicyError::ExactFec),
        ] {
            assert!(!error.to_string().contains('\n'));
            assert_eq!(text.parse::<Policy>(), Err(error), "{text}");
        }
    }

    #[test]
    fn the_packets_of_the_papers_base_case_are_exact() {
        // 60 packets an item [Repository Table 1]; in floating point 0.1 · 60 is above 6.
        assert_eq!(policy("FEC(0.1)").packets(60, 1, 0.0), 66);
        assert_eq!(policy("FEC(0.2)").packets(60, 1, 0.0), 72);
        assert_eq!(policy("FEC(0.11)").packets(60, 1, 0.0), 67);
        assert_eq!(policy("FEC(0.01R)").packets(60, 30, 0.0), 78);
        assert_eq!(policy("FEC(0.01R)").packets(60, 1, 0.0), 61);
        assert_eq!(policy("FEC(0.5/R)").packets(60, 10, 0.0), 63);
        assert_eq!(policy("FEC(1loss)").packets(60, 3, 0.05), 63);
        assert_eq!(policy("FEC(1loss+0.05)").packets(60, 3, 0.5), 93);
        assert_eq!(policy("R(0)").packets(60, 100, 0.5), 60);
    }

    #[test]
    fn every_hundredth_gives_the_ceiling_of_the_exact_product() {
        for hundredths in 0..=200u32 {
            let policy = policy(&format!("FEC({}.{:02})", hundredths / 100, hundredths % 100));
            for d in 1..=300 {
                let exact = d + (hundredths * d).div_ceil(100);
                assert_eq!(policy.packets(d, 1, 0.0), exact, "{hundredths} % of {d}");
            }
        }
    }

    #[test]
    fn packets_never_overflow_or_fall_below_the_data() {
        assert_eq!(policy("FEC(1000R)").packets(u32::MAX, u32::MAX, 1.0), u32::MAX);
        assert_eq!(policy("FEC(1loss)").packets(7, 0, f64::NAN), 7);
        assert_eq!(policy("FEC(1loss)").packets(7, 0, -3.0), 7);
        assert_eq!(policy("FEC(1)").packets(0, 1, 0.0), 0);
    }

    #[test]
    fn naks_are_accepted_up_to_the_bound() {
        assert!(policy("R(10)").accepts(10) && !policy("R(10)").accepts(11));
        assert!(policy("R(inf)").accepts(u64::MAX));
        assert!(!policy("R(0)").accepts(0) && !policy("R(0)").accepts(1));
    }
}
