"""Checks over the source tree that no compiler makes.

    tidy.py check ROOT                 every check below over every file
    tidy.py headers ROOT WORK COMPILER...   every header compiles alone; WORK is kept

Each check is a function `(path, text) -> [problem, ...]`; the path is relative to ROOT.
"""

import concurrent.futures
import os
import pathlib
import re
import subprocess
import sys

from cpp_text import code_only, function_lengths

# The layer table of docs/architecture.md: what a folder may include beside itself. A folder covers
# those in it, `folder/*` only its own files.
ABOVE_COLL = ["include/allrail", "lib/base", "lib/topology", "transport", "shm"]
BELOW_RAILS = ["include/allrail", "lib/base", "lib/topology", "transport/*"]
COLLECTIVES = ["allgather", "gather", "scatter", "broadcast", "alltoall", "barrier"]
LAYERS = {
    "include/allrail": [],
    "lib/base": ["include/allrail"],
    "lib/topology": ["include/allrail", "lib/base"],
    "transport": ["include/allrail", "lib/base", "lib/topology"],
    "transport/tcp": BELOW_RAILS,
    "transport/verbs": [
        *BELOW_RAILS,
        "transport/tcp/acceptor.hpp",
        "transport/tcp/handshake.hpp",
        "transport/tcp/socket.hpp",
    ],
    "transport/fake": BELOW_RAILS,
    "transport/control": [*BELOW_RAILS, "transport/tcp"],
    "shm": ["include/allrail", "lib/base", "lib/topology"],
    "coll/schedule": [],
    **{f"coll/{name}": ["coll/schedule"] for name in COLLECTIVES},
    "coll": ABOVE_COLL + ["coll"],
    "launcher": ["include/allrail", "lib/base", "shm/leftovers.hpp"],
    "lib": ABOVE_COLL + ["coll", "launcher", "lib"],
    "perf": [
        "include/allrail",
        "lib/base",
        "lib/diagnostics.hpp",
        "lib/simulation.hpp",
        "perf",
    ],
    "examples": ["include/allrail"],
    "tests": [""],
}
# Folders whose only outside word is the standard library.
STANDARD_ONLY = ["include/allrail", "coll/schedule", *(f"coll/{name}" for name in COLLECTIVES)]
# A library's headers appear in one folder alone; tests may use them to look from outside.
OWNED_HEADERS = {
    r"<pmix(_\w+)?\.h>": "launcher",
    r"<hwloc(\.h|/.*)>": "lib/topology",
    r"<(infiniband|rdma)/.*>": "transport/verbs",
    r"<mpi\.h>": "perf/compare_lib",
}
LIBRARY_FOLDERS = ("include/", "lib/", "transport/", "shm/", "coll/", "launcher/")
MAX_COLUMNS = 100
MAX_FUNCTION_LINES = 70
MAX_FILE_LINES = 600
# In halves, so that this file passes its own check.
BANNED_WORDS = ["TO" "DO", "FIX" "ME", "X" "XX", "HA" "CK"]
BANNED_CALLS = ["sprintf", "vsprintf", "strcpy", "strcat", "gets", "exit"]
# A library loosens nobody's right to be read or traced.
BANNED_NAMES = ["PR_SET_PTRACER", "PR_SET_DUMPABLE"]
CODE = (".hpp", ".cpp", ".h", ".c", ".py", ".sh", "meson.build")
CONSTANT = re.compile(r"(?:inline |static )?const(?:expr|init)? [^=({]*?(k[A-Z]\w*)\b")
TYPE = re.compile(
    r"(?:struct|class|union|enum class) (?:alignas\(\w+\) )?(\w+)(?: final)?(?: :[^;]*)? \{"
)


def is_cpp(path: str) -> bool:
    return path.endswith((".hpp", ".cpp", ".h", ".c"))


def layer_of(path: str) -> str | None:
    """The longest folder of the table that holds the path."""
    fitting = [layer for layer in LAYERS if path.startswith(layer + "/")]
    return max(fitting, key=len, default=None)


def includes(text: str) -> list[tuple[int, str]]:
    pattern = re.compile(r'\s*#\s*include\s*(<[^>]+>|"[^"]+")')
    matches = ((n, pattern.match(line)) for n, line in enumerate(text.splitlines(), 1))
    return [(n, match[1]) for n, match in matches if match]


def repository_path(include: str) -> str | None:
    """The file of ours that an include names, or None for a library's."""
    name = include[1:-1]
    if name.startswith("allrail/"):
        return "include/" + name
    return name if include[0] == '"' else None


def may_include(layer: str, target: str) -> bool:
    """A layer that is named by a folder above it (coll for coll/schedule) covers what is below."""
    allowed = [layer, *LAYERS[layer]]
    if layer_of(target) == layer:
        return True
    return any(
        target == entry
        or target.startswith(f"{entry}/".lstrip("/"))
        or entry == f"{layer_of(target)}/*"
        for entry in allowed
        if entry != layer or layer in LAYERS[layer]
    )


