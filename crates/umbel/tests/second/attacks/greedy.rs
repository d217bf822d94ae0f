//! A client that is admitted, or need not be, and asks for far more than its share. It is this test
//! program once more, on the stranger's host.

use std::process::{Child, Command, Stdio};
use std::time::Duration;

use umbel_lab::Node;
use umbel_net::session::{ClientSession, ConnectOptions, SessionUrl};
use umbel_wire::Toi;
use umbel_wire::repository::{ClientMessage, Need, NeedRun, SymbolKey, SymbolRun};

/// The environment of a greedy client: what it does, and to which server.
const ROLE: &str = "UMBEL_GREED";
const SERVER: &str = "UMBEL_GREED_AT";
/// Sessions of one that opens many: more than an address may have.
const SESSIONS: usize = 300;

/// A greedy client, which ends when it is dropped.
pub(crate) struct Greedy(Child);

impl Greedy {
    /// Starts one on a host, with its role.
    pub(crate) fn start(host: Node<'_>, role: &str, url: &str) -> Greedy {
        let mut command: Command = host.command(std::env::current_exe().unwrap());
        command.args(["--exact", "attacks::greedy::act", "--ignored", "--nocapture"]);
        command.env(ROLE, role).env(SERVER, url);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        Greedy(command.spawn().unwrap())
    }

    /// Returns whether it is still at it.
    pub(crate) fn is_at_it(&mut self) -> bool {
        self.0.try_wait().unwrap().is_none()
    }
}

impl Drop for Greedy {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Plays the role that the environment names, forever: about a thousand messages a second, or a
/// session for each guess, as many as the server lets in.
#[test]
#[ignore = "is started by other tests"]
fn act() {
    let (Ok(role), Ok(url)) = (std::env::var(ROLE), std::env::var(SERVER)) else { return };
    let url: SessionUrl = url.parse().unwrap();
    if role == "sessions" {
        let open = || ClientSession::start(&url, &ConnectOptions::default(), |_| ());
        let sessions: Vec<_> = (0..SESSIONS).map(|_| open()).collect();
        std::thread::sleep(Duration::from_mins(10));
        drop(sessions);
        return;
    }
    for guess in 0_u64.. {
        let connected = ClientSession::connect(&url, &ConnectOptions::default(), |_| ());
        let Ok(session) = connected else { continue };
        let hello = ClientMessage::Hello {
            agent: "greedy".to_owned(),
            token: if role == "guesses" {
                Some(format!("guess{guess}"))
            } else {
                url.token.clone()
            },
        };
        say(&session, &hello);
        for turn in (0_u32..).take_while(|_| role != "guesses") {
            if !say(&session, &wish(&role, turn)) {
                break;
            }
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}

fn say(session: &ClientSession, message: &ClientMessage) -> bool {
    let mut bytes = Vec::new();
    message.emit(&mut bytes);
    session.send(bytes.into()).is_ok()
}

fn wish(role: &str, turn: u32) -> ClientMessage {
    let toi = Toi(1 + turn % 2);
    match role {
        "wants" => {
            let run = NeedRun { first_block: 0, blocks: u32::MAX, symbols: 1 };
            ClientMessage::Want { toi, need: Need::Symbols(vec![run]) }
        }
        "questions" if turn.is_multiple_of(3) => ClientMessage::Digests { toi },
        "questions" if turn % 3 == 1 => {
            let patterns = (0..200).map(|n| format!("**/*{n}*{turn}")).collect();
            ClientMessage::List { query: turn, patterns, cursor: 0, limit: 1_000 }
        }
        "questions" => ClientMessage::SymbolDigests {
            toi,
            key: SymbolKey([1; 32]),
            symbols: SymbolRun { block: 0, first_esi: 0, count: 255 },
        },
        "probes" => ClientMessage::Probe {
            probe: turn,
            channel: 0,
            packets: 20_000,
            packet_len: 65_507,
            rate_bits_per_s: 10_000_000_000,
        },
        other => panic!("no role {other}"),
    }
}
