//! Measures the emulator's throughput. Not run by default, since it measures the machine:
//! `cargo test --release -p umbel-lab --test all throughput:: -- --ignored --nocapture`.

use std::time::{Duration, Instant};

use crate::support::{self, lab, receive, socket};
use umbel_lab::{Impairment, Topology};

/// Returns the processor time of the emulator's threads, which live as long as their lab.
fn emulator_time() -> Duration {
    let tasks = std::fs::read_dir("/proc/self/task").unwrap().flatten().map(|task| task.path());
    let links = tasks.filter(|task| {
        std::fs::read_to_string(task.join("comm")).is_ok_and(|name| name.starts_with("umbel-link"))
    });
    let times = links.map(|task| std::fs::read_to_string(task.join("schedstat")).unwrap());
    Duration::from_nanos(times.map(|t| t.split(' ').next().unwrap().parse::<u64>().unwrap()).sum())
}

#[test]
#[ignore = "measures the machine"]
fn an_emulated_link_carries_a_hundred_thousand_packets_a_second() {
    for (name, impairment) in [
        ("loss", Impairment::none().loss(0.01)),
        ("delay", Impairment::none().delay(Duration::from_millis(5))),
    ] {
        for length in [100, 1_400] {
            let topology = Topology::line(0).with_link(|link| link.a_to_b = impairment);
            let Some(lab) = lab(&topology) else { return };
            let (h1, h2) = (lab.host("h1").unwrap(), lab.host("h2").unwrap());
            let to = (h2.addr4(), 7500);
            let (a, b) = (socket(h1, h1.addr4().into(), 0), socket(h2, h2.addr4().into(), 7500));
            support::warm_up(&a, &b, to.into());
            let datagram = vec![0; length];
            let sending = Duration::from_secs(1);
            let start = Instant::now();
            let received = std::thread::scope(|scope| {
                let receiver = scope.spawn(|| {
                    let mut count = 0;
                    while receive(&b, &mut [0; 2000]).is_ok() {
                        count += 1;
                    }
                    count
                });
                while start.elapsed() < sending {
                    a.send_to(&datagram, to).unwrap();
                }
                receiver.join().unwrap()
            });
            let stats = lab.link_stats()[0].directions.unwrap()[0];
            let cost = emulator_time().as_nanos() as u64 / stats.frames;
            println!(
                "{name}, {length} bytes: {received} received in 1 s, {cost} ns each; {stats:?}"
            );
            // Processor time, since wall time depends on the other work of the machine.
            assert!(cost < 10_000, "{cost} ns a frame");
        }
    }
}
