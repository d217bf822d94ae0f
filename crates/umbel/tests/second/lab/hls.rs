//! `umbel stream --hls` and `umbel gateway` between hosts, over a link that carries the best
//! rendition and one that carries the least.

use std::process::{Child, Command, Stdio};
use std::time::Duration;

use crate::support::ladder::{Ladders, Writer, end, number, of_each, report, wait_until};
use crate::support::{lab, skip};
use umbel_lab::{Queue, Topology};

/// Rates of the renditions.
const RATES: [u64; 3] = [120_000, 400_000, 1_200_000];

#[test]
fn each_receiver_plays_the_rendition_that_its_link_carries() {
    let topology = Topology::new().host("h1").router("r0").link("h1", "r0");
    let topology = topology.host("a1").link("r0", "a1").host("b1").link("r0", "b1");
    let topology = topology.rate("450k".parse().unwrap()).queue(Queue::Packets(20));
    let topology = topology.delay(Duration::from_millis(10));
    let Some(lab) = lab(&topology) else { return };
    let ladders = Ladders::new(&lab);
    let _writer = Writer::start(ladders.path(), &RATES);
    let source = ladders.stream(&["--repair-listen", "0.0.0.0:7706"]);
    let fast = ladders.gateway("a1", &[]);
    let slow = ladders.gateway("b1", &[]);
    wait_until(&ladders, "the best rendition at a1", || number(&report(&fast), "level") == 3);
    // A first experiment has failed, and what it cost has left the playlist.
    wait_until(&ladders, "an experiment at b1", || number(&report(&slow), "failed") >= 1);
    let before = number(&report(&slow), "segments");
    wait_until(&ladders, "ten segments more", || number(&report(&slow), "segments") >= before + 10);
    let (media, files) = ladders.play("a1");
    assert_eq!((media.segments.len(), of_each(&files[6..])[2]), (12, 6), "{files:?}");
    let (media, files) = ladders.play("b1");
    assert!(media.segments.len() == 12 && of_each(&files)[0] >= 8, "{files:?}");
    // An experiment costs a segment or so, and only if it is not repaired in time.
    let (fast, slow) = (end(fast), end(slow));
    println!("a1: {fast}\nb1: {slow}");
    assert_eq!((number(&fast, "skipped"), number(&fast, "level")), (0, 0));
    assert!(number(&slow, "skipped") <= number(&slow, "segments") / 10, "{slow}");
    assert!(number(&fast, "repaired") > 0);
    let sent = end(source);
    assert!(sent["interrupted"].as_bool().unwrap() && number(&sent, "refused") == 0, "{sent}");
}

/// Kills a program at its end.
struct Killed(Child);

impl Drop for Killed {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn what_ffmpeg_writes_arrives_as_it_is() {
    let installed = Command::new("ffmpeg").arg("-version").stdout(Stdio::null()).status();
    if !installed.is_ok_and(|status| status.success()) {
        return skip("ffmpeg is not installed");
    }
    let Some(lab) = lab(&Topology::star(2)) else { return };
    let ladders = Ladders::new(&lab);
    let filter = "[0:v]split=2[a][b];[b]scale=80:44[c]";
    let options = "-map [c] -map [a] -c:v libx264 -preset ultrafast -g 10 -b:v:0 40k -b:v:1 120k \
                   -f hls -hls_time 1 -hls_list_size 20 -hls_segment_type fmp4 \
                   -hls_flags independent_segments+temp_file+program_date_time \
                   -hls_fmp4_init_filename init_%v.mp4 -master_pl_name master.m3u8";
    let mut ffmpeg = Command::new("ffmpeg");
    ffmpeg.args(["-v", "error", "-re", "-f", "lavfi", "-i", "testsrc2=size=160x88:rate=10"]);
    ffmpeg.args(["-t", "60", "-filter_complex", filter]).args(options.split_whitespace());
    ffmpeg.args(["-var_stream_map", "v:0,name:0 v:1,name:1"]).arg("-hls_segment_filename");
    ffmpeg.arg(ladders.path().join("v%v/seg_%05d.m4s")).arg(ladders.path().join("v%v/i.m3u8"));
    let _ffmpeg = Killed(ffmpeg.stdin(Stdio::null()).spawn().unwrap());
    let source = ladders.stream(&["--repair-listen", "0.0.0.0:7706"]);
    let gateway = ladders.gateway("h2", &[]);
    wait_until(&ladders, "the better rendition", || {
        let report = report(&gateway);
        let is_better = report["newest"].as_str().is_some_and(|name| name.starts_with("v1/"));
        is_better && number(&report, "segments") >= 8
    });
    let (media, files) = ladders.play("h2");
    let [_, high, _] = of_each(&files);
    assert!(files.len() >= 8 && high >= 1, "{files:?}");
    assert!(media.segments.iter().all(|segment| segment.date.is_some()));
    assert_eq!(number(&end(gateway), "skipped"), 0);
    end(source);
}
