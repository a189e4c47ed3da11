//! `arenite plan`: computes the memory that a model needs.

mod constants;
mod recommend;
mod text;

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail, ensure};
use arenite::memory::static_bytes;
use arenite::tokenizer::Tokenizer;
use arenite::{Gguf, KvType, Model, Options, Plan};
use serde::Serialize;

use crate::boards::program::{self, Level, Target};
use crate::boards::speed::Work;
use crate::boards::{BOARDS, Board, Fit, Need, Regions};
use crate::cli::{Kv, at_least_one, context_size, memory_size, threads};
use crate::output::Out;
use crate::output::plot::Plot;
use arenite_run::adapters::AdapterFiles;
use arenite_run::model_file::ModelFile;
use arenite_run::runtime;
use arenite_text::normalizer;

/// Show how much flash and RAM a model needs, and which boards it fits
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  arenite plan -m model.gguf
  arenite plan -m model.gguf --board \"Pico 2\" --recommend
  arenite plan -m model.gguf --board nRF5340 --recommend --rust > src/memory.rs
  arenite plan -m model.gguf -c 256 --flash 1M --ram 256K,64K

RAM sizes are exact and the same for every target, microcontrollers included. The program's flash size \
is that of a small program that tells a story, linked for the board's target and optimization level; 3 % more is reserved. \
For a target or feature that was not measured, the size is an estimate, and the table says so. \
Your own code is not included. 16 KiB of RAM are reserved for the stack \
of each worker and 1 KiB for the program's own statics. A board with less than 8 KiB of RAM or flash to \
spare is called tight. Tokens per second are a range, estimated from instructions that were counted under emulation.")]
pub struct Args {
    /// Size of the context in tokens; 0 is the model's own [default: several, up to the model's own]
    #[arg(short, long, value_name = "CTX", allow_negative_numbers = true,
        value_parser = |size: &str| if size == "0" { Ok(0) } else { context_size(size) })]
    ctx_size: Option<usize>,

    /// Maximum number of tokens per pass; on Linux a larger number speeds up prompts, and everywhere it needs a larger
    /// workspace
    #[arg(short, long, value_name = "BATCH", default_value_t = 1, value_parser = at_least_one)]
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

    /// Flash size of a board of your own, such as 1M; without it, the board reads the model from a file. With --board, the
    /// size of another flash chip
    #[arg(long, value_name = "BYTES", requires = "ram", value_parser = memory_size)]
    flash: Option<usize>,

    /// RAM sizes of your own board, such as 256K,64K
    #[arg(long, value_name = "BYTES,...", value_delimiter = ',', value_parser = memory_size)]
    ram: Vec<usize>,

    /// Show only the boards whose name or chip contains NAME
    #[arg(long, value_name = "NAME", conflicts_with = "ram")]
    board: Option<String>,

    /// Recommend types, cache, batch and context for a board that --board or --ram describes
    #[arg(long)]
    recommend: bool,

    /// Target of your own board
    #[arg(long, value_enum, default_value = "thumbv7em", requires = "ram", conflicts_with = "board")]
    target: Target,

    /// Optimization level of the program
    #[arg(long, value_enum, default_value = "3")]
    opt: Level,

    /// Print one JSON object
    #[arg(long, conflicts_with_all = ["rust", "c"])]
    json: bool,

    /// Print Rust constants
    #[arg(long, conflicts_with = "c")]
    rust: bool,

    /// Print C constants
    #[arg(long)]
    c: bool,

    /// Plot memory over context size
    #[arg(long, value_name = "F.svg")]
    plot: Option<PathBuf>,
}

/// A row of the table of RAM sizes.
#[derive(Clone, Copy, Serialize)]
struct Row {
    context: usize,
    batch: usize,
    #[serde(serialize_with = "named")]
    kv: KvType,
    workers: usize,
    workspace_bytes: usize,
    kv_bytes: usize,
    tokenizer_bytes: usize,
    ram_bytes: usize,
    /// RAM that the linker reports for workspace, KV cache and tokenizer index as statics.
    static_bytes: usize,
}

