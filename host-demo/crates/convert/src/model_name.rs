//! Splits a model's name into components, by the rules of llama.cpp's package `gguf`: `Llama-3.2-1B-Instruct` has the
//! base name `Llama-3.2`, the size `1B` and the finetune `Instruct`.

/// Components of a model's name.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Components {
    name: Option<String>,
    organization: Option<String>,
    basename: Option<String>,
    finetune: Option<String>,
    version: Option<String>,
    size: Option<String>,
}

/// The roles that a part of a model's name may have. The parts of a name are separated by dashes, and a part can have
/// several roles.
#[derive(Clone, Copy, Default)]
struct Roles {
    base: bool,
    size: bool,
    finetune: bool,
    version: bool,
    kind: bool,
}

impl Roles {
    fn any(self) -> bool {
        self.base || self.size || self.finetune || self.version || self.kind
    }
}

impl Components {
    /// Splits the name `owner/name` or `name` of a model with `weights` weights.
    pub fn of(id: &str, weights: u64) -> Self {
        if id.contains(' ') {
            return Self { name: Some(title(id)), ..Self::default() };
        }
        let (owner, name) = id.split_once('/').map_or((None, id), |(owner, name)| (Some(owner), name));
        let owner = owner.filter(|owner| !owner.starts_with('.'));
        let mut parts: Vec<(String, Roles)> = Vec::new();
        for (at, part) in name.split('-').filter(|part| !part.is_empty()).enumerate() {
            parts.push(part_of(part, at > 0, weights));
        }
        if parts.iter().any(|(part, roles)| roles.size && part.contains(|c: char| c.is_ascii_digit())) {
            for (part, roles) in &mut parts {
                roles.size &= !part.chars().all(char::is_alphabetic);
            }
        }
        mark_base(&mut parts);
        let joined = |has: fn(&Roles) -> bool| {
            let found: Vec<&str> =
                parts.iter().filter(|(_, roles)| has(roles)).map(|(part, _)| part.as_str()).collect();
            (!found.is_empty()).then(|| found.join("-"))
        };
        let mut sizes: Vec<&str> = Vec::new();
        for (part, _) in parts.iter().filter(|(_, roles)| roles.size) {
            if !sizes.contains(&part.as_str()) {
                sizes.push(part);
            }
        }
        let (finetune, version) = (joined(|roles| roles.finetune), joined(|roles| roles.version && !roles.base));
        let size = (!sizes.is_empty()).then(|| sizes.join("-"));
        // If the name has no finetune, no version and no size, it is not divided, so there is no base name.
        let named = finetune.is_some() || version.is_some() || size.is_some();
        Self {
            name: Some(title(name)),
            organization: owner.map(title),
            basename: joined(|roles| roles.base).filter(|_| named),
            finetune,
            version,
            size,
        }
    }

    /// Returns keys under `general`, and their values.
    pub fn keys(self) -> impl Iterator<Item = (&'static str, String)> {
        let keys = ["name", "organization", "basename", "finetune", "version", "size_label"];
        let values = [self.name, self.organization, self.basename, self.finetune, self.version, self.size];
        keys.into_iter().zip(values).filter_map(|(key, value)| Some((key, value?)))
    }
}

/// Classifies a component of a model's name. Returns its normalized spelling, and the roles that it may have: size,
/// version, finetune and so on.
fn part_of(part: &str, after_first: bool, weights: u64) -> (String, Roles) {
    let lower = part.to_ascii_lowercase();
    let mut roles = Roles::default();
    if is_version(lower.strip_prefix("iter").or(lower.strip_prefix('v')).unwrap_or(&lower)) {
        roles.version = true;
    } else if is_type(&lower) {
        roles.kind = true;
        return (part.to_uppercase(), roles);
    } else if after_first && is_size(&lower) {
        let (size, is_context) = size_of(part, weights);
        (roles.size, roles.finetune) = (!is_context, is_context);
        return (size, roles);
    } else {
        roles.finetune = after_first && matches!(&lower[..], "chat" | "instruct" | "vision" | "lora");
    }
    (part.to_owned(), roles)
}

