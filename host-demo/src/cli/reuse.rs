//! The option for tokens at other positions.

use clap::Args;

use arenite_run::runtime::RunOptions;

#[derive(Clone, Copy, Debug, Args)]
pub struct ReuseArgs {
    /// Reuse blocks of at least N tokens that an earlier conversation has at other positions, as after a change in a
    /// prompt: their keys are rotated. The answer may differ from that of a new computation; 0 reuses none
    #[arg(long, value_name = "N", default_value_t = 0)]
    cache_reuse: usize,
}

impl ReuseArgs {
    /// Adds the option to those of a model.
    pub fn apply(self, options: RunOptions) -> RunOptions {
        RunOptions { reuse: self.cache_reuse, ..options }
    }
}
