//! Loss of packets on a line.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use rand_xoshiro::Xoshiro256PlusPlus;

use crate::link::{Loss, ScriptedLoss, TraceEnd};
use crate::packet::{FlowId, Kind, Kinds};
use crate::random;

/// State of a [`Loss`] in use.
#[derive(Clone, Debug)]
pub(super) enum LossState {
    None,
    Bernoulli(f64),
    GilbertElliott { bad: bool, change: [f64; 2], loss: [f64; 2] },
    Script(Vec<Scripted>),
    Every { left: u64, every: u64 },
    Trace { losses: Arc<[bool]>, next: usize, at_end: TraceEnd },
    Several(Vec<(Kinds, LossState)>),
}

/// Flow of which packets are lost.
#[derive(Clone, Debug)]
pub(super) struct Scripted {
    flow: FlowId,
    seen: u64,
    /// Numbers of the packets that will be lost, latest first.
    nth: Vec<u64>,
}

impl LossState {
    pub(super) fn new(loss: &Loss) -> LossState {
        match loss {
            Loss::None => LossState::None,
            Loss::Bernoulli(p) => LossState::Bernoulli(*p),
            &Loss::GilbertElliott { good_to_bad, bad_to_good, loss_good, loss_bad } => {
                LossState::GilbertElliott {
                    bad: false,
                    change: [good_to_bad, bad_to_good],
                    loss: [loss_good, loss_bad],
                }
            }
            Loss::Script(losses) => LossState::Script(script(losses)),
            &Loss::Every { first, every } => LossState::Every { left: first, every },
            Loss::Trace { losses, at_end } => {
                LossState::Trace { losses: losses.clone(), next: 0, at_end: at_end.clone() }
            }
            Loss::Several(losses) => LossState::Several(
                losses.iter().map(|(kinds, loss)| (*kinds, LossState::new(loss))).collect(),
            ),
        }
    }

    pub(super) fn loses(
        &mut self,
        random: &mut Xoshiro256PlusPlus,
        kind: Kind,
        flow: FlowId,
    ) -> bool {
        match self {
            LossState::None => false,
            LossState::Bernoulli(p) => happens(random, *p),
            LossState::GilbertElliott { bad, change, loss } => {
                *bad ^= happens(random, change[usize::from(*bad)]);
                happens(random, loss[usize::from(*bad)])
            }
            LossState::Script(flows) => {
                let Some(scripted) = flows.iter_mut().find(|scripted| scripted.flow == flow) else {
                    return false;
                };
                scripted.seen += 1;
                scripted.nth.pop_if(|nth| *nth == scripted.seen).is_some()
            }
            LossState::Every { left, every } => {
                *left -= 1;
                let lost = *left == 0;
                if lost {
                    *left = *every;
                }
                lost
            }
            LossState::Trace { losses, next, at_end } => {
                if *next >= losses.len() {
                    match at_end {
                        TraceEnd::Pass => return false,
                        TraceEnd::Repeat => *next = 0,
                        TraceEnd::Tell(ended) => {
                            ended.store(true, Ordering::Relaxed);
                            return false;
                        }
                    }
                }
                *next += 1;
                losses.get(*next - 1).copied().unwrap_or(false)
            }
            LossState::Several(losses) => {
                let mut lost = false;
                for (kinds, loss) in losses {
                    lost |= kinds.contains(kind) && loss.loses(random, kind, flow);
                }
                lost
            }
        }
    }
}

/// Returns whether an event with this probability happens. Draws only if the outcome is open.
fn happens(random: &mut Xoshiro256PlusPlus, probability: f64) -> bool {
    probability > 0.0 && (probability >= 1.0 || random::uniform(random) < probability)
}

fn script(losses: &[ScriptedLoss]) -> Vec<Scripted> {
    let mut losses = losses.to_vec();
    losses.sort_unstable();
    losses.dedup();
    let mut flows: Vec<Scripted> = Vec::new();
    for loss in losses.into_iter().rev() {
        match flows.last_mut() {
            Some(last) if last.flow == loss.flow => last.nth.push(loss.nth),
            _ => flows.push(Scripted { flow: loss.flow, seen: 0, nth: vec![loss.nth] }),
        }
    }
    flows
}
