"""What SQL can do, and above all what it cannot."""

import asyncio
import hashlib
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest
from dataset_world import ask, commit, lay_run

from orchestrator.dataset.columns import TABLES
from orchestrator.dataset.query import query
from orchestrator.errors import SpecError
from orchestrator.stats.quantiles import quantile
from orchestrator.storage.file import FileStore


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    folder = tmp_path_factory.mktemp("query")
    store = FileStore(folder / "st[o]re's *")  # what DuckDB would take for a pattern, and a quote
    (folder / "secret.txt").write_text("do not tell")

    async def lay():
        await lay_run(store, "r1", 2)
        await commit(store, "r1", folder)

    asyncio.run(lay())
    return store, folder


def run(world, sql):
    store, folder = world
    return asyncio.run(query(store, sql, folder / "cache"))


def digests(folder):
    return {path: hashlib.sha256(path.read_bytes()).hexdigest() for path in folder.rglob("*") if path.is_file()}


def test_an_empty_dataset_has_its_tables(folder):
    for name in TABLES:
        assert asyncio.run(ask(FileStore(folder / "store"), f"SELECT * FROM {name}", folder)) == []
    assert not (folder / "store").exists()


def test_a_store_with_runs_and_an_empty_dataset_says_what_to_do(folder):
    async def story():
        store = FileStore(folder / "store")
        await lay_run(store, "r1", tasks=1, samples=1)
        found = await query(store, "SELECT count(*) FROM trials", folder)
        assert found.notes == ("the dataset is empty; add a run with: orchestrate rebuild r1",)
        await commit(store, "r1", folder)
        assert (await query(store, "SELECT 1", folder)).notes == ()

    asyncio.run(story())


def test_types_are_what_the_schema_says(world):
    found = dict(run(world, "SELECT * FROM trials").columns)
    assert found["created_at"] == "TIMESTAMP WITH TIME ZONE"
    assert (found["cost_nano_usd"], found["passed"], found["models"]) == ("BIGINT", "BOOLEAN", "VARCHAR[]")
    (kinds,) = run(world, "SELECT typeof(min(created_at)), min(created_at)::VARCHAR FROM trials").rows
    assert kinds == ("TIMESTAMP WITH TIME ZONE", "2026-03-02 09:00:00+00")


def test_every_column_is_explained(world):
    found = run(world, 'SELECT "table", "column", doc FROM columns WHERE "table" = \'trials\'').rows
    assert found == [("trials", column.name, column.doc) for column in TABLES["trials"].columns]


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT count(*) FROM trials",
        "WITH a AS (SELECT task, p95(working_s) AS x FROM trials GROUP BY task) SELECT max(x) FROM a",
        "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 3) SELECT * FROM n",
        "FROM trials SELECT DISTINCT ON (task) task, agent ORDER BY task DESC LIMIT 2",
        "SELECT unnest(findings) FROM trials UNION ALL SELECT range::VARCHAR FROM range(2)",
        "SELECT * FROM (UNPIVOT runs ON passed, failed)",
        "SELECT task, agent, count(*) FROM Trials GROUP BY GROUPING SETS ((task), (agent))",
        'SELECT count(*) FROM main."trials" WHERE task IN (SELECT task FROM grades USING SAMPLE 10)',
        "DESCRIBE trials",
        "SUMMARIZE runs",
        "SHOW TABLES",
        "VALUES (1), (2)",
        "SELECT t.task, s.tool FROM trials t LEFT JOIN steps s USING (trial_id), LATERAL (SELECT 1) l LIMIT 1 PERCENT",
        "SELECT task, row_number() OVER (PARTITION BY task ORDER BY sample) FROM trials QUALIFY true LIMIT 3;",
    ],
)
def test_reading_in_every_way_is_possible(world, sql):
    assert run(world, sql).columns


