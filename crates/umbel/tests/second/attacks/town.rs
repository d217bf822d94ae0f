//! The lab of attacks: a source, honest receivers, and a stranger.

use std::sync::mpsc;

use umbel_lab::{Impairment, Lab, Node};
use umbel_wire::datagram::IpDatagram;

use super::forgeries::Sniffed;
use crate::support::feeds::{Feeds, Receiver};
use crate::support::tap::Tap;
use crate::support::{lab, star};

/// Honest receivers: hosts `h2` to `h5`. Strangers are `h6` and those after it, with links without
/// loss.
pub(crate) const HONEST: [&str; 4] = ["h2", "h3", "h4", "h5"];
pub(crate) const STRANGERS: [&str; 3] = ["h6", "h7", "h8"];
pub(crate) const STRANGER: &str = STRANGERS[0];
/// Symbols of a block, and bytes of a symbol, of a feed with an MTU of 1,500 bytes.
pub(crate) const SHAPE: (u8, usize) = (64, 1_360);

/// Creates the lab: a source, four receivers that lose 5 %, and the stranger.
pub(crate) fn town() -> Option<Lab> {
    town_with(1)
}

/// Creates the same with some of the strangers.
pub(crate) fn town_with(strangers: usize) -> Option<Lab> {
    let loss = Impairment::none().loss(0.05);
    let town = star(HONEST.len() + strangers, loss).with_every_link(|link| {
        if STRANGERS.iter().any(|host| link.b == *host || link.a == *host) {
            (link.a_to_b, link.b_to_a) = (Impairment::none(), Impairment::none());
        }
    });
    lab(&town)
}

/// Creates a key for each of these names. Returns the list of them for the sender.
pub(crate) fn list_of(feeds: &Feeds<'_>, names: &[&str]) -> String {
    let mut list = String::new();
    for name in names {
        let key = feeds.directory.path().join(name);
        let mut command = feeds.umbel("h1");
        let output = command.args(["key", "--as", name, "--key"]).arg(key).output().unwrap();
        list += &String::from_utf8(output.stdout).unwrap();
    }
    let admit = feeds.directory.path().join("receivers");
    std::fs::write(&admit, list).unwrap();
    admit.to_str().unwrap().to_owned()
}

/// Starts the honest receivers, each with its key.
pub(crate) fn keyed(feeds: &Feeds<'_>) -> [Receiver; 4] {
    HONEST.map(|host| {
        let key = feeds.directory.path().join(host);
        feeds.recv(host, &["--key", key.to_str().unwrap()])
    })
}

/// A token, and the options of all its holders.
const TOKEN: [&str; 2] = ["--token", "sesame"];

/// Rule that lets receivers into the tree of a feed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Door {
    /// Everybody.
    Open,
    /// Holders of the token.
    Token,
    /// Receivers on the list, which has keys. There is no token.
    List,
}

impl Door {
    /// Returns the options of a sender that begins when all honest receivers are there.
    pub(crate) fn of_sender(self, feeds: &Feeds<'_>) -> Vec<String> {
        let list = (self == Door::List).then(|| list_of(feeds, &HONEST));
        let mut options = vec!["--rate", "10M", "--wait-for", "4"];
        match (self, &list) {
            (Door::Token, _) => options.extend(TOKEN),
            (Door::List, Some(list)) => options.extend(["--admit", list]),
            _ => {}
        }
        options.into_iter().map(str::to_owned).collect()
    }

    /// Starts the honest receivers.
    pub(crate) fn receivers(self, feeds: &Feeds<'_>) -> [Receiver; 4] {
        match self {
            Door::Open => HONEST.map(|host| feeds.recv(host, &[])),
            Door::Token => HONEST.map(|host| feeds.recv(host, &TOKEN)),
            Door::List => keyed(feeds),
        }
    }
}

/// A tap, and what tells of the datagrams that it sees.
type Sniffer = (Tap<(mpsc::Sender<Sniffed>, String)>, mpsc::Receiver<Sniffed>);

/// Shows what passes on all links but data packets, and what a host sends itself, under whatever
/// address. Otherwise one that answers what it sees would answer itself, more and more often.
pub(crate) fn sniff(lab: &Lab, but: Node<'_>) -> Sniffer {
    let (tell, told) = mpsc::channel();
    let tap = Tap::new(lab, (tell, but.name().to_owned()), |(tell, here), sight| {
        let IpDatagram { source, destination, payload, .. } = sight.datagram;
        if sight.is_sent && sight.node != here && payload.len() < 1_300 {
            // The attack may be over.
            let _ = tell.send((source, destination, payload.to_vec()));
        }
    });
    (tap, told)
}
