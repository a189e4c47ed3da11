//! `arenite plan`: computes the memory that a model needs.

use std::collections::BTreeSet;
use std::io::Write;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use arenite::memory::static_bytes;
use arenite::tokenizer::Tokenizer;
use arenite::{Gguf, Model, Options, Plan};
use serde::Serialize;

use crate::boards::program;
use crate::boards::program::{Level, MARGIN, Target};
use crate::boards::{BOARDS, Board, Fit, Need, Regions, TIGHT, Work};
use crate::cli::{Kv, at_least_one, context_size, memory_size, threads};
use crate::output::plot::Plot;
use crate::output::{Bytes, Out};
use arenite_run::adapters::AdapterFiles;
use arenite_run::model_file::ModelFile;
use arenite_run::runtime;
use arenite_text::normalizer;

/// Show how much flash and RAM a model needs, and which boards it fits
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  arenite plan -m model.gguf
  arenite plan -m model.gguf -c 256 -b 8 --rust > src/memory.rs
  arenite plan -m model.gguf --flash 1M --ram 256K,64K

RAM sizes are exact and the same for every target, microcontrollers included. The program's flash size \
is that of a small program that tells a story, linked for the board's target and optimization level; 3 % more is reserved. \
For a target or feature that was not measured, the size is an estimate, and the table says so. \
Your own code is not included. 16 KiB of RAM are reserved for the stack \
of each worker and 1 KiB for the program's own statics. A board with less than 8 KiB of RAM or flash to \
spare is called tight. Tokens per second are an estimate.")]
pub struct Args {
    /// Size of the context in tokens [default: several, up to the model's own]
    #[arg(short, long, value_name = "CTX", allow_negative_numbers = true, value_parser = context_size)]
    ctx_size: Option<usize>,

    /// Maximum number of tokens per pass; a larger number speeds up prompts and needs a larger workspace
    #[arg(short, long, value_name = "BATCH", default_value_t = 8, value_parser = at_least_one)]
    batch_size: usize,

    /// Data type of the key-value cache [default: f16; f32 for encoders and llama2.c models]
    #[arg(long, value_enum)]
    kv: Option<Kv>,

    /// LoRA adapter to plan memory for; may be repeated
    #[arg(long, value_name = "FILE", value_delimiter = ',')]
    lora: Vec<String>,

    /// Number of threads, or cores of a microcontroller
    #[arg(short, long, default_value_t = 1, value_parser = threads)]
    threads: usize,

    /// Flash size of a board of your own, such as 1M; without it, the board reads the model from a file
    #[arg(long, value_name = "BYTES", requires = "ram", value_parser = memory_size)]
    flash: Option<usize>,

    /// RAM sizes of your own board, such as 256K,64K
    #[arg(long, value_name = "BYTES,...", value_delimiter = ',', value_parser = memory_size)]
    ram: Vec<usize>,

    /// Target of your own board
    #[arg(long, value_enum, default_value = "thumbv7em", requires = "ram")]
    target: Target,

    /// Optimization level of the program
    #[arg(long, value_enum, default_value = "3")]
    opt: Level,

    /// Print one JSON object
    #[arg(long, conflicts_with = "rust")]
    json: bool,

    /// Print Rust constants
    #[arg(long)]
    rust: bool,

    /// Plot memory over context size
    #[arg(long, value_name = "F.svg")]
    plot: Option<PathBuf>,
}

/// A row of the table of RAM sizes.
#[derive(Clone, Copy, Serialize)]
struct Row {
    context: usize,
    batch: usize,
    kv: &'static str,
    workers: usize,
    workspace_bytes: usize,
    kv_bytes: usize,
    tokenizer_bytes: usize,
    ram_bytes: usize,
    /// RAM that the linker reports for workspace, KV cache and tokenizer index as statics.
    static_bytes: usize,
}

