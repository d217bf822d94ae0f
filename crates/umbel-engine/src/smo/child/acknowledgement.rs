//! Acknowledgements of a receiver: the data that it reports to have.

use std::time::Duration;

use umbel_wire::tcp::{Head, Seq};

use super::{Acknowledged, Child};
use crate::Instant;
use crate::smo::master::SendLog;
use crate::smo::scoreboard::Kind;
use crate::smo::view::View;

/// The part of an acknowledgement that earlier ones did not have.
#[derive(Clone, Copy, Debug)]
struct News {
    /// Position up to which everything has arrived, and the one before.
    ack: u64,
    before: u64,
    /// Whether its blocks name anything new, and the highest position of them.
    has_blocks: bool,
    highest: u64,
    /// Bytes that were outstanding before.
    in_use: u64,
    /// Position up to which everything has arrived or is lost, if it is the answer to a question.
    answer: Option<u64>,
}

impl News {
    /// Returns whether everything is as before, but for blocks.
    fn is_repeated(&self) -> bool {
        self.ack == self.before
    }
}

impl Child {
    /// Returns the position that a sequence number of the source's stream means, near `SND.UNA`.
    fn position(&self, base: Seq, seq: Seq) -> Option<u64> {
        let distance = i64::from(seq.since(base.plus(self.una as u32)));
        self.una.checked_add_signed(distance)
    }

    /// Handles the acknowledgement and the window of an acceptable segment. `log` is that of the
    /// master whose multicasts it hears.
    pub(in crate::smo) fn on_ack(
        &mut self,
        now: Instant,
        base: Seq,
        head: &Head,
        has_payload: bool,
        view: &View,
        log: Option<&SendLog>,
    ) -> Acknowledged {
        let Some(ack) = self.position(base, head.ack) else { return Acknowledged::Old };
        if ack > view.ackable {
            return Acknowledged::FarAhead;
        }
        if self.claims_left_out(base, head, ack, view) {
            if !self.may_hear_master() {
                return Acknowledged::Optimistic;
            }
            // Multicast reaches it, or it wants none of the unicast.
            self.on_heard(view);
        }
        if ack < self.una {
            let is_old = self.permits.is_old(self.una - ack);
            return if is_old { Acknowledged::Old } else { Acknowledged::Valid };
        }
        let is_same_window = self.permits.is_same(head);
        self.permits.on_segment(head, ack, self.least_window());
        let news = self.take_blocks(now, base, head, ack, view, log);
        if !news.is_repeated() {
            self.on_progress(now, &news, view, log);
        } else if self.question.is_asked() {
            self.on_answer(&news, view);
        } else if !has_payload && news.in_use > 0 && is_same_window && !self.has_sack {
            self.board.on_duplicate();
        }
        self.fill_skip(view);
        self.find_lost_again(now, &news, view, log);
        self.find_losses(&news, view);
        Acknowledged::Valid
    }

    /// Takes the blocks of a segment, and learns from it how it came, and after which time.
    fn take_blocks(
        &mut self,
        now: Instant,
        base: Seq,
        head: &Head,
        ack: u64,
        view: &View,
        log: Option<&SendLog>,
    ) -> News {
        let before = self.una;
        let in_use = view.sent.saturating_sub(before);
        let by_unicast = if self.hearing.hears {
            self.resent.end()
        } else {
            self.nxt.max(self.hearing.deaf_from)
        };
        let had = self.board.highest().max(before);
        let (has_blocks, highest) = self.on_sack(base, head, ack, view);
        let newest = ack.max(highest);
        // What was told before is told again in the answer to a question, and may be old.
        if self.hearing.on_told(newest) && newest > by_unicast {
            self.on_heard(view);
        }
        self.take_sample(now, ack, (newest > had).then_some(newest), log);
        let answer = self.take_answer(now, base, head, log);
        if has_blocks || answer.is_some() {
            self.resent.on_alive();
        }
        News { ack, before, has_blocks, highest, in_use, answer }
    }

    /// Handles a segment without progress after a question: what it lacks is lost, also if it was
    /// multicast again. One that left before the question came is no answer.
    fn on_answer(&mut self, news: &News, view: &View) {
        let Some(known) = news.answer else { return };
        self.question.on_heard();
        if self.board.recovery().is_some() {
            self.board.again(self.from(view));
        } else if self.is_probing {
            let lost_to = self.first_end(view).max(known.min(view.sent));
            self.board.begin(Kind::Fast, self.una, view.sent, lost_to);
        }
        if std::mem::take(&mut self.is_probing) {
            self.on_probe_loss(news.in_use, view);
        }
    }

