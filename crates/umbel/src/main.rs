//! The `umbel` command.

use std::process::ExitCode;

fn main() -> ExitCode {
    umbel_cli::end_on_panic();
    umbel::cli::run(std::env::args_os())
}
