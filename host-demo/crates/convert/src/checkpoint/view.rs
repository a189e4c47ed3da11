//! Strided views of stored tensors. Views are reshaped, sliced and transposed without copies, and values are decoded on
//! reading, because a checkpoint may be larger than the memory.

use std::sync::Arc;

use anyhow::{Context, Result, ensure};
use arenite::quant::TensorType;

use super::leaf::{Coding, Leaf};

/// An arithmetic operation on each value, in f32.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Step {
    Add(f32),
    Times(f32),
    /// `-exp(x)`.
    NegativeExp,
}

/// A selection of a stored tensor's values in some order. Arithmetic operations may be applied to each value.
#[derive(Clone, Debug)]
pub struct View<'f> {
    leaf: Arc<Leaf<'f>>,
    start: usize,
    /// The outermost dimension first.
    shape: Vec<usize>,
    /// Distance between consecutive indices of each dimension, in elements of the stored tensor.
    strides: Vec<usize>,
    /// Dimensions of the result, if strides cannot express them.
    dims: Option<Vec<usize>>,
    steps: Vec<Step>,
}

impl<'f> View<'f> {
    /// A view of a whole stored tensor.
    pub fn new(leaf: Arc<Leaf<'f>>) -> Self {
        let (shape, strides) = (leaf.shape.clone(), leaf.strides.clone());
        Self { leaf, start: 0, shape, strides, dims: None, steps: Vec::new() }
    }

    /// The stored tensor's name.
    pub fn name(&self) -> &str {
        &self.leaf.name
    }

