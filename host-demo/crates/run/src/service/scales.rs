//! Scales of LoRA adapters: those in a request, or the default scales.

use std::sync::Mutex;

use arenite_request::Refusal;

use crate::adapters::scaled;

/// The adapters, and their default scales. The defaults apply to requests that give no scales.
pub struct LoraScales {
    paths: Vec<String>,
    scales: Mutex<Vec<f32>>,
}

impl LoraScales {
    /// Reads the scales in a list of `FILE` or `FILE:SCALE`.
    pub fn new(lora: &[String]) -> anyhow::Result<Self> {
        let pairs = lora.iter().map(|text| scaled(text)).collect::<anyhow::Result<Vec<_>>>()?;
        let paths = pairs.iter().map(|(path, _)| path.display().to_string()).collect();
        Ok(Self { paths, scales: Mutex::new(pairs.iter().map(|(_, scale)| *scale).collect()) })
    }

    /// Returns the scales for a request with this `list`, or the default scales if there is no list. An adapter that
    /// the list leaves out is not used.
    pub fn of_request(&self, list: Option<&[(usize, f32)]>) -> Result<Vec<(usize, f32)>, Refusal> {
        list.map_or_else(|| Ok(self.usual()), |list| Ok(used(&self.complete(list)?)))
    }

    /// Returns the default scales, for requests that give no scales.
    pub fn usual(&self) -> Vec<(usize, f32)> {
        used(&self.lock())
    }

    /// Returns the scale of each adapter, which is 0 if `list` leaves the adapter out.
    fn complete(&self, list: &[(usize, f32)]) -> Result<Vec<f32>, Refusal> {
        let mut scales = vec![0.0; self.paths.len()];
        for (id, scale) in list {
            let count = scales.len();
            let place = scales.get_mut(*id).ok_or_else(|| {
                Refusal::about("lora", format!("there is no adapter {id}: the server was started with {count}"))
            })?;
            if !scale.is_finite() {
                return Err(Refusal::about("lora", format!("the scale of adapter {id} is not a finite number")));
            }
            *place = *scale;
        }
        Ok(scales)
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Vec<f32>> {
        self.scales.lock().unwrap_or_else(|broken| broken.into_inner())
    }

    /// The path and the default scale of each adapter.
    pub fn list(&self) -> Vec<(String, f32)> {
        self.paths.iter().cloned().zip(self.lock().iter().copied()).collect()
    }

    /// Sets the default scales: those in `list`, and 0 for all other adapters.
    pub fn set(&self, list: &[(usize, f32)]) -> Result<(), Refusal> {
        let scales = self.complete(list)?;
        *self.lock() = scales;
        Ok(())
    }
}

/// The adapters whose scale is not 0.
fn used(scales: &[f32]) -> Vec<(usize, f32)> {
    scales.iter().copied().enumerate().filter(|(_, scale)| *scale != 0.0).collect()
}
