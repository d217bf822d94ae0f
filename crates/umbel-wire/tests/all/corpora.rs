//! Replays the corpora of the fuzz targets. Every input that once broke something is kept in them.

use crate::{checks, corpus, seeds};

/// Runs the check on each file of the corpus.
#[track_caller]
fn replay(target: &str, check: fn(&[u8])) {
    corpus::replay(target, seeds::of(target).len(), check);
}

#[test]
fn the_corpus_of_data_packet_replays() {
    replay("data_packet", checks::data_packet);
}

#[test]
fn the_corpus_of_sealed_packet_replays() {
    replay("sealed_packet", checks::sealed_packet);
}

#[test]
fn the_corpus_of_stream_packet_replays() {
    replay("stream_packet", checks::stream_packet);
}

#[test]
fn the_corpus_of_client_message_replays() {
    replay("client_message", checks::client_message);
}

#[test]
fn the_corpus_of_server_message_replays() {
    replay("server_message", checks::server_message);
}

#[test]
fn the_corpus_of_unicast_block_replays() {
    replay("unicast_block", checks::unicast_block);
}

#[test]
fn the_corpus_of_find_sessions_replays() {
    replay("find_sessions", checks::find_sessions);
}

#[test]
fn the_corpus_of_srm_message_replays() {
    replay("srm_message", checks::srm_message);
}

#[test]
fn the_corpus_of_lms_message_replays() {
    replay("lms_message", checks::lms_message);
}

#[test]
fn the_corpus_of_pgm_message_replays() {
    replay("pgm_message", checks::pgm_message);
}

#[test]
fn the_corpus_of_sap_packet_replays() {
    replay("sap_packet", checks::sap_packet);
}

#[test]
fn the_corpus_of_igmp_message_replays() {
    replay("igmp_message", checks::igmp_message);
}

#[test]
fn the_corpus_of_mld_message_replays() {
    replay("mld_message", checks::mld_message);
}

#[test]
fn the_corpus_of_pim_message_replays() {
    replay("pim_message", checks::pim_message);
}

#[test]
fn the_corpus_of_ip_datagram_replays() {
    replay("ip_datagram", checks::ip_datagram);
}

#[test]
fn the_corpus_of_tcp_segment_replays() {
    replay("tcp_segment", checks::tcp_segment);
}

#[test]
fn the_corpus_of_sealed_head_replays() {
    replay("sealed_head", checks::sealed_head);
}

#[test]
fn the_corpus_of_basep_message_replays() {
    replay("basep_message", checks::basep_message);
}

#[test]
fn the_corpus_of_rlm_message_replays() {
    replay("rlm_message", checks::rlm_message);
}

#[test]
fn the_corpus_of_rtp_packet_replays() {
    replay("rtp_packet", checks::rtp_packet);
}

#[test]
fn the_corpus_of_tmtp_message_replays() {
    replay("tmtp_message", checks::tmtp_message);
}

#[test]
fn the_corpus_of_control_peek_replays() {
    replay("control_peek", checks::control_peek);
}

/// A change of the wire format fails here first. If so, write new seeds, and consider a new
/// version.
#[test]
fn the_seeds_are_still_what_we_emit() {
    for target in seeds::TARGETS {
        corpus::assert_holds(target, seeds::of(target));
    }
}

#[test]
#[ignore = "writes the seeds into the corpora"]
fn write_the_seeds() {
    for target in seeds::TARGETS {
        corpus::write(target, seeds::of(target));
    }
}
