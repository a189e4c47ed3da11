//! The order of the sampling steps. The names of the steps are llama.cpp's, so that its command lines and requests work
//! unchanged.

use std::str::FromStr;

use arenite::sampler::{Link, Params};

/// The sampling steps of a request, in order. If `penalties` is true, the penalties come first; then come the steps in
/// `order`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Samplers {
    penalties: bool,
    order: Order,
}

/// The steps after the penalties, as in [`Params::order`].
type Order = [Option<Link>; Link::ALL.len()];

impl Samplers {
    /// Reads the names of a request as llama-server does: unknown names are skipped. If the penalties of the request are off, their position does not matter.
    ///
    /// # Errors
    ///
    /// A step is listed twice, or the penalties are not the first step.
    pub fn of_names(names: &[String], has_penalties: bool) -> Result<Self, String> {
        let counts = |name: &&str| if *name == PENALTIES { has_penalties } else { link(name).is_some() };
        names.iter().map(String::as_str).filter(counts).try_fold(Self::NONE, Self::with)
    }

    /// Returns llama.cpp's names of the steps with these letters. Unknown letters are skipped.
    pub fn names_of_letters(letters: &str) -> Vec<String> {
        letters.chars().filter_map(name_of_letter).map(str::to_string).collect()
    }

    const NONE: Self = Self { penalties: false, order: [None; Link::ALL.len()] };

    /// Adds a step.
    fn with(mut self, name: &str) -> Result<Self, String> {
        let given = self.order.iter().flatten().count();
        if name == PENALTIES && (given > 0 || self.penalties) {
            return Err("penalties must be the first step: list it once, before the others".to_string());
        }
        if name == PENALTIES {
            return Ok(Self { penalties: true, ..self });
        }
        let link = link(name).ok_or_else(|| {
            let names: Vec<_> = STEPS.iter().filter_map(|(_, _, names)| names.first().copied()).collect();
            format!("`{name}` is not one of {PENALTIES}, {}", names.join(", "))
        })?;
        if self.order.contains(&Some(link)) {
            return Err(format!("{name} is listed twice: list each step once"));
        }
        if let Some(place) = self.order.get_mut(given) {
            *place = Some(link);
        }
        Ok(self)
    }

    /// Returns `params` with the steps in this order. If the order lacks the penalties, they are turned off.
    pub fn apply(self, params: Params) -> Params {
        let repeat_last_n = if self.penalties { params.repeat_last_n } else { 0 };
        Params { order: self.order, repeat_last_n, ..params }
    }
}

const PENALTIES: &str = "penalties";
/// The letter of the penalties in llama.cpp.
const PENALTIES_LETTER: char = 'e';

/// The steps after the penalties, with llama.cpp's letter and names for each step. The first name is the usual one.
const STEPS: [(Link, char, &[&str]); Link::ALL.len()] = [
    (Link::Dry, 'd', &["dry"]),
    (Link::TopNSigma, 's', &["top_n_sigma", "top-n-sigma"]),
    (Link::TopK, 'k', &["top_k", "top-k"]),
    (Link::Typical, 'y', &["typ_p", "typical", "typical_p", "typical-p"]),
    (Link::TopP, 'p', &["top_p", "top-p"]),
    (Link::MinP, 'm', &["min_p", "min-p"]),
    (Link::Xtc, 'x', &["xtc"]),
    (Link::Temperature, 't', &["temperature", "temp"]),
    (Link::AdaptiveP, 'a', &["adaptive_p", "adaptive-p"]),
];

/// Returns the step with this name.
fn link(name: &str) -> Option<Link> {
    STEPS.iter().find(|(_, _, names)| names.contains(&name)).map(|(link, ..)| *link)
}

/// Returns the name of the step with this letter.
fn name_of_letter(letter: char) -> Option<&'static str> {
    match letter {
        PENALTIES_LETTER => Some(PENALTIES),
        _ => STEPS.iter().find(|(_, own, _)| *own == letter).and_then(|(_, _, names)| names.first().copied()),
    }
}

impl FromStr for Samplers {
    type Err = String;

    fn from_str(list: &str) -> Result<Self, String> {
        let mut names = list.split([';', ',']).map(str::trim).filter(|name| !name.is_empty());
        names.try_fold(Self::NONE, Self::with)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn orders_are_read() {
        let samplers: Samplers =
            "penalties;dry;top_n_sigma;top_k;typ_p;top_p;min_p;xtc;temperature;adaptive_p".parse().unwrap();
        assert_eq!(samplers, Samplers { penalties: true, order: Params::DEFAULT.order });
        let samplers: Samplers = "temp, top-p".parse().unwrap();
        assert!(!samplers.penalties);
        assert_eq!(samplers.order, Link::order(&[Link::Temperature, Link::TopP]));
        for (list, word) in
            [("infill;top_k", "`infill`"), ("top_k;penalties", "first"), ("top_k;top_k", "twice"), ("x", "`x`")]
        {
            assert!(list.parse::<Samplers>().unwrap_err().contains(word), "{list}");
        }
    }

    /// The expected names and letters come from llama.cpp's `common/sampling.cpp`.
    #[test]
    fn orders_in_requests_are_read() {
        let read =
            |names: &[&str]| Samplers::of_names(&names.iter().map(|name| name.to_string()).collect::<Vec<_>>(), true);
        let letters = |letters: &str| Samplers::of_names(&Samplers::names_of_letters(letters), true);
        let order = Link::order(&Link::ALL[..8]);
        let all = Samplers { penalties: true, order };
        let names = ["penalties", "dry", "top_n_sigma", "top_k", "typ_p", "top_p", "min_p", "xtc", "temperature"];
        assert_eq!((read(&names), letters("edskypmxt")), (Ok(all), Ok(all)));
        let some = Samplers { penalties: false, order: Link::order(&[Link::Temperature, Link::TopK]) };
        assert_eq!((letters("t?k"), read(&["tfs_z", "temperature", "top_k"])), (Ok(some), Ok(some)));
        assert_eq!(read(&[]), Ok(Samplers::NONE));
        for (list, word) in [(["top_k", "penalties"], "first"), (["top_k", "top_k"], "twice")] {
            assert!(read(&list).unwrap_err().contains(word));
        }
        let last = Samplers { penalties: false, order: Link::order(&[Link::TopK]) };
        assert_eq!(Samplers::of_names(&["top_k".to_string(), "penalties".to_string()], false), Ok(last));
    }
}
