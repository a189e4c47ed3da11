//! `arenite completions`: prints shell completions.

use anyhow::Result;
use clap::Command;
use clap_complete::Shell;

use crate::cli::NoModelArgs;
use crate::output::Out;

/// Print a completion script for a shell
#[derive(Debug, clap::Args)]
#[command(after_help = "Example:
  arenite completions bash > ~/.local/share/bash-completion/completions/arenite")]
pub struct Args {
    /// Shell
    shell: Shell,

    #[command(flatten)]
    none: NoModelArgs,
}

pub fn run(args: &Args, mut cli: Command) -> Result<()> {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut cli, "arenite", &mut script);
    Out::lock().now(&script)?;
    Ok(())
}
