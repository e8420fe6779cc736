"""Checks the limits on files, functions and folders, and that every folder has a short README."""

import collections
import re

import source_tree

FILE_LINES = 400
FUNCTION_LINES = 60
FOLDER_SOURCES = 25
README_LINES = 40
ROOT_README_LINES = 120


def functions(text):
    """Yields (first line, number of lines, head) for each function at namespace or class level."""
    code = source_tree.code(text)
    depth = inside = 0  # inside: the depth at which the current function opened
    head_start = 0
    start = head = None
    for at in re.finditer(r"[{};]", code):
        if at.group() == "{":
            depth += 1
            opening = code[head_start:at.start()]
            if not inside and is_function(opening):
                inside, head = depth, " ".join(opening.split())
                start = code.count("\n", 0, head_start + len(opening) - len(opening.lstrip())) + 1
        elif at.group() == "}":
            if inside and inside == depth:
                end = code.count("\n", 0, at.start()) + 1
                yield start, end - start + 1, head
                inside = 0
            depth -= 1
        if not inside:
            head_start = at.end()


def is_function(opening):
    """True if this text before a brace opens a function: it has parameters and is no type, namespace or initialiser."""
    text = re.sub(r"\b(public|private|protected)\s*:", "", opening).strip()
    if "(" not in text or re.match(r"(namespace|extern|enum|union)\b", text):
        return False
    if re.search(r"(^|[>\s])(class|struct)\s+[\w:<>, ]+$", text):
        return False
    return not re.search(r"=\s*$", text)


def check(tree):
    sources = tree.cpp() + [f for f in tree.files if f.endswith((".py", ".sh", ".cmake", ".proto"))]
    for file in sources:
        text = tree.text(file)
        lines = text.count("\n")
        if lines > FILE_LINES:
            yield f"{file}: {lines} lines, more than {FILE_LINES}"
        if file.endswith(source_tree.CPP):
            for line, length, head in functions(text):
                if length > FUNCTION_LINES:
                    yield f"{file}:{line}: a function of {length} lines, more than {FUNCTION_LINES}: {head[:60]}"
    for folder, count in collections.Counter(f.rpartition("/")[0] for f in sources).items():
        if count > FOLDER_SOURCES:
            yield f"{folder}: {count} sources, more than {FOLDER_SOURCES}: make it two"
    yield from check_readmes(tree)


def check_readmes(tree):
    folders = {f.split("/")[0] for f in tree.files if "/" in f and not f.startswith(".")}
    folders |= {"/".join(f.split("/")[:2]) for f in tree.files if re.match(r"core/\w+/", f)}
    for folder in sorted(folders):
        if f"{folder}/README.md" not in tree.files:
            yield f"{folder}: no README.md"
    for file in tree.files:
        if file.split("/")[-1] == "README.md":
            limit = README_LINES if "/" in file else ROOT_README_LINES
            lines = tree.text(file).count("\n")
            if lines > limit:
                yield f"{file}: {lines} lines, more than {limit}"


if __name__ == "__main__":
    source_tree.main(check, __doc__)
