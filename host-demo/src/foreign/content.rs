//! Recognizes files by their first bytes.

use std::borrow::Cow;
use std::path::Path;

use serde_json::Value;

use super::{FETCH, extension, file_name, place, quoted};
use arenite_convert::checkpoint::torch::is_torch;
use arenite_files::{joining, stand_in, whole_of};

/// The start of every GGUF file.
const GGUF: &[u8] = b"GGUF";
/// Number of bytes that are examined at the start of a text or of a safetensors header.
const HEAD: usize = 1 << 16;

/// Returns true if a file cannot be read as GGUF: it is of another format, of an unsupported version or byte order, or
/// a byte part of a file.
pub fn is_foreign(path: &Path, bytes: &[u8]) -> bool {
    !bytes.starts_with(GGUF) || unread_version(bytes).is_some() || whole_of(file_name(path)).is_some()
}

/// The four bytes at `at`.
fn word(bytes: &[u8], at: usize) -> Option<[u8; 4]> {
    bytes.get(at..at + 4)?.try_into().ok()
}

/// Describes a GGUF file of an unsupported version or byte order.
fn unread_version(bytes: &[u8]) -> Option<&'static str> {
    let version = word(bytes, 4)?;
    match (u32::from_le_bytes(version), u32::from_be_bytes(version)) {
        (1, _) => Some("version 1 of GGUF (August 2023)"),
        (_, 1..=3) => Some("GGUF of a big-endian machine"),
        _ => None,
    }
}

/// For a file for which [`is_foreign`] is true, returns a message that says what the file is and which command can use
/// it.
pub fn content(path: &Path, bytes: &[u8]) -> String {
    let file = quoted(path);
    if let Some(why) = byte_part(path) {
        return why;
    }
    if bytes.starts_with(GGUF)
        && let Some(what) = unread_version(bytes)
    {
        return match what.contains("big-endian") {
            true => format!(
                "this is {what}, and only little-endian files are read: convert it with `gguf-convert-endian {file} \
                 little` of the Python package gguf"
            ),
            false => format!(
                "this is {what}, and only versions 2 and 3 are read: {FETCH}, or convert the original checkpoint with \
                 `arenite convert hf DIR OUT.gguf`"
            ),
        };
    }
    let what = archive(path, bytes)
        .or_else(|| weights(path, bytes))
        .or_else(|| by_name(path, bytes))
        .or_else(|| text(path, bytes));
    what.unwrap_or_else(|| {
        format!(
            "this is not a GGUF file, and its kind is not known: it does not start with the bytes \"GGUF\"; {FETCH}, or \
             make one with `arenite convert hf DIR OUT.gguf`"
        )
    })
}

/// Describes a file that `arenite convert hf` cannot read; `None` if the file may be a checkpoint.
pub fn no_checkpoint(path: &Path) -> Option<String> {
    let bytes = arenite_files::map(path).ok()?;
    if bytes.starts_with(GGUF) {
        return Some(format!("this is GGUF already: give it with -m {}", quoted(path)));
    }
    // Two kinds of files are refused: a pickle that torch has not written, and a text, such as a pointer of git-lfs.
    let is_pickle = matches!(*bytes, [0x80, 2..=5, ..]) && !is_torch(&bytes);
    if is_pickle { weights(path, &bytes) } else { text(path, &bytes).filter(|_| bytes.first() != Some(&b'{')) }
}

/// Describes a byte part of a model, and gives the command that joins this part with the parts beside it.
fn byte_part(path: &Path) -> Option<String> {
    let whole = whole_of(file_name(path))?;
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let names = folder.read_dir().into_iter().flatten().flatten();
    let names: Vec<String> = names.filter_map(|entry| entry.file_name().into_string().ok()).collect();
    Some(format!(
        "this is a byte part of {whole}, and not a whole model: join all parts in their folder with `{}`",
        joining(whole, names.iter().map(String::as_str))
    ))
}

