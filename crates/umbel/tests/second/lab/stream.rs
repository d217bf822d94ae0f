//! `umbel stream` and `umbel watch` between hosts, over links that carry all layers or few.

use std::time::Duration;

use crate::support::bench::SOON;
use crate::support::streams::{PICTURES, SIZE, Streams, level, sites};
use crate::support::{MINUTE, has_nft, lab, sh};
use nix::sys::signal::Signal;
use umbel_engine::units::Rate;

#[test]
fn a_link_that_changes_is_followed_both_ways() {
    let Some(lab) = lab(&sites(&[("a", "2M", 2)])) else { return };
    let streams = Streams::new(&lab);
    streams.make_clip("clip.y4m", SIZE, PICTURES);
    let source = streams.stream("clip.y4m", &["--layers", "200k,400k,800k"]);
    let receivers = ["a1", "a2"].map(|host| streams.watch(host, &[]));
    let all = |is: fn(u64) -> bool| receivers.iter().all(|receiver| is(level(receiver)));
    streams.wait_until("all layers", MINUTE, || all(|level| level == 3));
    let wide = lab.impairment("r0", "ra").unwrap();
    let narrow = umbel_lab::Impairment { rate: Some("300k".parse::<Rate>().unwrap()), ..wide };
    lab.set_link("r0", "ra", narrow).unwrap();
    streams.wait_until("the base alone", Duration::from_secs(40), || all(|level| level == 1));
    lab.set_link("r0", "ra", wide).unwrap();
    streams.wait_until("more again", MINUTE, || all(|level| level >= 2));
    drop(source);
}

#[test]
fn a_receiver_that_was_stopped_does_not_congest_its_site_once_it_is_gone() {
    let Some(lab) = lab(&sites(&[("a", "2M", 2)])) else { return };
    let streams = Streams::new(&lab);
    streams.make_clip("clip.y4m", SIZE, PICTURES);
    let source = streams.stream("clip.y4m", &["--layers", "200k,400k"]);
    let modest = streams.watch("a1", &["--max-level", "1"]);
    let mut greedy = streams.watch("a2", &[]);
    streams.wait_until("both layers", Duration::from_secs(40), || level(&greedy) == 2);
    let carried = || {
        let before = streams.came("a", &source);
        std::thread::sleep(Duration::from_millis(500));
        let after = streams.came("a", &source);
        [0, 1].map(|layer| after[layer] > before[layer])
    };
    greedy.signal(Signal::SIGSTOP);
    // It holds its groups, like any host that does not say otherwise.
    streams.wait_until("both layers, held", MINUTE, || carried() == [true, true]);
    greedy.kill();
    streams.wait_until("the base alone", MINUTE, || carried() == [true, false]);
    assert_eq!(level(&modest), 1);
}

#[test]
fn the_end_of_a_stream_is_heard_though_its_first_announcement_is_lost() {
    let Some(lab) = lab(&sites(&[("a", "8M", 1)])) else { return };
    let streams = Streams::new(&lab);
    if !has_nft(streams.host("a1")) {
        return;
    }
    // Of three deletions, which their first byte tells, the first is lost, and every third.
    let rules = "nft add table inet f; \
        nft add chain inet f in '{ type filter hook input priority 0; }'; \
        nft add rule inet f in udp dport 9875 '@th,64,8 & 4 == 4' numgen inc mod 3 0 drop";
    sh(streams.host("a1"), rules);
    streams.make_clip("clip.y4m", SIZE, PICTURES);
    let mut source = streams.stream("clip.y4m", &["--layers", "100k"]).process;
    let mut receiver = streams.watch("a1", &[]);
    streams.wait_until("a level", MINUTE, || level(&receiver) == 1);
    source.signal(Signal::SIGINT);
    assert_eq!(source.wait_done(SOON)["interrupted"], true);
    assert_eq!(receiver.wait_done(SOON)["over"], true);
}
