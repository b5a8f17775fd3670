from subject import call, run


def test_sums() -> None:
    assert call("adder:add", 2, 3) == 5
    assert call("adder:add", -7, 3) == -4


def test_runs_in_the_image() -> None:
    assert run("cat", "/etc/marker").stdout == "in-the-image\n"
    assert run("./run.sh", "20", "22").stdout == "42\n"


def test_the_subject_has_no_hidden_file() -> None:
    found = run(
        "sh", "-c", "find / -name 'test_adder*' -not -path '/proc/*' 2>/dev/null; ls hidden /workspace 2>/dev/null"
    )
    assert found.stdout.split() == []
