//! Reports the measurements as a table, Markdown, CSV, JSON or a plot.

use std::io::Write;
use std::path::Path;

use anyhow::Result;
use clap::ValueEnum;
use serde::Serialize;

use super::limits::Limits;
use super::profile::Profile;
use crate::output::plot::Plot;
use crate::output::{Bytes, Out};

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Format {
    Table,
    Md,
    Csv,
    Json,
}

#[derive(Serialize)]
pub struct Measured {
    pub model: String,
    pub isa: &'static str,
    pub threads: usize,
    pub sequences: usize,
    /// Tokens before the prompt, and before the decoded tokens.
    pub depth: usize,
    pub prefill_tokens: usize,
    pub decode_tokens: usize,
    /// Proposed tokens in each pass of the decoding.
    pub draft: usize,
    pub prefill_tok_s: f64,
    /// Speed of all sequences together.
    pub decode_tok_s: f64,
    pub first_token_ms: f64,
    pub load_ms: f64,
    pub workspace_bytes: usize,
    pub kv_bytes: usize,
    pub peak_rss_bytes: Option<usize>,
    #[serde(flatten)]
    pub limits: Limits,
    /// The rate of the prefill's products, divided by the highest rate of this machine. A product of floats counts as
    /// four products of bytes. `None` if the highest rate is unknown.
    pub prefill_share: Option<f64>,
    /// Bytes that decoding reads, as a share of the limit.
    pub decode_share: f64,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub profile: Option<Profile>,
}

const COLUMNS: [(&str, usize); 13] = [
    ("threads", 7),
    ("isa", 8),
    ("sequences", 9),
    ("tokens", 9),
    ("prefill tok/s", 13),
    ("of peak", 7),
    ("decode tok/s", 12),
    ("of reads", 8),
    ("first token", 11),
    ("load", 10),
    ("workspace", 10),
    ("KV cache", 10),
    ("peak RSS", 10),
];

impl Measured {
    fn cells(&self) -> [String; COLUMNS.len()] {
        [
            self.threads.to_string(),
            self.isa.to_string(),
            self.sequences.to_string(),
            self.tokens(),
            measured(self.prefill_tok_s, ""),
            self.prefill_share.map_or("-".to_owned(), percent),
            measured(self.decode_tok_s, ""),
            percent(self.decode_share),
            measured(self.first_token_ms, " ms"),
            format!("{:.1} ms", self.load_ms),
            Bytes(self.workspace_bytes).to_string(),
            Bytes(self.kv_bytes).to_string(),
            self.peak_rss_bytes.map_or("unknown".to_string(), |bytes| Bytes(bytes).to_string()),
        ]
    }

    fn tokens(&self) -> String {
        let depth = if self.depth == 0 { String::new() } else { format!(" @ {}", self.depth) };
        format!("{}+{}{depth}", self.prefill_tokens, self.decode_tokens)
    }

    fn csv(&self) -> String {
        let known = |number: f64| if number.is_nan() { String::new() } else { format!("{number:.3}") };
        let optional = |number: Option<f64>| number.map_or(String::new(), known);
        let (peak, share) = (optional(self.limits.integer_gmul_s), optional(self.prefill_share));
        let rss = self.peak_rss_bytes.map_or(String::new(), |bytes| bytes.to_string());
        format!(
            "\"{}\",{},{},{},{},{},{},{},{},{},{:.3},{},{},{rss},{:.3},{peak},{share},{}",
            self.model.replace('"', "\"\""),
            self.isa,
            self.threads,
            self.sequences,
            self.depth,
            self.prefill_tokens,
            self.decode_tokens,
            known(self.prefill_tok_s),
            known(self.decode_tok_s),
            known(self.first_token_ms),
            self.load_ms,
            self.workspace_bytes,
            self.kv_bytes,
            self.limits.read_gb_s,
            known(self.decode_share),
        )
    }
}

fn percent(share: f64) -> String {
    if share.is_nan() { "-".to_owned() } else { format!("{:.0} %", 100.0 * share) }
}

