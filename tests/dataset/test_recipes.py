"""What the documents say about reading the dataset works as it stands there."""

import asyncio
import re
from pathlib import Path

import pytest
from dataset_world import ask, commit, lay_run

from orchestrator.dataset.compact import compact
from orchestrator.dataset.query import query
from orchestrator.storage.file import FileStore

ROOT = Path(__file__).parents[2]
README = (ROOT / "orchestrator/dataset/README.md").read_text()
COMMANDS = re.findall(r'orchestrate query "(.*?)"', README + (ROOT / "README.md").read_text())


def blocks(language):
    return re.findall(rf"(?ms)^```{language}\n(.*?)^```", README)


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    folder = tmp_path_factory.mktemp("recipes")
    found = FileStore(folder / "store")

    async def lay():
        for number in range(3):
            await lay_run(found, f"r{number}", number)
            await commit(found, f"r{number}", folder)
        await compact(found, folder, due=3)  # now there are parts that no longer count

    asyncio.run(lay())
    return found


def test_there_is_something_to_try():
    assert len(blocks("sql")) >= 4
    assert len(blocks("python")) == 3
    assert len(COMMANDS) >= 5


@pytest.mark.parametrize("sql", [*blocks("sql"), *(sql for sql in COMMANDS if sql != "SQL")])
def test_queries_of_the_documents_give_rows(store, tmp_path, sql):
    assert asyncio.run(query(store, sql, tmp_path)).rows


@pytest.mark.parametrize("number", [1, 2], ids=["duckdb", "polars"])
def test_recipes_give_the_same_rates_as_a_query(store, tmp_path, number):
    names = {"STORE": str(store.root)}
    for block in (blocks("python")[0], blocks("python")[number]):
        exec(compile(block, "README.md", "exec"), names)
    wanted = asyncio.run(
        ask(store, "SELECT agent, avg(passed::INT) FROM trials GROUP BY agent ORDER BY agent", tmp_path)
    )
    assert [(agent, pytest.approx(rate)) for agent, rate in names["rates"]] == wanted