def check_layers(path: str, text: str) -> list[str]:
    layer = layer_of(path) if is_cpp(path) else None
    if layer is None:
        return []
    problems = []
    for line, include in includes(text):
        target = repository_path(include)
        if target is not None and not may_include(layer, target):
            allowed = ", ".join(LAYERS[layer]) or "nothing else of ours"
            problems.append(f"{line}: {layer} may not include {target}; it may include {allowed}")
        if target is None and layer in STANDARD_ONLY and not re.fullmatch(r"<[a-z_0-9]+>", include):
            problems.append(f"{line}: {layer} uses the standard library only, not {include}")
        for pattern, owner in OWNED_HEADERS.items():
            if re.fullmatch(pattern, include) and not path.startswith((owner + "/", "tests/")):
                problems.append(f"{line}: only {owner} may include {include}")
    return problems


def check_columns(path: str, text: str) -> list[str]:
    if not path.endswith(CODE):
        return []
    return [
        f"{n}: {len(line)} columns, at most {MAX_COLUMNS}"
        for n, line in enumerate(text.splitlines(), 1)
        if len(line) > MAX_COLUMNS
    ]


def check_function_lengths(path: str, text: str) -> list[str]:
    if not is_cpp(path):
        return []
    return [
        f"{line}: a function of {length} lines, at most {MAX_FUNCTION_LINES}: {name}"
        for line, length, name in function_lengths(text)
        if length > MAX_FUNCTION_LINES
    ]


def check_file_length(path: str, text: str) -> list[str]:
    length = len(text.splitlines())
    if not path.endswith(CODE) or length <= MAX_FILE_LINES:
        return []
    return [f"1: {length} lines, at most {MAX_FILE_LINES}"]


def check_words(path: str, text: str) -> list[str]:
    pattern = re.compile(r"\b(" + "|".join(BANNED_WORDS) + r")\b")
    return [
        f"{n}: the word {match[1]}: do it or say in docs/ why not"
        for n, line in enumerate(text.splitlines(), 1)
        if (match := pattern.search(line))
    ]


def check_calls(path: str, text: str) -> list[str]:
    if not is_cpp(path) or not path.startswith(LIBRARY_FOLDERS):
        return []
    calls = r"(?<![\w.>])(?:" + "|".join(BANNED_CALLS) + r")(?=\s*\()"
    names = r"\b(?:" + "|".join(BANNED_NAMES) + r")\b"
    pattern = re.compile(f"({calls}|{names})")
    return [
        f"{n}: a library does not use {match[1]}"
        for n, line in enumerate(code_only(text).splitlines(), 1)
        if (match := pattern.search(line))
    ]


def check_pragma_once(path: str, text: str) -> list[str]:
    if not path.endswith(".hpp") or re.search(r"^#pragma once$", text, re.MULTILINE):
        return []
    return ["1: a header without #pragma once"]


def check_machine_paths(path: str, text: str, root: str = "") -> list[str]:
    """Paths of one machine: homes, and the tree that this checkout happens to lie in."""
    patterns = [r"/home/\w", r"/Users/\w"]
    system = {"allrail", "usr", "var", "opt", "srv", "tmp", "home", "root", "build", "mnt"}
    parts = pathlib.PurePath(root).parts
    if len(parts) > 2 and parts[1] not in system:
        patterns.append(rf"(?<![\w.\]}}]){re.escape('/' + parts[1])}/\w")
    pattern = re.compile("|".join(patterns))
    return [
        f"{n}: the path of one machine: {match[0]}"
        for n, line in enumerate(text.splitlines(), 1)
        if (match := pattern.search(line))
    ]


def definitions_of(text: str, *patterns: re.Pattern) -> list[tuple[str, ...]]:
    """Namespaces and name of what a file defines there and one of the patterns finds; text of ours
    is formatted, so that it begins in the first column and a namespace says where it ends."""
    names, scope = [], []
    for line in text.splitlines():
        if opened := re.match(r"namespace ?([\w:]*) \{", line):
            scope.append(opened[1])
        elif line.startswith("}  // namespace") and scope:
            scope.pop()
        else:
            found = [match[1] for pattern in patterns if (match := pattern.match(line))]
            names += [(*scope, name) for name in found]
    return names


def types_defined_twice(texts: dict[str, str]) -> list[str]:
    """A type has one definition in the library (ODR): of two, a linker keeps one's functions, and
    no compiler tells. Tests are programs of their own."""
    seen: dict[str, str] = {}
    problems = []
    for path, text in texts.items():
        if not is_cpp(path) or not path.startswith(LIBRARY_FOLDERS):
            continue
        for name in ("::".join(names) for names in definitions_of(text, TYPE) if "" not in names):
            if name in seen:
                problems.append(f"{path}: {name} is defined in {seen[name]} too; rename one")
            seen[name] = path
    return problems


