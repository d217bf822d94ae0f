//! Scripts for the corner cases of RFC 9293 and RFC 5961.

use std::time::Duration;

use super::script::run;

/// A handshake of a client that has SACK.
const OPEN: &str = "
    < S 0 mss 1000 sack
    > S. -1 ack 1 member 8080
    + 10
    < . 1 ack 0
    > . 0 ack 1 member 8080
    ! Connected
";

#[track_caller]
fn after_open(script: &str, drops: &str) {
    run(|_| {}, &[OPEN, script].concat(), drops);
}

#[test]
fn a_syn_ack_is_sent_again_and_given_up() {
    run(
        |config| config.syn_ack_transmissions = 3,
        "
        < S 0 mss 1000
        > S. -1 ack 1 member 8080
        + 999
        + 1
        > S. -1 ack 1 member 8080
        + 1999
        < S 0 mss 1000
        > S. -1 ack 1 member 8080
        + 1
        > S. -1 ack 1 member 8080
        + 20000
        < . 1 ack 0
        > R 0
        ",
        "NoConnection 1",
    );
}

#[test]
fn a_wrong_answer_to_a_syn_ack_is_reset() {
    run(
        |_| {},
        "
        < S 0 mss 1000
        > S. -1 ack 1 member 8080
        < . 1 ack 5
        > R 5
        < . 1 ack -1
        > R -1
        < . 70000 ack 0
        < P 1 len 4
        < R 7
        < . 1 ack 0
        > . 0 ack 1 member 8080
        ! Connected
        ",
        "OutOfWindow 1, FarAhead 2, Challenged 1, NoAck 1",
    );
}

#[test]
fn a_client_that_resets_or_starts_anew_while_it_connects_is_followed() {
    run(
        |_| {},
        "
        < S 0 mss 1000
        > S. -1 ack 1 member 8080
        < S 100 mss 1000
        > . 0 ack 1
        < R 1
        < S 100 mss 1000
        > S. -1 ack 101 member 8080
        < R 101
        < . 101 ack 0
        > R 0
        ",
        "NoConnection 1, Challenged 1",
    );
}

#[test]
fn a_syn_in_another_s_name_does_not_part_it_from_its_connection() {
    run(
        |_| {},
        "
        < S 0 mss 1000
        > S. -1 ack 1 member 8080
        < S 7777 mss 1000
        > . 0 ack 1
        < . 1 ack 0
        > . 0 ack 1 member 8080
        ! Connected
        ",
        "Challenged 1",
    );
}

#[test]
fn segments_of_no_connection_are_reset() {
    run(
        |_| {},
        "
        < . 5 ack 77
        > R 77
        < F 5
        > R. 1501 ack 6
        < R 5
        < S. 5 ack 9
        > R 9
        ",
        "NoConnection 4",
    );
}

#[test]
fn both_sides_finish_the_source_first() {
    after_open(
        "
        write 1500
        * . 0 len 1000
        * P. 1000 len 500
        finish
        * FP. 1500
        + 10
        < . 1 ack 1501
        ! Drained
        + 5
        < F. 1 ack 1501
        > . 1501 ack 2
        ! ReceivedEnd
        ! Closed
        < F. 1 ack 1501
        > . 1501 ack 2
        + 60000
        < F. 1 ack 1501
        > R 1501
        ",
        "NoConnection 1",
    );
}

#[test]
fn who_does_not_finish_its_side_is_forgotten_without_a_reset() {
    run(
        |config| config.keep_alive = Duration::from_secs(20),
        &[
            OPEN,
            "
            finish
            * FP. 0
            + 10
            < . 1 ack 1
            ! Drained
            + 20000
            > . 0 ack 1
            < . 1 ack 1
            + 20000
            > . 0 ack 1
            < P. 1 len 3 ack 1
            > . 1 ack 4 win 65532 member 0
            ! Received 3
            + 19999
            + 1
            ! Removed Lingered
            < . 4 ack 1
            > R 1
            ",
        ]
        .concat(),
        "NoConnection 1",
    );
}

#[test]
fn a_syn_into_time_wait_opens_anew_if_its_number_is_new() {
    after_open(
        "
        finish
        * FP. 0
        < F. 1 ack 1
        > . 1 ack 2
        ! ReceivedEnd
        ! Drained
        ! Closed
        < S 1 mss 1000
        > . 1 ack 2
        < S 2 mss 1000
        > . 1 ack 2
        < R 2
        < S 500 mss 1000
        > R. 1501 ack 501
        ",
        "OverLimit 1",
    );
    run(
        |config| config.join = crate::smo::Join::Asked,
        "
        < S 0 mss 1000
        > S. -1 ack 1 member 0
        < . 1 ack 0
        ! Connected
        shut
        > FP. 0 ack 1
        < F. 1 ack 1
        > . 1 ack 2
        ! ReceivedEnd
        ! Closed
        < S 500 mss 1000
        > S. -1 ack 501 member 0
        < . 501 ack 0
        ! Connected
        ",
        "",
    );
}

