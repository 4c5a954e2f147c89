"""Gpu.measure of bench/torch_sdpa.py on a PyTorch that only pretends, with hosts of different speed.

A line a host: the row's status, and for how many cycles the device was kept busy before the first
call and before the last. test_bench.c says what they must be.
"""
import sys, types
from types import SimpleNamespace


class Context:
    def __enter__(self): pass
    def __exit__(self, *what): pass


class Event:
    def __init__(self, enable_timing): pass
    def record(self): self.at = device[0]
    def synchronize(self): pass
    def elapsed_time(self, other): return other.at - self.at


device, host, busy = [0.0], [0.0], []  # milliseconds, seconds, cycles
torch = types.ModuleType("torch")
torch.cuda = SimpleNamespace(Event=Event, _sleep=busy.append, synchronize=lambda: None, memory_allocated=lambda: 1 << 30,
                             reset_peak_memory_stats=lambda: None, max_memory_allocated=lambda: 1 << 30)
torch.inference_mode = Context
functional, attention = types.ModuleType("torch.nn.functional"), types.ModuleType("torch.nn.attention")
attention.SDPBackend = SimpleNamespace(MATH=0, FLASH_ATTENTION=1, CUDNN_ATTENTION=2)
attention.sdpa_kernel = lambda backend: Context()
torch.nn = types.ModuleType("torch.nn")
torch.nn.functional = functional
sys.modules.update({"torch": torch, "torch.nn": torch.nn, "torch.nn.functional": functional,
                    "torch.nn.attention": attention})
sys.path.insert(0, "bench")
import torch_sdpa

torch_sdpa.time = SimpleNamespace(perf_counter=lambda: host[0])
for first, later in (0.01, 0.01), (0.3, 0.3), (0.01, 1.0):  # milliseconds of the host for a call
    gpu = torch_sdpa.Gpu.__new__(torch_sdpa.Gpu)
    gpu.warm = type("Matrix", (), {"__matmul__": lambda a, b: a})()
    gpu.window = lambda turn, shape, dtype: (None, None, None)
    gpu.error = lambda *what: 0.0
    gpu.count_launches = lambda *what: 1
    busy.clear()

    def call(q, k, v, causal):
        device[0] += 0.5
        host[0] += (first if len(busy) <= 4 else later) / 1e3  # a cold call, and three to get warm
        return SimpleNamespace(numel=lambda: 1, element_size=lambda: 2)

    row = {"batch": 1, "heads": 1, "seq": 8192, "head_dim": 64, "causal": 0, "status": "ok"}
    gpu.measure(row, "fp16", call)
    print(row["status"], busy[0], busy[-1])
