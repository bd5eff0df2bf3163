"""Just enough reading of C++ to find function bodies: no comments, no literals, matched braces."""

import re

# One pattern for everything whose braces and words mean nothing, so that the first one wins.
LITERALS = re.compile(
    r'R"(?P<delimiter>[^(\s]*)\(.*?\)(?P=delimiter)"'
    r"|//[^\n]*|/\*.*?\*/"
    r'|"(?:\\.|[^"\\\n])*"'
    r"|(?<![0-9a-fA-F])'(?:\\.|[^'\\\n])+'",
    re.DOTALL,
)
PREPROCESSOR = re.compile(r"^[ \t]*#(?:[^\n]*\\\n)*[^\n]*", re.MULTILINE)
TEMPLATE = re.compile(r"^\s*template\s*<")
SCOPE = re.compile(r"^\s*(?:inline\s+)?(?:namespace|class|struct|union|enum|extern)\b")


def blank(match: re.Match) -> str:
    return "\n" * match[0].count("\n")


def code_only(text: str) -> str:
    """The text with comments, literals and preprocessor lines emptied; lines keep their numbers."""
    return PREPROCESSOR.sub(blank, LITERALS.sub(blank, text))


def without_template(header: str) -> str:
    """Drops `template <...>`, whose word `class` would look like a class."""
    while TEMPLATE.match(header):
        depth, end = 0, len(header)
        for index in range(header.index("<"), len(header)):
            depth += {"<": 1, ">": -1}.get(header[index], 0)
            if depth == 0:
                end = index + 1
                break
        header = header[end:]
    return header


def function_lengths(text: str) -> list[tuple[int, int, str]]:
    """(line, number of lines, first line) of every block in a namespace or class that is code."""
    code = code_only(text)
    found = []
    open_blocks = []  # (kind, start offset); kind: scope, code, data
    header_start = 0
    for match in re.finditer(r"[{};]", code):
        offset, symbol = match.start(), match[0]
        inside_scope = all(kind == "scope" for kind, _ in open_blocks)
        if symbol == "{":
            header = without_template(code[header_start:offset])
            start = (
                header_start
                + len(code[header_start:offset])
                - len(code[header_start:offset].lstrip())
            )
            if inside_scope and SCOPE.match(header):
                kind = "scope"
            elif header.rstrip().endswith(("=", "]")):
                kind = "data"
            else:
                kind = "code"
            open_blocks.append((kind, start))
        elif symbol == "}" and open_blocks:
            kind, start = open_blocks.pop()
            if kind == "code" and all(outer == "scope" for outer, _ in open_blocks):
                first = code.count("\n", 0, start) + 1
                length = code.count("\n", start, offset) + 1
                found.append((first, length, text.splitlines()[first - 1].strip()))
        if all(kind == "scope" for kind, _ in open_blocks):
            header_start = offset + 1
    return found
