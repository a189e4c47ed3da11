//! Files that let a model see: `mmproj*.gguf`, beside the model or in its repository.

use std::path::{Path, PathBuf};

/// Types of weights in the order of preference: the usual one, then smaller, then larger ones.
const TYPES: [&str; 4] = ["-F16.", "Q8_0", "BF16", "F32"];

/// Chooses the projector among the files of a model; `None` if there is none.
pub fn projector_among<'n>(files: impl IntoIterator<Item = &'n str>) -> Option<&'n str> {
    let upper = |file: &str| file.rsplit(['/', '\\']).next().unwrap_or(file).to_ascii_uppercase();
    let is_projector = |file: &&str| upper(file).contains("MMPROJ") && upper(file).ends_with(".GGUF");
    let rank = |file: &str| TYPES.iter().position(|kind| upper(file).contains(kind)).unwrap_or(TYPES.len());
    files.into_iter().filter(is_projector).min_by_key(|file| (rank(file), *file))
}

/// Finds the projector beside a model: in its folder, or at the top of its repository in the cache of the hub.
pub fn projector_beside(model: &Path) -> Option<PathBuf> {
    let folder = model.parent()?;
    let is_commit = |folder: &&Path| folder.parent().and_then(Path::file_name).is_some_and(|name| name == "snapshots");
    let top = folder.ancestors().find(is_commit);
    [Some(folder), top].into_iter().flatten().find_map(|folder| {
        let folder = if folder.as_os_str().is_empty() { Path::new(".") } else { folder };
        let names = folder.read_dir().ok()?.flatten().filter_map(|file| file.file_name().into_string().ok());
        let names: Vec<String> = names.collect();
        let beside = names.iter().map(String::as_str).filter(|name| model.file_name() != Some(name.as_ref()));
        projector_among(beside).map(|name| folder.join(name))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_projector_of_a_repository_is_chosen() {
        let all = ["m-Q8_0.gguf", "mmproj-BF16.gguf", "mmproj-F32.gguf", "mmproj-F16.gguf", "mmproj.txt"];
        assert_eq!(projector_among(all), Some("mmproj-F16.gguf"));
        assert_eq!(
            projector_among(["Q4/m.gguf", "mmproj-m-Q8_0.gguf", "mmproj-m-f32.gguf"]),
            Some("mmproj-m-Q8_0.gguf")
        );
        assert_eq!(projector_among(["m.gguf", "m-mmproj.gguf"]), Some("m-mmproj.gguf"));
        assert_eq!(projector_among(["m.gguf"]), None);
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