    /// Returns the position up to which everything has arrived or is lost, as the answer to a
    /// question shows. `None` if there was none, or this cannot be the answer yet. What was
    /// multicast shortly before a question may be behind it, as it passes the helper.
    fn take_answer(
        &mut self,
        now: Instant,
        base: Seq,
        head: &Head,
        log: Option<&SendLog>,
    ) -> Option<u64> {
        let (soon, una) = (self.soon(), base.plus(self.una as u32));
        let answer = self.question.answer(now, soon, una, head.ack, &head.options.sack)?;
        answer.rtt.into_iter().for_each(|rtt| self.rtt.sample(rtt));
        Some(self.old(answer.asked_at, log))
    }

    /// Returns the time within which no answer can come.
    fn soon(&self) -> Duration {
        self.rtt.smoothed().unwrap_or_default() / 2
    }

    /// Finds retransmissions that were lost, too.
    fn find_lost_again(&mut self, now: Instant, news: &News, view: &View, log: Option<&SendLog>) {
        // Data that left after the first hole was sent again has arrived; the hole has not
        // [RFC 8985 §6.2].
        if news.has_blocks
            && news.is_repeated()
            && let (Some(hole), Some(log)) = (self.resent.hole(), log)
            && let Some((_, at)) = log.sent(news.highest)
            && at > hole + self.rtt.smoothed().unwrap_or_default() / 4
        {
            self.resent.forget_hole();
            self.board.again(self.from(view));
        }
        if self.board.recovery() == Some(Kind::Timeout) {
            let old = self.old(now, log);
            self.board.lose_to(old);
        }
    }

    /// Finds segments that were lost, and cuts the window.
    fn find_losses(&mut self, news: &News, view: &View) {
        let is_probed = self.is_probing && self.board.recovery().is_some();
        if news.has_blocks && is_probed {
            self.is_probing = false;
            self.on_probe_loss(news.in_use, view);
        }
        if (news.has_blocks || news.is_repeated())
            && !self.board.is_clean()
            && self.board.detect(self.una, view.sent.max(self.una), self.mss.into())
        {
            self.is_probing = false;
            self.question.end();
            self.on_loss(view.sent.saturating_sub(self.una), view);
        }
    }

    /// Returns whether an acknowledgement, or one of its blocks, is about what was left out.
    fn claims_left_out(&self, base: Seq, head: &Head, ack: u64, view: &View) -> bool {
        let blocks = if self.has_sack { head.options.sack.as_slice() } else { &[] };
        let blocks = blocks.iter().filter_map(|(left, right)| {
            Some(self.position(base, *left)?..self.position(base, *right)?)
        });
        let mut blocks = blocks.filter(|block| block.end <= view.ackable);
        self.skips.touches(&(self.una..ack)) || blocks.any(|block| self.skips.touches(&block))
    }

    /// Begins to send what was left out, once its receiver has reported that what is behind it
    /// came. It is no loss.
    fn fill_skip(&mut self, view: &View) {
        if self.board.is_clean() || self.board.recovery().is_some() {
            return;
        }
        if let Some(end) = self.skips.fill(self.una) {
            self.board.begin(Kind::Fast, self.una, view.sent.max(end), end);
        }
    }

    /// Returns whether blocks had news, and the highest position of them.
    fn on_sack(&mut self, base: Seq, head: &Head, ack: u64, view: &View) -> (bool, u64) {
        let (mut news, mut highest) = (false, 0);
        if !self.has_sack {
            return (news, highest);
        }
        for (left, right) in head.options.sack.as_slice() {
            let (Some(left), Some(right)) =
                (self.position(base, *left), self.position(base, *right))
            else {
                continue;
            };
            if left >= right || right > view.ackable {
                continue;
            }
            if right <= ack {
                // A duplicate [RFC 2883]. Data that a deaf child gets twice came by multicast, too,
                // unless it was sent again, or received before the child became deaf.
                let is_news = left >= self.resent.end().max(self.hearing.deaf_from);
                if is_news && self.may_hear_master() && !self.hearing.hears {
                    self.on_heard(view);
                }
                continue;
            }
            news |= self.board.sack(left.max(ack)..right);
            highest = highest.max(right);
        }
        (news, highest)
    }

