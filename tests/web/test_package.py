"""What would be published, that it works when it is installed, and that the documents are true."""

import json
import re
import shutil
import subprocess
import tarfile
from pathlib import Path

import pytest

from tests.e2e.chatting import Site
from tests.support.web import WEB
from tests.web.tooling import CLIENT, made_once, run_node

ROOT = WEB.parent
DOCUMENT = ROOT / "docs/javascript.md"

pytestmark = [pytest.mark.slow]


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return made_once(tmp_path_factory, "project", install)


def install(project: Path) -> None:
    """Make it a project that has installed the packed package, and `ws` beside it."""
    run_node(CLIENT / "scripts/build.mjs")
    packed = subprocess.run(
        ["npm", "pack", "--json", "--pack-destination", str(project)],
        cwd=CLIENT,
        capture_output=True,
        text=True,
        check=True,
    )
    archive = project / json.loads(packed.stdout)[0]["filename"]
    modules = project / "node_modules"
    with tarfile.open(archive) as tar:
        tar.extractall(project, filter="data")
    (modules / "@tidewire").mkdir(parents=True)
    shutil.move(project / "package", modules / "@tidewire/client")
    shutil.copytree(WEB / "node_modules/ws", modules / "ws")


def test_package_has_what_it_names_and_nothing_else(installed: Path) -> None:
    package = installed / "node_modules/@tidewire/client"
    files = sorted(str(path.relative_to(package)) for path in package.rglob("*") if path.is_file())
    parts = [
        file for file in files if re.fullmatch(r"dist/(chunk|more|rare)-\w+\.js(\.map)?", file)
    ]
    types = [file for file in files if file.startswith("dist/types/")]
    assert sorted({*files} - {*parts} - {*types}) == [
        "LICENSE",
        "README.md",
        "dist/index.js",
        "dist/index.js.map",
        "dist/node.js",
        "package.json",
    ]
    assert len([part for part in parts if part.endswith(".js")]) == 3
    described = json.loads((package / "package.json").read_text(encoding="utf-8"))
    assert "dependencies" not in described
    for entry in described["exports"].values():
        for target in entry.values():
            assert (package / target).is_file(), target


def test_types_give_away_nothing_inside(installed: Path) -> None:
    types = installed / "node_modules/@tidewire/client/dist/types"
    for name in ("client", "chat", "message", "sent", "remote"):
        text = (types / f"shell/{name}.d.ts").read_text(encoding="utf-8")
        shown = [line for line in text.splitlines() if re.match(r"\s+(readonly |get )?_\w", line)]
        assert shown == [], name


def test_example_of_the_document_prints_what_it_says(
    installed: Path, site: Site, tmp_path: Path
) -> None:
    blocks = re.findall(r"```(\w*)\n(.*?)```", DOCUMENT.read_text(encoding="utf-8"), re.DOTALL)
    program, printed = blocks[0][1], blocks[1][1]
    # People of its own, and the server of the test.
    program = program.replace("http://127.0.0.1:8080", site.url)
    program = program.replace('"ann"', '"ann.doc"').replace('"ben"', '"ben.doc"')
    printed = printed.replace("ann:", "ann.doc:").replace("ben:", "ben.doc:")
    for folder in ("ann", "ben"):
        program = program.replace(f'"{folder}.tidewire"', f'"{tmp_path}/{folder}.tidewire"')
    script = installed / "example.mjs"
    script.write_text(program, encoding="utf-8")
    assert run_node(script) == printed
    assert run_node(script).splitlines()[:2] == printed.splitlines()


def test_document_names_what_there_is(installed: Path) -> None:
    """Every public name is in the table, and nothing else is."""
    types = installed / "node_modules/@tidewire/client/dist/types/shell"
    document = DOCUMENT.read_text(encoding="utf-8")
    remote = (types / "remote.d.ts").read_text(encoding="utf-8")
    assert "export declare const ofClient: {" in remote
    for name in ("Client", "Chat", "Message", "Sent"):
        text = (types / f"{name.lower()}.d.ts").read_text(encoding="utf-8")
        body = text[text.index(f"export declare class {name} ") :]
        body = body[: body.index("\n}")]
        lent = f"export declare const of{name}: {{"
        if lent in remote:
            # Methods whose bodies are loaded on demand.
            given = remote[remote.index(lent) :]
            body += given[: given.index("\n}")]
        members = re.findall(r"^    (?:static |readonly |get )?(\w+)[(:<]", body, re.MULTILINE)
        row = next(line for line in document.splitlines() if line.startswith(f"| `{name}` |"))
        listed = re.findall(r"`(\w+)`", row.split("|")[2])
        assert sorted({*members} - {"constructor"}) == sorted(listed), name


def test_lockfile_names_no_host() -> None:
    lock = json.loads((WEB / "package-lock.json").read_text(encoding="utf-8"))
    assert [
        name for name, one in lock["packages"].items() if "http" in one.get("resolved", "")
    ] == []
    unlocked = [
        name
        for name, one in lock["packages"].items()
        if name.startswith("node_modules/") and not one.get("link") and "integrity" not in one
    ]
    assert unlocked == []
