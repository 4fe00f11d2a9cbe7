//! A device that cannot be had is an error that says why.

use crate::device::{NAMES, open};

#[test]
fn unknown() {
    for name in ["tpu", "flex:1", ""] {
        assert_eq!(
            open(name).unwrap_err(),
            format!(
                "there is no device {name}; choose one of flex, ndarray, wgpu, vulkan, metal, cuda, rocm, or ws://host:port"
            )
        );
    }
}

/// What this build leaves out names its feature.
#[test]
fn feature_off() {
    let on = |name: &str| match name {
        "flex" => true,
        "ndarray" => cfg!(feature = "ndarray"),
        "wgpu" => cfg!(feature = "wgpu"),
        "vulkan" => cfg!(feature = "vulkan"),
        "metal" => cfg!(feature = "metal"),
        "cuda" => cfg!(feature = "cuda"),
        "rocm" => cfg!(feature = "rocm"),
        other => panic!("{other}"),
    };
    assert!(open("flex").is_ok());
    for name in NAMES.into_iter().filter(|name| !on(name)) {
        let text = format!("the device {name} needs a build with --features {name}; flex is always there");
        assert_eq!(open(name).unwrap_err(), text);
    }
    if cfg!(not(feature = "remote")) {
        let text = "the device ws://127.0.0.1:3000 needs a build with --features remote; flex is always there";
        assert_eq!(open("ws://127.0.0.1:3000").unwrap_err(), text);
    }
}

/// A machine without a graphics driver, made by hiding its drivers from a process.
#[cfg(feature = "wgpu")]
#[test]
fn no_graphics_driver() {
    let hidden = [
        ("VK_DRIVER_FILES", "/dev/null"),
        ("VK_ICD_FILENAMES", "/dev/null"),
        ("__EGL_VENDOR_LIBRARY_FILENAMES", "/dev/null"),
    ];
    crate::process::Process::start("missing::opens_wgpu", &hidden).succeeds(std::time::Duration::from_secs(60));
}

#[cfg(feature = "wgpu")]
#[test]
#[ignore = "a process of the test above"]
fn opens_wgpu() {
    for _ in 0..2 {
        let error = open("wgpu").unwrap_err();
        println!("{error}");
        assert!(error.starts_with("there is no wgpu device: "), "{error}");
    }
}

/// A machine without an NVIDIA driver. Where there is one, the suite is run on it instead.
#[cfg(feature = "cuda")]
#[test]
fn no_cuda_driver() {
    if let Err(error) = open("cuda") {
        assert!(error.starts_with("there is no cuda device: "), "{error}");
    }
}
