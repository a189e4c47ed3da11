//! Recognizes files and paths that cannot be run as a model, and tells the user what to do with them.

mod content;
mod place;

use std::ffi::OsStr;
use std::path::Path;

use arenite::Error;
use arenite::gguf::{Gguf, Value};
use arenite::model::{ARCHITECTURES, Spec};

pub use content::{content, is_foreign, no_checkpoint};
pub use place::path;

/// Advice on getting a model.
const FETCH: &str = "fetch a GGUF file with `arenite pull USER/REPO`";

/// Quotes a path for the shell.
pub fn quoted(path: &Path) -> String {
    let text = path.display().to_string();
    let plain = |c: char| c.is_ascii_alphanumeric() || "/._-+:@%=,".contains(c);
    if !text.is_empty() && text.chars().all(plain) { text } else { format!("'{}'", text.replace('\'', "'\\''")) }
}

/// The extension in lower case, or an empty string.
fn extension(path: &Path) -> String {
    path.extension().unwrap_or_default().to_string_lossy().to_ascii_lowercase()
}

fn file_name(path: &Path) -> &str {
    path.file_name().and_then(OsStr::to_str).unwrap_or_default()
}

/// Returns the error message for an unsupported architecture. The message names the most similar supported
/// architecture.
pub fn architecture(name: &str) -> String {
    /// Architectures of GGUF files for images, videos and speech, and the output of their models.
    const OTHERS: [(&[&str], &str); 3] = [
        (&["flux", "sd1", "sdxl", "sd3", "aura", "lumina2", "hidream", "qwen_image", "pig", "cow"], "makes images"),
        (&["wan", "ltxv", "hyvid", "cosmos"], "makes videos"),
        (&["wavtokenizer-dec", "csm", "kokoro", "parler-tts", "orpheus"], "makes speech"),
    ];
    const LIST: &str = "`arenite inspect --architectures` lists all";
    let told = format!("the architecture '{name}' is not supported");
    if let Some((_, what)) = OTHERS.iter().find(|(names, _)| names.contains(&name)) {
        return format!("{told}: the model {what}, and this program runs models of text; {LIST}");
    }
    match nearest(name, ARCHITECTURES.iter().copied()) {
        Some(near) => format!("{told}; the nearest supported one is '{near}', and {LIST}"),
        None => format!("{told}; {LIST}"),
    }
}

/// Finds the name in `all` that is most similar to `name`; `None` if no name is similar enough.
fn nearest<'n>(name: &str, all: impl Iterator<Item = &'n str>) -> Option<&'n str> {
    let plain = |name: &str| name.to_lowercase().replace(['-', '_', '.', ' '], "");
    let name = plain(name);
    // If two names are equally similar, a name of the same length is preferred, then the alphabetically last name,
    // because it usually is the newest version.
    let near = all.map(|other| (strsim::normalized_levenshtein(&name, &plain(other)), other));
    let order = |other: &'n str| (plain(other).len() == name.len(), other);
    near.filter(|(score, _)| *score > 0.6)
        .max_by(|a, b| a.0.total_cmp(&b.0).then_with(|| order(a.1).cmp(&order(b.1))))
        .map(|(_, other)| other)
}

/// Replaces a command's error if the model file at `path` is a GGUF file without a model to run, such as an adapter.
pub fn explained(path: Option<&Path>, error: anyhow::Error) -> anyhow::Error {
    let why = || {
        let path = path?;
        let map = arenite_files::map(path).ok()?;
        let file = Gguf::parse(&map).ok()?;
        gguf(path, &file).or_else(|| speech(path, &file, &error))
    };
    match (why(), path) {
        (Some(why), Some(path)) => anyhow::anyhow!("{}: {why}", path.display()),
        _ => error,
    }
}

