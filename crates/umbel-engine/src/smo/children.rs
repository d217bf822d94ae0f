//! The connections of a source, by slot.

use super::child::Child;

/// The children of a source. The user of a slot has it from a table whose entries end with the
/// child.
#[derive(Clone, Debug, Default)]
pub(super) struct Children {
    slots: Vec<Option<Box<Child>>>,
    free: Vec<u32>,
}

impl Children {
    /// Adds a child. Returns its slot.
    pub(super) fn insert(&mut self, child: Child) -> u32 {
        let child = Some(Box::new(child));
        if let Some(slot) = self.free.pop() {
            self.slots[slot as usize] = child;
            return slot;
        }
        self.slots.push(child);
        self.slots.len() as u32 - 1
    }

    /// Takes the child out of a slot, if there is one.
    pub(super) fn remove(&mut self, slot: u32) -> Option<Child> {
        let child = self.slots[slot as usize].take()?;
        self.free.push(slot);
        Some(*child)
    }

    /// Returns the child in a slot that may be empty by now.
    pub(super) fn get(&self, slot: u32) -> Option<&Child> {
        self.slots.get(slot as usize)?.as_deref()
    }

    /// Returns the child in a slot that may be empty by now.
    pub(super) fn get_mut(&mut self, slot: u32) -> Option<&mut Child> {
        self.slots.get_mut(slot as usize)?.as_deref_mut()
    }

    /// Returns the child in a slot that is known to be taken.
    pub(super) fn of(&self, slot: u32) -> &Child {
        self.get(slot).expect("slots of the tables are taken")
    }

    /// Returns the child in a slot that is known to be taken.
    pub(super) fn at(&mut self, slot: u32) -> &mut Child {
        self.get_mut(slot).expect("slots of the tables are taken")
    }
}
