//! A device by its name, or an error that says what is missing. Examples and tests share it.
#![allow(dead_code)]

use burn::tensor::Device;

/// The names that [`open`] knows.
pub const NAMES: [&str; 7] = ["flex", "ndarray", "wgpu", "vulkan", "metal", "cuda", "rocm"];

/// Opens the device of that name; `cuda:1` and `rocm:1` are the second of their kind. `ws://127.0.0.1:3000` is the first device
/// of a remote server, `ws://127.0.0.1:3000#1` its second.
///
/// # Errors
/// A name that is unknown, a device whose cargo feature is off, and one that is not there. burn itself would find out at the first
/// tensor, and panic.
pub fn open(name: &str) -> Result<Device, String> {
    match name {
        "flex" => Ok(Device::flex()),
        #[cfg(feature = "ndarray")]
        #[allow(deprecated)]
        "ndarray" => Ok(Device::ndarray()),
        #[cfg(feature = "wgpu")]
        "wgpu" => graphics(name, burn::tensor::wgpu::WgpuBackend::Auto),
        #[cfg(feature = "vulkan")]
        "vulkan" => graphics(name, burn::tensor::wgpu::WgpuBackend::Vulkan),
        #[cfg(feature = "metal")]
        "metal" => graphics(name, burn::tensor::wgpu::WgpuBackend::Metal),
        #[cfg(feature = "cuda")]
        card if kind(card) == "cuda" => nth(card, burn::tensor::DeviceType::Cuda),
        #[cfg(feature = "rocm")]
        card if kind(card) == "rocm" => nth(card, burn::tensor::DeviceType::Rocm),
        #[cfg(feature = "remote")]
        address if address.starts_with("ws://") => remote(address),
        address if address.starts_with("ws://") => Err(off(address, "remote")),
        card if matches!(kind(card), "cuda" | "rocm") => Err(off(card, kind(card))),
        known if NAMES.contains(&known) => Err(off(known, known)),
        other => Err(format!("there is no device {other}; choose one of {}, or ws://host:port", NAMES.join(", "))),
    }
}

/// The device that the environment variable `BURN_INIT_DEVICE` names, or flex.
///
/// # Errors
/// As [`open`].
pub fn from_environment() -> Result<Device, String> {
    let name = std::env::var("BURN_INIT_DEVICE").unwrap_or_default();
    open(if name.is_empty() { "flex" } else { &name }).map_err(|reason| format!("BURN_INIT_DEVICE: {reason}"))
}

fn off(device: &str, feature: &str) -> String {
    format!("the device {device} needs a build with --features {feature}; flex is always there")
}

/// `cuda` of `cuda:1`.
fn kind(name: &str) -> &str {
    name.split_once(':').map_or(name, |(kind, _)| kind)
}

#[cfg(any(feature = "cuda", feature = "rocm"))]
fn nth(name: &str, of: burn::tensor::DeviceType) -> Result<Device, String> {
    let index = name.split_once(':').map_or("0", |(_, index)| index);
    let index: usize = index.parse().map_err(|_| format!("{name}: {index} is not the number of a card"))?;
    let found = Device::enumerate(of).into_vec();
    let missing = || match (found.len(), kind(name)) {
        (0, kind) => {
            format!("there is no {kind} device: the driver is not installed or lists none; flex is always there")
        }
        (cards, kind) => format!("there is no device {name}: the {kind} driver lists {cards}, counted from 0"),
    };
    found.get(index).cloned().ok_or_else(missing)
}

/// A graphics device can be set up once in a process.
#[cfg(any(feature = "wgpu", feature = "vulkan", feature = "metal"))]
fn graphics(name: &str, api: burn::tensor::wgpu::WgpuBackend) -> Result<Device, String> {
    static OPENED: std::sync::Mutex<Vec<(String, Result<Device, String>)>> = std::sync::Mutex::new(Vec::new());
    let mut opened = OPENED.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
    if let Some((_, device)) = opened.iter().find(|(known, _)| known == name) {
        return device.clone();
    }
    let device = Device::wgpu_options().graphics_api(api).init();
    let device = device.map_err(|reason| format!("there is no {name} device: {reason}; flex is always there"));
    opened.push((name.into(), device.clone()));
    device
}

#[cfg(feature = "remote")]
fn remote(address: &str) -> Result<Device, String> {
    let (url, index) = address.split_once('#').unwrap_or((address, "0"));
    let index: usize =
        index.parse().map_err(|_| format!("{address}: the number after # is not the index of a device"))?;
    let host = burn::tensor::remote::RemoteHost::websocket(url);
    let device = Device::remote_options(&host).device_index(index).init();
    device.map_err(|reason| format!("there is no device at {address}: {reason}"))
}