    /// Notes that it received what was only multicast.
    fn on_heard(&mut self, view: &View) {
        self.hearing.on_heard();
        if !self.hearing.hears && self.may_hear_master() {
            self.hearing.hears = true;
            self.skips.forget();
            // All that was multicast until now may be lost to it.
            self.resent.begin(self.nxt.max(self.una));
            self.nxt = view.ackable;
            self.timed = None;
        }
    }

    /// Takes a sample of the RTT if this ACK is the first to name what is timed. `newest` is the
    /// end of the bytes that it is the first to name, if they are beyond all others. An ACK beyond
    /// a hole that was filled shows when it was filled, and not how long the rest was on its way.
    /// The ACKs that showed that may be lost.
    fn take_sample(&mut self, now: Instant, ack: u64, newest: Option<u64>, log: Option<&SendLog>) {
        let again = self.resent.end();
        let sent_at = if self.hearing.hears {
            let fills_hole = ack > self.una && again > self.una;
            let sent = newest.filter(|_| !fills_hole).and_then(|newest| log?.sent(newest));
            sent.filter(|(end, _)| *end > self.una.max(again))
        } else {
            let timed = self.timed.as_ref().map(|timed| (timed.end, timed.at));
            timed.filter(|(end, _)| *end <= ack || self.board.has(end - 1))
        };
        // The answer to a probe is as late as that.
        let is_answer = self.is_probing && newest.is_none_or(|newest| newest <= self.probed_to);
        if let Some((_, at)) = sent_at.filter(|_| !is_answer) {
            self.rtt.sample(now.since(at));
            self.timed = None;
        }
    }

    fn on_progress(&mut self, now: Instant, news: &News, view: &View, log: Option<&SendLog>) {
        let News { ack, before, in_use, answer: answered, .. } = *news;
        // Position up to which it lacks what it was asked about, if it does.
        let mut lacks_to = None;
        if std::mem::take(&mut self.is_probing) {
            let is_whole = match answered {
                Some(known) => ack >= known,
                // The answer to what was sent first. To who is asked, nothing else was sent.
                None => self.resent.hole().is_none_or(|at| now.since(at) < self.soon()),
            };
            if is_whole {
                self.board.cancel();
                // If it is that of later data, the one before was lost.
                if answered.is_some() {
                    self.patience.on_asked_in_vain();
                } else if ack <= self.probed_to {
                    self.patience.on_vain();
                }
            } else {
                self.on_probe_loss(in_use, view);
                lacks_to = answered.filter(|_| self.hearing.hears);
            }
        }
        self.question.on_heard();
        if let (Some(at), Some(time)) = (self.probe_at, self.probe_time())
            && at.since(now) * 2 >= time
        {
            self.patience.on_time();
        }
        let recovers = self.board.recovery() == Some(Kind::Fast) && !self.skips.is_filling();
        let arrived = match log.filter(|_| self.hearing.hears) {
            Some(log) => self
                .resent
                .hole()
                .map_or(0, |at| log.sent_until(at))
                .max(answered.unwrap_or_default()),
            None => view.sent,
        };
        self.una = ack;
        self.nxt = self.nxt.max(ack);
        self.resent.on_progress(ack);
        self.progress = now;
        self.rtt.on_progress();
        if self.board.on_progress(ack, self.has_sack, self.mss.into(), arrived) {
            self.wanted = 0;
            self.skips.on_filled();
            if self.hearing.on_recovery() {
                self.become_deaf(view.sent);
            }
        }
        if let Some(known) = lacks_to.filter(|_| self.board.recovery().is_none()) {
            let lost_to = self.first_end(view).max(known.min(view.sent));
            self.board.begin(Kind::Fast, ack, view.sent, lost_to);
        }
        if !recovers && lacks_to.is_none() {
            self.window.on_ack(now, ack - before, in_use, self.rtt.smoothed());
        }
        self.rto_at = None;
        self.probe_at = None;
    }

    /// Notes that a probe has found a loss.
    fn on_probe_loss(&mut self, flight: u64, view: &View) {
        self.patience.on_loss();
        self.on_loss(flight, view);
    }

    fn on_loss(&mut self, flight: u64, view: &View) {
        self.window.on_loss(self.own_share(flight, view));
        self.skips.on_filled();
        self.loss_events += 1;
        self.probe_at = None;
    }
}
