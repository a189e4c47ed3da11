//! Text files in messages.

use serde_json::Value;

use crate::PictureSource;
use crate::picture::{NO_FILES, bytes_of};

/// A file in a message.
pub enum File {
    Text(String),
    Picture(PictureSource),
}

/// Reads a part with a file, as OpenAI's clients send it: `file` in chats, and `input_file` in responses. Returns `None`
/// if the part is of another type.
pub fn of_part(part: &Value) -> Option<Result<File, String>> {
    match part.get("type")?.as_str()? {
        "file" => Some(read(part.get("file").filter(|file| file.is_object()).unwrap_or(part))),
        "input_file" => Some(read(part)),
        _ => None,
    }
}

fn read(file: &Value) -> Result<File, String> {
    let text = |key: &str| file.get(key).and_then(Value::as_str).filter(|text| !text.is_empty());
    let Some(data) = text("file_data") else {
        return Err(match text("file_id") {
            Some(_) => NO_FILES.into(),
            None => "give the text of a file as file_data in base64; addresses of files are not read".into(),
        });
    };
    if data.starts_with("data:image/") {
        return PictureSource::of_url(data).map(File::Picture);
    }
    let name = text("filename").or_else(|| text("file_name"));
    let written = text_of_file(data, name.unwrap_or("a file"))?;
    let lines = [heading([("title", name)]), written];
    Ok(File::Text(lines.into_iter().filter(|lines| !lines.is_empty()).collect::<Vec<_>>().join("\n")))
}

/// Returns the text of a file that is given in base64 or as a data URL.
///
/// # Errors
///
/// The base64 is damaged, or the file is not text in UTF-8.
pub fn text_of_file(data: &str, name: &str) -> Result<String, String> {
    let text = String::from_utf8(bytes_of(data, "a file")?);
    text.ok().filter(|text| !text.contains('\0') && !text.starts_with("%PDF")).ok_or_else(|| {
        format!("only text files in UTF-8 and pictures can be read, and {name} is another file: send its text")
    })
}

/// Returns the client's description of a document: one line for each field that is given.
pub fn heading<const N: usize>(fields: [(&str, Option<&str>); N]) -> String {
    let given = fields.into_iter().filter_map(|(key, text)| Some(format!("{key}: {}", text?)));
    given.collect::<Vec<_>>().join("\n")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use crate::Content;

    #[test]
    fn text_files_are_read_and_others_refused() {
        let data = "data:text/plain;base64,aGVsbG8=";
        let chat = json!({ "type": "file", "file": { "filename": "a.txt", "file_data": data } });
        for part in [
            chat.clone(),
            json!({ "type": "file", "file": { "filename": "a.txt", "file_data": "aGVsbG8" } }),
            json!({ "type": "input_file", "filename": "a.txt", "file_data": data, "file_id": null }),
        ] {
            let content = Content::of(&json!([{ "type": "text", "text": "Read this:" }, part])).unwrap();
            assert_eq!(content.in_lines().text, "Read this:\ntitle: a.txt\nhello", "{part}");
        }
        let picture = json!({ "type": "input_file", "file_data": "data:image/png;base64,AQID" });
        assert_eq!(Content::of(&json!([picture])).unwrap().pictures.len(), 1);
        for (part, words) in [
            (json!({ "type": "file", "file": { "file_id": "file-1" } }), "keeps no files"),
            (json!({ "type": "input_file", "file_url": "https://a.example/b.txt" }), "file_data"),
            (json!({ "type": "input_file", "filename": "b.pdf", "file_data": "JVBERi0xLjQK" }), "b.pdf"),
            (json!({ "type": "input_file", "file_data": "/wAB" }), "another file"),
            (json!({ "type": "input_file", "file_data": "a!" }), "damaged"),
        ] {
            let why = Content::of(&json!([part])).unwrap_err();
            assert!(why.contains(words), "{part}: {why}");
        }
    }
}
