//! The transitions of [RLM Fig. 6], one by one.

use std::time::Duration;

use umbel_wire::{Channel, Tsi};

use super::{Action, Controller, Machine, Packet};
use crate::Instant;
use crate::chance::generator;
use crate::rlm::api::{LevelReason, State};
use crate::rlm::config::ReceiverConfig;

const LAYERS: u8 = 6;

/// A machine, and the time that its test has reached.
struct Run {
    machine: Machine,
    now: Instant,
}

fn run() -> Run {
    run_with(|_| {})
}

fn run_with(change: impl FnOnce(&mut ReceiverConfig)) -> Run {
    let channel = |layer| Channel {
        source: Some([192, 0, 2, 1].into()),
        group: [232, 0, 0, layer].into(),
        port: 7704,
    };
    let mut config = ReceiverConfig::new(Tsi(1), 1, (0..LAYERS).map(channel).collect());
    change(&mut config);
    let mut run = Run { machine: Machine::new(&config, generator(7)), now: Instant::EPOCH };
    run.machine.on_join(run.now);
    run.packet(0);
    run
}

impl Run {
    fn packet(&mut self, layer: u8) {
        self.machine.on_packet(self.now, Packet { layer, sent_us: 0 });
    }

    fn packets(&mut self, count: usize) {
        (0..count).for_each(|_| self.packet(0));
    }

    fn lose(&mut self, packets: u64) {
        self.machine.on_lost(self.now, packets);
    }

    fn state(&self) -> State {
        self.machine.status().state.unwrap()
    }

    fn level(&self) -> u8 {
        self.machine.status().level
    }

    fn actions(&mut self) -> Vec<Action> {
        std::iter::from_fn(|| self.machine.poll_action()).collect()
    }

    /// Lets time pass. A new layer delivers at once.
    fn pass(&mut self, time: Duration) -> Vec<Action> {
        let (until, mut actions) = (self.now + time, self.actions());
        while let Some(due) = self.machine.next_timeout().filter(|&due| due <= until) {
            self.now = due;
            self.machine.on_timeout(due);
            for action in self.actions() {
                if let Action::Rise { level, .. } = action {
                    self.packet(level - 1);
                }
                actions.push(action);
            }
        }
        self.now = until;
        actions
    }

    /// Lets time pass until an experiment begins.
    fn until_experiment(&mut self) {
        self.actions();
        for _ in 0..100_000 {
            let actions = self.pass(Duration::from_millis(100));
            if actions.iter().any(|action| matches!(action, Action::Rise { .. })) {
                return;
            }
        }
        panic!("no experiment");
    }

    fn t_d(&self) -> Duration {
        let status = self.machine.status();
        status.detection_time + 2 * status.detection_deviation + Duration::from_micros(1)
    }
}

#[test]
fn s_adds_a_layer_when_its_join_timer_runs_out_and_calls_it_a_success_after_t_d() {
    let mut run = run();
    let actions = run.pass(Duration::from_mins(5));
    let rise = |level| Action::Rise { level, reason: LevelReason::Experiment };
    let mut expected = vec![Action::Rise { level: 1, reason: LevelReason::Application }];
    expected.extend((2..=LAYERS).flat_map(|level| [rise(level), Action::Succeed { level }]));
    assert_eq!(actions, expected);
    assert_eq!((run.state(), run.level()), (State::Steady, LAYERS));
}

#[test]
fn s_drops_the_layer_of_its_own_failed_experiment_and_enters_d() {
    let mut run = run();
    run.until_experiment();
    run.pass(Duration::from_millis(400));
    run.lose(1);
    assert_eq!((run.state(), run.level()), (State::Drop, 1));
    let status = run.machine.status();
    let [Action::Fall { level: 1, reason: LevelReason::Failed, after: Some(after) }] =
        run.actions()[..]
    else {
        panic!()
    };
    assert!((400..=500).contains(&after.as_millis()), "{after:?}");
    // σ: 0.75 · 0.5 + 0.25 · |after − 2|; T: 0.75 · 2 + 0.25 · after.
    let mean = 1.5 + 0.25 * after.as_secs_f64();
    assert!((status.detection_time.as_secs_f64() - mean).abs() < 1e-6);
    assert_eq!((status.experiments, status.failed), (1, 1));
}

