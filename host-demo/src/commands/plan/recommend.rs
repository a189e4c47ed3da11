//! Recommends types, cache, batch and context for a model on a board.

use std::collections::BTreeSet;
use std::io::Write;

use anyhow::{Context, Result, bail};
use arenite::{Gguf, KvType, Model};
use serde::Serialize;

use super::{Args, Asked, Program, Row, constants, is_packed};
use crate::boards::program::Level;
use crate::boards::speed::{Core, Work};
use crate::boards::{Board, Fit};
use crate::output::{Bytes, Out};
use arenite_quantize::mix::{Mix, TypeOptions};
use arenite_quantize::{changes, header};
use arenite_run::adapters::AdapterFiles;
use arenite_run::model_file::ModelFile;

/// A build recommendation for a board.
#[derive(Serialize)]
pub struct Recommendation {
    board: &'static str,
    core: Option<String>,
    model: String,
    /// The type to requantize to; `None`: the file as it is.
    quantize_to: Option<String>,
    /// True if the file has types that cannot be quantized again without a loss.
    #[serde(skip)]
    is_quantized: bool,
    opt_level: &'static str,
    features: BTreeSet<&'static str>,
    flash_bytes: usize,
    program_bytes: usize,
    reserved_flash_bytes: usize,
    estimated_tokens_per_second: Option<(f64, f64)>,
    /// Why another choice is worse, a sentence each.
    reasons: Vec<String>,
    #[serde(flatten)]
    row: Row,
}

/// Types to which a model can be requantized, from the most accurate to the smallest.
const TYPES: [Mix; 6] = [Mix::Q8_0, Mix::Q6_K, Mix::Q5_K_S, Mix::Q4_K_S, Mix::Q4_0, Mix::Q3_K_S];

/// Types of the KV cache that hardly change answers. Smaller types are recommended only if these have no room for the
/// requested context.
const CACHES: [KvType; 3] = [KvType::F32, KvType::F16, KvType::Q8_0];

/// Recommends types and a cache: the most accurate types that fit and have fast kernels, and the fastest cache that has
/// room for the context.
///
/// # Errors
///
/// The model does not fit in any type. The error has the reason for the smallest type.
pub fn recommend(
    args: &Args,
    file: &ModelFile,
    gguf: &Gguf<'_>,
    lora: &AdapterFiles,
    board: &Board,
) -> Result<Recommendation> {
    let core = board.core();
    let search = Search { args, lora, board, core };
    let slow_types = |gguf: &Gguf<'_>| core.map_or_else(Vec::new, |core| core.slow_types(gguf));
    let mut reasons: Vec<String> = slow_types(gguf).into_iter().filter_map(|kind| core?.complaint(kind)).collect();
    if reasons.is_empty() {
        match search.of_file(gguf, file.len()) {
            Ok(found) => return Ok(found.named(file.name(), None, reasons)),
            Err(why) => reasons.push(format!("as it is: {why}")),
        }
    }
    let options = TypeOptions { is_dry: true, ..TypeOptions::default() };
    let is_quantized = gguf.tensors().any(|tensor| tensor.kind.block().0 > 1);
    let mut last = None;
    for mix in TYPES {
        let options = TypeOptions { kernels: core.map(Core::fast_types), ..options.clone() };
        let changes = changes(gguf, mix, &options, None, true)?;
        let Some(zeros) = header(gguf, mix, &changes, None)?.with_zeros()? else { continue };
        let smaller = Gguf::parse(&zeros).context("the header of the new file")?;
        if !slow_types(&smaller).is_empty() {
            continue;
        }
        match search.of_file(&smaller, zeros.len()) {
            Ok(found) => {
                let found = Recommendation { is_quantized, ..found };
                return Ok(found.named(file.name(), Some(format!("{mix:?}")), reasons));
            }
            Err(why) => last = Some(format!("in {mix:?}: {why}")),
        }
    }
    bail!("{} does not hold this model, {}", board.name, last.or(reasons.pop()).unwrap_or_default())
}

/// Input of a recommendation for one file.
#[derive(Clone, Copy)]
struct Search<'a> {
    args: &'a Args,
    lora: &'a AdapterFiles,
    board: &'a Board,
    core: Option<Core>,
}