fn named<S: serde::Serializer>(kv: &KvType, to: S) -> Result<S::Ok, S::Error> {
    to.serialize_str(kv.name())
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
    /// Number of bytes of flash that are reserved for the program: its size plus a margin.
    reserved_flash_bytes: usize,
    program_is_measured: bool,
    /// RAM region of each block of memory, for the longest context; `None` if the board's models are files, or if no
    /// context fits.
    regions: Option<Regions>,
    /// The smallest and the largest estimate; `None` if the speed of the board or of this kind of model cannot be
    /// estimated.
    estimated_tokens_per_second: Option<(f64, f64)>,
    /// Types of the model's tensors for which the board's core has no fast kernel.
    slow_types: Vec<String>,
    #[serde(skip)]
    target: Target,
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
    let wanted = args.ctx_size.map(|size| if size == 0 { longest } else { size });
    let boards = chosen_boards(args)?;
    let mut out = Out::lock();
    if args.recommend {
        let [board] = &boards[..] else {
            bail!("--recommend is for one board: give --board NAME, or --flash and --ram");
        };
        let found = recommend::recommend(args, file, &gguf, &lora, board).with_context(|| file.name().to_string())?;
        return found.print(&mut out, args);
    }

    let asked = Asked::of(args, &gguf, &lora);
    let plan_of = |context| asked.row(&gguf, context).with_context(|| file.name().to_string());
    let chosen = plan_of(wanted.unwrap_or(longest))?;
    if let Some(path) = &args.plot {
        plot(path, file, wanted.unwrap_or(longest), plan_of)?;
    }
    if args.rust || args.c {
        let print = if args.rust { constants::rust } else { constants::c };
        return print(&mut out, file.name(), file.len(), &chosen);
    }
    let rows = match wanted {
        Some(_) => vec![chosen],
        None => contexts(longest).into_iter().map(plan_of).collect::<Result<Vec<_>>>()?,
    };
    let most = wanted.unwrap_or(longest);
    let need = Program {
        file: file.len() + lora.len(),
        features: asked.features(&gguf),
        level: args.opt,
        is_packed: is_packed(&gguf),
        work: Work::of(&model),
        note: normalizer::note(&gguf),
    };
    let boards: Vec<_> = boards.iter().map(|board| board_row(args, &asked, &gguf, board, &need, most)).collect();
    if args.json {
        print_json(&mut out, file, args, chosen, &rows, &boards, &need)
    } else {
        text::print(&mut out, file, args, &rows, &boards, &need)
    }
}

/// Returns the boards that `--board` or `--ram` chooses; without these options, all known boards.
fn chosen_boards(args: &Args) -> Result<Vec<Board>> {
    if !args.ram.is_empty() {
        return Ok(vec![Board::own(args.flash, &args.ram, args.target)]);
    }
    let Some(name) = &args.board else { return Ok(BOARDS.to_vec()) };
    let plain = |name: &str| name.to_lowercase().replace([' ', '-', '_'], "");
    let wanted = plain(name);
    let is = |board: &&Board| [board.name, board.chip].iter().any(|own| plain(own) == wanted);
    let has = |board: &&Board| [board.name, board.chip].iter().any(|own| plain(own).contains(&wanted));
    let mut found: Vec<Board> = BOARDS.iter().filter(is).cloned().collect();
    if found.is_empty() {
        found = BOARDS.iter().filter(has).cloned().collect();
    }
    let names = || BOARDS.iter().map(|board| board.name).collect::<Vec<_>>().join(", ");
    ensure!(!found.is_empty(), "no known board is called {name}: give --flash and --ram, or one of {}", names());
    if args.flash.is_some() {
        found.retain(|board| board.flash.is_some());
        ensure!(!found.is_empty(), "{name} reads the model from a file: leave --flash out");
        found.iter_mut().for_each(|board| board.flash = args.flash);
    }
    Ok(found)
}

/// Options other than the context that determine the memory of a model.
#[derive(Clone, Copy)]
struct Asked<'a> {
    lora: &'a AdapterFiles,
    kv: KvType,
    batch: usize,
    workers: usize,
}

