//! Passages of an index that are given to the model with each question.

use std::io::Write;
use std::path::Path;

use anyhow::{Context, Result, ensure};
use arenite_run::model_file::{Load, ModelFile, Source};
use arenite_run::open_model::OpenModel;
use arenite_run::{Loaded, RunOptions};
use arenite_search::{Found, Index};

use crate::output::Out;

/// Number of passages with a question: some 800 tokens.
const PASSAGES: usize = 4;

/// Passages for the messages of a chat: an index, the model with which it was made, and the passages for the last
/// question.
pub struct Sources {
    index: Index,
    model: Loaded,
    found: Vec<Found>,
}

impl Sources {
    pub fn open(path: &Path, options: RunOptions) -> Result<Self> {
        let index = Index::open(path)?;
        ensure!(
            index.model.is_file(),
            "the model of the index ({}) is not there: make the index anew with `arenite index`",
            index.model.display()
        );
        let file = ModelFile::open(Source { load: Load::Auto, ..Source::from(&*index.model) })?;
        let model = Loaded::new(OpenModel::new(file, options)?)?;
        Ok(Self { index, model, found: Vec::new() })
    }

    /// Returns a question together with the passages that are nearest to it.
    pub fn with_passages(&mut self, question: &str) -> Result<String> {
        self.found = self.index.search(&self.model, question, PASSAGES).context("--index")?;
        let mut text = String::from("Passages of files:\n");
        for (number, Found { passage, .. }) in (1..).zip(&self.found) {
            text += &format!("\n[{number}] {}, line {}:\n{}\n", passage.file, passage.line, passage.text);
        }
        text += "\nAnswer with the help of these passages, and name the numbers of those that you use, such as [1]. If they \
                 do not contain the answer, say so.\n\n";
        Ok(text + question)
    }

    /// Prints the files of the passages whose numbers the answer mentions. If it mentions no numbers, prints the files
    /// of all passages.
    pub fn cite(&self, answer: &str) -> Result<()> {
        let is_named = |number: usize| answer.contains(&format!("[{number}]"));
        let names_some = (1..=self.found.len()).any(is_named);
        let mut out = Out::lock();
        for (number, Found { passage, .. }) in (1..).zip(&self.found) {
            if is_named(number) || !names_some {
                writeln!(out, "[{number}] {}:{}", passage.file, passage.line)?;
            }
        }
        Ok(())
    }
}