/// Result for a board.
#[derive(Serialize)]
struct BoardRow {
    board: &'static str,
    chip: &'static str,
    flash_bytes: Option<usize>,
    ram_bytes: usize,
    ram_regions: Vec<usize>,
    fits: bool,
    /// Longest context that fits; 0 if none does.
    longest_context: usize,
    /// RAM and flash to spare with the longest context.
    spare_ram_bytes: Option<usize>,
    spare_flash_bytes: Option<usize>,
    /// Flash size of a small program without the model.
    program_bytes: usize,
    /// Flash that is reserved for the program: its size and a margin.
    reserved_flash_bytes: usize,
    program_is_measured: bool,
    /// RAM region of each block of memory with the longest context; `None` if the board's models are files, or if no
    /// context fits.
    regions: Option<Regions>,
    /// `None` if the speed of the board or of this kind of model cannot be estimated.
    estimated_tokens_per_second: Option<f64>,
    #[serde(skip)]
    fit: Fit,
}

pub fn run(args: &Args, file: &ModelFile) -> Result<()> {
    let gguf = file.parse()?;
    let model = Model::new(&gguf).with_context(|| file.name().to_string())?;
    let longest = model.spec().context;
    let lora = AdapterFiles::open(&args.lora)?;
    // Check that the adapters fit the model.
    lora.adapters(&model)?;
    let plan_of = |context| row(args, &gguf, &lora, context).with_context(|| file.name().to_string());

    let chosen = plan_of(args.ctx_size.unwrap_or(longest))?;
    if let Some(path) = &args.plot {
        plot(path, file, args.ctx_size.unwrap_or(longest), plan_of)?;
    }
    let mut out = Out::lock();
    if args.rust {
        return print_rust(&mut out, file, &chosen);
    }
    let rows = match args.ctx_size {
        Some(_) => vec![chosen],
        None => contexts(longest).into_iter().map(plan_of).collect::<Result<Vec<_>>>()?,
    };
    let most = args.ctx_size.unwrap_or(longest);
    let mut features = program::features(&gguf, runtime::kv(args.kv.map(Kv::into), &gguf));
    features.extend((!args.lora.is_empty()).then_some("lora"));
    let work = if features.contains("experts") { None } else { work(&model) };
    let need = Program {
        file: file.len() + lora.len(),
        lora: &lora,
        features,
        level: args.opt,
        is_packed: matches!(Tokenizer::index_bytes(&gguf), Ok(0)),
        work,
        note: normalizer::note(&gguf),
    };
    let own = [Board::own(args.flash, &args.ram, args.target)];
    let boards = if args.ram.is_empty() { BOARDS } else { &own };
    let boards: Vec<_> = boards.iter().map(|board| board_row(args, &gguf, board, &need, most)).collect();
    if args.json {
        print_json(&mut out, file, args, chosen, &rows, &boards, &need)
    } else {
        print_text(&mut out, file, args, &rows, &boards, &need)
    }
}

/// Properties of the model that determine a program's flash size and speed.
struct Program<'a> {
    /// Size of the model and its adapters in bytes.
    file: usize,
    lora: &'a AdapterFiles,
    features: BTreeSet<&'static str>,
    level: Level,
    /// True if the file contains the tokenizer's index: the program then has no code that builds one.
    is_packed: bool,
    /// Work per token; `None` for encoders and for models with experts.
    work: Option<Work>,
    /// A note for the user, if texts must be normalized before they are tokenized.
    note: Option<String>,
}

impl Program<'_> {
    fn flash(&self, target: Target) -> program::Flash {
        program::flash(&self.features, target, self.level, self.is_packed)
    }
}

/// Counts the weights that each token of a decoder is multiplied by: all matrices, except tables from which a token
/// reads one row.
fn work(model: &Model<'_>) -> Option<Work> {
    let gguf = model.gguf();
    let spec = model.spec();
    if !spec.has_head() || spec.has_cross_attention() {
        return None;
    }
    let mut work = Work::default();
    let has_head = gguf.tensor("output.weight").is_some();
    let multiplies = |name| match name {
        "token_embd.weight" => !has_head,
        "per_layer_token_embd.weight" => false,
        _ => true,
    };
    for tensor in gguf.tensors().filter(|tensor| tensor.dims[1] > 1 && multiplies(tensor.name)) {
        let weights = tensor.dims.iter().product::<u64>();
        let (elements, bytes) = tensor.kind.block();
        *(if elements == 1 { &mut work.floats } else { &mut work.quantized }) += weights;
        work.bytes += weights / elements as u64 * bytes as u64;
    }
    Some(work)
}

