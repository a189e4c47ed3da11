//! A file's encoder as data: sizes from the metadata and from the tensor directory.

use super::projector::{Join, Places, Projector, Rules};
use super::roles::Role;
use crate::gguf::{Array, Tensor, ValueType, equal};
use crate::kernel::Activation;
use crate::model::{MAX_LAYERS, Norm};
use crate::{Error, Gguf, Name, tri};

/// Prefix of the keys of an encoder of pictures.
const PREFIX: &str = "clip.vision";
/// Limits of sizes in the metadata. With these limits, no product of three sizes overflows 64 bits.
const MAX_WIDTH: usize = 1 << 16;
const MAX_PATCH: usize = 1 << 8;
const MAX_MERGE: usize = 1 << 4;
/// The largest accepted `image_size`, in pixels. With this limit, the number of views and their sizes are limited, too.
const MAX_IMAGE: usize = 1 << 13;
const MAX_TILES: usize = 1 << 6;

/// Sizes and settings of an encoder of pictures.
#[derive(Clone, Copy, Debug)]
pub(super) struct Spec<'a> {
    pub projector: Projector,
    pub rules: Rules,
    /// Width of the encoder's states.
    pub dim: usize,
    pub layers: usize,
    pub heads: usize,
    /// Width of the feed-forward.
    pub ffn: usize,
    /// Activation function of the feed-forward.
    pub activation: Activation,
    /// Side of a patch in pixels.
    pub patch: usize,
    /// Side of a block of patches that becomes one row.
    pub merge: usize,
    /// Side of a view in pixels, or the longest side, depending on the projector.
    pub side: usize,
    /// Longest side of a picture that is cut into tiles (idefics3).
    pub longest: usize,
    /// Least and largest number of tiles (internvl).
    pub tiles: (usize, usize),
    /// Epsilon of the encoder's norms.
    pub eps: f32,
    /// Mean and standard deviation of each color.
    pub mean: [f32; 3],
    pub std: [f32; 3],
    /// Smallest and largest number of pixels of a picture, if the file has these numbers (Qwen, LFM2).
    pub pixels: (Option<usize>, Option<usize>),
    /// Side of a window of attention in pixels.
    window_pixels: usize,
    /// The last of every `window_period` layers attends to the whole view, all other layers attend within windows. 0 if
    /// all layers attend to the whole view.
    pub window_period: usize,
    /// An array of booleans, with true for each layer whose states are also projected, to be added after one of the
    /// language model's layers.
    deep: Option<Array<'a>>,
    /// Number of these layers.
    pub deep_layers: usize,
    pub tensors: Tensors,
}

impl<'a> Spec<'a> {
    /// Reads the sizes from the metadata and from the tensor directory. Whether tensors have the right shapes is
    /// checked later.
    pub const fn read(gguf: &Gguf<'a>) -> Result<Self, Error> {
        let architecture = tri!(gguf.architecture());
        if !equal(architecture.as_bytes(), b"clip") {
            let name = Name::new(architecture.as_bytes());
            return Err(Error::Unsupported { what: "architecture of an encoder of pictures", name });
        }
        tri!(check_keys(gguf));
        let projector = tri!(projector(gguf));
        let rules = projector.rules();
        let layers = tri!(size(gguf, "block_count", MAX_LAYERS));
        let dim = tri!(size(gguf, "embedding_length", MAX_WIDTH));
        let ffn = tri!(size(gguf, "feed_forward_length", MAX_WIDTH));
        let side = tri!(size(gguf, "image_size", MAX_IMAGE));
        let (deep, deep_layers) = tri!(deep(gguf, layers));
        let spec = Self {
            projector,
            rules,
            dim,
            layers,
            heads: tri!(size(gguf, "attention.head_count", MAX_WIDTH)),
            ffn,
            activation: tri!(activation(gguf, rules.gelu)),
            patch: tri!(size(gguf, "patch_size", MAX_PATCH)),
            merge: tri!(size_or(gguf, rules.merge.1, MAX_MERGE, rules.merge.0)),
            side,
            pixels: (tri!(pixels(gguf, "image_min_pixels")), tri!(pixels(gguf, "image_max_pixels"))),
            window_pixels: tri!(size_or(gguf, "window_size", MAX_IMAGE, 112)),
            // Early files do not have this key. All published models have at most four tiles on a side, which gives the
            // default.
            longest: tri!(size_or(gguf, "preproc_image_size", MAX_IMAGE, 4 * side)),
            tiles: (
                tri!(size_or(gguf, "preproc_min_tiles", MAX_TILES, 1)),
                tri!(size_or(gguf, "preproc_max_tiles", MAX_TILES, 12)),
            ),
            eps: tri!(positive(gguf, "attention.layer_norm_epsilon")),
            mean: tri!(colors(gguf, "image_mean")),
            std: tri!(colors(gguf, "image_std")),
            window_period: match projector {
                Projector::Qwen25Vl => tri!(size_or(gguf, "n_wa_pattern", MAX_LAYERS, 8)),
                _ => 0,
            },
            deep,
            deep_layers,
            tensors: tri!(Tensors::of(gguf, projector, (dim, ffn))),
        };
        match spec.check() {
            Ok(()) => Ok(spec),
            Err(error) => Err(error),
        }
    }

