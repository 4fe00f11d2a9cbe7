//! The fields of a scheme in a file, before it is known which scheme it is.

use std::fmt;

use serde::{Deserialize, Deserializer, de};
use serde_json::{Map, Number, Value};

/// Any value but a number that is none: JSON has no word for it, and would take it for an absent one.
pub(super) struct Field(pub Value);

impl<'de> Deserialize<'de> for Field {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(AnyField).map(Field)
    }
}

/// The fields of a table.
pub(super) fn fields<'de, A: de::MapAccess<'de>>(mut map: A) -> Result<Map<String, Value>, A::Error> {
    let mut fields = Map::new();
    while let Some((name, Field(value))) = map.next_entry::<String, Field>()? {
        if fields.insert(name.clone(), value).is_some() {
            return Err(de::Error::custom(format!("the field `{name}` is given twice")));
        }
    }
    Ok(fields)
}

struct AnyField;

impl<'de> de::Visitor<'de> for AnyField {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a field of a scheme")
    }

    fn visit_bool<E: de::Error>(self, value: bool) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_i64<E: de::Error>(self, value: i64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_u64<E: de::Error>(self, value: u64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_f64<E: de::Error>(self, value: f64) -> Result<Value, E> {
        match Number::from_f64(value) {
            Some(number) => Ok(number.into()),
            None => Err(E::custom(format!("{value} is no number that a scheme can use; give a finite one"))),
        }
    }

    fn visit_str<E: de::Error>(self, value: &str) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_unit<E: de::Error>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_none<E: de::Error>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_some<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        deserializer.deserialize_any(self)
    }

    fn visit_seq<A: de::SeqAccess<'de>>(self, mut seq: A) -> Result<Value, A::Error> {
        let mut values = Vec::new();
        while let Some(Field(value)) = seq.next_element()? {
            values.push(value);
        }
        Ok(values.into())
    }

    fn visit_map<A: de::MapAccess<'de>>(self, map: A) -> Result<Value, A::Error> {
        fields(map).map(Value::Object)
    }
}
