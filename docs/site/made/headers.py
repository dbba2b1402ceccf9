"""Reads the public headers: the declarations, with their comments.

  headers.py       prints each public name that has no comment; exit code 1 if there are some

Inputs: include/attnc/*.h, include/attnc/c/*.h, and *.hpp of both, laid out by clang-format. Output: a Header for
each, which api.py writes as a page. It expands the tables of *.def, and does not preprocess otherwise.
"""

import dataclasses
import pathlib
import re
import sys

import tree_sitter
import tree_sitter_cpp

ROOT = pathlib.Path(__file__).resolve().parents[3]
INCLUDE = ROOT / "include"
PARSER = tree_sitter.Parser(tree_sitter.Language(tree_sitter_cpp.language()))


@dataclasses.dataclass
class Entity:
    """A declaration. `signatures`: its text, without a body; several for overloads that share a comment."""

    kind: str  # struct, class, enum, function, alias, constant, macro, member, enumerator
    name: str
    scope: str  # the class around it, "" outside of classes
    signatures: list
    doc: str
    line: int
    members: list = dataclasses.field(default_factory=list)
    needs_doc: bool = True

    @property
    def full_name(self):
        return f"{self.scope}::{self.name}" if self.scope else self.name


@dataclasses.dataclass
class Header:
    path: str  # as it is included: attnc/c/mod.h
    about: str
    entities: list


def rows_of(table):
    """The argument lists of the rows of a *.def file."""
    text = re.sub(r"//.*|^#.*", "", (INCLUDE / table).read_text(), flags=re.M)
    text = re.sub(r'"\n *"', "", text)
    return [(name, [part.strip() for part in re.findall(r'"[^"]*"|[^,"]+', arguments) if part.strip()])
            for name, arguments in re.findall(r"^(\w+)\((.*?)\)$", text, re.M | re.S)]


def expanded(text):
    """The text with its tables in place. Enumerators and members get the last column as comment."""

    def put(match):
        macro, parameters, body, table = match.groups()
        lines = []
        for name, arguments in rows_of(table):
            if name != macro:
                continue
            line = body
            for parameter, argument in zip(map(str.strip, parameters.split(",")), arguments):
                line = re.sub(rf"#{parameter}\b", lambda _: f'"{argument}"', line)
                line = re.sub(rf"\b{parameter}\b", lambda _: argument, line)
            if re.fullmatch(r"name,|\w+ \w+( = \w+)?;", body):
                text = arguments[-1].strip('"')
                line += f" ///< {text[0].upper()}{text[1:]}."
            lines.append(line)
        return "\n".join(lines)

    return re.sub(r'#define (\w+)\(([^)]*)\) (.*)\n#include "(attnc/\w+\.def)"', put, text)


def plain(text):
    """The text without what only compilers read."""
    text = text.replace("ATTNC_API ", "")
    text = re.sub(r'#ifdef __cplusplus\nextern "C" \{\n#endif\n', "\n\n\n", text)
    text = re.sub(r"#ifdef __cplusplus\n\}\n#endif\n", "\n\n\n", text)
    by_compiler = r"#if defined\(__GNUC__\)\n.*?#endif\n"
    text = re.sub(by_compiler, lambda match: "\n" * match.group().count("\n"), text, flags=re.S)
    return expanded(text)


def text_of(node, end=None):
    text = node.text.decode()
    if end is not None:
        text = node.text[: end - node.start_byte].decode()
    indent = " " * node.start_point.column
    return re.sub(r"\n" + indent, "\n", text).rstrip().rstrip(";").rstrip()


def words_of(comment):
    return re.sub(r"^//[/<]*\s?", "", re.sub(r"^///<", "//", comment))


