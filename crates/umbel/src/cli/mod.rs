//! The command line.

mod credentials;
mod demo;
mod device;
mod doctor;
mod duration;
mod files;
mod follow;
mod gateway;
mod get;
mod groups;
mod hls;
mod key;
mod left_out;
mod ls;
mod pace;
mod rate;
mod recv;
mod router;
mod rtp;
mod send;
mod serve;
mod smo;
mod stream;
mod teller;
mod token;
mod tree;
mod watch;

use std::ffi::OsString;
use std::process::ExitCode;

use clap::{Parser, Subcommand};
use umbel_cli::completions::{self, CompletionsArgs};
use umbel_cli::help::{Arrangement, Group};
use umbel_cli::man::{self, ManArgs};
use umbel_cli::programs::{Umbel, is_research};
use umbel_cli::{Global, Program, meter, output, screen, signals};

use self::output::Output;

/// Reliable multicast: one source, many receivers, every byte verified.
#[derive(Debug, Parser)]
#[command(name = "umbel", version, arg_required_else_help = true, args_override_self = true)]
#[command(after_help = "Examples:
  umbel demo                                        see the main job on this machine
  umbel serve ./repo                                offer a directory; prints the line for clients
  umbel get 'umbel://192.0.2.2:7700/?pin=…' -o out  get all of it
  umbel send ./dir --name nightly                   push to whoever runs `umbel recv nightly`
  umbel stream talk.mp4 --name lecture              live, in layers
  umbel watch lecture -o - | ffplay -               on any number of other machines
  umbel doctor 'umbel://192.0.2.2:7700/?pin=…'      why does multicast not arrive?")]
pub struct Cli {
    #[command(flatten)]
    global: Global,
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Serve a directory or a WARC file to any number of clients
    Serve(serve::ServeArgs),
    /// Get items from a server
    Get(get::GetArgs),
    /// List what a server offers
    Ls(ls::LsArgs),
    /// Push files, a directory or standard input to all receivers
    Send(send::SendArgs),
    /// Receive a feed
    Recv(recv::RecvArgs),
    /// Show the key by which senders admit this receiver
    Key(key::KeyArgs),
    /// Stream live video in layers, for receivers behind fast and slow links alike
    Stream(stream::StreamArgs),
    /// Watch a stream, as good as the path allows
    Watch(watch::WatchArgs),
    /// Serve a stream of HLS to browsers and players on this machine
    Gateway(gateway::GatewayArgs),
    /// List the sessions on the air
    Groups(groups::GroupsArgs),
    /// Show a feed's control tree
    Tree(tree::TreeArgs),
    /// Show the main job on this machine: a server, eight clients, lossy links
    Demo(demo::DemoArgs),
    /// Find out why multicast does not arrive
    Doctor(doctor::DoctorArgs),
    /// Send one TCP stream to many ordinary TCP clients by multicast
    Smo(smo::SmoArgs),
    /// Route multicast: members by IGMP and MLD, trees by PIM, repairs by LMS
    Router(router::RouterArgs),
    /// Simulate servers, clients and the network between them
    Sim,
    /// Repeat the experiments of a paper and compare the numbers
    Repro,
    /// Emulate hosts, routers and impaired links on this machine
    Lab,
    /// Print completions for bash, zsh or fish
    Completions(CompletionsArgs),
    /// Write the man pages
    #[command(hide = true)]
    Man(ManArgs),
}

/// How the help is arranged. `-h` has some five options, and those without which nothing goes.
const ARRANGEMENT: Arrangement = Arrangement {
    groups: &[
        Group { title: "Deliver", commands: &["serve", "get", "ls", "send", "recv", "key"] },
        Group { title: "Stream", commands: &["stream", "watch", "gateway"] },
        Group { title: "TCP", commands: &["smo"] },
        Group { title: "Look", commands: &["groups", "tree", "doctor"] },
        Group { title: "Network", commands: &["router"] },
        Group { title: "Research", commands: &["demo", "sim", "repro", "lab"] },
        Group { title: "Shell", commands: &["completions"] },
    ],
    shortlists: &[
        ("serve", &["interface", "rate", "token", "hidden", "port"]),
        ("get", &["output", "overwrite", "interface", "token", "fallback-after"]),
        ("ls", &["token", "token-file", "ca"]),
        ("send", &["name", "wait-for", "rate", "interface", "admit"]),
        ("recv", &["output", "overwrite", "wait", "interface", "token"]),
        ("stream", &["name", "layers", "loop", "hls", "rtp"]),
        ("watch", &["output", "stats", "for", "wait", "interface"]),
        ("gateway", &["listen", "max-level", "no-repair", "wait", "interface"]),
        ("smo serve", &["listen", "channel", "http", "file", "stdin"]),
        ("smo relay", &["listen", "channel", "http", "max-delay", "interface"]),
        ("router", &["interface", "table", "http", "no-lms", "fast-path"]),
        ("doctor", &["interface", "quick", "ca"]),
    ],
};

