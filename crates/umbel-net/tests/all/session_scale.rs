//! Many clients at once.

use std::fs;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crate::namespaces::in_own_process;
use crate::session_support::{self, Client, Server, message};
use umbel_net::session::{ClientEvent, ConnectOptions, ServerOptions, SessionServer, SessionUrl};

/// Longest time that a crowd needs to get in.
const LAST_RESORT: Duration = Duration::from_mins(5);

/// Returns a lock, since each test fills the machine or measures it: one at a time.
fn alone() -> MutexGuard<'static, ()> {
    static TURN: Mutex<()> = Mutex::new(());
    TURN.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Waits as long for an answer as a crowd may keep a busy machine from giving it.
fn patient() -> ConnectOptions {
    ConnectOptions { timeout: LAST_RESORT, ..ConnectOptions::default() }
}

/// Returns a client whose message was answered. Tries again where a crowd kept the server from
/// confirming the handshake in time, as every command does.
fn answered(url: &SessionUrl) -> Client {
    loop {
        let client = Client::start(url, &patient());
        if client.session.send(message(1, 500)).is_err() {
            continue;
        }
        loop {
            match client.events.recv_timeout(LAST_RESORT).expect("the client reports something") {
                ClientEvent::Message(bytes) => {
                    assert_eq!(bytes, message(1, 500));
                    return client;
                }
                ClientEvent::Disconnected { reason, retryable } => {
                    assert!(retryable, "{reason}");
                    break;
                }
                _ => {}
            }
        }
    }
}

/// Returns this number of clients, started at once, when all of them have their answers.
fn all_answered(server: &SessionServer, url: &SessionUrl, clients: usize) -> Vec<Client> {
    let start = Instant::now();
    let thread = || {
        let url = url.clone();
        std::thread::spawn(move || answered(&url))
    };
    let threads: Vec<_> = (0..clients).map(|_| thread()).collect();
    let answered = threads.into_iter().map(|thread| thread.join().unwrap()).collect();
    // Attempts that were given up end by and by.
    while server.handle().len() != clients {
        assert!(start.elapsed() < LAST_RESORT, "{} sessions", server.handle().len());
        std::thread::sleep(Duration::from_millis(10));
    }
    answered
}

#[test]
fn two_hundred_clients_at_once_are_all_answered() {
    let _turn = alone();
    // Attempts that were given up have places, too, and all are of one address.
    let options = ServerOptions { max_per_address: 4_096, ..ServerOptions::default() };
    let (server, url) = Server::echo(options);
    let start = Instant::now();
    let clients = all_answered(&server, &url, 200);
    println!("200 clients: {:?} to the last answer", start.elapsed());
    drop(clients);
}

#[test]
fn a_crowd_beyond_the_limit_of_handshakes_gets_in_by_and_by() {
    let _turn = alone();
    let options =
        ServerOptions { max_handshakes: 8, max_per_address: 4_096, ..ServerOptions::default() };
    let (server, url) = Server::echo(options);
    let _clients = all_answered(&server, &url, 60);
}

/// Returns the resident memory of this process in bytes.
fn resident() -> u64 {
    let status = fs::read_to_string("/proc/self/statm").unwrap();
    status.split_whitespace().nth(1).unwrap().parse::<u64>().unwrap() * 4_096
}

#[test]
fn a_thousand_sessions_fit_into_the_servers_memory() {
    let _turn = alone();
    in_own_process(|| {
        const SESSIONS: usize = 1_000;
        // The first wait for the last without a word.
        let options = ServerOptions {
            max_per_address: 4_096,
            handshake_timeout: LAST_RESORT,
            idle_timeout: LAST_RESORT,
            ..ServerOptions::default()
        };
        let server = Server::start(options);
        let before = resident();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let clients = runtime.block_on(async {
            let clients = session_support::raw::many(server.address, SESSIONS).await;
            let start = Instant::now();
            while server.handle.len() < SESSIONS {
                assert!(start.elapsed() < LAST_RESORT, "{} sessions", server.handle.len());
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
            clients
        });
        let grown = resident() - before;
        println!("{SESSIONS} sessions and as many clients: {} KiB each", grown / 1024 / 1_000);
        // Both ends are in this process; the server alone takes less.
        assert!(grown < 150 << 20, "{grown} bytes");
        drop(clients);
    });
}

#[test]
fn an_answer_does_not_wait_for_other_sessions_bulk_data() {
    let _turn = alone();
    let server = Server::start(ServerOptions::default());
    let mut busy = Vec::new();
    for _ in 0..4 {
        let client = Client::connect(&server.url(), &ConnectOptions::default()).unwrap();
        client.session.send(message(1, 1)).unwrap();
        let mut bulk = server.handle.bulk(server.opened()).unwrap();
        server.message();
        std::thread::spawn(move || while bulk.write(vec![0; 60_000].into()).is_ok() {});
        busy.push(client);
    }
    let client = Client::start(&server.url(), &ConnectOptions::default());
    let start = Instant::now();
    client.session.send(message(2, 1)).unwrap();
    let id = server.opened();
    server.message();
    server.handle.send(id, message(3, 1)).unwrap();
    assert_eq!(client.message(), message(3, 1));
    let took = start.elapsed();
    println!("an answer beside four bulk transfers: {took:?}");
    for client in busy {
        assert!(matches!(client.next(), ClientEvent::Connected { .. }));
    }
}
