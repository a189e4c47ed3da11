//! Patterns of JSON schema's `format`.
//!
//! A pattern allows the values of the format's RFC, with some limits that keep automata small: numbers have up to 9
//! digits, and fractions of seconds have up to 12 digits. Dates and times have the forms that most programs can read.
//! The labels of host names may be longer than the RFC allows.

/// RFC 3339: a date whose day exists in its month. The year 0000 is left out because Python does not have it.
const DATE: &str = "((000[1-9]|00[1-9][0-9]|0[1-9][0-9]{2}|[1-9][0-9]{3})-((0[13578]|1[02])-(0[1-9]|[12][0-9]|3[01])|(0[469]|11)-(0[1-9]|[12][0-9]|30)\
    |02-(0[1-9]|1[0-9]|2[0-8]))|([0-9]{2}(0[48]|[2468][048]|[13579][26])|(0[48]|[2468][048]|[13579][26])00)-02-29)";
/// RFC 1123.
const HOST: &str = "[A-Za-z0-9]+(-+[A-Za-z0-9]+)*(\\.[A-Za-z0-9]+(-+[A-Za-z0-9]+)*)*";
/// RFC 2673, section 3.2.
const IPV4: &str = "(25[0-5]|2[0-4][0-9]|1[0-9][0-9]|[1-9]?[0-9])(\\.(25[0-5]|2[0-4][0-9]|1[0-9][0-9]|[1-9]?[0-9])){3}";
/// RFC 4122.
const UUID: &str = "[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}";
/// RFC 6901.
const POINTER: &str = "(/([^~/]|~[01])*)*";
/// RFC 5322: the characters of the parts of an address before `@`, as the contents of a character class.
const ATOM: &str = "A-Za-z0-9!#$%&'*+/=?^_`{|}~-";
/// RFC 3987: the characters that an IRI may have and a URI may not, without private characters.
const UNICODE: &str = "\u{a0}-\u{d7ff}\u{f900}-\u{fdcf}\u{fdf0}-\u{ffef}\u{10000}-\u{dffff}";

/// Returns a pattern for a format; `None` for an unknown format, which is ignored. `is_limited` is for texts whose
/// length is limited: `uri` and `email` then have patterns with fewer states, which also allow some texts that the RFC
/// does not allow.
pub fn pattern(format: &str, is_limited: bool) -> Option<String> {
    let pattern = match format {
        "date" => DATE.into(),
        "time" => time(),
        "date-time" => format!("{DATE}T{}", time()),
        "duration" => duration(),
        "hostname" => HOST.into(),
        "ipv4" => IPV4.into(),
        "ipv6" => ipv6(),
        "uuid" => UUID.into(),
        "email" if is_limited => format!("[{ATOM}]+(\\.[{ATOM}]+)*@{HOST}"),
        "email" => email("", HOST),
        "idn-email" => email(UNICODE, &format!("[A-Za-z0-9{UNICODE}]+([.-]+[A-Za-z0-9{UNICODE}]+)*")),
        "uri" if is_limited => "[A-Za-z][A-Za-z0-9+.-]*:[A-Za-z0-9._~!$&'()*+,;=:@/?#\\[\\]%-]*".into(),
        "uri" => format!("{}{}", SCHEME, after_scheme("")),
        "iri" => format!("{}{}", SCHEME, after_scheme(UNICODE)),
        "uri-reference" => format!("({SCHEME}{}|{})", after_scheme(""), relative("")),
        "iri-reference" => format!("({SCHEME}{}|{})", after_scheme(UNICODE), relative(UNICODE)),
        "uri-template" => template(),
        "json-pointer" => POINTER.into(),
        "relative-json-pointer" => format!("(0|[1-9][0-9]{{0,8}})(#|{POINTER})"),
        _ => return None,
    };
    Some(format!("^({pattern})$"))
}

/// Returns the rule of a format that its pattern does not enforce; `None` if the pattern allows only the format's values.
pub fn difference(format: &str, is_limited: bool) -> Option<&'static str> {
    match format {
        "hostname" => Some("labels may be longer than 63 characters"),
        "email" | "uri" if is_limited => Some("with maxLength, only the outline of the text is enforced"),
        _ => pattern(format, is_limited).is_none().then_some("not known, so ignored"),
    }
}

/// A time with its offset from UTC (RFC 3339). Leap seconds and small letters, which the RFC allows, are left out
/// because few programs can read them.
fn time() -> String {
    let hour = "([01][0-9]|2[0-3])";
    format!("{hour}:[0-5][0-9]:[0-5][0-9](\\.[0-9]{{1,12}})?(Z|[+-]{hour}:[0-5][0-9])")
}

