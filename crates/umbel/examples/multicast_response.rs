//! A web server of one file whose response goes to all clients at once, by `SmoListener` and
//! `MasterStream`.
//!
//! ```console
//! # cargo run --example multicast_response -- :8080 232.7.7.7:8080 big.iso
//! # umbel smo join 232.7.7.7:8080@192.0.2.2        # on the clients' hosts
//! $ curl -O http://192.0.2.2:8080/                  # within a second of the first
//! ```

use std::fs::File;
use std::io::Read as _;
use std::time::Duration;

use anyhow::Context;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::time::{Instant, timeout, timeout_at};
use umbel::smo::listener::{ChildStream, SmoListener};
use umbel::smo::serve::ServeOptions;

/// Time from the first request to the response.
const WINDOW: Duration = Duration::from_secs(1);
/// Time for a request, and its length at most.
const PATIENCE: Duration = Duration::from_secs(5);
const LONGEST: usize = 16 << 10;

fn main() -> anyhow::Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [listen, channel, path] = arguments.as_slice() else {
        anyhow::bail!("usage: multicast_response [ADDRESS]:PORT GROUP:PORT FILE");
    };
    let listen = listen.parse().map_err(anyhow::Error::msg)?;
    let channel = channel.parse().map_err(anyhow::Error::msg)?;
    let options = ServeOptions::new(listen, channel);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(serve(&options, path))
}

async fn serve(options: &ServeOptions, path: &str) -> anyhow::Result<()> {
    let mut listener = SmoListener::bind(options)?;
    println!("serving {path} at {} and {}", listener.local_addr(), listener.channel());
    while let Some(first) = listener.accept().await {
        let mut file = File::open(path).with_context(|| format!("cannot read {path}"))?;
        let len = file.metadata()?.len();
        let mut body = listener.master().await?;
        let until = Instant::now() + WINDOW;
        let mut next = Some(first);
        while let Some(mut client) = next {
            // Clients that ask for nothing are not answered.
            if has_asked(&mut client).await {
                body.attach(&client).await?;
            }
            next = timeout_at(until, listener.accept()).await.unwrap_or_default();
        }
        let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {len}\r\nConnection: close\r\n\r\n");
        body.write_all(head.as_bytes()).await?;
        let mut piece = vec![0; 64 << 10];
        loop {
            match file.read(&mut piece)? {
                0 => break,
                // Waits until there is room for it: as fast as the slowest client.
                read => body.write_all(&piece[..read]).await?,
            }
        }
        body.shutdown().await?;
    }
    Ok(())
}

/// Reads a request to its end. Returns whether it came in time.
async fn has_asked(client: &mut ChildStream) -> bool {
    let mut head = Vec::new();
    let read = async {
        while !head.windows(4).any(|end| end == b"\r\n\r\n") && head.len() < LONGEST {
            if client.read_buf(&mut head).await? == 0 {
                return Ok::<bool, std::io::Error>(false);
            }
        }
        Ok(head.len() < LONGEST)
    };
    matches!(timeout(PATIENCE, read).await, Ok(Ok(true)))
}
