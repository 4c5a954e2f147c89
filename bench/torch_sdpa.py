#!/usr/bin/env python3
"""Adds PyTorch's attention to a benchmark's CSV, by the method of bench/README.md.

    python3 bench/torch_sdpa.py --csv FILE [--to N] [--batch N] [--device cpu] [--reverse]
    python3 bench/torch_sdpa.py --check     (R14's last eight checks; after make stage4, on a GPU)

On a GPU: SDPA with its Flash and its cuDNN backend, each forced on its own; attention written out
in fp16 and in fp32; and a Triton kernel of the design that the article "Building a Verifiable
FlashAttention Forward" describes (64 x 64 tiles, 4 warps, 2 stages). On a CPU: SDPA in fp32.
Rows that FILE has already are kept and not measured again; one whose launches were not counted gets
that number.
"""
import argparse, csv, math, os, statistics, subprocess, sys, time

try:
    import torch
    import torch.nn.functional as F
    from torch.nn.attention import SDPBackend, sdpa_kernel
except ImportError:
    sys.exit("torch_sdpa.py: PyTorch is not installed")
try:
    import triton
    import triton.language as tl
except ImportError:
    triton = None

if triton:
    @triton.jit
    def triton_kernel(q, k, v, o, seq, scale_log2, causal: tl.constexpr, head_dim: tl.constexpr,
                      block_q: tl.constexpr, block_k: tl.constexpr):
        tile, plane = tl.program_id(0), tl.program_id(1).to(tl.int64) * seq * head_dim
        rows = tile * block_q + tl.arange(0, block_q)
        dims = tl.arange(0, head_dim)
        own = plane + rows[:, None] * head_dim + dims[None, :]
        q_tile = tl.load(q + own, mask=rows[:, None] < seq, other=0.0)
        m = tl.full([block_q], -float("inf"), tl.float32)
        l = tl.zeros([block_q], tl.float32)
        acc = tl.zeros([block_q, head_dim], tl.float32)
        end = tl.minimum(seq, (tile + 1) * block_q) if causal else seq
        for first in range(0, end, block_k):
            cols = first + tl.arange(0, block_k)
            at = plane + cols[:, None] * head_dim + dims[None, :]
            k_tile = tl.load(k + at, mask=cols[:, None] < seq, other=0.0)
            s = tl.dot(q_tile, tl.trans(k_tile)) * scale_log2
            seen = cols[None, :] < seq
            if causal:
                seen = seen & (cols[None, :] <= rows[:, None])
            s = tl.where(seen, s, -float("inf"))
            m_new = tl.maximum(m, tl.max(s, 1))
            p = tl.exp2(s - m_new[:, None])
            correction = tl.exp2(m - m_new)
            l = l * correction + tl.sum(p, 1)
            v_tile = tl.load(v + at, mask=cols[:, None] < seq, other=0.0)
            acc = tl.dot(p.to(v_tile.dtype), v_tile, acc * correction[:, None])
            m = m_new
        tl.store(o + own, (acc / l[:, None]).to(q_tile.dtype), mask=rows[:, None] < seq)


def triton_attention(q, k, v, causal):
    batch, heads, seq, head_dim = q.shape
    o = torch.empty_like(q)
    triton_kernel[(triton.cdiv(seq, 64), batch * heads)](
        q, k, v, o, seq, head_dim**-0.5 * math.log2(math.e), causal, head_dim, 64, 64, num_warps=4, num_stages=2)
    return o


def eager(q, k, v, causal):
    s = (q @ k.transpose(-1, -2)) * q.shape[-1] ** -0.5
    if causal:
        seq = q.shape[-2]
        s = s.masked_fill(torch.ones(seq, seq, device=q.device, dtype=torch.bool).triu(1), -math.inf)
    return torch.softmax(s, -1) @ v


def sdpa(backend):
    def run(q, k, v, causal):
        return F.scaled_dot_product_attention(q, k, v, is_causal=causal)
    run.backend = backend
    return run


POOL = 2 * 8192 * 8192  # elements: more than twice what a cache holds
CALLS = 20              # in a graph
HEAD_START = 0.1        # milliseconds for which the device is kept busy before a timed call


