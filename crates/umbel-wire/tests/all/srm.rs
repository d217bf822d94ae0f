//! Emitting and parsing a message of SRM returns the same message, and no input makes the parser
//! panic.

use std::time::Duration;

use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::Index;
use umbel_wire::Parsed;
use umbel_wire::srm::{Echo, MemberId, Message, SourceState, UnitRun, limits};

use crate::checks;
use crate::frames::{cut_and_altered, with_unknown_field};

fn bytes(message: &Message<'_>) -> Vec<u8> {
    let mut bytes = Vec::new();
    message.emit(&mut bytes);
    bytes
}

fn members() -> impl Strategy<Value = MemberId> {
    prop_oneof![0_u64..1000, any::<u64>()].prop_map(MemberId)
}

fn durations() -> impl Strategy<Value = Duration> {
    prop_oneof![0..1_000_000_000_u64, 0..=limits::DURATION.as_nanos() as u64]
        .prop_map(Duration::from_nanos)
}

fn scopes() -> impl Strategy<Value = Option<u8>> {
    proptest::option::of(1_u8..)
}

/// Generates ascending runs that may touch.
fn runs() -> impl Strategy<Value = Vec<UnitRun>> {
    let start = prop_oneof![0_u64..1 << 20, (u64::MAX - (1 << 33))..(u64::MAX - (1 << 32))];
    (start, vec((0_u64..1 << 16, 1..=limits::UNITS / 128), 1..=limits::RUNS)).prop_map(
        |(start, steps)| {
            let mut end = start;
            let run = |(gap, count)| {
                let first = end + gap;
                end = first + count;
                UnitRun { first, count }
            };
            steps.into_iter().map(run).collect()
        },
    )
}

fn states() -> impl Strategy<Value = SourceState> {
    (members(), any::<(u64, u64)>()).prop_map(|(source, (a, b))| SourceState {
        source,
        horizon: a.min(b),
        next: a.max(b),
    })
}

fn echoes() -> impl Strategy<Value = Echo> {
    (members(), any::<u64>(), durations()).prop_map(|(member, timestamp_ns, held)| Echo {
        member,
        timestamp_ns,
        held,
    })
}

/// Generates messages whose payloads are empty.
fn messages() -> impl Strategy<Value = Message<'static>> {
    let payload: &[u8] = &[];
    prop_oneof![
        (members(), any::<(u64, u64)>()).prop_map(move |(source, (a, b))| Message::Data {
            source,
            sequence: a.max(b),
            horizon: a.min(b),
            payload,
        }),
        ((members(), members(), members()), any::<u64>(), durations(), scopes()).prop_map(
            move |((sender, source, requester), sequence, distance, scope)| Message::Repair {
                sender,
                source,
                sequence,
                requester,
                distance,
                scope,
                payload,
            }
        ),
        (members(), members(), runs(), durations(), scopes()).prop_map(
            |(sender, source, runs, distance, scope)| Message::Request {
                sender,
                source,
                runs,
                distance,
                scope,
            }
        ),
        (
            members(),
            any::<(u64, bool)>(),
            vec(states(), 0..=limits::SOURCES),
            vec(echoes(), 0..=limits::ECHOES),
        )
            .prop_map(|(sender, (timestamp_ns, leaving), sources, echoes)| {
                Message::Session { sender, timestamp_ns, sources, echoes, leaving }
            }),
    ]
}

/// Returns the message with this payload, if it has one.
fn with_payload<'a>(message: Message<'a>, bytes: &'a [u8]) -> Message<'a> {
    match message {
        Message::Data { source, sequence, horizon, .. } => {
            Message::Data { source, sequence, horizon, payload: bytes }
        }
        Message::Repair { sender, source, sequence, requester, distance, scope, .. } => {
            Message::Repair { sender, source, sequence, requester, distance, scope, payload: bytes }
        }
        other => other,
    }
}

proptest! {
    #[test]
    fn messages_come_back(message in messages(), payload in vec(any::<u8>(), 0..200)) {
        let message = with_payload(message, &payload);
        let frame = bytes(&message);
        let parsed = Message::parse(&frame);
        prop_assert_eq!(parsed, Ok(Parsed::Message { message: message.clone(), skipped: 0 }));
        for cut in (0..frame.len()).take(300) {
            prop_assert!(Message::parse(&frame[..cut]).is_err());
        }
        let newer = with_unknown_field(frame, 0xFF00);
        prop_assert_eq!(Message::parse(&newer), Ok(Parsed::Message { message, skipped: 1 }));
    }

    #[test]
    fn a_cut_or_altered_body_never_panics_and_what_it_means_comes_back(
        message in messages(),
        cut in any::<Index>(),
        changes in vec((any::<Index>(), any::<u8>()), 0..4),
    ) {
        checks::srm_message(&cut_and_altered(bytes(&message), cut, &changes));
    }
}
