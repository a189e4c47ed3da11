//! Prints an answer to a terminal or a pipe while it is generated.

use anyhow::Result;
use clap::ValueEnum;

use super::dialect::{Part, Reader};
use crate::output::Out;

/// The display of thoughts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Reasoning {
    Show,
    Dim,
    Hide,
}

const DIM: &str = "\x1b[2m";
const PLAIN: &str = "\x1b[0m";

/// Prints one answer.
pub struct Screen {
    out: Out,
    reasoning: Reasoning,
    reader: Reader,
    is_dim: bool,
    /// True if the last part was a thought: an empty line separates it from the answer.
    after_thought: bool,
    /// True if the last line is unfinished.
    open: bool,
}

impl Screen {
    /// Prints the parts that `reader` returns.
    pub fn new(reasoning: Reasoning, reader: Reader) -> Self {
        Self { out: Out::lock(), reasoning, reader, is_dim: false, after_thought: false, open: false }
    }

    pub fn push(&mut self, text: &str) -> Result<()> {
        let mut parts = Vec::new();
        self.reader.push(text, &mut parts);
        parts.into_iter().try_for_each(|part| self.show(part))
    }

    /// Ends the answer and its line.
    pub fn finish(mut self) -> Result<()> {
        let mut parts = Vec::new();
        self.reader.finish(&mut parts);
        parts.into_iter().try_for_each(|part| self.show(part))?;
        self.dim(false)?;
        if self.open {
            self.out.now(b"\n")?;
        }
        Ok(())
    }

    fn show(&mut self, part: Part) -> Result<()> {
        let text = match part {
            Part::Thought(_) if self.reasoning == Reasoning::Hide => return Ok(()),
            Part::Thought(text) => {
                self.dim(self.reasoning == Reasoning::Dim)?;
                self.after_thought = true;
                text
            }
            Part::Content(text) => {
                if self.after_thought {
                    self.out.now(b"\n\n")?;
                    self.after_thought = false;
                }
                self.dim(false)?;
                text
            }
            Part::Call(call) => {
                self.dim(true)?;
                let line = if self.open { "\n" } else { "" };
                let text = format!("{line}{}({})", call.name, call.arguments);
                self.out.now(text.as_bytes())?;
                self.open = true;
                return self.dim(false);
            }
        };
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