#[test]
fn d_ignores_losses_and_returns_to_s_after_t_d() {
    let mut run = run();
    run.until_experiment();
    run.lose(1);
    let t_d = run.t_d();
    run.lose(50);
    run.packets(50);
    run.lose(50);
    run.pass(t_d.mul_f64(0.99));
    assert_eq!(run.state(), State::Drop);
    run.pass(t_d.mul_f64(0.01));
    assert_eq!((run.state(), run.level()), (State::Steady, 1));
}

#[test]
fn s_enters_h_on_a_loss_without_experiments_then_m_then_s_again() {
    let mut run = run();
    let t_d = run.t_d();
    run.pass(Duration::from_millis(500));
    run.lose(1);
    assert_eq!(run.state(), State::Hysteresis);
    run.lose(100);
    run.pass(t_d);
    assert_eq!(run.state(), State::Measurement);
    run.packets(20);
    run.lose(2);
    run.pass(t_d);
    assert_eq!((run.state(), run.level()), (State::Steady, 1));
}

#[test]
fn m_lasts_until_enough_packets_have_come_to_judge() {
    let mut run = run();
    run.lose(1);
    run.pass(3 * run.t_d());
    run.packets(19);
    assert_eq!(run.state(), State::Measurement);
    run.packet(0);
    assert_eq!(run.state(), State::Steady);
}

#[test]
fn m_drops_a_layer_when_loss_lasts_and_enters_d() {
    let mut run = run();
    run.pass(Duration::from_mins(5));
    run.lose(1);
    let t_d = run.t_d();
    run.pass(t_d);
    run.packets(18);
    run.lose(2);
    assert_eq!(
        (run.state(), run.level()),
        (State::Measurement, 6),
        "the threshold is not exceeded"
    );
    run.lose(1);
    assert_eq!((run.state(), run.level()), (State::Drop, 5));
    let fall = Action::Fall { level: 5, reason: LevelReason::Congestion, after: None };
    assert_eq!(run.actions(), [fall]);
}

#[test]
fn the_base_layer_is_never_dropped() {
    let mut run = run();
    for _ in 0..10 {
        run.lose(1);
        let t_d = run.t_d();
        run.pass(t_d);
        run.lose(100);
        assert_eq!((run.state(), run.level()), (State::Drop, 1));
        run.pass(t_d);
    }
}

#[test]
fn s_enters_m_when_a_higher_experiment_may_be_to_blame_and_drops_if_loss_lasts() {
    for lasts in [false, true] {
        let mut run = run();
        run.until_experiment();
        run.machine.on_experiment(run.now, 4);
        run.lose(1);
        assert_eq!((run.state(), run.level()), (State::Measurement, 2));
        run.packets(30);
        if lasts {
            run.lose(10);
            assert_eq!((run.state(), run.level()), (State::Drop, 1));
            assert_eq!(run.machine.status().failed, 1);
        } else {
            let t_d = run.t_d();
            run.pass(t_d);
            assert_eq!((run.state(), run.level()), (State::Steady, 2));
        }
    }
}

#[test]
fn all_learn_from_the_failure_of_one() {
    let means = |hears: bool| {
        let mut run = run_with(|config| config.max_level = 1);
        if hears {
            run.machine.on_experiment(run.now, 2);
        }
        run.lose(1);
        assert_eq!(run.state(), State::Hysteresis);
        run.pass(run.t_d());
        run.packets(20);
        run.pass(run.t_d());
        assert_eq!(run.state(), State::Steady);
        run.machine.limit(run.now, LAYERS);
        run.actions();
        let begin = run.now;
        run.until_experiment();
        run.now.since(begin)
    };
    let (alone, taught) = (means(false), means(true));
    assert!(taught > alone && taught >= Duration::from_secs(5), "{alone:?}, {taught:?}");
}

#[test]
fn an_experiment_below_suppresses_one_above_but_not_for_ever() {
    let mut run = run();
    run.until_experiment();
    run.pass(Duration::from_secs(4));
    assert_eq!(run.level(), 2);
    let begin = run.now;
    while run.level() == 2 {
        run.machine.on_experiment(run.now, 2);
        run.pass(Duration::from_millis(500));
    }
    assert_eq!(run.machine.status().suppressed, 8);
    // Nine timers of at most 22.5 s.
    assert!(run.now.since(begin) < Duration::from_secs(203), "{:?}", run.now.since(begin));
}

#[test]
fn an_experiment_at_the_same_level_or_above_does_not_suppress() {
    let mut run = run();
    let begin = run.now;
    while run.level() == 1 {
        run.machine.on_experiment(run.now, 2);
        run.machine.on_experiment(run.now, 5);
        run.pass(Duration::from_millis(500));
    }
    assert_eq!(run.machine.status().suppressed, 0);
    assert!(run.now.since(begin) < Duration::from_secs(23));
}

