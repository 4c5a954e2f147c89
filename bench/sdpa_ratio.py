#!/usr/bin/env python3
"""Times the CUDA stages beside PyTorch's SDPA (Flash backend) in one process; wants a GPU.

    make libstages && python3 bench/sdpa_ratio.py OUT.csv

B=1 H=16 fp16, standard normal inputs, four sets of them rotated so that no call finds its own in
the cache; medians of 30 calls timed by events after 10 untimed ones and a matrix product that
raises the clocks. Useful FLOPs: causal counts the lower triangle.
"""
import csv, ctypes, os, statistics, subprocess, sys
import torch
from torch.nn.attention import SDPBackend, sdpa_kernel

HEADS, SETS, WARM_UP, REPEATS = 16, 4, 10, 30
FP16 = 1
TILES = {"stage3": (128, 64), "stage4": (128, 64), "stage3_scalar": (64, 32)}


class Args(ctypes.Structure):  # attention_args of common/attention.h
    _fields_ = [(name, ctypes.c_int64) for name in ("batch", "heads", "seq", "head_dim")] + [
        ("dtype", ctypes.c_int), ("causal", ctypes.c_bool), ("scale", ctypes.c_float),
        ("block_q", ctypes.c_int64), ("block_k", ctypes.c_int64), ("threads", ctypes.c_int),
        ("counters", ctypes.c_void_p), ("trace", ctypes.c_void_p), ("p_out", ctypes.c_void_p)]


def stage(library, name, q, k, v, o, causal):
    batch, heads, seq, head_dim = q.shape
    args = Args(batch, heads, seq, head_dim, FP16, causal, head_dim**-0.5, *TILES[name], 0, None, None, None)
    pointers = [ctypes.c_void_p(x.data_ptr()) for x in (q, k, v, o)]
    stream = ctypes.c_void_p(torch.cuda.current_stream().cuda_stream)
    status = getattr(library, "attention_forward_device_" + name)(*pointers, None, ctypes.byref(args), stream)
    if status != 0:
        sys.exit(f"{name}: {library.status_message().decode()}")


def median_ms(call, repeats=REPEATS):
    for i in range(WARM_UP):
        call(i % SETS)
    times = []
    for i in range(repeats):
        start, stop = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        torch.cuda._sleep(1_000_000)  # half a millisecond in which the host gets ahead of the device
        start.record()
        call(i % SETS)
        stop.record()
        stop.synchronize()
        times.append(start.elapsed_time(stop))
    return statistics.median(times), min(times), max(times)


def main():
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    library = ctypes.CDLL(os.path.abspath("build/libstages.so"))
    library.status_message.restype = ctypes.c_char_p
    driver = subprocess.run(["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"],
                            capture_output=True, text=True).stdout.strip()
    warm = torch.randn(8192, 8192, device="cuda", dtype=torch.float16)
    rows = []
    for head_dim in (64, 128):
        for causal in (False, True):
            for seq in (1024, 4096, 8192):
                sets = [[torch.randn(1, HEADS, seq, head_dim, device="cuda", dtype=torch.float16)
                         for _ in range(3)] for _ in range(SETS)]
                o = torch.empty_like(sets[0][0])
                flops = 4 * HEADS * head_dim * (seq * (seq + 1) / 2 if causal else seq * seq)
                with sdpa_kernel(SDPBackend.MATH):
                    exact = torch.nn.functional.scaled_dot_product_attention(
                        *(x.float() for x in sets[0]), is_causal=causal)
                for _ in range(20):
                    warm @ warm

                def flash(i):
                    return torch.nn.functional.scaled_dot_product_attention(*sets[i], is_causal=causal)

                with sdpa_kernel(SDPBackend.FLASH_ATTENTION):
                    peer = median_ms(flash)
                    peer_error = (flash(0).float() - exact).abs().max().item()
                rows.append(("sdpa_flash", seq, head_dim, causal, peer, peer, flops,
                             peer_error))
                for name in TILES:
                    o.fill_(float("nan"))
                    stage(library, name, *sets[0], o, causal)
                    error = (o.float() - exact).abs().max().item()
                    if not error < 2e-3:
                        sys.exit(f"{name} N={seq} D={head_dim}: error {error}")
                    own = median_ms(lambda i: stage(library, name, *sets[i], o, causal),
                                    REPEATS if name != "stage3_scalar" else 3)
                    rows.append((name, seq, head_dim, causal, own, peer, flops, error))
    with open(sys.argv[1], "w", newline="") as file:
        out = csv.writer(file, lineterminator="\n")
        out.writerow("method device driver torch cuda dtype batch heads seq head_dim causal ms_median ms_min "
                     "ms_max tflops ratio_to_sdpa_flash max_abs_err".split())
        for name, seq, head_dim, causal, own, peer, flops, error in rows:
            out.writerow([name, torch.cuda.get_device_name(), driver, torch.__version__, torch.version.cuda,
                          "fp16", 1, HEADS, seq, head_dim, int(causal), *(f"{x:.4f}" for x in own),
                          f"{flops / own[0] / 1e9:.1f}", f"{peer[0] / own[0]:.3f}", f"{error:.2e}"])
            print(f"{name:14s} N={seq:5d} D={head_dim:3d} causal={int(causal)} {own[0]:9.4f} ms "
                  f"{flops / own[0] / 1e9:7.1f} TFLOP/s {peer[0] / own[0]:6.3f} of SDPA Flash")


main()
