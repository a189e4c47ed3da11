//! From an architecture's name to the file that reads it: one small file a family, listed in
//! [`built`](crate::built).

use super::Spec;
use super::keys::Keys;
use crate::built::{self, Abilities, families};
use crate::gguf;
use crate::{Error, Name};

macro_rules! dispatch {
    ($($file:ident $feature:literal [$($ability:ident)*] { $($architecture:literal => $function:ident),+ })*) => {
        $(mod $file;)*

        /// Reads the metadata of the architecture that `keys` are of.
        pub(super) const fn read<'a>(keys: &mut Keys<'_, 'a>) -> Result<Spec<'a>, Error> {
            $($(
                if cfg!(feature = $feature) && equal(keys.architecture, $architecture) {
                    #[inline(never)] // or the temporaries of all families lie on one stack
                    const fn spec<'a>(keys: &mut Keys<'_, 'a>) -> Result<Spec<'a>, Error> {
                        $file::$function(keys)
                    }
                    return spec(keys);
                }
            )+)*
            Err(Error::Unsupported { what: "architecture", name: Name::new(keys.architecture.as_bytes()) })
        }

        /// What an architecture's family is able to do.
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

/// That a spec asks for no ability but those of its family that are in this build.
pub(super) const fn check(spec: &Spec<'_>, architecture: &str) -> Result<(), Error> {
    match spec.lacks(abilities(architecture).and(built::ALL)) {
        Some(part) => Err(Error::Unsupported { what: "model part", name: Name::new(part.as_bytes()) }),
        None => Ok(()),
    }
}

const fn equal(a: &str, b: &str) -> bool {
    gguf::equal(a.as_bytes(), b.as_bytes())
}
