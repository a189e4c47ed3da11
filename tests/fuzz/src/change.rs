//! Models of every family, and changes to them.

use std::sync::{LazyLock, OnceLock};

use arbitrary::Arbitrary;
use arenite::tokenizer::Tokenizer;
use arenite::{Gguf, Model};

use crate::encoders::{ENCODERS, encoder};
use crate::families::{DECODERS, RECURRENT, decoder};
use crate::gguf::{Builder, Meta};
use crate::list::List;
use crate::unwritten::unwritten;
use crate::variants::{FAMILIES, quantized, tiny};

/// A model of some family, with changes.
#[derive(Arbitrary, Debug)]
pub struct File {
    family: u8,
    quantized: Option<bool>,
    changes: Changes,
}

/// Changes to a file.
#[derive(Arbitrary, Debug)]
pub struct Changes {
    changes: List<Change, 5>,
    /// Bytes of the finished file to overwrite: each has a position, in 65536ths of the file, and a new value.
    bytes: List<(u16, u8), 3>,
}

/// One change. Keys and tensors are chosen by number among the existing ones.
#[derive(Arbitrary, Debug)]
enum Change {
    Integer { key: u8, value: Number },
    Float { key: u8, value: Real },
    Bool { key: u8, value: bool },
    Text { key: u8, value: String },
    Element { key: u8, at: u8, value: Number },
    Array { key: u8, values: List<u8, 8> },
    RemoveKey { key: u8 },
    CopyKey { key: u8, name: String },
    RemoveTensor { tensor: u8 },
    Dimension { tensor: u8, at: u8, value: Number },
    Type { tensor: u8, kind: u8 },
    Weight { tensor: u8, at: u16, value: Real },
    Rename { tensor: u8, other: u8 },
}

/// Integers at the edges of ranges, and arbitrary ones.
#[derive(Arbitrary, Clone, Copy, Debug)]
enum Number {
    Small(u8),
    Power(u8),
    BelowPower(u8),
    Any(u32),
}

impl Number {
    fn get(self) -> u32 {
        match self {
            Self::Small(number) => number.into(),
            Self::Power(bits) => 1 << (bits % 32),
            Self::BelowPower(bits) => (1 << (bits % 32)) - 1,
            Self::Any(number) => number,
        }
    }
}

/// Floats at the edges of ranges, and arbitrary ones.
#[derive(Arbitrary, Clone, Copy, Debug)]
pub enum Real {
    Bits(u32),
    Whole(i8),
    Infinite,
    Negative,
    Nan,
    Tiny,
    Huge,
}

impl Real {
    pub fn get(self) -> f32 {
        match self {
            Self::Bits(bits) => f32::from_bits(bits),
            Self::Whole(number) => number.into(),
            Self::Infinite => f32::INFINITY,
            Self::Negative => f32::NEG_INFINITY,
            Self::Nan => f32::NAN,
            Self::Tiny => f32::MIN_POSITIVE / 4.0,
            Self::Huge => f32::MAX,
        }
    }
}

/// Number of families.
pub const KINDS: usize = FAMILIES.len() + DECODERS.len() + RECURRENT.len() + ENCODERS.len();

/// Builds the model of this number; cached.
pub fn builder(family: usize) -> &'static Builder {
    static MADE: [OnceLock<Builder>; KINDS] = [const { OnceLock::new() }; KINDS];
    MADE[family % KINDS].get_or_init(|| make(family % KINDS))
}

/// The unchanged file of the model of this number.
pub fn model(family: usize) -> &'static [u8] {
    static MADE: [OnceLock<Vec<u8>>; KINDS] = [const { OnceLock::new() }; KINDS];
    MADE[family % KINDS].get_or_init(|| builder(family).build())
}

/// Parses the file of [`model`] and opens its model; cached.
pub fn opened(family: usize) -> &'static (Gguf<'static>, Model<'static>) {
    static MADE: [OnceLock<(Gguf<'static>, Model<'static>)>; KINDS] = [const { OnceLock::new() }; KINDS];
    MADE[family % KINDS].get_or_init(|| {
        let gguf = Gguf::parse(model(family)).expect("a correct file");
        let model = Model::new(&gguf).expect("a correct model");
        (gguf, model)
    })
}

/// The tokenizer of the first model: a token for every byte, after three control tokens.
pub static TOKENIZER: LazyLock<Tokenizer<'static, 'static>> = LazyLock::new(|| {
    let gguf = Gguf::parse(model(0)).expect("a correct file");
    let index = vec![0; Tokenizer::index_bytes(&gguf).expect("a correct vocabulary")].leak();
    Tokenizer::new(&gguf, unwritten(index)).expect("a correct vocabulary")
});