FORBIDDEN = [
    "COPY (SELECT 1) TO '{out}'",
    "COPY (SELECT 1) TO '{part}' (USE_TMP_FILE false)",
    "WITH x AS (COPY (SELECT 1) TO '{part}' (USE_TMP_FILE false)) SELECT 1",
    "WITH x AS (COPY (SELECT 1) TO '{out}') SELECT 1",
    "WITH x AS (INSERT INTO trials SELECT * FROM trials RETURNING *) SELECT 1",
    "WITH x AS (DELETE FROM trials RETURNING *) SELECT 1",
    "SELECT * FROM json_execute_serialized_sql(json_serialize_sql('WITH x AS (COPY (SELECT 1) TO ''{part}'') SELECT 1'))",
    "SELECT * FROM query('SELECT 1')",
    "SELECT 1 WHERE EXISTS (SELECT * FROM QUERY('SELECT 1'))",
    "SELECT * FROM trials, (FROM read_text('{secret}'))",
    "SELECT * FROM read_text('{secret}')",
    "SELECT * FROM read_blob('{secret}')",
    "SELECT * FROM read_csv('{secret}')",
    "SELECT * FROM glob('/**')",
    "SELECT * FROM '{secret}'",
    "SELECT * FROM '/etc/passwd.csv'",
    "SELECT * FROM read_csv('{url}')",
    "SELECT * FROM '{url}/a.parquet'",
    "SELECT * FROM duckdb_settings()",
    "ATTACH '{out}'",
    "ATTACH '{url}/a.db'",
    "INSTALL httpfs",
    "LOAD httpfs",
    "SET enable_external_access = true",
    "SET lock_configuration = false",
    "RESET ALL",
    "PRAGMA database_list",
    "CREATE TABLE t AS SELECT 1",
    "CREATE OR REPLACE VIEW trials AS SELECT 1",
    "DROP VIEW trials",
    "EXPORT DATABASE '{out}'",
    "IMPORT DATABASE '{out}'",
    "EXPLAIN ANALYZE COPY (SELECT 1) TO '{out}'",
    "CALL pragma_version()",
    "PREPARE p AS SELECT 1",
    "CREATE SECRET (TYPE s3)",
    "VACUUM",
    "CHECKPOINT",
    "SELECT 1; COPY (SELECT 1) TO '{out}'",
    "SELECT getenv('HOME')",
    "SELECT * FROM world",
    "SELECT * FROM store",
    "",
    "   -- nothing",
    "SELECT FROM WHERE",
    "SELECT nothing_of_that_name FROM trials",
]


@pytest.mark.parametrize("sql", FORBIDDEN)
def test_sql_can_do_nothing_but_read_the_tables(world, sql):
    _, folder = world
    asked = []

    class Handler(BaseHTTPRequestHandler):
        def handle_one_request(self):
            asked.append(self.client_address)
            self.close_connection = True

        def log_message(self, *_):
            pass

    server = HTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    before = digests(folder)
    part = next(path for path in before if path.suffix == ".parquet" and "trials" in str(path))
    words = {
        "out": str(folder / "out.csv"),
        "part": str(part).replace("'", "''"),
        "secret": str(folder / "secret.txt"),
        "url": f"http://127.0.0.1:{server.server_port}",
    }
    try:
        with pytest.raises(SpecError) as caught:
            run(world, sql.format(**words))
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
    assert "do not tell" not in str(caught.value)
    assert digests(folder) == before
    assert asked == []


def test_a_part_that_may_be_read_is_read_through_its_table_alone(world):
    store, _ = world
    path = next(path for path in store.root.rglob("*.parquet"))
    with pytest.raises(SpecError, match="table function 'read_parquet' is none of"):
        run(world, f"SELECT * FROM read_parquet('{str(path).replace(chr(39), chr(39) * 2)}')")


def test_what_does_not_fit_in_memory_is_spilled_into_a_folder_that_is_gone_afterwards(world, folder, monkeypatch):
    import tempfile

    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    assert run(world, "SELECT count(*) FROM (SELECT * FROM range(300000) ORDER BY hash(range))").rows == [(300_000,)]
    assert list(folder.iterdir()) == []


def test_exact_percentiles_interpolate_and_leave_out_null(world):
    values = [1000.0] * 26 + [3000.0] * 11 + [9000.0] * 2
    listed = ", ".join(f"({value})" for value in values)
    sql = f"SELECT p50(x), p95(x), p99(x) FROM (VALUES {listed}, (NULL)) v(x)"
    assert run(world, sql).rows == [tuple(quantile(values, q) for q in (0.5, 0.95, 0.99))]
    assert run(world, "SELECT p95(working_s) FROM trials WHERE false").rows == [(None,)]