    /// Checks that the sizes fit together.
    const fn check(&self) -> Result<(), Error> {
        let Self { dim, heads, patch, merge, side, projector, .. } = *self;
        if !dim.is_multiple_of(heads) {
            return Err(wrong("attention.head_count", "does not divide embedding_length"));
        }
        if self.rules.axes.is_some() && !self.head_dim().is_multiple_of(4) {
            return Err(wrong("attention.head_count", "makes heads that rows and columns cannot share"));
        }
        if self.is_fixed() && !side.is_multiple_of(patch * merge) {
            return Err(wrong("image_size", "is not a multiple of the patches that become one row"));
        }
        let Tensors { table, has_class, .. } = self.tensors;
        let square = root(table);
        let Some(grid) = side.checked_div(patch) else { return Err(wrong("patch_size", "is 0")) };
        let is_fit = match self.rules.places {
            Places::Learned => grid * grid + has_class as usize == table,
            Places::Antialiased | Places::Corners => table > 0 && square * square == table,
            Places::Unlearned => true,
        };
        if !is_fit {
            return Err(wrong("image_size", "does not fit the number of learned positions"));
        }
        if matches!(projector, Projector::Idefics3) && self.longest < side {
            return Err(wrong("preproc_image_size", "is less than image_size"));
        }
        if self.tiles.0 > self.tiles.1 {
            return Err(wrong("preproc_min_tiles", "is more than preproc_max_tiles"));
        }
        if self.std[0] == 0.0 || self.std[1] == 0.0 || self.std[2] == 0.0 {
            return Err(wrong("image_std", "is 0"));
        }
        Ok(())
    }

    /// Side of the square grid of learned positions.
    pub const fn table_side(&self) -> usize {
        root(self.tensors.table)
    }

    /// True if all views have `image_size`.
    pub const fn is_fixed(&self) -> bool {
        matches!(self.projector, Projector::Idefics3 | Projector::Gemma3 | Projector::InternVl)
    }

    pub const fn head_dim(&self) -> usize {
        match self.dim.checked_div(self.heads) {
            Some(dim) => dim,
            None => 0,
        }
    }

    /// Returns what describes the norms of the encoder: their kind, their width and their epsilon.
    pub const fn norm(&self) -> (Norm, usize, f32) {
        (self.rules.norm, self.dim, self.eps)
    }

    /// Elements of a patch: its pixels in all colors.
    pub const fn patch_len(&self) -> usize {
        3 * self.patch * self.patch
    }

    /// Number of patches that become one row.
    pub const fn block(&self) -> usize {
        self.merge * self.merge
    }

