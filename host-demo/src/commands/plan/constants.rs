//! Prints a plan as constants of a program.

use std::io::Write;

use anyhow::Result;
use arenite::KvType;

use super::Row;
use crate::output::Out;

/// The constants: name, value, and what the value is.
fn constants(model: usize, row: &Row) -> [(&'static str, usize, &'static str); 7] {
    [
        ("MODEL_BYTES", model, "Bytes of the model file."),
        ("CONTEXT", row.context, "Positions in the context."),
        ("BATCH", row.batch, "Maximum number of tokens in a pass."),
        ("WORKERS", row.workers, "Number of threads or cores."),
        ("WORKSPACE_BYTES", row.workspace_bytes, "Bytes of the workspace."),
        ("KV_BYTES", row.kv_bytes, "Bytes of the KV cache."),
        ("TOKENIZER_BYTES", row.tokenizer_bytes, "Bytes of the tokenizer's index."),
    ]
}

/// Prints Rust constants.
pub fn rust(out: &mut Out, file: &str, model: usize, row: &Row) -> Result<()> {
    writeln!(out, "// Memory of {}, printed by `arenite plan --rust`.", file.escape_debug())?;
    for (name, value, what) in constants(model, row) {
        writeln!(out, "/// {what}\npub const {name}: usize = {value};")?;
    }
    writeln!(out, "/// Type of the KV cache.\npub const KV: arenite::KvType = arenite::KvType::{:?};", row.kv)?;
    Ok(())
}

/// Prints C macros.
pub fn c(out: &mut Out, file: &str, model: usize, row: &Row) -> Result<()> {
    let kv = match row.kv {
        KvType::F32 => "F32",
        KvType::F16 => "F16",
        KvType::Q8_0 => "Q8_0",
        KvType::Q4_0 => "Q4_0",
        KvType::Q8_0Q4_0 => "Q8_0_Q4_0",
    };
    writeln!(out, "/* Memory of {}, printed by `arenite plan --c`. */", file.escape_debug())?;
    for (name, value, what) in constants(model, row) {
        writeln!(out, "/* {what} */\n#define MODEL_{} {value}u", name.trim_start_matches("MODEL_"))?;
    }
    writeln!(out, "/* Type of the KV cache. */\n#define MODEL_KV ARENITE_KV_{kv}")?;
    Ok(())
}