/// RFC 3339, appendix A: a unit between two units must not be left out. A sign and a fraction of seconds are also
/// allowed, because pydantic writes both.
fn duration() -> String {
    let unit = |letter: char| match letter {
        'S' => "[0-9]{1,9}(\\.[0-9]{1,9})?S".to_owned(),
        _ => format!("[0-9]{{1,9}}{letter}"),
    };
    let three = |letters: [char; 3]| {
        let [first, second, third] = letters.map(unit);
        format!("({first}({second}({third})?)?|{second}({third})?|{third})")
    };
    let (date, time) = (three(['Y', 'M', 'D']), three(['H', 'M', 'S']));
    format!("-?P({}|{date}(T{time})?|T{time})", unit('W'))
}

/// RFC 4291: groups of sixteen bits, with `::` in place of one or more groups. The last two groups may be written as an
/// IPv4 address.
fn ipv6() -> String {
    let h = "[0-9a-fA-F]{1,4}";
    let mut forms = format!("({h}:){{7}}{h}|({h}:){{6}}{IPV4}|({h}:){{1,7}}:|::|:(:{h}){{1,7}}|::({h}:){{0,5}}{IPV4}");
    for before in 1..=6 {
        forms += &format!("|({h}:){{{before}}}(:{h}){{1,{}}}", 7 - before);
    }
    for before in 1..=5 {
        forms += &format!("|({h}:){{{before}}}:({h}:){{0,{}}}{IPV4}", 5 - before);
    }
    format!("({forms})")
}

/// RFC 5321 and 6531: before `@`, dotted atoms or a quoted text; after `@`, a domain or an address in brackets. `more`
/// has further characters that an atom may have.
fn email(more: &str, host: &str) -> String {
    let atom = format!("[{more}{ATOM}]+");
    format!(
        "({atom}(\\.{atom})*|\"([ !#-\\[\\]-~{more}]|\\\\[ -~])*\")@({host}|\\[({IPV4}|IPv6:[0-9a-fA-F:.]{{2,45}})\\])"
    )
}

/// RFC 3986: the beginning of a URI.
const SCHEME: &str = "[A-Za-z][A-Za-z0-9+.-]*:";

/// Returns a pattern for a character of a URI: an unreserved character, a character of `also`, or an escape.
fn uri_char(also: &str) -> String {
    format!("([A-Za-z0-9._~!$&'()*+,;={also}-]|%[0-9A-Fa-f]{{2}})")
}

/// The rest of a URI after its scheme: authority, path, query, fragment. `more` has further characters that are
/// allowed.
fn after_scheme(more: &str) -> String {
    let path = uri_char(&format!(":@/{more}"));
    let first = uri_char(&format!(":@{more}"));
    format!("({}|/|(/?{first}{path}*)?){}", authority(more), query(more))
}

/// Matches a relative reference: an address without a scheme. To be told from a scheme, the first segment of its path
/// must not contain a colon.
fn relative(more: &str) -> String {
    let path = uri_char(&format!(":@/{more}"));
    let (first, segment) = (uri_char(&format!(":@{more}")), uri_char(&format!("@{more}")));
    format!("({}|/({first}{path}*)?|({segment}+(/{path}*)?)?){}", authority(more), query(more))
}

/// `//`, user, host, port, and a path that begins with `/`.
fn authority(more: &str) -> String {
    let (user, host, path) = (uri_char(&format!(":{more}")), uri_char(more), uri_char(&format!(":@/{more}")));
    format!("//({user}*@)?(\\[[0-9A-Fa-f:.]{{2,45}}\\]|{host}*)(:[0-9]*)?(/{path}*)?")
}

fn query(more: &str) -> String {
    let part = uri_char(&format!(":@/?{more}"));
    format!("(\\?{part}*)?(#{part}*)?")
}

/// RFC 6570: literals and expressions in braces.
fn template() -> String {
    let char = "([A-Za-z0-9_]|%[0-9A-Fa-f]{2})";
    let name = format!("{char}(\\.?{char})*");
    let variable = format!("{name}(:[1-9][0-9]{{0,3}}|\\*)?");
    let literal = "([^\\x00-\\x20\"'%<>\\\\^`{|}\\x7f]|%[0-9A-Fa-f]{2})";
    format!("({literal}|\\{{[+#./;?&=,!@|]?{variable}(,{variable})*\\}})*")
}
