"""What ``subject`` gives hidden tests, request by request, over a real subject sandbox."""

from __future__ import annotations

import pytest
from grader_world import Files, GraderWorld, lines

BEFORE: Files = {
    "app/work.py": """
        import os, sys, time
        class Box:
            def __init__(self): self.total = 0
            def add(self, n): self.total += n; return self.total
            @staticmethod
            def double(n): return 2 * n
        def echo(*args, **kwargs): return [list(args), kwargs]
        def fail(): raise KeyError("nope")
        def slow(): time.sleep(60)
        def path(): return [sys.path[0], os.getcwd()]
        def fill(): return "x" * 2_000_000
        def write(text):
            with open("data.txt", "a") as f: f.write(text)
            return open("data.txt").read()
        """,
    "data.txt": "start ",
    "app/__main__.py": "import sys\nsys.stderr.write('no')\nopen('out.txt', 'w').write(open('in.txt').read().upper())\nsys.exit(3)\n",
}
HIDDEN: Files = {
    "tests/test_subject.py": """
        import pytest
        from subject import SubjectDied, SubjectError, call, run, script

        def test_values_cross():
            assert call("work:echo", 1, [None, True, 1.5, "é"], key={"a": []}) == [[1, [None, True, 1.5, "é"]], {"key": {"a": []}}]
            assert call("work:Box.double", 4) == 8
            assert script("from work import Box; b = Box(); b.add(3); result = b.add(4)") == 7

        def test_exceptions_are_named():
            with pytest.raises(SubjectError) as caught:
                call("work:fail")
            assert (caught.value.type, "LookupError" in caught.value.types, caught.value.message) == ("KeyError", True, "'nope'")
            with pytest.raises(SubjectError, match="ModuleNotFoundError"):
                call("nothing:here")
            with pytest.raises(SubjectError, match="KeyError: 'result'"):
                script("x = 1")

        def test_requests_do_not_see_each_other():
            assert call("work:write", "one") == "start one"
            assert call("work:write", "two") == "start two"
            assert run("cat", "data.txt").stdout == "start "

        LEAVE = '''
        import ctypes, os
        libc = ctypes.CDLL(None)
        folders = [os.path.join(top, "kept/inner") for top in ("/tmp", "/dev/shm", os.path.expanduser("~"), "/workspace")]
        result = [os.path.exists(os.path.dirname(folder)) for folder in folders]
        for kind, get in (("shm", (libc.shmget, 4096)), ("msg", (libc.msgget,)), ("sem", (libc.semget, 1))):
            result.append(len(open("/proc/sysvipc/" + kind).readlines()) > 1)
            get[0](4711, *get[1:], 0o1600)
        try: result.append(ctypes.CDLL("librt.so.1").mq_open(b"/kept", os.O_CREAT | os.O_RDWR, 0o600, None) >= 0)
        except OSError: pass
        for folder in folders:
            os.makedirs(folder)
            os.chmod(folder, 0)
            os.chmod(os.path.dirname(folder), 0)
        '''

        def test_nothing_is_kept_from_one_request_to_the_next():
            assert not any(script(LEAVE))
            assert not any(script(LEAVE))

        def test_programs_run():
            done = run("python3", "-m", "app", files={"in.txt": "hi"}, read=["out.txt", "gone.txt"])
            assert (done.exit_code, done.stderr, done.files) == (3, "no", {"out.txt": "HI"})
            assert run("sh", "-c", "kill -9 $$").exit_code == -9
            assert run("no-such-program").exit_code == 127
            assert run("sh", "-c", "echo $GREETING; test -e in.txt", env={"GREETING": "hey"}).stdout == "hey\\n"

        def test_limits():
            with pytest.raises(SubjectDied, match="no answer within 0.5 s"):
                script("import work; work.slow()", timeout=0.5)
            with pytest.raises(SubjectDied, match="more than a request may"):
                call("work:fill")
            with pytest.raises(SubjectDied, match="more than a request may"):
                run("sh", "-c", "yes")
            with pytest.raises(SubjectDied, match="its last output: bye"):
                script("import os; print('bye', flush=True); os._exit(5)")

        def test_mistakes_of_the_test_itself():
            with pytest.raises(ValueError, match="module:function"):
                call("work.echo")
            with pytest.raises(ValueError, match="inside the workspace"):
                run("true", read=["../x"])

        @pytest.mark.parametrize("n", [1, 2])
        def test_paths(n):
            assert call("work:path") == ["/workspace/app", "/workspace"]
        """,
    "other/test_more.py": "import pytest\n@pytest.mark.skip\ndef test_skipped(): pass\n@pytest.mark.xfail\ndef test_xfail(): assert 0\n",
}


