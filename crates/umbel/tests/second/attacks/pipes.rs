//! A pipe that is sent to the honest receivers of a lab.

use std::process::Child;

use super::stranger::Mark;
use super::town::{HONEST, list_of};
use crate::support::bench::SOON;
use crate::support::feeds::Feeds;
use crate::support::process::Process;

/// A pipe with the content of the file `large`, as `feed`. It begins when all honest receivers are
/// there.
pub(crate) struct Pipe {
    pub(crate) sender: Process,
    pub(crate) mark: Mark,
    sealed: bool,
}

impl Pipe {
    /// Sends it from `h1`, sealed for the honest receivers or open.
    #[track_caller]
    pub(crate) fn send(feeds: &Feeds<'_>, sealed: bool) -> Pipe {
        if sealed {
            list_of(feeds, &HONEST);
        }
        let line = "exec 3< <(sleep 2; cat in/large) && exec \"$UMBEL\" send - --json --name feed \
                    --rate 10M --wait-for 4";
        let line = format!("{line}{} <&3", if sealed { " --admit receivers" } else { "" });
        let mut command = feeds.host("h1").command("bash");
        command.args(["-c", &line]).current_dir(feeds.directory.path());
        command.env("UMBEL", env!("CARGO_BIN_EXE_umbel")).env("XDG_STATE_HOME", feeds.state());
        let sender = Process::start("sender", command, &feeds.logs);
        let mark = Mark::of(&sender.wait_for_event("sending", SOON));
        Pipe { sender, mark, sealed }
    }

    /// Receives it on the honest hosts.
    pub(crate) fn receive(&self, feeds: &Feeds<'_>) -> [(&'static str, Child); 4] {
        let key = if self.sealed { " --key $0" } else { "" };
        let receive = format!("\"$UMBEL\" recv feed --wait 20s --as $0{key} -o - > $0.out");
        HONEST.map(|host| (host, feeds.shell(host, &receive.replace("$0", host))))
    }

    /// Waits for a receiver, and checks that it has every byte and says so.
    #[track_caller]
    pub(crate) fn check(feeds: &Feeds<'_>, (host, receiver): (&str, Child)) {
        let output = receiver.wait_with_output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        let whole = std::fs::read(feeds.input().join("large")).unwrap();
        let got = std::fs::read(feeds.directory.path().join(host).with_extension("out")).unwrap();
        assert!(got == whole, "{host} has {} of {} bytes: {said}", got.len(), whole.len());
        assert!(output.status.success(), "{host}: {said}");
    }
}
