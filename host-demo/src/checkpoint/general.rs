//! `general.*`: the name and size of a model.

use std::path::Path;

use super::output::Output;
use crate::gguf_writer::Header;

/// Writes the name, derived from the directory's, and the size.
pub fn write(header: &mut Header, path: &Path, outputs: &[Output<'_>]) {
    let name = path.canonicalize().ok();
    let name = name.as_deref().unwrap_or(path);
    let name = if name.is_dir() { name.file_name() } else { name.file_stem() };
    if let Some(name) = name.and_then(|name| name.to_str()) {
        header.set("general.name", title(name).as_str());
    }
    header.set("general.size_label", size_label(outputs).as_str());
}

/// Capitalizes a name as llama.cpp's converter does for directories: `my-model-v2` becomes `My Model v2`.
fn title(name: &str) -> String {
    let word = |word: &str| {
        let version = word.strip_prefix('v').is_some_and(|rest| rest.starts_with(|c: char| c.is_ascii_digit()));
        let lower = word.chars().any(char::is_alphabetic) && !word.chars().any(char::is_uppercase);
        if !lower || version || word.starts_with(|c: char| c.is_ascii_digit()) {
            return word.to_owned();
        }
        let mut after = false;
        let capital = |c: char| {
            let new = if after { c.to_lowercase().to_string() } else { c.to_uppercase().to_string() };
            after = c.is_alphabetic();
            new
        };
        word.chars().map(capital).collect()
    };
    name.split(['-', ' ']).filter(|part| !part.is_empty()).map(word).collect::<Vec<_>>().join(" ")
}

/// Abbreviates the number of weights; with experts, their number and the size of one with all shared weights.
fn size_label(outputs: &[Output<'_>]) -> String {
    let (mut shared, mut of_expert, mut counts, mut stacks) = (0u64, 0u64, 0u64, 0u64);
    for output in outputs {
        let size = output.len() as u64;
        let stack = if output.name.contains(".bias") {
            output.shape.len().checked_sub(2)
        } else {
            output.shape.len().checked_sub(3)
        };
        match stack.and_then(|dim| output.shape.get(dim)) {
            Some(&experts) if output.name.contains("_exps.") && output.shape.len() >= 3 => {
                of_expert += size / (experts as u64).max(1);
                counts += experts as u64;
                stacks += 1;
            }
            _ => shared += size,
        }
    }
    match counts.checked_div(stacks) {
        Some(experts) if experts > 0 => format!("{experts}x{}", rounded(shared + of_expert)),
        _ => rounded(shared + of_expert),
    }
}

fn rounded(count: u64) -> String {
    let (scaled, unit) = match count as f64 {
        n if n > 1e12 => (n * 1e-12, "T"),
        n if n > 1e9 => (n * 1e-9, "B"),
        n if n > 1e6 => (n * 1e-6, "M"),
        n => (n * 1e-3, "K"),
    };
    let whole = scaled.round_ties_even().to_string();
    let digits = 2usize.saturating_sub(whole.trim_start_matches('0').len());
    format!("{scaled:.digits$}{unit}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_sizes() {
        assert_eq!(title("llama_mha"), "Llama_Mha");
        assert_eq!(title("Llama-3.2-1b-instruct"), "Llama 3.2 1b Instruct");
        assert_eq!(title("gemma3n-v2"), "Gemma3N v2");
        assert_eq!(rounded(1_234_567_890), "1.2B");
        assert_eq!(rounded(152_000), "152K");
        assert_eq!(rounded(22_700_000), "23M");
    }
}
