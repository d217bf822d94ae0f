//! Which reports of receivers that they are done are believed.

use std::collections::BTreeMap;

use umbel_engine::tmtp::ReceiptKey;
use umbel_store::feed::seal::PublicKey;
use umbel_wire::Tsi;
use umbel_wire::tmtp::{ReceiverReport, ReceiverState};

use super::Sealing;

/// Demands of a source on a report that a receiver is done.
#[derive(Clone, Debug, Default)]
pub(crate) enum Receipts {
    /// Nothing: everybody is believed.
    #[default]
    None,
    /// A receipt by a holder of the token.
    Token(Tsi, ReceiptKey),
    /// A receipt by the key that the name has on the list.
    Keys(Tsi, BTreeMap<String, ReceiptKey>),
}

impl Receipts {
    /// Returns what a feed for the owners of these keys demands.
    pub(in crate::feed) fn of_keys(
        feed: Tsi,
        sealing: &Sealing,
        owners: &BTreeMap<String, PublicKey>,
    ) -> Receipts {
        let key_of = |(name, key): (&String, &PublicKey)| {
            Some((name.clone(), ReceiptKey::new(sealing.shared(key)?)))
        };
        Receipts::Keys(feed, owners.iter().filter_map(key_of).collect())
    }

    /// Returns what a feed with this admission key demands.
    pub(in crate::feed) fn of_token(feed: Tsi, admission: &[u8; 32]) -> Receipts {
        Receipts::Token(feed, ReceiptKey::new(admission))
    }

    /// Returns whether each name is the name of one receiver, who alone can say that it is done.
    pub(crate) fn has_owners(&self) -> bool {
        matches!(self, Receipts::Keys(..))
    }

    /// Returns whether a report is believed if it says that the receiver is done.
    pub(crate) fn believes(&self, report: &ReceiverReport) -> bool {
        let made = |feed: &Tsi, key: &ReceiptKey| {
            report
                .receipt
                .is_some_and(|given| key.has_made(given, *feed, report.node, &report.name))
        };
        report.state != ReceiverState::Done
            || match self {
                Receipts::None => true,
                Receipts::Token(feed, key) => made(feed, key),
                Receipts::Keys(feed, keys) => {
                    keys.get(&report.name).is_some_and(|key| made(feed, key))
                }
            }
    }
}
