//! Memory that the processor cannot address.

/// A source of bytes outside of the address space: a SPI flash, an SD card, an encrypted partition.
///
/// `arenite pack MODEL.gguf HEAD.gguf --storage MATRICES.bin` divides a model. The head (metadata, vocabulary, the list
/// of tensors, norms and biases) lies in memory. The matrices lie in the storage, and a pass reads their rows through a
/// window in the workspace: [`Options::window`](crate::Options::window). The results have the same bits as with the
/// whole model in memory.
///
/// # Examples
///
/// A flash behind a driver, at an address of its own:
///
/// ```
/// use arenite::{Error, Gguf, Model, Plan, Session, Storage};
///
/// # struct Driver;
/// # impl Driver {
/// #     fn read(&mut self, _address: u32, _bytes: &mut [u8]) -> Result<(), u8> { Err(5) }
/// # }
/// struct Flash(Driver);
///
/// impl Storage for Flash {
///     fn read(&mut self, at: u64, bytes: &mut [u8]) -> Result<(), i32> {
///         const START: u32 = 0x10_0000; // where MATRICES.bin was written
///         let address = u32::try_from(at).map_err(|_| -1)?.checked_add(START).ok_or(-1)?;
///         self.0.read(address, bytes).map_err(i32::from)
///     }
/// }
///
/// fn first(head: &[u8], flash: &mut Flash, plan: Plan, workspace: &mut [u8], kv: &mut [u8]) -> Result<(), Error> {
///     let gguf = Gguf::parse(head)?;
///     let model = Model::new(&gguf)?;
///     let mut session = Session::new(&model, plan, workspace, kv)?.with_storage(flash);
///     session.prefill(&[1, 300, 301]) // an error of the driver becomes `Error::Storage`
/// }
/// # let _ = first;
/// ```
pub trait Storage: Send {
    /// Reads `bytes.len()` bytes from byte `at` of the part of the model that `arenite pack` wrote for the storage.
    ///
    /// # Errors
    ///
    /// A number that the driver chooses. [`Error::Storage`](crate::Error::Storage) contains this number.
    fn read(&mut self, at: u64, bytes: &mut [u8]) -> Result<(), i32>;

    /// Like [`read`](Self::read), but also calls `work` once while the bytes arrive. `work` multiplies the rows of the
    /// previous read. A driver can start a DMA transfer, call `work` and then wait for the transfer: transfer and work
    /// then take only as long as the longer of the two. The default implementation does one after the other.
    ///
    /// # Errors
    ///
    /// Same as [`read`](Self::read).
    fn read_while(&mut self, at: u64, bytes: &mut [u8], work: &mut dyn FnMut()) -> Result<(), i32> {
        work();
        self.read(at, bytes)
    }
}
