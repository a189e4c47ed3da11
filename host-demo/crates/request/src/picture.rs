//! Pictures in requests: the ways in which clients send them.

use std::fmt;
use std::sync::Arc;

use base64::Engine;
use base64::alphabet::STANDARD;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};
use serde_json::Value;

/// Maximum number of pictures in a request.
pub const MOST_PICTURES: usize = 64;

/// A picture within a text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Picture {
    /// The byte of the text before which the picture stands.
    pub at: usize,
    /// Where its bytes are.
    pub source: PictureSource,
}

/// Where the bytes of a picture are.
#[derive(Clone, PartialEq, Eq)]
pub enum PictureSource {
    /// The bytes of a picture file.
    File(Arc<[u8]>),
    /// An address that begins with `http`. The program that answers the request may fetch the picture or refuse it.
    Address(String),
}

impl Picture {
    /// The picture in a text with `shift` more bytes before it.
    pub fn after(self, shift: usize) -> Self {
        Self { at: self.at + shift, ..self }
    }
}

impl PictureSource {
    /// Reads a part of a content: `image_url`, `input_image`, or `image` with a `source`, `url`, `image` or `base64`.
    ///
    /// # Errors
    ///
    /// The part has no picture, or this kind of part is not supported.
    pub fn of_part(part: &Value) -> Result<Self, String> {
        let text = |key: &str| part.get(key).and_then(Value::as_str);
        if part.get("file_id").is_some_and(|id| !id.is_null()) {
            return Err(NO_FILES.into());
        }
        if let Some(source) = part.get("source") {
            return Self::of_source(source);
        }
        let inner = ["image_url", "image"].iter().find_map(|key| part.get(*key)?.get("url")?.as_str());
        if let Some(url) = inner.or_else(|| ["image_url", "image", "url"].iter().find_map(|key| text(key))) {
            return Self::of_url(url);
        }
        if let Some(data) = text("base64").or_else(|| text("data")).filter(|_| text("type") == Some("image")) {
            return Self::of_base64(data);
        }
        match text("type") {
            Some("image" | "image_url" | "input_image") => Err(NO_DATA.into()),
            Some(kind) => Err(format!("a part of type `{kind}` cannot be read: give texts and pictures")),
            None => Err("a part of a message must be a text or a picture, and have a type".into()),
        }
    }

    /// Reads Anthropic's `source` of a picture.
    ///
    /// # Errors
    ///
    /// The source has no picture, or the picture is a file stored by Anthropic's service.
    pub fn of_source(source: &Value) -> Result<Self, String> {
        let text = |key: &str| source.get(key).and_then(Value::as_str);
        match (text("type"), text("data"), text("url")) {
            (Some("base64") | None, Some(data), _) => Self::of_base64(data),
            (Some("url") | None, _, Some(url)) => Self::of_url(url),
            (Some("file"), ..) => Err(NO_FILES.into()),
            _ => Err(NO_DATA.into()),
        }
    }

    /// Reads a picture's URL: a data URL in base64, or an address.
    ///
    /// # Errors
    ///
    /// The URL is neither of these, or the base64 is damaged.
    pub fn of_url(url: &str) -> Result<Self, String> {
        let is = |scheme: &str| url.get(..scheme.len()).is_some_and(|start| start.eq_ignore_ascii_case(scheme));
        if is("http://") || is("https://") {
            return Ok(Self::Address(url.into()));
        }
        match is("data:") {
            true => Self::of_base64(url),
            false => Err(NO_DATA.into()),
        }
    }

    /// Reads the bytes of a picture file in base64, or a data URL. Line breaks and missing padding are accepted.
    ///
    /// # Errors
    ///
    /// The base64 is damaged or empty.
    pub fn of_base64(data: &str) -> Result<Self, String> {
        Ok(Self::File(bytes_of(data, "a picture")?.into()))
    }

    /// Returns the bytes of the file.
    ///
    /// # Errors
    ///
    /// The picture is an address that was not fetched.
    pub fn bytes(&self) -> Result<&Arc<[u8]>, String> {
        match self {
            Self::File(bytes) => Ok(bytes),
            Self::Address(_) => {
                Err("a picture is an address, and this server fetches none: send its data as a data URL \
                                     (data:image/png;base64,...), or start the server with --allow-image-url"
                    .into())
            }
        }
    }
}

