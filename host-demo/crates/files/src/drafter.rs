//! Files with layers that draft for a model: `mtp-*.gguf` and `*-assistant*.gguf`. They are beside the model or in its
//! repository.

use std::path::{Path, PathBuf};

use regex_lite::Regex;

/// Returns the file with layers that draft for `model`, if one of `files` is such a file. A file with the same
/// quantization is preferred, then Q8_0, BF16 and F16. EAGLE's and DFlash's files are left out because Arenite does not
/// run them.
pub fn drafter_among(files: &[String], model: &str) -> Option<String> {
    let folder = |file: &str| file.rsplit_once('/').map_or("", |(folder, _)| folder).to_owned();
    let drafts = |file: &&String| {
        let name = file.rsplit('/').next().unwrap_or(file);
        is_gguf(name)
            && (name.starts_with("mtp-") || name.contains("-assistant"))
            && [String::new(), folder(model)].contains(&folder(file))
    };
    let quants =
        [quant_of(model).as_deref(), Some("Q8_0"), Some("BF16"), Some("F16")].map(|quant| quant.map(str::to_owned));
    let rank = |file: &String| quants.iter().position(|quant| quant_of(file) == *quant).unwrap_or(quants.len());
    files.iter().filter(drafts).min_by_key(|file| (rank(file), *file)).cloned()
}

/// Searches beside `model` for a file with layers that draft for this model. Returns the path of the file.
pub fn drafter_beside(model: &Path) -> Option<PathBuf> {
    if !model.is_file() {
        return None; // a built-in model
    }
    let folder = model.parent()?;
    let folder = if folder.as_os_str().is_empty() { Path::new(".") } else { folder };
    let names = folder.read_dir().ok()?.flatten().filter_map(|entry| entry.file_name().into_string().ok());
    let names: Vec<String> = names.filter(|name| model.file_name() != Some(name.as_ref())).collect();
    Some(folder.join(drafter_among(&names, model.file_name()?.to_str()?)?))
}

/// Returns whether a file's name ends in `.gguf`.
pub fn is_gguf(file: &str) -> bool {
    file.to_ascii_lowercase().ends_with(".gguf")
}

/// The quantization in a file's name.
pub fn quant_of(file: &str) -> Option<String> {
    let known =
        r"(?i)(^|[^a-z0-9])((UD-)?(I?Q[1-9]_[0-9A-Z]+(_[A-Z]+)?|TQ[12]_0|MXFP4(_MOE)?|NVFP4|BF16|F16|FP16|F32))[-./]";
    let pattern = Regex::new(known).ok()?;
    let found = pattern.captures_iter(file).last()?.get(2)?.as_str();
    Some(found.to_ascii_uppercase())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_drafter_has_the_models_quantization_or_more_bits() {
        let files = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>();
        let all =
            files(&["m-Q4_K_M.gguf", "mtp-m-Q8_0.gguf", "mtp-m-BF16.gguf", "x/mtp-m-Q4_K_M.gguf", "eagle3-m-F16.gguf"]);
        assert_eq!(drafter_among(&all, "m-BF16.gguf").as_deref(), Some("mtp-m-BF16.gguf"));
        assert_eq!(drafter_among(&all, "m-Q4_K_M.gguf").as_deref(), Some("mtp-m-Q8_0.gguf"));
        assert_eq!(drafter_among(&all, "x/m-Q4_K_M.gguf").as_deref(), Some("x/mtp-m-Q4_K_M.gguf"));
        assert_eq!(drafter_among(&all[4..], "m-F16.gguf"), None);
    }

    #[test]
    fn it_is_found_beside_the_model() {
        let folder = tempfile::tempdir().unwrap();
        let model = folder.path().join("m-Q8_0.gguf");
        std::fs::write(&model, "").unwrap();
        assert_eq!(drafter_beside(&model), None);
        for name in ["eagle3-m-Q8_0.gguf", "mtp-m-BF16.gguf", "mtp-m-Q8_0.gguf"] {
            std::fs::write(folder.path().join(name), "").unwrap();
        }
        assert_eq!(drafter_beside(&model), Some(folder.path().join("mtp-m-Q8_0.gguf")));
        assert_eq!(drafter_beside(Path::new("built-in")), None);
    }
}
