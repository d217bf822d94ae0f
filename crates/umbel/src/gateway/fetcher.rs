//! The thread that fetches repairs from the source.

use std::net::SocketAddr;
use std::time::Duration;

use tokio::sync::mpsc;
use umbel_engine::host::Mailbox;

use super::host::{Fetch, Input};
use super::repairs::Key;
use crate::http::{Fetched, Wanted, fetch};

/// Longest time of a fetch. A later answer would be of no use to a player.
const TIME: Duration = Duration::from_secs(4);

/// Fetches files, and puts the answers into a host's mailbox. It ends when it is dropped.
#[derive(Debug)]
pub(super) struct Fetcher(mpsc::UnboundedSender<(Key, Wanted)>);

impl Fetcher {
    /// Starts the thread.
    ///
    /// # Errors
    ///
    /// If the system cannot start it.
    pub(super) fn start(source: SocketAddr, host: Mailbox<Input>) -> std::io::Result<Fetcher> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        // The host bounds what is asked for at a time.
        let (ask, mut asked) = mpsc::unbounded_channel::<(Key, Wanted)>();
        let run = move || {
            runtime.block_on(async {
                while let Some((key, wanted)) = asked.recv().await {
                    let host = host.clone();
                    tokio::spawn(async move {
                        let answer = get(source, &key, &wanted).await;
                        host.put(Input::Fetched { key, answer });
                    });
                }
            });
        };
        std::thread::Builder::new().name("umbel-repair".to_owned()).spawn(run)?;
        Ok(Fetcher(ask))
    }
}

impl Fetch for Fetcher {
    fn fetch(&mut self, key: Key, wanted: Wanted) {
        let _ = self.0.send((key, wanted));
    }
}

async fn get(source: SocketAddr, key: &Key, wanted: &Wanted) -> Option<Fetched> {
    let path = format!("/{}", key.1);
    let result = fetch(source, &path, wanted, TIME).await;
    result.inspect_err(|error| tracing::info!("{path} is not repaired: {error}")).ok()
}
