//! JSON schemas, keyword by keyword.

use serde_json::Value;

use super::check;
use crate::{Budget, from_json_schema};

pub fn schema(schema: &str, good: &[&str], bad: &[&str]) {
    let value: Value = serde_json::from_str(schema).unwrap();
    let table = from_json_schema(&value, &Budget::of_command()).unwrap_or_else(|error| panic!("{schema}: {error:#}"));
    check(schema, &table, good, bad);
    // An independent validator checks the test itself: it must also accept the texts that the grammar should accept.
    for text in good {
        let instance = serde_json::from_str(text).unwrap();
        assert!(
            jsonschema::options().should_validate_formats(true).build(&value).unwrap().is_valid(&instance),
            "{schema}: {text}"
        );
    }
}

/// Like [`schema`], for schemas that the validator refuses.
fn schema_only(schema: &str, good: &[&str], bad: &[&str]) {
    let table = from_json_schema(&serde_json::from_str(schema).unwrap(), &Budget::of_command());
    check(schema, &table.unwrap_or_else(|error| panic!("{schema}: {error:#}")), good, bad);
}

fn refused(schema: &str, says: &str) {
    let value: Value = serde_json::from_str(schema).unwrap();
    let error = format!("{:#}", from_json_schema(&value, &Budget::of_command()).unwrap_err());
    assert!(error.contains(says), "{schema}: {error}");
}