    pub fn leaf(&self) -> &Leaf<'f> {
        &self.leaf
    }

    pub fn shape(&self) -> &[usize] {
        &self.shape
    }

    pub fn len(&self) -> usize {
        self.shape.iter().product()
    }

    /// The dimensions of the result.
    pub fn dims(&self) -> &[usize] {
        self.dims.as_deref().unwrap_or(&self.shape)
    }

    /// Gives the view other dimensions. The values stay the same, also in their order.
    pub fn seen_as(mut self, dims: &[usize]) -> Result<Self> {
        ensure!(
            dims.iter().product::<usize>() == self.len(),
            "the tensor {} has shape {:?}, but config.json requires {dims:?}",
            self.name(),
            self.leaf.shape
        );
        self.dims = Some(dims.to_vec());
        Ok(self)
    }

    /// The size of dimension `dim`.
    pub fn size(&self, dim: usize) -> Result<usize> {
        let size = self.shape.get(dim).copied();
        size.with_context(|| {
            format!(
                "the tensor {} has only {} dimensions: config.json does not match it",
                self.name(),
                self.shape.len()
            )
        })
    }

    /// Changes the dimensions. The values and their order do not change.
    pub fn reshape(mut self, shape: &[usize]) -> Result<Self> {
        let wrong = |view: &Self| format!("the tensor {} has shape {:?}, not {shape:?}", view.name(), view.leaf.shape);
        ensure!(shape.iter().product::<usize>() == self.len(), "{}", wrong(&self));
        let old: Vec<(usize, usize)> =
            self.shape.iter().copied().zip(self.strides.iter().copied()).filter(|(n, _)| *n != 1).collect();
        let mut strides = vec![0; shape.len()];
        let (mut from, mut to) = (0, 0);
        while from < old.len() {
            // Finds the next groups of adjacent dimensions, one in the old shape and one in the new shape. They are the
            // smallest groups that have the same number of values.
            let (mut old_end, mut new_end) = (from + 1, to + 1);
            let (mut old_len, mut new_len) = (old[from].0, *shape.get(to).with_context(|| wrong(&self))?);
            while old_len != new_len {
                if old_len < new_len {
                    old_len *= old.get(old_end).with_context(|| wrong(&self))?.0;
                    old_end += 1;
                } else {
                    new_len *= shape.get(new_end).with_context(|| wrong(&self))?;
                    new_end += 1;
                }
            }
            let adjacent = old[from..old_end].windows(2).all(|pair| pair[0].1 == pair[1].1 * pair[1].0);
            ensure!(adjacent, "the tensor {} cannot be viewed as {shape:?}", self.name());
            let mut stride = old[old_end - 1].1;
            for dim in (to..new_end).rev() {
                strides[dim] = stride;
                stride *= shape[dim];
            }
            (from, to) = (old_end, new_end);
        }
        (self.shape, self.strides) = (shape.to_vec(), strides);
        Ok(self)
    }

    /// Exchanges two dimensions.
    pub fn swap(mut self, a: usize, b: usize) -> Result<Self> {
        self.size(a.max(b))?;
        self.shape.swap(a, b);
        self.strides.swap(a, b);
        Ok(self)
    }

    /// Exchanges the last two dimensions.
    pub fn transpose(self) -> Result<Self> {
        let dims = self.shape.len();
        ensure!(dims >= 2, "the tensor {} is not a matrix", self.name());
        self.swap(dims - 2, dims - 1)
    }

    /// Selects `len` indices of dimension `dim`: every `step`th index from `start` on.
    pub fn every(mut self, dim: usize, start: usize, step: usize, len: usize) -> Result<Self> {
        let last = len.checked_sub(1).map_or(start, |last| start + last * step);
        ensure!(
            len > 0 && last < self.size(dim)?,
            "the tensor {} has shape {:?}, which is smaller than config.json requires",
            self.name(),
            self.leaf.shape
        );
        self.start += start * self.strides[dim];
        self.shape[dim] = len;
        self.strides[dim] *= step;
        Ok(self)
    }

    /// Selects `len` consecutive indices of dimension `dim`, beginning with the index `start`.
    pub fn slice(self, dim: usize, start: usize, len: usize) -> Result<Self> {
        self.every(dim, start, 1, len)
    }

    /// A view without values; no tensor is made of it.
    pub fn nothing(mut self) -> Self {
        (self.shape, self.strides) = (vec![0], vec![1]);
        self
    }

    /// Splits dimension `dim` into consecutive parts with the sizes `sizes`.
    pub fn split(self, dim: usize, sizes: &[usize]) -> Result<Vec<Self>> {
        let all: usize = sizes.iter().sum();
        ensure!(
            all == self.size(dim)?,
            "the tensor {} has shape {:?}, but config.json requires {all} in dimension {dim}",
            self.name(),
            self.leaf.shape
        );
        let mut start = 0;
        let part = |&len: &usize| {
            start += len;
            self.clone().slice(dim, start - len, len)
        };
        sizes.iter().map(part).collect()
    }

    /// Splits dimension `dim` into `parts` equal parts.
    pub fn parts(self, dim: usize, parts: usize) -> Result<Vec<Self>> {
        let size = self.size(dim)?;
        ensure!(
            size.is_multiple_of(parts),
            "the tensor {} cannot be divided into {parts} equal parts, as config.json requires",
            self.name()
        );
        self.split(dim, &vec![size / parts; parts])
    }

    /// Inserts a dimension of `size` indices at index `dim`. The values are the same for each of these indices.
    pub fn repeat(mut self, dim: usize, size: usize) -> Self {
        self.shape.insert(dim, size);
        self.strides.insert(dim, 0);
        self
    }

    /// Changes the factors of a stored tensor in the same way as this view changes the tensor. The tensor is the
    /// product of the two factors, summed over the rank. A factor has the dimensions of the tensor and the rank;
    /// dimensions on which it does not depend are repeated. Returns the factors with the dimensions `[.., rank,
    /// columns]` and `[.., rows, rank]`, and the index in `factors` of the factor that has the columns.
    pub fn factors(&self, factors: &[Self; 2]) -> Result<([Self; 2], usize)> {
        let wrong = || format!("the factors of {} cannot be reordered as the model's tensor is", self.name());
        let is_scaled = self.steps.iter().all(|step| matches!(step, Step::Times(_)));
        ensure!(is_scaled && factors.iter().all(|half| half.dims.is_none()), wrong());
        let axes = &self.leaf.strides;
        let axis_of = |stride: usize| axes.iter().position(|axis| *axis <= stride).unwrap_or(0);
        // For each of the two factors, where it starts and with what stride it is read along each dimension of the
        // view.
        let mut starts = factors.each_ref().map(|half| half.start);
        let mut left = self.start;
        for (axis, stride) in axes.iter().enumerate() {
            (0..2).for_each(|half| starts[half] += left / stride * factors[half].strides[axis]);
            left %= stride;
        }
        let mut strides = Vec::new();
        for (&size, &stride) in self.shape.iter().zip(&self.strides) {
            let axis = axis_of(stride);
            let step = stride / axes[axis];
            ensure!(size == 1 || (size - 1) * step < self.leaf.shape[axis], wrong());
            strides.push(factors.each_ref().map(|half| if size == 1 { 0 } else { half.strides[axis] * step }));
        }
        // The view's last dimensions form the columns of a matrix, the dimensions before them the rows, and the first
        // dimensions count the matrices. `ends` has the end of each of the three groups, in this order.
        let mut ends = [self.shape.len(); 3];
        let dims = self.dims();
        for (group, dim) in dims.iter().rev().take(2).enumerate() {
            let (mut at, mut len) = (ends[group], 1);
            while at > 0 && (len < *dim || group + 1 == dims.len()) {
                at -= 1;
                len *= self.shape[at];
            }
            ensure!(len == *dim, wrong());
            ends[group + 1..].fill(at);
        }
        let [all, columns, rows] = ends;
        let depends = |half: usize, dims: std::ops::Range<usize>| strides[dims].iter().any(|dim| dim[half] > 0);
        let of_columns = usize::from(!depends(0, columns..all));
        let of_rows = 1 - of_columns;
        ensure!(!depends(of_rows, columns..all) && !depends(of_columns, rows..columns), wrong());
        let pick = |half: usize, dims: std::ops::Range<usize>, is_last: bool| {
            let rank = factors[half].shape.len() - 1;
            let mut view = Self { start: starts[half], ..factors[half].clone() };
            let (size, stride) = (view.shape[rank], view.strides[rank]);
            view.shape = [&self.shape[..rows], &self.shape[dims.clone()]].concat();
            view.strides = (0..rows).chain(dims.clone()).map(|dim| strides[dim][half]).collect();
            let place = if is_last { view.shape.len() } else { rows };
            view.shape.insert(place, size);
            view.strides.insert(place, stride);
            let len = self.shape[dims].iter().product();
            let mut dims = self.shape[..rows].to_vec();
            dims.extend(if is_last { [len, size] } else { [size, len] });
            if view.shape == dims { Ok(view) } else { view.seen_as(&dims) }
        };
        let mut of_rows = pick(of_rows, rows..columns, true)?;
        of_rows.steps.extend(&self.steps);
        Ok(([pick(of_columns, columns..all, false)?, of_rows], of_columns))
    }

    /// Removes dimensions of size 1.
    pub fn squeeze(mut self) -> Self {
        let kept: Vec<usize> = (0..self.shape.len()).filter(|&dim| self.shape[dim] != 1).collect();
        self.shape = kept.iter().map(|&dim| self.shape[dim]).collect();
        self.strides = kept.iter().map(|&dim| self.strides[dim]).collect();
        if self.shape.is_empty() {
            (self.shape, self.strides) = (vec![1], vec![1]);
        }
        self
    }

    /// Appends an operation on each value.
    pub fn then(mut self, step: Step) -> Self {
        self.steps.push(step);
        self
    }

    /// Decodes values from index `start` on into `out`.
    pub fn read(&self, start: usize, out: &mut [f32]) {
        self.runs(start, out.len(), |at, place, len, stride| {
            self.leaf.decode(place, stride, &mut out[at..at + len]);
        });
        for step in &self.steps {
            match *step {
                Step::Add(x) => out.iter_mut().for_each(|value| *value += x),
                Step::Times(x) => out.iter_mut().for_each(|value| *value *= x),
                Step::NegativeExp => out.iter_mut().for_each(|value| *value = -exp(*value)),
            }
        }
    }

    /// Returns the stored blocks, if the view is an unchanged whole tensor of type `kind`.
    pub fn blocks(&self, kind: TensorType) -> Option<&'f [u8]> {
        let is_whole = self.shape == self.leaf.shape && self.strides == self.leaf.strides && self.steps.is_empty();
        (is_whole && self.leaf.coding == Coding::Blocks(kind)).then(|| self.leaf.blocks(kind, 0, self.len()))
    }

    /// The stored bytes of the `len` values from index `start` on, if they are consecutive floats of type `kind` that
    /// the view does not change.
    pub fn floats(&self, kind: TensorType, start: usize, len: usize) -> Option<&'f [u8]> {
        let Leaf { bytes, coding, scale: None, of_columns: None, rounding: None, .. } = &*self.leaf else {
            return None;
        };
        let is_same = match coding {
            Coding::F32 => kind == TensorType::F32,
            Coding::F16 => kind == TensorType::F16,
            Coding::BF16 => kind == TensorType::BF16,
            _ => false,
        };
        if !is_same || !self.steps.is_empty() {
            return None;
        }
        let (mut place, mut follow) = (None, true);
        self.runs(start, len, |at, from, count, stride| {
            follow &= (stride == 1 || count == 1) && *place.get_or_insert(from) + at == from;
        });
        let place = place.filter(|_| follow)?;
        bytes.get(place * coding.size()..(place + len) * coding.size())
    }

    /// Reads the codes of 4-bit weights from index `start` on, and the factor of each weight's group.
    pub fn read_codes(&self, start: usize, codes: &mut [u8], scales: &mut [u8]) {
        let Coding::Four(kind) = self.leaf.coding else { return };
        self.runs(start, codes.len(), |at, place, len, stride| {
            for i in at..at + len {
                let weight = place + (i - at) * stride;
                codes[i] = self.leaf.code(weight);
                scales[i] = self.leaf.groups.get(weight / kind.group()).copied().unwrap_or(0);
            }
        });
    }

    /// Returns true if each block of `size` values of a row is stored contiguously from a multiple of `size` on, and if
    /// the view does not change the values.
    pub fn has_whole_blocks(&self, size: usize) -> bool {
        let (Some(inner), Some(1)) = (self.shape.last(), self.strides.last()) else { return false };
        let outer = &self.strides[..self.strides.len() - 1];
        self.steps.is_empty()
            && self.start.is_multiple_of(size)
            && inner.is_multiple_of(size)
            && outer.iter().all(|stride| stride.is_multiple_of(size))
    }

    /// Divides the `len` values of the view from index `start` on into runs, in which the stored values have a constant
    /// distance. Calls `run` for each of them, with its position among these values, its position in the stored tensor,
    /// its length and the distance.
    pub fn runs(&self, start: usize, len: usize, mut run: impl FnMut(usize, usize, usize, usize)) {
        let inner = self.shape.last().copied().unwrap_or(1).max(1);
        let stride = self.strides.last().copied().unwrap_or(1);
        let mut at = 0;
        while at < len {
            let mut rest = (start + at) / inner;
            let column = (start + at) % inner;
            let mut place = self.start + column * stride;
            for (size, stride) in self.shape.iter().zip(&self.strides).rev().skip(1) {
                place += rest % size * stride;
                rest /= size;
            }
            let count = (inner - column).min(len - at);
            run(at, place, count, stride);
            at += count;
        }
    }
}