/// Describes compressed files, archives and programs.
fn archive(path: &Path, bytes: &[u8]) -> Option<String> {
    let file = quoted(path);
    let name = file_name(path);
    let is_tar = [".tar.gz", ".tgz", ".tar.xz", ".tar.bz2", ".tar.zst"].iter().any(|end| name.ends_with(end));
    let packed = |what: &str, command: String| {
        let command = if is_tar { format!("tar -xf {file}") } else { command };
        Some(format!("this is a file compressed with {what}: unpack it with `{command}` and give the model in it"))
    };
    match bytes {
        [b'M', b'Z', b'q', b'F', b'p', b'D', ..] => Some(format!(
            "this is a llamafile, a program with a model in it: take the model out with `unzip {file} '*.gguf'`"
        )),
        [0x7f, b'E', b'L', b'F', ..] | [b'M', b'Z', ..] => Some(format!("this is a program, and not a model: {FETCH}")),
        [b'P', b'K', 3, 4, ..] => Some(zip(path, bytes)),
        [0x1f, 0x8b, ..] => packed("gzip", format!("gunzip {file}")),
        [0xfd, b'7', b'z', b'X', b'Z', 0, ..] => packed("xz", format!("unxz {file}")),
        [0x28, 0xb5, 0x2f, 0xfd, ..] => packed("zstd", format!("unzstd {file}")),
        [b'B', b'Z', b'h', b'1'..=b'9', ..] => packed("bzip2", format!("bunzip2 {file}")),
        [b'7', b'z', 0xbc, 0xaf, ..] => packed("7-Zip", format!("7z x {file}")),
        [b'R', b'a', b'r', b'!', ..] => packed("RAR", format!("unrar x {file}")),
        _ if bytes.get(257..262) == Some(b"ustar") => {
            Some(format!("this is a tar archive: unpack it with `tar -xf {file}` and give the model in it"))
        }
        _ => None,
    }
}

fn zip(path: &Path, bytes: &[u8]) -> String {
    let file = quoted(path);
    let mut names = Vec::new();
    if let Ok(archive) = rawzip::ZipArchive::from_slice(bytes) {
        let mut entries = archive.entries();
        while let Ok(Some(entry)) = entries.next_entry() {
            names.push(String::from_utf8_lossy(entry.file_path().as_ref()).into_owned());
        }
    }
    let has = |end: &str| names.iter().any(|name| name.ends_with(end));
    // A truncated archive has no directory of its entries, but the name of the first entry identifies PyTorch's format.
    if has("data.pkl") || bytes[..bytes.len().min(256)].windows(8).any(|part| part == b"data.pkl") {
        return torch(path);
    }
    let inside = names.iter().find(|name| name.ends_with(".gguf"));
    match inside {
        Some(inside) => {
            format!("this is a zip archive: unpack it with `unzip {file}` and give -m {}", quoted(Path::new(inside)))
        }
        None if has("version.txt") && has("weights.h5") || extension(path) == "keras" => other_framework("Keras"),
        None if has(".npy") => "this is a file of numpy, and not a model: it cannot be converted".into(),
        None => format!("this is a zip archive: unpack it with `unzip {file}` and give the model in it"),
    }
}

fn torch(path: &Path) -> String {
    let file = quoted(path);
    format!(
        "this is a checkpoint of PyTorch: convert it with `arenite convert hf {file} OUT.gguf`; config.json and the \
         tokenizer must be in its folder"
    )
}

fn other_framework(name: &str) -> String {
    format!(
        "this is a model of {name}, which cannot be converted: save the checkpoint with transformers' \
         `save_pretrained`, then use `arenite convert hf DIR OUT.gguf`"
    )
}

