"""Writes numpy_files.h: files made by NumPy, as C strings, for test_npy.c.

    python3 make_numpy_files.py > numpy_files.h
"""

import io
import warnings

import numpy as np
from numpy.lib import format as npy_format

SPECIAL = [0.0, -0.0, 1.0, -2.5, np.inf, -np.inf, np.nan, 0.1]
F8 = [0.1, 1e300, -1e300, 1e-50, 1 + 2.0**-24, 1 + 3 * 2.0**-24, 2.0**-149, np.inf, -np.inf, np.nan]
RECORD = np.dtype([("x", "<f4"), ("y", "<f4")])

FILES = {
    "f4_rank1": np.array(SPECIAL, "<f4"),
    "f4_rank2": np.arange(6, dtype="<f4").reshape(2, 3),
    "f4_rank3": np.arange(6, dtype="<f4").reshape(1, 2, 3),
    "f4_rank4": np.arange(24, dtype="<f4").reshape(1, 2, 3, 4),
    "f2_rank1": np.array(SPECIAL + [65504, 2.0**-24, 2.0**-14], "<f2"),
    "f2_rank4": np.arange(6, dtype="<f2").reshape(1, 1, 3, 2),
    "f8_rank2": np.array(F8, "<f8").reshape(2, 5),
    "fortran": np.asfortranarray(np.arange(6, dtype="<f4").reshape(2, 3)),
    "big_endian": np.arange(6, dtype=">f4").reshape(2, 3),
    "int32": np.arange(3, dtype="<i4"),
    "int8": np.arange(3, dtype="i1"),
    "complex64": np.zeros(2, "<c8"),
    "bool": np.zeros(3, "?"),
    "structured": np.zeros(2, RECORD),
    "object": np.array([None, 1], dtype=object),
    "rank0": np.array(1.0, "<f4"),
    "rank5": np.zeros((1, 1, 1, 1, 2), "<f4"),
    "empty": np.zeros((2, 0, 3), "<f4"),
}
VERSIONS = {"version_2": (2, 0), "version_3": (3, 0)}


def c_string(data):
    """Octal escapes have a fixed width, so a digit that follows is never taken for theirs."""
    text = "".join(
        chr(b) if 32 <= b < 127 and chr(b) not in '"\\?' else f"\\{b:03o}" for b in data
    )
    lines = []
    while text:
        cut = 88
        while len(text) > cut and "\\" in text[cut - 3 : cut] and cut > 84:
            cut -= 1
        lines.append(f'    "{text[:cut]}"')
        text = text[cut:]
    return "\n".join(lines)


def main():
    warnings.simplefilter("ignore")  # versions 2.0 and 3.0 are said to be unusual
    data = {}
    for name, array in FILES.items():
        stream = io.BytesIO()
        np.save(stream, array, allow_pickle=True)
        data[name] = stream.getvalue()
    for name, version in VERSIONS.items():
        stream = io.BytesIO()
        npy_format.write_array(stream, FILES["f4_rank4"], version=version)
        data[name] = stream.getvalue()

    print(f"// Files as NumPy {np.__version__} writes them; made by make_numpy_files.py.")
    print("#ifndef NUMPY_FILES_H\n#define NUMPY_FILES_H\n\n// clang-format off")
    for name, content in data.items():
        print(f"\nstatic const char numpy_{name}[] =\n{c_string(content)};")
    print("\n#endif")


if __name__ == "__main__":
    main()
