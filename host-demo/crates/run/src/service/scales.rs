//! Scales of LoRA adapters: the scales in a request, or the default scales.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard};

use arenite_request::Refusal;

use crate::adapters::scaled;

/// Maximum number of clients that have scales of their own.
const MOST_CLIENTS: usize = 1024;

/// The adapters and their default scales, which apply to requests that give no scales. The defaults come from the
/// command line, or a client has set its own. If the clients share the cache, they also share one set of defaults,
/// stored for the client `None`.
pub struct LoraScales {
    paths: Vec<String>,
    /// The scales of the command line.
    first: Vec<f32>,
    set: Mutex<HashMap<Option<u64>, Vec<f32>>>,
}

impl LoraScales {
    /// Reads the scales in a list of `FILE` or `FILE:SCALE`.
    pub fn new(lora: &[String]) -> anyhow::Result<Self> {
        let pairs = lora.iter().map(|text| scaled(text)).collect::<anyhow::Result<Vec<_>>>()?;
        let paths = pairs.iter().map(|(path, _)| path.display().to_string()).collect();
        Ok(Self { paths, first: pairs.iter().map(|(_, scale)| *scale).collect(), set: Mutex::default() })
    }

    /// Returns the scales of a request's `list`. An adapter that is not in the list is not used.
    pub fn of_request(&self, list: &[(usize, f32)]) -> Result<Vec<(usize, f32)>, Refusal> {
        Ok(used(&self.complete(list)?))
    }

    /// Returns a client's scales for requests that give none.
    pub fn usual(&self, client: Option<u64>) -> Vec<(usize, f32)> {
        used(&self.of_client(client))
    }

    fn of_client(&self, client: Option<u64>) -> Vec<f32> {
        self.lock().get(&client).unwrap_or(&self.first).clone()
    }

    /// Returns the scale of each adapter. The scale is 0 if the adapter is not in `list`.
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

    fn lock(&self) -> MutexGuard<'_, HashMap<Option<u64>, Vec<f32>>> {
        self.set.lock().unwrap_or_else(|broken| broken.into_inner())
    }

    /// Returns the path of each adapter, and its default scale for requests of this client.
    pub fn list(&self, client: Option<u64>) -> Vec<(String, f32)> {
        self.paths.iter().cloned().zip(self.of_client(client)).collect()
    }

    /// Sets the default scales for requests of a client: the scales in `list`, and 0 for all other adapters.
    pub fn set(&self, client: Option<u64>, list: &[(usize, f32)]) -> Result<(), Refusal> {
        let scales = self.complete(list)?;
        let mut set = self.lock();
        if scales == self.first {
            set.remove(&client);
        } else if set.len() < MOST_CLIENTS || set.contains_key(&client) {
            set.insert(client, scales);
        } else {
            return Err(Refusal::invalid("too many clients have set scales: send `lora` with each request"));
        }
        Ok(())
    }
}

/// The adapters whose scale is not 0.
fn used(scales: &[f32]) -> Vec<(usize, f32)> {
    scales.iter().copied().enumerate().filter(|(_, scale)| *scale != 0.0).collect()
}
