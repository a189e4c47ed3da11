//! Selects the family for an architecture's name. Each family has one small file; [`built`](crate::built) lists them.

use super::Spec;
use super::keys::Keys;
use crate::built::{self, Abilities, families};
use crate::gguf;
use crate::{Error, Name};

/// Changes a spec in place; `?` and a struct expression with `..` would copy it.
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
        pub(super) const fn read<'a>(keys: &mut Keys<'_, 'a>) -> Result<Spec<'a>, Error> {
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

/// Checks that the spec only needs abilities that its family has and this build includes.
pub(super) const fn check(spec: &Spec<'_>, architecture: &str) -> Result<(), Error> {
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