def names_meeting_in_a_folder(texts: dict[str, str]) -> list[str]:
    """quickstart compiles a folder's files as one: constants and types of two of them may not have
    the same name, though each is in an unnamed namespace. Functions may, as overloads."""
    seen: dict[tuple[str, ...], str] = {}
    problems = []
    for path, text in texts.items():
        if not path.endswith(".cpp") or not path.startswith(LIBRARY_FOLDERS):
            continue
        for names in definitions_of(text, CONSTANT, TYPE):
            key = (os.path.dirname(path), *names)
            if seen.setdefault(key, path) != path:
                problems.append(f"{path}: {names[-1]} is in {seen[key]} too; rename one")
    return problems


CHECKS = [
    check_layers,
    check_columns,
    check_function_lengths,
    check_file_length,
    check_words,
    check_calls,
    check_pragma_once,
]


def all_files(root: str) -> list[str]:
    """What git knows or would add; in an unpacked release, every file outside build folders."""
    listing = (
        subprocess.run(
            ["git", "-C", root, "ls-files", "--cached", "--others", "--exclude-standard", "-z"],
            capture_output=True,
            text=True,
            check=False,
        )
        if has_git()
        else None
    )
    if listing and listing.returncode == 0:
        files = listing.stdout.split("\0")[:-1]
        return sorted(f for f in files if os.path.isfile(os.path.join(root, f)))
    found = []
    for folder, names, files in os.walk(root):
        relative = os.path.relpath(folder, root)
        names[:] = [
            n
            for n in names
            if n not in (".git", "__pycache__", "subprojects")
            and not (relative == "." and n.startswith("build"))
        ]
        found += [os.path.normpath(os.path.join(relative, f)) for f in files]
    return sorted(found)


def has_git() -> bool:
    try:
        subprocess.run(["git", "--version"], capture_output=True, check=True)
        return True
    except (OSError, subprocess.CalledProcessError):
        return False


def check_tree(root: str) -> int:
    problems, texts = [], {}
    for path in all_files(root):
        try:
            text = pathlib.Path(root, path).read_text(encoding="utf-8")
        except UnicodeDecodeError:
            continue  # Not a text of ours.
        texts[path] = text
        for check in CHECKS:
            problems += [f"{path}:{problem}" for problem in check(path, text)]
        problems += [f"{path}:{problem}" for problem in check_machine_paths(path, text, root)]
        for line, include in includes(text) if is_cpp(path) else []:
            target = repository_path(include)
            if target is not None and not os.path.exists(os.path.join(root, target)):
                problems.append(f"{path}:{line}: no file {target}; paths start at the root")
    problems += types_defined_twice(texts)
    problems += names_meeting_in_a_folder(texts)
    print("\n".join(problems) or f"tidy: {len(texts)} files are in order")
    # A listing that found nothing must not read as a tree without problems.
    return 1 if problems or len(texts) < 10 else 0


def library_flags() -> list[str]:
    """Where the libraries are whose headers ours name and which are not in the default path."""
    output = subprocess.check_output(["pkg-config", "--cflags", "pmix", "hwloc"], text=True)
    return output.split()


def compile_header(root: str, work: str, compiler: list[str], path: str) -> str:
    """Empty, or what the compiler said about a file that holds nothing but this include.

    Paths are relative and files stay where they are, so that a compiler cache knows them again.
    """
    source = os.path.join(work, path + ".cpp")
    os.makedirs(os.path.dirname(source), exist_ok=True)
    with open(source, "w", encoding="utf-8") as file:
        file.write(f'#include "{path}"\n')
    root = os.path.relpath(root, work)
    include = ["-I", root, "-I", os.path.join(root, "include")]
    warnings = ["-Wall", "-Wextra", "-Werror"]
    command = [*compiler, "-std=c++20", *warnings, *include, "-c", path + ".cpp", "-o", path + ".o"]
    done = subprocess.run(command, cwd=work, text=True, capture_output=True, check=False)
    return "" if done.returncode == 0 else f"{path} does not compile alone:\n{done.stderr}"


def check_headers(root: str, work: str, compiler: list[str]) -> int:
    compiler = [*compiler, *library_flags()]
    headers = [path for path in all_files(root) if path.endswith(".hpp")]
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        outcomes = pool.map(lambda h: compile_header(root, work, compiler, h), headers)
        failures = [outcome for outcome in outcomes if outcome]
    print("\n".join(failures) or f"tidy: {len(headers)} headers compile alone")
    return 1 if failures or not headers else 0


def main() -> int:
    if sys.argv[1:2] == ["check"]:
        return check_tree(sys.argv[2])
    if sys.argv[1:2] == ["headers"]:
        return check_headers(sys.argv[2], sys.argv[3], sys.argv[4:])
    print(__doc__)
    return 2


if __name__ == "__main__":
    sys.exit(main())
