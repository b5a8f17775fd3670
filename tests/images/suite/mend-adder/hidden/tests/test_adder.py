from subject import call, run, script

LOOK = """
import os
result = [f"{here}/{name}" for here, _, names in os.walk("/") if not here.startswith("/proc") for name in names if "test_adder" in name]
"""


def test_sums() -> None:
    assert call("adder:add", 2, 3) == 5
    assert call("adder:add", -7, 3) == -4


def test_runs_in_the_image() -> None:
    assert run("cat", "/etc/marker").stdout == "in-the-image\n"
    assert run("./run.sh", "20", "22").stdout == "42\n"
    assert run("sh", "-c", "echo $FROM_THE_IMAGE").stdout == "yes\n"


def test_nothing_hidden_is_where_the_work_is_called() -> None:
    assert script(LOOK) == []
    assert run("ls", "/workspace").exit_code != 0
