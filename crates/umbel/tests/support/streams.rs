//! A stream and its receivers in a lab.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::BufWriter;
use std::net::{IpAddr, Ipv4Addr};
use std::path::PathBuf;
use std::process::Command;
use std::time::{Duration, Instant};

use serde_json::Value;
use tempfile::TempDir;
use umbel_lab::{Lab, Node, Queue, Topology};
use umbel_video::clips::{Clip, Kind};
use umbel_video::{FrameRate, Size, y4m};

use super::bench::SOON;
use super::group;
use super::process::{Logs, Process};
use super::turn::Turn;

/// Size of the pictures of a clip.
pub(crate) const SIZE: (u32, u32) = (320, 180);
/// Pictures of a clip, which is repeated.
pub(crate) const PICTURES: u64 = 45;

/// Groups where streams are announced and asked for, of either family.
const DIRECTORIES: [&str; 2] = ["239.255.255.255", "ff05::2:7ffe"];

/// Interval at which levels and links are looked at.
pub(crate) const LOOK: Duration = Duration::from_millis(250);

/// A site: name, rate of its link, number of receivers.
pub(crate) type Site = (&'static str, &'static str, usize);

/// Creates a topology with the source `h1` behind the router `r0`, and sites behind their own links
/// with queues of 20 packets. A site `a` has a router `ra` and the hosts `a1`, `a2` ….
pub(crate) fn sites(sites: &[Site]) -> Topology {
    let mut topology = Topology::new().host("h1").router("r0").link("h1", "r0");
    for &(site, rate, receivers) in sites {
        let (router, switch) = (format!("r{site}"), format!("s{site}"));
        topology = topology.router(&router).link("r0", &router);
        topology = topology.rate(rate.parse().unwrap()).queue(Queue::Packets(20));
        topology = topology.delay(Duration::from_millis(10));
        topology = topology.switch(&switch).link(&router, &switch);
        for receiver in 1..=receivers {
            let host = format!("{site}{receiver}");
            topology = topology.host(&host).link(&switch, &host);
        }
    }
    topology
}

/// A lab with a clip to stream.
pub(crate) struct Streams<'lab> {
    pub(crate) lab: &'lab Lab,
    pub(crate) logs: Logs,
    pub(crate) directory: TempDir,
    _turn: Turn,
}

impl<'lab> Streams<'lab> {
    /// Creates the streams of a lab. Announcements and queries reach all hosts.
    pub(crate) fn new(lab: &'lab Lab) -> Streams<'lab> {
        let directories = DIRECTORIES.map(|group| group.parse().unwrap());
        lab.route_multicast_from_all(directories).unwrap();
        let directory = tempfile::tempdir().unwrap();
        Streams { lab, logs: Logs::default(), directory, _turn: Turn::wait() }
    }

    /// Waits until a condition holds, and fails with the output of all programs if it does not.
    #[track_caller]
    pub(crate) fn wait_until(
        &self,
        what: &str,
        timeout: Duration,
        mut holds: impl FnMut() -> bool,
    ) {
        let until = Instant::now() + timeout;
        while !holds() {
            if Instant::now() > until {
                self.logs.fail(&format!("not within {timeout:?}: {what}"));
            }
            std::thread::sleep(LOOK);
        }
    }

    pub(crate) fn host(&self, name: &str) -> Node<'lab> {
        self.lab.host(name).unwrap()
    }

    /// Returns the command `umbel` on a host.
    pub(crate) fn umbel(&self, host: &str) -> Command {
        let mut command = self.host(host).command(env!("CARGO_BIN_EXE_umbel"));
        command.current_dir(self.directory.path());
        command.env("XDG_STATE_HOME", self.path("state"));
        command
    }

    /// Returns the path of a file beside the clip.
    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// Writes a clip of this number of pictures at 30 a second. All of it moves, so that it fills
    /// any layers.
    pub(crate) fn make_clip(&self, name: &str, size: (u32, u32), pictures: u64) {
        let size = Size::new(size.0, size.1).unwrap();
        let header = y4m::Header { size, rate: FrameRate::new(30, 1).unwrap() };
        let clip = Clip::new(Kind::Pan, size, 1);
        let file = BufWriter::new(File::create(self.path(name)).unwrap());
        let mut writer = y4m::Writer::new(file, header).unwrap();
        for number in 0..pictures {
            writer.write(&clip.frame(number)).unwrap();
        }
    }

    /// Streams a clip from `h1` as `live`, over and over. Routers forward its layers to where hosts
    /// join them, and cut them off at once when the last leaves.
    #[track_caller]
    pub(crate) fn stream(&self, clip: &str, options: &[&str]) -> Source {
        let mut command = self.umbel("h1");
        command.args(["stream", clip, "--name", "live", "--loop", "--json"]).args(options);
        self.follow(Process::start("source", command, &self.logs))
    }

