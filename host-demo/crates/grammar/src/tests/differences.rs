//! The differences between grammars and their schemas.

use crate::{Budget, Piece, from_json_schema, from_pieces};

/// The table of a grammar contains the names of the schema's keywords that the grammar does not enforce.
#[test]
fn differences_are_named() {
    let differences = |schema: &str| {
        let table = from_json_schema(&serde_json::from_str(schema).unwrap(), &Budget::of_command()).unwrap();
        table.differences().join("; ")
    };
    for same in [
        r#"{"type": "array", "items": {"enum": [1, 2]}, "uniqueItems": true}"#,
        r#"{"type": "array", "maxItems": 1, "uniqueItems": true}"#,
        r#"{"type": "string", "format": "uri"}"#,
        r#"{"type": ["object", "null"], "properties": {"a": {"type": "string", "format": "date"}}}"#,
    ] {
        assert_eq!(differences(same), "", "{same}");
    }
    for (schema, wanted) in [
        (r#"{"uniqueItems": true}"#, "$: uniqueItems is enforced only for up to 8 listed values"),
        (
            r#"{"type": "object", "properties": {"a": {"type": "array", "uniqueItems": true}}}"#,
            "$.properties.a: uniqueItems is enforced only for up to 8 listed values",
        ),
        (r#"{"enum": ["a", "b"], "format": "phone"}"#, "$.enum: format phone: not known, so ignored"),
        (r#"{"type": "string", "format": "phone"}"#, "$: format phone: not known, so ignored"),
        (r#"{"type": "string", "format": "hostname"}"#, "$: format hostname: labels may be longer than 63 characters"),
        (
            r#"{"type": "string", "format": "email", "maxLength": 99}"#,
            "$: format email: with maxLength, only the outline of the text is enforced",
        ),
        (
            r##"{"$ref": "#/$defs/a", "$defs": {"a": {"minimum": 1}}}"##,
            "$.$defs.a: only number is generated, because there is no type",
        ),
    ] {
        assert_eq!(differences(schema), wanted, "{schema}");
    }
}

/// If several schemas have the same difference, it is listed once. The number of listed differences is limited.
#[test]
fn differences_of_several_schemas() {
    let schema =
        |format: usize| Piece::Schema(serde_json::json!({ "type": "string", "format": format!("f{}", format % 20) }));
    let table = from_pieces(&Piece::Alt((0..40).map(schema).collect()), &Budget::of_command()).unwrap();
    let differences = table.differences();
    assert_eq!((differences.len(), differences.last().unwrap().as_str()), (17, "and 4 more"));
    assert_eq!(differences[1], "$: format f1: not known, so ignored");
}