/// Plots memory over context size, up to the longest context.
fn plot(path: &Path, file: &ModelFile, longest: usize, plan_of: impl Fn(usize) -> Result<Row>) -> Result<()> {
    const POINTS: usize = 32;
    let mut contexts: Vec<usize> = (1..=POINTS).map(|i| (longest / POINTS).saturating_mul(i).max(1)).collect();
    contexts.push(longest);
    contexts.dedup();
    let rows = contexts.into_iter().map(plan_of).collect::<Result<Vec<_>>>()?;
    let curve = |name: &str, bytes: fn(&Row) -> usize| {
        (name.to_string(), rows.iter().map(|row| (row.context as f64, bytes(row) as f64 / 1024.0)).collect())
    };
    let curves = [
        curve("together", |row| row.ram_bytes),
        curve("KV cache", |row| row.kv_bytes),
        curve("workspace", |row| row.workspace_bytes),
        curve("tokenizer", |row| row.tokenizer_bytes),
    ];
    Plot { title: &format!("RAM of {}", file.name()), x: "positions in the context", y: "KiB", curves: &curves }
        .save(path)
}

/// Context sizes of the table: powers of two up to the model's own size, at most six.
fn contexts(longest: usize) -> Vec<usize> {
    let mut contexts: Vec<usize> =
        std::iter::successors(Some(64usize), |n| n.checked_mul(2)).take_while(|&n| n < longest).collect();
    contexts.push(longest);
    contexts.split_off(contexts.len().saturating_sub(6))
}

fn row(args: &Args, gguf: &Gguf<'_>, lora: &AdapterFiles, context: usize) -> Result<Row> {
    let kv = runtime::kv(args.kv.map(Kv::into), gguf);
    let options = Options::new().context(context).batch(args.batch_size).kv(kv).workers(args.threads);
    let plan = Plan::new(gguf, lora.planned(options))?;
    let tokenizer = if arenite_text::has_vocabulary(gguf) { Tokenizer::index_bytes(gguf)? } else { 0 };
    Ok(Row {
        context: plan.options.context,
        batch: plan.options.batch,
        kv: kv.name(),
        workers: args.threads,
        workspace_bytes: plan.workspace,
        kv_bytes: plan.kv,
        tokenizer_bytes: tokenizer,
        ram_bytes: plan.workspace.saturating_add(plan.kv).saturating_add(tokenizer),
        static_bytes: [plan.workspace, plan.kv, tokenizer].map(static_bytes).into_iter().fold(0, usize::saturating_add),
    })
}

fn board_row(args: &Args, gguf: &Gguf<'_>, board: &Board, program: &Program<'_>, most: usize) -> BoardRow {
    let need = |context| {
        let row = row(args, gguf, program.lora, context).ok()?;
        let [workspace, kv, tokenizer] = [row.workspace_bytes, row.kv_bytes, row.tokenizer_bytes].map(static_bytes);
        Some(Need { workspace, kv, tokenizer })
    };
    let size = program.flash(board.target);
    let fit = board.fit(program.file, size.reserved(), args.threads, most, need);
    let (longest_context, spare_ram_bytes, spare_flash_bytes) = match fit {
        Fit::Context { longest, ram, flash } => (longest, Some(ram), flash),
        _ => (0, None, None),
    };
    BoardRow {
        board: board.name,
        chip: board.chip,
        flash_bytes: board.flash,
        ram_bytes: board.ram_bytes(),
        ram_regions: board.ram.to_vec(),
        // With -c, the model fits only if that context does.
        fits: longest_context > 0 && (args.ctx_size.is_none() || longest_context == most),
        longest_context,
        spare_ram_bytes,
        spare_flash_bytes,
        program_bytes: size.bytes,
        reserved_flash_bytes: size.reserved(),
        program_is_measured: size.is_measured,
        regions: need(longest_context)
            .filter(|_| longest_context > 0 && board.flash.is_some())
            .and_then(|need| board.regions(need, args.threads)),
        estimated_tokens_per_second: board.speed.zip(program.work).map(|(speed, work)| speed.estimate(work)),
        fit,
    }
}

