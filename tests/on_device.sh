#!/usr/bin/env bash
# The promises that a backend can break, on one device of this machine, and a short training on it:
#
#     tests/on_device.sh cuda
#
# Any of ndarray, wgpu, vulkan, metal, cuda, rocm; with "all" behind it every promise of the crate as well.
set -euo pipefail
cd "$(dirname "$0")/.."

device="${1:?which device? for example: tests/on_device.sh cuda}"
feature="${device%%:*}"
export BURN_INIT_DEVICE="$device"

cargo test --profile backends --features "$feature" --test backends -- --nocapture --test-threads=1
cargo run --profile backends --features "$feature" --example train_tiny -- --steps 20 --out "${CARGO_TARGET_DIR:-target}/on_device"
if [ "${2:-}" = all ]; then
    cargo test --features "$feature" --test promises
fi
