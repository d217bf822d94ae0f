//! The commands of the README and of a newcomer's first page, run as they stand there.

use crate::support::stage::play;

#[test]
fn the_commands_of_the_readme_work() {
    play("README.md");
}

#[test]
fn a_first_transfer_goes_as_it_is_written() {
    play("docs/start/first-transfer.md");
}