fn make(family: usize) -> Builder {
    if let Some(name) = FAMILIES.get(family) {
        return tiny(name);
    }
    let decoders = DECODERS.iter().chain(&RECURRENT);
    match decoders.chain(&ENCODERS).nth(family - FAMILIES.len()) {
        Some(name) if ENCODERS.contains(name) => encoder(name),
        Some(name) => decoder(name),
        None => unreachable!("less than all kinds"),
    }
}

/// Number of the first family with an encoder. The families with an encoder come last.
pub const FIRST_ENCODER: usize = KINDS - ENCODERS.len();

impl File {
    pub fn build(&self) -> Vec<u8> {
        let mut file = builder(self.family.into()).clone();
        if let Some(q8_0) = self.quantized {
            file = quantized(file, if q8_0 { "Q8_0" } else { "Q4_0" });
        }
        self.changes.build(file)
    }
}

impl Changes {
    /// Applies the changes to `file`, and builds it.
    pub fn build(&self, mut file: Builder) -> Vec<u8> {
        for change in self.changes.iter() {
            change.apply(&mut file);
        }
        let mut bytes = file.build();
        for (at, byte) in self.bytes.iter() {
            let at = (usize::from(*at) * bytes.len()) >> 16;
            if let Some(place) = bytes.get_mut(at) {
                *place = *byte;
            }
        }
        bytes
    }
}

impl Change {
    fn apply(&self, file: &mut Builder) {
        let (keys, tensors) = (file.keys.len().max(1), file.tensors.len().max(1));
        let mut set = |key: u8, value: Meta| {
            if let Some(key) = file.keys.get_mut(usize::from(key) % keys) {
                key.value = value;
            }
        };
        match self {
            Self::Integer { key, value } => set(*key, value.get().into()),
            Self::Float { key, value } => set(*key, value.get().into()),
            Self::Bool { key, value } => set(*key, (*value).into()),
            Self::Text { key, value } => set(*key, value.as_str().into()),
            Self::Array { key, values } => set(*key, Meta::array(values.iter().map(|value| u32::from(*value)))),
            Self::Element { key, at, value } => {
                if let Some(Meta::Array(_, _, bytes)) =
                    file.keys.get_mut(usize::from(*key) % keys).map(|key| &mut key.value)
                    && let Some(place) = bytes.chunks_exact_mut(4).nth((*at).into())
                {
                    place.copy_from_slice(&value.get().to_le_bytes());
                }
            }
            Self::RemoveKey { key } => {
                if usize::from(*key) % keys < file.keys.len() {
                    file.keys.remove(usize::from(*key) % keys);
                }
            }
            Self::CopyKey { key, name } => {
                if let Some(mut copy) = file.keys.get(usize::from(*key) % keys).cloned() {
                    copy.name = name.as_bytes().into();
                    file.keys.push(copy);
                }
            }
            Self::RemoveTensor { tensor } => {
                if usize::from(*tensor) % tensors < file.tensors.len() {
                    file.tensors.remove(usize::from(*tensor) % tensors);
                }
            }
            Self::Rename { tensor, other } => {
                let name = file.tensors.get(usize::from(*other) % tensors).map(|tensor| tensor.name.clone());
                if let (Some(tensor), Some(name)) = (file.tensors.get_mut(usize::from(*tensor) % tensors), name) {
                    tensor.name = name;
                }
            }
            Self::Dimension { tensor, at, value } => {
                let Some(tensor) = file.tensors.get_mut(usize::from(*tensor) % tensors) else { return };
                let rank = tensor.dims.len().max(1);
                if let Some(dim) = tensor.dims.get_mut(usize::from(*at) % rank) {
                    *dim = value.get().into();
                }
                // The data follows the shape, so that a shape that is wrong for the model is valid in the file.
                let bytes = tensor.dims.iter().try_fold(4u64, |bytes, dim| bytes.checked_mul(*dim));
                if let (0, Some(bytes @ 0..=0x10_0000)) = (tensor.kind, bytes) {
                    tensor.data.resize(bytes as usize, 0x3c);
                }
            }
            Self::Type { tensor, kind } => {
                if let Some(tensor) = file.tensors.get_mut(usize::from(*tensor) % tensors) {
                    tensor.kind = u32::from(*kind) % 48;
                }
            }
            Self::Weight { tensor, at, value } => {
                if let Some(tensor) = file.tensors.get_mut(usize::from(*tensor) % tensors)
                    && let Some(place) = tensor.data.chunks_exact_mut(4).nth((*at).into())
                {
                    place.copy_from_slice(&value.get().to_le_bytes());
                }
            }
        }
    }
}
