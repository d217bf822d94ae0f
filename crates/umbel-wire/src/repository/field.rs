//! The TLV types of all repository messages. A type means the same in each message.

use crate::control::Field;

macro_rules! fields {
    ($($name:ident = $number:literal, $text:literal;)*) => {
        $(pub(super) const $name: Field = Field { number: $number, name: $text };)*

        #[cfg(test)]
        pub(super) const ALL: &[Field] = &[$($name),*];
    };
}

fields! {
    AGENT = 1, "agent";
    TOKEN = 2, "token";
    QUERY = 3, "query";
    PATTERN = 4, "pattern";
    CURSOR = 5, "cursor";
    LIMIT = 6, "limit";
    TOI = 7, "item";
    NEED = 8, "need";
    TRANSMISSION = 9, "transmission";
    RECEIVED = 10, "packets received";
    LOST = 11, "packets lost";
    TOIS = 12, "items";
    PROBE = 13, "probe";
    CHANNEL_INDEX = 14, "channel index";
    PACKETS = 15, "packets";
    PACKET_LEN = 16, "packet length";
    RATE = 17, "rate";
    TSI = 18, "session";
    CHANNEL = 19, "channel";
    REASON = 20, "reason";
    PAGE = 21, "page";
    TOTAL = 22, "total";
    NEXT = 23, "next cursor";
    STARTS_IN = 24, "time to the start";
    NAK_SPREAD = 25, "NAK spread";
    ANNOUNCEMENTS = 26, "announcements";
    FIRST_BLOCK = 27, "first block";
    DIGESTS = 28, "digests";
    MORE = 29, "more";
    HOLD = 30, "hold";
    RECEPTION = 31, "reception";
    CONTROL = 32, "control group";
    HEARS = 33, "hears the control group";
    KEY = 35, "group key";
    KEY_ID = 36, "number of a group key";
    SEALED_CONTROL = 37, "sealed control group";
    SYMBOL_KEY = 38, "key of symbol digests";
    FIRST_SYMBOL = 39, "first symbol";
    SYMBOLS = 40, "number of symbols";
    SYMBOL_DIGESTS = 41, "symbol digests";
    SCHEDULE = 42, "schedule of reports";
    CARRIES = 43, "rate that the path carries";
}

#[cfg(test)]
mod tests {
    #[test]
    fn no_two_fields_share_a_number_and_all_are_below_64() {
        let mut numbers: Vec<_> = super::ALL.iter().map(|field| field.number).collect();
        assert!(numbers.iter().all(|number| *number < 64));
        let count = numbers.len();
        numbers.sort_unstable();
        numbers.dedup();
        assert_eq!(numbers.len(), count);
    }
}
