"""The names of ours that a C++ file declares and uses, found by patterns instead of a compiler.

Names are types, functions, constants, flags and macros in this project's spelling. Accessors and variables begin with a
small letter and are ignored, so no variable is taken for a name from a header."""

import re

import source_tree

NAME = r"(?:[A-Z][A-Za-z0-9]*|k[A-Z]\w*|FLAGS_\w+|HS_[A-Z_]+)"
OUR_NAMESPACES = ("hyperserve", "fixture", "spec_limits")

TYPE = re.compile(r"\b(?:struct|class|enum class|enum|union)\s+(\w+)(?:\s+final)?\s*(?::[^:;{][^;{]*)?([;{])")
FUNCTION = re.compile(rf"(?<![\w:.>])(?!(?:return|else|new|case|throw|goto)\b)[\w:]+(?:<[^;{{}}()]*>)?(?:::\w+)?[&*]*\s+"
                      rf"({NAME})\s*\(")
CONSTANT = re.compile(rf"\b(?:constexpr|const)\b[^;(){{}}=]*?\b({NAME})\s*(?:\[[^\]]*\])*\s*[=;{{(]")
OTHERS = (FUNCTION, CONSTANT, re.compile(r"\busing\s+(\w+)\s*="), re.compile(r"\bconcept\s+(\w+)\s*="))
REEXPORT = re.compile(r"\busing\s+(?:\w+::)+(\w+)\s*;")
FLAG = re.compile(r"\bABSL(?:_DECLARE)?_FLAG\(\s*[^,]+,\s*(\w+)")
MACRO = re.compile(r"^[ \t]*#[ \t]*define[ \t]+(\w+)", re.M)
ENUMERATORS = re.compile(r"\benum(?: class)?\s+\w+[^;{]*\{([^}]*)\}")
TEMPLATE_HEAD = re.compile(r"\btemplate\s*<([^{};]*?)>\s*(?=\w)")
TEST_NAMES = re.compile(r"\b(?:TYPED_)?TEST(?:_F|_P)?\s*\([^)]*\)|\bINSTANTIATE_TEST_SUITE_P\s*\(\s*\w+")
USE = re.compile(rf"\b({NAME})\b")
QUALIFIER = re.compile(r"(?:(\w+|>)\s*::|(\.|->))\s*$")

MESSAGE = re.compile(r"^(?:message|enum)\s+(\w+)", re.M)
PACKAGE = re.compile(r"^package\s+hyperserve\.(\w+);", re.M)


def at_namespace_level(code):
    """The code without the contents of classes, functions and initialisers."""
    kept, start, depth = [], 0, 0  # depth: of braces within one that opens no namespace
    for brace in re.finditer(r"[{}]", code):
        before = code[start:brace.start()]
        if brace.group() == "}":
            kept.append(before + ";" if depth == 0 else "")  # of a namespace
            depth = max(depth - 1, 0)
            if depth == 0:
                start = brace.end()
        elif depth == 0 and re.search(r"\bnamespace(\s+[\w:]+)?\s*$", before):
            kept.append(before + ";")
            start = brace.end()
        else:
            if depth == 0:
                kept.append(before + "{")
            depth += 1
    return "".join(kept) + code[start:]


def types(code, end):
    return {name for name, found in TYPE.findall(code) if found == end}


def flags(code):
    return {f"FLAGS_{name}" for name in FLAG.findall(code)}


def declared_by_header(text):
    """The names that a file gets by including this text."""
    code = source_tree.code(text)
    outside = at_namespace_level(code)
    names = types(outside, "{") | flags(code) | set(MACRO.findall(text))
    for pattern in (*OTHERS, REEXPORT):
        names.update(pattern.findall(outside))
    return {name for name in names if re.fullmatch(NAME, name)}


def declared_within(text):
    """The names that this file declares, with members, locals and template parameters."""
    code = source_tree.code(text)
    names = types(code, "{") | flags(code)
    for pattern in OTHERS:
        names.update(pattern.findall(code))
    for part in ENUMERATORS.findall(code) + TEMPLATE_HEAD.findall(code):
        names.update(re.findall(r"\w+", part))
    return names


def announced(text):
    """Types that are declared without a body. That suffices for this file, but not for one that includes it."""
    return types(source_tree.code(text), ";")


def used(text):
    """The names that may come from a header of ours. Names of other namespaces have a prefix: v1::Plan."""
    code = TEST_NAMES.sub("", source_tree.code(text))
    names = set()
    for use in USE.finditer(code):
        before = QUALIFIER.search(code, max(use.start() - 80, 0), use.start())
        if before is None or before.group(1) in OUR_NAMESPACES:
            names.add(use.group())
        elif before.group(1):
            names.add(f"{before.group(1)}::{use.group()}")
    return names


def declared_by_proto(text):
    """The messages and enums of a proto file, as C++ names them."""
    package = PACKAGE.search(text)
    return {f"{package.group(1)}::{name}" for name in MESSAGE.findall(text)} if package else set()