    /// Side, in pixels, of the square of patches that the encoder joins to one row of its result.
    pub const fn cell(&self) -> usize {
        self.patch * self.merge
    }

    /// Width of the input of the projector's first linear layer.
    pub const fn joined(&self) -> usize {
        match self.rules.join {
            Join::Concatenated => self.block() * self.dim,
            Join::Mean => self.dim,
        }
    }

    /// Number of learned rows before the patches.
    pub const fn before(&self) -> usize {
        self.tensors.has_class as usize
    }

    /// True if layer `index` attends to the whole view.
    pub const fn sees_all(&self, index: usize) -> bool {
        match (index + 1).checked_rem(self.window_period) {
            Some(rest) => rest == 0,
            None => true,
        }
    }

    /// Side of an attention window, counted in merged blocks; `None` if all layers attend to the whole view.
    pub const fn window(&self) -> Option<usize> {
        if self.window_period == 0 {
            return None;
        }
        match self.window_pixels.checked_div(self.cell()) {
            None | Some(0) => Some(1),
            side => side,
        }
    }

    /// True if the states after layer `index` are also projected to rows of the language model (DeepStack).
    pub const fn is_deep(&self, index: usize) -> bool {
        match self.deep {
            Some(deep) => matches!(deep.get_i32(index), Some(1..)),
            None => false,
        }
    }

    /// Number of vectors that a row consists of: one that replaces the embedding, and one for each of the language
    /// model's first `deep_layers` layers.
    pub const fn streams(&self) -> usize {
        1 + self.deep_layers
    }

    /// Elements of a row.
    pub const fn row_len(&self) -> usize {
        self.streams() * self.tensors.out
    }
}

/// What only the directory of tensors tells about an encoder: which tensors it has, and sizes that no key gives.
#[derive(Clone, Copy, Debug)]
pub(super) struct Tensors {
    /// A learned row stands before the patches.
    pub has_class: bool,
    /// Queries, keys and values are one matrix.
    pub fused: bool,
    /// The feed-forward has a gate.
    pub gated: bool,
    /// Linear layers of the blocks have biases.
    pub biased: bool,
    /// True if files exchange the names of the feed-forward's two matrices, so that `up` is stored as `down`.
    pub swapped: bool,
    pub has_merger: bool,
    pub has_join_norm: bool,
    /// The projector's matrix is stored by inputs.
    pub transposed: bool,
    /// Learned positions.
    pub table: usize,
    /// Number of outputs of the projector's first linear layer; `out` is the number of outputs of its last linear
    /// layer.
    pub inner: usize,
    pub out: usize,
}

impl Tensors {
    /// Reads the sizes that are not in the metadata.
    pub const fn of(gguf: &Gguf<'_>, projector: Projector, (dim, ffn): (usize, usize)) -> Result<Self, Error> {
        let first = Role::First.of_projector(projector);
        let second = Role::Second.of_projector(projector);
        let inner = tri!(outputs(gguf, first, false));
        let out = match (first.is_empty(), second.is_empty()) {
            (true, _) => tri!(outputs(gguf, Role::Transposed.of_projector(projector), true)),
            (_, true) => inner,
            _ => tri!(outputs(gguf, second, false)),
        };
        let table = tri!(outputs(gguf, "v.position_embd.weight", false));
        let down = match gguf.tensor("v.blk.0.ffn_down.weight") {
            Some(tensor) => tensor.dims[0] as usize,
            None => ffn,
        };
        Ok(Self {
            has_class: matches!(projector.rules().places, Places::Learned) && gguf.tensor("v.class_embd").is_some(),
            fused: gguf.tensor("v.blk.0.attn_qkv.weight").is_some(),
            gated: gguf.tensor("v.blk.0.ffn_gate.weight").is_some(),
            biased: gguf.tensor("v.blk.0.attn_out.bias").is_some(),
            swapped: dim != ffn && down == dim,
            has_merger: has(gguf, Role::Merger.of_projector(projector)),
            has_join_norm: has(gguf, Role::JoinNorm.of_projector(projector)),
            transposed: has(gguf, Role::Transposed.of_projector(projector)),
            table,
            inner,
            out,
        })
    }
}

