//! Prompts with pictures have the same tokens as from transformers' processors.

use std::path::{Path, PathBuf};

use arenite_chat::Prompt;
use arenite_pictures::Limits;
use arenite_request::{Content, Picture, PictureSource};
use arenite_run::eyes::{Eyes, is_row};
use arenite_run::model_file::ModelFile;
use arenite_run::open_model::OpenModel;
use arenite_run::{RunOptions, Value};

/// The cases with a language model.
fn cases() -> Vec<PathBuf> {
    let Some(root) = std::env::var_os("ARENITE_FIXTURES") else {
        println!("SKIP eyes: set ARENITE_FIXTURES to the directory of reference cases");
        return Vec::new();
    };
    let folders = Path::new(&root).join("eyes").read_dir().unwrap().map(|folder| folder.unwrap().path());
    folders.filter(|folder| folder.join("model.gguf").exists()).collect()
}

fn json(folder: &Path) -> Value {
    serde_json::from_slice(&std::fs::read(folder.join("ref.json")).unwrap()).unwrap()
}

fn numbers(list: &Value) -> Vec<u64> {
    list.as_array().unwrap().iter().map(|number| number.as_u64().unwrap()).collect()
}

#[test]
fn prompts_have_the_tokens_of_the_processors() {
    for folder in cases() {
        let reference = json(&folder);
        let file = ModelFile::open(&*folder.join("model.gguf")).unwrap();
        let (beside, is_given) = file.projector().unwrap();
        assert!(!is_given && beside.starts_with(&folder), "{}", beside.display());
        let beside = beside.to_path_buf();
        let open = OpenModel::new(file, RunOptions { threads: 2, ..RunOptions::default() }).unwrap();
        let tokenizer = open.vocabulary().unwrap();
        let eyes = Eyes::open(&beside, open.model(), tokenizer).unwrap();
        assert_eq!(eyes.marker(), reference["marker_in_text"], "{}", folder.display());
        assert_eq!(u64::from(eyes.token()), reference["image_token_id"].as_u64().unwrap(), "{}", folder.display());
        let machine = open.machine(Limits::DEFAULT);
        let images = reference["images"].as_array().unwrap();
        let source = |image: &Value| {
            PictureSource::File(std::fs::read(folder.join(image["file"].as_str().unwrap())).unwrap().into())
        };
        for image in images {
            let name = format!("{} {}", folder.display(), image["file"]);
            let sight = eyes.see(&[source(image)], machine).unwrap().remove(0);
            assert_eq!(eyes.text(&sight.views), image["expanded"].as_str().unwrap(), "{name}");
        }
        for prompt in reference["prompts"].as_array().unwrap() {
            let name = format!("{} {}", folder.display(), prompt["name"]);
            let shown = numbers(&prompt["images"]).into_iter().map(|index| source(&images[index as usize]));
            let pictures = shown.map(|source| Picture { at: 0, source }).collect();
            let content = Content { pictures, ..prompt["text"].as_str().unwrap().to_owned().into() };
            let sights = eyes.read(&Prompt::raw(&content, eyes.marker()), true, tokenizer, machine).unwrap();
            let plain = |id: &u32| u64::from(if is_row(*id) { eyes.token() } else { *id });
            assert_eq!(sights.ids.iter().map(plain).collect::<Vec<_>>(), numbers(&prompt["ids"]), "{name}");
            // Compares the tokens' positions and not the spans, because one span here may be several adjacent spans in
            // the reference, or the reverse.
            let spans = prompt["image_spans"].as_array().unwrap().iter().map(numbers);
            let wanted: Vec<u64> = spans.flat_map(|span| span[0]..span[0] + span[1]).collect();
            let places: Vec<u64> =
                sights.shown.places.iter().flat_map(|place| place.range()).map(|at| at as u64).collect();
            assert_eq!(places, wanted, "{name}");
        }
    }
}
