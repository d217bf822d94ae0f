//! The pauses between searches that find no parent.

use std::time::Duration;

use umbel_wire::tmtp::Refusal;

use crate::tmtp::TreeConfig;

/// Pause of a node after a search in vain, and the cause of that.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pauses {
    /// Next pause.
    next: Duration,
    /// Last refusal of the search.
    refusal: Option<Refusal>,
}

impl Pauses {
    pub(super) fn new(config: &TreeConfig) -> Pauses {
        Pauses { next: config.search_backoff, refusal: None }
    }

    /// Notes why a node refuses.
    pub(super) fn note(&mut self, refusal: Refusal) {
        self.refusal = Some(refusal);
    }

    /// Notes why a node refuses that is believed less than others.
    pub(super) fn note_doubtful(&mut self, refusal: Refusal) {
        self.refusal.get_or_insert(refusal);
    }

    /// Ends a search in vain. Returns the pause after it, and its last refusal.
    pub(super) fn end(&mut self, config: &TreeConfig) -> (Duration, Option<Refusal>) {
        let (pause, refusal) = (self.next, self.refusal.take());
        self.next = match refusal {
            // There is a tree, which grows.
            Some(Refusal::Full | Refusal::Detached) => config.search_backoff,
            _ => (pause * 2).min(config.search_backoff_max),
        };
        (pause, refusal)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pause_doubles_unless_there_is_a_tree_without_room() {
        let config = TreeConfig::default();
        let mut pauses = Pauses::new(&config);
        let ms = Duration::from_millis;
        assert_eq!(pauses.end(&config), (ms(500), None));
        pauses.note_doubtful(Refusal::NotAdmitted);
        assert_eq!(pauses.end(&config), (ms(1000), Some(Refusal::NotAdmitted)));
        pauses.note(Refusal::Full);
        pauses.note_doubtful(Refusal::NotAdmitted);
        assert_eq!(pauses.end(&config), (ms(2000), Some(Refusal::Full)));
        assert_eq!(pauses.end(&config), (ms(500), None));
        for _ in 0..10 {
            pauses.end(&config);
        }
        assert_eq!(pauses.end(&config), (config.search_backoff_max, None));
    }
}