def check(**fields: str) -> dict[str, object]:
    return {
        "id": "t",
        "type": "command",
        "run": "pytest -q hidden/tests",
        "results": "junit",
        "pythonpath": ["app"],
        **fields,
    }


def test_what_hidden_tests_can_ask(world: GraderWorld) -> None:
    world.task(BEFORE, [check()], hidden=HIDDEN)
    world.left(BEFORE)
    verdict = world.grade()
    assert verdict.result == "passed", lines(verdict)


@pytest.mark.parametrize("command", ["pytest -v hidden/tests", "python3 -m pytest hidden/tests", "pytest -rA hidden"])
def test_pytest_may_speak_at_length(world: GraderWorld, command: str) -> None:
    hidden: Files = {"tests/test_it.py": "def test(): pass\n"}
    world.task(BEFORE, [check(run=command)], hidden=hidden)
    world.left(BEFORE)
    verdict = world.grade()
    assert verdict.result == "passed", lines(verdict)


@pytest.mark.parametrize("more", [{}, {"expect": "hidden/ids.txt"}])
def test_a_hidden_test_that_imports_the_workspace_is_told_how_to_ask_for_it(
    world: GraderWorld, more: dict[str, str]
) -> None:
    hidden: Files = {"tests/test_it.py": "import work\ndef test(): pass\n", "ids.txt": "tests/test_it.py::test\n"}
    world.task(BEFORE, [check(**more)], hidden=hidden)
    world.left(BEFORE)
    evidence = world.grade().checks[0].evidence
    cause, hint, *_ = evidence
    assert cause.endswith("test_it.py: could not be collected: ModuleNotFoundError: No module named 'work'"), evidence
    assert hint == "hidden tests cannot import the workspace; use `from subject import call`"


def test_an_import_that_the_agent_broke_is_no_mistake_of_the_test(world: GraderWorld) -> None:
    hidden: Files = {"tests/test_it.py": "from subject import call\nVALUE = call('gone:f')\ndef test(): pass\n"}
    world.task(BEFORE, [check()], hidden=hidden)
    world.left(BEFORE)
    evidence = world.grade().checks[0].evidence
    assert "SubjectError: ModuleNotFoundError: No module named 'gone'" in evidence[0]
    assert len(evidence) == 1, evidence


def test_only_the_expected_tests_count_and_each_must_pass(world: GraderWorld) -> None:
    ids = ("other/test_more.py::test_skipped", "other/test_more.py::test_xfail", "other/test_more.py::test_missing")
    spec = check(run="pytest -q hidden/other hidden/tests/test_subject.py::test_paths", expect="hidden/ids.txt")
    world.task(BEFORE, [spec], hidden={**HIDDEN, "ids.txt": "\n".join((*ids, "tests/test_subject.py::test_paths[1]"))})
    world.left(BEFORE)
    verdict = world.grade()
    assert (verdict.result, verdict.checks[0].actual) == ("failed", "1 of 4 passed"), lines(verdict)
    assert [line.split(": ", 1)[1] for line in verdict.checks[0].evidence][:2] == [
        "skipped: Skipped: unconditional skip",
        "xfailed: assert 0",
    ]
    assert verdict.checks[0].evidence[2] == (
        "other/test_more.py::test_missing: did not run; these ran: tests/test_subject.py::test_paths[2]"
    )


def test_a_command_that_does_not_end_fails_at_its_time_limit(world: GraderWorld) -> None:
    world.task(BEFORE, [{"id": "t", "type": "command", "run": "sleep 60", "timeout_seconds": 1}])
    world.left(BEFORE)
    verdict = world.grade()
    assert (verdict.result, verdict.checks[0].actual) == ("failed", "not finished within 1 s")


def test_a_command_that_runs_no_tests_is_the_authors_mistake(world: GraderWorld) -> None:
    world.task(BEFORE, [check(run="pytest -q hidden/nowhere")], hidden=HIDDEN)
    world.left(BEFORE)
    verdict = world.grade()
    assert (verdict.result, verdict.error.type) == ("grader_error", "check")
    assert "pytest was called wrongly" in verdict.error.message
    assert "file or directory not found: hidden/nowhere" in verdict.error.message
