//! The kinds of projectors as data.

use super::resize::Filter;
use crate::kernel::Activation;
use crate::model::Norm;

/// Declares the kinds of projectors, each by its name in files and its variant.
macro_rules! projectors {
    ($($(#[$doc:meta])* $name:literal => $variant:ident,)*) => {
        /// Kind of a projector (`clip.projector_type`): how pictures are cut into views, and how the states of an
        /// encoder become rows of a language model.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        #[non_exhaustive]
        pub enum Projector { $($(#[$doc])* $variant,)* }

        impl Projector {
            /// All projectors that this crate runs.
            pub const ALL: &[Self] = &[$(Self::$variant),*];

            /// The name in files.
            pub const fn name(self) -> &'static str {
                match self { $(Self::$variant => $name,)* }
            }
        }
    };
}

projectors! {
    /// Idefics 3, SmolVLM, Granite-Docling.
    "idefics3" => Idefics3,
    /// LFM2-VL.
    "lfm2" => Lfm2,
    /// Gemma 3.
    "gemma3" => Gemma3,
    /// InternVL 2.5 and 3.
    "internvl" => InternVl,
    /// Pixtral, and Mistral Small 3.1 and later.
    "pixtral" => Pixtral,
    /// Qwen 2.5-VL.
    "qwen2.5vl_merger" => Qwen25Vl,
    /// Qwen 3-VL.
    "qwen3vl_merger" => Qwen3Vl,
}

/// The learned positions of an encoder.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Places {
    /// A learned vector for each patch of views of one size.
    Learned,
    /// Learned vectors for the cells of a square grid. They are resized to the grid of the view by a bilinear filter
    /// with antialiasing (SigLIP 2).
    Antialiased,
    /// Learned vectors of a square grid, resized bilinearly so that the vectors at the corners do not change.
    Corners,
    /// None.
    Unlearned,
}

/// How the heads of queries and keys are rotated by the two coordinates of a patch: one half of a head's pairs by the
/// patch's line, the other half by its column.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Axes {
    /// The two elements of a pair are half a head apart. The pairs for lines and the pairs for columns have the same
    /// frequencies.
    Alike,
    /// Pairs of adjacent elements. Lines have the even frequencies and columns have the odd frequencies.
    InTurns,
}

impl Axes {
    /// The elements of a head that form pair `i` of `pairs`.
    pub const fn pair(self, i: usize, pairs: usize) -> (usize, usize) {
        match self {
            Self::Alike => (i, i + pairs),
            Self::InTurns => (2 * i, 2 * i + 1),
        }
    }

    /// Returns the two numbers `number` and `elements` that determine the rotary frequency of pair `i`, which is
    /// `10000^(-2 number / elements)`.
    pub const fn exponent(self, i: usize, pairs: usize) -> (usize, usize) {
        let half = pairs / 2;
        let (number, of_column) = if i < half { (i, 0) } else { (i - half, 1) };
        match self {
            Self::Alike => (number, pairs),
            Self::InTurns => (2 * number + of_column, 2 * pairs),
        }
    }
}

/// How a block of neighbouring patches becomes the input of the projector's first linear layer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Join {
    /// One patch after another.
    Concatenated,
    /// Their mean.
    Mean,
}

/// Those properties of an encoder that follow from the kind of its projector.
#[derive(Clone, Copy, Debug)]
pub(super) struct Rules {
    pub filter: Filter,
    pub places: Places,
    pub axes: Option<Axes>,
    pub join: Join,
    pub norm: Norm,
    /// True if the states after the last block are normed.
    pub norm_after: bool,
    /// The form of GELU in the encoder's blocks, if the file has the key `use_gelu`.
    pub gelu: Activation,
    /// Side, in patches, of the square of patches that is joined to one row: the default, and the key under which files
    /// store this number.
    pub merge: (usize, &'static str),
    /// Epsilon of the norm on joined patches; `None` if the encoder's epsilon also applies here.
    pub join_eps: Option<f32>,
    /// True if the rows of a view attend to each other in the language model.
    pub together: bool,
}

impl Projector {
    pub(super) const fn rules(self) -> Rules {
        const FACTOR: &str = "projector.scale_factor";
        const SPATIAL: &str = "spatial_merge_size";
        let siglip = Rules {
            filter: Filter::Bilinear,
            places: Places::Learned,
            axes: None,
            join: Join::Concatenated,
            norm: Norm::Layer,
            norm_after: true,
            gelu: Activation::GeluTanh,
            merge: (1, FACTOR),
            join_eps: None,
            together: false,
        };
        match self {
            Self::Idefics3 => Rules { filter: Filter::Lanczos, ..siglip },
            Self::Lfm2 => Rules { places: Places::Antialiased, merge: (2, FACTOR), join_eps: Some(1e-5), ..siglip },
            Self::Gemma3 => Rules { join: Join::Mean, merge: (4, FACTOR), together: true, ..siglip },
            Self::InternVl => Rules {
                filter: Filter::Bicubic,
                norm_after: false,
                gelu: Activation::GeluErf,
                merge: (2, FACTOR),
                join_eps: Some(1e-5),
                ..siglip
            },
            Self::Pixtral => Rules {
                filter: Filter::Bicubic,
                places: Places::Unlearned,
                axes: Some(Axes::InTurns),
                norm: Norm::Rms,
                norm_after: false,
                gelu: Activation::GeluErf,
                merge: (1, SPATIAL),
                ..siglip
            },
            Self::Qwen25Vl => Rules {
                filter: Filter::Bicubic,
                places: Places::Unlearned,
                axes: Some(Axes::Alike),
                norm: Norm::Rms,
                norm_after: false,
                gelu: Activation::GeluErf,
                merge: (2, SPATIAL),
                ..siglip
            },
            Self::Qwen3Vl => Rules {
                filter: Filter::Bicubic,
                places: Places::Corners,
                norm_after: false,
                axes: Some(Axes::Alike),
                merge: (2, SPATIAL),
                ..siglip
            },
        }
    }
}
