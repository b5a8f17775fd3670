from subject import run


def test_the_poem_is_whole() -> None:
    assert run("cat", "count.txt", "poem.txt").stdout.split() == ["4", "one", "two", "three", "four"]
