//! Speech models of whisper.cpp (`ggml-*.bin`). The files have the same sizes and names as OpenAI's checkpoints, and
//! also a vocabulary.
//!
//! Source: `whisper_model_load` of whisper.cpp. A number has 32 bits, the lowest byte first. The parts of a file are a
//! magic number, the sizes, the filter bank, the tokens by id, and the tensors. The tensors fill the rest of the file.
//! Each tensor consists of the number of dimensions, the length of the name, the type, the dimensions (the contiguous
//! dimension first), the name, and the data.

use anyhow::{Context, Result, bail, ensure};
use arenite::quant::TensorType;
use serde_json::{Value, json};

use super::leaf::{Coding, Leaf};

/// The sizes at the start of a file of whisper.cpp, in order, by the names that they have in OpenAI's checkpoints.
const SIZES: [&str; 10] = [
    "n_vocab",
    "n_audio_ctx",
    "n_audio_state",
    "n_audio_head",
    "n_audio_layer",
    "n_text_ctx",
    "n_text_state",
    "n_text_head",
    "n_text_layer",
    "n_mels",
];

/// Maximum number of bytes of a token.
const LONGEST_TOKEN: u32 = 512;

pub struct WhisperFile<'f> {
    /// The sizes, as in OpenAI's checkpoints.
    pub dims: Value,
    /// The bytes of each token, without the special ones.
    pub tokens: Vec<&'f [u8]>,
    pub tensors: Vec<Leaf<'f>>,
}

/// Returns true if a file is a speech model. The sizes are checked, too, because old language models begin with the
/// same magic number.
pub fn is_model(bytes: &[u8]) -> bool {
    let rows = bytes.get(4..8).and_then(|rows| rows.first_chunk()).map(|rows| u32::from_le_bytes(*rows));
    bytes.starts_with(b"lmgg") && matches!(rows, Some(51864..=51866))
}

pub fn read(bytes: &[u8]) -> Result<WhisperFile<'_>> {
    let mut reader = Reader { bytes, at: 4 };
    let mut sizes = serde_json::Map::new();
    for name in SIZES {
        sizes.insert(name.to_owned(), reader.number()?.into());
    }
    reader.number()?; // the type of most weights: each tensor has its own
    let filters = u64::from(reader.number()?) * u64::from(reader.number()?) * 4;
    reader.take(filters)?;
    let count = reader.number()?;
    ensure!(count <= 51866, "it has {count} tokens, too many for a speech model");
    let tokens = (0..count).map(|_| {
        let len = reader.number()?;
        ensure!(len <= LONGEST_TOKEN, "a token has {len} bytes: the file is damaged");
        reader.take(len.into())
    });
    let tokens = tokens.collect::<Result<_>>()?;
    let mut tensors = Vec::new();
    while reader.at < bytes.len() {
        tensors.push(reader.tensor()?);
    }
    Ok(WhisperFile { dims: json!({ "dims": sizes }), tokens, tensors })
}

/// Reads a file from its start to its end.
struct Reader<'f> {
    bytes: &'f [u8],
    at: usize,
}