/// Returns the bytes of a file in base64, or of a data URL in base64. Line breaks and missing padding are accepted.
///
/// # Errors
///
/// The base64 is damaged or empty. The error calls the file `what`.
pub fn bytes_of(data: &str, what: &str) -> Result<Vec<u8>, String> {
    const READER: GeneralPurpose = GeneralPurpose::new(
        &STANDARD,
        GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent),
    );
    let is_url = data.get(..5).is_some_and(|scheme| scheme.eq_ignore_ascii_case("data:"));
    let data = match data.split_once(',').filter(|_| is_url) {
        Some((head, data)) if head.to_ascii_lowercase().ends_with(";base64") => data,
        Some(_) => return Err(NO_DATA.into()),
        None => data,
    };
    let is_broken = data.bytes().any(|byte| byte.is_ascii_whitespace());
    let joined = is_broken.then(|| data.split_ascii_whitespace().collect::<String>());
    match READER.decode(joined.as_deref().unwrap_or(data)) {
        Ok(bytes) if !bytes.is_empty() => Ok(bytes),
        Ok(_) => Err(format!("{what} is empty")),
        Err(error) => Err(format!("the base64 of {what} is damaged ({error})")),
    }
}

const NO_DATA: &str =
    "give a picture as a data URL (data:image/png;base64,...); paths of files and other addresses are not read";
pub(crate) const NO_FILES: &str = "the server keeps no files: send the file's data as a data URL";

impl fmt::Debug for PictureSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File(bytes) => write!(f, "File({} bytes)", bytes.len()),
            Self::Address(url) => write!(f, "Address({url})"),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn file(bytes: &[u8]) -> PictureSource {
        PictureSource::File(bytes.into())
    }

    #[test]
    fn parts_of_all_clients_are_read() {
        let url = "data:image/png;base64,AQID";
        for part in [
            json!({ "type": "image_url", "image_url": { "url": url, "detail": "low" } }),
            json!({ "type": "image_url", "image_url": url }),
            json!({ "type": "input_image", "image_url": url, "detail": "auto", "file_id": null }),
            json!({ "type": "image", "source": { "type": "base64", "media_type": "image/png", "data": "AQID" } }),
            json!({ "type": "image", "source": { "type": "url", "url": url } }),
            json!({ "type": "image", "image": url }),
            json!({ "type": "image", "url": url }),
            json!({ "type": "image", "base64": "AQ\nID\n" }),
            json!({ "type": "image_url", "image_url": { "url": "DATA:image/png;charset=x;Base64,AQID" } }),
        ] {
            assert_eq!(PictureSource::of_part(&part), Ok(file(&[1, 2, 3])), "{part}");
        }
        let part = json!({ "type": "image_url", "image_url": { "url": "https://a.example/b.png" } });
        let address = PictureSource::of_part(&part).unwrap();
        assert_eq!(address, PictureSource::Address("https://a.example/b.png".into()));
        assert!(address.bytes().unwrap_err().contains("--allow-image-url"));
    }

    #[test]
    fn other_parts_are_refused_with_advice() {
        for (part, words) in [
            (json!({ "type": "image_url", "image_url": { "url": "/etc/passwd" } }), "paths"),
            (json!({ "type": "image_url", "image_url": { "url": "file:///etc/passwd" } }), "paths"),
            (json!({ "type": "image_url", "image_url": {} }), "data URL"),
            (json!({ "type": "image_url", "image_url": { "url": "data:image/png,abc" } }), "data URL"),
            (json!({ "type": "image_url", "image_url": { "url": "data:image/png;base64,A!ID" } }), "damaged"),
            (json!({ "type": "image_url", "image_url": { "url": "data:image/png;base64," } }), "empty"),
            (json!({ "type": "input_image", "file_id": "file-1" }), "keeps no files"),
            (json!({ "type": "image" }), "data URL"),
            (json!({ "type": "input_audio", "input_audio": { "data": "AQID" } }), "input_audio"),
            (json!({}), "text or a picture"),
        ] {
            let why = PictureSource::of_part(&part).unwrap_err();
            assert!(why.contains(words), "{part}: {why}");
        }
    }
}
