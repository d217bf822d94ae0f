use super::*;

const A: SessionId = SessionId(1);
const B: SessionId = SessionId(2);
const C: SessionId = SessionId(3);

fn at(ms: u64) -> Instant {
    Instant::from_nanos(ms * 1_000_000)
}

/// The example of [Repository §2.2].
fn example(kind: SchedulerKind) -> Scheduler {
    let mut scheduler = Scheduler::new(kind);
    for (client, items) in [(A, vec![1, 2, 3]), (B, vec![2, 4]), (C, vec![2, 3])] {
        for item in items {
            scheduler.add(at(0), client, Toi(item), 1);
        }
    }
    scheduler
}

#[test]
fn the_papers_example_has_its_scores_order_and_delays() {
    let mut scheduler = example(SchedulerKind::Rq);
    let scores = |scheduler: &Scheduler| {
        [1, 2, 3, 4].map(|item| scheduler.score(at(0), Toi(item)).map(|score| score.to_string()))
    };
    let expected = ["1/3", "3/2", "1", "1/2"].map(|score| Some(score.to_owned()));
    assert_eq!(scores(&scheduler), expected);
    let mut order = Vec::new();
    let mut delays = [0; 3];
    for time in 1.. {
        let Some(item) = scheduler.choose(at(time)) else { break };
        order.push(item.0);
        for client in scheduler.clients(item).collect::<Vec<_>>() {
            scheduler.remove(client, item);
            if scheduler.outstanding(client) == 0 {
                delays[client.0 as usize - 1] = time;
            }
        }
        if order == [2, 3] {
            assert_eq!(scores(&scheduler), [Some("1".into()), None, None, Some("1".into())]);
        }
    }
    assert_eq!(order, [2, 3, 1, 4]);
    assert_eq!(delays, [3, 4, 2]);
    assert_eq!(delays.iter().sum::<u64>(), 3 * 3);
    assert!(scheduler.is_empty());
}