#[test]
fn types() {
    schema(r#"{"type": "boolean"}"#, &["true", "false"], &["True", "\"true\"", ""]);
    schema(r#"{"type": "null"}"#, &["null"], &["nul", "0"]);
    schema(
        r#"{"type": "integer"}"#,
        &["0", "-5", "175928847299117063", "18446744073709551615"],
        &["01", "1.5", "-", "123456789012345678901"],
    );
    schema(
        r#"{"type": "number"}"#,
        &["0", "-1.5", "2e10", "1.25E-3", "1e-09", "1.7976931348623157e308"],
        &["1.", ".5", "01", "1e309", "1e999", "+1"],
    );
    schema(
        r#"{"type": ["array", "null"], "items": {"type": "string"}}"#,
        &["null", "[]", r#"["a", "b"]"#],
        &["[1]", "\"a\""],
    );
    schema(
        "{}",
        &["{}", "[1, [2]]", r#"{"a": {"b": null}}"#, "\"\\u00e9\\ud83d\\ude00\""],
        &["", "{a: 1}", "\"\\ud83d\"", "[1,]"],
    );
    schema("true", &["1"], &["x"]);
    refused("false", "$: no text can satisfy this");
    refused("3", "$: a schema must be an object");
    refused(r#"{"properties": {"a": {"type": "date"}}}"#, "$.properties.a.type: \"date\" is not a type");
}

#[test]
fn integers_within_limits() {
    schema(r#"{"type": "integer", "minimum": 0}"#, &["0", "10", "10000"], &["-1", "00", "-0"]);
    schema(r#"{"type": "integer", "minimum": 456}"#, &["456", "4560", "457", "500"], &["455", "50", "050", "-456"]);
    schema(r#"{"type": "integer", "minimum": -123}"#, &["-123", "-11", "0", "2345"], &["-124", "-1234"]);
    schema(r#"{"type": "integer", "maximum": 9999}"#, &["-99999", "0", "9999"], &["10000", "99991"]);
    schema(r#"{"type": "integer", "maximum": -9999}"#, &["-10000", "-9999"], &["-9998", "0"]);
    schema(
        r#"{"type": "integer", "minimum": -123, "maximum": 42}"#,
        &["-123", "-13", "0", "39", "42"],
        &["-0123", "-124", "43", "123"],
    );
    schema(
        r#"{"type": "integer", "exclusiveMinimum": 0, "maximum": 900719925474091}"#,
        &["1", "900719925474091"],
        &["0", "900719925474092"],
    );
    schema(r#"{"type": "integer", "multipleOf": 7, "minimum": 10, "maximum": 50}"#, &["14", "49"], &["7", "15", "56"]);
    // Checks every number in the range.
    for (min, max) in [(0, 0), (7, 1234), (-15, 23), (-305, -98), (99, 101), (1, 10)] {
        let table = from_json_schema(
            &serde_json::json!({"type": "integer", "minimum": min, "maximum": max}),
            &Budget::of_command(),
        )
        .unwrap();
        for n in -2000..2000 {
            assert_eq!(super::accepts(&table, &n.to_string()), (min..=max).contains(&n), "{n} in {min}..={max}");
        }
    }
}

#[test]
fn numbers_within_limits() {
    schema(
        r#"{"type": "number", "minimum": 1.5, "maximum": 20}"#,
        &["1.5", "1.51", "2", "19.99", "20", "20.00"],
        &["1.49", "1", "20.01", "21", "-1.5"],
    );
    schema(
        r#"{"type": "number", "exclusiveMinimum": 0, "exclusiveMaximum": 1}"#,
        &["0.5", "0.001", "0.999"],
        &["0", "0.0", "1", "1.0", "1.1", "-0.5"],
    );
    schema(
        r#"{"type": "number", "minimum": -2.25, "maximum": 0.125}"#,
        &["-2.25", "-2", "-0.3", "0", "0.125", "0.12"],
        &["-2.26", "0.126", "1", "0.13"],
    );
    // Exponents as Python, JavaScript and Rust write them.
    schema(
        r#"{"type": "number", "exclusiveMinimum": 0}"#,
        &["6.022e23", "1.5e-9", "1e+05", "1E-05", "0.1", "1e100"],
        &["0", "0.0", "0e5", "-1e5", "-1"],
    );
    schema(r#"{"type": "number", "minimum": 0}"#, &["0", "6.022e23", "1.5e-9"], &["-1e-5", "-0.1"]);
    schema(
        r#"{"type": "number", "minimum": 1.5, "maximum": 20}"#,
        &["1.5e0", "1.50e+00", "2e1", "1.99e1", "9.9e0"],
        &["1.49e0", "1e0", "2.1e1", "2e2", "9e-1", "1.5e-1"],
    );
    schema(
        r#"{"type": "number", "maximum": -0.5}"#,
        &["-5e-1", "-1e3", "-6.022e+23", "-0.5"],
        &["-4.9e-1", "1e-5", "5e-1", "-1e-5", "0"],
    );
    schema(
        r#"{"type": "number", "exclusiveMinimum": 1e-5, "exclusiveMaximum": 1e25}"#,
        &["1.1e-5", "9.9e24", "2", "0.00002"],
        &["1e-5", "1.0e-05", "1e25", "1e26", "9e-6"],
    );
    for (min, max) in [(0.0, 0.35), (1.25, 1.75), (-0.5, 0.5), (-3.2, -1.05)] {
        for exclusive in [false, true] {
            let (low, high) = if exclusive { ("exclusiveMinimum", "exclusiveMaximum") } else { ("minimum", "maximum") };
            let table =
                from_json_schema(&serde_json::json!({"type": "number", low: min, high: max}), &Budget::of_command())
                    .unwrap();
            for n in -400i32..400 {
                let text = format!("{}{}.{:02}", if n < 0 { "-" } else { "" }, n.abs() / 100, n.abs() % 100);
                let value: f64 = text.parse().unwrap();
                let inside = if exclusive { min < value && value < max } else { min <= value && value <= max };
                assert_eq!(super::accepts(&table, &text), inside, "{text} between {min} and {max}, {exclusive}");
                let scientific = format!("{value:e}");
                let is_right = super::accepts(&table, &scientific) == inside || n == 0;
                assert!(is_right, "{scientific} between {min} and {max}, {exclusive}");
            }
        }
    }
    schema(r#"{"type": "number", "multipleOf": 0.01, "minimum": 0}"#, &["1", "1.25", "0.1"], &["1.255", "-1"]);
    schema(
        r#"{"type": "number", "multipleOf": 0.25}"#,
        &["0", "-3", "1.5", "1.50", "-0.25", "7.750", "2.0"],
        &["0.2", "1.3", "1.255", "0.", ".25"],
    );
    schema(r#"{"multipleOf": 0.125, "minimum": 0.3, "maximum": 1}"#, &["0.375", "1", "0.5"], &["0.25", "0.3", "1.125"]);
    refused(r#"{"type": "number", "multipleOf": 0.3}"#, "$.multipleOf: 0.3 is not supported");
}

#[test]
fn strings() {
    schema(
        r#"{"type": "string", "minLength": 1, "maxLength": 4}"#,
        &["\"a\"", "\"\u{1f600}\u{e9}\\n\\u00e9\""],
        &["\"\"", "\"abcde\""],
    );
    schema(r#"{"type": "string"}"#, &["\"\"", "\"a \\\" b\""], &["\"a\nb\"", "\"\\x\"", "\"a", "{}"]);
    schema(r#"{"pattern": "^[a-zA-Z0-9_-]*$"}"#, &["\"\"", "\"He_llo-12\""], &["\"!\"", "\"a b\""]);
    schema(r#"{"pattern": "^a\\^\\$\\.\\[\\]\\(\\)\\|\\{\\}\\*\\+\\?b$"}"#, &["\"a^$.[]()|{}*+?b\""], &["\"ab\""]);
    schema(r#"{"pattern": "b\\d+"}"#, &["\"b1\"", "\"xxb12yy\""], &["\"b\"", "\"c1\""]);
    schema(
        r#"{"pattern": "^(\\([0-9]{3}\\))?[0-9]{3}-[0-9]{4}$"}"#,
        &["\"555-1212\"", "\"(888)555-1212\""],
        &["\"(888)555-1212 ext\""],
    );
    schema(r#"{"pattern": "^\"\\\\$"}"#, &[r#""\"\\""#], &[r#""""#]);
    schema(r#"{"pattern": "^a|b$"}"#, &["\"ax\"", "\"xb\""], &["\"x\""]);
    schema(
        r#"{"pattern": "^[^a-z]+$", "minLength": 2, "maxLength": 3}"#,
        &["\"AB\"", "\"\\n\\t1\""],
        &["\"A\"", "\"ABCD\"", "\"Ab\""],
    );
    schema(
        r#"{"pattern": "^\\p{Lu}[\\p{Script=Greek}\\p{Nd}]*\\P{L}$"}"#,
        &["\"Aα9!\"", "\"Ж-\"", "\"É٣.\""],
        &["\"aα!\"", "\"Ab!\"", "\"AαB\""],
    );
    schema(r#"{"pattern": "^\\p{Emoji_Component}$"}"#, &["\"\u{1f3fb}\"", "\"#\""], &["\"a\""]);
    refused(r#"{"pattern": "\\p{Klingon}"}"#, "$.pattern: `\\p`: Unicode property not found");
    refused(
        r#"{"properties": {"when": {"pattern": "(?=x)"}}}"#,
        "$.properties.when.pattern: `(?=x)`: look-ahead is supported only at the start, after `^`, and look-behind is not",
    );
    refused(r#"{"pattern": "a\\b"}"#, "$.pattern: word boundaries");
    refused(r#"{"minLength": -1}"#, "$.minLength: this must be a whole number");
    refused(r#"{"pattern": "^(?!a)b|c$"}"#, "$.pattern: `^(?!a)b|c$`: look-ahead before alternatives");
    // An unknown format is ignored.
    schema(r#"{"type": "string", "format": "color"}"#, &["\"red\""], &["1"]);
}

/// Patterns with look-ahead for decimals and addresses, in the form in which pydantic and zod write them.
#[test]
fn looking_ahead() {
    schema(
        r#"{"pattern": "^(?!^[-+.]*$)[+-]?0*\\d*\\.?\\d*$"}"#,
        &["\"1.5\"", "\"-0\"", "\".5\""],
        &["\"\"", "\"-\"", "\"+.\"", "\"1.5x\""],
    );
    schema(
        r#"{"format": "email", "pattern": "^(?!\\.)(?!.*\\.\\.)([A-Za-z0-9_'+\\-\\.]*)[A-Za-z0-9_+-]@([A-Za-z0-9][A-Za-z0-9\\-]*\\.)+[A-Za-z]{2,}$"}"#,
        &["\"a.b@example.com\""],
        &["\".a@example.com\"", "\"a..b@example.com\"", "\"a@b\""],
    );
    schema(
        r#"{"pattern": "^(?=[\\s\\S]*[\\p{Extended_Pictographic}\\p{Regional_Indicator}\\u20E3])[\\p{Extended_Pictographic}\\p{Emoji_Component}]+$"}"#,
        &["\"\u{1f600}\"", "\"\u{1f1e9}\u{1f1ea}\"", "\"1\u{20e3}\""],
        &["\"\"", "\"1\"", "\"\u{1f600}a\""],
    );
    schema(r#"{"pattern": "^(?=[a-c])(?!b)[a-z]{1,2}$"}"#, &["\"a\"", "\"cz\""], &["\"b\"", "\"d\"", "\"abc\""]);
}

/// A limit on the length of a text takes no states if the text's pattern already implies it. A large limit is counted
/// by calls of rules.
#[test]
fn lengths() {
    let uri = |most: u32| format!(r#"{{"format": "uri", "minLength": 1, "maxLength": {most}}}"#);
    schema(&uri(2083), &["\"https://example.com/a/b\""], &["\"\"", "\"a\""]);
    // pydantic's HttpUrl in a request.
    assert!(from_json_schema(&serde_json::from_str(&uri(2083)).unwrap(), &Budget::of_request()).is_ok());
    schema(&uri(20), &["\"https://example.com/\""], &["\"https://example.com/a\""]);
    schema(r#"{"pattern": "^[a-z]{3}$", "maxLength": 3}"#, &["\"abc\""], &["\"ab\""]);
    schema(r#"{"pattern": "a", "maxLength": 2}"#, &["\"ba\""], &["\"bba\"", "\"b\""]);
    for (least, most) in [(0, 65536), (3000, 3000), (70, 2147483647), (1000, 20000)] {
        let text = format!(r#"{{"type": "string", "minLength": {least}, "maxLength": {most}}}"#);
        let table = from_json_schema(&serde_json::from_str(&text).unwrap(), &Budget::of_command()).unwrap();
        for count in
            [0, 1, 40, 41, 69, 70, 82, 999, 1000, 1001, 2999, 3000, 3001, 19999, 20000, 20001, 65535, 65536, 65537]
        {
            let text = format!("\"{}\"", "é".repeat(count));
            assert_eq!(super::accepts(&table, &text), (least..=most).contains(&count), "{least} {most} {count}");
        }
    }
}

/// A length beside a pattern becomes a limit of the only part of any length. If several parts have any length, a length
/// that takes too many states is not enforced, which a difference says.
#[test]
fn lengths_beside_patterns() {
    let request = |schema: &Value| {
        from_json_schema(schema, &Budget::of_request()).unwrap_or_else(|error| panic!("{schema}: {error:#}"))
    };
    for (pattern, start, end) in [
        ("^https?://", "http://", ""),
        ("^https?://", "https://", ""),
        ("^(https?|ftp)://[^ ]+$", "ftp://a", ""),
        ("^[a-z0-9-]+$", "a", ""),
        ("^[\\p{L} ]+$", "\u{e9}", ""),
        ("\\.pdf$", "", ".pdf"),
        ("^(?:[a-z]{2}(-[A-Z]{2})?_)?a*$|^b.*c$", "de-DE_", ""),
        ("^(?:[a-z]{2}(-[A-Z]{2})?_)?a*$|^b.*c$", "b", "c"),
    ] {
        for most in [12, 60, 1500, 2048] {
            let table = request(
                &serde_json::json!({ "type": "string", "minLength": 11, "maxLength": most, "pattern": pattern }),
            );
            assert!(table.differences().is_empty(), "{pattern} {most}: {:?}", table.differences());
            for len in [10, 11, most, most + 1] {
                let text = format!("\"{start}{}{end}\"", "a".repeat(len - start.chars().count() - end.len()));
                assert_eq!(super::accepts(&table, &text), (11..=most).contains(&len), "{pattern} {most} {len}");
            }
            assert!(!super::accepts(&table, "\"???????????\"") || pattern.is_empty(), "{pattern}");
        }
    }
    refused(r#"{"pattern": "^a{3}[bc]*$", "maxLength": 2}"#, "no text can satisfy this");
    schema(
        r#"{"pattern": "^a{1,2}b?$", "minLength": 2, "maxLength": 2}"#,
        &["\"aa\"", "\"ab\""],
        &["\"a\"", "\"aab\""],
    );
    let long = |text: &str| format!("\"{text}{}\"", "a".repeat(5000));
    for (schema, good, bad) in [
        (serde_json::json!({ "pattern": "\\S", "maxLength": 2048 }), long("a"), "\" \""),
        (serde_json::json!({ "pattern": "^(?!\\s*$).+", "maxLength": 2000 }), long("a"), "\"  \""),
        (serde_json::json!({ "format": "email", "maxLength": 4000 }), long("a@b.a"), "\"a\""),
        (serde_json::json!({ "format": "uri-reference", "maxLength": 2048 }), long("/a"), "\" \""),
        (serde_json::json!({ "format": "iri", "maxLength": 2048 }), long("a:"), "\"a\""),
    ] {
        let mut schema = schema;
        schema["type"] = "string".into();
        let table = request(&schema);
        assert!(super::accepts(&table, &good) && !super::accepts(&table, bad), "{schema}");
        let said = "$: maxLength is not enforced, because it takes too many states with this pattern or format";
        assert_eq!(table.differences(), [said], "{schema}");
        // Within the budget, the length is enforced.
        schema["maxLength"] = 9.into();
        assert!(!super::accepts(&request(&schema), &good), "{schema}");
    }
    let many = (0..10).map(|at| {
        (format!("p{at}"), serde_json::json!({ "type": "string", "format": "email", "maxLength": 320 + at }))
    });
    let table = request(&serde_json::json!({ "type": "object", "properties": serde_json::Map::from_iter(many) }));
    assert_eq!(table.differences().len(), 10, "{:?}", table.differences());
    // A schema that exceeds the budget even without lengths is refused.
    let properties = serde_json::json!({ "a": { "pattern": "\\S", "maxLength": 3000 }, "b": { "type": "integer", "multipleOf": 9999 } });
    let wide = serde_json::json!({ "type": "object", "properties": properties });
    assert!(from_json_schema(&wide, &Budget::of_request()).is_err());
}

/// A keyword with the value null is absent, except `const`.
#[test]
fn nulls() {
    schema_only(
        r#"{"type": "object", "properties": {"a": {"type": "string", "enum": null, "minLength": null, "maxLength": 2, "pattern": null, "not": null, "items": null},
            "b": {"const": null}, "c": {"const": {"type": null}}}, "required": null, "additionalProperties": null, "anyOf": null, "minProperties": null}"#,
        &[r#"{}"#, r#"{"a": "xy"}"#, r#"{"b": null, "c": {"type": null}}"#],
        &[r#"{"a": "xyz"}"#, r#"{"b": 1}"#, r#"{"c": {}}"#],
    );
}

/// Programs write a format together with its pattern. If the pattern is not supported, the format alone is enforced.
#[test]
fn a_pattern_beside_its_format() {
    let duration = r"^P(?:(\d+W)|(?!.*W)(?=\d|T\d)(\d+Y)?(\d+M)?(\d+D)?(T(?=\d)(\d+H)?(\d+M)?(\d+([.,]\d+)?S)?)?)$";
    let schema = serde_json::json!({ "type": "string", "format": "duration", "pattern": duration });
    let table = from_json_schema(&schema, &Budget::of_command()).unwrap();
    check(duration, &table, &["\"P1DT2H\"", "\"P3W\""], &["\"P\"", "\"1D\""]);
    assert_eq!(table.differences(), ["$: pattern is not supported, so only format is enforced"]);
    let unknown = serde_json::json!({ "type": "string", "format": "color", "pattern": duration });
    assert!(from_json_schema(&unknown, &Budget::of_command()).is_err());
}

/// Schemas that Rust programs and OpenAPI write for 64-bit integers have these limits.
#[test]
fn limits_of_64_bits() {
    schema(
        r#"{"type": "integer", "format": "uint64", "minimum": 0, "maximum": 18446744073709551615}"#,
        &["0", "18446744073709551615", "9007199254740993"],
        &["-1", "18446744073709551616"],
    );
    schema(
        r#"{"type": "integer", "minimum": -9223372036854775808, "maximum": 9223372036854775807}"#,
        &["-9223372036854775808", "9223372036854775807"],
        &["-9223372036854775809", "9223372036854775808"],
    );
    schema(r#"{"type": "integer", "maximum": 1e20}"#, &["12"], &["1.5"]);
}

#[test]
fn classes_of_characters() {
    // `\w` and `\d` have the meaning of ECMA 262.
    schema(r#"{"pattern": "^\\w+$"}"#, &["\"aZ_09\""], &["\"a-\"", "\"\u{e9}\""]);
    schema(r#"{"pattern": "^[\\W\\d]$"}"#, &["\"-\"", "\"\u{e9}\"", "\"7\""], &["\"a\"", "\"_\""]);
    schema(r#"{"pattern": "^[0-9]{2,}$"}"#, &["\"12\"", "\"123\""], &["\"1\"", "\"1a\""]);
    // ECMA 262 has no set operations in classes, but Rust would read these classes as set operations.
    for (pattern, good, bad) in [
        (r"^[[]$", &["["][..], &["]", "a"][..]),
        (r"^[[a]]$", &["[]", "a]"], &["a", "[a]"]),
        (r"^[a-f&&[^bd]]$", &["&]", "[]", "^]", "b]"], &["&", "g]"]),
        (r"^[a~~b]$", &["~", "a"], &["c"]),
        (r"^[+--]$", &["+", ",", "-"], &["."]),
        (r"^[\w-.]+$", &["a-b.c"], &["a+"]),
        (r"^[a-\d]+$", &["a-7"], &["b"]),
        (r"^[\w-\.]+@([\w-]+\.)+[\w-]{2,4}$", &["a-b@c-d.org"], &["a b@c.org"]),
        (r"^[-a]+[b-]$", &["-ab", "a-"], &["c-"]),
        (r"^[^]$", &["a", "]", "\u{e9}"], &[""]),
        (r"^([]|a)$", &["a"], &["]", ""]),
        (r"^[\b]$", &["\u{8}"], &["b"]),
        (r"^\0[\0]\cA$", &["\0\0\u{1}"], &["0"]),
        (r"^\uD83D\uDE00[\uD83D\uDE00]\u00e9$", &["\u{1f600}\u{1f600}\u{e9}"], &["\u{1f600}"]),
        (r"^\<\>[\<]$", &["<><"], &["<>"]),
        (r"^{a}{b$", &["{a}{b"], &["a"]),
        (r"^a{,5}b{2}$", &["a{,5}bb"], &["abb"]),
        (r"^[{]\{2}$", &["{{2}"], &["{{"]),
    ] {
        let table = from_json_schema(&serde_json::json!({ "pattern": pattern }), &Budget::of_command());
        let table = table.unwrap_or_else(|error| panic!("{pattern}: {error:#}"));
        let texts = |texts: &[&str]| texts.iter().map(|text| serde_json::json!(text).to_string()).collect::<Vec<_>>();
        let (good, bad) = (texts(good), texts(bad));
        let [good, bad] = [&good, &bad].map(|texts| texts.iter().map(String::as_str).collect::<Vec<_>>());
        check(pattern, &table, &good, &bad);
    }
    refused(r#"{"pattern": "^[[:digit:]]$"}"#, "$.pattern: classes of POSIX, such as `[:alpha:]`, are not supported");
    refused(r#"{"pattern": "^[a"}"#, "unclosed character class");
    refused(r#"{"pattern": "^[z-a]"}"#, "is not a supported regular expression");
    refused(r#"{"pattern": "(?i)a"}"#, "$.pattern: flags are not supported");
    refused(r#"{"pattern": "a^b"}"#, "$.pattern: `^` and `$` are supported only at the ends");
}

#[test]
fn listed_values() {
    schema(r#"{"const": "foo"}"#, &["\"foo\""], &["foo", "\"bar\""]);
    schema(
        r#"{"enum": ["red", null, 42, ["foo"], {"a": 1}]}"#,
        &["\"red\"", "null", "42", "[\"foo\"]", r#"{"a": 1}"#],
        &["420", "true", "[]"],
    );
    schema(r#"{"type": "string", "enum": ["a", 1]}"#, &["\"a\""], &["1"]);
    schema(r#"{"enum": [1, 5, 9], "minimum": 4}"#, &["5", "9"], &["1"]);
    schema(r#"{"const": "a\"\\\n\u00e9"}"#, &[r#""a\"\\\né""#], &[]);
    refused(r#"{"enum": []}"#, "no text can satisfy this");
}

#[test]
fn arrays() {
    schema(
        r#"{"items": {"type": "integer"}, "minItems": 3, "maxItems": 5}"#,
        &["[1, 2, 3]", "[1,2,3,4,5]"],
        &["[1, 2]", "[1,2,3,4,5,6]"],
    );
    schema(r#"{"type": "array", "maxItems": 0}"#, &["[]", "[ ]"], &["[1]"]);
    schema(r#"{"type": "array"}"#, &["[]", "[1, \"a\", [null]]"], &["[1 2]"]);
    let tuple =
        r#"{"prefixItems": [{"type": "integer"}, {"type": "string"}], "minItems": 1, "items": {"type": "null"}}"#;
    schema(tuple, &["[1]", "[1, \"a\"]", "[1, \"a\", null, null]"], &["[]", "[\"a\"]", "[1, null]"]);
    schema(
        r#"{"prefixItems": [{"type": "integer"}, {"type": "string"}], "items": false}"#,
        &["[]", "[1, \"a\"]"],
        &["[1, \"a\", 2]"],
    );
    schema(
        r#"{"items": [{"type": "integer"}], "additionalItems": {"type": "boolean"}, "minItems": 2, "maxItems": 3, "$schema": "http://json-schema.org/draft-07/schema#"}"#,
        &["[1, true]", "[1, true, false]"],
        &["[1]", "[1, true, true, true]"],
    );
    // `uniqueItems` is enforced only for a few listed values.
    schema(
        r#"{"items": {"enum": ["a", "b", 3]}, "uniqueItems": true, "minItems": 1}"#,
        &[r#"["a"]"#, r#"["b", "a"]"#, r#"[3, "a", "b"]"#],
        &["[]", r#"["a", "a"]"#, r#"["a", "b", "a"]"#, r#"["a", "b", 3, 3]"#, r#"["c"]"#],
    );
    schema(
        r##"{"items": {"$ref": "#/$defs/e"}, "uniqueItems": true, "maxItems": 1, "$defs": {"e": {"enum": ["a", "b"]}}}"##,
        &["[]", r#"["b"]"#],
        &[r#"["a", "b"]"#],
    );
    schema(r#"{"items": {"type": "string"}, "uniqueItems": true}"#, &[r#"["a", "b"]"#], &["[1]"]);
}

#[test]
fn objects() {
    let address = r#"{"type": "object", "properties": {"number": {"type": "number"}, "street": {"type": "string"}, "kind": {"enum": ["Street", "Avenue"]}}}"#;
    schema(
        address,
        &[
            "{}",
            r#"{ "number": 1600, "street": "Pennsylvania", "kind":"Avenue"}"#,
            r#"{"street": "x"}"#,
            r#"{"number": 1, "kind": "Street"}"#,
            "{\n  \"number\": 1\n}",
        ],
        &[
            r#"{"number": "1600"}"#,
            r#"{"kind": "Street", "number": 1}"#,
            r#"{"number": 1,}"#,
            r#"{"other": 1}"#,
            r#"{, "number": 1}"#,
        ],
    );
    schema(
        r#"{"properties": {"a": {"type": "integer"}, "b": {"type": "integer"}, "c": {"type": "integer"}}, "required": ["b"]}"#,
        &[r#"{"b": 1}"#, r#"{"a": 1, "b": 2, "c": 3}"#, r#"{"b": 2, "c": 3}"#],
        &["{}", r#"{"a": 1}"#, r#"{"a": 1, "c": 2}"#],
    );
    schema(
        r#"{"properties": {"a": {"type": "integer"}}, "additionalProperties": {"type": "string"}}"#,
        &["{}", r#"{"a": 1, "b": "x", "ab": "y"}"#, r#"{"b": "x"}"#, r#"{"": "x"}"#],
        &[r#"{"a": "x"}"#, r#"{"b": 1}"#, r#"{"\u0061": "x"}"#],
    );
    schema(
        r#"{"type": "object", "additionalProperties": {"type": "integer"}, "minProperties": 1, "maxProperties": 2}"#,
        &[r#"{"x": 1}"#, r#"{"x": 1, "y": 2}"#],
        &["{}", r#"{"x": 1, "y": 2, "z": 3}"#],
    );
    schema(
        r#"{"properties": {"a": {"type": "null"}, "b": {"type": "null"}, "c": {"type": "null"}}, "minProperties": 1, "maxProperties": 2}"#,
        &[r#"{"a": null}"#, r#"{"c": null}"#, r#"{"a": null, "c": null}"#],
        &["{}", r#"{"a": null, "b": null, "c": null}"#, r#"{"c": null, "a": null}"#],
    );
    schema(
        r#"{"properties": {"a": {"type": "null"}, "b": {"type": "null"}}, "required": ["b"], "additionalProperties": {"type": "integer"}, "minProperties": 2}"#,
        &[r#"{"a": null, "b": null}"#, r#"{"b": null, "x": 1}"#, r#"{"a": null, "b": null, "x": 1, "y": 2}"#],
        &["{}", r#"{"b": null}"#, r#"{"a": null, "x": 1}"#],
    );
    schema(r#"{"type": "object", "required": ["x"]}"#, &[r#"{"x": [1]}"#], &["{}"]);
    schema(
        r#"{"type": "object", "patternProperties": {"^x-": {"type": "integer"}}, "additionalProperties": false}"#,
        &["{}", r#"{"x-a": 1}"#],
        &[r#"{"y": 1}"#],
    );
    schema(r#"{"type": "object", "propertyNames": {"pattern": "^[a-z]{2}$"}}"#, &[r#"{"ab": 1}"#], &[r#"{"a": 1}"#]);
    schema(r#"{"properties": {"a": false, "b": {"type": "null"}}}"#, &["{}", r#"{"b": null}"#], &[r#"{"a": 1}"#]);
    // These schemas allow no value. The library zod writes them for z.never(), and for optional values outside of
    // objects.
    for never in [r#"{"not": {}}"#, r#"{"not": true}"#, r#"{"not": {"description": "x"}, "type": "string"}"#] {
        schema(
            &format!(r#"{{"properties": {{"a": {never}, "b": {{"type": "null"}}}}}}"#),
            &["{}", r#"{"b": null}"#],
            &[r#"{"a": 1}"#],
        );
        schema(&format!(r#"{{"anyOf": [{never}, {{"type": "null"}}]}}"#), &["null"], &["1"]);
        schema(&format!(r#"{{"oneOf": [{{"allOf": [{never}, {{}}]}}, {{"type": "null"}}]}}"#), &["null"], &["1"]);
    }
    schema(r#"{"not": {"type": "null"}}"#, &["1", "{}", "[]", "false", r#""a""#], &["null"]);
    schema(
        r#"{"type": ["string", "integer", "null"], "not": {"type": ["null", "number"]}}"#,
        &[r#""a""#],
        &["null", "1"],
    );
    schema(r#"{"allOf": [{"not": {"type": "string"}}], "enum": ["a", 1]}"#, &["1"], &[r#""a""#]);
    schema(r#"{"type": "null", "not": false}"#, &["null"], &["1"]);
    refused(r#"{"properties": {"a": {"not": {"const": 1}}}}"#, "$.properties.a.not: this keyword is not supported");
    refused(r#"{"type": "number", "not": {"type": "integer"}}"#, "$.not: this keyword is not supported");
    refused(r#"{"required": "a"}"#, "$.required: this must be a list of names");
    refused(r#"{"properties": {"a": false}, "required": ["a"]}"#, "no text can satisfy this");
    refused(r#"{"if": {}, "then": {}}"#, "$.if");
}

#[test]
fn combinations() {
    schema(
        r#"{"anyOf": [{"type": "integer"}, {"type": "string", "maxLength": 2}]}"#,
        &["1", "\"ab\""],
        &["\"abc\"", "null"],
    );
    schema(r#"{"allOf": [{"type": "integer", "minimum": 3}, {"maximum": 5}]}"#, &["3", "5"], &["2", "6"]);
    schema(
        r#"{"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"], "anyOf": [{"properties": {"b": {"type": "null"}}, "required": ["b"]}, {"properties": {"c": {"type": "null"}}}]}"#,
        &[r#"{"a": 1, "b": null}"#, r#"{"a": 1, "c": null}"#, r#"{"a": 1}"#],
        &[r#"{"b": null}"#, r#"{"c": null}"#],
    );
    schema(
        r#"{"allOf": [{"pattern": "^a"}, {"pattern": "b$"}, {"maxLength": 3}]}"#,
        &["\"ab\"", "\"axb\""],
        &["\"a\"", "\"axxb\""],
    );
    schema(
        r##"{"$defs": {"base": {"properties": {"id": {"type": "integer"}}, "required": ["id"]}}, "allOf": [{"$ref": "#/$defs/base"}, {"properties": {"name": {"type": "string"}}, "required": ["name"]}]}"##,
        &[r#"{"id": 1, "name": "x"}"#],
        &[r#"{"id": 1}"#, r#"{"name": "x"}"#],
    );
    schema(
        r#"{"allOf": [{"anyOf": [{"type": "integer"}, {"type": "string"}]}, {"anyOf": [{"minimum": 5}, {"maxLength": 1}]}]}"#,
        &["5", "\"a\"", "4"],
        &["true", "null"],
    );
    let pets = r#"{"oneOf": [{"properties": {"kind": {"const": "cat"}, "lives": {"type": "integer"}}, "required": ["kind"]}, {"properties": {"kind": {"const": "dog"}, "tail": {"type": "boolean"}}, "required": ["kind"]}]}"#;
    schema(pets, &[r#"{"kind": "cat", "lives": 9}"#, r#"{"kind": "dog"}"#], &[r#"{"kind": "cat", "tail": true}"#]);
    schema(
        r#"{"oneOf": [{"type": "integer", "maximum": 3}, {"type": "integer", "minimum": 4}, {"type": "null"}]}"#,
        &["3", "4", "null"],
        &["1.5"],
    );
    schema(
        r#"{"oneOf": [{"properties": {"a": {}}, "required": ["a"]}, {"properties": {"b": {}}, "required": ["b"]}]}"#,
        &[r#"{"a": 1}"#, r#"{"b": 1}"#],
        &["{}", r#"{"a": 1, "b": 1}"#],
    );
    refused(
        r#"{"properties": {"x": {"oneOf": [{"type": "integer"}, {"type": "number"}]}}}"#,
        "$.properties.x.oneOf[0]: a value could also satisfy oneOf[1]",
    );
    refused(r#"{"allOf": [{"type": "integer"}, {"type": "string"}]}"#, "no text can satisfy this");
}

#[test]
fn references() {
    let tree = r##"{"$defs": {"node": {"type": "object", "properties": {"value": {"type": "integer"}, "children": {"type": "array", "items": {"$ref": "#/$defs/node"}}}, "required": ["value"]}}, "$ref": "#/$defs/node"}"##;
    schema(
        tree,
        &[r#"{"value": 1}"#, r#"{"value": 1, "children": [{"value": 2, "children": []}, {"value": 3}]}"#],
        &["{}", r#"{"value": 1, "children": [1]}"#],
    );
    schema(r##"{"properties": {"next": {"$ref": "#"}}}"##, &["{}", r#"{"next": {"next": {}}}"#], &[r#"{"next": 1}"#]);
    schema(
        r##"{"definitions": {"a/b": {"type": "null"}}, "items": {"$ref": "#/definitions/a~1b"}}"##,
        &["[null]"],
        &["[1]"],
    );
    schema(
        r##"{"$defs": {"s": {"type": "string"}}, "properties": {"x": {"$ref": "#/$defs/s", "maxLength": 1, "description": "d"}}}"##,
        &[r#"{"x": "a"}"#],
        &[r#"{"x": "ab"}"#],
    );
    refused(r##"{"$ref": "#/$defs/none"}"##, "$.$ref: there is no #/$defs/none in the schema");
    refused(r##"{"items": {"$ref": "other.json"}}"##, "$.items.$ref: only references within the schema");
    refused(r##"{"$ref": "#"}"##, "left-recursive");
    refused(r##"{"properties": {"x": {"$ref": "#"}}, "required": ["x"]}"##, "no text can satisfy this");
    refused(r##"{"allOf": [{"$ref": "#"}]}"##, "refers to itself");
}

#[test]
fn names_by_pattern_with_others() {
    let closed = r#"{"type": "object", "properties": {"a": {"type": "string"}}, "patternProperties":
        {"^x": {"type": "integer"}, "^y": {"type": "boolean"}}, "additionalProperties": false}"#;
    schema(
        closed,
        &[r#"{}"#, r#"{"a": "b"}"#, r#"{"a": "b", "x1": 1, "y": true}"#, r#"{"x": 1}"#],
        &[r#"{"x": "b"}"#, r#"{"z": 1}"#, r#"{"a": 1}"#, r#"{"y": 1}"#],
    );
    let open = r#"{"type": "object", "patternProperties": {"^x": {"type": "integer"}},
        "additionalProperties": {"type": "string"}}"#;
    schema(open, &[r#"{"x": 1, "z": "b"}"#, r#"{"": "b"}"#], &[r#"{"x": "b"}"#, r#"{"z": 1}"#]);
    // If a pattern matches the name of a property, the property must satisfy both its own schema and the schema of the
    // pattern.
    let both = r#"{"properties": {"x1": {"minimum": 3}}, "required": ["x1", "x2"],
        "patternProperties": {"^x": {"type": "integer", "maximum": 5}}}"#;
    schema(
        both,
        &[r#"{"x1": 4, "x2": 1}"#],
        &[r#"{"x1": 2, "x2": 1}"#, r#"{"x1": 4, "x2": "b"}"#, r#"{"x1": 6, "x2": 1}"#],
    );
}

/// The test's schemas list names with `propertyNames`, in the form in which zod and pydantic write them.
#[test]
fn listed_names() {
    let record = r#"{"type": "object", "propertyNames": {"type": "string", "enum": ["a", "b"]},
        "additionalProperties": {"type": "number"}, "required": ["a", "b"]}"#;
    schema(
        record,
        &[r#"{"a": 1, "b": 2.5}"#],
        &["{}", r#"{"a": 1}"#, r#"{"b": 1}"#, r#"{"a": "x", "b": 1}"#, r#"{"a": 1, "b": 1, "c": 1}"#],
    );
    for partial in [
        r#"{"propertyNames": {"enum": ["a", "b", 1, "a", "abc"], "maxLength": 2}, "additionalProperties": {"type": "integer"}}"#,
        r##"{"propertyNames": {"$ref": "#/$defs/e"}, "additionalProperties": {"type": "integer"}, "$defs": {"e": {"enum": ["a", "b"]}}}"##,
    ] {
        schema(
            partial,
            &["{}", r#"{"a": 1}"#, r#"{"b": 1}"#, r#"{"a": 1, "b": 2}"#],
            &[r#"{"c": 1}"#, r#"{"abc": 1}"#, r#"{"a": "x"}"#, r#"{"a": 1, "a": 2}"#],
        );
    }
    schema(r#"{"propertyNames": {"const": "a"}}"#, &["{}", r#"{"a": [1]}"#], &[r#"{"b": 1}"#]);
    schema(
        r#"{"propertyNames": {"enum": ["a", "b", "c"]}, "additionalProperties": {"type": "null"}, "minProperties": 1, "maxProperties": 2}"#,
        &[r#"{"a": null}"#, r#"{"b": null, "c": null}"#],
        &["{}", r#"{"a": null, "b": null, "c": null}"#],
    );
    // A listed property must satisfy its own schema and the schemas of the patterns that match its name. All other
    // properties are forbidden.
    schema(
        r#"{"propertyNames": {"enum": ["a", "x1", "x2", "b"]}, "properties": {"c": {}, "a": {"type": "null"}, "x1": {"minimum": 3}},
            "patternProperties": {"^x": {"type": "integer"}}, "additionalProperties": {"type": "boolean"}}"#,
        &["{}", r#"{"a": null, "x1": 3, "x2": 0, "b": true}"#],
        &[r#"{"c": 1}"#, r#"{"a": true}"#, r#"{"x1": 2}"#, r#"{"x2": true}"#, r#"{"x3": 1}"#, r#"{"b": 1}"#],
    );
    schema(
        r#"{"propertyNames": {"enum": ["a", "b"]}, "properties": {"a": {"type": "null"}}, "additionalProperties": false}"#,
        &["{}", r#"{"a": null}"#],
        &[r#"{"b": 1}"#],
    );
    schema(
        r#"{"allOf": [{"propertyNames": {"enum": ["a", "b"]}}, {"propertyNames": {"enum": ["b", "c"]}, "additionalProperties": {"type": "null"}}]}"#,
        &["{}", r#"{"b": null}"#],
        &[r#"{"a": null}"#, r#"{"c": null}"#, r#"{"b": 1}"#],
    );
    refused(r#"{"propertyNames": {"enum": ["a"]}, "required": ["b"]}"#, "no text can satisfy this");
    refused(
        r#"{"propertyNames": {"enum": ["a"]}, "properties": {"b": {}}, "required": ["b"]}"#,
        "no text can satisfy this",
    );
    // The first alternative can have a `b`.
    refused(
        r#"{"oneOf": [{"properties": {"a": {}}, "propertyNames": {"enum": ["a", "b"]}}, {"type": "object", "required": ["b"]}]}"#,
        "$.oneOf[0]: a value could also satisfy oneOf[1]",
    );
    // A condition on names that comes from a reference is combined with the condition on listed names.
    schema(
        r##"{"propertyNames": {"$ref": "#/$defs/e"}, "additionalProperties": {"type": "null"}, "$defs": {"e": {"pattern": "^x"}}}"##,
        &["{}", r#"{"x1": null}"#],
        &[r#"{"y": null}"#],
    );
}

#[test]
fn listed_values_beside_keywords_of_other_types() {
    for beside in [
        r#""additionalProperties": false"#,
        r#""additionalProperties": true, "properties": {}, "required": ["x"], "minProperties": 3"#,
        r#""items": {"type": "string"}, "minItems": 3, "uniqueItems": true"#,
        r#""minimum": 3, "multipleOf": 2"#,
    ] {
        schema(&format!(r#"{{"type": "string", "enum": ["a", "b"], {beside}}}"#), &["\"a\"", "\"b\""], &["\"c\"", "1"]);
        schema(&format!(r#"{{"const": null, {beside}}}"#), &["null"], &["1"]);
    }
    schema(
        r#"{"enum": [[1], {"a": 1}, 3], "type": ["array", "integer"], "required": ["b"]}"#,
        &["[1]", "3"],
        &[r#"{"a": 1}"#],
    );
}

#[test]
fn references_by_name_and_listed_texts_with_patterns() {
    schema(r##"{"$defs": {"x": {"$anchor": "foo", "type": "integer"}}, "$ref": "#foo"}"##, &["1"], &["\"a\"", "1.5"]);
    schema(
        r#"{"$id": "http://x/y", "$defs": {"x": {"type": "integer"}}, "$ref": "http://x/y#/$defs/x"}"#,
        &["1"],
        &["\"a\""],
    );
    // The anchors of drafts 6 and 7, and of draft 4.
    for (draft, key) in [("draft-07", "$id"), ("draft-06", "$id"), ("draft-04", "id")] {
        let old = format!(
            r##"{{"$schema": "http://json-schema.org/{draft}/schema#", "{key}": "http://x/y", "definitions":
                {{"x": {{"{key}": "#foo", "type": "integer"}}}}, "properties": {{"id": {{"$ref": "#foo"}}, "b": {{"$ref": "http://x/y#foo"}}}}}}"##
        );
        schema(&old, &[r#"{"id": 1, "b": 2}"#], &[r#"{"id": "a"}"#, r#"{"b": "a"}"#]);
    }
    refused(r##"{"$ref": "#foo", "enum": [{"$anchor": "foo"}]}"##, "$.$ref: there is no #foo in the schema");
    schema(r#"{"enum": ["ab", "cd", 1], "pattern": "^a"}"#, &["\"ab\"", "1"], &["\"cd\""]);
}
