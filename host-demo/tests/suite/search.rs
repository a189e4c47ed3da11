//! `arenite index` and `arenite search`: passages of a folder, and the passages that an update computes again.

use std::fs;
use std::path::Path;

use crate::common::{arenite, arenite_with, committed, error, lines, path, stdout};
use crate::scripted::{CHATML, Scripted};

const TEXTS: [(&str, &str); 3] = [
    ("pets/dog.md", "# The dog\n\nThe dog barks at night. It sleeps in the garden.\n"),
    ("pets/cat.html", "<html><body>\n<h1>The cat</h1>\n<p>The cat eats <b>fish</b>.</p></body></html>\n"),
    ("sea.txt", "The sea is calm today.\n"),
];

fn folder() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    for (name, text) in TEXTS {
        let file = folder.path().join("files").join(name);
        fs::create_dir_all(file.parent().unwrap()).unwrap();
        fs::write(file, text).unwrap();
    }
    fs::write(folder.path().join("files/picture.png"), b"\x89PNG\r\n\0\xff").unwrap();
    fs::write(folder.path().join("files/empty.py"), "").unwrap();
    folder
}

/// Runs `arenite index`, and returns its line.
fn index(model: &Path, folder: &Path, more: &[&str]) -> String {
    let (files, index) = (folder.join("files"), folder.join("f.index"));
    let output = arenite(&[&["index", path(&files), "-m", path(model), "-o", path(&index)], more].concat());
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(output.status.success(), "{said}");
    said.replace(path(&index), "F").trim().to_string()
}

#[test]
fn a_passage_is_nearest_to_its_own_text() {
    let (model, folder) = (committed("tests/fixtures/small/nomic_bert_moe/model.gguf"), folder());
    let text = folder.path().join("files/old.txt");
    for (bytes, encoding) in [(&b"caf\xe9"[..], "another encoding"), (b"\xff\xfea\0", "UTF-16")] {
        fs::write(&text, bytes).unwrap();
        let said = index(&model, folder.path(), &[]);
        assert!(said.contains(&format!("old.txt: this is text in {encoding}: save it as UTF-8\n")), "{said}");
    }
    fs::remove_file(text).unwrap();
    assert_eq!(index(&model, folder.path(), &[]), "F: 3 passages of 4 files; 1 without text are left out");
    let file = folder.path().join("f.index");
    for (query, place) in [
        ("# The dog\n\nThe dog barks at night. It sleeps in the garden.", ("pets/dog.md", 1)),
        ("The cat \nThe cat eats fish.", ("pets/cat.html", 2)),
        ("The sea is calm today.", ("sea.txt", 1)),
    ] {
        let found = lines(&stdout(&["search", path(&file), query, "--json"]));
        assert_eq!((found[0]["file"].as_str(), found[0]["line"].as_u64()), (Some(place.0), Some(place.1)), "{query}");
        assert!(found.len() == 3 && (found[0]["score"].as_f64().unwrap() - 1.0).abs() < 1e-6, "{query}");
        let printed = stdout(&["search", path(&file), query, "--top", "1"]);
        assert!(printed.starts_with(&format!("1.0000  {}:{}\n    The", place.0, place.1)) || place.0 == "pets/dog.md");
    }
}

#[test]
fn an_update_has_the_bytes_of_a_new_index() {
    let (model, folder) = (committed("tests/fixtures/small/nomic_bert_moe/model.gguf"), folder());
    let file = folder.path().join("f.index");
    index(&model, folder.path(), &[]);
    fs::write(folder.path().join("files/sea.txt"), "The sea is wild.\n").unwrap();
    fs::remove_file(folder.path().join("files/pets/dog.md")).unwrap();
    assert_eq!(index(&model, folder.path(), &[]), "F: 2 passages of 3 files; 1 without text are left out");
    let updated = fs::read(&file).unwrap();
    fs::remove_file(&file).unwrap();
    index(&model, folder.path(), &[]);
    assert!(fs::read(&file).unwrap() == updated);
    // Other prefixes give other vectors.
    index(&model, folder.path(), &["--passage-prefix", "passage: "]);
    assert!(fs::read(&file).unwrap() != updated);
}

#[test]
fn an_index_of_another_model_and_other_files_are_refused() {
    let (model, folder) = (committed("tests/fixtures/small/nomic_bert_moe/model.gguf"), folder());
    index(&model, folder.path(), &[]);
    let (file, other) = (folder.path().join("f.index"), committed("tests/fixtures/nomic_bert/model.gguf"));
    assert!(error(&["search", path(&file), "x", "-m", path(&other)]).contains("with another model"));
    assert!(error(&["search", path(&model), "x"]).contains("no index of `arenite index`"));
    assert!(error(&["index", path(&model), "-m", path(&model), "-o", path(&file)]).contains("is not a folder"));
}

#[test]
fn a_chat_has_the_nearest_passages_and_names_their_files() {
    let (model, folder) = (committed("tests/fixtures/small/nomic_bert_moe/model.gguf"), folder());
    index(&model, folder.path(), &[]);
    let [file, talker, talk] = ["f.index", "talker.gguf", "talk"].map(|name| folder.path().join(name));
    let chat = |script: &[&str]| {
        Scripted { script, control: &["<|im_start|>", "<|im_end|>"], user: &[], template: CHATML }.write(&talker);
        let _ = fs::remove_file(&talk);
        let args = ["chat", "-m", path(&talker), "--index", path(&file), "--session", path(&talk)];
        let output = arenite_with(&args, b"The sea is calm today.\n");
        assert!(output.status.success(), "{output:?}");
        String::from_utf8(output.stdout).unwrap()
    };
    assert_eq!(chat(&["Calm", " [1]", "."]), "Calm [1].\n[1] sea.txt:1\n");
    let session = fs::read(&talk).unwrap();
    let asked = br"Passages of files:\n\n[1] sea.txt, line 1:\nThe sea is calm today.\n\n[2] ";
    assert!(session.windows(asked.len()).any(|part| part == asked));
    let all = chat(&["Calm", "."]);
    assert!(all.starts_with("Calm.\n[1] sea.txt:1\n[2] ") && all.lines().count() == 4, "{all}");
}
