//! What needs a process of its own: burn's process-wide generator, and the count of allocated bytes.

use std::{
    alloc::{GlobalAlloc, Layout, System},
    sync::atomic::{AtomicUsize, Ordering::Relaxed},
};

use burn::{
    nn::{Linear, LinearConfig},
    tensor::{Device, Distribution, Tensor},
};
use burn_init::{Blueprint, Gpt2, HuggingFace, ModuleInit as _, Xavier};

struct Counting;

static LIVE: AtomicUsize = AtomicUsize::new(0);
static PEAK: AtomicUsize = AtomicUsize::new(0);

// SAFETY: every call goes to the system allocator unchanged.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        PEAK.fetch_max(LIVE.fetch_add(layout.size(), Relaxed) + layout.size(), Relaxed);
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        LIVE.fetch_sub(layout.size(), Relaxed);
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static COUNTING: Counting = Counting;

/// Bytes that `work` had live at its peak, beyond those before it.
fn peak<T>(work: impl FnOnce() -> T) -> (T, usize) {
    let before = LIVE.load(Relaxed);
    PEAK.store(before, Relaxed);
    let result = work();
    (result, PEAK.load(Relaxed) - before)
}

/// One test, so that nothing else runs in the process.
#[test]
fn burns_generator_and_memory() {
    let device = Device::flex();
    let model =
        || -> Vec<Linear> { (0..4).map(|_| LinearConfig::new(512, 512).with_bias(false).init(&device)).collect() };

    // C47: burn's own generator is neither read nor advanced.
    let next = || Tensor::<1>::random([8], Distribution::Default, &device).into_data().try_to_vec::<f32>().unwrap();
    device.seed(7);
    let (first, second) = (next(), next());
    device.seed(7);
    assert_eq!(next(), first);
    let (started, bytes) = peak(|| model().initialize(&Xavier::normal(), 1).unwrap());
    assert_eq!(next(), second, "initializing advanced burn's generator");
    device.seed(8);
    let again = model().initialize(&Xavier::normal(), 1).unwrap();
    assert_eq!(started[3].weight.val().into_data(), again[3].weight.val().into_data());

    // C50: a lazy model is started in one allocation for each tensor.
    let parameters = 4 * 512 * 512 * size_of::<f32>();
    assert!(bytes < parameters * 11 / 10, "{bytes} bytes for {parameters} of parameters");

    // C50: a plan for 10^9 parameters is made without them.
    let giant =
        || -> Vec<Linear> { (0..96).map(|_| LinearConfig::new(3232, 3232).with_bias(false).init(&device)).collect() };
    let giant = giant();
    let (plan, bytes) = peak(|| giant.plan(&Xavier::normal()).unwrap());
    assert_eq!(plan.num_params(), 96 * 3232 * 3232);
    assert!(plan.num_params() > 1_000_000_000);
    assert!(bytes < 10_000_000, "the plan took {bytes} bytes");
    assert!(!giant[0].weight.is_initialized());

    // Plans for giants, from a configuration: some megabytes, whatever the model.
    for (name, count) in [("llama-70b", 68_976_648_192), ("gpt3-175b", 174_604_259_328)] {
        let (plan, bytes) = peak(|| HuggingFace::preset(name).unwrap().plan(&Gpt2::new()).unwrap());
        assert_eq!(plan.num_params(), count);
        println!("the plan of {name}: {} lines, {bytes} bytes at the peak", plan.len());
        assert!(bytes < 10_000_000, "the plan of {name} took {bytes} bytes");
    }

    // A worker of tensor parallelism holds its block and no more, in either direction.
    let plan = Blueprint::new().linear("weight", [4096, 4096]).plan(&Xavier::normal()).unwrap();
    let block = 4096 * 1024 * size_of::<f32>();
    for axis in [0, 1] {
        let (values, bytes) = peak(|| plan.whole("weight", 1).unwrap().split(axis, 3, 4).unwrap().values::<f32>());
        assert_eq!(values.unwrap().len() * size_of::<f32>(), block);
        assert!(bytes < block * 11 / 10, "{bytes} bytes for a block of {block}");
    }

    #[cfg(feature = "checkpoint")]
    checkpoint_in_little_memory();
}

/// A checkpoint of 268 MB is streamed in less than 64, in either layout.
#[cfg(feature = "checkpoint")]
fn checkpoint_in_little_memory() {
    use burn_init::{Dtype, Layout as Stored, checkpoint::Checkpoint};

    let tree = Blueprint::new().linear("a.weight", [8192, 8192]).linear("b.weight", [16_384, 4096]);
    let plan = tree.plan(&Xavier::normal()).unwrap();
    for (layout, name) in [(Stored::InOut, "in-out"), (Stored::OutIn, "out-in")] {
        let folder = std::env::temp_dir().join(format!("burn-init-alone-{}-{name}", std::process::id()));
        let checkpoint = Checkpoint::new(&plan, 1).dtype(Dtype::BF16).layout(layout);
        let (written, bytes) = peak(|| checkpoint.safetensors(&folder));
        std::fs::remove_dir_all(&folder).unwrap();
        assert!(written.unwrap().bytes > 268_000_000);
        println!("a checkpoint of 268 MB, {name}: {bytes} bytes at the peak");
        assert!(bytes < 64_000_000, "{bytes} bytes for a checkpoint of 268 MB");
    }
}
