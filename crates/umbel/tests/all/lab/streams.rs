//! `umbel stream`, `umbel watch` and `umbel gateway`.

use nix::sys::signal::Signal;
use umbel_lab::Impairment;

use crate::support::bench::SOON;
use crate::support::ladder::{Ladders, Writer, end, number, of_each, report, wait_until};
use crate::support::streams::{PICTURES, SIZE, Streams, level, sites};
use crate::support::{MINUTE, lab, star};

/// Rate of the only rendition.
const RATES: [u64; 1] = [120_000];

#[test]
fn a_stream_passes_routers_by_ipv6_and_without_a_control_group() {
    let Some(lab) = lab(&sites(&[("a", "8M", 1)])) else { return };
    let streams = Streams::new(&lab);
    streams.make_clip("clip.y4m", SIZE, PICTURES);
    for options in [&["--ipv6"][..], &["--no-control"]] {
        let source = streams.stream("clip.y4m", &[options, &["--layers", "100k,100k"]].concat());
        assert_eq!(source.layers[0].is_ipv6(), options == ["--ipv6"]);
        let mut receiver = streams.watch("a1", &["-o", "out.y4m"]);
        streams.wait_until("both layers", MINUTE, || level(&receiver) == 2);
        source.process.signal(Signal::SIGINT);
        let summary = receiver.wait_done(SOON);
        assert!(summary["screen"]["shown"].as_u64().unwrap() > 30, "{summary}");
    }
}

#[test]
fn without_repair_a_receiver_still_plays_what_comes_whole() {
    let loss = Impairment::none().loss(0.02);
    let Some(lab) = lab(&star(1, loss)) else { return };
    let ladders = Ladders::new(&lab);
    let _writer = Writer::start(ladders.path(), &RATES);
    let source = ladders.stream(&[]);
    let gateway = ladders.gateway("h2", &[]);
    wait_until(&ladders, "ten segments", || number(&report(&gateway), "segments") >= 10);
    let (media, files) = ladders.play("h2");
    assert!(media.segments.len() >= 10 && of_each(&files)[0] == files.len());
    let summary = end(gateway);
    assert_eq!(number(&summary, "skipped"), 0, "{summary}");
    assert!(number(&summary, "lost") > 0 && number(&summary, "repaired") == 0, "{summary}");
    end(source);
}
