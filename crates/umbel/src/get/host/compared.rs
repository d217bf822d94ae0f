//! An item that is compared with what its device has, before what is missing is asked for.

use umbel_engine::SessionId;
use umbel_engine::repository::ReceiverCommand;
use umbel_engine::repository::receiver::Held;
use umbel_wire::{Oti, Toi};

use super::{GetHost, Machine, tell};
use crate::get::store::{Added, ItemStore};

impl<S: ItemStore> GetHost<S> {
    /// Begins with what is missing of an item.
    pub(super) fn accept(
        &mut self,
        io: &mut Machine<'_, S>,
        (toi, oti): (Toi, Oti),
        (held, bytes): (Held, u64),
        requested: bool,
    ) {
        // Later sessions find the parts that this run itself has written.
        if self.session == SessionId(0) {
            self.items.resumed_bytes += bytes;
        }
        let accept = ReceiverCommand::Accept { toi, oti, held, requested };
        if let Err(error) = io.command(accept) {
            self.store.cancel(toi);
            self.fail_item(toi, &error.to_string());
        }
    }

    pub(super) fn on_compared(&mut self, io: &mut Machine<'_, S>, toi: Toi) {
        // Of an earlier session, if it is not under way.
        let Some(oti) = self.items.get_mut(toi).map(|item| item.info.oti) else { return };
        match self.store.compared(toi) {
            Some(Ok(Added::Parts(held, bytes))) => {
                self.accept(io, (toi, oti), (held, bytes), !self.hold);
            }
            Some(Err(reason)) => {
                self.fail_item(toi, &reason);
                tell(io, ReceiverCommand::Cancel { toi });
            }
            Some(Ok(_)) | None => {}
        }
    }

    /// Returns why the list cannot be taken, if the store takes one item and this is not one.
    pub(super) fn refuses_list(&self, total: u64) -> Option<String> {
        let refuses = self.store.takes_one() && total != 1;
        refuses.then(|| {
            format!(
                "a device takes one item, and this asks for {total}: name one, as in `umbel get \
                 URL NAME --device PATH`"
            )
        })
    }
}
