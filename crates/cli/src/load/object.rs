//! A line of JSON: an object that has every field once, and each as it stands in the line.

use std::{collections::BTreeMap, fmt};

use serde::{
    Deserialize,
    de::{Deserializer, Error, MapAccess, Visitor},
};
use serde_json::{Value as Json, value::RawValue};

use crate::{dump::cell::Kind, fields};

/// The fields of an object.
#[derive(Debug)]
pub(super) struct Object<'t>(BTreeMap<String, &'t RawValue>);

impl<'t> Object<'t> {
    /// Reads a line, or says why it is no object, or which field would be lost because another has its name.
    pub(super) fn read(line: &'t [u8]) -> Result<Object<'t>, String> {
        match line {
            [b'[', ..] => {
                Err("an array begins here; put each of its elements into a line of its own".to_owned())
            }
            [b'{', ..] => serde_json::from_slice(line).map_err(|error| fields::of_line(&error)),
            _ => Err(match serde_json::from_slice::<Json>(line) {
                Ok(json) => format!("found {json}"),
                Err(error) => fields::of_line(&error),
            }),
        }
    }

    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    pub(super) fn names(&self) -> impl Iterator<Item = &str> {
        self.0.keys().map(String::as_str)
    }

    /// A field, if it is there and of this type.
    pub(super) fn get<T: Deserialize<'t>>(&self, name: &str) -> Option<T> {
        serde_json::from_str(self.0.get(name)?.get()).ok()
    }

    /// A field as it stands in the line: its numbers have all their digits, and its objects their fields.
    pub(super) fn raw(&self, name: &str) -> Result<&'t str, String> {
        self.0.get(name).map(|field| field.get()).ok_or_else(|| format!("there is no field {name:?}"))
    }

    /// A field that is to become a key or a value of this kind. A number that needs more than 64 bits is the string of
    /// its digits then, as it is in a dump.
    pub(super) fn cell(&self, name: &str, kind: Kind) -> Result<Json, String> {
        let text = self.raw(name)?;
        let is_whole = text.strip_prefix('-').unwrap_or(text).bytes().all(|byte| byte.is_ascii_digit());
        let is_long = is_whole && text.parse::<u64>().is_err() && text.parse::<i64>().is_err();
        if is_long && matches!(kind, Kind::U128 | Kind::I128) {
            return Ok(text.into());
        }
        fields::value(text).map_err(|error| fields::of_field(name, &error))
    }
}

impl<'de: 't, 't> Deserialize<'de> for Object<'t> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Object<'t>, D::Error> {
        deserializer.deserialize_map(Fields)
    }
}

/// Reads the fields of an object.
struct Fields;

impl<'de> Visitor<'de> for Fields {
    type Value = Object<'de>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Object<'de>, A::Error> {
        let mut fields = BTreeMap::new();
        while let Some((name, value)) = map.next_entry::<String, &RawValue>()? {
            if fields.contains_key(&name) {
                return Err(A::Error::custom(fields::there_twice(&name)));
            }
            fields.insert(name, value);
        }
        Ok(Object(fields))
    }
}
