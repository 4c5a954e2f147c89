#!/usr/bin/env python3
"""Grades what must come out known: the references, the handouts, cheats, and the bug zoo.

    course/check.py [NAME...]     the parts whose name contains one of these; all without
"""
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import xml.etree.ElementTree as xml
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import grade
import handout
from grade import PROGRAMS, TREE, Folder, Grader, Workshop, asked_files, finish, rows_of


def results_of(workshop, source, stage, first_failure=False, tests=None):
    results = []
    for result in Grader(workshop, source, stage, "check", "").grade(tests or tests_of(stage)):
        results.append(result)
        if first_failure and result["score"] < result["points"]:
            break
    return results


def tests_of(stage):
    return [t for t in rows_of("points.csv") if t["stage"] == stage]


def reference(workshop, stage):
    results = results_of(workshop, TREE, stage)
    lost = [f"{r['test']}: {r['text']}" for r in results if r["score"] < r["points"]]
    return (not lost, "; ".join(lost) or f"{sum(r['points'] for r in results):g} points")


def untouched(workshop, folder, stage):
    results = results_of(workshop, folder, stage)
    gained = [r["test"] for r in results if r["score"]]
    other = [r["text"] for r in results if not r["text"].startswith("not implemented yet: ")]
    return (not gained and not other, "0 points" if not gained and not other else f"{gained} {other}")


# A line of a solution that says nothing by itself: a loop's head, a pointer, the end of a list.
PLAIN = re.compile(r"^(for \(|const int64_t |float \*|each_element\(acc)|[{,]$|^base, +correction, l,")


def leaks(stages):
    """Lines of what was cut that still stand somewhere in a handout of these stages."""
    with Folder() as parent:
        out = parent / "handout"
        handout.write(out, stages)
        lines = set()
        for name in dict.fromkeys(r["file"] for r in rows_of("regions.csv") if r["stage"] in stages):
            landmarks = [r["landmark"] for r in rows_of("regions.csv")
                         if r["stage"] in stages and r["file"] == name]
            if (out / name).exists():
                lines |= {line.split("//")[0].strip() for line in
                          handout.cut((TREE / name).read_text(encoding="utf-8"), name, landmarks)[1]}
        given = tuple(f"stage{s}_" for s in PROGRAMS if s not in stages)  # complete, and meant to be
        found = [f"{file.relative_to(out)}: {line}" for file in out.rglob("*")
                 if file.is_file() and not str(file.relative_to(out)).startswith(given)
                 for line in lines if len(line) >= 20 and not PLAIN.search(line)
                 and line in file.read_text(encoding="utf-8", errors="replace")]
        return (not found and lines, "; ".join(found) or f"none of {len(lines)} lines")


def own_tests(folder, compiler):
    """The handout's own tests fail where something is missing, and for no other reason."""
    env = dict(os.environ, LC_ALL="C")
    programs = [f"build/{Path(compiler).name}/tests/test_stage{s}" for s in PROGRAMS]
    built = subprocess.run(["make", "-s", "-C", folder, "-j2", "NVCC=", f"CC={compiler}", *programs],
                           capture_output=True, text=True, env=env, check=False)
    if built.returncode or "warning" in built.stderr:
        return (False, grade.first_error(built.stdout + built.stderr))
    failed, silent = 0, []

    def run(program, *options):
        done = subprocess.run([folder / program, *options], capture_output=True, cwd=folder, env=env, check=False)
        return (done.stdout + done.stderr).decode("utf-8", "replace")

    for program in programs:
        for suite, test in re.findall(r"\[FAIL\] (\w+)::(\w+)", run(program, "--jobs", "2")):
            failed += 1
            if "not implemented yet: stage" not in run(program, "--filter", f"{suite}/{test}"):
                silent.append(f"{suite}/{test}")
    return (failed > 100 and not silent, "; ".join(silent) or f"{failed} fail, each for what is missing")


def answers():
    """The answer key, from what the stages print."""
    wrong, said = [], {}
    rows = rows_of("answers.csv")
    asked = re.findall(r"^(\d+)\. ", (TREE / "course/questions.md").read_text(encoding="utf-8"), re.M)
    for row in rows:
        x = None
        if row["command"]:
            command = row["command"]
            if command not in said:
                said[command] = subprocess.run(command.split(), cwd=TREE, capture_output=True, text=True,
                                               check=False).stdout
            found = re.search(row["pattern"], said[command])
            if not found:
                wrong.append(f"{row['question']}: {command} does not print it")
                continue
            x = float(found.group(1))
        digits = len(row["answer"].partition(".")[2])
        value = eval(row["expression"], {"x": x})  # of this repository's own file
        if f"{value:.{digits}f}" != row["answer"]:
            wrong.append(f"{row['question']}: {value} is not {row['answer']}")
    return (not wrong and asked == [r["question"] for r in rows], "; ".join(wrong) or f"{len(rows)} answers")