impl Program for Cli {
    const ARRANGEMENT: Arrangement = ARRANGEMENT;

    fn global(&self) -> &Global {
        &self.global
    }

    fn execute(self, output: &Output) -> anyhow::Result<ExitCode> {
        match self.command {
            Command::Serve(args) => serve::run(args, output),
            Command::Get(args) => get::run(args, output),
            Command::Ls(args) => ls::run(args, output),
            Command::Send(args) => send::run(args, output),
            Command::Recv(args) => recv::run(args, output),
            Command::Key(args) => key::run(args, output),
            Command::Stream(args) => stream::run(&args, output),
            Command::Watch(args) => watch::run(args, output),
            Command::Gateway(args) => gateway::run(args, output),
            Command::Groups(args) => groups::run(&args, output),
            Command::Tree(args) => tree::run(&args, output),
            Command::Demo(args) => demo::run(args, output),
            Command::Doctor(args) => doctor::run(&args, output),
            Command::Smo(args) => smo::run(args, output),
            Command::Router(args) => router::run(args, output),
            Command::Completions(args) => completions::run::<Cli>(&args, output),
            Command::Man(args) => man::run::<Cli>(&args, output),
            Command::Sim | Command::Repro | Command::Lab => {
                Err(Umbel::Laboratory.take_over(std::env::args_os().skip(1)).into())
            }
        }
    }
}

/// Runs the command line. Returns the exit code: 0 done, 1 failed, 2 bad usage.
pub fn run(args: impl IntoIterator<Item = OsString>) -> ExitCode {
    let args: Vec<OsString> = args.into_iter().collect();
    if is_research(&args) {
        // Before anything else: only the other program knows its options, and those of its commands
        // in a configuration file.
        let lack = Umbel::Laboratory.take_over(&args[1..]);
        let is_json = args.iter().any(|arg| arg == "--json");
        Output::new(is_json, false).error(&lack.into());
        return ExitCode::from(1);
    }
    umbel_cli::run::<Cli>(args)
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;
    use umbel_cli::programs::{PRODUCT, RESEARCH};

    use super::*;

    #[test]
    fn texts_after_the_help_fit_into_100_columns() {
        umbel_cli::testing::assert_texts_fit(&Cli::command());
    }

    #[test]
    fn help_fits_the_terminal() {
        umbel_cli::testing::assert_fits::<Cli>();
    }

    #[test]
    fn help_is_arranged() {
        let certificates: &[&str] = &["ca", "cert", "key", "client-ca", "crl"];
        umbel_cli::testing::assert_arranged::<Cli>(&[(credentials::CERTIFICATES, certificates)]);
    }

    #[test]
    fn shells_complete_it_and_pages_of_the_manual_describe_it() {
        umbel_cli::testing::assert_completed::<Cli>();
        umbel_cli::testing::assert_paged::<Cli>(&RESEARCH.map(|(name, _)| name));
    }

    #[test]
    fn the_reference_is_that_of_these_commands() {
        umbel_cli::testing::reference::assert_current(&Cli::command(), PRODUCT);
    }

    #[test]
    fn the_laboratory_knows_which_commands_it_has_and_which_it_has_not() {
        let command = Cli::command();
        let about = |own: &clap::Command| own.get_about().map(ToString::to_string);
        let listed = |name| command.find_subcommand(name).and_then(about);
        for (name, about) in RESEARCH {
            assert_eq!(listed(name).as_deref(), Some(about));
        }
        let own = command.get_subcommands().map(clap::Command::get_name);
        let both = ["completions", "man"];
        let own = own.filter(|name| RESEARCH.iter().all(|(research, _)| research != name));
        let own = own.filter(|name| !both.contains(name));
        assert_eq!(own.collect::<Vec<_>>(), PRODUCT);
    }
}
