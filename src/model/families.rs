//! From an architecture's name to the file that reads it: one small file a family, listed in
//! [`built`](crate::built).

use super::Spec;
use super::keys::Keys;
use crate::built::{self, Abilities, families};
use crate::{Error, Name, tri};

macro_rules! dispatch {
    ($($file:ident $feature:literal [$($ability:ident)*] { $($architecture:literal => $function:ident),+ })*) => {
        $(mod $file;)*

        /// Reads the metadata of the architecture that `keys` are of.
        pub(super) const fn read<'a>(keys: &mut Keys<'_, 'a>) -> Result<Spec<'a>, Error> {
            $({
                const ABILITIES: Abilities = Abilities::union(&[$(Abilities::$ability),*]);
                $(
                    if cfg!(feature = $feature) && equal(keys.architecture, $architecture) {
                        return check(tri!($file::$function(keys)), ABILITIES);
                    }
                )+
            })*
            Err(Error::Unsupported { what: "architecture", name: Name::new(keys.architecture.as_bytes()) })
        }
    };
}
families!(dispatch);

const fn equal(a: &str, b: &str) -> bool {
    crate::gguf::equal(a.as_bytes(), b.as_bytes())
}

/// `spec`, if it needs no ability but those of its family that are in this build.
const fn check<'a>(spec: Spec<'a>, abilities: Abilities) -> Result<Spec<'a>, Error> {
    match spec.lacks(abilities.and(built::ALL)) {
        Some(part) => Err(Error::Unsupported { what: "model part", name: Name::new(part.as_bytes()) }),
        None => Ok(spec),
    }
}
