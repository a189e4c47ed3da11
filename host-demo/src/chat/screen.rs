//! An answer as it comes, on a terminal or in a pipe.

use anyhow::Result;
use clap::ValueEnum;

use super::{Part, Thoughts};
use crate::output::Out;

/// What becomes of a model's thoughts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Reasoning {
    Show,
    Dim,
    Hide,
}

const DIM: &str = "\x1b[2m";
const PLAIN: &str = "\x1b[0m";

/// Shows one answer.
pub struct Screen {
    out: Out,
    reasoning: Reasoning,
    thoughts: Thoughts,
    is_dim: bool,
    /// Whether blank lines are dropped: they stood after something hidden.
    after_hidden: bool,
    /// Whether the last line is unfinished.
    open: bool,
}

impl Screen {
    /// An answer to `prompt`.
    pub fn new(reasoning: Reasoning, prompt: &str) -> Self {
        let thoughts = Thoughts::after(prompt);
        Self { out: Out::lock(), reasoning, thoughts, is_dim: false, after_hidden: false, open: false }
    }

    pub fn push(&mut self, text: &str) -> Result<()> {
        let mut thoughts = std::mem::replace(&mut self.thoughts, Thoughts::after(""));
        let done = thoughts.push(text, |part| self.show(part));
        self.thoughts = thoughts;
        done
    }

    /// Ends the answer and its line.
    pub fn finish(mut self) -> Result<()> {
        let mut thoughts = std::mem::replace(&mut self.thoughts, Thoughts::after(""));
        thoughts.finish(|part| self.show(part))?;
        self.dim(false)?;
        if self.open {
            self.out.now(b"\n")?;
        }
        Ok(())
    }

    fn show(&mut self, part: Part<'_>) -> Result<()> {
        let mut text = match part {
            Part::Thought(_) if self.reasoning == Reasoning::Hide => {
                self.after_hidden = true;
                return Ok(());
            }
            Part::Thought(text) => {
                self.dim(self.reasoning == Reasoning::Dim)?;
                text
            }
            Part::Said(text) => {
                self.dim(false)?;
                text
            }
        };
        if self.after_hidden {
            text = text.trim_start();
            self.after_hidden = text.is_empty();
        }
        if !text.is_empty() {
            self.open = !text.ends_with('\n');
            self.out.now(text.as_bytes())?;
        }
        Ok(())
    }

    fn dim(&mut self, dim: bool) -> Result<()> {
        if dim != self.is_dim {
            self.is_dim = dim;
            self.out.style(if dim { DIM } else { PLAIN })?;
        }
        Ok(())
    }
}