/// Describes weights in other formats.
fn weights(path: &Path, bytes: &[u8]) -> Option<String> {
    let file = quoted(path);
    let old = |what: &str| {
        Some(format!(
            "this is {what}, a format from before GGUF: {FETCH}, or convert the original checkpoint with `arenite convert \
             hf DIR OUT.gguf`"
        ))
    };
    match bytes {
        [b'l', b'm', b'g', b'g', ..] => match word(bytes, 4).map(u32::from_le_bytes) {
            Some(51864..=51866) => Some(whisper()),
            _ => old("an old ggml model"),
        },
        [b'f' | b't', b'm' | b'j', b'g', b'g', ..] => old("an old model of llama.cpp"),
        [b'a', b'l', b'g', b'g', ..] => Some(
            "this is an old LoRA adapter of llama.cpp: convert the original with `arenite convert lora DIR OUT.gguf`"
                .into(),
        ),
        [0x80, 2..=5, ..] if is_torch(bytes) => Some(torch(path)),
        [0x80, 2..=5, ..] => Some(
            "this is a pickle, but not a checkpoint of PyTorch: save the model with `torch.save(model.state_dict(), \
             'new.pt')`, then use `arenite convert hf new.pt OUT.gguf`"
                .into(),
        ),
        [0x89, b'H', b'D', b'F', ..] => Some(other_framework("Keras or TensorFlow (HDF5)")),
        [0x93, b'N', b'U', b'M', b'P', b'Y', ..] => {
            Some("this is a file of numpy, and not a model: it cannot be converted".into())
        }
        _ if bytes.get(4..8) == Some(b"TFL3") => Some(other_framework("TensorFlow Lite")),
        _ if bytes.get(4..8) == Some(b"ET12") => Some(other_framework("ExecuTorch")),
        _ => {
            let header = usize::try_from(u64::from_le_bytes(bytes.get(..8)?.try_into().ok()?)).ok()?;
            let is_safetensors = bytes.get(8) == Some(&b'{') && (2..100 << 20).contains(&header);
            is_safetensors.then(|| {
                let header = String::from_utf8_lossy(&bytes[8..bytes.len().min(header.saturating_add(8)).min(HEAD)]);
                if file_name(path).starts_with("adapter") || header.contains("lora_A") {
                    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
                    let folder = quoted(folder.unwrap_or(Path::new(".")));
                    format!(
                        "this is a LoRA adapter of PEFT (safetensors): convert it with `arenite convert lora {folder} \
                         OUT.gguf`"
                    )
                } else {
                    format!(
                        "these are weights in safetensors form, and not GGUF: convert them with `arenite convert hf {file} \
                         OUT.gguf`; config.json and the tokenizer must be in their folder"
                    )
                }
            })
        }
    }
}

fn whisper() -> String {
    "this is a speech model of whisper.cpp: use it with `arenite listen -m`, or convert it with `arenite convert hf FILE \
     OUT.gguf`"
        .into()
}

/// Describes text files.
fn text(path: &Path, bytes: &[u8]) -> Option<String> {
    let bytes = bytes.strip_prefix(b"\xef\xbb\xbf").unwrap_or(bytes);
    let head = &bytes[..bytes.len().min(HEAD)];
    let head = match std::str::from_utf8(head) {
        Ok(head) => Cow::Borrowed(head),
        // Only the last character is incomplete.
        Err(error) if error.error_len().is_none() => String::from_utf8_lossy(&head[..error.valid_up_to()]),
        Err(_) => return None,
    };
    if head.contains('\0') {
        return None;
    }
    let start = head.trim_start();
    let lower = start.chars().take(64).collect::<String>().to_ascii_lowercase();
    let file = quoted(path);
    Some(if let Some(why) = stand_in(bytes) {
        format!("{why}, or with `arenite pull USER/REPO`")
    } else if ["entry not found", "invalid username", "access to model", "repository not found", "not found", "<no"]
        .iter()
        .any(|words| lower.starts_with(words))
    {
        "this is the error message of a server that was saved under the name of a model: fetch the file with `arenite pull \
         USER/REPO` (HF_TOKEN gives access to gated models)"
            .into()
    } else if start.starts_with(['{', '[']) && !start.starts_with("{%") && !start.starts_with("{{") {
        json(path, bytes, &head)
    } else if let Some(from) = modelfile(&head) {
        let from_path = path.parent().unwrap_or(Path::new("")).join(from.trim_start_matches("./"));
        match from_path.is_file() {
            true => format!("this is a Modelfile of Ollama: give the model that it names, -m {}", quoted(&from_path)),
            false => format!("this is a Modelfile of Ollama, which names the model `{from}`: {}", place::ollama(from)),
        }
    } else if head.contains("::=") {
        format!("this is a grammar, and not a model: give it with --grammar {file}")
    } else if head.contains("{%") {
        format!("this is a chat template, and not a model: give it with `arenite chat --chat-template {file}`")
    } else {
        format!("this is a text, and not a GGUF file: give it with -f {file}, and the model with -m")
    })
}