/// Returns a measured number with its unit. If the number is NaN, it was not measured, and a dash is returned.
fn measured(number: f64, unit: &str) -> String {
    if number.is_nan() { "-".to_owned() } else { format!("{number:.1}{unit}") }
}

/// The first line of a CSV report. It has the names of [`Measured`]'s fields, without those of the profile.
const CSV: &str = "model,isa,threads,sequences,depth,prefill_tokens,decode_tokens,prefill_tok_s,decode_tok_s,first_token_ms,\
                   load_ms,workspace_bytes,kv_bytes,peak_rss_bytes,read_gb_s,integer_gmul_s,prefill_share,decode_share";

/// Prints the measurements. JSON is printed at the end, other formats line by line during the measurement.
pub struct Report {
    format: Format,
    results: Vec<Measured>,
}

impl Report {
    pub fn new(format: Format) -> Self {
        Self { format, results: Vec::new() }
    }

    pub fn add(&mut self, out: &mut Out, measured: Measured) -> Result<()> {
        let is_first = self.results.is_empty();
        match self.format {
            Format::Table => {
                let line = |cells: [&str; COLUMNS.len()]| {
                    let padded = cells.iter().zip(COLUMNS).map(|(cell, (_, width))| format!("{cell:>width$}"));
                    padded.collect::<Vec<_>>().join("  ")
                };
                if is_first {
                    writeln!(out, "{}", line(COLUMNS.map(|(name, _)| name)))?;
                }
                writeln!(out, "{}", line(measured.cells().each_ref().map(String::as_str)))?;
            }
            Format::Md => {
                if is_first {
                    writeln!(out, "| model | {} |", COLUMNS.map(|(name, _)| name).join(" | "))?;
                    writeln!(out, "|---|{}", "---:|".repeat(COLUMNS.len()))?;
                }
                writeln!(out, "| {} | {} |", measured.model.replace('|', "\\|"), measured.cells().join(" | "))?;
            }
            Format::Csv => {
                if is_first {
                    writeln!(out, "{CSV}")?;
                }
                writeln!(out, "{}", measured.csv())?;
            }
            Format::Json => {}
        }
        if let (Format::Table | Format::Md, Some(profile)) = (self.format, &measured.profile) {
            profile.print(out)?;
            let Limits { read_gb_s, integer_gmul_s } = measured.limits;
            let peak = integer_gmul_s.map_or(String::new(), |peak| format!(", {peak:.0} Gmul/s of integers"));
            writeln!(out, "\nlimits of this machine: {read_gb_s:.1} GB/s (reads){peak}")?;
        }
        out.flush()?;
        self.results.push(measured);
        Ok(())
    }

    pub fn finish(&self, out: &mut Out) -> Result<()> {
        #[derive(Serialize)]
        struct Json<'r> {
            results: &'r [Measured],
        }
        if self.format == Format::Json {
            out.json_pretty(&Json { results: &self.results })?;
        }
        Ok(())
    }

    /// Plots speed over the number of threads, with one curve for each number of sequences.
    pub fn plot(&self, path: &Path) -> Result<()> {
        let mut sequences: Vec<usize> = self.results.iter().map(|result| result.sequences).collect();
        sequences.sort_unstable();
        sequences.dedup();
        let of = |wanted: Option<usize>, speed: fn(&Measured) -> f64| {
            let alike = self.results.iter().filter(|result| result.sequences == wanted.unwrap_or(result.sequences));
            alike.map(|result| (result.threads as f64, speed(result))).collect::<Vec<_>>()
        };
        let mut curves = vec![("prefill".to_string(), of(sequences.first().copied(), |result| result.prefill_tok_s))];
        for &n in &sequences {
            let name = if n == 1 { "decode".to_string() } else { format!("decode, {n} sequences") };
            curves.push((name, of(Some(n), |result| result.decode_tok_s)));
        }
        let model = self.results.first().map_or("", |result| result.model.as_str());
        Plot { title: model, x: "threads", y: "tokens per second", curves: &curves }.save(path)
    }
}