class Gpu:
    def __init__(self, most):
        torch.manual_seed(0)
        self.device = torch.cuda.get_device_name()
        self.pool = torch.randn(max(POOL, 3 * most + 8), device="cuda", dtype=torch.float16)
        self.pool32 = None
        self.warm = torch.randn(4096, 4096, device="cuda", dtype=torch.float16)
        self.methods = [("sdpa_flash", "fp16", sdpa(SDPBackend.FLASH_ATTENTION)),
                        ("sdpa_cudnn", "fp16", sdpa(SDPBackend.CUDNN_ATTENTION)),
                        ("torch_eager_fp16", "fp16", eager), ("torch_eager_fp32", "fp32", eager)]
        if triton:
            self.methods.append(("triton_64x64", "fp16", triton_attention))
        driver = subprocess.run(["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"],
                                capture_output=True, text=True).stdout.strip()
        major, minor = torch.cuda.get_device_capability()
        self.common = dict(device=self.device, compute_capability=f"{major}.{minor}", driver=driver,
                           runtime=f"CUDA {torch.version.cuda}", compiler=f"torch {torch.__version__}", cache="cold",
                           threads=0)

    def window(self, turn, shape, dtype):
        count = math.prod(shape)
        if dtype == "fp32" and self.pool32 is None:
            self.pool32 = self.pool.float()
        pool = self.pool if dtype == "fp16" else self.pool32
        room = pool.numel() - count + 1
        step = count if count <= room else 1000003
        starts = [(3 * turn + t) * step % room // 8 * 8 for t in range(3)]
        return [pool[s:s + count].view(shape) for s in starts]

    def count_launches(self, row, dtype, method):
        """Kernels of one call, by PyTorch's profiler; copies and fills by the driver are none."""
        shape = (row["batch"], row["heads"], row["seq"], row["head_dim"])
        with self.context(method), torch.inference_mode():
            method(*self.window(0, shape, dtype), bool(row["causal"]))
            torch.cuda.synchronize()
            with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as seen:
                method(*self.window(0, shape, dtype), bool(row["causal"]))
                torch.cuda.synchronize()
        return sum(event.count for event in seen.key_averages()
                   if event.device_type == torch.autograd.DeviceType.CUDA
                   and not event.key.startswith(("Memcpy", "Memset")))

    def context(self, method):
        return sdpa_kernel(getattr(method, "backend", SDPBackend.MATH))

    def measure(self, row, dtype, method):
        shape = (row["batch"], row["heads"], row["seq"], row["head_dim"])
        causal = bool(row["causal"])
        with self.context(method), torch.inference_mode():
            def call(turn):
                return method(*self.window(turn, shape, dtype), causal)

            head_start = HEAD_START

            def timed(turn):
                q, k, v = self.window(turn, shape, dtype)
                start, stop = (torch.cuda.Event(enable_timing=True) for _ in range(2))
                torch.cuda._sleep(round(2e6 * head_start))  # the host gets ahead, as in gpu_bench.cu; at 2 GHz
                start.record()
                before = time.perf_counter()
                method(q, k, v, causal)
                host = 1e3 * (time.perf_counter() - before)
                stop.record()
                stop.synchronize()
                return start.elapsed_time(stop), host

            torch.cuda.synchronize()
            row["ms_first"] = timed(0)[0]
            o = call(0)
            row["max_abs_err"] = error = self.error(o, self.window(0, shape, dtype), causal)
            o_mib = o.numel() * o.element_size() / 2**20
            del o
            torch.cuda.synchronize()
            held = torch.cuda.memory_allocated()
            torch.cuda.reset_peak_memory_stats()
            call(0)
            torch.cuda.synchronize()
            row["peak_extra_with_o_mib"] = (torch.cuda.max_memory_allocated() - held) / 2**20
            row["peak_extra_mib"] = row["peak_extra_with_o_mib"] - o_mib
            # R14's bound for fp16; scores held in 16 bits have a right to be worse.
            if not error <= (2**-6 if method is eager and dtype == "fp16" else 2**-9):
                row["status"] = "wrong"
                return
            for _ in range(20):
                self.warm @ self.warm
            first = [timed(i) for i in range(3)]
            ms = first[-1][0]
            head_start = max(HEAD_START, 2 * max(host for _, host in first))  # for a slow host
            repeats = int(min(100, max(7, 250 / max(ms, 1e-3))))
            times, hosts = zip(*(timed(i) for i in range(repeats)))
            row.update(repeats=repeats, ms_median=statistics.median(times), ms_min=min(times), ms_max=max(times),
                       ms_host=statistics.median(hosts))
            if row["seq"] <= 2048:
                row["ms_graph"] = self.graph(call)
            if not row.get("ms_graph") and row["ms_host"] > head_start:
                row["status"] = "late"
        row["launches"] = self.count_launches(row, dtype, method)

    def graph(self, call):
        try:
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph):
                for i in range(CALLS):
                    call(i)
        except RuntimeError:
            return ""
        times = []
        for i in range(11):
            start, stop = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            start.record()
            graph.replay()
            stop.record()
            stop.synchronize()
            times.append(start.elapsed_time(stop) / CALLS)
        return statistics.median(times[2:])

    def error(self, o, qkv, causal):
        worst = 0.0
        planes = o.shape[0] * o.shape[1]
        for plane in {0, planes // 2, planes - 1}:
            q, k, v = (x.reshape(planes, *x.shape[2:])[plane].double() for x in qkv)
            rows = torch.linspace(0, q.shape[0] - 1, 16, device=q.device).long()
            s = q[rows] @ k.T * q.shape[-1] ** -0.5
            if causal:
                s = s.masked_fill(torch.arange(k.shape[0], device=q.device)[None] > rows[:, None], -math.inf)
            exact = torch.softmax(s, -1) @ v
            difference = (o.reshape(planes, *o.shape[2:])[plane][rows].double() - exact).abs().max().item()
            worst = max(worst, difference) if difference == difference else math.inf
        return worst

    def peak(self, row):
        capability = {"7.5": 1024, "8.0": 2048, "8.6": 1024, "8.9": 1024, "9.0": 4096}.get(row["compute_capability"])
        mhz = subprocess.run(["nvidia-smi", "--query-gpu=clocks.max.sm", "--format=csv,noheader,nounits"],
                             capture_output=True, text=True).stdout.strip()
        count = torch.cuda.get_device_properties(0).multi_processor_count
        return capability * count * float(mhz) * 1e-6 if capability and mhz else None


class Cpu:
    def __init__(self, device, threads):
        if threads:
            torch.set_num_threads(threads)
        self.methods = [("cpu_sdpa", "fp32", None)]
        self.common = dict(device=device, compute_capability=torch.backends.cpu.get_cpu_capability(), driver="",
                           runtime="", compiler=f"torch {torch.__version__}", cache="warm",
                           threads=torch.get_num_threads())

    def measure(self, row, dtype, method):
        torch.manual_seed(0)
        shape = (row["batch"], row["heads"], row["seq"], row["head_dim"])
        q, k, v = (torch.randn(shape) for _ in range(3))
        causal = bool(row["causal"])
        with torch.inference_mode():
            call = lambda: F.scaled_dot_product_attention(q, k, v, is_causal=causal)
            times = []
            for _ in range(8):
                before = time.perf_counter()
                o = call()
                times.append(1e3 * (time.perf_counter() - before))
            repeats = int(min(50, max(7, 1000 / times[-1])))
            row["ms_first"], times = times[0], []
            for _ in range(repeats):
                before = time.perf_counter()
                call()
                times.append(1e3 * (time.perf_counter() - before))
            exact = eager(q[:, :1].double(), k[:, :1].double(), v[:, :1].double(), causal)
            row["max_abs_err"] = (o[:, :1].double() - exact).abs().max().item()
        row.update(repeats=repeats, ms_median=statistics.median(times), ms_min=min(times), ms_max=max(times))

    def peak(self, row):
        return None


def check():
    """R14's last eight checks, and our output beside SDPA's on the same tensors, passed as .npy."""
    import numpy, tempfile
    print("B=1 H=2 D=64 fp16; largest error against attention in float64, at most 2^-9 = 1.95e-03")
    print(f"{'':24s} {'explicit fp16':>14s} {'SDPA Flash':>12s} {'stage 4':>10s} {'stage 4 - Flash':>16s}")
    failed = 0
    for seq in (129, 1024):
        for causal in (False, True):
            torch.manual_seed(seq)
            q, k, v = (torch.randn(1, 2, seq, 64).half() for _ in range(3))
            with tempfile.TemporaryDirectory() as folder:
                for name, x in zip("qkv", (q, k, v)):
                    numpy.save(f"{folder}/{name}.npy", x.numpy())
                command = ["./stage4/run", "--device", "gpu", "--out", f"{folder}/o.npy"]
                command += sum(([f"--{name}", f"{folder}/{name}.npy"] for name in "qkv"), [])
                subprocess.run(command + ["--causal"] * causal, check=True, stdout=subprocess.DEVNULL)
                own = torch.from_numpy(numpy.load(f"{folder}/o.npy")).cuda()
            q, k, v = q.cuda(), k.cuda(), v.cuda()
            exact = eager(q.double(), k.double(), v.double(), causal)
            with sdpa_kernel(SDPBackend.FLASH_ATTENTION):
                flash = F.scaled_dot_product_attention(q, k, v, is_causal=causal)
            errors = [(x.double() - exact).abs().max().item() for x in (eager(q, k, v, causal), flash, own)]
            apart = (own.float() - flash.float()).abs().max().item()
            print(f"N={seq:<5d} causal={'on ' if causal else 'off'}         " +
                  " ".join(f"{e:{w}.2e}" for e, w in zip(errors + [apart], (14, 12, 10, 16))))
            failed += sum(not e <= 2**-9 for e in errors) + (not apart <= 2**-8)
    print("ok: all within their bounds" if not failed else f"FAILED: {failed} beyond their bound")
    sys.exit(failed > 0)


def write(path, columns, rows):
    with open(path + ".part", "w", newline="") as file:
        writer = csv.DictWriter(file, columns, lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
    os.replace(path + ".part", path)


def main():
    if sys.argv[1:] == ["--check"]:
        check()
    parse = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parse.add_argument("--csv", required=True)
    parse.add_argument("--device", choices=("gpu", "cpu"), default="gpu")
    parse.add_argument("--from", dest="first", type=int, default=128)
    parse.add_argument("--to", type=int, default=2048)
    parse.add_argument("--batch", type=int, default=1)
    parse.add_argument("--heads", type=int, default=16)
    parse.add_argument("--head-dim", type=int)
    parse.add_argument("--threads", type=int)
    parse.add_argument("--reverse", action="store_true")
    given = parse.parse_args()
    if given.device == "gpu" and not torch.cuda.is_available():
        sys.exit("torch_sdpa.py: PyTorch sees no GPU")
    try:
        with open(given.csv, newline="") as file:
            reader = csv.DictReader(file)
            columns, rows = reader.fieldnames, list(reader)
    except OSError as error:
        sys.exit(f"torch_sdpa.py: {given.csv}: {error.strerror}; write it with build/bench first")
    if not rows:
        sys.exit(f"torch_sdpa.py: {given.csv} has no rows; write them with build/bench first")
    commit = rows[-1]["commit"]
    key = lambda row: tuple(str(row[c]) for c in ("method", "device", "dtype", "batch", "heads", "seq", "head_dim", "causal"))
    done = {key(row): row for row in rows}
    if given.device == "gpu":
        bench = Gpu(given.batch * given.heads * given.to * 128)
    else:
        bench = Cpu(rows[-1]["device"], given.threads or int(rows[-1]["threads"]))
    lengths = []
    seq = given.first
    while seq <= given.to:
        lengths.append(seq)
        seq *= 2
    for seq in reversed(lengths) if given.reverse else lengths:
        for head_dim in (given.head_dim,) if given.head_dim else (64, 128):
            for causal in (0, 1):
                for name, dtype, method in bench.methods:
                    row = dict.fromkeys(columns, "")
                    row.update(bench.common, method=name, stage="", commit=commit, dtype=dtype, batch=given.batch,
                               heads=given.heads, seq=seq, head_dim=head_dim, causal=causal, block_q=0, block_k=0,
                               repeats=0, launches=0, status="ok")
                    if key(row) in done:
                        old = done[key(row)]
                        if old["status"] == "ok" and old["launches"] == "0" and given.device == "gpu":
                            old["launches"] = bench.count_launches(row, dtype, method)
                            write(given.csv, columns, rows)
                        continue
                    try:
                        bench.measure(row, dtype, method)
                    except torch.OutOfMemoryError:
                        row["status"] = "oom"
                    except RuntimeError as error:
                        print(f"{name}: {str(error).splitlines()[0]}", file=sys.stderr)
                        row["status"] = "error"
                    if given.device == "gpu":
                        torch.cuda.empty_cache()
                    if row["status"] == "ok":
                        scores = seq * (seq + 1) / 2 if causal else seq * seq
                        ms = row["ms_graph"] or row["ms_median"]
                        row["tflops"] = 4 * given.batch * given.heads * head_dim * scores / ms * 1e-9
                        peak = bench.peak(row)
                        if peak:
                            row["peak_tflops"], row["share_of_peak"] = peak, row["tflops"] / peak
                    for column, value in row.items():
                        if isinstance(value, float):
                            row[column] = f"{value:.6g}"
                    rows.append(row)
                    write(given.csv, columns, rows)
                    print(f"{name:16s} B={given.batch} N={seq:5d} D={head_dim:3d} causal={causal} "
                          f"{row['ms_median'] or row['status']} ms {row['tflops']} TFLOP/s", flush=True)


if __name__ == "__main__":
    main()
