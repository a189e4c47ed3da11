//! Reads a checkpoint: the model's dimensions, then its matrices.
//!
//! | version | begins with | matrices |
//! |---|---|---|
//! | 0 | seven i32; a negative vocabulary size means a separate output matrix | f32, with two rotation tables before the output matrix |
//! | 1 | magic, version, seven i32, a flag for a tied output matrix; padded to 256 bytes | f32, norms first |
//! | 2 | the same, and the group size | norms in f32; int8 with an f32 scale per group |

use anyhow::{Context, Result, bail, ensure};
use arenite::quant::TensorType;
use half::f16;

use super::Int8;
use crate::tensor::Tensor;
use arenite_gguf_writer::Header;

const MAGIC: u32 = 0x616b_3432;
/// Size of the header from version 1 on.
const HEADER: usize = 256;
/// Weights per q8_0 block.
const BLOCK: usize = 32;

/// A checkpoint, split into its tensors.
pub struct Checkpoint<'s> {
    version: u32,
    dim: usize,
    hidden: usize,
    layers: usize,
    heads: usize,
    kv_heads: usize,
    pub vocab: usize,
    context: usize,
    /// Weights per scale in version 2; 0 in the other versions.
    group: usize,
    tensors: Vec<(String, Vec<u64>, Data<'s>)>,
}

/// The values of a tensor.
enum Data<'s> {
    F32(&'s [u8]),
    Int8 { numbers: &'s [u8], scales: &'s [u8] },
}

/// Returns true if a file may be a llama2.c checkpoint, because it has the magic number or starts with seven plausible
/// numbers.
pub fn is_checkpoint(file: &[u8]) -> bool {
    file.starts_with(&MAGIC.to_le_bytes()) || Checkpoint::numbers(file, 0).is_ok()
}

/// The unread rest of a file.
struct Rest<'s> {
    bytes: &'s [u8],
    /// Number of bytes missing from the file so far.
    missing: u64,
}

impl<'s> Rest<'s> {
    /// Takes the next `count` values of `size` bytes. If the file is too short, returns an empty slice and counts the
    /// missing bytes for [`finish`](Self::finish).
    fn take(&mut self, count: u64, size: u64) -> &'s [u8] {
        let bytes = count.saturating_mul(size);
        match usize::try_from(bytes).ok().and_then(|bytes| self.bytes.split_at_checked(bytes)) {
            Some((taken, rest)) if self.missing == 0 => {
                self.bytes = rest;
                taken
            }
            _ => {
                self.missing = self.missing.saturating_add(bytes.saturating_sub(self.bytes.len() as u64));
                self.bytes = &[];
                &[]
            }
        }
    }

    fn finish(self) -> Result<()> {
        let (missing, more) = (self.missing, self.bytes.len());
        ensure!(missing == 0, "the file is truncated: {missing} bytes of matrices are missing; download it again");
        ensure!(more == 0, "{more} bytes follow the last matrix: the file is damaged, or is not a llama2.c checkpoint");
        Ok(())
    }
}

impl<'s> Checkpoint<'s> {
    pub fn read(file: &'s [u8]) -> Result<Self> {
        let word = |at: usize| Some(u32::from_le_bytes(*file.get(at..)?.first_chunk()?));
        if word(0) != Some(MAGIC) {
            let (mut checkpoint, tied) = Self::numbers(file, 0).context("this is not a llama2.c checkpoint")?;
            let mut rest = Rest { bytes: file.get(28..).unwrap_or_default(), missing: 0 };
            checkpoint.cut_version_0(&mut rest, tied);
            rest.finish()?;
            return Ok(checkpoint);
        }
        let version = word(4).context("the file is truncated: download it again")?;
        let (mut checkpoint, _) = Self::numbers(file, 8)?;
        let tied = *file.get(36).context("the file is truncated: download it again")? != 0;
        checkpoint.version = version;
        match version {
            1 => {}
            2 => {
                let group = word(37).and_then(|group| usize::try_from(group).ok()).unwrap_or(0);
                ensure!(
                    (1..=1 << 20).contains(&group),
                    "groups of {group} weights are not supported: export the model with smaller ones"
                );
                checkpoint.group = group;
            }
            _ => bail!("unknown checkpoint version {version}: export the model as version 0, 1 or 2"),
        }
        let mut rest = Rest { bytes: file.get(HEADER..).unwrap_or_default(), missing: 0 };
        checkpoint.cut(&mut rest, tied)?;
        rest.finish()?;
        Ok(checkpoint)
    }

