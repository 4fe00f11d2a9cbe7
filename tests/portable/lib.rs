//! The numbers of `burn-init`, without burn.

#[path = "../../src/sample/mod.rs"]
#[allow(unused_imports)]
pub mod sample;