    /// Makes the routers carry the groups of a stream that is about to begin.
    #[track_caller]
    pub(crate) fn follow(&self, process: Process) -> Source {
        let streaming = process.wait_for_event("streaming", SOON);
        let layers = streaming["layers"].as_array().unwrap();
        let layers: Vec<IpAddr> = layers.iter().map(|layer| group(&layer["channel"])).collect();
        for layer in &layers {
            // The lab hears members of IPv4 groups only.
            if layer.is_ipv4() {
                self.lab.follow_members("h1", *layer, Duration::ZERO).unwrap();
            } else {
                self.lab.route_multicast("h1", *layer).unwrap();
            }
        }
        if !streaming["control"].is_null() {
            self.lab.route_multicast_from_all([group(&streaming["control"])]).unwrap();
        }
        Source { process, layers }
    }

    /// Watches `live` on a host.
    pub(crate) fn watch(&self, host: &str, options: &[&str]) -> Process {
        let mut command = self.umbel(host);
        command.args(["watch", "live", "--json", "--stats", "--wait", "20s"]).args(options);
        Process::start(host, command, &self.logs)
    }

    /// Returns the packets of each layer that came to the router of a site so far.
    pub(crate) fn came(&self, site: &str, source: &Source) -> Vec<u64> {
        let mut command = self.host(&format!("r{site}")).command("cat");
        let output = command.arg("/proc/net/ip_mr_cache").output().unwrap();
        let text = String::from_utf8(output.stdout).unwrap();
        let lines = text.lines().skip(1).map(|line| {
            let words: Vec<&str> = line.split_whitespace().collect();
            let group = u32::from_str_radix(words[0], 16).unwrap().to_ne_bytes();
            (IpAddr::from(Ipv4Addr::from(group)), words.get(3).and_then(|n| n.parse().ok()))
        });
        let packets: BTreeMap<IpAddr, Option<u64>> = lines.collect();
        let count = |layer| packets.get(layer).copied().flatten().unwrap_or(0);
        source.layers.iter().map(count).collect()
    }
}

/// A running source.
pub(crate) struct Source {
    pub(crate) process: Process,
    /// Groups of the layers.
    pub(crate) layers: Vec<IpAddr>,
}

/// Returns the level that a receiver has now.
pub(crate) fn level(receiver: &Process) -> u64 {
    receiver.events("level").last().map_or(0, |event| event["level"].as_u64().unwrap())
}

/// Watches the link of a site for layers that nobody behind it wants.
pub(crate) struct Bottleneck {
    site: &'static str,
    layers: Vec<Watched>,
    /// Number of levels that each receiver had told at the last look.
    told: Vec<usize>,
}

/// A layer at a bottleneck.
#[derive(Clone)]
struct Watched {
    /// Time at which it was last wanted.
    wanted: Instant,
    /// Packets that had come at the last look.
    came: u64,
    /// Packets at the last look that nobody wanted, unless a receiver tells late that it did.
    doubtful: u64,
    /// Packets that nobody wanted.
    unwanted: u64,
}

impl Bottleneck {
    /// Time after which an unwanted layer must be gone.
    const GONE: Duration = Duration::from_secs(1);

    pub(crate) fn new(site: &'static str, source: &Source, receivers: usize) -> Bottleneck {
        let layer = Watched { wanted: Instant::now(), came: 0, doubtful: 0, unwanted: 0 };
        Bottleneck { site, layers: vec![layer; source.layers.len()], told: vec![0; receivers] }
    }

    /// Looks at the link and at the receivers behind it. Layers that they joined and left since the
    /// last look were wanted, too.
    pub(crate) fn look<'a>(
        &mut self,
        streams: &Streams<'_>,
        source: &Source,
        receivers: impl Iterator<Item = &'a Process>,
    ) {
        let came = streams.came(self.site, source);
        let now = Instant::now();
        let mut highest = 0;
        for (receiver, told) in receivers.zip(&mut self.told) {
            let levels = receiver.events("level");
            let new = levels.iter().skip(told.saturating_sub(1));
            highest = new.map(|event| event["level"].as_u64().unwrap()).fold(highest, u64::max);
            *told = levels.len();
        }
        for ((number, layer), came) in (0..).zip(&mut self.layers).zip(came) {
            if number < highest {
                (layer.wanted, layer.doubtful) = (now, 0);
            }
            layer.unwanted += layer.doubtful;
            let is_late = now - layer.wanted > Self::GONE;
            layer.doubtful = if is_late { came - layer.came } else { 0 };
            layer.came = came;
        }
    }

    /// Returns whether layers go away when nobody wants them: at most a fifth of what came of
    /// each was unwanted. It is none on an idle machine; a busy one leaves, and looks, late.
    pub(crate) fn lets_go(&self) -> bool {
        self.layers.iter().all(|layer| layer.unwanted * 5 <= layer.came)
    }

    /// Returns the packets of each layer that were carried though unwanted.
    pub(crate) fn unwanted(&self) -> Vec<u64> {
        self.layers.iter().map(|layer| layer.unwanted).collect()
    }
}

/// Returns a number in an event.
#[track_caller]
pub(crate) fn number(value: &Value) -> f64 {
    value.as_f64().unwrap_or_else(|| panic!("no number: {value}"))
}
