//! Prints an answer to a terminal or a pipe while it is generated.

use anyhow::Result;
use clap::ValueEnum;

use super::dialect::{Part, Reader};
use crate::output::wrap::Wrap;
use crate::output::{Out, aside, terminal_width};

/// The display of thoughts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Reasoning {
    Show,
    Dim,
    Hide,
}

const DIM: &str = "\x1b[2m";
const CYAN: &str = "\x1b[36m";
const PLAIN: &str = "\x1b[0m";

/// Prints one answer.
pub struct Screen {
    out: Out,
    reasoning: Reasoning,
    /// True if thoughts are printed to standard error. This is so if they would be dimmed, but standard output is a
    /// pipe, which has no colors.
    is_aside: bool,
    reader: Reader,
    wrap: Wrap,
    style: &'static str,
    /// True if the last part was a thought. An empty line separates it from the answer, or a line end if the thought
    /// was printed to standard error.
    after_thought: bool,
    /// True if the last line is unfinished.
    open: bool,
}

impl Screen {
    /// Prints the parts that `reader` returns.
    pub fn new(reasoning: Reasoning, reader: Reader) -> Self {
        let out = Out::lock();
        Self {
            is_aside: reasoning == Reasoning::Dim && !out.is_terminal(),
            out,
            reasoning,
            reader,
            wrap: Wrap::default(),
            style: PLAIN,
            after_thought: false,
            open: false,
        }
    }

    pub fn push(&mut self, text: &str) -> Result<()> {
        let mut parts = Vec::new();
        self.reader.push(text, &mut parts);
        parts.into_iter().try_for_each(|part| self.show(part))
    }

    /// Ends the answer and its line. `is_unfinished` is true if a limit or a stop string ended the answer.
    pub fn finish(mut self, is_unfinished: bool) -> Result<()> {
        let mut parts = Vec::new();
        self.reader.finish(&mut parts, is_unfinished);
        parts.into_iter().try_for_each(|part| self.show(part))?;
        self.end_aside();
        self.style(PLAIN)?;
        self.flush()?;
        if self.open {
            self.out.now(b"\n")?;
        }
        Ok(())
    }

    fn show(&mut self, part: Part) -> Result<()> {
        let text = match part {
            Part::Thought(_) if self.reasoning == Reasoning::Hide => return Ok(()),
            Part::Thought(text) if self.is_aside => {
                aside(&text);
                self.after_thought = true;
                return Ok(());
            }
            Part::Thought(text) => {
                self.style(if self.reasoning == Reasoning::Dim { DIM } else { PLAIN })?;
                self.after_thought = true;
                text
            }
            Part::Content(text) => {
                self.end_aside();
                if self.after_thought {
                    self.flush()?;
                    self.out.now(b"\n\n")?;
                    self.after_thought = false;
                    // The answer is wrapped anew after a thought, so that a code block that the thought has left open
                    // does not extend into the answer.
                    self.wrap = Wrap::default();
                }
                self.style(PLAIN)?;
                text
            }
            Part::Call(call) => {
                self.end_aside();
                self.style(CYAN)?;
                self.flush()?;
                let line = if self.open { "\n" } else { "" };
                let text = format!("{line}{}({})", call.name, call.arguments);
                self.out.now(text.as_bytes())?;
                self.open = true;
                self.wrap = Wrap::default();
                return self.style(PLAIN);
            }
        };
        if !text.is_empty() {
            self.open = !text.ends_with('\n');
            self.write(&text)?;
        }
        Ok(())
    }

    /// Ends the line of a thought on standard error.
    fn end_aside(&mut self) {
        if self.is_aside && std::mem::take(&mut self.after_thought) {
            aside("\n");
        }
    }

    /// Prints a text, with its words wrapped on a terminal.
    fn write(&mut self, text: &str) -> Result<()> {
        let Some(width) = terminal_width() else { return Ok(self.out.now(text.as_bytes())?) };
        let mut ready = String::new();
        self.wrap.push(text, width, &mut ready);
        Ok(self.out.now(ready.as_bytes())?)
    }

    /// Prints the word that was held back.
    fn flush(&mut self) -> Result<()> {
        let mut ready = String::new();
        self.wrap.flush(terminal_width().unwrap_or(usize::MAX), &mut ready);
        Ok(self.out.now(ready.as_bytes())?)
    }

    fn style(&mut self, style: &'static str) -> Result<()> {
        if style != self.style {
            self.flush()?;
            if self.style != PLAIN {
                self.out.style(PLAIN)?;
            }
            if style != PLAIN {
                self.out.style(style)?;
            }
            self.style = style;
        }
        Ok(())
    }
}