/// Marks the parts at the start of the name that form the base name. Later parts without a role become parts of the
/// finetune.
fn mark_base(parts: &mut [(String, Roles)]) {
    let mut at_start = true;
    for (part, roles) in parts.iter_mut() {
        if at_start && (!roles.any() && part.starts_with(char::is_alphabetic) || roles.version) {
            roles.base = true;
        } else {
            at_start = false;
            roles.finetune |= !roles.any();
        }
    }
    for (_, roles) in parts.iter_mut().rev() {
        if !(roles.base && roles.version) {
            break;
        }
        roles.base = false;
    }
}

/// Normalizes the text of a size in a model's name. The second value is true if the number is far from the model's
/// number of weights: the text is then probably a context length.
fn size_of(part: &str, weights: u64) -> (String, bool) {
    let mut size: Vec<char> = part.replace('_', ".").chars().collect();
    if let [.., unit, last] = size[..]
        && last.is_ascii_digit()
    {
        // `7b1` is 7.1B.
        size.truncate(size.len() - 2);
        size.extend(['.', last, unit]);
    }
    if let [.., before, unit] = &mut size[..]
        && before.is_ascii_digit()
    {
        unit.make_ascii_uppercase();
    }
    let number: String = size.iter().take(size.len().saturating_sub(1)).collect();
    let power = size.last().and_then(|unit| ["K", "M", "B", "T"].iter().position(|known| known.starts_with(*unit)));
    if let (Ok(number), Some(power), true) = (number.parse::<f64>(), power, weights > 0) {
        let stated = number * 1000f64.powi(power as i32 + 1);
        if (stated - weights as f64).abs() > (7 * weights / 8) as f64 {
            if let Some(unit) = size.last_mut() {
                unit.make_ascii_lowercase();
            }
            return (size.into_iter().collect(), true);
        }
    }
    (size.into_iter().collect(), false)
}

/// Returns true for numbers with points between them, such as `3.2`.
fn is_version(text: &str) -> bool {
    text.split('.').all(|number| !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit()))
}

/// True for names of tensor types: `q4_k_m`, `bf16`, `fp32`. As in llama.cpp, `iq3_xs` does not count as a type.
fn is_type(lower: &str) -> bool {
    if matches!(lower, "f16" | "f32" | "fp16" | "fp32" | "bf16" | "bf32" | "bfp16" | "bfp32") {
        return true;
    }
    let Some(rest) = lower.strip_prefix('i').unwrap_or(lower).strip_prefix('q') else { return false };
    let mut parts = rest.split('_');
    let is_digit = |part: &str| part.len() == 1 && part.starts_with(|c: char| c.is_ascii_digit());
    parts.next().is_some_and(is_digit) && parts.all(|part| part.chars().count() == 1)
}

/// Returns true if a part of a model's name is a size: `7b`, `8x7b`, `a2.7b`, `7b1`, `small`, ...
fn is_size(lower: &str) -> bool {
    if matches!(lower, "small" | "mini" | "medium" | "large" | "xl" | "xxl") {
        return true;
    }
    let digits = |text: &str| text.bytes().take_while(u8::is_ascii_digit).count();
    let mut rest = lower.strip_prefix('a').unwrap_or(lower);
    let count = digits(rest);
    if rest.len() == lower.len() && count > 0 && rest[count..].starts_with('x') {
        rest = &rest[count + 1..];
    }
    let whole = digits(rest);
    if whole == 0 {
        return false;
    }
    rest = &rest[whole..];
    if let Some(fraction) = rest.strip_prefix(['.', '_']) {
        let count = digits(fraction);
        if count == 0 {
            return false;
        }
        rest = &fraction[count..];
    }
    match rest.as_bytes() {
        [b'k' | b'm' | b'b' | b't'] => true,
        [b'k' | b'm' | b'b' | b't', last] => last.is_ascii_digit(),
        _ => false,
    }
}

