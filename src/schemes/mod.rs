//! Published schemes, one file each, and the registry that names them.

mod defaults;
mod gpt2;
mod variance_scaling;

pub use defaults::{BurnDefault, TorchDefault};
pub use gpt2::{Gpt2, Gpt2Normal, NeutralNorm};
pub use variance_scaling::{FanScaled, Kaiming, LeCun, Xavier};

use std::{fmt, str::FromStr};

use serde::{Deserialize, Deserializer, Serialize, de};

use crate::{
    error::{Error, ErrorKind},
    initializer::Initializer,
    param::ParamSpec,
    role::near,
    rule::Rule,
};

macro_rules! registry {
    (
        kinds { $($kind:ident($type:ty) = $tag:literal),* $(,)? }
        names { $($name:literal => $value:expr, $summary:literal;)* }
    ) => {
        /// A scheme as data: chosen by name, or read from JSON or TOML with its fields.
        ///
        /// ```
        /// use burn_init::Scheme;
        ///
        /// let by_name: Scheme = "gpt2".parse()?;
        /// let by_file: Scheme = serde_json::from_str(r#"{"scheme": "gpt2", "std": 0.02}"#).unwrap();
        /// assert_eq!(by_name, by_file);
        /// assert_eq!(
        ///     "gtp2".parse::<Scheme>().unwrap_err().to_string(),
        ///     "unknown scheme \"gtp2\"; did you mean gpt2?"
        /// );
        /// # Ok::<(), burn_init::Error>(())
        /// ```
        ///
        /// In a file it is either a name from [`names`](Self::names), or a table whose key `scheme` is such a name and whose other keys
        /// are fields to change, with the published values as defaults. Unknown names and fields are errors.
        #[derive(Debug, Clone, PartialEq, Serialize)]
        #[serde(tag = "scheme")]
        #[non_exhaustive]
        pub enum Scheme {
            $(#[doc = concat!("See [`", stringify!($type), "`].")] #[serde(rename = $tag)] $kind($type),)*
        }

        #[derive(Deserialize)]
        #[serde(tag = "scheme")]
        enum Tagged {
            $(#[serde(rename = $tag)] $kind($type),)*
        }

        impl From<Tagged> for Scheme {
            fn from(tagged: Tagged) -> Self {
                match tagged { $(Tagged::$kind(scheme) => Scheme::$kind(scheme),)* }
            }
        }

        $(impl From<$type> for Scheme {
            fn from(scheme: $type) -> Self {
                Scheme::$kind(scheme)
            }
        })*

        impl Scheme {
            fn inner(&self) -> &dyn Initializer {
                match self { $(Scheme::$kind(scheme) => scheme,)* }
            }

            /// The values of the key `scheme` that stand for a kind with all its fields.
            fn kinds() -> &'static [&'static str] {
                &[$($tag),*]
            }

            /// Every scheme that has a name, with one line about it.
            pub fn all() -> Vec<(&'static str, Scheme, &'static str)> {
                vec![$(($name, Scheme::from($value), $summary),)*]
            }
        }
    };
}

registry! {
    kinds {
        Gpt2(Gpt2) = "gpt2",
        TorchDefault(TorchDefault) = "torch-default",
        BurnDefault(BurnDefault) = "burn-default",
        FanScaled(FanScaled) = "fan-scaled",
    }
    names {
        "gpt2" => Gpt2::new(), "GPT-2 as in the paper, nanoGPT and Hugging Face";
        "gpt2-released" => Gpt2::released(), "GPT-2 as in the code that OpenAI released";
        "torch-default" => TorchDefault::new(), "PyTorch's defaults";
        "burn-default" => BurnDefault::new(), "burn's defaults";
        "xavier-normal" => Xavier::normal(), "Glorot and Bengio 2010, normal";
        "xavier-uniform" => Xavier::uniform(), "Glorot and Bengio 2010, uniform";
        "kaiming-normal" => Kaiming::normal(), "He et al. 2015, normal";
        "kaiming-uniform" => Kaiming::uniform(), "He et al. 2015, uniform";
        "lecun-normal" => LeCun::normal(), "LeCun et al. 1998, normal";
        "lecun-uniform" => LeCun::uniform(), "LeCun et al. 1998, uniform";
    }
}

impl Scheme {
    /// [`Gpt2::new`].
    pub fn gpt2() -> Self {
        Gpt2::new().into()
    }

    /// The names that parse.
    pub fn names() -> Vec<&'static str> {
        Self::all().into_iter().map(|(name, ..)| name).collect()
    }
}

impl Default for Scheme {
    fn default() -> Self {
        Self::gpt2()
    }
}

impl Initializer for Scheme {
    fn rule(&self, param: &ParamSpec) -> Result<Option<Rule>, Error> {
        self.inner().rule(param)
    }

    fn check(&self, tree: &[ParamSpec]) -> Result<(), Error> {
        self.inner().check(tree)
    }
}

/// The name, where the scheme is a named one as it stands; its debug form otherwise.
impl fmt::Display for Scheme {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match Self::all().into_iter().find(|(_, scheme, _)| scheme == self) {
            Some((name, ..)) => f.pad(name),
            None => write!(f, "{self:?}"),
        }
    }
}

impl FromStr for Scheme {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        Self::all().into_iter().find(|(name, ..)| *name == text).map(|(_, scheme, _)| scheme).ok_or_else(|| {
            Error::new(ErrorKind::Parse, format!("unknown scheme \"{text}\""), near(text, Self::names().into_iter()))
        })
    }
}

impl<'de> Deserialize<'de> for Scheme {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct NameOrTable;

        impl<'de> de::Visitor<'de> for NameOrTable {
            type Value = Scheme;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("the name of a scheme, or a table with the key `scheme`")
            }

            fn visit_str<E: de::Error>(self, text: &str) -> Result<Scheme, E> {
                text.parse().map_err(E::custom)
            }

            fn visit_map<A: de::MapAccess<'de>>(self, map: A) -> Result<Scheme, A::Error> {
                let fields = serde_json::Map::deserialize(de::value::MapAccessDeserializer::new(map))?;
                Scheme::from_fields(fields).map_err(de::Error::custom)
            }
        }

        deserializer.deserialize_any(NameOrTable)
    }
}

impl Scheme {
    /// The named scheme, with the given fields in place of its own.
    fn from_fields(mut fields: serde_json::Map<String, serde_json::Value>) -> Result<Self, String> {
        let name = match fields.remove("scheme") {
            Some(serde_json::Value::String(name)) => name,
            Some(other) => return Err(format!("the key `scheme` is {other}; give a name in quotes")),
            None => return Err(format!("the key `scheme` is missing; known are {}", Self::names().join(", "))),
        };
        let base = match Self::kinds().contains(&name.as_str()) {
            true if !Self::names().contains(&name.as_str()) => serde_json::json!({ "scheme": name }),
            _ => {
                let named: Scheme = name.parse().map_err(|error: Error| error.to_string())?;
                serde_json::to_value(named).map_err(|error| error.to_string())?
            }
        };
        let serde_json::Value::Object(mut table) = base else { return Err(format!("{name} has no fields")) };
        table.append(&mut fields);
        let tagged: Tagged =
            serde_json::from_value(table.into()).map_err(|error| format!("in the scheme {name}: {error}"))?;
        Ok(tagged.into())
    }
}