/// Returns the model in the FROM line of an Ollama Modelfile; `None` if `text` is not a Modelfile.
fn modelfile(text: &str) -> Option<&str> {
    let mut lines = text.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#'));
    let (word, from) = lines.next()?.split_once(char::is_whitespace)?;
    let from = from.trim();
    (word.eq_ignore_ascii_case("from") && !from.is_empty() && !from.contains(char::is_whitespace)).then_some(from)
}

fn json(path: &Path, bytes: &[u8], head: &str) -> String {
    let file = quoted(path);
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let directory = quoted(folder);
    let has = |key: &str| head.contains(&format!("\"{key}\""));
    if has("schemaVersion") && has("layers") {
        let manifest = serde_json::from_slice(bytes).unwrap_or(Value::Null);
        return match place::blob(&manifest, path) {
            Some(blob) => {
                format!("this is Ollama's list of the parts of a model: give the model itself, -m {}", quoted(&blob))
            }
            None => format!(
                "this is Ollama's list of the parts of a model, and the model itself is not here: get it with `ollama \
                 pull`, or {FETCH}"
            ),
        };
    }
    if file_name(path) == "tokenizer_config.json" || has("tokenizer_class") {
        return format!(
            "this has settings of a tokenizer: convert its whole folder with `arenite convert hf {directory} OUT.gguf`"
        );
    }
    if has("added_tokens") || file_name(path) == "tokenizer.json" {
        return format!(
            "this is a vocabulary (tokenizer.json), and not a model: give it with --tokenizer {file} beside -m, or put it \
             into a file with `arenite convert tokenizer {file} IN.gguf OUT.gguf`"
        );
    }
    if has("peft_type") {
        return format!(
            "these are the settings of a LoRA adapter: convert it with `arenite convert lora {directory} OUT.gguf`"
        );
    }
    if has("weight_map") || has("model_type") || has("architectures") {
        return format!(
            "this file belongs to a checkpoint of Hugging Face: convert the checkpoint with `arenite convert hf \
             {directory} OUT.gguf`"
        );
    }
    if has("role") && has("content") {
        return format!("this is a conversation, and not a model: give it with `arenite chat --messages {file}`");
    }
    if has("error") {
        return "this is the error message of a server that was saved under the name of a model: fetch the file with \
                `arenite pull USER/REPO` (HF_TOKEN gives access to gated models)"
            .into();
    }
    format!("this is a JSON file, and not a model: {FETCH}")
}

/// Describes files whose format only the file name reveals.
fn by_name(path: &Path, bytes: &[u8]) -> Option<String> {
    let file = quoted(path);
    let (extension, name) = (extension(path), file_name(path));
    let is_vocabulary = name.starts_with("tokenizer") || name.ends_with(".spm") || name.starts_with("spiece");
    if is_vocabulary && (bytes.first() == Some(&0x0a) || extension == "bin") {
        return Some(format!(
            "this is a vocabulary ({name}), and not a model: give it with --tokenizer {file} beside -m, or put it into a \
             file with `arenite convert tokenizer {file} IN.gguf OUT.gguf`"
        ));
    }
    if bytes[..bytes.len().min(4096)].iter().all(|byte| *byte == 0) {
        return Some(
            "the file begins with zeros: its download is not complete, so fetch it again with `arenite pull \
             USER/REPO`"
                .into(),
        );
    }
    match extension.as_str() {
        "part" | "crdownload" | "aria2" | "incomplete" | "download" | "tmp" => {
            Some("this is a part of a download: fetch the rest, for example with `arenite pull USER/REPO`".into())
        }
        "onnx" => Some(other_framework("ONNX")),
        "mlmodel" | "mlpackage" => Some(other_framework("Core ML")),
        "msgpack" => Some(other_framework("Flax")),
        "rknn" | "hef" | "engine" | "plan" | "tflite" | "pte" => Some(other_framework("another runtime")),
        "wav" | "mp3" | "flac" | "ogg" | "m4a" => {
            Some(format!("this is sound, and not a model: use `arenite listen -m MODEL.gguf {file}`"))
        }
        "bin" | "pt" | "pth" | "ckpt" => Some(format!(
            "this is neither GGUF nor a checkpoint of PyTorch: {FETCH}, or convert a checkpoint with `arenite convert hf \
             DIR OUT.gguf`"
        )),
        _ => None,
    }
}