impl<'a> Asked<'a> {
    fn of(args: &Args, gguf: &Gguf<'_>, lora: &'a AdapterFiles) -> Self {
        let kv = runtime::kv(args.kv.map(Kv::into), gguf);
        Self { lora, kv, batch: args.batch_size, workers: args.threads }
    }

    fn row(self, gguf: &Gguf<'_>, context: usize) -> Result<Row> {
        let options = Options::new().context(context).batch(self.batch).kv(self.kv).workers(self.workers);
        let plan = Plan::new(gguf, self.lora.planned(options))?;
        let tokenizer = if arenite_text::has_vocabulary(gguf) { Tokenizer::index_bytes(gguf)? } else { 0 };
        let sizes = [plan.workspace, plan.kv, tokenizer];
        Ok(Row {
            context: plan.options.context,
            batch: plan.options.batch,
            kv: self.kv,
            workers: self.workers,
            workspace_bytes: plan.workspace,
            kv_bytes: plan.kv,
            tokenizer_bytes: tokenizer,
            ram_bytes: sizes.into_iter().fold(0, usize::saturating_add),
            static_bytes: sizes.map(static_bytes).into_iter().fold(0, usize::saturating_add),
        })
    }

    /// Returns the memory for a context; `None` if the context cannot be planned.
    fn need(self, gguf: &Gguf<'_>, context: usize) -> Option<Need> {
        let row = self.row(gguf, context).ok()?;
        let [workspace, kv, tokenizer] = [row.workspace_bytes, row.kv_bytes, row.tokenizer_bytes].map(static_bytes);
        Some(Need { workspace, kv, tokenizer })
    }

    /// The features that a program needs.
    fn features(self, gguf: &Gguf<'_>) -> BTreeSet<&'static str> {
        let mut features = program::features(gguf, self.kv);
        features.extend((self.lora.len() > 0).then_some("lora"));
        features
    }
}

/// True if the file contains the tokenizer's index.
fn is_packed(gguf: &Gguf<'_>) -> bool {
    matches!(Tokenizer::index_bytes(gguf), Ok(0))
}

/// The properties of a model on which the flash size and the speed of a microcontroller program depend.
struct Program {
    /// Size of the model and its adapters in bytes.
    file: usize,
    features: BTreeSet<&'static str>,
    level: Level,
    /// True if the file contains the tokenizer's index. The program then has no code that builds the index.
    is_packed: bool,
    /// `None` for models whose speed cannot be estimated.
    work: Option<Work>,
    /// A note for the user, if texts must be normalized before they are tokenized.
    note: Option<String>,
}

impl Program {
    fn flash(&self, target: Target) -> program::Flash {
        program::flash(&self.features, target, self.level, self.is_packed)
    }

    /// Estimates the smallest and the largest number of tokens per second on a board, at a position in the middle of a
    /// text.
    fn speed(&self, board: &Board, kv: KvType, longest: usize) -> Option<(f64, f64)> {
        const POSITION: usize = 128;
        board.speed?.estimate(self.work.as_ref()?, kv, POSITION.min(longest / 2))
    }
}

/// Plots the memory as a function of the context size, up to the longest context.
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

/// Returns the context sizes in the table: at most six powers of two, up to the model's own size.
fn contexts(longest: usize) -> Vec<usize> {
    let mut contexts: Vec<usize> =
        std::iter::successors(Some(64usize), |n| n.checked_mul(2)).take_while(|&n| n < longest).collect();
    contexts.push(longest);
    contexts.split_off(contexts.len().saturating_sub(6))
}

fn board_row(
    args: &Args,
    asked: &Asked<'_>,
    gguf: &Gguf<'_>,
    board: &Board,
    program: &Program,
    most: usize,
) -> BoardRow {
    let need = |context| asked.need(gguf, context);
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
        slow_types: board
            .core()
            .map_or_else(Vec::new, |core| core.slow_types(gguf))
            .iter()
            .map(|kind| format!("{kind:?}"))
            .collect(),
        estimated_tokens_per_second: program.speed(board, asked.kv, longest_context),
        target: board.target,
        fit,
    }
}

fn print_json(
    out: &mut Out,
    file: &ModelFile,
    args: &Args,
    chosen: Row,
    rows: &[Row],
    boards: &[BoardRow],
    program: &Program,
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
