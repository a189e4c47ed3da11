//! Finds the encoder of pictures of a model, which is called projector: `mmproj*.gguf`, beside the model or in its
//! repository.

use std::cmp::Reverse;
use std::path::{Path, PathBuf};

use super::drafter::{is_gguf, quant_of};

/// Types of weights in the order of preference: the usual type first, then a smaller type, then larger types.
const TYPES: [&str; 4] = ["-F16.", "Q8_0", "BF16", "F32"];

/// True for the name of a projector's file.
pub fn is_projector(file: &str) -> bool {
    is_gguf(file) && name(file).contains("MMPROJ")
}

/// Chooses the projector of `model` among the files beside it: a file that is named like the model, otherwise a file
/// without a model's name, otherwise any projector.
pub fn projector_among<'n>(files: impl IntoIterator<Item = &'n str>, model: &str) -> Option<&'n str> {
    let model = words(model);
    let rank = |file: &str| {
        let (own, upper) = (words(file), name(file));
        let fit = if model.starts_with(&own) { 1 + own.len() } else { 0 };
        (Reverse(fit), TYPES.iter().position(|kind| upper.contains(kind)).unwrap_or(TYPES.len()))
    };
    files.into_iter().filter(|file| is_projector(file)).min_by_key(|file| (rank(file), *file))
}

/// The last part of a path, in capital letters.
fn name(file: &str) -> String {
    file.rsplit(['/', '\\']).next().unwrap_or(file).to_ascii_uppercase()
}

/// Returns the words of a file's name without the quantization, because a projector often has a different quantization
/// than its model. The word "model" is left out because it does not identify a model (`mmproj-model-f16.gguf`).
fn words(file: &str) -> Vec<String> {
    let name = name(file).replace("MMPROJ", "");
    let name = name.strip_suffix(".GGUF").unwrap_or(&name);
    let quant = quant_of(file).unwrap_or_default();
    let name = name.strip_suffix(&quant).unwrap_or(name);
    name.split(|c: char| !c.is_alphanumeric())
        .filter(|word| !word.is_empty() && *word != "MODEL")
        .map(str::to_owned)
        .collect()
}

/// Finds the projector beside a model: in its folder, or at the top of its repository in the hub's cache.
pub fn projector_beside(model: &Path) -> Option<PathBuf> {
    let folder = model.parent()?;
    let is_commit = |folder: &&Path| folder.parent().and_then(Path::file_name).is_some_and(|name| name == "snapshots");
    let top = folder.ancestors().find(is_commit);
    [Some(folder), top].into_iter().flatten().find_map(|folder| {
        let folder = if folder.as_os_str().is_empty() { Path::new(".") } else { folder };
        let names = folder.read_dir().ok()?.flatten().filter_map(|file| file.file_name().into_string().ok());
        let names: Vec<String> = names.collect();
        let beside = names.iter().map(String::as_str).filter(|name| model.file_name() != Some(name.as_ref()));
        projector_among(beside, &model.file_name()?.to_string_lossy()).map(|name| folder.join(name))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_projector_of_a_repository_is_chosen() {
        let among = |files: &[&'static str]| projector_among(files.iter().copied(), "m-Q8_0.gguf");
        let all = ["m-Q8_0.gguf", "mmproj-BF16.gguf", "mmproj-F32.gguf", "mmproj-F16.gguf", "mmproj.txt"];
        assert_eq!(among(&all), Some("mmproj-F16.gguf"));
        assert_eq!(among(&["Q4/m.gguf", "mmproj-m-Q8_0.gguf", "mmproj-m-f32.gguf"]), Some("mmproj-m-Q8_0.gguf"));
        assert_eq!(among(&["m.gguf", "m-mmproj.gguf"]), Some("m-mmproj.gguf"));
        assert_eq!(among(&["m.gguf"]), None);
    }

    #[test]
    fn models_in_one_folder_have_their_own_projectors() {
        let all = ["mmproj-F16.gguf", "mmproj-a-4b-F16.gguf", "mmproj-a-4b-it-Q8_0.gguf", "mmproj-b_c.gguf"];
        let among = |model| projector_among(all, model);
        assert_eq!(among("A-4B-it-Q4_K_M.gguf"), Some("mmproj-a-4b-it-Q8_0.gguf"));
        assert_eq!(among("a-4b-pt.gguf"), Some("mmproj-a-4b-F16.gguf"));
        assert_eq!(among("models/b_c.gguf"), Some("mmproj-b_c.gguf"));
        assert_eq!(among("b.gguf"), Some("mmproj-F16.gguf"));
        let unnamed = ["mmproj-other-F16.gguf", "mmproj-model-f32.gguf"];
        assert_eq!(projector_among(unnamed, "b.gguf"), Some("mmproj-model-f32.gguf"));
        assert_eq!(projector_among(all[3..].iter().copied(), "b.gguf"), Some("mmproj-b_c.gguf"));
    }

    #[test]
    fn it_is_found_beside_the_model() {
        let folder = tempfile::tempdir().unwrap();
        let snapshot = folder.path().join("snapshots/1f/Q8_0");
        std::fs::create_dir_all(&snapshot).unwrap();
        let model = snapshot.join("m.gguf");
        assert_eq!(projector_beside(&model), None);
        let top = folder.path().join("snapshots/1f/mmproj-f16.gguf");
        std::fs::write(&top, "").unwrap();
        assert_eq!(projector_beside(&model), Some(top));
        let own = snapshot.join("mmproj.gguf");
        std::fs::write(&own, "").unwrap();
        assert_eq!(projector_beside(&model), Some(own.clone()));
        // A projector has none of its own.
        assert_ne!(projector_beside(&own), Some(own));
    }
}
