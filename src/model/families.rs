//! Reads a spec: the architecture's family fills the spec from the file's keys, then the spec's sizes are checked. Each
//! family has one small file; [`built`](crate::built) lists them.

use super::keys::Keys;
use super::{Recurrent, RecurrentKind, Spec};
use crate::built::{self, Abilities, families};
use crate::gguf;
use crate::{Error, Gguf, Name, tri};

/// Changes a spec in place, because `?` and a struct expression with `..` would copy it.
macro_rules! edit {
    ($base:expr, $spec:ident => $edit:expr) => {{
        let mut result = $base;
        if let Ok($spec) = &mut result
            && let Err(error) = $edit
        {
            result = Err(error);
        }
        result
    }};
}

macro_rules! dispatch {
    ($($file:ident $feature:literal [$($ability:ident)*] { $($architecture:literal => $function:ident),+ })*) => {
        $(mod $file;)*

        /// Reads the spec of the architecture that `keys` belongs to.
        #[inline(never)] // keeps its temporaries off the caller's stack
        const fn read<'a>(keys: &mut Keys<'_, 'a>) -> Result<Spec<'a>, Error> {
            $($(
                if cfg!(feature = $feature) && equal(keys.architecture, $architecture) {
                    #[inline(never)] // otherwise the temporaries of all families share one stack frame
                    const fn spec<'a>(keys: &mut Keys<'_, 'a>) -> Result<Spec<'a>, Error> {
                        $file::$function(keys)
                    }
                    return spec(keys);
                }
            )+)*
            Err(Error::Unsupported { what: "architecture", name: Name::new(keys.architecture.as_bytes()) })
        }

        /// Abilities that an architecture's family uses.
        const fn abilities(architecture: &str) -> Abilities {
            $({
                const ABILITIES: Abilities = Abilities::union(&[$(Abilities::$ability),*]);
                if cfg!(feature = $feature) && ($(equal(architecture, $architecture))||+) {
                    return ABILITIES;
                }
            })*
            Abilities::union(&[])
        }
    };
}
families!(dispatch);

impl<'a> Spec<'a> {
    /// Reads the architecture from a file's metadata.
    ///
    /// # Errors
    ///
    /// [`Error::Unsupported`] for an architecture, or a feature of an architecture, that is unknown or not in this
    /// build; [`Error::MissingKey`], [`Error::KeyType`] and [`Error::KeyValue`] for invalid metadata;
    /// [`Error::UnexpectedKey`] and [`Error::UnsupportedKey`] for a key under the architecture's prefix that its family
    /// does not use.
    #[inline(never)] // keeps its temporaries off the caller's stack
    pub const fn read(gguf: &Gguf<'a>) -> Result<Self, Error> {
        let mut keys = tri!(Keys::new(gguf));
        // The spec is changed in place, because a copy would take half a kilobyte of stack.
        let mut result = read(&mut keys);
        if let Ok(spec) = &mut result {
            keys.settle(spec);
            let named = if built::LENIENT { keys.of_any_family(spec) } else { Ok(()) };
            let checked = match named {
                Ok(()) => spec.check_all(&keys),
                error => error,
            };
            if let Err(error) = checked {
                result = Err(error);
            }
        }
        result
    }

    #[inline(never)] // keeps its temporaries off the stack while the family reads its keys
    const fn check_all(&self, keys: &Keys<'_, 'a>) -> Result<(), Error> {
        tri!(check_abilities(self, keys.architecture));
        tri!(keys.all_known());
        tri!(self.check_layers(keys));
        self.check_encoder(keys)
    }

    #[inline(never)] // keeps another spec off the caller's stack
    const fn check_encoder(&self, keys: &Keys<'_, 'a>) -> Result<(), Error> {
        match self.encoder() {
            Some(encoder) => encoder.check_layers(keys),
            None => Ok(()),
        }
    }

    /// Checks that the sizes of each layer agree.
    const fn check_layers(&self, keys: &Keys<'_, '_>) -> Result<(), Error> {
        if let Some(Recurrent { kind: RecurrentKind::ShortConvolution, width, .. }) = self.recurrent()
            && width != self.dim
        {
            return Err(keys.wrong("embedding_length", "is not the width of the convolution"));
        }
        let mut index = 0;
        while index < self.layers {
            let layer = self.layer(index);
            if !layer.has_attention() {
                index += 1;
                continue;
            }
            if layer.heads == 0 {
                return Err(keys.wrong("attention.head_count", "is 0, which no model can have"));
            }
            if layer.kv_heads == 0 {
                return Err(keys.wrong("attention.head_count_kv", "is 0 in a layer with attention"));
            }
            if !layer.heads.is_multiple_of(layer.kv_heads) {
                return Err(keys.wrong("attention.head_count_kv", "does not divide attention.head_count"));
            }
            if layer.heads as u64 * layer.head.dim as u64 > Keys::MAX_WIDTH as u64 {
                return Err(keys.wrong("attention.head_count", "is too large"));
            }
            if !layer.owns_kv && self.next().is_none() {
                match self.owner(layer.is_local) {
                    None => {
                        return Err(keys.wrong("attention.shared_kv_layers", "leaves a layer without keys to share"));
                    }
                    Some(owner) if self.layer(owner).kv_heads != layer.kv_heads => {
                        return Err(
                            keys.wrong("attention.head_count_kv", "differs between layers that share their keys")
                        );
                    }
                    Some(_) => {}
                }
            }
            index += 1;
        }
        Ok(())
    }
}

/// Checks that the spec only needs abilities that the family has and that this build includes.
const fn check_abilities(spec: &Spec<'_>, architecture: &str) -> Result<(), Error> {
    let own = Abilities::union(&[abilities(architecture), built::ACTIVATIONS, built::MODULES]).and(built::ALL);
    let lacking = spec.lacks(Abilities::union(&[own, built::LAYOUTS]));
    match lacking {
        Some(part) if built::NARROW_VALUES && equal(part, "values") => {
            let (name, why) = match spec.values() {
                Some(values) if values.width == spec.global.dim => ("attention.value_scale", "is not 1: not supported"),
                _ => ("attention.value_length", "differs from the length of keys: not supported"),
            };
            Err(Error::KeyValue { key: Name::key(architecture, name), why })
        }
        Some(part) => Err(Error::Unsupported { what: "model part", name: Name::new(part.as_bytes()) }),
        None => Ok(()),
    }
}

const fn equal(a: &str, b: &str) -> bool {
    gguf::equal(a.as_bytes(), b.as_bytes())
}
