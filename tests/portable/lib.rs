//! The numbers of `burn-init`, without burn.

#[path = "../../src/error.rs"]
pub mod error;
#[path = "../../src/sample/mod.rs"]
#[allow(unused_imports, dead_code)]
pub mod sample;
