//! GBNF: the constructs of llama.cpp's guide, and grammars of the same kinds as in its tests.

use arenite::grammar::{Grammar, State};

use super::check;
use crate::{Budget, from_gbnf, from_pattern};

pub fn no_tokens(_: &str) -> Option<u32> {
    None
}

fn gbnf(text: &str, good: &[&str], bad: &[&str]) {
    check(text, &from_gbnf(text, &no_tokens, &Budget::of_command()).unwrap(), good, bad);
}

fn refused(text: &str, says: &str) {
    let error = format!("{:#}", from_gbnf(text, &no_tokens, &Budget::of_command()).unwrap_err());
    assert!(error.contains(says), "{text:?}: {error}");
}

#[test]
fn sequences_and_repetitions() {
    gbnf("root ::= \"a\"*", &["", "a", "aaaa"], &["b", "ab"]);
    gbnf("root ::= \"a\"+", &["a", "aaa"], &["", "ba"]);
    gbnf("root ::= \"a\"?", &["", "a"], &["aa"]);
    gbnf("root ::= [ab]{3}", &["aba", "bbb"], &["ab", "abab", ""]);
    gbnf("root ::= [ab]{3,}", &["aba", "bbbbbb"], &["ab"]);
    gbnf("root ::= [ab]{0,3}", &["", "a", "aab"], &["aabb"]);
    gbnf("root ::= (\"0x\" [A-F0-9]{2} \" \"?){3,5}", &["0xFF 0x12 0xAB", "0xFF0x120xAB 0x00 "], &["0xFF 0x12", ""]);
    gbnf("root ::= ([x]*)*", &["", "x", "xxx"], &["y", "xy"]);
    gbnf("root ::= \"ab\" \"c\" | \"d\"", &["abc", "d"], &["ab", "dabc"]);
    gbnf("root ::= (\"a\" |\n  \"b\"\n)+ # comment\n", &["ab", "ba"], &["", "#"]);
    gbnf("root ::= a |\n b\na ::= \"1\"\nb ::= \"2\"", &["1", "2"], &["12"]);
    gbnf(
        "root ::= c+ v* c? (v c)*\r\nv ::= [aeiou]\r\nc ::= [b-df-hj-np-tv-z]",
        &["yes", "no", "crwth", "four"],
        &["aye"],
    );
    // These repetitions are too large to be written out.
    let long = "root ::= (.\"\u{e9}\"[\u{3b1}-\u{3c9}]){600,601}";
    let unit = "x\u{e9}\u{3b2}";
    gbnf(long, &[&unit.repeat(600), &unit.repeat(601)], &[&unit.repeat(599), &unit.repeat(602)]);
    let many = [0, 1, 4000, 65_535, 65_536].map(|n| "b".repeat(n));
    gbnf("root ::= [ab]{0,65536}", &many.each_ref().map(String::as_str), &[&"a".repeat(65_537)]);
    let many = [50_000, 128_000, 131_071].map(|n| format!("<{}>", "ab, ".repeat(n)));
    let few = [0, 49_999, 131_072].map(|n| format!("<{}>", "ab, ".repeat(n)));
    let elements = "root ::= \"<\" ([a-z]+ \",\" \" \"?){50000,131071} \">\"";
    gbnf(elements, &many.each_ref().map(String::as_str), &few.each_ref().map(String::as_str));
}

#[test]
fn characters() {
    gbnf(
        "root ::= ... \"abc\" ...",
        &["abcabcabc", "\u{1f535}\u{e9}zabc\u{4e2d}\u{6587}\n"],
        &["aabc123", "1234abc123"],
    );
    gbnf("root ::= [^\\n\"]+", &["a b", "\u{1f600}"], &["a\nb", "\"", ""]);
    gbnf(
        "root ::= [\\]\\-\\[\\\\]+ \"\\t\\x41\\u00e9\\U0001F600\"",
        &["]-[\\\tA\u{e9}\u{1f600}"],
        &["a\tA\u{e9}\u{1f600}"],
    );
    gbnf("root ::= [\u{3041}-\u{309f}]+", &["\u{3072}\u{3089}"], &["\u{30a2}", "a"]);
    gbnf("root ::= [a-]+", &["a-a"], &["b"]);
    gbnf("root ::= \"a\\r\\n\" [\\r\\n]*", &["a\r\n", "a\r\n\r\r"], &["a\n", "a\r"]);
    // Bytes that are not UTF-8 do not match any character.
    let table = from_gbnf("root ::= .*", &no_tokens, &Budget::of_command()).unwrap();
    let grammar = Grammar::new(&table).unwrap();
    for bytes in [&b"\xff"[..], b"\xc0\x80", b"\xed\xa0\x80", b"\xf4\x90\x80\x80", b"\x80"] {
        assert!(!State::new(&grammar).allows(&grammar, bytes.iter().copied()), "{bytes:?}");
    }
    // A text can be cut inside a character's bytes. After this, only the remaining bytes of the character are accepted.
    let mut state = State::new(&grammar);
    assert!(state.accept(&grammar, b"\xf0\x9f".iter().copied()) && !state.is_complete());
    assert!(!state.clone().accept(&grammar, b"a".iter().copied()));
    assert!(state.accept(&grammar, b"\x98\x80".iter().copied()) && state.is_complete());
}