class Reader:
    """Reads the nodes of a block: a namespace, a class, or an enum."""

    def __init__(self, scope, is_c):
        self.scope, self.is_c, self.out = scope, is_c, []

    def read(self, nodes, is_public=True):
        comment, comment_end = [], -2
        for node in nodes:
            row = node.start_point.row
            if node.type == "comment":
                text = node.text.decode()
                if text.startswith("///<"):
                    self.trail(node, words_of(text))
                elif text.startswith("///"):
                    if row != comment_end + 1:
                        comment = []
                    comment.append(words_of(text))
                    comment_end = row
                continue
            if node.type == "access_specifier":
                is_public = node.text == b"public"
                continue
            doc = "\n".join(comment) if row == comment_end + 1 else ""
            if is_public:
                self.declaration(node, doc)
            comment, comment_end = [], -2
        return self.out

    def trail(self, node, words):
        """Gives a comment behind a declaration, or below that comment, to the declaration."""
        if not self.out:
            return
        target = self.out[-1]
        if target.line == node.start_point.row or getattr(target, "trailing", -1) == node.start_point.row - 1:
            target.doc = (target.doc + "\n" + words).strip()
            target.trailing = node.start_point.row

    def add(self, kind, name, signature, doc, node, **more):
        last = self.out[-1] if self.out else None
        if kind == "function" and last and last.kind == "function" and last.name == name and not doc:
            last.signatures.append(signature)
            return last
        entity = Entity(kind, name, self.scope, [signature], doc, node.end_point.row, **more)
        self.out.append(entity)
        return entity

    def declaration(self, node, doc):
        kind = node.type
        if kind in ("namespace_definition", "declaration_list", "linkage_specification"):
            name = node.child_by_field_name("name")
            if name is None or name.text not in (b"ir", b"detail"):
                body = node.child_by_field_name("body") or node
                self.read(body.named_children)
        elif kind == "template_declaration":
            inner = node.named_children[-1]
            before = len(self.out)
            self.declaration(inner, doc)
            head = node.text[: inner.start_byte - node.start_byte].decode()
            for entity in self.out[before:] or self.out[-1:]:
                entity.signatures[-1] = head + entity.signatures[-1]
        elif kind in ("struct_specifier", "class_specifier", "enum_specifier"):
            self.type(node, doc)
        elif kind == "type_definition":
            self.typedef(node, doc)
        elif kind == "alias_declaration":
            self.add("alias", node.child_by_field_name("name").text.decode(), text_of(node), doc, node)
        elif kind in ("field_declaration", "declaration", "function_definition"):
            self.value(node, doc)
        elif kind in ("preproc_def", "preproc_function_def"):
            name = node.child_by_field_name("name").text.decode()
            if not name.endswith("_"):
                self.add("macro", name, node.text.decode().split("\n")[0].strip(), doc, node)
                self.out[-1].line = node.start_point.row
        elif kind == "enumerator":
            self.add("enumerator", node.child_by_field_name("name").text.decode(), text_of(node), doc, node)

    def type(self, node, doc, name=None):
        body = node.child_by_field_name("body")
        found = node.child_by_field_name("name")
        if body is None:
            return  # a forward declaration
        if found is None and name is None:  # a C enum behind the typedef of its integer, or a constant
            members = Reader(self.scope, self.is_c).read(body.named_children)
            if doc:
                for member in members:
                    member.doc = member.doc or doc
                    member.kind = "constant"
                    self.out.append(member)
            else:
                self.out[-1].members += members
            return
        name = name or found.text.decode()
        kind = node.type.split("_")[0]
        end = body.start_byte
        signature = text_of(node, end)
        inner = f"{self.scope}::{name}" if self.scope else name
        members = Reader(inner, self.is_c).read(body.named_children, is_public=kind != "class")
        self.add(kind, name, signature, doc, node, members=members)

    def typedef(self, node, doc):
        inner = node.child_by_field_name("type")
        declarator = node.child_by_field_name("declarator")
        name = re.search(r"\w+", re.sub(r"^\W*(\w+::)?", "", declarator.text.decode())).group()
        if inner.type.endswith("_specifier") and inner.child_by_field_name("body"):
            self.type(inner, doc, name)
            self.out[-1].line = node.end_point.row
        else:
            self.add("alias", name, text_of(node), doc, node)

    def value(self, node, doc):
        declarators = node.children_by_field_name("declarator")
        inner = node.child_by_field_name("type")
        if inner is not None and inner.type in ("enum_specifier", "struct_specifier", "class_specifier") and (
                inner.child_by_field_name("body")):
            self.type(inner, doc)
            self.out[-1].line = node.end_point.row
            return
        declarator = declarators[0] if declarators else None
        while declarator is not None and declarator.type not in ("function_declarator",):
            deeper = declarator.child_by_field_name("declarator") or next(
                (c for c in declarator.named_children if c.type == "function_declarator"), None)
            if deeper is None:
                break
            declarator = deeper
        body = node.child_by_field_name("body")
        end = None
        if body is not None:
            end = next((c.start_byte for c in node.children if c.type == "field_initializer_list"), body.start_byte)
        text = text_of(node, end)
        if declarator is not None and (declarator.type == "function_declarator" or "operator" in text):
            name = text.split("(")[0].split()[-1].lstrip("*&") if "operator" not in text else "operator"
            own = self.scope.rpartition("::")[2].partition("<")[0]
            arguments = text.split("(", 1)[1]
            is_usual = name in ("operator", f"~{own}") or name == own and (
                arguments.startswith(")") or re.match(rf"(const )?{own}&", arguments))
            if not re.search(r"= delete$", text):
                self.add("function", name, text, doc, node, needs_doc=not is_usual)
            return
        names = [re.search(r"\w+", d.text.decode()).group() for d in declarators] or [text.split()[-1]]
        kind = "member" if node.type == "field_declaration" else "constant"
        if "= [] {" in text:
            text = text.split(" = [")[0]
        self.add(kind, ", ".join(names), re.sub(r"\s+", " ", text), doc, node)


def read(path):
    text = plain(path.read_text())
    tree = PARSER.parse(text.encode())
    about = []
    for line in text.splitlines():
        if not line.startswith("//"):
            break
        about.append(words_of(line))
    entities = Reader("", "/c/" in str(path)).read(tree.root_node.named_children)
    return Header(path.relative_to(INCLUDE).as_posix(), "\n".join(about), entities)


def read_all():
    # The last one has names of the first ones, in a namespace of its own: links lead to the first ones.
    return [read(path) for glob in ("*.h", "c/*.h", "*.hpp", "c/*.hpp") for path in sorted((INCLUDE / "attnc").glob(glob))]


def undocumented(header):
    def walk(entities):
        for entity in entities:
            if not entity.doc and entity.needs_doc:
                yield f"include/{header.path}: {entity.full_name}"
            yield from walk(entity.members)

    return list(walk(header.entities))


def main():
    holes = [hole for header in read_all() for hole in undocumented(header)]
    print("\n".join(holes))
    return 1 if holes else 0


if __name__ == "__main__":
    sys.exit(main())
