//! `arenite man`: writes the manual pages.

use std::path::PathBuf;

use anyhow::{Context, Result};
use clap::Command;

use crate::cli::NoModelArgs;
use crate::output::note;

/// Write manual pages, one per command
#[derive(Debug, clap::Args)]
#[command(after_help = "Example:
  arenite man ~/.local/share/man/man1
  man arenite-generate")]
pub struct Args {
    /// Directory; created if it does not exist
    #[arg(value_name = "DIR")]
    directory: PathBuf,

    #[command(flatten)]
    none: NoModelArgs,
}

pub fn run(args: &Args, cli: Command) -> Result<()> {
    let cannot = || format!("cannot write to {}", args.directory.display());
    std::fs::create_dir_all(&args.directory).with_context(cannot)?;
    clap_mangen::generate_to(cli, &args.directory).with_context(cannot)?;
    note(format_args!("{}: arenite.1 and a page for each command", args.directory.display()));
    Ok(())
}
