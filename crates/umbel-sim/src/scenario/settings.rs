//! Keys that replace the constants of a protocol, and their values.

use std::time::Duration;

use serde::de::{Deserialize, DeserializeOwned, Deserializer, Error as _};
use umbel_engine::units::{ByteCount, Rate};

use umbel_topology::values::{Share, Time, Written};

/// Part of a section: some of its keys.
pub(super) trait Settings: DeserializeOwned {
    /// Names of the keys.
    const KEYS: &'static [&'static str];
}

/// Value that replaces a field.
pub(super) trait Value<T> {
    fn put(&self, field: &mut T);
}

/// Declares the keys that replace fields of a configuration: name, form, and field of each.
macro_rules! settings {
    ($(#[$about:meta])* $name:ident for $config:ty {
        $($key:ident: $form:ty => $($field:tt).+;)*
    }) => {
        $(#[$about])*
        #[derive(Debug, Default, serde::Deserialize)]
        struct $name {
            $($key: Option<$form>,)*
        }

        impl $crate::scenario::settings::Settings for $name {
            const KEYS: &'static [&'static str] = &[$(stringify!($key)),*];
        }

        impl $name {
            /// Puts the values that are written in place of those of the configuration.
            fn apply(&self, config: &mut $config) {
                $(
                    if let Some(written) = &self.$key {
                        $crate::scenario::settings::Value::put(written, &mut config.$($field).+);
                    }
                )*
            }
        }
    };
}

pub(super) use settings;

/// Time above 0, so that what repeats after it does not repeat without end at one moment.
#[derive(Clone, Copy, Debug)]
pub(super) struct Period(pub(super) Duration);

/// Number from 0 to a million.
#[derive(Clone, Copy, Debug)]
pub(super) struct Factor(pub(super) f64);

/// Share from 0 to 1.
#[derive(Clone, Copy, Debug)]
pub(super) struct Portion(pub(super) f64);

/// Whole number that has a least value.
#[derive(Clone, Copy, Debug)]
pub(super) struct AtLeast<const LEAST: u64, T>(pub(super) T);

/// Two times, of which the first is not the greater one.
#[derive(Clone, Copy, Debug)]
pub(super) struct Span(pub(super) Duration, pub(super) Duration);

/// A value, or `false` for none.
#[derive(Clone, Copy, Debug)]
pub(super) struct OrFalse<T>(Option<T>);

impl<'de> Deserialize<'de> for Period {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Period, D::Error> {
        let Written(Time(time)) = Written::deserialize(deserializer)?;
        if time.is_zero() {
            return Err(D::Error::custom("expected a time above 0"));
        }
        Ok(Period(time))
    }
}

impl<'de> Deserialize<'de> for Factor {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Factor, D::Error> {
        let number = f64::deserialize(deserializer)?;
        if (0.0..=1e6).contains(&number) {
            Ok(Factor(number))
        } else {
            Err(D::Error::custom(format!("{number}: expected a number from 0 to 1000000")))
        }
    }
}

impl<'de> Deserialize<'de> for Portion {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Portion, D::Error> {
        let Written(Share(share)) = Written::deserialize(deserializer)?;
        if (0.0..=1.0).contains(&share) {
            Ok(Portion(share))
        } else {
            Err(D::Error::custom(format!("{share}: expected a share from 0 to 1")))
        }
    }
}

impl<'de, const LEAST: u64, T> Deserialize<'de> for AtLeast<LEAST, T>
where
    T: Deserialize<'de> + Copy + TryInto<u64>,
{
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let number = T::deserialize(deserializer)?;
        match number.try_into() {
            Ok(value) if value >= LEAST => Ok(AtLeast(number)),
            _ => Err(D::Error::custom(format!("expected at least {LEAST}"))),
        }
    }
}

impl<'de> Deserialize<'de> for Span {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Span, D::Error> {
        let [least, most] = <[Written<Time>; 2]>::deserialize(deserializer)?.map(|time| time.0.0);
        if least > most {
            return Err(D::Error::custom("expected the least time before the greatest"));
        }
        Ok(Span(least, most))
    }
}

impl<'de, T: Deserialize<'de>> Deserialize<'de> for OrFalse<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<OrFalse<T>, D::Error> {
        #[derive(serde::Deserialize)]
        #[serde(untagged, expecting = "expected a value, or false")]
        enum Raw<T> {
            Switch(bool),
            Value(T),
        }
        match Raw::deserialize(deserializer)? {
            Raw::Switch(false) => Ok(OrFalse(None)),
            Raw::Switch(true) => Err(D::Error::custom("expected a value, or false")),
            Raw::Value(value) => Ok(OrFalse(Some(value))),
        }
    }
}

impl Value<Duration> for Written<Time> {
    fn put(&self, field: &mut Duration) {
        *field = self.0.0;
    }
}

impl Value<Option<Duration>> for Written<Time> {
    fn put(&self, field: &mut Option<Duration>) {
        *field = Some(self.0.0);
    }
}

impl Value<Duration> for Period {
    fn put(&self, field: &mut Duration) {
        *field = self.0;
    }
}

impl Value<Option<Duration>> for OrFalse<Period> {
    fn put(&self, field: &mut Option<Duration>) {
        *field = self.0.map(|period| period.0);
    }
}

impl Value<f64> for Factor {
    fn put(&self, field: &mut f64) {
        *field = self.0;
    }
}

impl Value<f64> for Portion {
    fn put(&self, field: &mut f64) {
        *field = self.0;
    }
}

impl Value<(f64, f64)> for [Factor; 2] {
    fn put(&self, field: &mut (f64, f64)) {
        *field = (self[0].0, self[1].0);
    }
}

impl Value<Option<(f64, f64)>> for [Factor; 2] {
    fn put(&self, field: &mut Option<(f64, f64)>) {
        *field = Some((self[0].0, self[1].0));
    }
}

impl Value<(Duration, Duration)> for Span {
    fn put(&self, field: &mut (Duration, Duration)) {
        *field = (self.0, self.1);
    }
}

impl Value<Rate> for Written<Rate> {
    fn put(&self, field: &mut Rate) {
        *field = self.0;
    }
}

impl Value<usize> for Written<ByteCount> {
    fn put(&self, field: &mut usize) {
        *field = usize::try_from(self.0.0).unwrap_or(usize::MAX);
    }
}

impl Value<u64> for Written<ByteCount> {
    fn put(&self, field: &mut u64) {
        *field = self.0.0;
    }
}

impl<const LEAST: u64, T: Copy> Value<T> for AtLeast<LEAST, T> {
    fn put(&self, field: &mut T) {
        *field = self.0;
    }
}

impl<const LEAST: u64, T: Copy> Value<Option<T>> for AtLeast<LEAST, T> {
    fn put(&self, field: &mut Option<T>) {
        *field = Some(self.0);
    }
}

impl Value<bool> for bool {
    fn put(&self, field: &mut bool) {
        *field = *self;
    }
}

impl Value<u32> for u32 {
    fn put(&self, field: &mut u32) {
        *field = *self;
    }
}

impl Value<Vec<u8>> for Vec<u8> {
    fn put(&self, field: &mut Vec<u8>) {
        field.clone_from(self);
    }
}

impl<const LEAST: u64, T: Copy> Value<Option<T>> for OrFalse<AtLeast<LEAST, T>> {
    fn put(&self, field: &mut Option<T>) {
        *field = self.0.map(|number| number.0);
    }
}
