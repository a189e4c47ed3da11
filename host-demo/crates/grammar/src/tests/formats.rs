//! Tests the formats of strings in JSON schemas.

use super::check;
use super::schema::schema;
use crate::{Budget, from_json_schema};

#[test]
fn formats() {
    // Most of these values come from JSON-Schema-Test-Suite, from the folder draft2020-12/optional/format.
    for (format, good, bad) in [
        (
            "date",
            vec!["2012-04-23", "2024-12-31", "2020-02-29", "2000-02-29", "0004-02-29"],
            vec![
                "0000-01-01",
                "0000-02-29",
                "2012-13-01",
                "2012-02-30",
                "12-04-23",
                "2021-02-29",
                "1900-02-29",
                "1998-1-20",
                "1998-04-31",
            ],
        ),
        (
            "time",
            vec!["18:25:43.511Z", "00:00:00+01:30", "23:59:59.999Z", "23:59:59-23:59"],
            // RFC 3339 allows the last of these values. The grammar does not, because the packages of Python and Go
            // that read times refuse them.
            vec![
                "24:00:00Z",
                "18:25",
                "22:59:60Z",
                "23:58:60Z",
                "23:59:60+01:00",
                "08:30:06-24:00",
                "12:00:00",
                "08:30:06z",
                "23:59:60Z",
                "15:59:60-08:00",
            ],
        ),
        (
            "date-time",
            vec![
                "2012-04-23T18:25:43.511Z",
                "2024-02-29T12:00:00Z",
                "1963-06-19T08:30:06.283185Z",
                "1990-12-31T15:59:50.123-08:00",
            ],
            vec![
                "2012-04-23",
                "1998-12-31T23:59:61Z",
                "1998-12-31T23:59:60Z",
                "1963-06-19t08:30:06Z",
                "1990-02-31T15:59:59.123-08:00",
                "1963-06-19T08:30:06.283185",
            ],
        ),
        (
            "uuid",
            vec!["12345678-1234-1234-1234-1234567890ab", "2EB8AA08-AA98-11EA-B4AA-73B441D16380"],
            vec!["12345678-1234"],
        ),
        ("ipv4", vec!["192.168.0.1", "255.255.255.255", "0.0.0.0"], vec!["256.1.1.1", "01.2.3.4", "1.2.3"]),
        (
            "ipv6",
            vec![
                "2001:0db8:0:0:0:0:0:1",
                "::1",
                "::",
                "2001:db8::1",
                "fe80::1",
                "::abef",
                "1:d6::42",
                "1:2:3:4:5:6:7::",
                "::2:3:4:5:6:7:8",
                "::42:ff:1",
                "d6::",
                "1::d6:192.168.0.1",
                "1:2::192.168.0.1",
                "::ffff:192.168.0.1",
                "1000:1000:1000:1000:1000:1000:255.255.255.255",
            ],
            vec![
                "2001",
                "12345::",
                "1:2:3:4:5:6:7:8:9",
                "::laptop",
                ":2:3:4:5:6:7:8",
                "1:2:3:4:5:6:7:",
                ":2:3:4::8",
                "1::2::3",
                "1",
                "::192.168.0.1:1",
                "1:2:3:4:5:::8",
                "1:2:3:4:5:6:7",
                "fe80::a%eth1",
                "127.0.0.1",
            ],
        ),
        (
            "email",
            vec![
                "a.b@example.com",
                "a.b.c@example.com",
                "John.Smith@Example.COM",
                "te~st@example.com",
                "te.s.t@example.com",
                "joe+tag@mail.a.b.example.co.uk",
                "o'brien@example.com",
                "joe.bloggs@[127.0.0.1]",
            ],
            vec![
                "a@",
                "@b.c",
                "a..b@c.de",
                "2962",
                ".test@example.com",
                "test.@example.com",
                "te..st@example.com",
                "a@b c.de",
            ],
        ),
        (
            "hostname",
            vec![
                "example.com",
                "a-b.c",
                "www.example.com",
                "Example.COM",
                "1host",
                "a.b.c.d.e.f.example",
                "xn--4gbwdl.xn--wgbh1c",
            ],
            vec!["-a.b", "a..b", "a-.b", "not_valid", ".example", "a b"],
        ),
        (
            "uri",
            vec![
                "https://example.com/a/b",
                "http://foo.bar/?baz=qux#quux",
                "http://foo.com/blah_(wikipedia)_blah#cite-1",
                "http://foo.bar/?q=Test%20URL-encoded%20stuff",
                "http://223.255.255.254",
                "ftp://ftp.is.co.za/rfc/rfc1808.txt",
                "ldap://[2001:db8::7]/c=GB?objectClass?one",
                "mailto:John.Doe@example.com",
                "tel:+1-816-555-1212",
                "http://localhost:8080/x",
                "urn:oasis:names:specification:docbook:dtd:xml:4.1.2",
                "https://user:pass@Example.com:80/~a/?a=1&b=2",
            ],
            vec![
                "example.com",
                "//foo.bar/?baz=qux#quux",
                "/abc",
                "abc",
                "http:// shouldfail.com",
                ":// should fail",
                "bar,baz:foo",
                "https://example.org/foobar<>.txt",
                "https://example.org/foobar{}.txt",
                "https://example.org/foobar^.txt",
                "http://a/%4",
            ],
        ),
        (
            "json-pointer",
            vec!["", "/foo/bar~0/baz~1/%a", "/", "/~1.1", "/foo//bar"],
            vec!["/foo/bar~", "#/", "a", "/~2"],
        ),
        ("relative-json-pointer", vec!["0", "1/0", "0#", "120/foo/bar"], vec!["/foo", "-1/foo", "01/a", "0##", ""]),
        (
            "iri",
            vec!["http://ƒøø.ßår/?∂éœ=πîx#πîüx", "http://[2001:0db8::7334]"],
            vec!["/abc", "âππ", "\\\\WINDOWS\\filëßåré"],
        ),
        (
            "uri-reference",
            vec!["/abc", "abc", "#fragment", "//foo.bar/?baz", ""],
            vec!["\\\\WINDOWS\\fileshare", "a b"],
        ),
        ("uri-template", vec!["http://example.com/{term:1}/{?q*,lang}", "dictionary"], vec!["http://a/{term:1}/{term"]),
        ("idn-email", vec!["실례@실례.테스트", "joe.bloggs@example.com"], vec!["2962"]),
        (
            "duration",
            vec![
                "P3D",
                "PT5M",
                "P1DT12H",
                "P2W",
                "P4DT12H30M5S",
                "P4Y",
                "PT0S",
                "P0D",
                "P1M",
                "PT36H",
                "P1Y6M",
                "P1Y2M3DT4H5M6S",
            ],
            vec!["P", "3D", "PT1.5H", "PT1.S", "PT", "PT1D", "P1", "P2D1Y", "P1D2H", "P2S", "P1Y2W", "P1DT", "1h"],
        ),
    ] {
        let quote = |texts: Vec<&str>| texts.into_iter().map(|text| format!("\"{text}\"")).collect::<Vec<_>>();
        let (good, bad) = (quote(good), quote(bad));
        let refs = |texts: &[String]| texts.iter().map(|text| &*text.clone().leak()).collect::<Vec<&str>>();
        schema(&format!(r#"{{"type": "string", "format": "{format}"}}"#), &refs(&good), &refs(&bad));
    }
    // Those of pydantic, which the validator refuses.
    let duration = from_json_schema(&serde_json::json!({ "format": "duration" }), &Budget::of_command()).unwrap();
    check("duration", &duration, &["\"PT1.5S\"", "\"-P1D\"", "\"P1DT0.5S\""], &["\"PT1.5H\"", "\"--P1D\""]);
}