/// Capitalizes the words of a name that are in lower case: `my-model-v2` becomes `My Model v2`.
fn title(name: &str) -> String {
    let word = |word: &str| {
        let is_lower = word.chars().any(char::is_alphabetic) && !word.chars().any(char::is_uppercase);
        let is_number =
            word.strip_prefix('v').is_some_and(is_version) || word.starts_with(|c: char| c.is_ascii_digit());
        if !is_lower || is_number {
            return word.to_owned();
        }
        let mut after = false;
        let capital = |c: char| {
            let new = if after { c.to_lowercase().to_string() } else { c.to_uppercase().to_string() };
            after = c.is_alphabetic();
            new
        };
        word.chars().map(capital).collect()
    };
    name.split(|c: char| c == '-' || c.is_whitespace())
        .filter(|part| !part.is_empty())
        .map(word)
        .collect::<Vec<_>>()
        .join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The expected values come from the package `gguf` (`Metadata.get_model_id_components`, `id_to_title`).
    #[test]
    fn parts_of_names() {
        for (id, weights, want) in [
            (
                "meta-llama/Llama-3.2-1B-Instruct",
                1_235_814_400,
                "name Llama 3.2 1B Instruct; organization Meta Llama; basename Llama-3.2; finetune Instruct; size_label 1B",
            ),
            ("llama_mha", 150_000, "name Llama_Mha"),
            (
                "Mixtral-8x7B-Instruct-v0.1",
                46_700_000_000,
                "name Mixtral 8x7B Instruct v0.1; basename Mixtral; finetune Instruct; version v0.1; size_label 8x7B",
            ),
            ("bloom-7b1", 7_069_000_000, "name Bloom 7b1; basename bloom; size_label 7.1B"),
            (
                "Qwen1.5-MoE-A2.7B-Chat",
                14_300_000_000,
                "name Qwen1.5 MoE A2.7B Chat; basename Qwen1.5-MoE; finetune Chat; size_label A2.7B",
            ),
            (
                "tiny-bert-33K-chat-v1.2",
                140_000,
                "name Tiny Bert 33K Chat v1.2; basename tiny-bert; finetune chat; version v1.2; size_label 33K",
            ),
            (
                "Phi-3-mini-4k-instruct",
                3_800_000_000,
                "name Phi 3 Mini 4k Instruct; basename Phi-3; finetune 4k-instruct; size_label mini",
            ),
            (
                "Yarn-Llama-2-7b-128k",
                6_700_000_000,
                "name Yarn Llama 2 7b 128k; basename Yarn-Llama-2; finetune 128k; size_label 7B",
            ),
            ("./model-v2x", 1_000, "name Model V2X"),
            ("gemma-3-270m-it", 268_000_000, "name Gemma 3 270m It; basename gemma-3; finetune it; size_label 270M"),
            ("all-MiniLM-L6-v2", 22_700_000, "name All MiniLM L6 v2; basename all-MiniLM-L6; version v2"),
            (
                "some/stable-diffusion-xl-base-1.0",
                2_600_000_000,
                "name Stable Diffusion Xl Base 1.0; organization Some; basename stable-diffusion; finetune base; version 1.0; size_label xl",
            ),
            ("A model of mine", 5_000, "name A Model Of Mine"),
            ("gpt2", 124_000_000, "name Gpt2"),
            (
                "SmolLM2-135M-Instruct-Q4_K_M",
                134_500_000,
                "name SmolLM2 135M Instruct Q4_K_M; basename SmolLM2; finetune Instruct; size_label 135M",
            ),
            ("own-4x7b-iter12-f16", 400_000, "name Own 4x7b Iter12 F16; basename own; version iter12; size_label 4x7B"),
            ("t5-small", 60_000_000, "name T5 Small; basename t5; size_label small"),
            (
                "Qwen3-Embedding-0.6B",
                595_000_000,
                "name Qwen3 Embedding 0.6B; basename Qwen3-Embedding; size_label 0.6B",
            ),
            ("x--y-v0.2.1", 100, "name X Y v0.2.1; basename x-y; version v0.2.1"),
        ] {
            let found: Vec<String> =
                Components::of(id, weights).keys().map(|(key, value)| format!("{key} {value}")).collect();
            assert_eq!(found.join("; "), want, "{id}");
        }
    }
}