/// Returns the error message for a speech model in a command for texts.
fn speech(path: &Path, gguf: &Gguf<'_>, error: &anyhow::Error) -> Option<String> {
    let wants_text = matches!(
        error.root_cause().downcast_ref(),
        Some(Error::NoSource | Error::NoPart { part: "decoder" | "encoder" | "encoder of text" })
    );
    let hears = || Spec::read(gguf).is_ok_and(|spec| spec.sound().is_some());
    (wants_text && hears())
        .then(|| format!("this is a speech model: use it with `arenite listen -m {} FILE`", quoted(path)))
}

/// Returns the error message for a tensor whose type is no longer in GGUF, or never was.
pub fn tensor_type(tensor: &str, id: u32) -> String {
    let (what, advice) = match id {
        31..=33 => ("a repacked Q4_0, which llama.cpp has withdrawn", "Q4_0"),
        36..=38 => ("a repacked IQ4_NL, which llama.cpp has withdrawn", "IQ4_NL"),
        4 | 5 => ("Q4_2 or Q4_3, which llama.cpp has withdrawn", "Q4_0"),
        97..=399 => ("a type of ik_llama.cpp, which other programs cannot read", "Q4_K_M"),
        _ => ("which is unknown", "Q4_K_M"),
    };
    format!("the tensor {tensor} has type {id}, {what}: get the model in another type, such as {advice}")
}

/// Returns the error message for a GGUF file without a model to run, or `None` for a model.
pub fn gguf(path: &Path, gguf: &Gguf<'_>) -> Option<String> {
    let text = |key: &str| match gguf.get(key) {
        Some(Value::Str(text)) => std::str::from_utf8(text).ok(),
        _ => None,
    };
    let (kind, architecture) = (text("general.type").unwrap_or_default(), gguf.architecture().unwrap_or_default());
    let file = quoted(path);
    Some(match (kind, architecture) {
        _ if architecture == "controlvector" || text("adapter.type").is_some_and(|kind| kind == "control_vector") => {
            "this is a control vector, and not a model: control vectors are not supported, so give only a model with -m"
                .into()
        }
        ("adapter", _) => format!(
            "this is a LoRA adapter, and not a model: give its base model with -m and the adapter with --lora {file}, or \
             add it to the model's weights with `arenite merge BASE.gguf {file} OUT.gguf`"
        ),
        ("mmproj", _) | (_, "clip") => format!(
            "this is the part of a multimodal model for pictures or sound (mmproj), and not the language model: give the \
             other GGUF file of its repository with -m, and this one with --mmproj {file}"
        ),
        ("imatrix", _) => format!(
            "this is an importance matrix, and not a model: give it to `arenite quantize IN.gguf OUT.gguf TYPE \
             --imatrix {file}`"
        ),
        (_, "index") => format!(
            "this is an index of `arenite index`, and not a model: search in it with `arenite search {file} QUERY`"
        ),
        _ if gguf.tensor_count() == 0 => "this file has a vocabulary and no weights: only `arenite tokenize` and \
             `arenite detokenize` work with it, so give the model's file with -m"
            .into(),
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn architectures_have_neighbours() {
        for (name, near) in [
            ("llama5", "llama4"),
            ("qwen4", "qwen3"),
            ("gemma5", "gemma4"),
            ("deepseek4", "deepseek2"),
            ("mamba3", "mamba2"),
            ("gptneo", "gptneox"),
            ("phi5", "phi3"),
            ("glm5", "glm4"),
        ] {
            let told = architecture(name);
            assert!(
                told.contains(&format!("'{name}' is not supported; the nearest supported one is '{near}'")),
                "{told}"
            );
            assert!(told.contains("`arenite inspect --architectures`"), "{told}");
        }
        assert!(!architecture("zzz").contains("nearest"));
        assert!(architecture("flux").contains("makes images"));
    }

    #[test]
    fn paths_are_quoted_for_the_shell() {
        assert_eq!(quoted(Path::new("a/b-1.gguf")), "a/b-1.gguf");
        assert_eq!(quoted(Path::new("my model.gguf")), "'my model.gguf'");
        assert_eq!(quoted(Path::new("it's")), "'it'\\''s'");
    }
}
