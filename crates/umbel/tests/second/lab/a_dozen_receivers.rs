//! A dozen receivers of a stream behind links of three rates.
//!
//! This takes longer than all else here, and the harness goes by the alphabet: so it begins first,
//! and the rest runs beside it.

use std::time::Instant;

use nix::sys::signal::Signal;

use crate::support::bench::SOON;
use crate::support::process::Process;
use crate::support::streams::{Bottleneck, LOOK, PICTURES, SIZE, Site, Streams, level, sites};
use crate::support::{MINUTE, lab};

#[test]
fn at_three_sites_get_what_their_links_carry() {
    const SITES: [Site; 3] = [("a", "8M", 4), ("b", "2M", 4), ("c", "500k", 4)];
    /// Levels that fit. The layers together have 150, 400, 1,600 and 6,400 kbit/s.
    const LEVELS: [u64; 3] = [4, 3, 2];
    let Some(lab) = lab(&sites(&SITES)) else { return };
    let streams = Streams::new(&lab);
    streams.make_clip("clip.y4m", SIZE, PICTURES);
    let source = streams.stream("clip.y4m", &["--layers", "150k,250k,1200k,4800k"]);
    let receivers: Vec<(usize, Process)> = (0..SITES.len())
        .flat_map(|site| (1..=4).map(move |number| (site, number)))
        .map(|(site, number)| (site, streams.watch(&format!("{}{number}", SITES[site].0), &[])))
        .collect();
    let mut bottlenecks = SITES.map(|(site, ..)| Bottleneck::new(site, &source, 4));
    let mut look = || {
        for (site, bottleneck) in bottlenecks.iter_mut().enumerate() {
            let behind = receivers.iter().filter(|(at, _)| *at == site).map(|(_, r)| r);
            bottleneck.look(&streams, &source, behind);
        }
    };
    let start = Instant::now();
    let mut reached = [None; 12];
    streams.wait_until("all have the best level", 3 * MINUTE, || {
        look();
        for (reached, (site, receiver)) in reached.iter_mut().zip(&receivers) {
            if level(receiver) >= LEVELS[*site] {
                reached.get_or_insert_with(|| start.elapsed());
            }
        }
        reached.iter().all(Option::is_some)
    });
    println!("best level after {:.1?}", reached.map(Option::unwrap));
    // From now on, they stay there but for experiments that fail. One of them may cost a receiver
    // a layer for as long as its join-timer has grown to, which is longer than these looks.
    let mut at_best = [0; 12];
    let looks = 60;
    for _ in 0..looks {
        std::thread::sleep(LOOK);
        look();
        for (at_best, (site, receiver)) in at_best.iter_mut().zip(&receivers) {
            *at_best += u32::from(level(receiver) >= LEVELS[*site]);
        }
    }
    println!("looks at the best level, of {looks}: {at_best:?}");
    let unwanted: Vec<_> = bottlenecks.iter().map(Bottleneck::unwanted).collect();
    println!("packets of layers that nobody wanted: {unwanted:?}");
    assert!(bottlenecks.iter().all(Bottleneck::lets_go));
    assert!(at_best.iter().sum::<u32>() * 10 > looks * 12 * 7, "{at_best:?}");
    streams.wait_until("who has lost a layer has it again", 3 * MINUTE, || {
        for (at_best, (site, receiver)) in at_best.iter_mut().zip(&receivers) {
            *at_best += u32::from(level(receiver) >= LEVELS[*site]);
        }
        at_best.iter().all(|looks| *looks > 0)
    });
    let mut source = source.process;
    source.signal(Signal::SIGINT);
    assert!(source.wait_done(SOON)["interrupted"].as_bool().unwrap());
    for (site, mut receiver) in receivers {
        // The source has said that it is over.
        let summary = receiver.wait_done(SOON);
        assert_eq!(summary["over"], true, "{summary}");
        let [packets, lost] = ["packets", "lost"].map(|name| summary[name].as_f64().unwrap());
        let loss = lost / (packets + lost);
        println!("site {}: {:.2} % lost", SITES[site].0, loss * 1e2);
        assert!(loss < 0.05, "{summary}");
    }
}
