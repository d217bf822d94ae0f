//! Completions of a program's command line for shells.

use std::process::ExitCode;

use clap::ValueEnum;
use serde_json::json;

use crate::Program;
use crate::output::Output;

/// Options of `completions`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  umbel completions bash > ~/.local/share/bash-completion/completions/umbel
  umbel completions zsh > ~/.zfunc/_umbel           with `fpath+=~/.zfunc` before `compinit`
  umbel completions fish > ~/.config/fish/completions/umbel.fish
  umbel-laboratory completions bash                 those of the other program
Shells that run read them when they are started again.")]
pub struct CompletionsArgs {
    /// The shell that will read them
    #[arg(value_enum)]
    shell: Shell,
}

/// A shell.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Shell {
    Bash,
    Zsh,
    Fish,
}

/// Prints the completions of a program.
///
/// # Errors
///
/// None; as all commands.
pub fn run<P: Program>(args: &CompletionsArgs, output: &Output) -> anyhow::Result<ExitCode> {
    let script = script::<P>(args.shell);
    let shell = args.shell.name();
    output.json(&json!({ "event": "completions", "shell": shell, "script": script }));
    output.result(script.trim_end());
    Ok(ExitCode::SUCCESS)
}

/// Returns the script by which a shell completes the command line of a program.
pub(crate) fn script<P: Program>(shell: Shell) -> String {
    let mut program = P::arranged();
    let name = program.get_name().to_owned();
    let mut script = Vec::new();
    clap_complete::generate(shell.generator(), &mut program, name, &mut script);
    String::from_utf8_lossy(&script).into_owned()
}

impl Shell {
    fn generator(self) -> clap_complete::Shell {
        match self {
            Shell::Bash => clap_complete::Shell::Bash,
            Shell::Zsh => clap_complete::Shell::Zsh,
            Shell::Fish => clap_complete::Shell::Fish,
        }
    }

    /// Returns the shell's name, as users write it.
    pub(crate) fn name(self) -> String {
        self.generator().to_string()
    }
}
