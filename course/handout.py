#!/usr/bin/env python3
"""Writes a handout: a copy of this repository up to a stage, without what students are to write.

A region of regions.csv opens with its landmark comment and ends before the next blank line, or where
its block ends. It becomes a call that says what is missing. Lines of bookkeeping in it stay as a
comment, since they belong to the course and not to the idea. See course/README.md.
"""
import csv
import re
import shutil
from pathlib import Path

from grade import HERE, TREE, Parser, Stop, asked_files, finish, folder_of, rows_of

BOOKKEEPING = re.compile(r"\b(trace_rebase|record_rows|record\.rebase|online_step|observe|int64_t row) *[\(=]|online_step|observe")
TESTS = ["support.h", "process.h", "golden.h", "attention_f64.csv", "every_stage.h", "cuda_stage.h",
         "cuda_support.h", "run.sh"]
COURSE = ["questions.md", "grade.py", "checker.c", "driver.c", "sandbox.c", "case.c", "case.h"]


def bounds(lines, landmark):
    """The first and the last line but one of a landmark's region."""
    for start, line in enumerate(lines):
        if line.strip() == f"// {landmark}":
            indent = len(line) - len(line.lstrip())
            end = start + 1
            while end < len(lines) and lines[end].strip():
                depth = len(lines[end]) - len(lines[end].lstrip())
                if depth < indent and not lines[end].startswith("#"):
                    break
                end += 1
            return start + 1, end
    return None


def cut(text, name, landmarks):
    """The file's text without the regions, and what was taken out of it, line by line."""
    lines, taken = text.split("\n"), []
    for landmark in landmarks:
        found = bounds(lines, landmark)
        if not found or found[0] == found[1]:
            raise Stop(3, f"{name}: there is no region '{landmark}'")
        start, end = found
        indent = " " * (len(lines[start - 1]) - len(lines[start - 1].lstrip()))
        call = "kernel_not_implemented" if name.endswith(".cu") else "not_implemented"
        stub = [f'{indent}{call}("{name}: {landmark}");']
        statement = []
        for line in lines[start:end]:
            statement.append(line.strip())
            if line.rstrip().endswith((";", "{", "}")):
                if BOOKKEEPING.search(statement[0]):
                    stub += [f"{indent}// for the trace: {' '.join(' '.join(statement).split())}"]
                statement = []
        taken += [line for line in lines[start:end] if not BOOKKEEPING.search(line)]
        lines[start:end] = stub
    return "\n".join(lines), taken


def copy(name, out):
    target = out / name
    target.parent.mkdir(parents=True, exist_ok=True)
    shutil.copy2(TREE / name, target)


def unlink_missing(page):
    """Links to what is not handed out become plain text."""
    def keep(link):
        there = "://" in link.group(2) or (page.parent / link.group(2).split("#")[0]).exists()
        return link.group(0) if there else link.group(1)
    text = page.read_text(encoding="utf-8")
    page.write_text(re.sub(r"(?<!!)\[([^\]]+)\]\(([^)]+)\)", keep, text), encoding="utf-8")


def write_rows(path, rows):
    with open(path, "w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, rows[0].keys(), lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)


def write_readme(out, stages):
    text = (HERE / "handout.md").read_text(encoding="utf-8")
    tasks = []
    for stage in stages:
        folder = folder_of(stage)
        tasks.append(f"**Stage {stage}**, explained in [{folder}/README.md]({folder}/README.md). Write, "
                     f"in this order:\n")
        for row in rows_of("regions.csv"):
            if row["stage"] in stages and row["file"].startswith(folder):
                note = ""
                if row["file"] not in asked_files(stage):
                    note = " (not graded: receipt R8b needs it)"
                elif row["stage"] != stage:
                    note = f" (as you wrote it in stage {row['stage']})"
                tasks.append(f"- [ ] `{row['file']}`: {row['landmark']}{note}")
        tasks.append("")
    last = stages[-1]
    text = text.replace("@TASKS@", "\n".join(tasks).strip()).replace("@LAST@", last)
    text = text.replace("@FILES@", "\n".join(f"    {f}" for s in stages for f in asked_files(s)))
    (out / "README.md").write_text(text, encoding="utf-8")


def write(out, stages):
    last = int(stages[-1])
    regions = [r for r in rows_of("regions.csv") if r["stage"] in stages]
    for name in ["Makefile", "LICENSE", ".gitignore", ".clang-format", ".editorconfig"]:
        copy(name, out)
    names = [f"common/{f.name}" for f in (TREE / "common").iterdir()] + [f"course/{n}" for n in COURSE]
    names += [f"tests/{n}" for n in TESTS] + [f"tests/test_stage{s}.c" for s in stages]
    names += ["tests/test_walkthrough.c"] if "1" in stages else []
    names += ["docs/emulator.md"] if last >= 3 else []
    names += [f"docs/data/{f.name}" for f in (TREE / "docs/data").iterdir() if "_pad" not in f.name]
    for folder in map(folder_of, range(last + 1)):
        names += [f"{folder}/{f.name}" for f in (TREE / folder).iterdir() if f.name != "run"]
    # The figures that the READMEs of these stages show.
    shown = set()
    for name in [n for n in names if n.endswith("README.md")]:
        shown |= set(re.findall(r"\.\./(docs/figures/[a-z_-]+\.svg)", (TREE / name).read_text(encoding="utf-8")))
    for name in sorted(names) + sorted(shown):
        copy(name, out)
    for name in dict.fromkeys(r["file"] for r in regions):
        if (out / name).exists():
            landmarks = [r["landmark"] for r in regions if r["file"] == name]
            text, _ = cut((TREE / name).read_text(encoding="utf-8"), name, landmarks)
            (out / name).write_text(text, encoding="utf-8")
    for page in out.rglob("*.md"):
        unlink_missing(page)
    write_rows(out / "course/regions.csv", [r for r in regions if (out / r["file"]).exists()])
    write_rows(out / "course/points.csv", [r for r in rows_of("points.csv")
                                           if r["stage"] in stages and r["visibility"] == "visible"])
    write_readme(out, stages)
    (out / "course/HANDOUT").write_text(" ".join(stages) + "\n", encoding="utf-8")


def main():
    parser = Parser(description=__doc__.splitlines()[0])
    parser.add_argument("--stage", required=True, help='what students write: 2, or "1 2"')
    parser.add_argument("--out", required=True, help="a folder that is not there yet")
    options = parser.parse_args()
    stages = sorted(set(options.stage.replace(",", " ").split()))
    if not stages or any(s not in "01234" or len(s) != 1 for s in stages):
        raise Stop(2, f"'{options.stage}': handouts are made of stages 0 to 4")
    out = Path(options.out)
    if out.exists():
        raise Stop(2, f"{out} is there already; a handout goes to a new folder")
    scratch = out.with_name(out.name + ".part")
    shutil.rmtree(scratch, ignore_errors=True)
    try:
        write(scratch, stages)
        scratch.rename(out)
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
    print(f"{out}: stage {' and '.join(stages)}, to be written")


if __name__ == "__main__":
    finish(main)
