//! Objects as they come: every field once, and as much of a broken one as there was before the break.

use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, Error, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Value as Json};

/// Reads an object. On an error `fields` has what stood before it.
pub(crate) fn read(text: &[u8], fields: &mut Map<String, Json>) -> Result<(), serde_json::Error> {
    let mut deserializer = serde_json::Deserializer::from_slice(text);
    Fields(fields).deserialize(&mut deserializer)?;
    deserializer.end()
}

/// Reads any value, whose objects have every field once.
pub(crate) fn value(text: &str) -> Result<Json, serde_json::Error> {
    let mut deserializer = serde_json::Deserializer::from_str(text);
    let value = Anything.deserialize(&mut deserializer)?;
    deserializer.end()?;
    Ok(value)
}

/// Why an object is refused that has two fields of this name: one of them would be lost.
pub(crate) fn there_twice(name: &str) -> String {
    format!("the field {name:?} occurs twice")
}

/// What is wrong with a line, whose number is told by whoever has it.
pub(crate) fn of_line(error: &serde_json::Error) -> String {
    error.to_string().replace(" at line 1 column ", " at column ")
}

/// What is wrong with a field that was read by itself; not where, for nobody sees where in its line it begins.
pub(crate) fn of_field(name: &str, error: &serde_json::Error) -> String {
    let told = error.to_string();
    let what = told.rsplit_once(" at line 1 column ").map_or(told.as_str(), |(what, _)| what);
    format!("field {name:?}: {what}")
}

/// Fills an object.
struct Fields<'m>(&'m mut Map<String, Json>);

impl<'de> DeserializeSeed<'de> for Fields<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for Fields<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        while let Some(name) = map.next_key::<String>()? {
            if self.0.contains_key(&name) {
                return Err(A::Error::custom(there_twice(&name)));
            }
            let value = map.next_value_seed(Anything)?;
            self.0.insert(name, value);
        }
        Ok(())
    }
}

/// Any value, whose objects have every field once.
struct Anything;

impl<'de> DeserializeSeed<'de> for Anything {
    type Value = Json;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Json, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Anything {
    type Value = Json;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a value")
    }

    fn visit_unit<E: Error>(self) -> Result<Json, E> {
        Ok(Json::Null)
    }

    fn visit_bool<E: Error>(self, value: bool) -> Result<Json, E> {
        Ok(value.into())
    }

    fn visit_u64<E: Error>(self, value: u64) -> Result<Json, E> {
        Ok(value.into())
    }

    fn visit_i64<E: Error>(self, value: i64) -> Result<Json, E> {
        Ok(value.into())
    }

    fn visit_f64<E: Error>(self, value: f64) -> Result<Json, E> {
        Ok(value.into())
    }

    fn visit_str<E: Error>(self, value: &str) -> Result<Json, E> {
        Ok(value.into())
    }

    fn visit_string<E: Error>(self, value: String) -> Result<Json, E> {
        Ok(value.into())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Json, A::Error> {
        let mut values = Vec::new();
        while let Some(value) = list.next_element_seed(Anything)? {
            values.push(value);
        }
        Ok(values.into())
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Json, A::Error> {
        let mut fields = Map::new();
        Fields(&mut fields).visit_map(map)?;
        Ok(fields.into())
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn objects_are_read_as_they_are() {
        let text = r#"{"a":null,"b":[true,-1,18446744073709551615,1.5,"\u00e9",{"c":{}}],"":"x"}"#;
        let mut fields = Map::new();
        read(text.as_bytes(), &mut fields).unwrap();
        assert_eq!(Json::Object(fields), serde_json::from_str::<Json>(text).unwrap());
    }

    #[test]
    fn what_is_there_twice_is_refused_and_what_stood_before_is_known() {
        for (text, part, before) in [
            (r#"{"id":1,"op":"get","op":"put"}"#, "\"op\" occurs twice", json!({"id": 1, "op": "get"})),
            (r#"{"id":1,"key":{"hex":"00","hex":"01"}}"#, "\"hex\" occurs twice", json!({"id": 1})),
            (r#"{"id":1,"list":[{"a":1,"\u0061":1}]}"#, "\"a\" occurs twice", json!({"id": 1})),
            (r#"{"id":1,"op":"#, "EOF", json!({"id": 1})),
            (r#"{"id":1}{}"#, "trailing", json!({"id": 1})),
            (r#"[{"id":1}]"#, "an object", json!({})),
            ("7", "an object", json!({})),
        ] {
            let mut fields = Map::new();
            let error = read(text.as_bytes(), &mut fields).unwrap_err().to_string();
            assert!(error.contains(part), "{text}: {error}");
            assert_eq!(Json::Object(fields), before, "{text}");
        }
    }
}
