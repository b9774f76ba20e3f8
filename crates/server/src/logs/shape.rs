//! What is kept of a source map: where each piece of a script comes from, and nothing of the sources themselves. Owns what a
//! map may be before anything reads it as one, so that a small file cannot become a large table.

use serde::{Deserialize, Serialize};
use serde_json::Value;
use sourcemap::{DecodedMap, SourceMap, Token};

/// Pieces of one script; each takes 28 bytes of memory.
pub(super) const SEGMENTS: usize = 2_000_000;
/// Digits of one number, of five bits each: no line or column needs more.
const DIGITS: usize = 7;
/// The highest line and column at which a part of a joined script begins.
const OFFSET: u32 = 100_000_000;

/// The fields of a map that are read. Sources' contents are not among them.
#[derive(Deserialize, Serialize)]
struct Raw {
    version: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    sources: Option<Vec<Option<String>>>,
    #[serde(rename = "sourceRoot", skip_serializing_if = "Option::is_none")]
    source_root: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    names: Option<Vec<Value>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    mappings: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    sections: Option<Vec<Section>>,
}

/// A part of a joined script.
#[derive(Deserialize, Serialize)]
struct Section {
    offset: Offset,
    map: Box<Raw>,
}

#[derive(Deserialize, Serialize)]
struct Offset {
    line: u32,
    column: u32,
}

/// What is kept of a map as it was uploaded; or why it is none.
pub(super) fn kept(uploaded: &[u8]) -> Result<Vec<u8>, String> {
    let raw: Raw = serde_json::from_slice(uploaded)
        .map_err(|error| format!("it is no source map: {error}"))?;
    if raw.version != Some(3) {
        return Err("it is no source map of version 3".to_owned());
    }
    let mut segments = 0;
    match &raw.sections {
        None => fits(&raw, &mut segments)?,
        Some(sections) => {
            for section in sections {
                if section.map.sections.is_some() {
                    return Err("its sections have sections of their own".to_owned());
                }
                if section.offset.line > OFFSET || section.offset.column > OFFSET {
                    return Err("a section begins too far off".to_owned());
                }
                fits(&section.map, &mut segments)?;
            }
        }
    }
    let plain = serde_json::to_vec(&raw).map_err(|error| error.to_string())?;
    let map = read(&plain)?;
    if raw.sections.is_none() {
        return Ok(plain);
    }
    let mut flat = Vec::new();
    map.to_writer(&mut flat)
        .map_err(|error| error.to_string())?;
    Ok(flat)
}

/// Reads what was kept.
pub(super) fn read(kept: &[u8]) -> Result<SourceMap, String> {
    let read = match sourcemap::decode_slice(kept) {
        Ok(DecodedMap::Regular(map)) => Ok(map),
        Ok(DecodedMap::Index(index)) => {
            let is_far = |token: Token<'_>| token.get_dst_col() > OFFSET;
            let far = index
                .sections()
                .any(|section| match section.get_sourcemap() {
                    Some(DecodedMap::Regular(map)) => map.tokens().any(is_far),
                    Some(_) | None => false,
                });
            if far {
                return Err("it has a column that is too large".to_owned());
            }
            index.flatten()
        }
        Ok(DecodedMap::Hermes(_)) => return Err("it is a map for Hermes".to_owned()),
        Err(error) => Err(error),
    };
    read.map_err(|error| format!("it is no source map: {error}"))
}

