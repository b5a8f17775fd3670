"""Checks that read what an agent left: exact about types, and hostile content only ever fails them."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from checker_world import checker
from grader_world import Files, GraderWorld, lines

from grader_service.programs import Programs
from orchestrator.records.verdict import CheckResult


@pytest.fixture(params=["sandbox", pytest.param("checker", marks=pytest.mark.slow)])
def world(request: pytest.FixtureRequest, short_folder: Path, programs: Programs) -> Iterator[GraderWorld]:
    world = GraderWorld(short_folder, programs)
    if request.param == "sandbox":
        yield world
        return
    with checker(short_folder / "c") as socket:
        world.checker = socket
        yield world


def results(world: GraderWorld, **settings: Any) -> dict[str, CheckResult]:
    verdict = world.grade(**settings)
    assert verdict.error is None, lines(verdict)
    return {result.id: result for result in (*verdict.checks, *verdict.invariants)}


def files(name: str, path: str, **spec: Any) -> dict[str, Any]:
    return {"id": name, "type": "files", "path": path, **spec}


def value(name: str, path: str, at: str, equals: Any, **more: Any) -> dict[str, Any]:
    return files(name, path, values=[{"at": at, "equals": equals, **more}])


def test_values_are_compared_with_their_types(world: GraderWorld) -> None:
    document = '{"port": 1, "on": true, "name": "1", "list": [{"x": 1.5}], "a.b": {"c": null}}'
    checks = [
        value("p1", "d.json", "port", 1),
        value("p2", "d.json", "port", 1.0),
        value("p3", "d.json", "list[0].x", 1.4, tolerance=0.2),
        value("p4", "d.json", '"a.b".c', None),
        value("p5", "d.json", "gone", None, absent=True),
        value("p6", "c.toml", "server.when", "2026-03-02"),
        value("p7", "c.yaml", "list[-1]", "no"),
        value("p8", "c.ini", "main.Key", "10%"),
        value("f1", "d.json", "port", True),
        value("f2", "d.json", "port", "1"),
        value("f3", "d.json", "on", 1),
        value("f4", "d.json", "name", 1),
        value("f5", "d.json", "gone", None),
        value("f6", "d.json", "port", None, absent=True),
        value("f7", "d.json", "list[1]", 1),
    ]
    world.task({}, checks)
    world.left(
        {
            "d.json": document,
            "c.toml": "[server]\nwhen = 2026-03-02\n",
            "c.yaml": "list: [1, no]\n",
            "c.ini": "[main]\nKey = 10%\n",
        }
    )
    found = results(world)
    assert {name for name, result in found.items() if not result.passed} == {f"f{n}" for n in range(1, 8)}
    assert (found["f1"].expected, found["f1"].actual) == (True, 1)


def test_assertions_on_a_file(world: GraderWorld) -> None:
    checks = [
        files("p1", "a.txt", equals="hello\n", regex="^hel+o$", not_regex="bye", mode="0644"),
        files("p2", "a.txt", equals_file="hidden/a.txt"),
        files("p3", "gone.txt", exists=False),
        files("p4", "link.txt", equals="hello\n"),
        files("f1", "a.txt", equals="hello"),
        files("f2", "a.txt", equals_file="hidden/b.txt"),
        files("f3", "a.txt", exists=False),
        files("f4", "a.txt", not_regex="h.llo"),
        files("f5", "out.txt"),
        files("f6", "secret.txt"),
        files("f7", "folder"),
        files("f8", "link.txt", exists=False),
        files("f9", "a.txt", mode="0755"),
    ]
    world.task({}, checks, hidden={"a.txt": "hello\n", "b.txt": "b\n"})
    links = {"link.txt": "a.txt", "out.txt": "/etc/passwd", "secret.txt": "/grader/hidden/a.txt"}
    world.left({"a.txt": "hello\n", "folder/x": ""}, links=links)
    found = results(world)
    assert {name for name, result in found.items() if not result.passed} == {f"f{n}" for n in range(1, 10)}
    assert "leaves the workspace" in found["f5"].evidence[0]


BOMB = "a: &a [x, x, x, x, x, x, x, x, x]\n" + "".join(
    f"{c}: &{c} [{', '.join([f'*{p}'] * 9)}]\n" for p, c in zip("abcdefgh", "bcdefghi", strict=True)
)
HOSTILE: dict[str, tuple[str | bytes, dict[str, Any]]] = {
    "deep_json": ("[" * 200_000, value("", "f.json", "a", 1)),
    "huge_number": ('{"a": ' + "9" * 100_000 + "}", value("", "f.json", "a", 1)),
    "nan": ('{"a": NaN}', value("", "f.json", "a", 1)),
    "duplicate_key": ('{"a": 2, "a": 1}', value("", "f.json", "a", 1)),
    "surrogate": ('{"a": "\\ud800"}', value("", "f.json", "a", 1)),
    "keys_that_become_equal": ('a: {1: x, "1": 1}', value("", "f.yaml", "a.1", 1)),
    "surrogate_inside": ('{"a": [{"\\ud800": "\\udfff"}]}', value("", "f.json", "a", 1)),
    "nested_value": ('{"a": ' + "[" * 250 + "]" * 250 + "}", value("", "f.json", "a", 1)),
    "yaml_bomb": (BOMB, value("", "f.yaml", "i", 1)),
    "yaml_object": ("a: !!python/object/apply:os.system ['true']\n", value("", "f.yaml", "a", 1)),
    "deep_toml": ("a = " + "[" * 50_000, value("", "f.toml", "a", 1)),
    "bad_ini": ("[a\nb", value("", "f.ini", "a.b", "1")),
    "not_text": (b"\xff\xfe\x00", files("", "f.txt", regex="x")),
    "slow_regex": ("a" * 60 + "b", files("", "f.txt", regex="^(a+)+$")),
    "escape_codes": ("\x1b[2J\x07{", value("", "f.json", "a", 1)),
}


def test_hostile_documents_fail_their_check_and_no_other(world: GraderWorld) -> None:
    checks: list[dict[str, Any]] = [files("honest", "ok.txt", equals="ok\n")]
    after: Files = {"ok.txt": "ok\n"}
    for name, (content, spec) in HOSTILE.items():
        path = f"{name}/{spec['path']}"
        after[path] = content
        checks.append({**spec, "id": name, "path": path})
    world.task({}, checks)
    world.left(after)
    found = results(world, check_seconds=1)
    assert {name for name, result in found.items() if result.passed} == {"honest"}
    assert all("\x1b" not in line for result in found.values() for line in result.evidence)
    assert "not finished within 1 s" in found["slow_regex"].evidence[0]


def database(folder: Path, *statements: str, wal: bool = False) -> Files:
    path = folder / "d.db"
    path.unlink(missing_ok=True)
    connection = sqlite3.connect(path, isolation_level=None)
    if wal:
        connection.execute("pragma journal_mode = wal")
        connection.execute("pragma wal_autocheckpoint = 0")
    for statement in statements:
        connection.execute(statement)
    found: Files = {"d.db": path.read_bytes()}
    for end in ("-wal", "-shm"):
        if wal:
            found["d.db" + end] = Path(f"{path}{end}").read_bytes()
    connection.close()
    return found


def sql(name: str, database: str, query: str, expect: Any = (), **more: Any) -> dict[str, Any]:
    return {"id": name, "type": "sql", "database": database, "query": query, "expect": list(expect), **more}


def test_queries_over_databases_of_all_kinds(world: GraderWorld, tmp_path: Path) -> None:
    people = ("create table p (id integer, name text)", "insert into p values (1, 'a'), (2, 'b'), (2, 'b')")
    evil = (
        *people,
        "create view forever as with recursive n(x) as (select 1 union all select x + 1 from n) select count(*) c from n",
    )
    after: Files = {"bad.db": b"SQLite format 3\0" + b"\xff" * 4000, "text.db": "hello"}
    for name, found in (
        ("good", database(tmp_path, *people)),
        ("evil", database(tmp_path, *evil)),
        ("wal", database(tmp_path, *people, wal=True)),
    ):
        after.update({f"{name}/{file}": data for file, data in found.items()})
    checks = [
        sql("p1", "good/d.db", "select id, name from p", [[2, "b"], [1, "a"], [2, "b"]]),
        sql("p2", "good/d.db", "select id from p order by id", [[1], [2], [2]], ordered=True),
        sql("p3", "wal/d.db", "select count(*) from p", [[3]]),
        sql("p4", "evil/d.db", "select count(*) from p", [[3]]),
        sql("f1", "good/d.db", "select id, name from p", [[1, "a"], [2, "b"]]),
        sql("f2", "good/d.db", "select id from p order by id", [[2], [2], [1]], ordered=True),
        sql("f3", "good/d.db", "select '1'", [[1]]),
        sql("f4", "evil/d.db", "select c from forever", [[1]]),
        sql("f5", "bad.db", "select 1 from p", [[1]]),
        sql("f6", "text.db", "select 1 from p", [[1]]),
        sql("f7", "gone.db", "select 1", [[1]]),
        sql("f8", "good/d.db", "select * from gone", []),
        sql("f9", "good/d.db", "select load_extension('/tmp/x.so')", [[None]]),
        sql("f10", "good/d.db", "attach '/etc/passwd' as other", []),
        sql("f11", "good/d.db", "delete from p", []),
    ]
    world.task({}, checks)
    world.left(after)
    found = results(world, check_seconds=2)
    assert {name for name, result in found.items() if not result.passed} == {f"f{n}" for n in range(1, 12)}
    assert any("unexpected row: (2, 'b')" in line for line in found["f1"].evidence)


def test_files_that_were_never_touched_are_read_as_well(world: GraderWorld, tmp_path: Path) -> None:
    """They are not laid before a check asks for them, also when it asks through a link, or for a database with its journal."""
    before = {f"data/{name}": data for name, data in database(tmp_path, "create table p (id)", wal=True).items()}
    before["data/a.txt"] = "hello\n"
    checks = [
        files("through_a_link", "link/a.txt", equals="hello\n"),
        files("itself", "data/a.txt", equals="hello\n"),
        sql("with_its_journal", "data/d.db", "select count(*) from p", [[0]]),
        sql("through_a_link_too", "link/d.db", "select count(*) from p", [[0]]),
    ]
    world.task(before, checks)
    world.left(before, links={"link": "data"})
    assert {name for name, result in results(world).items() if not result.passed} == set()


def test_a_query_that_the_author_got_wrong_is_not_the_agents_fault(world: GraderWorld, tmp_path: Path) -> None:
    world.task({}, [sql("broken", "d.db", "selec 1")])
    world.left(database(tmp_path, "create table p (id)"))
    verdict = world.grade()
    assert (verdict.result, verdict.error.type) == ("grader_error", "check")
    assert "syntax error" in verdict.error.message


def test_a_database_cannot_blame_the_author(world: GraderWorld, tmp_path: Path) -> None:
    broken = (
        "create table p (id)",
        "pragma writable_schema = on",
        "update sqlite_master set sql = 'create table p (id syntax error'",
    )
    named = ("create table t (x)", 'create view p as select "syntax error"(x) as id from t')
    after = {
        f"{n}/{file}": data
        for n, made in enumerate((broken, named))
        for file, data in database(tmp_path, *made).items()
    }
    world.task({}, [sql("a", "0/d.db", "select id from p", [[1]]), sql("b", "1/d.db", "select id from p", [[1]])])
    world.left(after)
    assert [result.passed for result in results(world).values()] == [False, False]


CORE: Files = {"p/__init__.py": "from ._core import f\n", "p/_core.py": "def f(x): return x\n"}
MODULE: Files = {"p.py": "def f(x): return x\n"}
LAYOUTS: dict[str, tuple[str, Files, Files, bool]] = {
    "offered_name_removed": ("p", CORE, {**CORE, "p/__init__.py": ""}, False),
    "offered_name_called_otherwise": ("p", CORE, {**CORE, "p/_core.py": "def f(x, y): return x\n"}, False),
    "offered_name_moved": (
        "p",
        CORE,
        {"p/__init__.py": "from p.new import f\n", "p/new.py": "def f(x, y=0): return x\n"},
        True,
    ),
    "module_grew_into_a_package": ("p.py", MODULE, CORE, True),
    "module_grew_and_lost_a_name": ("p.py", {"p.py": "def f(x): return x\ndef g(): pass\n"}, CORE, False),
    "package_before_an_untouched_module": ("p.py", MODULE, {**MODULE, "p/__init__.py": ""}, False),
}


@pytest.mark.parametrize("name", LAYOUTS)
def test_public_names_wherever_they_stand(world: GraderWorld, name: str) -> None:
    package, before, after, passes = LAYOUTS[name]
    world.task(
        before, [files("x", "gone", exists=False)], invariants=[{"type": "public_api_unchanged", "package": package}]
    )
    world.left(after)
    assert results(world)["public_api_unchanged"].passed is passes


def test_blast_radius(world: GraderWorld) -> None:
    before: Files = {"src/a.py": "1", "src/b.py": "1", "tests/t.py": "1"}
    checks = [
        {"id": "p1", "type": "diff", "allow": ["src/**"], "required": ["src/a.py"], "max_files": 2, "max_bytes": 1},
        {"id": "f1", "type": "diff", "allow": ["src/a.py"]},
        {"id": "f2", "type": "diff", "allow": ["**"], "required": ["docs/**"]},
        {"id": "f3", "type": "diff", "allow": ["**"], "max_files": 1},
        {"id": "f4", "type": "diff", "allow": ["**"], "max_bytes": 0},
        {"id": "f5", "type": "diff", "allow": []},
    ]
    world.task(before, checks, invariants=[{"type": "paths_unchanged", "paths": ["tests/**"]}])
    world.left({"src/a.py": "2", "tests/t.py": "1", "tests/__pycache__/t.pyc": "x"})
    found = results(world)
    assert {name for name, result in found.items() if not result.passed} == {"f1", "f2", "f3", "f4", "f5"}
    assert found["f1"].evidence == ("src/b.py was removed, which is not allowed",)
    assert found["f1"].actual == "src/a.py, src/b.py (and 1 ignored by-product)"


API = "import os\nLIMIT = 1\ndef keep(a, b=1): ...\nclass C:\n    def m(self, x): ...\ndef _private(): ...\n"
APIS: dict[str, tuple[Files, bool]] = {
    "inner": (
        {
            "src/p/__init__.py": API.replace("...", "return 1")
            .replace("LIMIT = 1", "LIMIT = 2")
            .replace("_private", "_other")
        },
        True,
    ),
    "more": ({"src/p/__init__.py": API.replace("b=1", "b=None, *, c=2") + "def new(): ...\n"}, True),
    "removed": ({"src/p/__init__.py": API.replace("def keep", "def kept")}, False),
    "required": ({"src/p/__init__.py": API.replace("b=1", "b")}, False),
    "too_deep": ({"src/p/__init__.py": API + "x = " + "-" * 50_000 + "1\n"}, False),
    "method": ({"src/p/__init__.py": API.replace("self, x", "self")}, False),
    "syntax": ({"src/p/__init__.py": API + "def (\n"}, False),
    "gone": ({"src/q.txt": ""}, False),
    "stub": ({"src/p/__init__.py": "", "src/p/__init__.pyi": API}, False),
    "pth": ({"src/x.pth": "/grader/pristine/src\n"}, False),
    "kind": ({"src/p/__init__.py": API.replace("class C:\n    def m(self, x): ...", "C = None")}, False),
}


@pytest.mark.parametrize("name", APIS)
def test_public_api(world: GraderWorld, name: str) -> None:
    after, unchanged = APIS[name]
    world.task(
        {"src/p/__init__.py": API},
        [files("any", "src", exists=False)],
        invariants=[{"type": "public_api_unchanged", "package": "src/p"}],
    )
    world.left(after)
    found = results(world)["public_api_unchanged"]
    assert found.passed is unchanged, found
    assert unchanged or found.evidence