impl<'a> Search<'a> {
    /// Recommends all other settings for a file of `bytes` bytes. Returns the reason as an error if the board has no
    /// room for the file.
    fn of_file(self, gguf: &Gguf<'_>, bytes: usize) -> Result<Recommendation> {
        let Self { args, board, .. } = self;
        let model = Model::new(gguf)?;
        let own = model.spec().context;
        let wanted = args.ctx_size.filter(|size| *size > 0).unwrap_or(own);
        let mut best: Option<(usize, Asked<'_>, Level)> = None;
        let mut fits_flash = false;
        for level in [args.opt, Level::Size] {
            for asked in self.caches(gguf) {
                let program = self.program(&asked, gguf, &model, bytes, level);
                let reserved = program.flash(board.target).reserved();
                let fit = board.fit(program.file, reserved, asked.workers, wanted, |context| asked.need(gguf, context));
                fits_flash |= fit != Fit::FlashTooSmall;
                let Fit::Context { longest, .. } = fit else { continue };
                if best.is_none_or(|(most, ..)| longest > most) {
                    best = Some((longest, asked, level));
                }
                if longest == wanted {
                    break;
                }
            }
            if best.is_some_and(|(most, ..)| most == wanted) {
                break;
            }
        }
        let Some((context, asked, level)) = best.filter(|best| args.ctx_size.is_none_or(|_| best.0 == wanted)) else {
            match (fits_flash, best) {
                (false, _) => bail!("model and program are larger than the flash"),
                (true, None) => bail!("too little RAM for any context"),
                (true, Some((most, ..))) => bail!("only a context of {most} positions fits"),
            }
        };
        let program = self.program(&asked, gguf, &model, bytes, level);
        let flash = program.flash(board.target);
        Ok(Recommendation {
            board: board.name,
            core: self.core.map(Core::name),
            model: String::new(),
            quantize_to: None,
            is_quantized: false,
            opt_level: if level == Level::Speed { "3" } else { "s" },
            flash_bytes: bytes,
            program_bytes: flash.bytes,
            reserved_flash_bytes: flash.reserved(),
            estimated_tokens_per_second: program.speed(board, asked.kv, context),
            reasons: vec![],
            row: asked.row(gguf, context)?,
            features: program.features,
        })
    }

    fn program(self, asked: &Asked<'_>, gguf: &Gguf<'_>, model: &Model<'_>, bytes: usize, level: Level) -> Program {
        Program {
            file: bytes + self.lora.len(),
            features: asked.features(gguf),
            level,
            is_packed: is_packed(gguf),
            work: Work::of(model),
            note: None,
        }
    }

    /// Returns the cache types to try, from the fastest on the core to the slowest. If the user has chosen a type,
    /// returns only this type.
    fn caches(self, gguf: &Gguf<'_>) -> Vec<Asked<'a>> {
        let usual = Asked::of(self.args, gguf, self.lora);
        if self.args.kv.is_some() || !matches!(usual.row(gguf, 1), Ok(row) if row.kv_bytes > 0) {
            return vec![usual];
        }
        let mut caches = CACHES.to_vec();
        if let Some(core) = self.core {
            // The caches are sorted by speed. Those of about the same speed stay in the order from the most accurate to
            // the least accurate.
            let cost = |kv: &KvType| core.attention(*kv).unwrap_or(f64::MAX);
            let least = caches.iter().map(cost).fold(f64::MAX, f64::min);
            caches.sort_by_key(|kv| (4.0 * cost(kv) / least) as u64);
        }
        caches.extend(self.args.ctx_size.map(|_| KvType::Q4_0));
        caches.into_iter().map(|kv| Asked { kv, ..usual }).collect()
    }
}

impl Recommendation {
    fn named(self, model: &str, quantize_to: Option<String>, reasons: Vec<String>) -> Self {
        Self { model: model.to_owned(), quantize_to, reasons, ..self }
    }

    /// Prints the recommendation in the form that the options ask for.
    pub fn print(&self, out: &mut Out, args: &Args) -> Result<()> {
        if args.json {
            return Ok(out.json_pretty(self)?);
        }
        if args.rust || args.c {
            let print = if args.rust { constants::rust } else { constants::c };
            return print(out, &self.model, self.flash_bytes, &self.row);
        }
        let types = match &self.quantize_to {
            None => "as the file has them".to_owned(),
            Some(mix) => {
                let core = self.core.as_ref().map_or_else(String::new, |core| format!(" --for {core}"));
                let again = if self.is_quantized { " --allow-requantize" } else { "" };
                format!("{mix}: arenite quantize {} OUT.gguf {mix}{core}{again}", self.model)
            }
        };
        let features: Vec<_> = self.features.iter().copied().collect();
        writeln!(out, "{} on {}:\n", self.model, self.board)?;
        writeln!(out, "  types      {types}")?;
        writeln!(out, "  KV cache   {}", self.row.kv.name())?;
        writeln!(out, "  batch      {}", self.row.batch)?;
        writeln!(out, "  context    {}", self.row.context)?;
        writeln!(out, "  opt-level  {}", self.opt_level)?;
        writeln!(out, "  features   {}", features.join(", "))?;
        writeln!(out, "  RAM        {} bytes as statics, and the stack", self.row.static_bytes)?;
        let (model, program) = (Bytes(self.flash_bytes), Bytes(self.program_bytes));
        writeln!(out, "  flash      {model} of the model and {program} of the program")?;
        if let Some((least, most)) = self.estimated_tokens_per_second {
            writeln!(out, "  speed      {least:.1} to {most:.1} tokens per second, estimated")?;
        }
        if !self.reasons.is_empty() {
            writeln!(out)?;
        }
        self.reasons.iter().try_for_each(|reason| writeln!(out, "  {reason}"))?;
        Ok(())
    }
}