/// The exponential, correctly rounded.
fn exp(x: f32) -> f32 {
    f64::from(x).exp() as f32
}

#[cfg(test)]
mod tests {
    use super::*;

    fn numbers(shape: &[usize]) -> View<'static> {
        let len: usize = shape.iter().product();
        let bytes: Vec<u8> = (0..len).flat_map(|i| (i as f32).to_le_bytes()).collect();
        View::new(Arc::new(Leaf::new("numbers", bytes.leak(), Coding::F32, shape)))
    }

    fn values(view: &View<'_>) -> Vec<f32> {
        let mut out = vec![0.0; view.len()];
        // Reads in pieces that are not aligned to rows.
        for (i, piece) in out.chunks_mut(5).enumerate() {
            view.read(i * 5, piece);
        }
        out
    }

    #[test]
    fn rows_are_permuted_as_by_reshapes() {
        // The test's matrix has two heads of four rows each. Two rows that were half a head apart become neighbours.
        let view = numbers(&[8, 3]).reshape(&[2, 2, 2, 3]).unwrap().swap(1, 2).unwrap();
        let rows: Vec<usize> = values(&view).chunks(3).map(|row| row[0] as usize / 3).collect();
        assert_eq!(rows, [0, 2, 1, 3, 4, 6, 5, 7]);
    }

    #[test]
    fn floats_that_follow_each_other_are_not_decoded() {
        let view = numbers(&[8, 3]).reshape(&[2, 2, 2, 3]).unwrap().swap(1, 2).unwrap();
        let first = |view: &View<'_>, start| {
            view.floats(TensorType::F32, start, 3).map(|bytes| f32::from_le_bytes(*bytes.first_chunk().unwrap()))
        };
        assert_eq!([0, 3, 6, 12].map(|start| first(&view, start)), [0.0, 6.0, 3.0, 12.0].map(Some));
        assert_eq!((first(&view, 1), view.floats(TensorType::BF16, 0, 3)), (None, None));
        assert_eq!(first(&numbers(&[3, 3]).transpose().unwrap(), 0), None);
        assert_eq!(first(&numbers(&[3, 3]).then(Step::Times(2.0)), 0), None);
    }

    #[test]
    fn transposed_sliced_and_shifted() {
        let view = numbers(&[2, 3]).transpose().unwrap();
        assert_eq!(values(&view), [0.0, 3.0, 1.0, 4.0, 2.0, 5.0]);
        let odd = numbers(&[2, 4]).every(1, 1, 2, 2).unwrap().then(Step::Add(1.0)).then(Step::Times(2.0));
        assert_eq!(values(&odd), [4.0, 8.0, 12.0, 16.0]);
        assert!(numbers(&[2, 4]).slice(1, 3, 2).is_err());
        assert!(numbers(&[4]).split(0, &[1, 2]).is_err());
    }

    #[test]
    fn a_view_that_needs_a_copy_is_refused() {
        let transposed = numbers(&[2, 3]).transpose().unwrap();
        assert!(transposed.clone().reshape(&[6]).is_err());
        assert!(transposed.reshape(&[3, 1, 2]).is_ok());
        assert!(numbers(&[2, 3]).reshape(&[4]).is_err());
        assert_eq!(numbers(&[2, 1, 3]).squeeze().shape(), [2, 3]);
    }
}