    /// Reads the seven sizes at the start of a llama2.c checkpoint. The flag is true if the output matrix is the
    /// embedding, which the file marks by a positive vocabulary size.
    fn numbers(file: &[u8], at: usize) -> Result<(Self, bool)> {
        let words = file
            .get(at..)
            .and_then(|rest| rest.first_chunk::<28>())
            .context("the file is truncated: download it again")?;
        let words: [i32; 7] =
            std::array::from_fn(|i| words.as_chunks().0.get(i).map_or(0, |word| i32::from_le_bytes(*word)));
        let tied = words[5] > 0;
        let [dim, hidden, layers, heads, kv_heads, vocab, context] = words.map(|n| n.unsigned_abs() as usize);
        let is_usual = words.iter().enumerate().all(|(i, n)| *n > 0 || i == 5 && *n < 0)
            && [dim, hidden, vocab, context].iter().all(|n| *n <= 1 << 24)
            && layers <= 1 << 12
            && dim.is_multiple_of(heads)
            && (dim / heads).is_multiple_of(2)
            && heads.is_multiple_of(kv_heads);
        ensure!(
            is_usual,
            "its dimensions are inconsistent: {words:?} for dim, hidden, layers, heads, kv_heads, vocab, context"
        );
        let tensors = Vec::new();
        Ok((Self { version: 0, dim, hidden, layers, heads, kv_heads, vocab, context, group: 0, tensors }, tied))
    }

