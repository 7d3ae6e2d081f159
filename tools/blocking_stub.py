"""Write src/tidewire/client/blocking.pyi from the async classes: `make stubs`.

The blocking classes are made when they are imported, so type checkers and editors cannot see them.
This writes their members to a stub. A test compares the file with the code, so that it cannot go
stale.
"""

import ast
import subprocess
import sys
from pathlib import Path

from tidewire.client.blocking import LEFT_OUT, TIMED, __all__, blocking_doc  # type: ignore[attr-defined]

CLIENT = Path(__file__).resolve().parent.parent / "src" / "tidewire" / "client"
STUB = CLIENT / "blocking.pyi"
SOURCES = {"Client": "client.py", "Chat": "chat.py", "Sent": "sent.py", "Message": "model.py"}
HEAD = '''\
# ruff: noqa: PYI021
"""Made from the async client by tools/blocking_stub.py (`make stubs`): do not edit."""

from tidewire.client.model import Message as _Message

'''
GIVEN = ast.parse("Message | _Message", mode="eval").body
"""The type of a message as an argument: events of both clients carry the async client's message."""

Function = ast.FunctionDef | ast.AsyncFunctionDef


def stub() -> str:
    """The text of the stub."""
    bridge = _parsed("blocking.py")
    classes = [
        _class(name, _class_in(_parsed(path), name), _class_in(bridge, name))
        for name, path in SOURCES.items()
    ]
    used = {node.id for one in classes for node in ast.walk(one) if isinstance(node, ast.Name)}
    used = (used | set(__all__)) - SOURCES.keys()
    trees = [bridge, *map(_parsed, SOURCES.values())]
    imports = sorted({line for tree in trees for line in _imports(tree, used)})
    shown = [ast.unparse(ast.fix_missing_locations(one)) for one in classes]
    text = HEAD + "\n".join([*imports, f"__all__ = {__all__}", *shown])
    rules = "I,F401,PYI011,PYI020,UP037"
    for command in (["check", "-q", "--select", rules, "--fix-only"], ["format", "-q"]):
        text = subprocess.run(
            [sys.executable, "-m", "ruff", *command, "--stdin-filename", str(STUB), "-"],
            input=text,
            capture_output=True,
            text=True,
            check=True,
        ).stdout
    return text


def _parsed(name: str) -> ast.Module:
    return ast.parse((CLIENT / name).read_text(encoding="utf-8"))


def _class_in(tree: ast.Module, name: str) -> ast.ClassDef:
    """The class of this name; an empty one if the bridge uses the async class as it is."""
    nothing = ast.parse(f'class {name}:\n    """See `tidewire.client.{name}`."""')
    classes = [one for one in [*tree.body, *nothing.body] if isinstance(one, ast.ClassDef)]
    return next(one for one in classes if one.name == name)


def _class(name: str, original: ast.ClassDef, bridge: ast.ClassDef) -> ast.ClassDef:
    """A blocking class with its members: its own, and the public names of the async class."""
    own = [one for one in bridge.body if isinstance(one, Function) and _is_shown(one.name)]
    defined = {one.name for one in own} - {"__init__"}
    has_init = any(one.name == "__init__" for one in own)
    body: list[ast.stmt] = [ast.Expr(ast.Constant(ast.get_docstring(bridge)))]
    for one in original.body:
        if (
            isinstance(one, ast.AnnAssign)
            and isinstance(one.target, ast.Name)
            and _is_public(one.target.id)
        ):
            made = ast.parse(f"@property\ndef {one.target.id}(self) -> 0: ...").body[0]
            assert isinstance(made, ast.FunctionDef)
            made.returns = one.annotation
            body.append(made)
        elif (
            isinstance(one, Function)
            and one.name not in defined
            and (_is_public(one.name) or (has_init and one.name == "__init__"))
        ):
            body.append(_waiting(one, is_timed=f"{name}.{one.name}" in TIMED))
    body += [_waiting(one, is_timed=False) for one in own if one.name in defined]
    return ast.ClassDef(name=name, bases=[], keywords=[], body=body, decorator_list=[])


def _is_public(name: str) -> bool:
    return not (name.startswith("_") or name in LEFT_OUT)


def _is_shown(name: str) -> bool:
    return _is_public(name) or (name.startswith("__") and name.endswith("__"))


def _waiting(function: Function, *, is_timed: bool) -> ast.FunctionDef:
    """The signature of a function in its blocking form."""
    arguments = function.args
    if is_timed:
        timeout = ast.parse("def f(timeout_s: float | None = None): ...").body[0]
        assert isinstance(timeout, ast.FunctionDef)
        arguments.args += timeout.args.args
        arguments.defaults += timeout.args.defaults
    for argument in [*arguments.args, *arguments.kwonlyargs]:
        if argument.annotation is not None:
            argument.annotation = _Given().visit(argument.annotation)
    doc = blocking_doc(ast.get_docstring(function))
    body = [ast.Expr(ast.Constant(... if doc is None else doc))]
    return ast.FunctionDef(
        name=function.name,
        args=arguments,
        body=list(body),
        decorator_list=function.decorator_list,
        returns=_awaited(function.returns),
    )


class _Given(ast.NodeTransformer):
    def visit_Name(self, node: ast.Name) -> ast.expr:
        return GIVEN if node.id == "Message" else node


def _awaited(returns: ast.expr | None) -> ast.expr | None:
    """The type to which a call is awaited, also if a function gives a coroutine without `async`."""
    if isinstance(returns, ast.Constant) and isinstance(returns.value, str):
        returns = ast.parse(returns.value, mode="eval").body
    if (
        isinstance(returns, ast.Subscript)
        and ast.unparse(returns.value) == "Coroutine"
        and isinstance(returns.slice, ast.Tuple)
    ):
        return returns.slice.elts[-1]
    return returns


def _imports(tree: ast.Module, used: set[str]) -> list[str]:
    """The imports of a module that give names in use, also those for type checkers only."""
    lines: list[str] = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Import | ast.ImportFrom):
            for one in node.names:
                if (one.asname or one.name) in used:
                    kept = (
                        ast.ImportFrom(node.module, [one], node.level)
                        if isinstance(node, ast.ImportFrom)
                        else ast.Import([one])
                    )
                    lines.append(ast.unparse(kept))
    return lines


if __name__ == "__main__":
    STUB.write_text(stub(), encoding="utf-8")