#[test]
fn malformed_options_are_counted_and_change_nothing() {
    after_open(
        "
        write 1000
        * P. 0 len 1000
        < . 1 ack 1000 raw 0200ffff
        < . 1 ack 1000 raw 0203ffff
        < . 1 ack 1000 raw 05060102
        < . 1 ack 1000 raw 09ff0000
        < . 1 ack 1000 raw 0101fd01
        < . 1 ack 1000 raw 00ffffff
        < S 9 raw 02050102
        ",
        "Malformed 6",
    );
    run(|_| {}, "< S 0 raw 0202ffff\n< S 0 raw 03020000", "Malformed 2");
}

#[test]
fn both_sides_finish_the_receiver_first() {
    after_open(
        "
        < FP. 1 len 3 ack 0
        > . 0 ack 5 win 65532 member 8080
        ! Received 3
        ! ReceivedEnd
        write 100
        * P. 0 len 100
        finish
        * FP. 100
        + 10
        < . 5 ack 101
        ! Drained
        ! Closed
        < . 5 ack 101
        > R 101
        ",
        "NoConnection 1",
    );
}

#[test]
fn both_sides_finish_at_once() {
    after_open(
        "
        finish
        * FP. 0
        < F. 1 ack 0
        > . 1 ack 2 member 8080
        ! ReceivedEnd
        + 10
        < . 2 ack 1
        ! Drained
        ! Closed
        < F. 1 ack 0
        > . 1 ack 2
        ",
        "",
    );
}

#[test]
fn a_fin_that_was_lost_is_sent_again() {
    after_open(
        "
        finish
        * FP. 0
        + 199
        > . -1 len 1 ack 1 member 8080
        > . -1 len 1 ack 1 member 8080
        > . -1 len 1 ack 1 member 8080
        + 200
        > . -1 len 1 ack 1 member 8080
        > . 0 ack 1 member 8080
        > FP. 0 ack 1
        < . 1 ack 1
        ! Drained
        ",
        "",
    );
}

#[test]
fn resets_are_exact_or_challenged() {
    after_open(
        "
        < R 5
        > . 0 ack 1 member 8080
        < R 70000
        + 200
        < R 1
        ! Removed Reset
        ",
        "OutOfWindow 1, Challenged 1",
    );
}

#[test]
fn a_syn_on_an_open_connection_is_challenged_once_in_100_ms() {
    after_open(
        "
        < S 0 mss 1000
        > . 0 ack 1 member 8080
        < S 9 mss 1000
        + 100
        < S 9 mss 1000
        > . 0 ack 1 member 8080
        ",
        "Challenged 3, HeldDown 1",
    );
}

#[test]
fn an_ack_of_what_was_never_sent_is_challenged_and_changes_nothing() {
    after_open(
        "
        write 1000
        * P. 0 len 1000
        < . 1 ack 1001
        > . 1000 ack 1 member 8080
        + 10
        < . 1 ack 1000
        < . 1 ack -70000
        + 100
        < . 1 ack -70000
        > . 1000 ack 1 member 8080
        < . 1 ack 500
        ",
        "FarAhead 1, OldAck 2, HeldDown 1",
    );
}

#[test]
fn what_is_outside_of_the_window_is_answered_with_an_ack() {
    after_open(
        "
        < P. 65536 len 5 ack 0
        > . 0 ack 1 member 8080
        + 100
        < . 0 ack 0
        > . 0 ack 1 member 8080
        ",
        "OutOfWindow 2",
    );
}

#[test]
fn the_back_channel_is_put_in_order_and_its_window_closes() {
    run(
        |config| config.receive_buffer = 10,
        "
        < S 0 mss 1000
        > S. -1 ack 1 win 10 member 8080
        < . 1 ack 0
        > . 0 ack 1 win 10 member 8080
        ! Connected
        < P. 4 len 3 ack 0
        > . 0 ack 1 win 10 member 8080
        < P. 1 len 3 ack 0
        > . 0 ack 7 win 4 member 8080
        ! Received 3
        ! Received 3
        < P. 7 len 9 ack 0
        > . 0 ack 11 win 0 member 8080
        ! Received 4
        consume 4
        consume 5
        > . 0 ack 11 win 9 member 8080
        < P. 11 len 2 ack 0
        > . 0 ack 13 win 7 member 8080
        ! Received 2
        ",
        "NoRoom 1",
    );
}

#[test]
fn a_closed_window_is_probed_and_opens() {
    after_open(
        "
        < . 1 ack 0 win 0
        write 1500
        + 201
        > . -1 ack 1
        < . 1 ack 0 win 0
        + 399
        > . -1 ack 1
        + 100
        < . 1 ack 0 win 700
        * . 0 len 700
        + 10
        < . 1 ack 700 win 5000
        * P. 700 len 800
        ",
        "",
    );
}

#[test]
fn a_window_that_shrinks_stops_the_source() {
    after_open(
        "
        < . 1 ack 0 win 3000
        write 5000
        * . 0 len 1000
        * . 1000 len 1000
        * . 2000 len 1000
        + 10
        < . 1 ack 1000 win 1000
        < . 1 ack 3000 win 1000
        * . 3000 len 1000
        ",
        "",
    );
}

