"""JSON and YAML as plain data, read strictly: one reader for study files, ties and the specs of checkpoints."""

import json
import re
import unicodedata
from collections.abc import Hashable, Mapping, Sequence
from contextlib import suppress
from typing import Any

import yaml

Data = dict[str, Any]
"""Plain values of a study file, or of a section of one."""
Plain = Mapping[str, Any]
"""Plain values as a record has them, which do not change."""
MOST_VALUES = 25_000  # keys and values; PyYAML takes 50 µs for each
MOST_BITS = 1_000  # of a whole number; more fit into no float, and can be too many to be written out
MERGE, SEXAGESIMAL = "tag:yaml.org,2002:merge", ("tag:yaml.org,2002:int", "tag:yaml.org,2002:float")
OF_YAML_1_1 = re.compile(r":|^[-+]?0[0-9_]")
"""Numbers to base 60, and octal ones that begin with 0: YAML 1.2 has none, and takes 010 for ten."""
FLOAT = re.compile(r"[-+]?(\.[0-9]+|[0-9]+\.[0-9]*|[0-9]+(?=[eE]))([eE][-+]?[0-9]+)?$")
"""Numbers as YAML 1.2 and JSON write them; PyYAML knows neither 1e-3 nor -.5."""
QUOTED = "; if it is text, quote it"
INVALID_SCALAR = (ValueError, LookupError, AttributeError, TypeError, OverflowError)
"""PyYAML's own for !!int abc and the like."""
LOOKALIKES = "“”„‘’‚«»–—−‐‑：，；｛｝［］＃"
"""Characters that editors and web pages put in place of those that mean something."""
UNLIKE_YAML = re.compile("[\t\x7f-\x9f\u2028\u2029\ufeff\ufffe\uffff]")
"""What JSON may have and YAML may not: TAB between values, and characters in texts."""
NAMES = {"\t": "TAB", "\r": "CARRIAGE RETURN"}


def read_data(text: str) -> Any:
    """Return the plain values of a text of JSON or YAML.

    Raise ValueError, with line and column, for a text that is neither, for a key given twice, and for what is too
    much or could be written nowhere. A character that cannot be seen is named.
    """
    text = text.removeprefix("\ufeff")
    with suppress(ValueError, RecursionError):  # what is no JSON is read, or refused, as YAML
        json.loads(text)
        # It is JSON. PyYAML reads that too, if what YAML may not have is escaped.
        text = UNLIKE_YAML.sub(lambda found: " " if found[0] == "\t" else f"\\u{ord(found[0]):04x}", text)
    try:
        return yaml.load(text, Loader=_Loader)  # a SafeLoader
    except RecursionError:
        raise ValueError("not valid YAML (nested too deeply)") from None
    except yaml.YAMLError as error:
        raise ValueError(_described(error, text)) from None


def odd_character(text: str) -> str:
    """Return the name of the first character that cannot be seen or looks like another one; empty if there is none."""
    for character in text:
        if not character.isprintable() or character in LOOKALIKES:
            name = NAMES.get(character) or unicodedata.name(character, "a control character")
            return f"{name} (U+{ord(character):04X})"
    return ""


class _Loader(yaml.SafeLoader):
    """YAML as data: no key twice, no aliases, and numbers as YAML 1.2 has them."""

    values = 0

    def compose_node(self, parent: yaml.Node | None, index: Any) -> yaml.Node | None:
        self.values += 1
        if self.values > MOST_VALUES:
            raise _marked(f"more than {MOST_VALUES} keys and values", self.peek_event().start_mark)
        if self.check_event(yaml.AliasEvent):
            raise _marked("aliases are not used in study files", self.peek_event().start_mark)
        return super().compose_node(parent, index)

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Hashable, Any]:
        seen = set()
        for key, _ in node.value:
            if key.tag == MERGE:
                raise _marked("merge keys are not used in study files", key.start_mark)
            if isinstance(key, yaml.ScalarNode) and (key.tag, key.value) in seen:
                raise _marked(f"key given twice: {key.value}", key.start_mark)
            seen.add((key.tag, str(key.value)))
        return super().construct_mapping(node, deep)

    def construct_object(self, node: yaml.Node, deep: bool = False) -> Any:
        try:
            if node.tag in SEXAGESIMAL and OF_YAML_1_1.search(str(node.value)):
                raise ValueError
            value = super().construct_object(node, deep)
            if type(value) is float and value.is_integer() and "e" in node.value.lower():
                value = int(value)  # 1e4 counts something, and a number may always be whole
            if type(value) is int and value.bit_length() > MOST_BITS:
                raise OverflowError
            if type(value) is str:  # two escapes may be one character, half a pair can be written nowhere
                return value.encode("utf-16", "surrogatepass").decode("utf-16")
            return value
        except INVALID_SCALAR:
            kind = node.tag.rpartition(":")[2]
            raise _marked(f"no {kind}: {node.value!s:.80}{QUOTED}", node.start_mark) from None


_Loader.add_implicit_resolver("tag:yaml.org,2002:float", FLOAT, list("-+.0123456789"))


def _marked(problem: str, mark: yaml.Mark) -> yaml.MarkedYAMLError:
    return yaml.MarkedYAMLError(problem=problem, problem_mark=mark)


def _described(error: yaml.YAMLError, text: str) -> str:
    """Return what PyYAML refuses, and where; with the name of an odd character in that line or the one before."""
    problem = getattr(error, "problem", None) or getattr(error, "reason", None) or error
    mark = getattr(error, "problem_mark", None)
    if mark:
        line, column = mark.line, mark.column
    else:  # a character that YAML may not have
        before = text[: getattr(error, "position", 0)].split("\n")
        line, column = len(before) - 1, len(before[-1])
    where = f"line {line + 1}, column {column + 1}: not valid YAML ({problem}"
    return f"{where}{_odd_remark(text.splitlines(), line)})"


def _odd_remark(lines: Sequence[str], line: int) -> str:
    """Return the place and the name of an odd character in a line or in the one before it."""
    for number in (line, line - 1):  # PyYAML may notice a problem in the line behind it
        if not 0 <= number < len(lines):
            continue
        for column, character in enumerate(lines[number], start=1):
            name = odd_character(character)
            if name:
                return f"; line {number + 1}, column {column} has {name}"
    return ""
