//! Data parallel: replicas that start themselves from the seed are equal, and nothing is sent between them.

use burn_init::ModuleInit as _;

use crate::{
    process::{Process, say},
    under_test,
    zoo::{bits, digest, transformer, zoo},
};

const DIGEST: &str = "digest ";

/// What one replica holds: the zoo and a Transformer on the device under test, and the lock that its plan pins.
fn replica(seed: u64) -> u64 {
    let device = under_test();
    let config = transformer().with_seed(seed);
    let model = config.init(&device).unwrap();
    let lock = serde_json::to_string(&model.plan(&config.scheme).unwrap().lock(seed).unwrap()).unwrap();
    let (zoo, model) = (digest(&bits(&zoo(None, seed, &device).unwrap())), digest(&bits(&model)));
    digest_of(&(zoo, model, lock))
}

fn digest_of(what: &impl std::hash::Hash) -> u64 {
    use std::hash::Hasher as _;
    let mut hasher = std::hash::DefaultHasher::new();
    what.hash(&mut hasher);
    hasher.finish()
}

/// Four processes with different numbers of threads, each on its own.
#[test]
fn processes() {
    let start = |threads: &str| Process::start("replicas::one_process", &[("RAYON_NUM_THREADS", threads)]);
    let replicas: Vec<Process> = ["1", "2", "3", "8"].into_iter().map(start).collect();
    let expected = replica(42);
    for mut replica in replicas {
        assert_eq!(replica.answer(DIGEST), expected.to_string());
        replica.succeeds(std::time::Duration::from_secs(60));
    }
    assert_ne!(replica(43), expected, "another seed is another start");
}

#[test]
#[ignore = "a process of the test above"]
fn one_process() {
    say(DIGEST, replica(42));
}

/// One replica in each of four threads.
#[test]
fn threads() {
    let expected = replica(42);
    std::thread::scope(|scope| {
        let replicas: Vec<_> = (0..4).map(|_| scope.spawn(|| replica(42))).collect();
        replicas.into_iter().for_each(|replica| assert_eq!(replica.join().unwrap(), expected));
    });
}