impl<'f> Reader<'f> {
    fn take(&mut self, len: u64) -> Result<&'f [u8]> {
        let rest = self.bytes.get(self.at..).unwrap_or_default();
        let part = usize::try_from(len).ok().and_then(|len| rest.get(..len));
        let part = part.with_context(|| {
            format!("it ends after {} bytes, within a tensor or a token: fetch it again", self.bytes.len())
        })?;
        self.at += part.len();
        Ok(part)
    }

    fn number(&mut self) -> Result<u32> {
        let bytes = self.take(4)?;
        Ok(bytes.first_chunk().map_or(0, |bytes| u32::from_le_bytes(*bytes)))
    }

    fn tensor(&mut self) -> Result<Leaf<'f>> {
        let (dims, name, kind) = (self.number()?, self.number()?, self.number()?);
        ensure!((1..=4).contains(&dims) && name <= 256, "the list of tensors is damaged at byte {}", self.at);
        let mut shape: Vec<usize> = (0..dims).map(|_| Ok(self.number()? as usize)).collect::<Result<_>>()?;
        shape.reverse();
        let name = std::str::from_utf8(self.take(name.into())?).context("a name of a tensor is not text")?;
        let kind =
            TensorType::from_id(kind).with_context(|| format!("the tensor {name} has the unknown type {kind}"))?;
        let (columns, rows) = shape.split_last().map_or((0, &[][..]), |(columns, rows)| (*columns, rows));
        let size =
            rows.iter().try_fold(kind.row_bytes(columns).unwrap_or(0) as u64, |size, n| size.checked_mul(*n as u64));
        let Some(size) = size.filter(|size| *size > 0) else {
            bail!("the tensor {name} has the shape {shape:?}, which {kind:?} cannot hold");
        };
        let coding = match kind {
            TensorType::F32 => Coding::F32,
            TensorType::F16 => Coding::F16,
            TensorType::BF16 => Coding::BF16,
            kind => Coding::Blocks(kind),
        };
        Ok(Leaf::new(name, self.take(size)?, coding, &shape))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Makes a file of whisper.cpp for the tests. It has three tokens, an F16 matrix of three rows, and a Q8_0 tensor
    /// of one row.
    fn file() -> Vec<u8> {
        let mut bytes = b"lmgg".to_vec();
        let sizes = [51864, 1500, 8, 2, 1, 448, 8, 2, 1, 80, 1, 2, 3];
        let numbers = |bytes: &mut Vec<u8>, numbers: &[u32]| {
            numbers.iter().for_each(|number| bytes.extend(number.to_le_bytes()));
        };
        numbers(&mut bytes, &sizes);
        bytes.extend([0; 2 * 3 * 4]); // the filter bank
        numbers(&mut bytes, &[3]);
        for token in ["a", "", "ab"] {
            numbers(&mut bytes, &[token.len() as u32]);
            bytes.extend(token.bytes());
        }
        numbers(&mut bytes, &[2, 1, 1, 2, 3]);
        bytes.extend(b"w");
        bytes.extend([0x00, 0x3c, 0x00, 0x40, 0x00, 0x42, 0x00, 0x44, 0x00, 0x45, 0x00, 0x46]);
        numbers(&mut bytes, &[1, 2, 8, 32]);
        bytes.extend(b"q8");
        bytes.extend([0x00, 0x38]); // 0.5
        bytes.extend(0..32);
        bytes
    }

    #[test]
    fn sizes_tokens_and_tensors() {
        let bytes = file();
        assert!(is_model(&bytes));
        let file = read(&bytes).unwrap();
        assert_eq!((&file.dims["dims"]["n_vocab"], &file.dims["dims"]["n_mels"]), (&json!(51864), &json!(80)));
        assert_eq!(file.tokens, [&b"a"[..], b"", b"ab"]);
        let [weights, blocks] = &file.tensors[..] else { panic!("{:?}", file.tensors) };
        let mut values = [0.0; 6];
        weights.decode(0, 1, &mut values);
        assert_eq!((&weights.shape[..], values), (&[3, 2][..], [1.0, 2.0, 3.0, 4.0, 5.0, 6.0]));
        assert_eq!(blocks.coding, Coding::Blocks(TensorType::Q8_0));
        let mut values = [0.0; 3];
        blocks.decode(4, 2, &mut values);
        assert_eq!(values, [2.0, 3.0, 4.0]);
    }

    #[test]
    fn a_file_that_is_cut_short_is_refused() {
        let bytes = file();
        // A file may end before, between or after the two tensors.
        let whole = [bytes.len() - 34 - 18, bytes.len() - 34 - 18 - 33, bytes.len()];
        for len in 4..bytes.len() {
            assert_eq!(read(&bytes[..len]).is_ok(), whole.contains(&len), "{len} bytes");
        }
    }
}
