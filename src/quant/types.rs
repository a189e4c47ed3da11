//! The tensor types of GGUF and the geometry of their blocks.
//!
//! Source: `enum ggml_type` and the block structs of ggml (`ggml.h`, `ggml-common.h`).

/// A tensor's element type, by its number in the file.
///
/// All current types are named, so that a file can be listed; [`crate::kernel`] says which run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
#[allow(non_camel_case_types, missing_docs)] // the names are ggml's
pub enum TensorType {
    F32 = 0,
    F16 = 1,
    Q4_0 = 2,
    Q4_1 = 3,
    Q5_0 = 6,
    Q5_1 = 7,
    Q8_0 = 8,
    Q8_1 = 9,
    Q2_K = 10,
    Q3_K = 11,
    Q4_K = 12,
    Q5_K = 13,
    Q6_K = 14,
    Q8_K = 15,
    IQ2_XXS = 16,
    IQ2_XS = 17,
    IQ3_XXS = 18,
    IQ1_S = 19,
    IQ4_NL = 20,
    IQ3_S = 21,
    IQ2_S = 22,
    IQ4_XS = 23,
    I8 = 24,
    I16 = 25,
    I32 = 26,
    I64 = 27,
    F64 = 28,
    IQ1_M = 29,
    BF16 = 30,
    TQ1_0 = 34,
    TQ2_0 = 35,
    MXFP4 = 39,
}

impl TensorType {
    /// The type with this number in the file; `None` for numbers never used or withdrawn
    /// (4, 5, 31 to 33, 36 to 38).
    pub const fn from_id(id: u32) -> Option<Self> {
        use TensorType::*;
        Some(match id {
            0 => F32,
            1 => F16,
            2 => Q4_0,
            3 => Q4_1,
            6 => Q5_0,
            7 => Q5_1,
            8 => Q8_0,
            9 => Q8_1,
            10 => Q2_K,
            11 => Q3_K,
            12 => Q4_K,
            13 => Q5_K,
            14 => Q6_K,
            15 => Q8_K,
            16 => IQ2_XXS,
            17 => IQ2_XS,
            18 => IQ3_XXS,
            19 => IQ1_S,
            20 => IQ4_NL,
            21 => IQ3_S,
            22 => IQ2_S,
            23 => IQ4_XS,
            24 => I8,
            25 => I16,
            26 => I32,
            27 => I64,
            28 => F64,
            29 => IQ1_M,
            30 => BF16,
            34 => TQ1_0,
            35 => TQ2_0,
            39 => MXFP4,
            _ => return None,
        })
    }

    /// Whether this build has code for it: all types that can be run, less what the crate's features leave out.
    #[allow(clippy::match_like_matches_macro)] // only where all features are on
    pub const fn is_built(self) -> bool {
        use TensorType::*;
        match self {
            F32 => true,
            F16 | BF16 => cfg!(feature = "half-floats"),
            Q8_0 => cfg!(feature = "q8_0"),
            Q4_0 => cfg!(feature = "q4_0"),
            Q6_K => cfg!(feature = "q6_k"),
            _ => false,
        }
    }

    /// Elements per block and bytes per block.
    pub const fn block(self) -> (usize, usize) {
        use TensorType::*;
        match self {
            F32 | I32 => (1, 4),
            F16 | BF16 | I16 => (1, 2),
            I8 => (1, 1),
            I64 | F64 => (1, 8),
            Q4_0 => (32, 18),
            Q4_1 => (32, 20),
            Q5_0 => (32, 22),
            Q5_1 => (32, 24),
            Q8_0 => (32, 34),
            Q8_1 => (32, 36),
            IQ4_NL => (32, 18),
            MXFP4 => (32, 17),
            Q2_K => (256, 84),
            Q3_K => (256, 110),
            Q4_K => (256, 144),
            Q5_K => (256, 176),
            Q6_K => (256, 210),
            Q8_K => (256, 292),
            IQ2_XXS => (256, 66),
            IQ2_XS => (256, 74),
            IQ3_XXS => (256, 98),
            IQ1_S => (256, 50),
            IQ3_S => (256, 110),
            IQ2_S => (256, 82),
            IQ4_XS => (256, 136),
            IQ1_M => (256, 56),
            TQ1_0 => (256, 54),
            TQ2_0 => (256, 66),
        }
    }

    /// Bytes of a row of `len` elements; `None` if that is not a whole number of blocks.
    pub const fn row_bytes(self, len: usize) -> Option<usize> {
        let (elements, bytes) = self.block();
        if len.is_multiple_of(elements) { (len / elements).checked_mul(bytes) } else { None }
    }
}
