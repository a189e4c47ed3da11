//! A field of a request, and functions that read its value as a certain type. Errors call the field by the name that
//! the client used, because an interface may have several names for the same field.

use serde_json::{Map, Value};

use super::Result;
use arenite_request::{Content, Named, Picture, PictureSource, Prompt, Refusal};

/// A field of a request. Its value is not null.
pub struct Field<'v> {
    pub name: &'static str,
    pub value: &'v Value,
}

impl<'v> Field<'v> {
    /// Makes a refusal with the field's name.
    pub fn refused(&self, message: impl Into<String>) -> Refusal {
        Refusal::about(self.name, message)
    }

    /// Makes a refusal of the value's type.
    fn wrong(&self, wanted: &str) -> Refusal {
        self.refused(format!("{} must be {wanted}", self.name))
    }

    /// Adds the field's name to a value.
    pub fn named<T>(&self, value: T) -> Named<T> {
        Named { field: self.name, value }
    }

    pub fn text(&self) -> Result<String> {
        self.value.as_str().map(str::to_string).ok_or_else(|| self.wrong("a text"))
    }

    pub fn switch(&self) -> Result<bool> {
        self.value.as_bool().ok_or_else(|| self.wrong("true or false"))
    }

    pub fn number(&self) -> Result<f32> {
        self.value.as_f64().map(|number| number as f32).ok_or_else(|| self.wrong("a number"))
    }

    /// Returns a whole number. The number may have a decimal point, because some programs write all numbers with a
    /// decimal point.
    pub fn whole(&self) -> Result<i64> {
        let rounded = || self.value.as_f64().filter(|number| number.fract() == 0.0 && number.abs() < 1e15);
        let large = || self.value.as_u64().map(|number| number.cast_signed());
        let whole = self.value.as_i64().or_else(large).or_else(|| rounded().map(|number| number as i64));
        whole.ok_or_else(|| self.wrong("a whole number"))
    }

    pub fn count(&self) -> Result<usize> {
        match self.large() {
            Some(count) => Ok(count),
            None => usize::try_from(self.whole()?).map_err(|_| self.wrong("a count")),
        }
    }

    /// Returns a count that is too large for `i64`, reduced to the largest `i64`: there are never so many.
    fn large(&self) -> Option<usize> {
        self.value.as_u64().filter(|count| i64::try_from(*count).is_err()).map(|_| i64::MAX as usize)
    }

    /// Returns a limit: -1 means none.
    pub fn limit(&self) -> Result<Option<usize>> {
        if let Some(limit) = self.large() {
            return Ok(Some(limit));
        }
        match self.whole()? {
            -1 => Ok(None),
            limit => usize::try_from(limit)
                .map(Some)
                .map_err(|_| self.refused(format!("{} is {limit}, and must be -1 or a count", self.name))),
        }
    }

    pub fn list(&self) -> Result<&'v [Value]> {
        self.value.as_array().map(Vec::as_slice).ok_or_else(|| self.wrong("a list"))
    }

    pub fn object(&self) -> Result<&'v Map<String, Value>> {
        self.value.as_object().ok_or_else(|| self.wrong("an object"))
    }

    /// Returns one text or a list of texts.
    pub fn texts(&self) -> Result<Vec<String>> {
        match self.value {
            Value::String(text) => Ok(vec![text.clone()]),
            Value::Array(list) => {
                let texts: Option<_> = list.iter().map(|text| text.as_str().map(str::to_string)).collect();
                texts.ok_or_else(|| self.wrong("a text or a list of texts"))
            }
            _ => Err(self.wrong("a text or a list of texts")),
        }
    }

    /// Returns a text, a list of tokens and texts, llama.cpp's text with pictures, or a list of these. As in llama.cpp,
    /// a list that contains a number is a single prompt.
    pub fn prompts(&self) -> Result<Vec<Prompt>> {
        let one = |value: &Value| match value {
            Value::Object(prompt) if prompt.contains_key("prompt_string") => self.seen(prompt),
            value => Field { name: self.name, value }.prompt(),
        };
        match self.value {
            Value::Array(list) if !list.is_empty() && !list.iter().any(Value::is_number) => {
                list.iter().map(one).collect()
            }
            value => Ok(vec![one(value)?]),
        }
    }

    /// Returns a text, or a list of tokens and texts.
    pub fn prompt(&self) -> Result<Prompt> {
        let wrong = || self.wrong("a text, tokens, or a list of these");
        let id = |id: &Value| {
            let number = Field { name: self.name, value: id }.whole().map_err(|_| wrong())?;
            u32::try_from(number).map_err(|_| self.refused(format!("{}: {id} is not a token id", self.name)))
        };
        match self.value {
            Value::String(text) => Ok(Prompt::Text(text.clone())),
            Value::Array(list) if list.iter().any(Value::is_string) => {
                let part = |part: &Value| match part {
                    Value::String(text) => Ok(Prompt::Text(text.clone())),
                    number => Ok(Prompt::Tokens(vec![id(number)?])),
                };
                list.iter().map(part).collect::<Result<_>>().map(Prompt::Mixed)
            }
            Value::Array(ids) => ids.iter().map(id).collect::<Result<_>>().map(Prompt::Tokens),
            _ => Err(wrong()),
        }
    }

    /// Returns llama.cpp's prompt with pictures: `{"prompt_string": TEXT, "multimodal_data": [BASE64]}`. The pictures
    /// take the places of `<__media__>` in the text.
    fn seen(&self, prompt: &Map<String, Value>) -> Result<Prompt> {
        let field = |key| Field { name: self.name, value: prompt.get(key).unwrap_or(&Value::Null) };
        let data = if prompt.get("multimodal_data").is_some() { field("multimodal_data").texts()? } else { Vec::new() };
        let sources = data.iter().map(|data| PictureSource::of_base64(data));
        let sources: Vec<_> = sources.collect::<std::result::Result<_, _>>().map_err(|why| self.refused(why))?;
        let text = field("prompt_string").text()?;
        let parts: Vec<&str> = text.split(MEDIA).collect();
        if parts.len() > 1 && parts.len() != sources.len() + 1 {
            let (places, count) = (parts.len() - 1, sources.len());
            return Err(
                self.refused(format!("prompt_string has {MEDIA} {places} times, for {count} in multimodal_data"))
            );
        }
        // If the text has no places for pictures, all pictures are at offset 0. They are then shown at the model's own
        // markers or, if there are none, before the text.
        let mut ends = parts.iter().scan(0, |end, part| {
            *end += part.len();
            Some(*end)
        });
        let has_places = parts.len() > 1;
        let mut at = || if has_places { ends.next().unwrap_or(0) } else { 0 };
        let pictures = sources.into_iter().map(|source| Picture { at: at(), source }).collect();
        Ok(Prompt::Seen(Content { pictures, ..parts.concat().into() }))
    }
}

/// The text that marks the place of a picture in llama.cpp's prompts.
const MEDIA: &str = "<__media__>";
