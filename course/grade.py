#!/usr/bin/env python3
"""Grades a submission: builds it in a sandboxed copy, runs it as a separate process, judges its files.

Only the files of course/regions.csv are taken from the submission; Makefile, common/ and driver come
from here. The submission's process reads .npy files and writes .npy files; what it prints, and what
time it says it took, is not believed. See course/README.md.
"""
import argparse
import copy
import csv
import hashlib
import json
import os
import shutil
import signal
import stat
import subprocess
import sys
import tempfile
import time
import xml.etree.ElementTree as xml
from pathlib import Path

HERE = Path(__file__).resolve().parent
TREE = HERE.parent
PROGRAMS = {"0": ["0"], "1": ["1"], "2": ["2"], "3": ["3", "3_scalar"], "4": ["4"]}
NOT_GIVEN = ("oracle", "stage.", "stage_")  # of common/: what knows the answer
BUILD_SECONDS, RUN_SECONDS = 120, 10


def folder_of(stage):
    return next(TREE.glob(f"stage{stage}_*")).name


class Stop(Exception):
    """Ends the program with one line and this exit code."""

    def __init__(self, code, text):
        super().__init__(text)
        self.code = code


def rows_of(name):
    with open(HERE / name, newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def asked_files(stage):
    """The files of a stage that a student writes, in the order of regions.csv."""
    files = [r["file"] for r in rows_of("regions.csv") if r["stage"] == stage]
    own = [f for f in files if f.startswith(folder_of(stage))]
    return [f for f in dict.fromkeys(own) if Path(f).name != "variants.c"]


class Workshop:
    """The trusted parts, built once: checker, sandbox, and the objects every driver links."""

    def __init__(self, compiler):
        self.compiler = compiler
        self.build = f"build/{Path(compiler).name}"
        self.base = TREE / "build/course/base"
        self.checker = TREE / "build/course/tools" / self.build / "course/checker"
        self.sandbox = self.checker.with_name("sandbox")
        self.copy_tree(TREE / "build/course/tools", lambda name: True, ["checker.c", "sandbox.c", "case.c", "case.h"])
        self.copy_tree(self.base, lambda name: not name.startswith(NOT_GIVEN), ["driver.c", "case.c", "case.h"])
        self.make(TREE / "build/course/tools", f"{self.build}/course/checker", f"{self.build}/course/sandbox")
        self.make(self.base, "course-base")
        self.try_the_walls()

    def with_base(self, base):
        """The same, with another tree to put submissions into."""
        other = copy.copy(self)
        other.base = base
        return other

    @staticmethod
    def copy_tree(to, wanted, course_files):
        files = [TREE / "Makefile"] + [f for f in sorted((TREE / "common").iterdir()) if wanted(f.name)]
        files += [HERE / name for name in course_files]
        for old in [*to.glob("common/*"), *to.glob("course/*")]:
            if TREE / old.relative_to(to) not in files:
                old.unlink()
        for file in files:
            target = to / file.relative_to(TREE)
            target.parent.mkdir(parents=True, exist_ok=True)
            if not target.exists() or target.stat().st_mtime != file.stat().st_mtime:
                shutil.copy2(file, target)

    def make(self, tree, *targets):
        done = subprocess.run(["make", "-s", "-C", tree, "-j2", "NVCC=", f"CC={self.compiler}", *targets],
                              capture_output=True, text=True, check=False)
        if done.returncode:
            raise Stop(3, f"the grader's own parts do not build: {last_line(done.stdout + done.stderr)}")

    def run(self, folder, command, seconds, mib=3072):
        """Runs a command in the sandbox; returns how it ended, with the end of what it printed."""
        # The compiler may live outside the system's folders.
        home = Path(shutil.which(self.compiler) or "/usr/bin/cc").resolve().parent.parent
        done = subprocess.run([self.sandbox, "--dir", folder, "--read", home, "--seconds", str(seconds),
                               "--mib", str(mib), "--", *command], capture_output=True, text=True,
                              env={"PATH": os.environ["PATH"], "HOME": str(folder), "LC_ALL": "C",
                                   "TMPDIR": str(folder), "MALLOC_PERTURB_": "165",
                                   "OMP_WAIT_POLICY": "passive"}, check=False)
        if done.returncode:
            raise Stop(3, f"the sandbox does not start: {last_line(done.stderr)}")
        ended = json.loads(done.stdout)
        with open(folder / "stderr", "rb") as file:
            file.seek(max(0, os.fstat(file.fileno()).st_size - 20000))
            ended["said"] = file.read().decode("utf-8", "replace")
        return ended

    def try_the_walls(self):
        """A file of this tree must be out of a submission's reach, or nothing here means anything."""
        with Folder() as folder:
            ended = self.run(folder, ["cat", str(HERE / "points.csv")], 5)
            if ended["exit"] == 0:
                raise Stop(3, "a sandboxed process can read this tree: the kernel has no Landlock; "
                              "run as root with the tree closed to others (chmod go-rwx)")


class Folder:
    """A temporary folder that the sandbox's user owns."""

    def __enter__(self):
        self.path = Path(tempfile.mkdtemp(prefix="grade-"))
        return self.path

    def __exit__(self, *_):
        shutil.rmtree(self.path, ignore_errors=True)


def give(folder):
    if os.geteuid() == 0:
        for path, _, names in os.walk(folder):
            for name in [path] + [os.path.join(path, n) for n in names]:
                os.chown(name, 65534, 65534, follow_symlinks=False)


def last_line(text):
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[-1][:300] if lines else "nothing"


def first_error(text):
    for line in text.splitlines():
        if "error:" in line or "undefined reference" in line or "multiple definition" in line:
            return line.strip()[:300]
    return last_line(text)


def how_it_ended(ended, limit):
    """A sentence for a run that did not simply end, or None."""
    if ended["timeout"]:
        return f"still running after {limit} s: stopped"
    if ended["signal"]:
        return f"crashed: {signal.strsignal(ended['signal'])}"
    if ended["exit"]:
        return last_line(ended["said"]) if ended["said"].strip() else f"ended with exit code {ended['exit']}"
    return None


class Submission:
    """A submission for one stage, built in a folder of its own."""

    def __init__(self, workshop, source, stage, folder, flat=False):
        self.workshop, self.folder, self.tree, self.flat = workshop, folder, folder / "tree", flat
        shutil.copytree(workshop.base, self.tree, symlinks=True)
        stage_folder = folder_of(stage)
        (self.tree / stage_folder).mkdir()
        for header in (TREE / stage_folder).glob("*.h"):
            shutil.copy2(header, self.tree / stage_folder)
        self.problem = self.take(Path(source), stage) or self.build(stage)

    def take(self, source, stage):
        for name in asked_files(stage):
            file = source / name
            if self.flat and not file.exists():
                file = source / file.name  # uploaded without its folder
            if not file.exists():
                return f"{name} is not there"
            if not stat.S_ISREG(file.lstat().st_mode) or file.stat().st_size > 1 << 20:
                return f"{name} is not a file of at most 1 MiB"
            shutil.copyfile(file, self.tree / name)
        return None

    def build(self, stage):
        give(self.folder)
        targets = [f"{self.workshop.build}/course/driver_{p}" for p in PROGRAMS[stage]]
        ended = self.workshop.run(self.folder, ["make", "-s", "-C", "tree", "-j2", "NVCC=",
                                                f"CC={self.workshop.compiler}", *targets], BUILD_SECONDS)
        if ended["exit"] != 0:
            if ended["exit"] is None or ended["timeout"]:
                return "does not build: " + how_it_ended(ended, BUILD_SECONDS)
            return "does not build: " + first_error(ended["said"])
        return None

    def run(self, program, options, inputs):
        """Runs the driver on the tensors in `inputs`, and brings its files back beside them."""
        case = self.folder / "case"
        shutil.rmtree(case, ignore_errors=True)
        case.mkdir()
        for name in ("q.npy", "k.npy", "v.npy"):
            shutil.copyfile(inputs / name, case / name)
        give(case)
        driver = self.tree / self.workshop.build / "course" / f"driver_{program}"
        for name in ("stdout", "stderr"):
            (self.folder / name).unlink(missing_ok=True)
        ended = self.workshop.run(self.folder, [str(driver), "--dir", "case", *options], RUN_SECONDS)
        problem = how_it_ended(ended, RUN_SECONDS)
        for name in () if problem else ("o.npy", "lse.npy", "steps.csv"):
            file = case / name
            if not os.path.lexists(file):
                return f"ended without writing {name} (exit code 0)", ended
            if not stat.S_ISREG(file.lstat().st_mode):
                return f"{name} is not a file", ended
            shutil.copyfile(file, inputs / name)
        return problem, ended


def check(workshop, what, folder, options):
    return subprocess.run([workshop.checker, what, "--dir", str(folder), *options], capture_output=True,
                          text=True, check=False)


class Grader:
    """Grades one stage of a submission. `flat`: its files may lie there without their folder."""

    def __init__(self, workshop, source, stage, student, secret, flat=False):
        self.workshop, self.stage, self.student, self.secret = workshop, stage, student, secret
        self.source, self.flat, self.reference = source, flat, None

    def seed(self, test, number):
        """Visible tests have fixed seeds; the others one of the student's own, the same every time."""
        if test["visibility"] == "visible":
            return number + 1
        text = f"{self.secret}:{self.student}:{self.stage}:{test['test']}:{number}"
        return int(hashlib.sha256(text.encode()).hexdigest()[:8], 16)

    def grade(self, tests):
        with Folder() as folder, Folder() as reference_folder:
            submission = Submission(self.workshop, self.source, self.stage, folder, self.flat)
            for test in tests:
                start = time.monotonic()
                if submission.problem:
                    share, text = 0, submission.problem
                else:
                    share, text = self.one(submission, test, reference_folder)
                yield {**test, "points": float(test["points"]), "score": round(share * float(test["points"]), 2),
                       "text": text, "seconds": time.monotonic() - start}

    def one(self, submission, test, reference_folder):
        """The share of a test's points, and a line about it: all cases must be right."""
        share, text = 1, "ok"
        for number, case in enumerate(test["cases"].split(";")):
            words = case.split()
            limits = {w.split("=")[0]: w.split("=")[1] for w in words if "=" in w}
            options = [w for w in words if "=" not in w]
            if "--seed" not in options:
                options += ["--seed", str(self.seed(test, number))]
            with Folder() as inputs:
                drawn = check(self.workshop, "draw", inputs, options)
                if drawn.returncode:
                    raise Stop(2, f"{test['test']}, {case.strip()}: {last_line(drawn.stderr)}")
                problem, ended = submission.run(test["program"], options, inputs)
                if not problem:
                    judged = check(self.workshop, "judge", inputs, options)
                    problem = last_line(judged.stdout + judged.stderr) if judged.returncode else None
                if not problem and "mib" in limits and ended["rss_mib"] > float(limits["mib"]):
                    problem = f"held {ended['rss_mib']:.0f} MiB; {limits['mib']} are enough"
                if problem:
                    return 0, f"{problem}\n[{' '.join(options)}]"
                if "speed" in limits:
                    share, text = self.speed(submission, test, options, inputs, limits["speed"], reference_folder)
        return share, text

    def speed(self, submission, test, options, inputs, bands, reference_folder):
        """The ratio of the reference's processor time to the submission's, in the same minute."""
        if self.reference is None:
            self.reference = Submission(self.workshop, TREE, self.stage, reference_folder)
            if self.reference.problem:
                raise Stop(3, f"the reference {self.reference.problem}")
        best = {}
        bands = [float(b) for b in bands.split("/")]
        for turn in range(6):
            for who in (submission, self.reference):
                problem, ended = who.run(test["program"], options, inputs)
                if problem:
                    return 0, problem
                best[who] = min(best.get(who, 1e9), ended["cpu_seconds"])
            ratio = best[self.reference] / best[submission]
            if turn >= 2 and ratio >= bands[-1]:
                break  # else three turns more, before a busy machine costs points
        share = sum(ratio >= band for band in bands) / len(bands)
        return share, f"{ratio:.2f} of the reference's speed; bands at {', '.join(f'{b:g}' for b in bands)}"


# ---- reports ------------------------------------------------------------------------------------

def table(results, student):
    lines = []
    for stage in dict.fromkeys(r["stage"] for r in results):
        of_stage = [r for r in results if r["stage"] == stage]
        score, points = sum(r["score"] for r in of_stage), sum(r["points"] for r in of_stage)
        lines += [f"stage {stage}, {student}: {score:g} of {points:g} points", ""]
        lines += [f"  {'points':>9}  {'test':<44}  seen", "  " + "-" * 64]
        before = None
        for r in of_stage:
            seen = {"visible": "visible", "hidden": "hidden"}.get(r["visibility"], "later")
            lines.append(f"  {r['score']:>4g}/{r['points']:<4g}  {r['test']:<44}  {seen}")
            said, *case = r["text"].splitlines()
            if said != "ok":
                case = [] if said == before else case
                said = "the same" if said == before else said
                lines += [f"             {piece}" for line in [said, *case] for piece in wrapped(line, 67)]
            before = r["text"].splitlines()[0]
        lines.append("")
    return "\n".join(lines)


def wrapped(text, width):
    while len(text) > width:
        cut = text.rfind(" ", 0, width)
        cut = cut if cut > 0 else width
        yield text[:cut]
        text = text[cut:].strip()
    yield text


def gradescope(results, _):
    """results.json as gradescope-autograders.readthedocs.io/en/latest/specs describes it."""
    tests = [{"name": f"stage {r['stage']}: {r['test']}", "score": r["score"], "max_score": r["points"],
              "status": "passed" if r["score"] == r["points"] else "failed", "output": r["text"],
              "output_format": "text", "visibility": r["visibility"]} for r in results]
    return json.dumps({"tests": tests, "execution_time": round(sum(r["seconds"] for r in results)),
                       "stdout_visibility": "hidden"}, indent=1) + "\n"


def junit(results, student):
    root = xml.Element("testsuites", name=student)
    for stage in dict.fromkeys(r["stage"] for r in results):
        of_stage = [r for r in results if r["stage"] == stage]
        failed = [r for r in of_stage if r["score"] < r["points"]]
        suite = xml.SubElement(root, "testsuite", name=f"stage{stage}", tests=str(len(of_stage)),
                               failures=str(len(failed)), errors="0", skipped="0",
                               time=f"{sum(r['seconds'] for r in of_stage):.3f}")
        for r in of_stage:
            case = xml.SubElement(suite, "testcase", classname=f"stage{stage}", name=r["test"],
                                  time=f"{r['seconds']:.3f}")
            text = "".join(c if c >= " " or c == "\n" else "?" for c in r["text"])
            if r in failed:
                failure = xml.SubElement(case, "failure", message=text.splitlines()[0],
                                         type=f"{r['score']:g} of {r['points']:g} points")
                failure.text = text
    xml.indent(root)
    return xml.tostring(root, encoding="unicode", xml_declaration=True) + "\n"


FORMATS = {"table": table, "gradescope": gradescope, "junit": junit}


class Parser(argparse.ArgumentParser):
    """A command line whose mistakes are one line."""

    def error(self, message):
        raise Stop(2, f"{message}; see --help")


def stages_of(source, asked):
    if asked:
        stages = asked.replace(",", " ").split()
        for stage in stages:
            if stage not in PROGRAMS:
                raise Stop(2, f"there is no stage '{stage}' to grade; 0 to 4")
        return stages
    marker = Path(source) / "course/HANDOUT"
    if marker.is_file():
        return [s for s in marker.read_text(encoding="utf-8").split() if s in PROGRAMS]
    found = [s for s in PROGRAMS if any((Path(source) / f).exists() for f in asked_files(s))]
    if not found:
        raise Stop(2, f"{source}: none of the files a student writes is there")
    return found


def main():
    parser = Parser(description=__doc__.splitlines()[0])
    parser.add_argument("dir", help="the submission")
    parser.add_argument("--stage", help="which stages; else those of the handout, or all that are there")
    parser.add_argument("--out", help="write the report here as well")
    parser.add_argument("--format", choices=FORMATS, default="table", help="of --out")
    parser.add_argument("--student", help="whose it is; the folder's name if not given")
    parser.add_argument("--secret", default=os.environ.get("GRADE_SECRET", ""), help="seeds of the hidden tests")
    parser.add_argument("--visible", action="store_true", help="the visible tests alone")
    parser.add_argument("--case", help="this case alone, of the stage asked for")
    parser.add_argument("--first-failure", action="store_true", help="stop a stage at its first failed test")
    options = parser.parse_args()
    if not options.dir or not Path(options.dir).is_dir():
        raise Stop(2, f"'{options.dir}': no such folder; make grade DIR=folder")
    if options.out and not os.access(Path(options.out).resolve().parent, os.W_OK):
        raise Stop(2, f"{options.out}: cannot be written")
    student = options.student or Path(options.dir).resolve().name
    stages = stages_of(options.dir, options.stage)
    workshop = Workshop(os.environ.get("CC", "gcc"))
    results = []
    for stage in stages:
        tests = [t for t in rows_of("points.csv") if t["stage"] == stage]
        if options.case:
            program = "3_scalar" if stage == "3" and "--block-k 32" in options.case else stage
            tests = [{"stage": stage, "test": "this case", "program": program, "points": "1",
                      "visibility": "visible", "cases": options.case}]
        if options.visible:
            tests = [t for t in tests if t["visibility"] == "visible"]
        for result in Grader(workshop, options.dir, stage, student, options.secret, len(stages) == 1).grade(tests):
            results.append(result)
            if options.first_failure and result["score"] < result["points"]:
                break
    print(table(results, student), end="")
    if options.out:
        scratch = Path(options.out + ".part")
        scratch.write_text(FORMATS[options.format](results, student), encoding="utf-8")
        scratch.replace(options.out)
    return 1 if options.visible and any(r["score"] < r["points"] for r in results) else 0


def finish(program):
    """Runs a program's main and ends the process: a line and an exit code for what went wrong."""
    try:
        sys.exit(program())
    except Stop as stop:
        print(stop, file=sys.stderr)
        sys.exit(stop.code)
    except OSError as error:
        print(error, file=sys.stderr)
        sys.exit(3)


if __name__ == "__main__":
    finish(main)