    /// Name, number of rows and number of columns of each matrix of a layer, in the order of version 0.
    fn matrices(&self) -> [(&'static str, usize, usize); 7] {
        let kv = self.dim / self.heads * self.kv_heads;
        [
            ("attn_q", self.dim, self.dim),
            ("attn_k", kv, self.dim),
            ("attn_v", kv, self.dim),
            ("attn_output", self.dim, self.dim),
            ("ffn_gate", self.hidden, self.dim),
            ("ffn_down", self.dim, self.hidden),
            ("ffn_up", self.hidden, self.dim),
        ]
    }

    fn cut_version_0(&mut self, rest: &mut Rest<'s>, tied: bool) {
        let (dim, vocab) = (self.dim, self.vocab);
        let [q, k, v, output, gate, down, up] = self.matrices();
        self.matrix(rest, "token_embd.weight".to_string(), vocab, dim);
        self.norms(rest, "attn_norm");
        for (name, rows, columns) in [q, k, v, output] {
            self.each_layer(rest, name, rows, columns);
        }
        self.norms(rest, "ffn_norm");
        for (name, rows, columns) in [gate, down, up] {
            self.each_layer(rest, name, rows, columns);
        }
        self.vector(rest, "output_norm.weight".to_string());
        // The tables of cosines and sines are not needed, because programs that read GGUF compute them.
        rest.take(self.context as u64 * (dim / self.heads) as u64, 4);
        if !tied {
            self.matrix(rest, "output.weight".to_string(), vocab, dim);
        }
    }

    /// Splits the matrices of a version 1 or 2 file into tensors.
    fn cut(&mut self, rest: &mut Rest<'s>, tied: bool) -> Result<()> {
        let (dim, vocab, group) = (self.dim, self.vocab, self.group);
        self.norms(rest, "attn_norm");
        self.norms(rest, "ffn_norm");
        self.vector(rest, "output_norm.weight".to_string());
        for (name, rows, columns) in self.matrices().into_iter().chain([("token_embd", vocab, dim)]) {
            let is_whole = group == 0 || (rows * columns).is_multiple_of(group);
            ensure!(is_whole, "{name} has {rows} x {columns} weights, which are not whole groups of {group}");
        }
        self.matrix(rest, "token_embd.weight".to_string(), vocab, dim);
        for (name, rows, columns) in self.matrices() {
            self.each_layer(rest, name, rows, columns);
        }
        if !tied {
            self.matrix(rest, "output.weight".to_string(), vocab, dim);
        }
        Ok(())
    }

    fn norms(&mut self, rest: &mut Rest<'s>, name: &str) {
        for layer in 0..self.layers {
            self.vector(rest, format!("blk.{layer}.{name}.weight"));
        }
    }

    fn each_layer(&mut self, rest: &mut Rest<'s>, name: &str, rows: usize, columns: usize) {
        for layer in 0..self.layers {
            self.matrix(rest, format!("blk.{layer}.{name}.weight"), rows, columns);
        }
    }

    fn vector(&mut self, rest: &mut Rest<'s>, name: String) {
        let len = self.dim as u64;
        self.tensors.push((name, vec![len], Data::F32(rest.take(len, 4))));
    }

    fn matrix(&mut self, rest: &mut Rest<'s>, name: String, rows: usize, columns: usize) {
        let count = rows as u64 * columns as u64;
        let data = match self.group {
            0 => Data::F32(rest.take(count, 4)),
            group => Data::Int8 { numbers: rest.take(count, 1), scales: rest.take(count / group as u64, 4) },
        };
        self.tensors.push((name, vec![columns as u64, rows as u64], data));
    }

    /// A description of the file.
    pub fn kind(&self) -> String {
        let numbers = match self.group {
            0 => "f32".to_string(),
            group => format!("int8 in groups of {group}"),
        };
        format!("llama2.c version {}, {numbers}", self.version)
    }

    pub fn keys(&self, header: &mut Header) {
        let numbers = [
            ("context_length", self.context),
            ("embedding_length", self.dim),
            ("block_count", self.layers),
            ("feed_forward_length", self.hidden),
            ("attention.head_count", self.heads),
            ("attention.head_count_kv", self.kv_heads),
            ("rope.dimension_count", self.dim / self.heads),
            ("vocab_size", self.vocab),
        ];
        for (key, number) in numbers {
            header.set(&format!("llama.{key}"), number as u32);
        }
        header.set(super::VERSION, self.version);
        header.set("llama.rope.freq_base", 10000.0f32);
        header.set("llama.attention.layer_norm_rms_epsilon", 1e-5f32);
        header.set("general.file_type", if self.group == 0 { 0u32 } else { 7 });
        if self.group != 0 {
            header.set("general.quantization_version", 2u32);
        }
    }

    /// Converts the tensors to GGUF. Adds a line to `notes` for each group of values that is not kept exactly.
    pub fn tensors(self, int8: Int8, notes: &mut Vec<String>) -> Vec<Tensor<'s>> {
        let (group, mut kept, mut requantized, mut wide) = (self.group, 0, 0, 0);
        let tensors = self.tensors.into_iter().map(|(name, dims, data)| {
            let f32 = |bytes| Tensor { name: name.clone(), dims: dims.clone(), kind: TensorType::F32, bytes };
            match data {
                Data::F32(bytes) => f32(bytes.into()),
                Data::Int8 { numbers, scales } => match q8_0(numbers, scales, group, dims.first().copied()) {
                    _ if int8 == Int8::Kept
                        && let Some(kind) = kept_type(group, &dims) =>
                    {
                        Tensor { name, dims, kind, bytes: interleaved(numbers, scales, group).into() }
                    }
                    Some(bytes) => {
                        kept += 1;
                        Tensor { name, dims, kind: TensorType::Q8_0, bytes: bytes.into() }
                    }
                    None => {
                        let tensor = f32(widened(numbers, scales, group).into()).into_q8_0();
                        *if tensor.kind == TensorType::F32 { &mut wide } else { &mut requantized } += 1;
                        tensor
                    }
                },
            }
        });
        let tensors = tensors.collect();
        if kept > 0 {
            notes.push(format!(
                "{kept} matrices keep their int8 values, in blocks of {BLOCK} with scales in f16; for the very text of \
                 runq.c give the checkpoint itself with -m and --tokenizer"
            ));
        }
        if requantized > 0 {
            notes.push(format!(
                "{requantized} matrices are requantized: groups of {group} are not whole blocks of {BLOCK}"
            ));
        }
        if wide > 0 {
            notes.push(format!("{wide} matrices become f32: their rows are not whole blocks of {BLOCK}"));
        }
        tensors
    }
}

