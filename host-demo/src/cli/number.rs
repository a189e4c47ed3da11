//! Parsers of numeric options.

use std::str::FromStr;

use arenite::TokenId;

/// A list of token ids: `1,2,3`, `1 2 3` or `[1, 2, 3]`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ids(pub Vec<TokenId>);

impl FromStr for Ids {
    type Err = String;

    fn from_str(list: &str) -> Result<Self, String> {
        let list = list.trim();
        let list = list.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')).unwrap_or(list).trim();
        let mut ids = Vec::new();
        if list.is_empty() {
            return Ok(Self(ids));
        }
        // Allow a trailing comma.
        for part in list.strip_suffix(',').unwrap_or(list).split(',') {
            if part.trim().is_empty() {
                return Err("a token id is missing next to a comma: give numbers such as 1,2,3".into());
            }
            for id in part.split_whitespace() {
                ids.push(id.parse().map_err(|_| format!("`{id}` is not a token id: give numbers such as 1,2,3"))?);
            }
        }
        Ok(Self(ids))
    }
}

/// Maximum number of tokens to generate; -1 and -2 mean no limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limit(pub Option<usize>);

impl FromStr for Limit {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "-1" | "-2" => Ok(Self(None)),
            _ => text
                .parse()
                .map(|n| Self(Some(n)))
                .map_err(|_| "give a number of tokens, or -1 for no limit".to_string()),
        }
    }
}

/// Parses a number that is at least 1.
pub fn at_least_one(text: &str) -> Result<usize, String> {
    match text.parse::<u128>() {
        Ok(0) => Err("give at least 1".to_string()),
        Ok(n) => usize::try_from(n).map_err(|_| format!("give at most {}", usize::MAX)),
        Err(_) => Err("give a whole number, such as 8".to_string()),
    }
}

/// Parses the number of beams.
pub fn beams(text: &str) -> Result<usize, String> {
    const MAX: usize = arenite::beam::MAX_BEAMS;
    at_least_one(text).and_then(|n| if n <= MAX { Ok(n) } else { Err(format!("give at most {MAX}; 4 to 8 are usual")) })
}

/// Parses the size of a context. The size must fit in an `i32`.
pub fn context_size(text: &str) -> Result<usize, String> {
    const MAX: u64 = i32::MAX as u64;
    match text.parse::<u128>() {
        Ok(0) => Err("give at least 1".to_string()),
        Ok(n) if n > u128::from(MAX) => Err(format!("give at most {MAX}")),
        Ok(n) => Ok(n as usize),
        Err(_) => Err("give a number of positions, such as 2048".to_string()),
    }
}

/// Parses a number of threads. It is at most 1024, because more threads would only waste memory.
pub fn threads(text: &str) -> Result<usize, String> {
    const MAX: usize = 1024;
    match text.parse() {
        Ok(n @ 1..=MAX) => Ok(n),
        Ok(0) | Err(_) => Err("give a number of threads, such as 4".to_string()),
        Ok(_) => {
            let cores = arenite_run::workers::cores();
            Err(format!("give at most {MAX}; this machine has {cores} core{}", if cores == 1 { "" } else { "s" }))
        }
    }
}

/// Parses a memory size in bytes, KiB (`256K`), MiB or GiB.
pub fn memory_size(text: &str) -> Result<usize, String> {
    let number = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let shift = match &text[number.len()..].to_ascii_lowercase()[..] {
        "" | "b" => Some(0),
        "k" | "kb" | "kib" => Some(10),
        "m" | "mb" | "mib" => Some(20),
        "g" | "gb" | "gib" => Some(30),
        _ => None,
    };
    let bytes = shift.and_then(|shift| number.parse::<usize>().ok()?.checked_mul(1 << shift));
    bytes.filter(|bytes| *bytes > 0).ok_or_else(|| "give a number of bytes, such as 262144, 256K or 4M".to_string())
}

pub fn finite(text: &str) -> Result<f32, String> {
    match text.parse::<f32>() {
        Ok(value) if value.is_finite() => Ok(value),
        _ => Err("give a number, such as 0.8".to_string()),
    }
}

pub fn not_negative(text: &str) -> Result<f32, String> {
    finite(text).and_then(|value| if value >= 0.0 { Ok(value) } else { Err("it must not be negative".to_string()) })
}

pub fn positive(text: &str) -> Result<f32, String> {
    finite(text).and_then(|value| if value > 0.0 { Ok(value) } else { Err("it must be more than 0".to_string()) })
}

pub fn probability(text: &str) -> Result<f32, String> {
    finite(text).and_then(|value| {
        if (0.0..=1.0).contains(&value) { Ok(value) } else { Err("it must be from 0 to 1".to_string()) }
    })
}

/// Parses a whole number. A negative number is replaced by `otherwise`.
pub fn count_or(text: &str, otherwise: u32) -> Result<u32, String> {
    match text.parse::<i64>() {
        Ok(n) if n < 0 => Ok(otherwise),
        Ok(n) => u32::try_from(n).map_err(|_| format!("give at most {}", u32::MAX)),
        Err(_) => Err("give a whole number, such as 40".to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_are_read_in_every_usual_form() {
        for list in ["1,2,3", "1 2 3", "[1, 2, 3]", " 1,2,\n3, "] {
            assert_eq!(list.parse(), Ok(Ids(vec![1, 2, 3])), "{list:?}");
        }
        assert_eq!("[]".parse(), Ok(Ids(vec![])));
        for list in ["1,x", "-1", "4294967296", "[1,2", "1,,2", ",1", "1,2,,"] {
            assert!(list.parse::<Ids>().is_err(), "{list:?}");
        }
    }

    #[test]
    fn sizes_of_memory() {
        assert_eq!(["1", "256K", "4MiB", "1g"].map(memory_size), [Ok(1), Ok(262_144), Ok(4 << 20), Ok(1 << 30)]);
        assert!(["", "0", "K", "-1K", "1T", "99999999999999G"].iter().all(|text| memory_size(text).is_err()));
    }

    #[test]
    fn absurd_numbers_are_told() {
        assert_eq!("-1".parse(), Ok(Limit(None)));
        assert_eq!("0".parse(), Ok(Limit(Some(0))));
        assert!("-3".parse::<Limit>().is_err() && "many".parse::<Limit>().is_err());
        assert_eq!(context_size("2147483647"), Ok(2147483647));
        for wrong in ["0", "-1", "1000000000000", "99999999999999999999", "x"] {
            assert!(context_size(wrong).is_err(), "{wrong}");
        }
        assert_eq!((threads("1024"), threads("100000").is_err(), threads("0").is_err()), (Ok(1024), true, true));
        assert_eq!((count_or("-1", 7), count_or("9", 7), count_or("x", 7).is_err()), (Ok(7), Ok(9), true));
    }
}
