//! Prints a plan as text.

use std::collections::BTreeMap;
use std::io::Write;

use anyhow::Result;

use super::{Args, BoardRow, Program, Row};
use crate::boards::program::MARGIN;
use crate::boards::{Fit, TIGHT};
use crate::output::{Bytes, Out};
use arenite_run::model_file::ModelFile;

pub fn print(
    out: &mut Out,
    file: &ModelFile,
    args: &Args,
    rows: &[Row],
    boards: &[BoardRow],
    program: &Program,
) -> Result<()> {
    writeln!(out, "{}: {} of flash ({} bytes), read in place", file.name(), Bytes(file.len()), file.len())?;
    let features: Vec<_> = program.features.iter().copied().collect();
    // The board's own target if there is one board only.
    let target = if let [board] = boards { board.target } else { args.target };
    let size = program.flash(target);
    writeln!(
        out,
        "program: {}{} of flash on {} with the features {}; {MARGIN} % more is reserved",
        if size.is_measured { "about " } else { "not measured, up to about " },
        Bytes(size.bytes),
        target.describe(),
        features.join(", ")
    )?;
    writeln!(
        out,
        "RAM in bytes, with batch {}, KV cache in {}, {} worker{}:\n",
        args.batch_size,
        rows.first().map_or("", |row| row.kv.name()),
        args.threads,
        if args.threads == 1 { "" } else { "s" },
    )?;
    writeln!(
        out,
        "  {:>8}  {:>12}  {:>14}  {:>12}  {:>14}  {:>14}",
        "context", "workspace", "KV cache", "tokenizer", "together", "as statics"
    )?;
    for row in rows {
        writeln!(
            out,
            "  {:>8}  {:>12}  {:>14}  {:>12}  {:>14}  {:>14}  ({})",
            row.context,
            row.workspace_bytes,
            row.kv_bytes,
            row.tokenizer_bytes,
            row.ram_bytes,
            row.static_bytes,
            Bytes(row.static_bytes),
        )?;
    }
    writeln!(out, "\n  {:22}  {:11}  {:>9}  {:>9}  {:>11}  fits", "board", "chip", "flash", "RAM", "est. t/s")?;
    for board in boards {
        let verdict = match board.fit {
            Fit::FlashTooSmall => "no: model and program are larger than the flash".to_string(),
            Fit::RamTooSmall => "no: too little RAM for any context".to_string(),
            Fit::Context { longest, ram, flash } if board.fits => {
                let is_tight = ram < TIGHT || flash.is_some_and(|flash| flash < TIGHT);
                let spare =
                    flash.filter(|flash| *flash < TIGHT.min(ram)).map_or((ram, "RAM"), |flash| (flash, "flash"));
                let tight = if is_tight { ": tight" } else { "" };
                format!("yes, with a context of {longest} and {} of {} to spare{tight}", Bytes(spare.0), spare.1)
            }
            Fit::Context { longest, .. } => format!("no, only a context of {longest}"),
        };
        let speed = match board.estimated_tokens_per_second {
            Some((least, most)) if board.longest_context > 0 && least == most => format!("~{}", rate(least)),
            Some((least, most)) if board.longest_context > 0 => format!("{}-{}", rate(least), rate(most)),
            _ => "-".to_string(),
        };
        let estimate =
            if board.program_is_measured || board.flash_bytes.is_none() { "" } else { " (program not measured)" };
        let flash = board.flash_bytes.map_or("(files)".to_string(), |bytes| Bytes(bytes).to_string());
        writeln!(
            out,
            "  {:22}  {:11}  {:>9}  {:>9}  {speed:>11}  {verdict}{estimate}",
            board.board,
            board.chip,
            flash,
            Bytes(board.ram_bytes),
        )?;
    }
    for (kind, boards) in slow_types(boards) {
        writeln!(out, "\n{kind} is slow on {boards}: requantize with `arenite quantize --for CORE`")?;
    }
    if let Some(note) = &program.note {
        writeln!(out, "\n{note}")?;
    }
    Ok(())
}

/// A number of tokens per second, with two digits or more.
fn rate(tokens: f64) -> String {
    if tokens < 10.0 { format!("{tokens:.1}") } else { format!("{tokens:.0}") }
}

/// Returns the types that are slow on a board, and for each type the names of the boards. Only boards on which the
/// model fits are listed.
fn slow_types(boards: &[BoardRow]) -> BTreeMap<&str, String> {
    let mut slow = BTreeMap::<&str, String>::new();
    for board in boards.iter().filter(|board| board.longest_context > 0) {
        for kind in &board.slow_types {
            let names = slow.entry(kind).or_default();
            *names += if names.is_empty() { "" } else { ", " };
            *names += board.board;
        }
    }
    slow
}