/// The scales of the groups.
fn scales_of(scales: &[u8]) -> impl Iterator<Item = f32> {
    scales.as_chunks().0.iter().map(|scale| f32::from_le_bytes(*scale))
}

/// Returns the tensor type that can store quantized groups of `group` weights without changing them. `None` if there is
/// none for these dimensions.
fn kept_type(group: usize, dims: &[u64]) -> Option<TensorType> {
    let is_whole = dims.first().is_some_and(|row| row.is_multiple_of(group as u64));
    match group {
        32 if is_whole => Some(TensorType::Q8_G32),
        64 if is_whole => Some(TensorType::Q8_G64),
        _ => None,
    }
}

/// Interleaves the groups: each group's scale, then the group's values.
fn interleaved(numbers: &[u8], scales: &[u8], group: usize) -> Vec<u8> {
    let mut out = Vec::with_capacity(numbers.len() + scales.len());
    for (numbers, scale) in numbers.chunks(group).zip(scales.as_chunks::<4>().0) {
        out.extend(scale);
        out.extend(numbers);
    }
    out
}

/// Converts the weights to f32.
fn widened(numbers: &[u8], scales: &[u8], group: usize) -> Vec<u8> {
    let groups = numbers.chunks(group.max(1)).zip(scales_of(scales));
    groups
        .flat_map(|(numbers, scale)| numbers.iter().flat_map(move |n| (f32::from(*n as i8) * scale).to_le_bytes()))
        .collect()
}