def notebook():
    """Its cells are Python, and the programs that it runs end well. (No browser, no card.)"""
    cells = json.loads((TREE / "docs/colab.ipynb").read_text(encoding="utf-8"))["cells"]
    wrong, commands, names = [], [], {"LOGITS": "3,1,4,1,5,9,2,6"}
    for cell in cells:
        if cell["cell_type"] != "code":
            continue
        lines = "".join(cell["source"]).splitlines()
        compile("\n".join(re.sub(r"^(\s*)!.*", r"\1pass", line) for line in lines), "cell", "exec")
        commands += [line.strip()[1:].format(**names) for line in lines if line.strip().startswith("!./stage")]
        wrong += [f"no {f}.svg" for f in re.findall(r'"([a-z]+)"', "".join(lines)) if "SVG" in "".join(lines)
                  and not (TREE / f"docs/figures/{f}.svg").exists()]
    for command in commands:
        if "--seq 4096 --heads 16" not in command:  # the card's
            wrong += [command] if subprocess.run(command.split(), cwd=TREE, capture_output=True,
                                                 check=False).returncode else []
    return (not wrong and len(commands) > 5, "; ".join(wrong) or f"{len(commands)} commands")


TEST_FIELDS = {"name": str, "score": (int, float), "max_score": (int, float), "status": str, "output": str,
               "output_format": str, "visibility": str}


def reports(workshop):
    """results.json and JUnit's XML in their documented form, whatever a submission printed."""
    wrong = []
    student = 'A "student" & <co>'
    results = [{**t, "points": float(t["points"]), "score": float(i % 2), "text": "\x1b[1mo & <k>\nsecond line",
                "seconds": 0.25} for i, t in enumerate(tests_of("2"))]
    data = json.loads(grade.gradescope(results, student))
    if set(data) != {"tests", "execution_time", "stdout_visibility"} or data["stdout_visibility"] != "hidden":
        wrong.append("top level of results.json")
    for test in data["tests"]:
        if set(test) != set(TEST_FIELDS) or not all(isinstance(test[k], v) for k, v in TEST_FIELDS.items()):
            wrong.append(f"fields of {test}")
        if test["visibility"] not in ("visible", "hidden", "after_due_date", "after_published"):
            wrong.append(f"visibility of {test}")
        if test["status"] not in ("passed", "failed") or not 0 <= test["score"] <= test["max_score"]:
            wrong.append(f"score of {test}")
    root = xml.fromstring(grade.junit(results, student))
    suites = root.findall("testsuite")
    cases = root.findall("testsuite/testcase")
    if root.tag != "testsuites" or root.get("name") != student or len(cases) != len(results):
        wrong.append("JUnit's testsuites")
    for suite in suites:
        failures = suite.findall("testcase/failure")
        if int(suite.get("tests")) != len(suite.findall("testcase")) or int(suite.get("failures")) != len(failures):
            wrong.append("JUnit's counts")
    if not all(c.get("name") and c.get("classname") and float(c.get("time")) >= 0 for c in cases):
        wrong.append("JUnit's testcases")
    long_lines = [line for line in grade.table(results, student).splitlines() if len(line) > 80]
    if long_lines:
        wrong.append(f"a line of the table is too long: {long_lines[0]}")
    # A hidden seed is a student's own, and the same every time.
    hidden = next(t for t in tests_of("2") if t["visibility"] == "hidden")
    seeds = [Grader(workshop, TREE, "2", who, "secret").seed(hidden, 0) for who in ("a", "b", "a")]
    if seeds[0] == seeds[1] or seeds[0] != seeds[2]:
        wrong.append("seeds")
    points = {s: sum(float(t["points"]) for t in tests_of(s)) for s in PROGRAMS}
    if set(points.values()) != {100.0}:
        wrong.append(f"points add up to {points}")
    return (not wrong, "; ".join(wrong) or f"{len(data['tests'])} tests")


def header(text, name):
    found = re.search(rf"^(?://\s*)?{name}: (.*)$", text, re.M)
    return found.group(1) if found else None


