//! Options for everything that the paper leaves open.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

/// Arrival process of clients.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Arrivals {
    /// One client at the end of each interval.
    Regular,
    /// A Poisson process with the interval as its mean.
    Poisson,
}

/// Number of items that a client wants.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Wants {
    /// The mean itself.
    Fixed,
    /// Each item is wanted with the same probability; every client wants at least one.
    Binomial,
    /// 1 to twice the mean less 1, with equal probability.
    Uniform,
}

/// Recipients of the announcement of a retransmission.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Audience {
    /// The clients that asked for it.
    Naks,
    /// Every client that wants the item and knows of it.
    Everyone,
}

/// Readings of the points that the paper leaves open. The defaults come nearest to its numbers;
/// they were chosen for that, as the report says.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Choices {
    /// Arrival process of clients.
    pub arrivals: Arrivals,
    /// Number of items that a client wants.
    pub wants: Wants,
    /// Time for which NAKs are gathered before a retransmission.
    pub gather: Duration,
    /// Whether the whole of `gather` is waited even if every client has answered.
    pub gather_fully: bool,
    /// Recipients of the announcement of a retransmission.
    pub audience: Audience,
    /// Whether a NAK of any size joins a retransmission that is being gathered.
    pub join: bool,
    /// Whether the channel is kept idle while NAKs are awaited.
    pub wait: bool,
    /// Whether forward error correction is added to retransmissions.
    pub expand_repairs: bool,
}

impl Default for Choices {
    fn default() -> Choices {
        Choices {
            arrivals: Arrivals::Regular,
            wants: Wants::Binomial,
            gather: Duration::from_secs(15),
            gather_fully: true,
            audience: Audience::Everyone,
            join: true,
            wait: false,
            expand_repairs: false,
        }
    }
}

/// Error of parsing a choice.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ChoiceError {
    /// The `=` is missing.
    #[error("`{0}`: write it like gather=10")]
    Syntax(String),
    /// The name is unknown.
    #[error("`{0}` is no choice: {KEYS}")]
    Key(String),
    /// The value is invalid.
    #[error("{key}={value}: expected {expected}")]
    Value {
        /// The choice.
        key: &'static str,
        /// The given value.
        value: String,
        /// The expected values.
        expected: &'static str,
    },
}

/// The choices and their values, for help texts.
pub const KEYS: &str = "arrivals=regular|poisson, wants=fixed|binomial|uniform, gather=SECONDS, \
     gather-fully=yes|no, audience=everyone|naks, join=yes|no, wait=yes|no, expand-repairs=yes|no";

impl Choices {
    /// Sets one choice, written as `key=value`.
    ///
    /// # Errors
    ///
    /// Returns an error with the expected form if the text is invalid.
    pub fn set(&mut self, text: &str) -> Result<(), ChoiceError> {
        let (key, value) =
            text.split_once('=').ok_or_else(|| ChoiceError::Syntax(text.to_owned()))?;
        match key {
            "arrivals" => self.arrivals = value.parse()?,
            "wants" => self.wants = value.parse()?,
            "gather" => self.gather = seconds(value)?,
            "gather-fully" => self.gather_fully = yes("gather-fully", value)?,
            "audience" => self.audience = value.parse()?,
            "join" => self.join = yes("join", value)?,
            "wait" => self.wait = yes("wait", value)?,
            "expand-repairs" => self.expand_repairs = yes("expand-repairs", value)?,
            _ => return Err(ChoiceError::Key(key.to_owned())),
        }
        Ok(())
    }
}

fn seconds(value: &str) -> Result<Duration, ChoiceError> {
    let time = value.parse().ok().and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
    time.filter(|&time| time <= Duration::from_hours(1)).ok_or_else(|| ChoiceError::Value {
        key: "gather",
        value: value.to_owned(),
        expected: "0 to 3600 seconds",
    })
}

fn yes(key: &'static str, value: &str) -> Result<bool, ChoiceError> {
    match value {
        "yes" => Ok(true),
        "no" => Ok(false),
        _ => Err(ChoiceError::Value { key, value: value.to_owned(), expected: "yes or no" }),
    }
}

/// Implements parsing and printing of an enum by the names of its variants.
macro_rules! named {
    ($type:ident, $key:literal, $expected:literal, $($name:literal => $variant:ident),+) => {
        impl FromStr for $type {
            type Err = ChoiceError;

            fn from_str(value: &str) -> Result<$type, ChoiceError> {
                match value {
                    $($name => Ok($type::$variant),)+
                    _ => Err(ChoiceError::Value {
                        key: $key,
                        value: value.to_owned(),
                        expected: $expected,
                    }),
                }
            }
        }

        impl fmt::Display for $type {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(match self { $($type::$variant => $name,)+ })
            }
        }
    };
}

named!(Arrivals, "arrivals", "regular or poisson", "regular" => Regular, "poisson" => Poisson);
named!(Wants, "wants", "fixed, binomial or uniform",
    "fixed" => Fixed, "binomial" => Binomial, "uniform" => Uniform);
named!(Audience, "audience", "everyone or naks", "everyone" => Everyone, "naks" => Naks);

impl fmt::Display for Choices {
    /// Writes the choices as [`Choices::set`] reads them.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let yes = |yes| if yes { "yes" } else { "no" };
        write!(
            f,
            "arrivals={} wants={} gather={} gather-fully={} audience={} join={} wait={} \
             expand-repairs={}",
            self.arrivals,
            self.wants,
            self.gather.as_secs_f64(),
            yes(self.gather_fully),
            self.audience,
            yes(self.join),
            yes(self.wait),
            yes(self.expand_repairs),
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_reads_back() {
        let mut choices = Choices { wait: true, ..Choices::default() };
        choices.set("wants=uniform").unwrap();
        choices.set("gather=0.25").unwrap();
        choices.set("audience=naks").unwrap();
        let mut read = Choices::default();
        for text in choices.to_string().split(' ') {
            read.set(text).unwrap();
        }
        assert_eq!(read, choices);
        assert_ne!(read, Choices::default());
    }

    #[test]
    fn mistakes_say_what_was_expected() {
        let mut choices = Choices::default();
        for (text, expected) in [
            ("gather", "write it like"),
            ("speed=1", "arrivals=regular|poisson"),
            ("gather=-1", "0 to 3600 seconds"),
            ("wait=maybe", "yes or no"),
            ("wants=", "fixed, binomial or uniform"),
        ] {
            let error = choices.set(text).unwrap_err().to_string();
            assert!(error.contains(expected), "{error}");
        }
        assert_eq!(choices, Choices::default());
    }
}