const fn has(gguf: &Gguf<'_>, name: &str) -> bool {
    !name.is_empty() && gguf.tensor(name).is_some()
}

/// Number of outputs of a matrix in the file; 0 if the file has no tensor called `name`. If the matrix is `transposed`,
/// its columns are the outputs instead of its rows.
const fn outputs(gguf: &Gguf<'_>, name: &str, transposed: bool) -> Result<usize, Error> {
    /// Maximum width of a language model, and maximum number of positions, that a projector may have.
    const MOST: u64 = 1 << 20;
    let Some(Tensor { dims, .. }) = gguf.tensor(name) else { return Ok(0) };
    let [columns, rows, ..] = dims;
    let outputs = if transposed { columns } else { rows };
    if outputs > MOST {
        let (found, expected) = (dims, [columns, MOST, 1, 1]);
        return Err(Error::TensorShape { tensor: Name::new(name.as_bytes()), found, expected });
    }
    Ok(outputs as usize)
}

/// The whole part of a square root.
const fn root(n: usize) -> usize {
    let mut root = 0;
    while (root + 1) * (root + 1) <= n {
        root += 1;
    }
    root
}

/// The keys under `clip.` that the encoder reads, or that have no effect on the encoder.
const KEYS: &[&str] = &[
    "has_vision_encoder",
    "has_audio_encoder",
    "has_text_encoder",
    "has_llava_projector",
    "projector_type",
    "use_gelu",
    "use_silu",
    "vision.projector_type",
    "vision.image_size",
    "vision.patch_size",
    "vision.embedding_length",
    "vision.feed_forward_length",
    "vision.block_count",
    "vision.projection_dim", // not read: the shapes of tensors have it
    "vision.output_labels",  // not read: names for the elements of a row, if they are scores of classes
    "vision.attention.head_count",
    "vision.attention.layer_norm_epsilon",
    "vision.image_mean",
    "vision.image_std",
    "vision.projector.scale_factor",
    "vision.preproc_image_size",
    "vision.preproc_min_tiles",
    "vision.preproc_max_tiles",
    "vision.spatial_merge_size",
    "vision.is_deepstack_layers",
    "vision.n_wa_pattern",
    "vision.window_size",
    "vision.image_min_pixels",
    "vision.image_max_pixels",
];

/// Checks that all keys under `clip.` are known. Keys of an encoder of sounds are skipped.
const fn check_keys(gguf: &Gguf<'_>) -> Result<(), Error> {
    let mut keys = gguf.keys();
    while let Some((key, _)) = keys.next_key() {
        let Some(name) = after(key.as_bytes(), b"clip.") else { continue };
        let (mut known, mut rest) = (after(name, b"audio.").is_some(), KEYS);
        while let (false, [first, others @ ..]) = (known, rest) {
            known = equal(name, first.as_bytes());
            rest = others;
        }
        if !known {
            return Err(Error::UnexpectedKey { key: Name::new(key.as_bytes()) });
        }
    }
    Ok(())
}

/// Strips `prefix` from the front of `name`.
pub(super) const fn after<'n>(name: &'n [u8], prefix: &[u8]) -> Option<&'n [u8]> {
    match name.split_at_checked(prefix.len()) {
        Some((start, rest)) if equal(start, prefix) => Some(rest),
        _ => None,
    }
}

const fn projector(gguf: &Gguf<'_>) -> Result<Projector, Error> {
    const NAME: &str = "projector_type";
    let name = match tri!(gguf.str(PREFIX, NAME)) {
        Some(name) => name,
        None => match tri!(gguf.str("clip", NAME)) {
            Some(name) => name,
            None => return Err(Error::MissingKey { key: Name::key("clip", NAME) }),
        },
    };
    let mut rest = Projector::ALL;
    while let [projector, others @ ..] = rest {
        if equal(projector.name().as_bytes(), name) {
            return Ok(*projector);
        }
        rest = others;
    }
    Err(Error::Unsupported { what: "projector", name: Name::new(name) })
}

