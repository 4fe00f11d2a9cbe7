"""Sets what a value costs in numpy, PyTorch and JAX beside `cargo bench --bench sampling`, in one run.

    python -m pip install numpy torch jax
    python benches/rivals/rivals.py [--cargo-features ndarray] [--no-cargo]

Prints a Markdown table of medians. A library that is not installed is left out. Each one runs in a process of its own,
held to as many processors as the row says.
"""

import argparse
import glob
import json
import os
import statistics
import subprocess
import sys
import time

LEN = 1 << 26


def median_ns(f, count, repeats=9):
    f()
    times = []
    for _ in range(repeats):
        start = time.perf_counter_ns()
        f()
        times.append(time.perf_counter_ns() - start)
    return statistics.median(times) / count


def numpy_rows():
    import numpy

    rng = numpy.random.default_rng(42)
    out = numpy.zeros(LEN, numpy.float32)
    yield "uniform", "numpy", median_ns(lambda: rng.random(out=out, dtype=numpy.float32), LEN)
    yield "normal", "numpy", median_ns(lambda: rng.standard_normal(out=out, dtype=numpy.float32), LEN)


def torch_rows():
    import torch

    torch.set_num_threads(len(os.sched_getaffinity(0)))
    out = torch.zeros(LEN)
    yield "fill", "PyTorch", median_ns(lambda: out.fill_(1.0), LEN)
    yield "uniform", "PyTorch", median_ns(lambda: out.uniform_(-0.05, 0.05), LEN)
    yield "normal", "PyTorch", median_ns(lambda: out.normal_(0.0, 0.02), LEN)
    cut = lambda: torch.nn.init.trunc_normal_(out, 0.0, 0.02, -0.04, 0.04)
    yield "truncated", "PyTorch", median_ns(cut, LEN, 3)
    for side in (512, 1024):
        square = torch.zeros(side, side)
        yield f"orthogonal {side}", "PyTorch", median_ns(lambda: torch.nn.init.orthogonal_(square), side * side)


def jax_rows():
    import jax

    key = jax.random.key(42)
    draws = {
        "uniform": jax.jit(lambda k: 0.1 * jax.random.uniform(k, (LEN,)) - 0.05),
        "normal": jax.jit(lambda k: 0.02 * jax.random.normal(k, (LEN,))),
        "truncated": jax.jit(lambda k: 0.02 * jax.random.truncated_normal(k, -2.0, 2.0, (LEN,))),
    }
    for name, draw in draws.items():
        yield name, "JAX", median_ns(lambda: draw(key).block_until_ready(), LEN)
    for side in (512, 1024):
        draw = jax.jit(lambda k, side=side: jax.random.orthogonal(k, side))
        yield f"orthogonal {side}", "JAX", median_ns(lambda: draw(key).block_until_ready(), side * side)


RIVALS = {"numpy": numpy_rows, "torch": torch_rows, "jax": jax_rows}


def in_process(rival, threads):
    processors = sorted(os.sched_getaffinity(0))[:threads]
    if len(processors) < threads:
        return []
    command = [sys.executable, __file__, "--one", rival]
    limit = {"preexec_fn": lambda: os.sched_setaffinity(0, processors)}
    environment = dict(os.environ, OMP_NUM_THREADS=str(threads))
    run = subprocess.run(command, capture_output=True, text=True, env=environment, **limit)
    if run.returncode:
        last = (run.stderr.strip().splitlines() or ["no message"])[-1]
        print(f"{rival} left out: {last}", file=sys.stderr)
        return []
    return [(*row[:2], "f32", threads, row[2]) for row in map(json.loads, run.stdout.splitlines())]


def criterion_rows(features):
    command = ["cargo", "bench", "--bench", "sampling"]
    if features:
        command += ["--features", features]
    subprocess.run(command, check=True, stdout=sys.stderr)


def criterion_results():
    metadata = subprocess.run(
        ["cargo", "metadata", "--format-version", "1", "--no-deps"], check=True, capture_output=True, text=True
    )
    target = json.loads(metadata.stdout)["target_directory"]
    for path in glob.glob(f"{target}/criterion/*/*/new/benchmark.json"):
        with open(path) as file:
            benchmark = json.load(file)
        with open(path.replace("benchmark.json", "estimates.json")) as file:
            median = json.load(file)["median"]["point_estimate"]
        who, dtype, threads = benchmark["function_id"].rsplit(" ", 2)
        yield benchmark["group_id"], who, dtype, int(threads[1:]), median / benchmark["throughput"]["Elements"]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--one", choices=RIVALS)
    parser.add_argument("--no-cargo", action="store_true", help="take criterion's results of an earlier run")
    parser.add_argument("--cargo-features", default="")
    arguments = parser.parse_args()
    if arguments.one:
        for row in RIVALS[arguments.one]():
            print(json.dumps(row))
        return

    if not arguments.no_cargo:
        criterion_rows(arguments.cargo_features)
    rows = list(criterion_results())
    for rival in RIVALS:
        for threads in (1, 2):
            rows += in_process(rival, threads)

    table = {}
    for group, who, dtype, threads, ns in rows:
        table.setdefault((group, who, dtype), {})[threads] = ns
    order = ["fill", "uniform", "normal", "truncated", "orthogonal 512", "orthogonal 1024"]
    print("| | | dtype | 1 thread, ns a value | times ours | 2 threads | times ours |")
    print("| --- | --- | --- | --: | --: | --: | --: |")
    for key in sorted(table, key=lambda key: (order.index(key[0]), min(table[key].values()))):
        group, who, dtype = key
        cells = []
        for threads in (1, 2):
            ns, ours = table[key].get(threads), table.get((group, "burn-init", "f32"), {}).get(threads)
            cells.append(f"{ns:.2f}" if ns else "")
            cells.append(f"{ns / ours:.1f}" if ns and ours and who != "burn-init" else "")
        print("|", " | ".join([group, who, dtype, *cells]), "|")


if __name__ == "__main__":
    main()