def cheat(workshop, path):
    text = path.read_text(encoding="utf-8").replace("@TREE@", str(TREE))
    with Folder() as folder:
        target = folder / asked_files("2")[0]
        target.parent.mkdir()
        target.write_text(text, encoding="utf-8")
        only = header(text, "points")
        tests = [t for t in tests_of("2") if t["test"] == only.split()[0]] if only else None
        results = results_of(workshop, folder, "2", not only, tests)
    last = results[-1]
    right = last["score"] == 0 and re.search(header(text, "expect"), last["text"])
    return (bool(right), last["text"].splitlines()[0])


def graded(path):
    """Whether a mutant's stage, or for a fault in common/ the one whose test finds it, is handed out."""
    text = path.read_text(encoding="utf-8")
    name = re.search(r"^\+\+\+ b/(\S+)", text, re.M).group(1)
    later = re.search(r"^found by: test_stage([5-9])", text, re.M)
    return not later if name.startswith("common/") else name[5] in PROGRAMS


def mutant(workshop, path):
    """Below full marks: as a submission, or, where the fault is in common/, with that common/."""
    text = path.read_text(encoding="utf-8")
    name = re.search(r"^\+\+\+ b/(\S+)", text, re.M).group(1)
    with Folder() as folder:
        if name.startswith("common/"):
            source, stage, base = TREE, "3", folder / "base"
            shutil.copytree(workshop.base, base)
            workshop = workshop.with_base(base)
            where = base
        else:
            stage, source, where = name[5], folder, folder
            for file in asked_files(stage):
                (folder / file).parent.mkdir(exist_ok=True)
                shutil.copyfile(TREE / file, folder / file)
        patched = subprocess.run(["patch", "-s", "-p1", "-d", where], input=text, capture_output=True, text=True,
                                 check=False)
        if patched.returncode:
            return (False, f"the patch does not apply: {patched.stdout}")
        last = results_of(workshop, source, stage, True)[-1]
    return (last["score"] < last["points"] and "does not build" not in last["text"],
                   f"stage {stage}, {last['test']}: {last['text'].splitlines()[0]}")


def main():
    workshop = Workshop(os.environ.get("CC", "gcc"))
    scratch = Path(tempfile.mkdtemp(prefix="course-check-"))
    try:
        handout.write(scratch / "all", list(PROGRAMS))
        alone = [(f"reference {s}", reference, (workshop, s)) for s in PROGRAMS]
        alone += [("cheat stops_the_clock", cheat, (workshop, TREE / "tests/cheats/stops_the_clock.c"))]
        alone += [("answers", answers, ()), ("notebook", notebook, ()), ("reports", reports, (workshop,))]
        jobs = [("the handout's own tests", own_tests, (scratch / "all", workshop.compiler))]
        jobs += [(f"handout {s}", untouched, (workshop, scratch / "all", s)) for s in PROGRAMS]
        jobs += [(f"leaks {' '.join(s)}", leaks, (s,)) for s in (["0"], ["1"], ["2"], ["3"], ["4"], ["1", "2"],
                                                               ["3", "4"], list(PROGRAMS))]
        jobs += [(f"cheat {p.stem}", cheat, (workshop, p)) for p in sorted((TREE / "tests/cheats").glob("*.c"))
                 if p.stem != "stops_the_clock"]
        jobs += [(f"mutant {p.stem}", mutant, (workshop, p)) for p in sorted((TREE / "tests/mutants").glob("*.patch"))
                 if graded(p)]
        wanted = sys.argv[1:] or [""]
        good, bad = 0, 0
        with ThreadPoolExecutor(2) as pool:
            chosen = [j for j in jobs if any(w in j[0] for w in wanted)]
            timed = [j for j in alone if any(w in j[0] for w in wanted)]
            done = [(name, f(*arguments)) for name, f, arguments in timed]  # speed is judged: one at a time
            futures = [(name, pool.submit(f, *arguments)) for name, f, arguments in chosen]
            for name, result in [(n, lambda r=r: r) for n, r in done] + [(n, f.result) for n, f in futures]:
                right, text = result()
                good, bad = good + bool(right), bad + (not right)
                print(f"{'ok ' if right else 'BAD'}  {name}: {text}", flush=True)
        print(f"{good} as they should be, {bad} not")
        return 1 if bad or not good else 0
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


if __name__ == "__main__":
    finish(main)