/// Whether the table that a map becomes stays small, and its numbers are numbers.
fn fits(raw: &Raw, segments: &mut usize) -> Result<(), String> {
    let mappings = raw.mappings.as_deref().ok_or("it has no `mappings`")?;
    let mut digits = 0;
    for byte in mappings.bytes() {
        let value = match byte {
            b',' | b';' => {
                *segments += 1;
                digits = 0;
                continue;
            }
            b'A'..=b'Z' => byte - b'A',
            b'a'..=b'z' => byte - b'a' + 26,
            b'0'..=b'9' => byte - b'0' + 52,
            b'+' => 62,
            b'/' => 63,
            _ => return Err("its `mappings` are not in base64".to_owned()),
        };
        digits += 1;
        if digits > DIGITS {
            return Err("its `mappings` have a number that is too large".to_owned());
        }
        // The sixth bit says that the number goes on.
        if value & 32 == 0 {
            digits = 0;
        }
    }
    if *segments > SEGMENTS {
        return Err(format!("it has more than {SEGMENTS} mappings"));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn shape(map: &Value) -> Result<Value, String> {
        let kept = kept(map.to_string().as_bytes())?;
        Ok(serde_json::from_slice(&kept).unwrap())
    }

    #[test]
    fn sources_are_not_kept() {
        let map = json!({
            "version": 3, "file": "a.js", "sources": ["a.ts", null], "sourceRoot": "src", "names": ["x", 7],
            "sourcesContent": ["the source"], "mappings": "AAAAA;AACA", "rangeMappings": ";B", "x_facebook_sources": [],
        });
        let kept = shape(&map).unwrap();
        let expected = json!({
            "version": 3, "sources": ["a.ts", null], "sourceRoot": "src", "names": ["x", 7], "mappings": "AAAAA;AACA",
        });
        assert_eq!(kept, expected);
    }

    #[test]
    fn joined_scripts_become_one() {
        let part = |source: &str| json!({"version": 3, "sources": [source], "names": [], "mappings": "AAEA"});
        let map = json!({"version": 3, "sections": [
            {"offset": {"line": 0, "column": 0}, "map": part("a.ts")},
            {"offset": {"line": 4, "column": 10}, "map": part("b.ts")},
        ]});
        let kept = kept(map.to_string().as_bytes()).unwrap();
        let map = read(&kept).unwrap();
        let token = map.lookup_token(4, 12).unwrap();
        assert_eq!(
            (token.get_source(), token.get_src_line()),
            (Some("b.ts"), 2)
        );
    }

    #[test]
    fn bombs_do_not_go_off() {
        let with = |mappings: &str| json!({"version": 3, "sources": ["a"], "names": [], "mappings": mappings});
        let many = ";".repeat(SEGMENTS + 1);
        let nested = json!({"version": 3, "sections": [
            {"offset": {"line": 0, "column": 0}, "map": {"version": 3, "sections": []}},
        ]});
        let far = json!({"version": 3, "sections": [
            {"offset": {"line": u32::MAX, "column": 0}, "map": with("AAAA")},
        ]});
        let wide = json!({"version": 3, "sections": [
            {"offset": {"line": 0, "column": 1}, "map": with("DAAA")},
        ]});
        let table = [
            (json!({}), "version 3"),
            (json!([]), "no source map"),
            (json!({"version": 2, "mappings": ""}), "version 3"),
            (json!({"version": 3}), "`mappings`"),
            (json!({"version": 3, "mappings": 7}), "no source map"),
            (with("AAAA\u{e9}"), "base64"),
            (with("gggggggggggggggggC"), "too large"),
            (with("AACA,ADDDD"), "no source map"),
            (with("AAA"), "no source map"),
            (with("AEAA"), "no source map"),
            (with(&many), "more than"),
            (nested, "sections of their own"),
            (far, "too far"),
            (wide, "column that is too large"),
        ];
        for (map, expected) in table {
            let error = shape(&map).unwrap_err();
            let shown: String = map.to_string().chars().take(80).collect();
            assert!(error.contains(expected), "{shown}: {error}");
        }
        let deep = "{\"version\":3,\"sections\":[{\"offset\":{\"line\":0,\"column\":0},\"map\":"
            .repeat(10_000);
        assert!(kept(deep.as_bytes()).is_err());
        assert!(kept(b"not json").is_err());
        assert!(kept(&[0xff; 100]).is_err());
    }
}