fn print_text(
    out: &mut Out,
    file: &ModelFile,
    args: &Args,
    rows: &[Row],
    boards: &[BoardRow],
    program: &Program<'_>,
) -> Result<()> {
    writeln!(out, "{}: {} of flash ({} bytes), read in place", file.name(), Bytes(file.len()), file.len())?;
    let features: Vec<_> = program.features.iter().copied().collect();
    let size = program.flash(args.target);
    writeln!(
        out,
        "program: {}{} of flash on {} with the features {}; {MARGIN} % more is reserved",
        if size.is_measured { "about " } else { "not measured, up to about " },
        Bytes(size.bytes),
        args.target.describe(),
        features.join(", ")
    )?;
    writeln!(
        out,
        "RAM in bytes, with batch {}, KV cache in {}, {} worker{}:\n",
        args.batch_size,
        rows.first().map_or("", |row| row.kv),
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
    writeln!(out, "\n  {:22}  {:11}  {:>9}  {:>9}  {:>9}  fits", "board", "chip", "flash", "RAM", "est. t/s")?;
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
            Some(speed) if board.longest_context > 0 => format!("~{speed:.1}"),
            _ => "-".to_string(),
        };
        let estimate =
            if board.program_is_measured || board.flash_bytes.is_none() { "" } else { " (program not measured)" };
        let flash = board.flash_bytes.map_or("(files)".to_string(), |bytes| Bytes(bytes).to_string());
        writeln!(
            out,
            "  {:22}  {:11}  {:>9}  {:>9}  {speed:>9}  {verdict}{estimate}",
            board.board,
            board.chip,
            flash,
            Bytes(board.ram_bytes),
        )?;
    }
    if let Some(note) = &program.note {
        writeln!(out, "\n{note}")?;
    }
    Ok(())
}

fn print_json(
    out: &mut Out,
    file: &ModelFile,
    args: &Args,
    chosen: Row,
    rows: &[Row],
    boards: &[BoardRow],
    program: &Program<'_>,
) -> Result<()> {
    #[derive(Serialize)]
    struct Report<'a> {
        model: &'a str,
        flash_bytes: usize,
        #[serde(flatten)]
        chosen: Row,
        contexts: &'a [Row],
        boards: &'a [BoardRow],
        features: &'a BTreeSet<&'static str>,
        reserved_flash_bytes: usize,
        reserved_ram_bytes: usize,
    }
    out.json_pretty(&Report {
        model: file.name(),
        flash_bytes: file.len(),
        chosen,
        contexts: rows,
        boards,
        features: &program.features,
        reserved_flash_bytes: program.flash(args.target).reserved(),
        reserved_ram_bytes: Board::own(Some(0), &[], args.target).reserved(args.threads).iter().sum(),
    })?;
    Ok(())
}

fn print_rust(out: &mut Out, file: &ModelFile, row: &Row) -> Result<()> {
    write!(
        out,
        "// Memory of {}, printed by `arenite plan --rust`.\n\
         /// Bytes of the model file.\n\
         pub const MODEL_BYTES: usize = {};\n\
         /// Positions in the context.\n\
         pub const CONTEXT: usize = {};\n\
         /// Maximum number of tokens in a pass.\n\
         pub const BATCH: usize = {};\n\
         /// Number of threads or cores.\n\
         pub const WORKERS: usize = {};\n\
         /// Bytes of the workspace.\n\
         pub const WORKSPACE_BYTES: usize = {};\n\
         /// Bytes of the KV cache, in {}.\n\
         pub const KV_BYTES: usize = {};\n\
         /// Bytes of the tokenizer's index.\n\
         pub const TOKENIZER_BYTES: usize = {};\n",
        file.name().escape_debug(),
        file.len(),
        row.context,
        row.batch,
        row.workers,
        row.workspace_bytes,
        row.kv,
        row.kv_bytes,
        row.tokenizer_bytes,
    )?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn contexts_end_with_the_models_own() {
        assert_eq!(contexts(512), [64, 128, 256, 512]);
        assert_eq!(contexts(40), [40]);
        assert_eq!(contexts(40960), [2048, 4096, 8192, 16384, 32768, 40960]);
    }
}