#[test]
fn the_next_experiment_waits_for_the_first_packet_of_the_last_one() {
    let mut run = run();
    while run.level() == 1 {
        run.now = run.machine.next_timeout().unwrap();
        run.machine.on_timeout(run.now);
    }
    let begin = run.now;
    while run.now.since(begin) < Duration::from_secs(40) {
        run.now = run.machine.next_timeout().unwrap();
        run.machine.on_timeout(run.now);
        assert_eq!(run.level(), 2);
    }
    let actions = run.actions();
    assert!(!actions.iter().any(|action| matches!(action, Action::Succeed { .. })));
    run.packet(1);
    assert!(run.machine.status().detection_time >= Duration::from_secs(40));
    run.until_experiment();
    assert_eq!(run.level(), 3);
}

#[test]
fn a_level_that_proves_stable_is_joined_again_soon_after_it_was_lost() {
    let mut run = run_with(|config| config.max_level = 2);
    // It fails six times: the timer's mean is 320 s.
    for _ in 0..6 {
        run.until_experiment();
        run.lose(1);
    }
    run.until_experiment();
    let begin = run.now;
    run.pass(Duration::from_mins(2));
    assert_eq!(run.level(), 2, "seed of {begin:?}");
    run.lose(1);
    let t_d = run.t_d();
    run.pass(t_d);
    run.lose(50);
    assert_eq!(run.level(), 1);
    let begin = run.now;
    run.until_experiment();
    // The timer had relaxed to its minimum and was backed off once: at most 4.5 times 10 s.
    assert!(run.now.since(begin) <= Duration::from_secs(46));
}

#[test]
fn join_timers_may_grow_with_the_group_up_to_a_ceiling() {
    let longest = |receivers: u64| {
        let mut run = run_with(|config| config.max_level = 2);
        run.machine.on_receivers(receivers);
        for _ in 0..14 {
            run.until_experiment();
            run.lose(1);
        }
        run.actions();
        let begin = run.now;
        run.until_experiment();
        run.now.since(begin).as_secs_f64()
    };
    assert!((300.0..2700.0).contains(&longest(1)));
    assert!((900.0..8100.0).contains(&longest(3)));
    assert!((1800.0..16200.0).contains(&longest(1_000_000)));
}

#[test]
fn a_limit_is_kept_at_once_and_can_be_lifted() {
    let mut run = run();
    run.pass(Duration::from_mins(5));
    run.actions();
    run.machine.limit(run.now, 3);
    let fall = Action::Fall { level: 3, reason: LevelReason::Limit, after: None };
    assert_eq!(run.actions(), [fall]);
    run.pass(Duration::from_mins(5));
    assert_eq!(run.level(), 3);
    run.machine.limit(run.now, 4);
    run.pass(Duration::from_mins(5));
    assert_eq!(run.level(), 4);
    run.machine.on_leave();
    assert_eq!((run.machine.status().state, run.machine.next_timeout()), (None, None));
}

#[test]
fn an_experiment_waits_for_the_end_of_an_object_and_not_for_ever() {
    let mut idle = run();
    idle.until_experiment();
    let due = idle.now;
    let mut busy = run();
    busy.machine.on_object(busy.now, true);
    busy.pass(due + Duration::from_secs(1) - busy.now);
    assert_eq!(busy.level(), 1);
    // Another object follows at once, and then none.
    for (in_object, level) in [(false, 1), (true, 1), (false, 1), (false, 2)] {
        busy.machine.on_object(busy.now, in_object);
        busy.pass(super::machine::PAUSE * 2 / 3);
        assert_eq!(busy.level(), level);
    }
    let mut endless = run();
    endless.machine.on_object(endless.now, true);
    endless.until_experiment();
    let waited = endless.now.since(due);
    assert!(waited >= super::machine::OBJECT && waited < super::machine::OBJECT * 2, "{waited:?}");
    // Nothing that was to begin does so after the receiver left.
    let mut gone = run();
    gone.machine.on_object(gone.now, true);
    gone.pass(due + Duration::from_secs(1) - gone.now);
    gone.machine.on_leave();
    gone.actions();
    gone.machine.on_object(gone.now, false);
    assert_eq!((gone.level(), gone.actions()), (0, vec![]));
}