/// Converts groups to q8_0 blocks with the same values and f16 scales. Returns `None` if a block would need two scales,
/// or if a scale is outside the range in which f16 has its full precision of 11 bits.
fn q8_0(numbers: &[u8], scales: &[u8], group: usize, row: Option<u64>) -> Option<Vec<u8>> {
    let fits = |scale: f32| scale == 0.0 || (f16::MIN_POSITIVE.to_f32()..=f16::MAX.to_f32()).contains(&scale.abs());
    let is_whole = group.is_multiple_of(BLOCK) && row.is_some_and(|row| row.is_multiple_of(BLOCK as u64));
    if !is_whole || !scales_of(scales).all(fits) {
        return None;
    }
    let mut out = Vec::with_capacity(numbers.len() / BLOCK * (BLOCK + 2));
    for (numbers, scale) in numbers.chunks(group).zip(scales_of(scales)) {
        for block in numbers.chunks(BLOCK) {
            out.extend(f16::from_f32(scale).to_le_bytes());
            out.extend(block);
        }
    }
    Some(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns a version 2 file of a model with one layer, width 4, a feed-forward of width 6, one head and three
    /// tokens.
    fn version_2(group: usize, tied: bool) -> Vec<u8> {
        let mut file = MAGIC.to_le_bytes().to_vec();
        [2, 4, 6, 1, 2, 1, 3, 8].iter().for_each(|n: &i32| file.extend(n.to_le_bytes()));
        file.push(u8::from(tied));
        file.extend((group as i32).to_le_bytes());
        file.resize(HEADER, 0);
        (0..12).for_each(|i| file.extend((i as f32).to_le_bytes()));
        for count in [12, 16, 8, 8, 16, 24, 24, 24].into_iter().chain((!tied).then_some(12)) {
            file.extend((0..count).map(|i: usize| i as u8));
            file.extend((0..count / group).flat_map(|i| (0.5 + i as f32).to_le_bytes()));
        }
        file
    }

    #[test]
    fn groups_become_numbers_again() {
        for tied in [true, false] {
            let file = version_2(4, tied);
            let checkpoint = Checkpoint::read(&file).unwrap();
            assert_eq!((checkpoint.vocab, checkpoint.tensors.len()), (3, 3 + 8 + usize::from(!tied)));
            let mut notes = Vec::new();
            let tensors = checkpoint.tensors(Int8::Q8_0, &mut notes);
            assert!(notes.len() == 1 && notes[0].contains("f32"), "{notes:?}");
            let down = tensors.iter().find(|tensor| tensor.name == "blk.0.ffn_down.weight").unwrap();
            assert_eq!(down.dims, [6, 4]);
            let numbers: Vec<f32> = down.bytes.as_chunks().0.iter().map(|b| f32::from_le_bytes(*b)).collect();
            assert_eq!(numbers[..6], [0.0, 0.5, 1.0, 1.5, 6.0, 7.5]);
        }
    }

    #[test]
    fn blocks_keep_the_numbers_of_their_group() {
        let numbers: Vec<u8> = (0..128).collect();
        let scales: Vec<u8> = [0.25f32, 3.0].iter().flat_map(|scale| scale.to_le_bytes()).collect();
        let blocks = q8_0(&numbers, &scales, 64, Some(64)).unwrap();
        assert_eq!(blocks.len(), 4 * 34);
        for (i, block) in blocks.chunks(34).enumerate() {
            let scale = if i < 2 { 0.25 } else { 3.0 };
            assert_eq!(block[..2], f16::from_f32(scale).to_le_bytes());
            assert_eq!(block[2..], numbers[32 * i..][..32]);
        }
        assert!(q8_0(&numbers, &scales, 48, Some(64)).is_none());
        assert!(q8_0(&numbers, &scales, 64, Some(16)).is_none());
        for scale in [1e-6f32, 1e9, f32::NAN] {
            assert!(q8_0(&numbers, &scale.to_le_bytes(), 128, Some(128)).is_none(), "{scale}");
        }
    }

    #[test]
    fn what_is_no_checkpoint_is_told() {
        let file = version_2(4, true);
        let error = |file: &[u8]| format!("{:#}", Checkpoint::read(file).err().unwrap());
        assert!(error(&file[..file.len() - 3]).contains("3 bytes of matrices are missing"));
        assert!(error(&[&file[..], b"x"].concat()).contains("1 bytes follow"));
        assert!(error(&file[..30]).contains("truncated"));
        let with = |at: usize, value: i32| {
            let mut file = file.clone();
            file[at..at + 4].copy_from_slice(&value.to_le_bytes());
            file
        };
        assert!(error(&with(4, 3)).contains("version 3"));
        assert!(error(&with(37, 0)).contains("groups of 0"));
        assert!(error(&with(37, 5)).contains("groups of 5"));
        assert!(error(&with(8, i32::MAX)).contains("inconsistent"));
        assert!(error(&with(16, i32::MAX)).contains("inconsistent"));
        assert!(error(&with(20, 0)).contains("inconsistent"));
        assert!(error(b"GGUF").contains("not a llama2.c checkpoint"));
        assert!(!is_checkpoint(b"GGUF\x03\0\0\0aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"));
        assert!(is_checkpoint(&file));
    }
}
