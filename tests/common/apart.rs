//! Divides models into a head and a storage, as `arenite pack --storage` does.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;

use super::gguf::Builder;
use arenite::gguf::HEAD_KEY;
use arenite::{Gguf, Model, Storage};

/// The head of a model, and the bytes of its storage.
pub fn apart(file: &[u8]) -> (Vec<u8>, Vec<u8>) {
    let gguf = Gguf::parse(file).unwrap();
    let model = Model::new(&gguf).unwrap();
    divided(Builder::read(file), |name| model.is_matrix(name))
}

/// Divides a file; `is_stored` chooses the tensors of the storage by name.
pub fn divided(mut file: Builder, is_stored: impl Fn(&str) -> bool) -> (Vec<u8>, Vec<u8>) {
    let tensors = std::mem::take(&mut file.tensors);
    let (stored, inside) = tensors
        .into_iter()
        .partition::<Vec<_>, _>(|tensor| !tensor.data.is_empty() && is_stored(str::from_utf8(&tensor.name).unwrap()));
    file.tensors = inside;
    file.tensors.extend(stored.iter().cloned());
    let alignment = Gguf::parse(&Builder { tensors: vec![], ..file.clone() }.build()).unwrap().alignment() as usize;
    let end = |end: usize, data: &[u8]| end.next_multiple_of(alignment) + data.len();
    let size = stored.iter().fold(0, |size, tensor| end(size, &tensor.data));
    let head = file.set(HEAD_KEY, 0u32).build().len() - size;
    let whole = file.set(HEAD_KEY, head as u32).build();
    (whole[..head].to_vec(), whole[head..].to_vec())
}

/// A storage that counts its reads. Clones share the counts.
#[derive(Clone)]
pub struct Counted {
    bytes: Arc<[u8]>,
    counts: Arc<[AtomicUsize; 3]>,
}

impl Counted {
    pub fn new(bytes: &[u8]) -> Self {
        Self { bytes: bytes.into(), counts: Arc::new([0, 0, usize::MAX].map(AtomicUsize::new)) }
    }

    pub fn reads(&self) -> usize {
        self.counts[0].load(Ordering::Relaxed)
    }

    pub fn read_bytes(&self) -> usize {
        self.counts[1].load(Ordering::Relaxed)
    }

    /// Lets the read after the next `number` reads fail.
    pub fn fail_after(&self, number: usize) {
        self.counts[2].store(self.reads() + number, Ordering::Relaxed);
    }
}

impl Storage for Counted {
    fn read(&mut self, at: u64, bytes: &mut [u8]) -> Result<(), i32> {
        self.counts[1].fetch_add(bytes.len(), Ordering::Relaxed);
        if self.counts[0].fetch_add(1, Ordering::Relaxed) == self.counts[2].load(Ordering::Relaxed) {
            bytes.fill(0xff);
            return Err(-7);
        }
        bytes.copy_from_slice(&self.bytes[at as usize..][..bytes.len()]);
        Ok(())
    }
}

/// A storage that reads while the caller works, in another thread.
pub struct Overlapped(pub Vec<u8>);

impl Storage for Overlapped {
    fn read(&mut self, at: u64, bytes: &mut [u8]) -> Result<(), i32> {
        self.read_while(at, bytes, &mut || ())
    }

    fn read_while(&mut self, at: u64, bytes: &mut [u8], work: &mut dyn FnMut()) -> Result<(), i32> {
        thread::scope(|scope| {
            scope.spawn(|| bytes.copy_from_slice(&self.0[at as usize..][..bytes.len()]));
            work();
        });
        Ok(())
    }
}

/// A storage that calls the work this number of times instead of once.
pub struct Careless(pub Vec<u8>, pub usize);

impl Storage for Careless {
    fn read(&mut self, at: u64, bytes: &mut [u8]) -> Result<(), i32> {
        bytes.copy_from_slice(&self.0[at as usize..][..bytes.len()]);
        Ok(())
    }

    fn read_while(&mut self, at: u64, bytes: &mut [u8], work: &mut dyn FnMut()) -> Result<(), i32> {
        (0..self.1).for_each(|_| work());
        self.read(at, bytes)
    }
}

/// A storage with the ranges that were read.
pub struct Noted(pub Vec<u8>, pub Arc<Mutex<Vec<(u64, usize)>>>);

impl Storage for Noted {
    fn read(&mut self, at: u64, bytes: &mut [u8]) -> Result<(), i32> {
        self.1.lock().unwrap().push((at, bytes.len()));
        bytes.copy_from_slice(&self.0[at as usize..][..bytes.len()]);
        Ok(())
    }
}
