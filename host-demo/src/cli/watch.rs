//! Watches an answer for the command line: Ctrl-C, a progress bar for long prompts, and the text.

use anyhow::Result;
use indicatif::ProgressBar;

use crate::interrupt;
use crate::output::progress;
use arenite_run::generation::Watch;

/// Ends an answer on Ctrl-C, shows the progress of a long prompt, and passes the text to a function.
pub struct Watcher<F> {
    show: F,
    bar: Option<ProgressBar>,
}

impl<F: FnMut(&str) -> Result<()>> Watcher<F> {
    pub fn new(show: F) -> Self {
        Self { show, bar: None }
    }

    fn finish(&mut self) {
        self.bar.take().inspect(ProgressBar::finish_and_clear);
    }
}

impl<F: FnMut(&str) -> Result<()>> Watch for Watcher<F> {
    fn goes_on(&mut self) -> bool {
        let goes_on = !interrupt::asked();
        if !goes_on {
            self.finish();
        }
        goes_on
    }

    fn prefilled(&mut self, done: usize, sum: usize) {
        if done >= sum {
            return self.finish();
        }
        if self.bar.is_none() {
            self.bar = Some(progress::bar(sum as u64, "prompt {bar:32} {pos}/{len} tokens {eta}"));
        }
        self.bar.iter().for_each(|bar| bar.set_position(done as u64));
    }

    fn text(&mut self, text: &str) -> Result<()> {
        (self.show)(text)
    }
}