/// Reads the activation function of the feed-forward.
const fn activation(gguf: &Gguf<'_>, gelu: Activation) -> Result<Activation, Error> {
    match (tri!(gguf.bool("clip", "use_silu")), tri!(gguf.bool("clip", "use_gelu"))) {
        (Some(true), Some(true)) => {
            Err(Error::KeyValue { key: Name::key("clip", "use_gelu"), why: "is true, and so is use_silu" })
        }
        (Some(true), _) => Ok(Activation::Silu),
        (_, Some(true)) => Ok(gelu),
        _ => Err(Error::UnsupportedKey { key: Name::key("clip", "use_gelu"), what: "the quick form of GELU" }),
    }
}

/// Reads which layers' states are also projected to rows of the language model (DeepStack). Returns the file's list,
/// and the number of these layers.
const fn deep<'a>(gguf: &Gguf<'a>, layers: usize) -> Result<(Option<Array<'a>>, usize), Error> {
    const NAME: &str = "is_deepstack_layers";
    let Some(deep) = tri!(gguf.array(PREFIX, NAME)) else { return Ok((None, 0)) };
    if !matches!(deep.element(), ValueType::Bool) || deep.len() != layers {
        return Err(wrong(NAME, "must have a boolean for each layer"));
    }
    let (mut count, mut index) = (0, 0);
    while index < layers {
        count += matches!(deep.get_i32(index), Some(1..)) as usize;
        index += 1;
    }
    Ok((Some(deep), count))
}

/// Reads a number of pixels.
const fn pixels(gguf: &Gguf<'_>, name: &'static str) -> Result<Option<usize>, Error> {
    match tri!(size_or(gguf, name, MAX_IMAGE * MAX_IMAGE, 0)) {
        0 => Ok(None),
        pixels => Ok(Some(pixels)),
    }
}

const fn size_or(gguf: &Gguf<'_>, name: &'static str, max: usize, default: usize) -> Result<usize, Error> {
    match tri!(gguf.u32(PREFIX, name)) {
        Some(0) => Err(wrong(name, "is 0, which no encoder can have")),
        Some(value) if value as u64 > max as u64 => Err(wrong(name, "is too large")),
        Some(value) => Ok(value as usize),
        None => Ok(default),
    }
}

const fn size(gguf: &Gguf<'_>, name: &'static str, max: usize) -> Result<usize, Error> {
    match tri!(size_or(gguf, name, max, 0)) {
        0 => Err(Error::MissingKey { key: Name::key(PREFIX, name) }),
        size => Ok(size),
    }
}

const fn positive(gguf: &Gguf<'_>, name: &'static str) -> Result<f32, Error> {
    match tri!(gguf.f32(PREFIX, name)) {
        Some(value) if value > 0.0 && value.is_finite() => Ok(value),
        Some(_) => Err(wrong(name, "must be a positive number")),
        None => Err(Error::MissingKey { key: Name::key(PREFIX, name) }),
    }
}

/// Reads a finite number for each of red, green and blue.
const fn colors(gguf: &Gguf<'_>, name: &'static str) -> Result<[f32; 3], Error> {
    let Some(array) = tri!(gguf.array(PREFIX, name)) else {
        return Err(Error::MissingKey { key: Name::key(PREFIX, name) });
    };
    match (array.len(), array.get_f32(0), array.get_f32(1), array.get_f32(2)) {
        (3, Some(r), Some(g), Some(b)) if r.is_finite() && g.is_finite() && b.is_finite() => Ok([r, g, b]),
        _ => Err(wrong(name, "must have three numbers")),
    }
}

#[cold]
#[inline(never)]
const fn wrong(name: &str, why: &'static str) -> Error {
    Error::KeyValue { key: Name::key(PREFIX, name), why }
}
