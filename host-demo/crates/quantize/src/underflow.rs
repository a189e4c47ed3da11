//! Finds weights that are too small for a type. Most block formats have factors in half precision, whose smallest value
//! is 6e-8.

use arenite::quant::{TensorType, decode_row};

use super::encode::encode;

/// Number of rows that are tried.
const SAMPLE: usize = 32;
/// Rows with a weight above this value are not tried, because every type can represent such weights.
const LARGE: f32 = 0.01;

/// Returns true if the weights are too small for the type `kind`, whose factors cannot be so small. The test is whether
/// the type loses less if the same weights are first multiplied by a power of two. `read` fills a row of `columns`
/// weights and returns their importance. Tries at most `SAMPLE` of the `rows`.
pub fn underflows<'i>(
    kind: TensorType,
    [rows, columns]: [usize; 2],
    mut read: impl FnMut(usize, &mut [f32]) -> Option<&'i [f32]>,
) -> bool {
    let Some(bytes) = kind.row_bytes(columns).filter(|_| !matches!(kind, TensorType::F32 | TensorType::BF16)) else {
        return false;
    };
    let (mut row, mut encoded, mut decoded) = (vec![0.0; columns], vec![0; bytes], vec![0.0; columns]);
    let (mut lost, mut usual, mut all) = (0.0, 0.0, 0.0);
    for at in 0..rows.min(SAMPLE) {
        let importance = read(at * rows / rows.min(SAMPLE), &mut row);
        let most = row.iter().fold(0f32, |most, x| most.max(x.abs()));
        if most >= LARGE || !most.is_finite() {
            return false;
        }
        all += row.iter().map(|x| f64::from(*x).powi(2)).sum::<f64>();
        // Weights near 1 show the loss of the type itself.
        let times = if most > 0.0 { f64::from(most).log2().floor().exp2().recip() } else { 1.0 };
        for (loss, times) in [(&mut lost, 1.0), (&mut usual, times)] {
            let scaled: Vec<f32> = row.iter().map(|x| (f64::from(*x) * times) as f32).collect();
            if !encode(kind, &scaled, importance, &mut encoded) || !decode_row(kind, &encoded, &mut decoded) {
                return false;
            }
            let error = scaled.iter().zip(&decoded).map(|(a, b)| f64::from(a - b).powi(2)).sum::<f64>();
            *loss += error / (times * times);
        }
    }
    // Types of two bits usually lose more than half.
    lost > 2.0 * usual || lost > (usual + all) / 2.0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn small_weights_need_another_type() {
        let row: Vec<f32> = (0..256).map(|i| ((i * 37 % 101) as f32 - 50.0) / 50.0).collect();
        let tries = |kind, scale: f32| {
            underflows(kind, [40, 256], |_, to| {
                to.iter_mut().zip(&row).for_each(|(to, x)| *to = x * scale);
                None
            })
        };
        for kind in [TensorType::Q8_0, TensorType::Q4_0, TensorType::F16, TensorType::Q4_K, TensorType::Q6_K] {
            assert!(tries(kind, 1e-7), "{kind:?}");
            assert!(!tries(kind, 0.005), "{kind:?}");
        }
        assert!(tries(TensorType::Q4_0, 3e-7));
        for kind in [TensorType::TQ1_0, TensorType::TQ2_0, TensorType::Q2_0] {
            assert!(tries(kind, 1e-9) && !tries(kind, 0.005) && !tries(kind, 1e-4), "{kind:?}");
        }
        assert!(!tries(TensorType::BF16, 1e-20) && !tries(TensorType::F32, 1e-30));
    }
}