#[test]
fn recursion_and_ambiguity() {
    let expressions = "
        root ::= expression
        expression ::= term ws ((\"+\"|\"-\") ws term)*
        term ::= factor ws ((\"*\"|\"/\") ws factor)*
        factor ::= number | variable | \"(\" expression \")\" | call
        number ::= [0-9]+
        variable ::= [a-z_][a-z0-9_]*
        call ::= variable ws \"(\" (expression (\",\" ws expression)*)? \")\"
        ws ::= [ \\t\\n]?";
    let (good, bad) = (
        ["42", "x+10", "(a+b)*(c-d)", "f(g(x),h(y,z))", "a*(b+c)-d/e", "f()", "1 * (x + f(1, 2))"],
        ["+", "x + + y", "f(,)", "f(x y)", "(a + b", "x + y)", "42 +"],
    );
    gbnf(expressions, &good, &bad);
    // Only the end of the text decides between the possible parses of a palindrome. Until then, each parse needs a
    // stack that grows.
    let palindromes = "root ::= \"a\" root \"a\" | \"b\" root \"b\" | [ab]?";
    gbnf(palindromes, &["", "a", "abba", "ababa", "aabaa"], &["ab", "abab", "aab"]);
    // A call at the end of a rule takes no place on the parser's stack, so a text with many such calls can be
    // arbitrarily long.
    gbnf("root ::= \"a\" root | \"b\" other\nother ::= \"c\" root | \"\"", &[&"abc".repeat(500)[..1499], "b"], &["c"]);
    // Texts of this grammar can nest as deep as the parser's stack allows. At the deepest level, a closing bracket must
    // still be possible.
    let nested = "root ::= \"[\" root \"]\" | \"x\"";
    let deep = |n: usize| format!("{}x{}", "[".repeat(n), "]".repeat(n));
    gbnf(nested, &[&deep(1), &deep(60)], &["[x", "[[x]", &deep(1000)]);
    let table = from_gbnf(nested, &no_tokens, &Budget::of_command()).unwrap();
    let grammar = Grammar::new(&table).unwrap();
    let mut state = State::new(&grammar);
    let depth = (0..1000).take_while(|_| state.accept(&grammar, b"[".iter().copied())).count();
    assert!(depth >= 60 && state.accept(&grammar, b"x".iter().copied()));
    assert!((0..depth).all(|_| state.accept(&grammar, b"]".iter().copied())));
    assert!(state.is_complete() && state.is_over());
}

#[test]
fn tokens() {
    let find = |text: &str| (text == "<think>").then_some(7);
    let table = from_gbnf("root ::= <think> (!<[9]>)* <[9]> \"a\"", &find, &Budget::of_command()).unwrap();
    assert!(Grammar::new(&table).is_ok());
    assert!(
        format!("{:#}", from_gbnf("root ::= <other>", &find, &Budget::of_command()).unwrap_err())
            .contains("1:10: `<other>` is not one token")
    );
}

#[test]
fn errors_name_the_place() {
    refused("start: \"a\"", "not Lark's notation");
    refused("rot ::= \"a\"", "no rule `root`");
    refused("root ::= a\nb ::= c", "1:10: the rule `a` is not defined");
    refused("root ::= \"a\" | root \"a\"", "1:1: this rule is left-recursive");
    refused("root ::= a\na ::= \"a\" | b \"b\"\nb ::= \"c\" | e a \"d\"\ne ::= \"x\" |", "left-recursive");
    refused("root ::= \"a", "1:10: this text is not closed");
    refused("root ::= [a", "1:10: this class of characters is not closed");
    refused("root ::= []", "1:10: this class has no characters");
    refused("root ::= [b-a]", "is empty");
    refused("root ::= (\"a\"", "1:14: the group of 1:10 is not closed");
    refused("root ::= \"a\")", "1:13: unexpected `)`");
    refused("root ::= *", "1:10: there is nothing before `*`");
    refused("root = \"a\"", "expected `::=`");
    refused("root ::= \"a\"{3,2}", "minimum is larger");
    refused("root ::= \"a\"{3", "not closed with `}`");
    refused("root ::= \"a\"{9999999}", "more than 1000000");
    refused("root ::= \"\\q\"", "1:11: this escape is unknown");
    refused("root ::= \"\\ud800\"", "hexadecimal digits of a character");
    refused("root ::= \"a\" root", "no text can satisfy this");
    refused("root ::= (((((([^x]*){0,99}){0,99}){0,99}){0,99}){0,99}){0,99}", "1:1: this is too much work");
    refused(&format!("root ::= {}", "(".repeat(200)), "nested groups");
}

/// Tests regular expressions that must match a whole text, as outlines and guidance write them.
#[test]
fn patterns_of_whole_texts() {
    let pattern = |pattern: &str, good: &[&str], bad: &[&str]| {
        check(pattern, &from_pattern(pattern, &Budget::of_command()).unwrap(), good, bad);
    };
    pattern("(red|blue)", &["red", "blue"], &["", "re", "reds", "\"red\""]);
    pattern("([+-]?(0|[1-9][0-9]*))", &["0", "-7", "+120"], &["", "01", "1 "]);
    // No escapes, as in a JSON string.
    pattern("^\"\\w+\"\n?$", &["\"ab\"", "\"a\"\n"], &["a", "\\\"a\\\"", "\"a\"\\n"]);
    pattern("^a|b$", &["a", "b"], &["ab", "xb", "ax"]);
    let error = from_pattern("(", &Budget::of_command()).unwrap_err();
    assert!(format!("{error:#}").contains("not a supported regular expression"), "{error:#}");
}