#[test]
fn a_window_that_shrinks_to_nothing_is_probed() {
    after_open(
        "
        write 3000
        * . 0 len 1000
        * . 1000 len 1000
        * P. 2000 len 1000
        + 10
        < . 1 ack 1000 win 0
        + 201
        > . 999 ack 1
        < . 1 ack 3000 win 3000
        ",
        "",
    );
}

#[test]
fn duplicate_acks_with_blocks_cause_a_fast_retransmit() {
    after_open(
        "
        write 6000
        * . 0 len 1000
        * . 1000 len 1000
        * . 2000 len 1000
        * . 3000 len 1000
        * . 4000 len 1000
        * P. 5000 len 1000
        + 10
        < . 1 ack 1000
        < . 1 ack 1000 blocks 2000-3000
        < . 1 ack 1000 blocks 2000-4000
        < . 1 ack 1000 blocks 2000-5000
        + 3
        > . 1000 len 1000 ack 1
        + 3
        < . 1 ack 6000
        ",
        "",
    );
}

#[test]
fn an_optimistic_receiver_only_hurts_itself() {
    after_open(
        "
        write 2000
        * . 0 len 1000
        * P. 1000 len 1000
        < . 1 ack 2000
        < . 1 ack 1000 blocks 0-500
        ",
        "",
    );
}

/// A connection that is served alone, of which the first segment is left out.
const SKIPPED: &str = "
    < S 0 mss 1000 sack
    > S. -1 ack 1 member 0
    + 10
    < . 1 ack 0
    ! Connected
    send 10000
    > . 1000 len 1000 ack 1
    > . 2000 len 1000 ack 1
    > . 3000 len 1000 ack 1
    + 10
";

#[track_caller]
fn after_skip(script: &str, drops: &str) {
    let change = |config: &mut crate::smo::SourceConfig| {
        config.join = crate::smo::Join::Asked;
        (config.skip_every, config.initial_window) = (1, 4);
    };
    run(change, &[SKIPPED, script].concat(), drops);
}

#[test]
fn who_reports_what_was_left_out_gets_it_and_keeps_its_window() {
    after_skip(
        "
        < . 1 ack 0 blocks 1000-2000
        > . 0 len 1000 ack 1
        > . 4000 len 1000 ack 1
        < . 1 ack 0 blocks 1000-3000
        > . 5000 len 1000 ack 1
        < . 1 ack 0 blocks 1000-4000
        > . 6000 len 1000 ack 1
        + 10
        < . 1 ack 4000
        > . 7000 len 1000 ack 1
        > . 8000 len 1000 ack 1
        > P. 9000 len 1000 ack 1
        ",
        "",
    );
}

#[test]
fn who_acknowledges_what_was_left_out_is_removed() {
    let removed = "
        > R. 0 ack 1
        > R. 4000 ack 1
        ! Removed Optimistic
    ";
    for lie in ["ack 4000", "ack 1", "ack 1000", "ack 0 blocks 0-1000", "ack 0 blocks 500-3000"] {
        println!("{lie}");
        after_skip(&["< . 1 ", lie, removed].concat(), "Optimistic 1");
    }
}

#[test]
fn a_connection_can_be_finished_alone() {
    after_open(
        "
        write 500
        * P. 0 len 500
        shut
        > FP. 500 ack 1
        + 10
        < . 1 ack 501
        < F. 1 ack 501
        > . 501 ack 2
        ! ReceivedEnd
        ! Closed
        ",
        "",
    );
}

#[test]
fn an_aborted_connection_is_reset_at_what_it_may_expect() {
    after_open(
        "
        write 500
        * P. 0 len 500
        abort
        > R. 0 ack 1
        > R. 500 ack 1
        ! Removed Aborted
        ",
        "",
    );
}

#[test]
fn keep_alive_probes_find_the_dead() {
    run(
        |config| {
            config.keep_alive = Duration::from_secs(10);
            config.keep_alive_probes = 2;
        },
        &[
            OPEN,
            "
            + 9999
            + 1
            > . -1 ack 1
            < . 1 ack 0
            + 10000
            > . -1 ack 1
            + 5000
            > . -1 ack 1
            + 5000
            > R. 0 ack 1
            ! Removed Dead
            ",
        ]
        .concat(),
        "",
    );
}

#[test]
fn a_lost_tail_is_probed_after_two_round_trips() {
    // The first acknowledgement waited in a queue. The second one names the byte of the question.
    after_open(
        "
        write 3000
        * . 0 len 1000
        * . 1000 len 1000
        * P. 2000 len 1000
        + 10
        < . 1 ack 1000
        + 28
        > . 999 len 1 ack 1 member 8080
        + 10
        < . 1 ack 1000
        + 3
        < . 1 ack 1000 blocks 999-1000
        + 3
        > . 1000 len 1000 ack 1
        > P. 2000 len 1000 ack 1
        + 10
        < . 1 ack 3000
        ",
        "",
    );
}
