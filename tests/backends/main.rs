//! The promises that a backend can break, small enough for a GPU that is emulated in software: on the device that `BURN_INIT_DEVICE` names, beside flex.
//!
//!     cargo test --test backends
//!     BURN_INIT_DEVICE=wgpu cargo test --profile backends --features wgpu --test backends

#[path = "../../examples/common/device.rs"]
mod device;

mod missing;
mod process;
#[cfg(feature = "remote")]
mod remote;
mod replicas;
mod training;
mod values;
mod zoo;

/// The device under test.
fn under_test() -> burn::tensor::Device {
    device::from_environment().unwrap_or_else(|error| panic!("{error}"))
}
