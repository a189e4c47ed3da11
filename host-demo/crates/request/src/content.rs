//! The content of a message: texts, pictures and files.

use serde_json::Value;

use crate::document::{self, File};
use crate::picture::{Picture, PictureSource};

/// A text, and the pictures within it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Content {
    /// The text.
    pub text: String,
    /// The pictures, in order.
    pub pictures: Vec<Picture>,
    /// Offsets, in bytes of the joined text, at which one text part of the content ends and the next begins without a
    /// picture between them.
    pub breaks: Vec<usize>,
}

impl From<String> for Content {
    fn from(text: String) -> Self {
        Self { text, ..Self::default() }
    }
}

impl Content {
    /// Reads the content of a message, which is a text or a list of parts with texts and pictures.
    ///
    /// # Errors
    ///
    /// A part has neither a text nor a picture, or its picture is damaged.
    pub fn of(content: &Value) -> Result<Self, String> {
        let mut read = Self::default();
        match content {
            Value::Null => {}
            Value::String(text) => read.text.clone_from(text),
            Value::Array(parts) => parts.iter().try_for_each(|part| read.push(part))?,
            _ => return Err("the content of a message must be a text or a list of parts".into()),
        }
        Ok(read)
    }

    fn push(&mut self, part: &Value) -> Result<(), String> {
        let names = ["text", "refusal", "thinking"];
        let text = names.iter().find_map(|name| part.get(*name)?.as_str()).or_else(|| part.as_str());
        // In OpenAI's Assistants interface, the text of a message is an object.
        let text = text.or_else(|| part.pointer("/text/value")?.as_str());
        if let Some(text) = text.or_else(|| part.get("text").filter(|text| text.is_null()).map(|_| "")) {
            self.append(text.to_owned().into());
            return Ok(());
        }
        let source = match document::of_part(part).transpose()? {
            Some(File::Text(text)) => {
                self.append(text.into());
                return Ok(());
            }
            Some(File::Picture(source)) => source,
            None => PictureSource::of_part(part)?,
        };
        self.pictures.push(Picture { at: self.text.len(), source });
        Ok(())
    }

    /// Appends a content.
    pub fn append(&mut self, next: Self) {
        let shift = self.text.len();
        let has_picture = self.pictures.last().is_some_and(|picture| picture.at == shift)
            || next.pictures.first().is_some_and(|picture| picture.at == 0);
        if !has_picture && shift > 0 && !next.text.is_empty() {
            self.breaks.push(shift);
        }
        self.text += &next.text;
        self.breaks.extend(next.breaks.into_iter().map(|at| at + shift));
        self.pictures.extend(next.pictures.into_iter().map(|picture| picture.after(shift)));
    }

    /// Writes a line break between parts of the text, as llama.cpp and vLLM do for templates that show one text.
    #[must_use]
    pub fn in_lines(mut self) -> Self {
        for at in std::mem::take(&mut self.breaks).into_iter().rev() {
            self.text.insert(at, '\n');
            for picture in self.pictures.iter_mut().filter(|picture| picture.at >= at) {
                picture.at += 1;
            }
        }
        self
    }

    /// Returns the text.
    ///
    /// # Errors
    ///
    /// The content has a picture, but only text is allowed here.
    pub fn into_text(self) -> Result<String, String> {
        match self.pictures.is_empty() {
            true => Ok(self.in_lines().text),
            false => Err("only text can stand here, no pictures".into()),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_content_keeps_the_places_of_its_pictures() {
        let picture = json!({ "type": "image", "base64": "AQID" });
        let mut content = Content::of(&json!(["ab", picture, { "type": "text", "text": "c" }])).unwrap();
        assert_eq!((content.text.as_str(), content.pictures[0].at), ("abc", 2));
        content.append(Content::of(&json!([picture])).unwrap());
        assert_eq!(content.pictures.iter().map(|picture| picture.at).collect::<Vec<_>>(), [2, 3]);
        assert!(content.into_text().is_err());
    }
}
